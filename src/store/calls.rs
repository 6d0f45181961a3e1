//! Tool calls: who executes them, what they wait for, and what came of them. The row is written before the executor starts, and
//! before a client is told that it may answer.

use super::{Row, Sql, Value};
use crate::{
    engine::input::EffectClass,
    error::Result,
    ids::{Boot, CallId, ConnId, MessageId, TurnId},
    time::Millis,
};

/// Who executes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// This object.
    Server,
    /// A connected page.
    Client,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A page is to run it.
    Waiting,
    /// A person is to decide about it.
    AwaitingApproval,
    /// It may run, and does with the next leg of its turn.
    Approved,
    /// Its executor was started.
    Started,
    /// It has its one outcome.
    Settled,
}

impl State {
    /// Whether a page or a person can still answer it.
    pub fn is_asked(self) -> bool {
        matches!(self, State::Waiting | State::AwaitingApproval)
    }

    fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::AwaitingApproval => "awaiting_approval",
            State::Approved => "approved",
            State::Started => "started",
            State::Settled => "settled",
        }
    }

    fn parse(text: &str) -> State {
        match text {
            "waiting" => State::Waiting,
            "awaiting_approval" => State::AwaitingApproval,
            "approved" => State::Approved,
            "started" => State::Started,
            _ => State::Settled,
        }
    }
}

/// A call about to be executed, or waited for.
pub struct NewCall<'a> {
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
    /// Who executes it.
    pub site: Site,
    /// Where it begins.
    pub state: State,
    /// The id under which a person is asked.
    pub approval: Option<&'a str>,
    /// Milliseconds a page may take for it.
    pub wait_ms: Option<u32>,
    /// The incarnation that starts it.
    pub boot: &'a Boot,
}

/// A call that was recorded.
#[derive(Clone, Debug)]
pub struct Call {
    /// The message it belongs to.
    pub message: MessageId,
    /// Its id.
    pub call: CallId,
    /// The turn that made it.
    pub turn: TurnId,
    /// The step, from 1.
    pub step: u32,
    /// The tool.
    pub name: String,
    /// Who executes it.
    pub site: Site,
    /// Where it is.
    pub state: State,
    /// Who settled it.
    pub settled_by: Option<String>,
    /// The hash of what settled it, if a client did.
    pub hash: Option<String>,
    /// What was decided about it.
    pub approved: Option<bool>,
    /// Milliseconds a page may take for it, once it may run.
    pub wait_ms: Option<i64>,
    /// What a second start would do.
    pub effect: EffectClass,
    /// How often it was started.
    pub claims: i64,
}

/// Records a call.
pub fn insert(db: &dyn Sql, c: &NewCall<'_>, now: Millis) -> Result<()> {
    let effect = match c.effect {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
    };
    let starts = c.state == State::Started;
    db.run(
        "INSERT INTO wk_call (message_id, call_id, turn, step, ordinal, name, site, effect, state, boot, claims, approval_id, \
         wait_ms, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        &[
            c.message.as_str().into(),
            c.call.as_str().into(),
            c.turn.as_str().into(),
            Value::Int(i64::from(c.step)),
            Value::Int(i64::from(c.ordinal)),
            c.name.into(),
            (if c.site == Site::Server { "server" } else { "client" }).into(),
            effect.into(),
            c.state.as_str().into(),
            starts.then_some(c.boot.as_str()).into(),
            Value::Int(i64::from(starts)),
            c.approval.into(),
            c.wait_ms.map(i64::from).into(),
            now.0.into(),
        ],
    )
}

/// A call may run. Who executes it decides where it goes.
pub fn approve(db: &dyn Sql, c: &Call, reason: Option<&str>, now: Millis) -> Result<()> {
    let (next, deadline) = match c.site {
        Site::Server => (State::Approved, None),
        Site::Client => (State::Waiting, c.wait_ms.map(|ms| now.0 + ms)),
    };
    db.run(
        "UPDATE wk_call SET state = ?3, approved = 1, approval_reason = ?4, deadline_at = ?5 WHERE message_id = ?1 AND call_id = ?2",
        &[c.message.as_str().into(), c.call.as_str().into(), next.as_str().into(), reason.into(), deadline.into()],
    )
}

/// A call that was recorded starts: one that was allowed, or one that an incarnation left running and that may run again. Whether it
/// was there to be started: nothing is ever started twice in one incarnation.
pub fn start_recorded(db: &dyn Sql, message: &MessageId, call: &CallId, boot: &Boot) -> Result<bool> {
    let found = db.one(
        "UPDATE wk_call SET state = 'started', boot = ?3, claims = claims + 1 WHERE message_id = ?1 AND call_id = ?2 \
         AND (state = 'approved' OR state = 'started' AND boot <> ?3) RETURNING 1",
        &[message.as_str().into(), call.as_str().into(), boot.as_str().into()],
        |row| row.int(0),
    )?;
    Ok(found.is_some())
}

