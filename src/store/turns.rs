//! Turns and their attempts. A live turn is owned by the queue, by one open attempt, or by a due time; a final one keeps its outcome.

use super::{Sql, Value, streams};
use crate::{
    engine::budget::Counters,
    error::Result,
    ids::{Boot, MessageId, RequestId, TurnId},
    limits,
    time::Millis,
    wire::{Ending, Terminal},
};

/// What a turn answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// New messages.
    Answer,
    /// A message that was there before, anew: the reply becomes a sibling of earlier ones.
    Branch,
    /// The last assistant message goes on.
    Extend,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Answer => "answer",
            Kind::Branch => "branch",
            Kind::Extend => "extend",
        }
    }

    fn parse(text: &str) -> Kind {
        match text {
            "branch" => Kind::Branch,
            "extend" => Kind::Extend,
            _ => Kind::Answer,
        }
    }
}

/// A turn that is not final.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// Its place in the order of admission.
    pub seq: i64,
    /// The id its leg was asked for under; clients are told of a recovery by it.
    pub root: RequestId,
    /// The id clients know its present attempt by.
    pub request_id: RequestId,
    /// What it answers.
    pub kind: Kind,
    /// Who started it (`ws-chat`, `programmatic`, `submission`).
    pub trigger: String,
    /// The message it answers, or extends.
    pub anchor: Option<MessageId>,
    /// The message it writes; chosen at its start.
    pub reply: Option<MessageId>,
    /// Attempts so far.
    pub attempt: u32,
    /// Whether someone stopped it before its slot.
    pub cancelled: bool,
    /// Whether what it answers was changed since it began: it does not go on after an interruption.
    pub outdated: bool,
    /// Whether it gives way to a later one that does.
    pub yields: bool,
    /// Before when it must not start.
    pub not_before: Option<Millis>,
    /// How many response hooks led to it, one from the other.
    pub chain: u32,
    /// What the attempts of its leg have cost.
    pub counters: Counters,
    /// Attempts that were opened since the last one came as far as to read what those before it left.
    pub claims: u32,
    /// Segments of answers that were written by attempts before the present one.
    pub progress: i64,
    /// The custom body, as JSON.
    pub body: Option<String>,
    /// The tools of the page, as JSON.
    pub client_tools: Option<String>,
    /// Metadata for the reply, as JSON.
    pub metadata: Option<String>,
    /// The trailing user messages of its request, as a JSON array.
    pub origin_ids: Option<String>,
    /// The submission whose messages it answers.
    pub submission: Option<String>,
    /// When it was admitted.
    pub created_at: Millis,
}

/// The trigger of an attempt that goes on with what those before it left, and of one that begins anew.
pub const GOES_ON: &str = "recovery-continue";
/// See [`GOES_ON`].
pub const BEGINS_ANEW: &str = "recovery-retry";

impl Turn {
    /// Whether its last attempt goes on with a message: all its frames say so (wire 119).
    pub fn goes_on(&self) -> bool {
        self.kind == Kind::Extend || self.trigger == GOES_ON
    }

    /// How it was admitted, in the words of events.
    pub fn admission(&self) -> &'static str {
        if self.submission.is_some() { "execute-submission" } else { "queue" }
    }
}

/// Admits a turn. `open` says that it starts in this transaction.
pub fn insert(db: &dyn Sql, t: &Turn, generation: i64, started_at: Option<Millis>) -> Result<()> {
    db.run(
        "INSERT INTO wk_turn (id, seq, generation, root_request_id, request_id, kind, trigger, state, user_msg, assistant_msg, \
         branch_parent, attempt, body, metadata, origin_ids, created_at, started_at, yields, next_at, chain, client_tools, \
         submission_id) \
         VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
        &[
            t.id.as_str().into(),
            t.seq.into(),
            generation.into(),
            t.request_id.as_str().into(),
            t.kind.as_str().into(),
            Value::Text(&t.trigger),
            (if started_at.is_some() { "running" } else { "queued" }).into(),
            t.anchor.as_deref().into(),
            t.reply.as_deref().into(),
            (if t.kind == Kind::Branch { t.anchor.as_deref() } else { None }).into(),
            i64::from(t.attempt).into(),
            t.body.as_deref().into(),
            t.metadata.as_deref().into(),
            t.origin_ids.as_deref().into(),
            t.created_at.0.into(),
            started_at.map(|at| at.0).into(),
            t.yields.into(),
            t.not_before.map(|at| at.0).into(),
            i64::from(t.chain).into(),
            t.client_tools.as_deref().into(),
            t.submission.as_deref().into(),
        ],
    )
}

