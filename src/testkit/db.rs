//! The native database: the engine's SQL on SQLite in memory, refusing what the platform refuses.
//!
//! A statement that works here but not in a Durable Object is worth less than no test, so the platform's rules are enforced:
//! numbers bind as REAL, statements that open transactions or touch the connection are not authorised, limits on text, values and
//! parameters are the platform's, and errors read as they do there. On top of that the database can be made to fail, can tell what
//! was written outside a transaction, and outlives the world it was opened by.
//!
//! A commit is pending until it is flushed, and a crash may lose pending commits, the newest first. Each is a savepoint that stays
//! open until then.

mod again;
mod commits;
mod snapshot;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::Waker,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, StatementStatus,
    hooks::{AuthAction, AuthContext, Authorization},
    limits::Limit,
    types::{ToSqlOutput, ValueRef},
};
use serde_json::{Map, Value as Json};

use self::commits::{Before, Look};
pub use self::snapshot::Snapshot;
use super::death::{Fate, SharedFate};
use crate::{
    error::{Error, Result},
    store::{Meter, Row, Sql, Value},
    time::Millis,
};

/// Bytes of a value or a row (platform).
const VALUE_MAX: i32 = 2_000_000;
/// Bytes of a statement's text (platform).
const SQL_MAX: i32 = 100_000;
/// Parameters of a statement (platform).
const PARAMETERS_MAX: i32 = 100;
/// What a superseded incarnation is told when it touches storage.
const SUPERSEDED: &str = "Error: Connection closed: this Durable Object instance is no longer active.";
thread_local! {
    /// What statements touch, by the statements that made the tables: learning it costs more than a step of the object.
    static PLANS: RefCell<BTreeMap<(u64, &'static str), Rc<Touched>>> = RefCell::default();
}

/// A database in memory, as one incarnation of an object sees it. Cloning shares it.
///
/// ```
/// use wakeful::{store::{Sql, Value}, testkit::Db};
///
/// let db = Db::new();
/// let sql: &dyn Sql = &db;
/// sql.run("CREATE TABLE t (n INTEGER NOT NULL) STRICT", &[])?;
/// sql.run("INSERT INTO t VALUES (?)", &[Value::Int(7)])?;
/// assert_eq!(sql.one("SELECT n FROM t", &[], |row| row.int(0))?, Some(7));
///
/// let refused = sql.run("PRAGMA user_version = 3", &[]).unwrap_err();
/// assert_eq!(refused.message(), "not authorized: SQLITE_AUTH");
/// # Ok::<(), wakeful::error::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    shared: Rc<Shared>,
    /// Which incarnation this handle belongs to; a newer one makes it useless.
    life: u64,
    meter: Rc<Cell<Meter>>,
}

struct Opened {
    conn: Connection,
    /// Lifts the authoriser for the statements this module issues itself.
    internal: Arc<AtomicBool>,
    /// What the authoriser sees while a statement is prepared. A channel because it has to be `Send`.
    seen: mpsc::Receiver<Touch>,
}

struct Shared {
    opened: Rc<Opened>,
    /// Whether the tables are for the next one too ([`Db::with_tables`]), and what stood for them.
    lent: Option<u64>,
    /// Stands for the statements that made the tables.
    schema: Cell<u64>,
    life: Cell<u64>,
    depth: Cell<u32>,
    transactions: Cell<u64>,
    steps: Cell<u64>,
    loose: RefCell<Vec<&'static str>>,
    faults: RefCell<Vec<(FaultAt, String)>>,
    /// What every statement is told that writes.
    refusal: RefCell<Option<String>>,
    /// The alarm is a row of the platform's own: a transaction that fails takes it back.
    alarm: Cell<Option<Millis>>,
    /// What a pending commit is taken back to, oldest first.
    pending: RefCell<Vec<Before>>,
    /// Transactions that reached the disk, or never will.
    flushed: Cell<u64>,
    lost: Cell<u64>,
    held: RefCell<Vec<Waker>>,
    fate: SharedFate,
    watch: RefCell<Option<Look>>,
    largest: Cell<usize>,
}

/// What a statement reads and writes, as the authoriser reports it.
#[derive(Clone, Default)]
struct Touched {
    reads: BTreeSet<String>,
    inserts: BTreeSet<String>,
    deletes: BTreeSet<String>,
    updates: BTreeMap<String, BTreeSet<String>>,
    /// Counts a whole table without stepping through it.
    counts: bool,
    /// Writes rows; decides whether a statement outside a transaction is suspicious.
    writes: bool,
    /// Changes the schema, and with it what every other statement costs.
    defines: bool,
    /// Rows billed for one changed row: itself and its index entries.
    weight: u64,
}

