//! All rows of a database, for comparing two runs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Db, Json};

/// All rows of a database, for comparing two runs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, Vec<String>>);

impl Db {
    /// All rows of all tables, in table order.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
        let rows = tables.iter().filter_map(|table| table.get("name").and_then(Json::as_str)).map(|name| {
            let rows = self.query(&format!("SELECT * FROM \"{name}\""));
            (name.to_owned(), rows.into_iter().map(|row| Json::Object(row).to_string()).collect())
        });
        Snapshot(rows.collect())
    }
}

impl Snapshot {
    /// The rows of one table, each as JSON text.
    pub fn table(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The lines in which two databases differ: `-` here, `+` there. Empty if they are equal.
    pub fn difference(&self, other: &Snapshot) -> Vec<String> {
        let tables: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let mut lines = Vec::new();
        for table in tables {
            let (here, there) = (self.table(table), other.table(table));
            lines.extend(here.iter().filter(|row| !there.contains(row)).map(|row| format!("- {table} {row}")));
            lines.extend(there.iter().filter(|row| !here.contains(row)).map(|row| format!("+ {table} {row}")));
        }
        lines
    }
}

impl std::fmt::Display for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (table, rows) in &self.0 {
            writeln!(f, "{table}: {}", rows.len())?;
            for row in rows {
                writeln!(f, "  {row}")?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