/// A queued turn starts.
pub fn start(db: &dyn Sql, t: &Turn, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_turn SET state = 'running', assistant_msg = ?2, attempt = ?3, started_at = ?4, next_at = NULL WHERE id = ?1",
        &[t.id.as_str().into(), t.reply.as_deref().into(), i64::from(t.attempt).into(), now.0.into()],
    )
}

/// A turn waits for its next attempt.
pub fn wait(db: &dyn Sql, t: &Turn) -> Result<()> {
    write_attempt(db, t, "waiting")
}

/// A turn that was interrupted is attempted again.
pub fn retry(db: &dyn Sql, t: &Turn) -> Result<()> {
    write_attempt(db, t, "running")
}

fn write_attempt(db: &dyn Sql, t: &Turn, state: &'static str) -> Result<()> {
    let c = if mutant!(W2) { Counters::default() } else { t.counters };
    db.run(
        "UPDATE wk_turn SET state = ?2, request_id = ?3, attempt = ?4, next_at = ?5, assistant_msg = ?6, since_progress = ?7, \
         interrupted = ?8, transient = ?9, progress_seen = ?10, work_base = ?11, last_progress_at = ?12, last_attempt_at = ?13, \
         progress_retired = ?14, claims = ?15, trigger = ?16 WHERE id = ?1",
        &[
            t.id.as_str().into(),
            state.into(),
            t.request_id.as_str().into(),
            i64::from(t.attempt).into(),
            t.not_before.map(|at| at.0).into(),
            t.reply.as_deref().into(),
            i64::from(c.since_progress).into(),
            i64::from(c.interrupted).into(),
            i64::from(c.transient).into(),
            c.progress_seen.into(),
            c.work_base.into(),
            c.last_progress_at.map(|at| at.0).into(),
            c.last_attempt_at.map(|at| at.0).into(),
            t.progress.into(),
            i64::from(t.claims).into(),
            t.trigger.as_str().into(),
        ],
    )
}

/// Keeps a value that the application wants back after an interruption.
pub fn stash(db: &dyn Sql, id: &TurnId, value: Option<&str>) -> Result<()> {
    db.run("UPDATE wk_turn SET stash = ?2 WHERE id = ?1", &[id.as_str().into(), value.into()])
}

/// The value the application kept with a turn.
pub fn stashed(db: &dyn Sql, id: &TurnId) -> Result<Option<String>> {
    Ok(db.one("SELECT stash FROM wk_turn WHERE id = ?1", &[id.as_str().into()], |row| row.opt_text(0))?.flatten())
}

/// Someone stopped a queued turn.
pub fn cancel(db: &dyn Sql, id: &TurnId) -> Result<()> {
    db.run("UPDATE wk_turn SET cancel = 1 WHERE id = ?1", &[id.as_str().into()])
}

/// What a turn answers was changed while it is answered.
pub fn outdate(db: &dyn Sql, id: &TurnId) -> Result<()> {
    db.run("UPDATE wk_turn SET cancel = 2 WHERE id = ?1 AND cancel = 0", &[id.as_str().into()])
}

/// A turn comes to rest for good. Its request is no longer needed, its outcome is.
pub fn finish(db: &dyn Sql, id: &TurnId, state: &'static str, reason: Option<&str>, now: Millis) -> Result<()> {
    db.run(
        "UPDATE wk_turn SET state = ?2, reason = ?3, ended_at = ?4, body = NULL, client_tools = NULL, metadata = NULL, stash = NULL WHERE id = ?1",
        &[id.as_str().into(), state.into(), reason.into(), now.0.into()],
    )
}

/// A turn waits for pages or people; what it was asked with is no longer needed.
pub fn park(db: &dyn Sql, id: &TurnId) -> Result<()> {
    db.run(
        "UPDATE wk_turn SET state = 'parked', next_at = NULL, body = NULL, client_tools = NULL, metadata = NULL, stash = NULL WHERE id = ?1",
        &[id.as_str().into()],
    )
}