/// One thing a statement touches.
enum Touch {
    Reads(String),
    Inserts(String),
    Deletes(String),
    Updates(String, String),
    Defines,
}

/// Where an injected fault strikes, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAt {
    /// The n-th statement from now; 1 is the next.
    Statement(u32),
    /// The next statement whose text contains this.
    Matching(String),
    /// The next transaction, before its body runs.
    Begin,
    /// The next transaction whose body succeeded: rolled back instead of committed.
    Commit,
}

impl Touched {
    fn add(&mut self, touch: Touch) {
        self.writes |= matches!(touch, Touch::Inserts(_) | Touch::Deletes(_) | Touch::Updates(..));
        match touch {
            Touch::Reads(table) => drop(self.reads.insert(table)),
            Touch::Inserts(table) => drop(self.inserts.insert(table)),
            Touch::Deletes(table) => drop(self.deletes.insert(table)),
            Touch::Updates(table, column) => drop(self.updates.entry(table).or_default().insert(column)),
            Touch::Defines => self.defines = true,
        }
    }
}

impl Default for Db {
    fn default() -> Self {
        Self::new()
    }
}

impl Opened {
    fn internally<T>(&self, body: impl FnOnce() -> T) -> T {
        let before = self.internal.swap(true, Ordering::Relaxed);
        let value = body();
        self.internal.store(before, Ordering::Relaxed);
        value
    }

    /// One statement of this module's own.
    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.internally(|| self.conn.prepare_cached(sql)?.execute([])).map(drop)
    }
}

