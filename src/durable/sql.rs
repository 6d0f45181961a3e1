//! The database of a Durable Object behind [`Sql`]: every statement through `exec`, every value checked on its way out.

use std::cell::{Cell, OnceCell};

use worker::{
    js_sys::{Array, JSON, Uint8Array},
    wasm_bindgen::{JsCast, JsValue},
};

use super::bindings::{JsCursor, JsSql, JsStorage, thrown};
use crate::{
    error::{Error, Result},
    store::{Meter, Row, Sql, Value},
    wire::chunk::quote,
};

/// Beyond it a JavaScript number no longer tells two integers apart.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// `ctx.storage.sql`, fetched at the first statement: a constructor must not fail.
pub(super) struct ObjectSql {
    storage: JsStorage,
    sql: OnceCell<JsSql>,
    read: Cell<u64>,
    written: Cell<u64>,
}

impl ObjectSql {
    pub(super) fn new(storage: JsStorage) -> Self {
        Self { storage, sql: OnceCell::new(), read: Cell::new(0), written: Cell::new(0) }
    }

    fn sql(&self) -> Result<&JsSql> {
        if self.sql.get().is_none() {
            let sql = self.storage.sql().map_err(|e| {
                Error::storage(format!(
                    "{} (the class needs SQLite: name it in `new_sqlite_classes` of a migration in wrangler.toml)",
                    thrown(&e)
                ))
            })?;
            // Only this line sets it, and nothing runs in between.
            let _ = self.sql.set(sql);
        }
        self.sql.get().ok_or_else(|| Error::platform("ctx.storage.sql is missing"))
    }
}

impl Sql for ObjectSql {
    fn exec(&self, sql: &'static str, args: &[Value<'_>], row: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()> {
        let cursor = self.sql()?.exec(sql, &bound(args)?).map_err(|e| Error::storage(thrown(&e)))?;
        let outcome = if gives_rows(sql) { each(&cursor, row) } else { Ok(()) };
        add(&self.read, cursor.rows_read());
        add(&self.written, cursor.rows_written());
        outcome
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut failed = None;
        let done = self.storage.transaction_sync(&mut || {
            body().map_err(|error| {
                let thrown = JsValue::from_str(error.message());
                failed = Some(error);
                thrown
            })
        });
        match (failed, done) {
            (Some(error), _) => Err(error),
            (None, Err(e)) => Err(Error::storage(thrown(&e))),
            (None, Ok(_)) => Ok(()),
        }
    }

    fn meter(&self) -> Meter {
        Meter { read: self.read.get(), written: self.written.get() }
    }
}

fn each(cursor: &JsCursor, row: &mut dyn FnMut(&dyn Row) -> Result<()>) -> Result<()> {
    let rows = cursor.raw().map_err(|e| Error::storage(thrown(&e)))?;
    loop {
        let next = rows.next().map_err(|e| Error::storage(thrown(&e)))?;
        if next.done() {
            return Ok(());
        }
        row(&ObjectRow(next.value().unchecked_into()))?;
    }
}

/// Whether a statement can have rows. One that cannot has run to its end when `exec` returns.
fn gives_rows(sql: &str) -> bool {
    sql.starts_with("SELECT") || sql.starts_with("WITH") || sql.contains(" RETURNING ")
}

/// The values to bind. Many small ones cross into JavaScript as one JSON text: each value by itself would cost a call, which is
/// most of what a statement costs on this side. Bodies are long and would be escaped for nothing.
fn bound(args: &[Value<'_>]) -> Result<Array> {
    const SMALL: usize = 512;
    let small = |arg: &Value<'_>| match arg {
        Value::Text(text) => text.len() <= SMALL,
        Value::Null | Value::Int(_) => true,
        Value::Blob(_) => false,
    };
    if args.len() > 2 && args.iter().all(small) {
        let mut json = String::from("[");
        for (i, arg) in args.iter().enumerate() {
            if i > 0 {
                json.push(',');
            }
            match arg {
                Value::Text(text) => quote(&mut json, text),
                Value::Int(n) => json.push_str(&safe(*n)?.to_string()),
                // Bytes are never small: they have no form in JSON.
                Value::Null | Value::Blob(_) => json.push_str("null"),
            }
        }
        json.push(']');
        return Ok(JSON::parse(&json).map_err(|e| Error::storage(thrown(&e)))?.unchecked_into());
    }
    let bound = Array::new();
    for arg in args {
        bound.push(&bind(arg)?);
    }
    Ok(bound)
}

fn safe(n: i64) -> Result<i64> {
    if (-SAFE_INTEGER..=SAFE_INTEGER).contains(&n) {
        Ok(n)
    } else {
        Err(Error::limit(format!("{n} cannot be stored: integers end at 2^53")))
    }
}

/// A cursor that cannot say what it cost has cost nothing we know of.
fn add(total: &Cell<u64>, rows: std::result::Result<f64, JsValue>) {
    total.set(total.get().saturating_add(rows.unwrap_or(0.0) as u64));
}

fn bind(value: &Value<'_>) -> Result<JsValue> {
    Ok(match value {
        Value::Null => JsValue::NULL,
        Value::Int(n) => JsValue::from_f64(safe(*n)? as f64),
        Value::Text(text) => JsValue::from_str(text),
        Value::Blob(bytes) => Uint8Array::from(*bytes).into(),
    })
}

/// One row as an array of values.
struct ObjectRow(Array);

impl ObjectRow {
    fn at(&self, i: usize) -> JsValue {
        // Past the end there is `undefined`, which no column holds and every reader refuses.
        u32::try_from(i).map_or(JsValue::UNDEFINED, |i| self.0.get(i))
    }
}

impl Row for ObjectRow {
    fn int(&self, i: usize) -> Result<i64> {
        integer(&self.at(i)).ok_or_else(|| not(i, "an integer"))
    }

    fn opt_int(&self, i: usize) -> Result<Option<i64>> {
        let value = self.at(i);
        if value.is_null() { Ok(None) } else { integer(&value).map(Some).ok_or_else(|| not(i, "an integer or NULL")) }
    }

    fn text(&self, i: usize) -> Result<String> {
        self.at(i).as_string().ok_or_else(|| not(i, "text"))
    }

    fn opt_text(&self, i: usize) -> Result<Option<String>> {
        let value = self.at(i);
        if value.is_null() { Ok(None) } else { value.as_string().map(Some).ok_or_else(|| not(i, "text or NULL")) }
    }
}

fn integer(value: &JsValue) -> Option<i64> {
    value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= SAFE_INTEGER as f64).map(|n| n as i64)
}

fn not(i: usize, expected: &str) -> Error {
    Error::corrupt(format!("column {i} of a row is not {expected}"))
}
