//! Tool calls: who executes them, and what came of it. The row is written before the executor starts.

use super::{Sql, Value};
use crate::{
    engine::input::EffectClass,
    error::Result,
    ids::{Boot, CallId, MessageId, TurnId},
    time::Millis,
};

/// A call about to be executed by this object.
pub struct Started<'a> {
    /// The message it belongs to.
    pub message: &'a MessageId,
    /// Its id.
    pub call: &'a CallId,
    /// The turn.
    pub turn: &'a TurnId,
    /// The step, from 1.
    pub step: u32,
    /// Its place in the step.
    pub ordinal: u32,
    /// The tool.
    pub name: &'a str,
    /// What a second start would do.
    pub effect: EffectClass,
    /// The incarnation that starts it.
    pub boot: &'a Boot,
}

/// Records that a server tool starts.
pub fn start(db: &dyn Sql, c: &Started<'_>, now: Millis) -> Result<()> {
    let effect = match c.effect {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
    };
    db.run(
        "INSERT INTO wk_call (message_id, call_id, turn, step, ordinal, name, site, effect, state, boot, claims, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'server', ?7, 'started', ?8, 1, ?9)",
        &[
            c.message.as_str().into(),
            c.call.as_str().into(),
            c.turn.as_str().into(),
            Value::Int(i64::from(c.step)),
            Value::Int(i64::from(c.ordinal)),
            c.name.into(),
            effect.into(),
            c.boot.as_str().into(),
            now.0.into(),
        ],
    )
}

/// Records what came of a call. The value itself is in the stream log, and then in the message.
pub fn settle(db: &dyn Sql, message: &MessageId, call: &CallId, outcome: &'static str, by: &'static str, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET state = 'settled', outcome = ?3, settled_by = ?4, settled_at = ?5 WHERE message_id = ?1 AND call_id = ?2",
        &[message.as_str().into(), call.as_str().into(), outcome.into(), by.into(), now.0.into()],
    )
}

/// Settles every call of a message that is still open.
pub fn settle_open(db: &dyn Sql, message: &MessageId, by: &'static str, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET state = 'settled', outcome = 'error', settled_by = ?2, settled_at = ?3 WHERE message_id = ?1 AND state <> 'settled'",
        &[message.as_str().into(), by.into(), now.0.into()],
    )
}

/// Whether a call of this id was ever recorded.
pub fn is_known(db: &dyn Sql, call: &str) -> Result<bool> {
    Ok(db.one("SELECT 1 FROM wk_call WHERE call_id = ?1 LIMIT 1", &[call.into()], |row| row.int(0))?.is_some())
}

/// Forgets every call.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_call", &[])?;
    db.run("DELETE FROM wk_continuation", &[])
}