impl Db {
    /// An empty database.
    ///
    /// # Panics
    /// SQLite cannot open a database in memory.
    pub fn new() -> Self {
        // A world stays in its thread: SQLite need not lock anything.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_in_memory_with_flags(flags).expect("SQLite opens a database in memory");
        let limits = [
            (Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_MAX),
            (Limit::SQLITE_LIMIT_COLUMN, 100),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 5),
            (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50),
            (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, PARAMETERS_MAX),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 10),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        ];
        conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF").expect("pragmas of a new database");
        for (limit, value) in limits {
            conn.set_limit(limit, value).expect("a limit SQLite knows");
        }
        conn.set_prepared_statement_cache_capacity(256);
        let internal = Arc::new(AtomicBool::new(false));
        let (notes, seen) = mpsc::channel();
        let free = internal.clone();
        conn.authorizer(Some(move |cx: AuthContext<'_>| {
            if free.load(Ordering::Relaxed) {
                return Authorization::Allow;
            }
            if let Some(touch) = touch(&cx.action) {
                // The receiver lives as long as the connection.
                let _ = notes.send(touch);
            }
            authorise(&cx.action)
        }));
        Self::over(Rc::new(Opened { conn, internal, seen }), None)
    }

    fn over(opened: Rc<Opened>, lent: Option<u64>) -> Self {
        let shared = Shared {
            opened,
            lent,
            schema: Cell::new(lent.unwrap_or(0)),
            life: Cell::new(0),
            depth: Cell::new(0),
            transactions: Cell::new(0),
            steps: Cell::new(0),
            loose: RefCell::default(),
            faults: RefCell::default(),
            refusal: RefCell::default(),
            alarm: Cell::new(None),
            pending: RefCell::default(),
            flushed: Cell::new(0),
            lost: Cell::new(0),
            held: RefCell::default(),
            fate: Rc::new(Fate::default()),
            watch: RefCell::new(None),
            largest: Cell::new(0),
        };
        Self { shared: Rc::new(shared), life: 0, meter: Rc::default() }
    }

    /// A handle for the next incarnation: the same rows, a meter from zero. Every older handle is refused from here on, as the
    /// platform refuses an instance that was replaced.
    pub fn supersede(&self) -> Db {
        let life = self.shared.life.get() + 1;
        self.shared.life.set(life);
        Db { shared: self.shared.clone(), life, meter: Rc::default() }
    }

    /// Bytes of the largest value that was ever bound.
    pub fn largest_value(&self) -> usize {
        self.shared.largest.get()
    }

    /// Makes one later call fail with `text`, for example `database or disk is full: SQLITE_FULL`. Several faults may wait.
    pub fn fail(&self, at: FaultAt, text: impl Into<String>) {
        self.shared.faults.borrow_mut().push((at, text.into()));
    }

    /// Every statement that writes a row fails with this, as on a full disk, until there is [room](Self::make_room).
    pub fn refuse_writes(&self, text: impl Into<String>) {
        *self.shared.refusal.borrow_mut() = Some(text.into());
    }

    /// Rows can be written again.
    pub fn make_room(&self) {
        self.shared.refusal.borrow_mut().take();
    }

    /// No fault waits any more, and rows can be written.
    pub fn heal(&self) {
        self.forgive();
        self.make_room();
    }

    /// Faults that have not struck yet.
    pub fn pending_faults(&self) -> usize {
        self.shared.faults.borrow().len()
    }

    /// Takes back the faults that have not struck.
    pub fn forgive(&self) {
        self.shared.faults.borrow_mut().clear();
    }

    /// Sets or clears the alarm, as part of the transaction that is open.
    pub(super) fn set_alarm(&self, at: Option<Millis>) {
        self.shared.alarm.set(at);
        let meter = self.meter.get();
        self.meter.set(Meter { written: meter.written + u64::from(at.is_some()), ..meter });
    }

    /// When the alarm will fire.
    pub fn alarm(&self) -> Option<Millis> {
        self.shared.alarm.get()
    }

    /// Transactions committed so far, by every incarnation.
    pub fn transactions(&self) -> u64 {
        self.shared.transactions.get()
    }

    /// Virtual-machine steps of SQLite so far. Unlike [`Meter::read`] it grows with every row visited, also those an index walk
    /// skips or an aggregate folds, so it shows work that grows with history.
    pub fn steps(&self) -> u64 {
        self.shared.steps.get()
    }

    /// The statements that wrote while no transaction was open, and forgets them. The engine writes in transactions only.
    pub fn take_loose_writes(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.shared.loose.borrow_mut())
    }

    /// The rows of any query, for assertions; costs nothing on the meter. Blobs come as `x'…'`.
    ///
    /// # Panics
    /// The query is not valid.
    pub fn query(&self, sql: &str) -> Vec<Map<String, Json>> {
        self.shared.opened.internally(|| {
            let mut statement = self.shared.opened.conn.prepare_cached(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
            let mut rows = statement.raw_query();
            let mut all = Vec::new();
            while let Some(row) = rows.next().unwrap_or_else(|e| panic!("{sql}: {e}")) {
                let cells = names.iter().enumerate().map(|(i, name)| {
                    let cell = match row.get_ref(i).expect("a column of the row") {
                        ValueRef::Null => Json::Null,
                        ValueRef::Integer(n) => n.into(),
                        ValueRef::Real(n) => n.into(),
                        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
                        ValueRef::Blob(bytes) => bytes
                            .iter()
                            .fold("x'".to_owned(), |mut hex, b| {
                                let _ = write!(hex, "{b:02x}");
                                hex
                            })
                            .into(),
                    };
                    (name.clone(), cell)
                });
                all.push(cells.collect());
            }
            all
        })
    }

    /// Rows of a table.
    pub fn count(&self, table: &str) -> u64 {
        let rows = self.query(&format!("SELECT count(*) AS n FROM \"{table}\""));
        rows.first().and_then(|row| row.get("n")).and_then(Json::as_u64).unwrap_or(0)
    }

    fn command(&self, sql: &str) -> Result<()> {
        self.shared.opened.run(sql).map_err(storage)
    }

    fn alive(&self) -> Result<()> {
        if self.is_superseded() { Err(Error::storage(SUPERSEDED)) } else { Ok(()) }
    }

    /// Takes the fault that strikes here, if one does.
    fn strike(&self, hits: impl Fn(&mut FaultAt) -> bool) -> Result<()> {
        let mut faults = self.shared.faults.borrow_mut();
        match faults.iter_mut().position(|(at, _)| hits(at)) {
            Some(i) => {
                let error = Error::storage(faults.remove(i).1);
                if error.is_gone() {
                    self.shared.fate.reset();
                }
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Index entries a changed row costs at most. A partial index counts whenever its predicate could be concerned: the meter may
    /// name more than the bill, never less.
    fn entries(&self, table: &str, updated: Option<&BTreeSet<String>>) -> u64 {
        let without_rowid = self
            .query(&format!("SELECT wr FROM pragma_table_list('{table}')"))
            .iter()
            .any(|row| row.get("wr").and_then(Json::as_i64) == Some(1));
        let indexes = self.query(&format!(
            "SELECT l.name AS name, l.origin AS origin, s.sql AS sql FROM pragma_index_list('{table}') l \
             LEFT JOIN sqlite_schema s ON s.name = l.name"
        ));
        let touched = indexes.iter().filter(|index| {
            let text = |key: &str| index.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
            // The primary key of such a table is the table.
            if without_rowid && text("origin") == "pk" {
                return false;
            }
            let Some(updated) = updated else { return true };
            let sql = text("sql");
            if sql.is_empty() {
                let columns = self.query(&format!("SELECT name FROM pragma_index_info('{}')", text("name")));
                return columns.iter().filter_map(|c| c.get("name").and_then(Json::as_str)).any(|c| updated.contains(c));
            }
            let tail = sql.split_once('(').map_or("", |(_, tail)| tail);
            tail.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| updated.contains(word))
        });
        touched.count() as u64
    }

    /// What is known of a statement that was just prepared for the first time.
    fn learn(&self, sql: &'static str) -> Rc<Touched> {
        let mut plan = Touched::default();
        self.shared.opened.seen.try_iter().for_each(|touch| plan.add(touch));
        // Explaining costs more than most statements; only an aggregate can count a table without stepping through it.
        if !plan.reads.is_empty() && sql.to_ascii_lowercase().contains("count(") {
            let program = self.query(&format!("EXPLAIN {sql}"));
            plan.counts = program.iter().any(|op| op.get("opcode").and_then(Json::as_str) == Some("Count"));
        }
        let whole = plan.inserts.iter().chain(&plan.deletes).map(|table| self.entries(table, None));
        let parts = plan.updates.iter().map(|(table, columns)| self.entries(table, Some(columns)));
        plan.weight = 1 + whole.chain(parts).max().unwrap_or(0);
        let plan = Rc::new(plan);
        // A table that is there already changes nothing, and a new one no statement that was known before.
        let again = sql.starts_with("CREATE TABLE IF NOT EXISTS") && self.shared.schema.get() != 0;
        if plan.defines && !again {
            self.shared.opened.conn.flush_prepared_statement_cache();
            self.shared
                .schema
                .set(sql.bytes().fold(self.shared.schema.get(), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)));
        } else if !plan.defines {
            PLANS.with_borrow_mut(|plans| plans.insert((self.shared.schema.get(), sql), plan.clone()));
        }
        plan
    }
}

impl Sql for Db {
    fn exec(&self, sql: &'static str, args: &[Value<'_>], row: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()> {
        self.alive()?;
        self.strike(|at| match at {
            FaultAt::Statement(n) => {
                *n = n.saturating_sub(1);
                *n == 0
            }
            FaultAt::Matching(text) => sql.contains(text.as_str()),
            FaultAt::Begin | FaultAt::Commit => false,
        })?;
        let conn = &self.shared.opened.conn;
        let known = PLANS.with_borrow(|plans| plans.get(&(self.shared.schema.get(), sql)).cloned());
        // The authoriser speaks only while a statement is compiled: the first time it must be, whatever the cache holds.
        if known.is_none() {
            self.shared.opened.seen.try_iter().for_each(drop);
            conn.prepare(sql).map_err(storage)?;
        }
        let plan = known.unwrap_or_else(|| self.learn(sql));
        let mut statement = conn.prepare_cached(sql).map_err(storage)?;
        if let Some(text) = self.shared.refusal.borrow().as_ref().filter(|_| plan.writes && !plan.defines) {
            return Err(Error::storage(text.clone()));
        }
        if plan.writes && self.shared.depth.get() == 0 {
            self.shared.loose.borrow_mut().push(sql);
        }
        if statement.parameter_count() != args.len() {
            let wanted = statement.parameter_count();
            return Err(Error::storage(format!(
                "Wrong number of parameter bindings for SQL query: {} given, {wanted} wanted: {sql}",
                args.len()
            )));
        }
        for (i, arg) in args.iter().enumerate() {
            let value = match *arg {
                Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
                Value::Int(n) if n.unsigned_abs() > 1 << 53 => {
                    return Err(Error::input(format!("parameter {}: {n} is beyond 2^53 and would lose digits: {sql}", i + 1)));
                }
                // workerd binds JS numbers as REAL; only a column with INTEGER affinity turns them back.
                Value::Int(n) => ToSqlOutput::Borrowed(ValueRef::Real(n as f64)),
                Value::Text(text) => {
                    self.shared.largest.set(self.shared.largest.get().max(text.len()));
                    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
                }
                Value::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            };
            statement.raw_bind_parameter(i + 1, value).map_err(storage)?;
        }
        let changes_before = conn.total_changes();
        let mut returned = 0;
        let mut outcome = Ok(());
        {
            let mut rows = statement.raw_query();
            loop {
                match rows.next() {
                    Ok(None) => break,
                    Ok(Some(next)) => {
                        returned += 1;
                        outcome = row(&Cells(next));
                    }
                    Err(e) => outcome = Err(storage(e)),
                }
                if outcome.is_err() {
                    break;
                }
            }
        }
        // Counters of a statement that ran inside the callback are its own; changes are not, but only writes without rows nest.
        let changes = if plan.writes { conn.total_changes() - changes_before } else { 0 };
        let scanned = u64::try_from(statement.reset_status(StatementStatus::FullscanStep)).unwrap_or(0);
        let steps = u64::try_from(statement.reset_status(StatementStatus::VmStep)).unwrap_or(0);
        self.shared.steps.set(self.shared.steps.get() + steps);
        let counted = if plan.counts { plan.reads.iter().map(|table| self.count(table)).max().unwrap_or(0) } else { 0 };
        let found = if plan.updates.is_empty() && plan.deletes.is_empty() { 0 } else { changes };
        let meter = self.meter.get();
        self.meter.set(Meter {
            read: meter.read + scanned.max(returned).max(counted).max(found),
            written: meter.written + changes * plan.weight,
        });
        outcome
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.commit(body)
    }

    fn meter(&self) -> Meter {
        self.meter.get()
    }
}

struct Cells<'r, 's>(&'r rusqlite::Row<'s>);

impl Cells<'_, '_> {
    fn cell(&self, i: usize) -> Result<ValueRef<'_>> {
        self.0.get_ref(i).map_err(|_| Error::corrupt(format!("a row has no column {i}")))
    }
}

