//! Databases that are used again: for thousands of worlds in one thread, making the tables would take longer than what happens in them.

use std::{cell::RefCell, rc::Rc};

use super::{Db, Opened, Shared};
use crate::store::schema;

/// The savepoint that a database is taken back to which is to be used again.
const TABLES: &str = "tables";

thread_local! {
    /// Databases with tables and no more, and what stands for the statements that made them.
    static SPARE: RefCell<Vec<(Rc<Opened>, u64)>> = RefCell::default();
}

impl Db {
    /// A database in which an object has made its tables, and nothing else.
    ///
    /// For thousands of worlds in one thread: the tables are made once, and what a world did is taken back when the last handle goes.
    ///
    /// # Panics
    /// SQLite cannot open a database in memory.
    pub fn with_tables() -> Self {
        let (opened, tables) = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            let new = Self::new();
            schema::migrate(&new).expect("tables of a new database");
            (new.shared.opened.clone(), new.shared.schema.get())
        });
        let db = Self::over(opened, Some(tables));
        db.command(&format!("SAVEPOINT {TABLES}")).expect("a savepoint");
        db
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whatever cannot be taken back is not used again.
        if let Some(schema) = self.lent
            && !self.opened.conn.is_autocommit()
            && self.opened.run(&format!("ROLLBACK TO {TABLES}")).and_then(|()| self.opened.run(&format!("RELEASE {TABLES}"))).is_ok()
        {
            let spare = (self.opened.clone(), schema);
            // At the end of a thread there is no next one.
            let _ = SPARE.try_with(|spares| spares.borrow_mut().push(spare));
        }
    }
}
