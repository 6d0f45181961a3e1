//! Submissions: messages that were accepted and are answered when their slot comes, whatever dies meanwhile.
//!
//! One that waits has its messages here and nowhere else. When its slot comes they move into the conversation; the row stays as a
//! receipt until somebody deletes it, so that a key goes on naming it.

use serde_json::{Map, Value as Json};

use super::{Row, Sql, Value};
use crate::{error::Result, ids::RequestId, time::Millis};

/// Where a submission stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmissionStatus {
    /// Accepted. None of its messages is in the conversation.
    Pending,
    /// Its messages are in the conversation and are being answered.
    Running,
    /// Answered.
    Completed,
    /// Its turn failed, or the object died in it.
    Error,
    /// Somebody stopped it.
    Aborted,
    /// A clear took the conversation away.
    Skipped,
}

const NAMES: [(SubmissionStatus, &str); 6] = [
    (SubmissionStatus::Pending, "pending"),
    (SubmissionStatus::Running, "running"),
    (SubmissionStatus::Completed, "completed"),
    (SubmissionStatus::Error, "error"),
    (SubmissionStatus::Aborted, "aborted"),
    (SubmissionStatus::Skipped, "skipped"),
];

impl SubmissionStatus {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(status, _)| *status == self).map_or("", |(_, name)| name)
    }

    /// The status of this name.
    pub fn parse(text: &str) -> Option<Self> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(status, _)| *status)
    }

    /// Whether it can change no more.
    pub fn is_final(self) -> bool {
        !matches!(self, SubmissionStatus::Pending | SubmissionStatus::Running)
    }
}

/// A submission, without its messages.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmissionInspection {
    /// Its id.
    pub submission_id: String,
    /// What else names it.
    pub idempotency_key: Option<String>,
    /// The id under which clients see its turn.
    pub request_id: String,
    /// Where it stands.
    pub status: SubmissionStatus,
    /// Why it ended as it did.
    pub error: Option<String>,
    /// What the submitter noted.
    pub metadata: Option<Json>,
    /// When it was accepted.
    pub created_at: Millis,
    /// When its messages went into the conversation.
    pub messages_applied_at: Option<Millis>,
    /// When its turn started.
    pub started_at: Option<Millis>,
    /// When it ended.
    pub completed_at: Option<Millis>,
    /// The message that answers it.
    pub message_id: Option<String>,
}

impl SubmissionInspection {
    /// As clients see it. Written by hand: what is derived costs the worker 3 kB more.
    pub fn json(&self) -> Json {
        let text = |text: &Option<String>| text.as_deref().map(Json::from);
        let time = |at: Option<Millis>| at.map(|at| Json::from(at.0));
        let fields = [
            ("submissionId", Some(self.submission_id.as_str().into())),
            ("idempotencyKey", text(&self.idempotency_key)),
            ("requestId", Some(self.request_id.as_str().into())),
            ("status", Some(self.status.as_str().into())),
            ("error", text(&self.error)),
            ("metadata", self.metadata.clone()),
            ("createdAt", time(Some(self.created_at))),
            ("startedAt", time(self.started_at)),
            ("completedAt", time(self.completed_at)),
            ("messageId", text(&self.message_id)),
        ];
        let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Json::Object(there.collect::<Map<_, _>>())
    }
}

impl serde::Serialize for SubmissionInspection {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

/// A submission that has not started, and its place in the order.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its id.
    pub id: RequestId,
    /// Its place in the order, which it shares with turns.
    pub seq: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, idem_key, status, error, metadata, created_at, applied_at, started_at, completed_at, message_id FROM wk_submission ",
            $rest
        )
    };
}

fn read(row: &dyn Row) -> Result<SubmissionInspection> {
    let id = row.text(0)?;
    Ok(SubmissionInspection {
        request_id: id.clone(),
        submission_id: id,
        idempotency_key: row.opt_text(1)?,
        // A name that a later release wrote is that of an end this one does not know.
        status: SubmissionStatus::parse(&row.text(2)?).unwrap_or(SubmissionStatus::Error),
        error: row.opt_text(3)?,
        metadata: row.opt_text(4)?.and_then(|text| serde_json::from_str(&text).ok()),
        created_at: Millis(row.int(5)?),
        messages_applied_at: row.opt_int(6)?.map(Millis),
        started_at: row.opt_int(7)?.map(Millis),
        completed_at: row.opt_int(8)?.map(Millis),
        message_id: row.opt_text(9)?,
    })
}