impl Row for Cells<'_, '_> {
    fn int(&self, i: usize) -> Result<i64> {
        self.opt_int(i)?.ok_or_else(|| Error::corrupt(format!("column {i} is NULL, a number was expected")))
    }

    fn opt_int(&self, i: usize) -> Result<Option<i64>> {
        match self.cell(i)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(n) => Ok(Some(n)),
            // An expression over bound numbers is REAL; the platform hands out the same JS number for it.
            ValueRef::Real(n) if n.fract() == 0.0 => Ok(Some(n as i64)),
            other => Err(Error::corrupt(format!("column {i} is {}, an integer was expected", other.data_type()))),
        }
    }

    fn text(&self, i: usize) -> Result<String> {
        self.opt_text(i)?.ok_or_else(|| Error::corrupt(format!("column {i} is NULL, text was expected")))
    }

    fn opt_text(&self, i: usize) -> Result<Option<String>> {
        match self.cell(i)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(Error::corrupt(format!("column {i} is not UTF-8"))),
            },
            other => Err(Error::corrupt(format!("column {i} is {}, text was expected", other.data_type()))),
        }
    }
}

/// An error with the text the platform would give it.
fn storage(error: rusqlite::Error) -> Error {
    let text = match &error {
        rusqlite::Error::SqliteFailure(code, Some(text)) => format!("{text}: {}", name(code.code)),
        rusqlite::Error::SqliteFailure(code, None) => format!("{code}: {}", name(code.code)),
        rusqlite::Error::SqlInputError { error, msg, offset, .. } => format!("{msg} at offset {offset}: {}", name(error.code)),
        rusqlite::Error::MultipleStatement => "one call takes one statement: SQLITE_ERROR".into(),
        other => other.to_string(),
    };
    Error::storage(text)
}

