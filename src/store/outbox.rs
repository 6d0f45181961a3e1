//! Owed hooks: written in the transaction that makes them due, deleted when they returned, started again after a restart.

use super::{Sql, Value};
use crate::{error::Result, time::Millis};

/// One owed hook.
pub struct Owed {
    /// Its id.
    pub id: i64,
    /// What it is called with, as JSON.
    pub payload: String,
    /// How often it was started before.
    pub claims: i64,
}

/// Owes an `on_chat_response`.
pub fn owe(db: &dyn Sql, dedupe: &str, payload: &str, now: Millis) -> Result<i64> {
    super::fits("a response hook", payload)?;
    let id = db.one(
        "INSERT INTO wk_outbox (kind, dedupe, payload, due_at, claims) VALUES ('response', ?1, ?2, ?3, 1) RETURNING id",
        &[dedupe.into(), payload.into(), now.0.into()],
        |row| row.int(0),
    )?;
    Ok(id.unwrap_or_default())
}

/// What is owed, oldest first. Read once an incarnation.
pub fn owed(db: &dyn Sql) -> Result<Vec<Owed>> {
    db.all("SELECT id, payload, claims FROM wk_outbox ORDER BY id", &[], |row| {
        Ok(Owed { id: row.int(0)?, payload: row.text(1)?, claims: row.int(2)? })
    })
}

/// A hook is started again.
pub fn claim(db: &dyn Sql, id: i64) -> Result<()> {
    db.run("UPDATE wk_outbox SET claims = claims + 1 WHERE id = ?1", &[Value::Int(id)])
}

/// A hook returned, or is given up.
pub fn done(db: &dyn Sql, id: i64) -> Result<()> {
    db.run("DELETE FROM wk_outbox WHERE id = ?1", &[Value::Int(id)])
}

/// Forgets what is owed.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_outbox", &[])
}