/// Stores a submission that was accepted.
pub fn insert(db: &dyn Sql, s: &SubmissionInspection, seq: i64, chain: u32, messages: &str) -> Result<()> {
    let metadata = s.metadata.as_ref().map(Json::to_string);
    db.run(
        "INSERT INTO wk_submission (id, idem_key, seq, status, metadata, chain, created_at, messages) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        &[
            s.submission_id.as_str().into(),
            s.idempotency_key.as_deref().into(),
            seq.into(),
            s.status.as_str().into(),
            metadata.as_deref().into(),
            i64::from(chain).into(),
            s.created_at.0.into(),
            messages.into(),
        ],
    )
}

/// Stores what became of a submission. Its messages are in the conversation now, or nobody wants them.
pub fn update(db: &dyn Sql, s: &SubmissionInspection) -> Result<()> {
    db.run(
        "UPDATE wk_submission SET status = ?2, error = ?3, applied_at = ?4, started_at = ?5, completed_at = ?6, message_id = ?7, \
         messages = NULL WHERE id = ?1",
        &[
            s.submission_id.as_str().into(),
            s.status.as_str().into(),
            s.error.as_deref().into(),
            s.messages_applied_at.map(|at| at.0).into(),
            s.started_at.map(|at| at.0).into(),
            s.completed_at.map(|at| at.0).into(),
            s.message_id.as_deref().into(),
        ],
    )
}

/// The submission of this id.
pub fn get(db: &dyn Sql, id: &str) -> Result<Option<SubmissionInspection>> {
    db.one(select!("WHERE id = ?1"), &[id.into()], read)
}

/// The submission of this key.
pub fn by_key(db: &dyn Sql, key: &str) -> Result<Option<SubmissionInspection>> {
    db.one(select!("WHERE idem_key = ?1"), &[key.into()], read)
}

/// The messages of a submission that waits, as a JSON array, and how many response hooks led to it.
pub fn asked(db: &dyn Sql, id: &str) -> Result<(String, u32)> {
    let found = db.one("SELECT messages, chain FROM wk_submission WHERE id = ?1", &[id.into()], |row| {
        Ok((row.opt_text(0)?.unwrap_or_default(), u32::try_from(row.int(1)?).unwrap_or_default()))
    })?;
    Ok(found.unwrap_or_default())
}

/// Those that have not started, in order.
pub fn waiting(db: &dyn Sql) -> Result<Vec<Waiting>> {
    db.all("SELECT id, seq FROM wk_submission WHERE completed_at IS NULL AND status = 'pending' ORDER BY seq", &[], |row| {
        Ok(Waiting { id: row.text(0)?.into(), seq: row.int(1)? })
    })
}

/// Those that are not final, in order.
pub fn live(db: &dyn Sql) -> Result<Vec<SubmissionInspection>> {
    db.all(select!("WHERE completed_at IS NULL ORDER BY seq"), &[], read)
}

/// The place of the newest in the order.
pub fn last_seq(db: &dyn Sql) -> Result<Option<i64>> {
    db.one("SELECT seq FROM wk_submission ORDER BY seq DESC LIMIT 1", &[], |row| row.int(0))
}

/// The newest of these statuses (a JSON array; `None` for any), newest first.
pub fn list(db: &dyn Sql, statuses: Option<&str>, most: u32) -> Result<Vec<SubmissionInspection>> {
    db.all(
        select!("WHERE ?1 IS NULL OR status IN (SELECT value FROM json_each(?1)) ORDER BY seq DESC LIMIT ?2"),
        &[statuses.into(), i64::from(most).into()],
        read,
    )
}

/// Deletes a submission that is final. Whether there was one.
pub fn delete(db: &dyn Sql, id: &str) -> Result<bool> {
    let gone = db.one("DELETE FROM wk_submission WHERE id = ?1 AND completed_at IS NOT NULL RETURNING 1", &[id.into()], |_| Ok(()))?;
    Ok(gone.is_some())
}

/// Deletes the oldest that are final, of these statuses (a JSON array; `None` for any), ended before a time. How many there were.
pub fn delete_many(db: &dyn Sql, statuses: Option<&str>, before: Option<Millis>, most: u32) -> Result<usize> {
    let gone = db.all(
        "DELETE FROM wk_submission WHERE id IN (SELECT id FROM wk_submission WHERE completed_at IS NOT NULL \
         AND (?1 IS NULL OR status IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR completed_at < ?2) \
         ORDER BY seq LIMIT ?3) RETURNING 1",
        &[statuses.into(), before.map(|at| at.0).into(), Value::Int(i64::from(most))],
        |_| Ok(()),
    )?;
    Ok(gone.len())
}