fn name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ConstraintViolation => "SQLITE_CONSTRAINT",
        ErrorCode::TooBig => "SQLITE_TOOBIG",
        ErrorCode::OutOfMemory => "SQLITE_NOMEM",
        ErrorCode::DiskFull => "SQLITE_FULL",
        ErrorCode::AuthorizationForStatementDenied => "SQLITE_AUTH",
        ErrorCode::ParameterOutOfRange => "SQLITE_RANGE",
        ErrorCode::TypeMismatch => "SQLITE_MISMATCH",
        ErrorCode::DatabaseBusy => "SQLITE_BUSY",
        ErrorCode::DatabaseLocked => "SQLITE_LOCKED",
        ErrorCode::DatabaseCorrupt => "SQLITE_CORRUPT",
        ErrorCode::ReadOnly => "SQLITE_READONLY",
        ErrorCode::ApiMisuse => "SQLITE_MISUSE",
        ErrorCode::OperationAborted => "SQLITE_ABORT",
        _ => "SQLITE_ERROR",
    }
}

/// What an action touches. The schema table is no business of the meter.
fn touch(action: &AuthAction<'_>) -> Option<Touch> {
    match *action {
        AuthAction::CreateTable { .. }
        | AuthAction::DropTable { .. }
        | AuthAction::CreateIndex { .. }
        | AuthAction::DropIndex { .. }
        | AuthAction::AlterTable { .. } => Some(Touch::Defines),
        AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
            if table_name.starts_with("sqlite_") =>
        {
            None
        }
        AuthAction::Read { table_name, .. } => Some(Touch::Reads(table_name.into())),
        AuthAction::Insert { table_name } => Some(Touch::Inserts(table_name.into())),
        AuthAction::Delete { table_name } => Some(Touch::Deletes(table_name.into())),
        AuthAction::Update { table_name, column_name } => Some(Touch::Updates(table_name.into(), column_name.into())),
        _ => None,
    }
}