/// A parked turn goes on: its next leg waits in the queue.
pub fn unpark(db: &dyn Sql, t: &Turn) -> Result<()> {
    db.run(
        "UPDATE wk_turn SET state = 'queued', kind = ?2, trigger = ?3, root_request_id = ?4, request_id = ?4, user_msg = ?5, \
         assistant_msg = ?6, origin_ids = NULL, yields = 0, cancel = 0, chain = 0, body = ?7, client_tools = ?8, next_at = ?9, \
         created_at = ?10, started_at = NULL, since_progress = 0, interrupted = 0, transient = 0, progress_seen = 0, work_base = 0, \
         last_progress_at = NULL, last_attempt_at = NULL, progress_retired = 0, claims = 0 WHERE id = ?1",
        &[
            t.id.as_str().into(),
            t.kind.as_str().into(),
            Value::Text(&t.trigger),
            t.request_id.as_str().into(),
            t.anchor.as_deref().into(),
            t.reply.as_deref().into(),
            t.body.as_deref().into(),
            t.client_tools.as_deref().into(),
            t.not_before.map(|at| at.0).into(),
            t.created_at.0.into(),
        ],
    )
}

/// Reads what a turn was asked with: body, metadata, tools. They wait in the row, not in memory, until it starts.
pub fn read_asked(db: &dyn Sql, t: &mut Turn) -> Result<()> {
    let found = db.one("SELECT body, metadata, client_tools FROM wk_turn WHERE id = ?1", &[t.id.as_str().into()], |row| {
        Ok((row.opt_text(0)?, row.opt_text(1)?, row.opt_text(2)?))
    })?;
    (t.body, t.metadata, t.client_tools) = found.unwrap_or_default();
    Ok(())
}

/// Where a turn that is not final is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// In the queue, or in an attempt.
    Queued,
    /// Between two attempts.
    Waiting,
    /// Waiting for pages or people.
    Parked,
}

/// The turns that are not final, in order of admission, without what they were asked with; and where each is.
pub fn live(db: &dyn Sql) -> Result<Vec<(Turn, Live)>> {
    db.all(
        "SELECT id, seq, request_id, kind, trigger, user_msg, assistant_msg, attempt, cancel, origin_ids, created_at, yields, next_at, \
         chain, submission_id, state, root_request_id, since_progress, interrupted, transient, progress_seen, work_base, last_progress_at, \
         last_attempt_at, progress_retired, claims FROM wk_turn WHERE ended_at IS NULL ORDER BY seq",
        &[],
        |row| {
            let turn = Turn {
                id: row.text(0)?.into(),
                seq: row.int(1)?,
                request_id: row.text(2)?.into(),
                kind: Kind::parse(&row.text(3)?),
                trigger: row.text(4)?,
                anchor: row.opt_text(5)?.map(MessageId::from),
                reply: row.opt_text(6)?.map(MessageId::from),
                attempt: u32::try_from(row.int(7)?).unwrap_or_default(),
                cancelled: row.int(8)? == 1,
                outdated: row.int(8)? == 2,
                body: None,
                client_tools: None,
                metadata: None,
                origin_ids: row.opt_text(9)?,
                created_at: Millis(row.int(10)?),
                yields: row.int(11)? != 0,
                not_before: row.opt_int(12)?.map(Millis),
                chain: u32::try_from(row.int(13)?).unwrap_or_default(),
                submission: row.opt_text(14)?,
                root: row.text(16)?.into(),
                counters: Counters {
                    since_progress: u32::try_from(row.int(17)?).unwrap_or_default(),
                    interrupted: u32::try_from(row.int(18)?).unwrap_or_default(),
                    transient: u32::try_from(row.int(19)?).unwrap_or_default(),
                    progress_seen: row.int(20)?,
                    work_base: row.int(21)?,
                    last_progress_at: row.opt_int(22)?.map(Millis),
                    last_attempt_at: row.opt_int(23)?.map(Millis),
                },
                progress: row.int(24)?,
                claims: u32::try_from(row.int(25)?).unwrap_or_default(),
            };
            let live = match row.text(15)?.as_str() {
                "parked" => Live::Parked,
                "waiting" => Live::Waiting,
                _ => Live::Queued,
            };
            Ok((turn, live))
        },
    )
}