/// The calls of a message that were running and may run again do so with the next leg of their turn. Whether there are any.
pub fn set_aside(db: &dyn Sql, message: &MessageId) -> Result<bool> {
    let found = db.all(
        "UPDATE wk_call SET state = 'approved' WHERE message_id = ?1 AND state = 'started' RETURNING 1",
        &[message.as_str().into()],
        |row| row.int(0),
    )?;
    Ok(!found.is_empty())
}

/// Records what came of a call that this object ran or gave up. The value itself is in the stream log, and then in the message.
pub fn settle(db: &dyn Sql, message: &MessageId, call: &CallId, outcome: &'static str, by: &'static str, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET state = 'settled', outcome = ?3, settled_by = ?4, settled_at = ?5 WHERE message_id = ?1 AND call_id = ?2",
        &[message.as_str().into(), call.as_str().into(), outcome.into(), by.into(), now.0.into()],
    )
}

/// How a call that is waited for ends.
pub struct Settlement<'a> {
    /// `output`, `error` or `denied`.
    pub outcome: &'static str,
    /// Who ends it.
    pub by: &'a str,
    /// The hash of what a client sent.
    pub hash: Option<&'a str>,
    /// The reason of a denial.
    pub reason: Option<&'a str>,
}

/// Records what came of a call that is waited for; nobody does any more.
pub fn answer(db: &dyn Sql, message: &MessageId, call: &CallId, s: &Settlement<'_>, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET state = 'settled', outcome = ?3, settled_by = ?4, settled_at = ?5, result_hash = ?6, deadline_at = NULL, \
         approved = CASE WHEN ?3 = 'denied' THEN 0 ELSE approved END, approval_reason = coalesce(?7, approval_reason) \
         WHERE message_id = ?1 AND call_id = ?2",
        &[message.as_str().into(), call.as_str().into(), s.outcome.into(), s.by.into(), now.0.into(), s.hash.into(), s.reason.into()],
    )
}

/// Settles every call of a message that is still open.
pub fn settle_open(db: &dyn Sql, message: &MessageId, by: &'static str, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET state = 'settled', outcome = 'error', settled_by = ?2, settled_at = ?3, deadline_at = NULL \
         WHERE message_id = ?1 AND state <> 'settled'",
        &[message.as_str().into(), by.into(), now.0.into()],
    )
}

/// From now on the calls of a message are waited for: those of pages as long as each may take, decisions for so many milliseconds.
pub fn wait(db: &dyn Sql, message: &MessageId, approval_wait_ms: Option<u32>, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_call SET deadline_at = ?2 + CASE state WHEN 'waiting' THEN wait_ms ELSE ?3 END WHERE message_id = ?1 \
         AND (state = 'waiting' AND wait_ms IS NOT NULL OR state = 'awaiting_approval' AND ?3 IS NOT NULL)",
        &[message.as_str().into(), now.0.into(), approval_wait_ms.map(i64::from).into()],
    )
}

/// A call is waited for until then, if it is waited for. Whether it is.
pub fn wait_until(db: &dyn Sql, call: &str, at: Millis) -> Result<bool> {
    let found = db.one(
        "UPDATE wk_call SET deadline_at = ?2 WHERE call_id = ?1 AND deadline_at IS NOT NULL RETURNING 1",
        &[call.into(), at.0.into()],
        |row| row.int(0),
    )?;
    Ok(found.is_some())
}

/// When the first call that is waited for is overdue.
pub fn next_deadline(db: &dyn Sql) -> Result<Option<Millis>> {
    let found =
        db.one("SELECT min(deadline_at) FROM wk_call WHERE deadline_at IS NOT NULL", &[], |row| Ok(row.opt_int(0)?.map(Millis)))?;
    Ok(found.flatten())
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT message_id, call_id, step, name, site, state, settled_by, result_hash, approved, wait_ms, effect, claims, turn FROM wk_call ", $rest)
    };
}