/// What the platform allows (`architecture.md` §10.3).
fn authorise(action: &AuthAction<'_>) -> Authorization {
    let reserved = |name: &str| name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("_cf_"));
    let allowed = match *action {
        AuthAction::Select
        | AuthAction::Recursive
        | AuthAction::Reindex { .. }
        | AuthAction::Analyze { .. }
        | AuthAction::DropVtable { .. } => true,
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Read { table_name, .. }
        | AuthAction::Update { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. } => !reserved(table_name),
        AuthAction::CreateIndex { index_name: name, .. }
        | AuthAction::DropIndex { index_name: name, .. }
        | AuthAction::CreateTrigger { trigger_name: name, .. }
        | AuthAction::DropTrigger { trigger_name: name, .. }
        | AuthAction::CreateView { view_name: name }
        | AuthAction::DropView { view_name: name } => !reserved(name),
        AuthAction::CreateVtable { module_name, .. } => ["fts5", "fts5vocab"].iter().any(|m| m.eq_ignore_ascii_case(module_name)),
        AuthAction::Function { function_name } => FUNCTIONS.contains(&function_name.to_ascii_lowercase().as_str()),
        AuthAction::Pragma { pragma_name, .. } => PRAGMAS.contains(&pragma_name.to_ascii_lowercase().as_str()),
        // Transactions and savepoints belong to the storage API; temporary tables, attaching and VACUUM to nobody.
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}

const PRAGMAS: &[&str] = &[
    "case_sensitive_like",
    "data_version",
    "defer_foreign_keys",
    "foreign_key_check",
    "foreign_key_list",
    "foreign_keys",
    "function_list",
    "ignore_check_constraints",
    "index_info",
    "index_list",
    "index_xinfo",
    "legacy_alter_table",
    "module_list",
    "optimize",
    "pragma_list",
    "quick_check",
    "recursive_triggers",
    "reverse_unordered_selects",
    "table_info",
    "table_list",
    "table_xinfo",
];

