//! Owed hooks: written in the transaction that makes them due, deleted when they returned, started again after a restart.
//!
//! A row is named by its leg: a late return of a hook whose row a clear took away must not be taken for that of another.

use super::Sql;
use crate::{error::Result, ids::LegId, time::Millis};

/// One owed hook.
pub struct Owed {
    /// The leg it is owed for.
    pub leg: LegId,
    /// What it is called with, as JSON.
    pub payload: String,
    /// How often it was started before.
    pub claims: i64,
}

/// Owes an `on_chat_response`.
pub fn owe(db: &dyn Sql, leg: &LegId, payload: &str, now: Millis) -> Result<()> {
    super::fits("a response hook", payload)?;
    db.run(
        "INSERT INTO wk_outbox (id, kind, payload, due_at, claims) VALUES (?1, 'response', ?2, ?3, 1)",
        &[leg.as_str().into(), payload.into(), now.0.into()],
    )
}

/// What is owed, oldest first. Read once an incarnation.
pub fn owed(db: &dyn Sql) -> Result<Vec<Owed>> {
    db.all("SELECT id, payload, claims FROM wk_outbox ORDER BY due_at, id", &[], |row| {
        Ok(Owed { leg: row.text(0)?.into(), payload: row.text(1)?, claims: row.int(2)? })
    })
}

/// A hook is started again.
pub fn claim(db: &dyn Sql, leg: &LegId) -> Result<()> {
    db.run("UPDATE wk_outbox SET claims = claims + 1 WHERE id = ?1", &[leg.as_str().into()])
}

/// A hook returned, or is given up.
pub fn done(db: &dyn Sql, leg: &LegId) -> Result<()> {
    db.run("DELETE FROM wk_outbox WHERE id = ?1", &[leg.as_str().into()])
}

/// Forgets what is owed.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_outbox", &[])
}