fn read(row: &dyn Row) -> Result<Call> {
    Ok(Call {
        message: row.text(0)?.into(),
        call: row.text(1)?.into(),
        step: u32::try_from(row.int(2)?).unwrap_or_default(),
        name: row.text(3)?,
        site: if row.text(4)? == "client" { Site::Client } else { Site::Server },
        state: State::parse(&row.text(5)?),
        settled_by: row.opt_text(6)?,
        hash: row.opt_text(7)?,
        approved: row.opt_int(8)?.map(|approved| approved != 0),
        wait_ms: row.opt_int(9)?,
        effect: match row.text(10)?.as_str() {
            "pure" => EffectClass::Pure,
            "keyed" => EffectClass::Keyed,
            _ => EffectClass::Once,
        },
        claims: row.int(11)?,
        turn: row.text(12)?.into(),
    })
}

/// The newest call of this id.
pub fn find(db: &dyn Sql, call: &str) -> Result<Option<Call>> {
    db.one(select!("WHERE call_id = ?1 ORDER BY created_at DESC LIMIT 1"), &[call.into()], read)
}

/// The calls of a message that have no outcome yet, in the order they were made.
pub fn open(db: &dyn Sql, message: &str) -> Result<Vec<Call>> {
    db.all(select!("WHERE message_id = ?1 AND state <> 'settled' ORDER BY created_at, step, ordinal"), &[message.into()], read)
}

/// Whether a page or a person can still answer a call of a message.
pub fn is_asked(db: &dyn Sql, message: &str) -> Result<bool> {
    Ok(open(db, message)?.iter().any(|call| call.state.is_asked()))
}

/// Id and tool of the calls of a message that had started and whose end nobody knows; of one turn, or of all that wrote it.
pub fn lost(db: &dyn Sql, message: &str, turn: Option<&TurnId>) -> Result<Vec<(String, String)>> {
    db.all(
        "SELECT call_id, name FROM wk_call WHERE message_id = ?1 AND (?2 IS NULL OR turn = ?2) AND claims > 0 \
         AND settled_by IN ('repair', 'superseded')",
        &[message.into(), turn.map(|turn| turn.as_str()).into()],
        |row| Ok((row.text(0)?, row.text(1)?)),
    )
}

/// The calls that were waited for long enough.
pub fn overdue(db: &dyn Sql, now: Millis) -> Result<Vec<Call>> {
    db.all(
        select!("WHERE deadline_at IS NOT NULL AND deadline_at <= ?1 ORDER BY deadline_at, created_at, ordinal"),
        &[now.0.into()],
        read,
    )
}

/// Whether a call of this id was ever recorded.
pub fn is_known(db: &dyn Sql, call: &str) -> Result<bool> {
    Ok(db.one("SELECT 1 FROM wk_call WHERE call_id = ?1 LIMIT 1", &[call.into()], |row| row.int(0))?.is_some())
}

/// A batch that somebody wants to be continued once it is complete.
#[derive(Clone, Debug)]
pub struct Continuation {
    /// The id its stream will have.
    pub request_id: String,
    /// The turn that goes on.
    pub turn: TurnId,
    /// The sockets that wait for it, the one that wants it last.
    pub conns: Vec<ConnId>,
    /// Those of them that begin it with an empty message.
    pub unseeded: Vec<ConnId>,
}

/// Records the wish to continue; there is one at a time.
pub fn put_continuation(db: &dyn Sql, c: &Continuation, message: &str) -> Result<()> {
    let list = |conns: &[ConnId]| crate::wire::string_array(&conns.iter().map(|conn| conn.as_str()).collect::<Vec<_>>());
    db.run(
        "INSERT INTO wk_continuation (request_id, turn, leaf_msg, conn, client_tools, state) VALUES (?1, ?2, ?3, ?4, ?5, 'held') \
         ON CONFLICT (request_id) DO UPDATE SET conn = excluded.conn, client_tools = excluded.client_tools",
        &[
            c.request_id.as_str().into(),
            c.turn.as_str().into(),
            message.into(),
            Value::Text(&list(&c.conns)),
            Value::Text(&list(&c.unseeded)),
        ],
    )
}

/// The wish to continue, if there is one.
pub fn continuation(db: &dyn Sql) -> Result<Option<Continuation>> {
    db.one("SELECT request_id, turn, conn, client_tools FROM wk_continuation LIMIT 1", &[], |row| {
        let list = |column| -> Result<Vec<ConnId>> {
            let names: Vec<String> = row.opt_text(column)?.and_then(|list| serde_json::from_str(&list).ok()).unwrap_or_default();
            Ok(names.into_iter().map(ConnId::from).collect())
        };
        Ok(Continuation { request_id: row.text(0)?, turn: row.text(1)?.into(), conns: list(2)?, unseeded: list(3)? })
    })
}

/// What was wished for starts, or is not wanted any more.
pub fn drop_continuation(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_continuation", &[])
}

/// Forgets every call.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_call", &[])?;
    db.run("DELETE FROM wk_continuation", &[])
}
