//! The storage contract. The engine sees a synchronous database; all SQL text lives in this folder.
//!
//! The platform's rules shape the types (`architecture.md` §10.3): numbers bind as REAL, there is no boolean, one statement a
//! call, at most 100 parameters, no value above 2 MB. Tables are therefore `STRICT`, ids are text, lists go in as JSON.

pub mod calls;
pub mod messages;
pub mod meta;
pub mod outbox;
pub mod schema;
pub mod streams;
pub mod submissions;
pub mod turns;

use crate::error::{Error, Result};

/// A value to bind. No boolean and no float: the platform would store them as something else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// An integer below 2^53.
    Int(i64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Value::Int(n)
    }
}

impl From<bool> for Value<'_> {
    fn from(b: bool) -> Self {
        Value::Int(i64::from(b))
    }
}

impl<'a, T> From<Option<T>> for Value<'a>
where
    Value<'a>: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Value::from)
    }
}

/// One row of a result, read by position.
pub trait Row {
    /// The integer at `i`; an error if it is NULL or not a number.
    fn int(&self, i: usize) -> Result<i64>;
    /// The integer at `i`, or `None` for NULL.
    fn opt_int(&self, i: usize) -> Result<Option<i64>>;
    /// The text at `i`; an error if it is NULL or not text.
    fn text(&self, i: usize) -> Result<String>;
    /// The text at `i`, or `None` for NULL.
    fn opt_text(&self, i: usize) -> Result<Option<String>>;
}

/// Rows read and written since the object was built, as the platform bills them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Rows read.
    pub read: u64,
    /// Rows written, index entries included where the platform counts them.
    pub written: u64,
}

/// A synchronous SQLite database with the platform's restrictions.
pub trait Sql {
    /// Runs one statement and hands out its rows in order.
    fn exec(&self, sql: &'static str, args: &[Value<'_>], row: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()>;
    /// Runs `body` in a transaction: an `Err` rolls everything back.
    fn transaction(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<()>;
    /// What it has cost so far.
    fn meter(&self) -> Meter;
}

/// Helpers over [`Sql`] for statements without rows, with one row, or with many.
impl dyn Sql + '_ {
    /// A statement whose rows do not matter.
    pub fn run(&self, sql: &'static str, args: &[Value<'_>]) -> Result<()> {
        self.exec(sql, args, &mut |_| Ok(()))
    }

    /// The first row, mapped.
    pub fn one<T>(&self, sql: &'static str, args: &[Value<'_>], map: impl Fn(&dyn Row) -> Result<T>) -> Result<Option<T>> {
        let mut found = None;
        self.exec(sql, args, &mut |row| {
            if found.is_none() {
                found = Some(map(row)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// All rows, mapped.
    pub fn all<T>(&self, sql: &'static str, args: &[Value<'_>], map: impl Fn(&dyn Row) -> Result<T>) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        self.exec(sql, args, &mut |row| {
            rows.push(map(row)?);
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Refuses a value that no row can hold, before the platform does (I27).
pub(crate) fn fits(what: &str, body: &str) -> Result<()> {
    if body.len() > crate::limits::ROW_MAX {
        return Err(Error::limit(format!("{what} is {} bytes, limit {} (limits::ROW_MAX)", body.len(), crate::limits::ROW_MAX)));
    }
    Ok(())
}