/// The request id of an attempt of recovery, which is the name of its log. It can be told again when the object that chose it is gone:
/// whoever watched the attempt and lost its connection has to learn of its end.
pub fn request_of(turn: &TurnId, attempt: u32) -> RequestId {
    streams::name(turn, attempt).into()
}

/// How the requests of a turn ended before its last one, oldest first: the one that was asked, which `extends` a message or not, and
/// those of the attempts since.
pub fn earlier_ends(turn: &TurnId, root: &RequestId, attempt: u32, extends: bool, last: &Terminal) -> Vec<Terminal> {
    if *root == last.id {
        return Vec::new();
    }
    let end = |id, continuation| Terminal { id, ending: Ending::Recovering, continuation, ..last.clone() };
    let mut ends = vec![end(root.clone(), extends)];
    let attempts = attempt.saturating_sub(limits::ENDED_ATTEMPTS).max(1) + 1..=attempt;
    ends.extend(attempts.map(|n| request_of(turn, n)).filter(|id| *id != last.id).map(|id| end(id, last.continuation)));
    ends
}

/// How the last turns ended, oldest first, under all the ids clients may know them by. No index leads to them: at most those kept are
/// looked at.
pub fn last_ended(db: &dyn Sql) -> Result<Vec<Terminal>> {
    let mut ended = db.all(
        "SELECT root_request_id, request_id, state, origin_ids, kind, id, attempt, trigger FROM wk_turn WHERE ended_at IS NOT NULL \
         ORDER BY seq DESC LIMIT ?1",
        &[Value::Int(limits::ENDED_TURNS)],
        |row| {
            let ending = match row.text(2)?.as_str() {
                "completed" => Ending::Completed,
                "failed" => Ending::Error,
                "skipped" => Ending::Skipped,
                _ => Ending::Aborted,
            };
            let extends = Kind::parse(&row.text(4)?) == Kind::Extend;
            let continuation = extends || row.text(7)? == GOES_ON;
            let last = Terminal { id: row.text(1)?.into(), ending, body: String::new(), message_ids: row.opt_text(3)?, continuation };
            let attempt = u32::try_from(row.int(6)?).unwrap_or_default();
            let mut ended = earlier_ends(&row.text(5)?.into(), &row.text(0)?.into(), attempt, extends, &last);
            ended.push(last);
            Ok(ended)
        },
    )?;
    ended.reverse();
    Ok(ended.into_iter().flatten().collect())
}

/// Forgets the oldest final turns beyond those kept.
pub fn prune(db: &dyn Sql) -> Result<()> {
    db.run(
        "DELETE FROM wk_turn WHERE id IN (SELECT id FROM wk_turn WHERE ended_at IS NOT NULL ORDER BY seq DESC LIMIT -1 OFFSET ?1)",
        &[Value::Int(limits::KEPT_TURNS)],
    )
}

/// Forgets every turn and attempt.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_attempt", &[])?;
    db.run("DELETE FROM wk_turn", &[])
}

/// Opens an attempt; refused by the database while another is open (I7).
pub fn open_attempt(db: &dyn Sql, t: &Turn, boot: &Boot, stream: &str, now: Millis) -> Result<()> {
    db.run(
        "INSERT INTO wk_attempt (turn, n, boot, request_id, stream, kind, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        &[
            t.id.as_str().into(),
            i64::from(t.attempt).into(),
            boot.as_str().into(),
            t.request_id.as_str().into(),
            stream.into(),
            t.kind.as_str().into(),
            now.0.into(),
        ],
    )
}

/// The open attempt: turn and stream.
pub fn the_open_attempt(db: &dyn Sql) -> Result<Option<(TurnId, String)>> {
    db.one("SELECT turn, stream FROM wk_attempt WHERE ended_at IS NULL", &[], |row| Ok((row.text(0)?.into(), row.text(1)?)))
}

/// The attempts of a turn that is final say nothing that its row does not.
pub fn drop_attempts(db: &dyn Sql, turn: &TurnId) -> Result<()> {
    db.run("DELETE FROM wk_attempt WHERE turn = ?1", &[turn.as_str().into()])
}