const FUNCTIONS: &[&str] = &[
    // core
    "abs",
    "changes",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "format",
    "glob",
    "hex",
    "if",
    "ifnull",
    "iif",
    "instr",
    "last_insert_rowid",
    "length",
    "like",
    "likelihood",
    "likely",
    "lower",
    "ltrim",
    "max",
    "min",
    "nullif",
    "octet_length",
    "printf",
    "quote",
    "random",
    "randomblob",
    "replace",
    "round",
    "rtrim",
    "sign",
    "substr",
    "substring",
    "total_changes",
    "trim",
    "typeof",
    "unhex",
    "unicode",
    "unistr",
    "unlikely",
    "upper",
    "zeroblob",
    // dates
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "julianday",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
    // aggregates and windows
    "avg",
    "count",
    "cume_dist",
    "dense_rank",
    "first_value",
    "group_concat",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
    "string_agg",
    "sum",
    "total",
    // JSON
    "->",
    "->>",
    "json",
    "json_array",
    "json_array_length",
    "json_each",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_tree",
    "json_type",
    "json_valid",
    // full text
    "bm25",
    "fts5",
    "fts5_source_id",
    "highlight",
    "match",
    "snippet",
    // mathematics
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceiling",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "floor",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, StorageFault};

    fn db() -> Db {
        let db = Db::new();
        let sql: &dyn Sql = &db;
        sql.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, note TEXT) STRICT", &[]).unwrap();
        db
    }

    fn text(db: &Db, sql: &'static str) -> String {
        (db as &dyn Sql).one(sql, &[], |row| row.text(0)).unwrap().unwrap()
    }

    #[test]
    fn integers_bind_as_real_unless_a_strict_column_takes_them_back() {
        let db = db();
        let sql: &dyn Sql = &db;
        assert_eq!(sql.one("SELECT typeof(?)", &[Value::Int(1)], |r| r.text(0)).unwrap().unwrap(), "real");
        assert_eq!(sql.one("SELECT ? || 'x'", &[Value::Int(1)], |r| r.text(0)).unwrap().unwrap(), "1.0x");
        sql.run("INSERT INTO t VALUES ('a', ?, NULL)", &[Value::Int(1)]).unwrap();
        assert_eq!(text(&db, "SELECT typeof(n) FROM t"), "integer");
        assert!(sql.run("INSERT INTO t VALUES ('b', ?, NULL)", &[Value::Int(1 << 60)]).is_err());
    }

    #[test]
    fn what_the_platform_refuses_is_refused() {
        let db = db();
        let sql: &dyn Sql = &db;
        let table = [
            ("BEGIN", "SQLITE_AUTH"),
            ("COMMIT", "SQLITE_AUTH"),
            ("SAVEPOINT s", "SQLITE_AUTH"),
            ("ATTACH ':memory:' AS other", "SQLITE_AUTH"),
            ("PRAGMA user_version", "SQLITE_AUTH"),
            ("PRAGMA journal_mode = WAL", "SQLITE_AUTH"),
            ("SELECT sqlite_version()", "not authorized to use function: sqlite_version"),
            ("SELECT load_extension('x')", "not authorized to use function: load_extension"),
            ("VACUUM", "SQLITE"),
            ("CREATE TABLE _cf_mine (a TEXT)", "SQLITE_AUTH"),
            ("CREATE TEMP TABLE x (a TEXT)", "SQLITE_AUTH"),
            ("SELECT 1; SELECT 2", "one call takes one statement"),
            ("SELECT missing FROM t", "no such column: missing at offset 7: SQLITE_ERROR"),
        ];
        for (statement, expected) in table {
            let error = sql.run(statement, &[]).unwrap_err();
            assert!(error.message().contains(expected), "{statement}: {error}");
        }
        for statement in [
            "PRAGMA table_info(t)",
            "SELECT value FROM json_each('[1]')",
            "SELECT json_extract('{}', '$.a')",
            "SELECT count(*) FROM t",
        ] {
            sql.run(statement, &[]).unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
        sql.run("CREATE VIRTUAL TABLE f USING fts5(body)", &[]).unwrap();
    }

    #[test]
    fn limits_and_constraints_fail_with_the_platforms_texts() {
        let db = db();
        let sql: &dyn Sql = &db;
        let big = "x".repeat(2_000_001);
        let too_big = sql.run("INSERT INTO t VALUES (?, 1, NULL)", &[Value::Text(&big)]).unwrap_err();
        assert_eq!(too_big.kind(), ErrorKind::Storage(StorageFault::TooBig), "{too_big}");
        sql.run("INSERT INTO t VALUES ('a', 1, NULL)", &[]).unwrap();
        let twice = sql.run("INSERT INTO t VALUES ('a', 2, NULL)", &[]).unwrap_err();
        assert_eq!(twice.message(), "UNIQUE constraint failed: t.id: SQLITE_CONSTRAINT");
        let many: &'static str = Box::leak(format!("SELECT {}", vec!["?"; 101].join(",")).into_boxed_str());
        assert!(sql.run(many, &[Value::Null; 101]).unwrap_err().message().contains("too many SQL variables"));
        let long: &'static str = Box::leak(format!("SELECT 1 -- {}", "x".repeat(100_000)).into_boxed_str());
        assert!(sql.run(long, &[]).unwrap_err().message().contains("SQLITE_TOOBIG"));
        assert!(sql.run("SELECT ?", &[]).unwrap_err().message().contains("Wrong number of parameter bindings"));
    }

    #[test]
    fn a_failed_transaction_leaves_nothing_and_a_nested_one_only_its_part() {
        let db = db();
        let sql: &dyn Sql = &db;
        let failed = sql.transaction(&mut || {
            sql.run("INSERT INTO t VALUES ('a', 1, NULL)", &[])?;
            Err(Error::input("no"))
        });
        assert_eq!(failed.unwrap_err().message(), "no");
        assert_eq!(db.count("t"), 0);
        sql.transaction(&mut || {
            sql.run("INSERT INTO t VALUES ('a', 1, NULL)", &[])?;
            let inner = sql.transaction(&mut || {
                sql.run("INSERT INTO t VALUES ('b', 1, NULL)", &[])?;
                Err(Error::input("inner"))
            });
            assert!(inner.is_err());
            Ok(())
        })
        .unwrap();
        assert_eq!(db.count("t"), 1);
        assert_eq!(db.transactions(), 1);
        assert!(db.take_loose_writes().is_empty());
        sql.run("DELETE FROM t", &[]).unwrap();
        assert_eq!(db.take_loose_writes(), ["DELETE FROM t"]);
    }

    #[test]
    fn a_fault_strikes_once_where_it_was_placed() {
        let db = db();
        let sql: &dyn Sql = &db;
        let insert = |id: &'static str| sql.transaction(&mut || sql.run("INSERT INTO t VALUES (?, 1, NULL)", &[Value::Text(id)]));
        for at in [FaultAt::Begin, FaultAt::Commit, FaultAt::Statement(1), FaultAt::Matching("INSERT".into())] {
            db.fail(at.clone(), "database or disk is full: SQLITE_FULL");
            assert_eq!(insert("a").unwrap_err().kind(), ErrorKind::Storage(StorageFault::Full), "{at:?}");
            assert_eq!((db.count("t"), db.pending_faults()), (0, 0), "{at:?}");
        }
        db.fail(FaultAt::Statement(2), "out of memory: SQLITE_NOMEM");
        insert("a").unwrap();
        assert!(insert("b").is_err());
        insert("b").unwrap();
        assert_eq!(db.count("t"), 2);
    }

    #[test]
    fn a_superseded_handle_is_refused_and_the_next_one_sees_its_rows() {
        let old = db();
        (&old as &dyn Sql).run("INSERT INTO t VALUES ('a', 1, NULL)", &[]).unwrap();
        let new = old.supersede();
        assert!((&old as &dyn Sql).run("DELETE FROM t", &[]).unwrap_err().is_gone());
        assert!((&old as &dyn Sql).transaction(&mut || Ok(())).unwrap_err().is_gone());
        assert_eq!(new.meter(), Meter::default());
        assert_eq!(text(&new, "SELECT id FROM t"), "a");
    }

    #[test]
    fn the_meter_counts_index_entries_and_rows_scanned() {
        let db = Db::new();
        let sql: &dyn Sql = &db;
        for statement in [
            "CREATE TABLE plain (id INTEGER PRIMARY KEY, a TEXT) STRICT",
            "CREATE TABLE keyed (id TEXT PRIMARY KEY, a TEXT, b INTEGER) STRICT",
            "CREATE INDEX by_a ON keyed (a)",
            "CREATE UNIQUE INDEX one_open ON keyed ((1)) WHERE b IS NULL",
            "CREATE TABLE bare (id TEXT PRIMARY KEY, a TEXT) STRICT, WITHOUT ROWID",
        ] {
            sql.run(statement, &[]).unwrap();
        }
        let cost = |statement: &'static str| {
            let before = db.meter();
            sql.run(statement, &[]).unwrap();
            let after = db.meter();
            (after.read - before.read, after.written - before.written)
        };
        let table = [
            ("INSERT INTO plain (a) VALUES ('x'), ('y')", (0, 2)),
            ("INSERT INTO bare VALUES ('k', 'x')", (0, 1)),
            ("INSERT INTO keyed VALUES ('k', 'x', NULL)", (0, 4)),
            ("UPDATE keyed SET b = 1 WHERE id = 'k'", (1, 2)),
            ("UPDATE keyed SET a = 'z' WHERE id = 'k'", (1, 2)),
            ("UPDATE keyed SET a = 'z' WHERE id = 'nobody'", (0, 0)),
            ("SELECT * FROM plain", (2, 0)),
            ("SELECT a FROM plain WHERE a = 'x'", (1, 0)),
            ("SELECT count(*) FROM plain", (2, 0)),
            ("DELETE FROM plain", (2, 2)),
            ("DELETE FROM keyed WHERE id = 'k'", (1, 4)),
        ];
        for (statement, expected) in table {
            assert_eq!(cost(statement), expected, "{statement}");
        }
        assert!(db.steps() > 0);
    }

    #[test]
    fn snapshots_name_the_rows_that_differ() {
        let (a, b) = (db(), db());
        (&a as &dyn Sql).run("INSERT INTO t VALUES ('x', 1, NULL)", &[]).unwrap();
        (&b as &dyn Sql).run("INSERT INTO t VALUES ('x', 2, NULL)", &[]).unwrap();
        let difference = a.snapshot().difference(&b.snapshot());
        assert_eq!(difference, ["- t {\"id\":\"x\",\"n\":1,\"note\":null}", "+ t {\"id\":\"x\",\"n\":2,\"note\":null}"]);
        assert_eq!(a.snapshot(), a.snapshot());
    }

    #[test]
    fn rows_of_the_wrong_type_are_an_error_not_a_guess() {
        let db = db();
        let sql: &dyn Sql = &db;
        sql.run("INSERT INTO t VALUES ('a', 1, NULL)", &[]).unwrap();
        assert!(sql.one("SELECT id FROM t", &[], |r| r.int(0)).is_err());
        assert!(sql.one("SELECT n FROM t", &[], |r| r.text(0)).is_err());
        assert!(sql.one("SELECT note FROM t", &[], |r| r.text(0)).is_err());
        assert_eq!(sql.one("SELECT note FROM t", &[], |r| r.opt_text(0)).unwrap(), Some(None));
        assert!(sql.one("SELECT n FROM t", &[], |r| r.int(7)).is_err());
    }
}
