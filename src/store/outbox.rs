//! Owed hooks: written in the transaction that makes them due, deleted when they returned, started again after a restart.
//!
//! A row is named by what it is owed for: a late return of a hook whose row a clear took away must not be taken for that of another.

use super::{Sql, Value};
use crate::{error::Result, ids::LegId, time::Millis};

/// Which hook is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `on_chat_response`.
    Response,
    /// `on_exhausted`.
    Exhausted,
}

impl Hook {
    fn as_str(self) -> &'static str {
        match self {
            Hook::Response => "response",
            Hook::Exhausted => "exhausted",
        }
    }

    fn parse(text: &str) -> Hook {
        match text {
            "exhausted" => Hook::Exhausted,
            _ => Hook::Response,
        }
    }

    /// The name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Response => "on_chat_response",
            Hook::Exhausted => "on_exhausted",
        }
    }
}

/// One owed hook.
pub struct Owed {
    /// What it is owed for.
    pub leg: LegId,
    /// Which.
    pub hook: Hook,
    /// What it is called with, as JSON.
    pub payload: String,
    /// How often it was started before.
    pub claims: i64,
}

/// Owes a hook.
pub fn owe(db: &dyn Sql, leg: &LegId, hook: Hook, payload: &str, now: Millis) -> Result<()> {
    super::fits("an owed hook", payload)?;
    db.run(
        "INSERT INTO wk_outbox (id, kind, payload, due_at, claims) VALUES (?1, ?2, ?3, ?4, 1)",
        &[leg.as_str().into(), Value::Text(hook.as_str()), payload.into(), now.0.into()],
    )
}

/// What is owed, oldest first. Read once an incarnation.
pub fn owed(db: &dyn Sql) -> Result<Vec<Owed>> {
    db.all("SELECT id, kind, payload, claims FROM wk_outbox ORDER BY due_at, id", &[], |row| {
        Ok(Owed { leg: row.text(0)?.into(), hook: Hook::parse(&row.text(1)?), payload: row.text(2)?, claims: row.int(3)? })
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
