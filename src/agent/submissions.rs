//! Submissions: work for the conversation that survives whoever asked for it (`turns-and-tools.md` §3.6).
//!
//! [`AgentHandle::submit_messages`] stores messages and returns; they are answered in their order, by an object that may have been
//! restarted meanwhile. A tool may submit what must not be answered before its own turn is over.
//!
//! ```
//! use wakeful::{prelude::*, testkit::{World, script, text}};
//!
//! #[derive(Clone)]
//! struct Reporter;
//!
//! impl Agent for Reporter {
//!     fn model(&self, _: &Turn) -> ModelRef {
//!         "ollama/any".into()
//!     }
//! }
//!
//! let world = World::new(Reporter).model(script![text("All quiet.")]);
//! let handle = world.handle();
//! let ended = world.block_on(async move {
//!     // Whoever calls twice on the same day gets one report.
//!     let options = SubmitOptions { idempotency_key: Some("report 2026-11-30".into()), ..SubmitOptions::default() };
//!     let submitted = handle.submit_messages(vec![UiMessage::user("r1", "Report, please.")], options).await?;
//!     handle.wait_for_submission(&submitted.submission.submission_id).await
//! });
//! assert_eq!(ended.unwrap().unwrap().status, SubmissionStatus::Completed);
//! assert_eq!(world.said(), ["user: Report, please.", "assistant: All quiet."]);
//! ```

use serde_json::Value;

use super::{
    callable::{Call, Callables},
    handle::{AgentHandle, TurnScope, values},
};
use crate::{
    engine::{
        config::BuiltIns,
        input::{Answer, Command},
        submissions::Ask,
    },
    error::{Error, Result},
    transcript::sanitise::strip_reserved_value,
    wire::message::UiMessage,
};

pub use crate::engine::submissions::{
    CancelOutcome, Cancelled, DeleteOptions, ListOptions, SubmissionInspection, SubmissionStatus, SubmitOptions, Submitted,
};

/// Work that is accepted now and done in its turn.
impl AgentHandle {
    /// Accepts messages to be answered after everything that was asked before. They are stored when this returns, and in the
    /// conversation when their slot comes.
    ///
    /// They outlive the object, also the one that is being answered when it dies. With `chat_recovery` off that one ends with the error
    /// `interrupted`: its messages and the stored part of the answer stay.
    ///
    /// An id or key that is known gives the submission it names, with `accepted: false`. Its row stays until it is deleted.
    ///
    /// # Errors
    /// No message, one that is none, or an id that exists; more than a row holds; id and key of two submissions; more than
    /// [`PENDING_SUBMISSIONS`](crate::limits::PENDING_SUBMISSIONS) waiting; a read-only connection.
    pub async fn submit_messages(&self, messages: Vec<UiMessage>, options: SubmitOptions) -> Result<Submitted> {
        self.may_change()?;
        submitted(self.ask(Command::Submission(Ask::Submit(values(messages), options, self.chain))).await?)
    }

    /// A submission, if there is one of this id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn inspect_submission(&self, id: &str) -> Result<Option<SubmissionInspection>> {
        inspected(self.ask(Command::Submission(Ask::Inspect(id.into()))).await?)
    }

    /// Submissions, newest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list_submissions(&self, options: ListOptions) -> Result<Vec<SubmissionInspection>> {
        listed(self.ask(Command::Submission(Ask::List(options))).await?)
    }

    /// Stops a submission. One that waits leaves nothing in the conversation; one that runs keeps what it has.
    ///
    /// # Errors
    /// The database failed, or the call came over a read-only connection.
    pub async fn cancel_submission(&self, id: &str, reason: Option<&str>) -> Result<Cancelled> {
        self.may_change()?;
        cancelled(self.ask(Command::Submission(Ask::Cancel(id.into(), reason.map(Into::into)))).await?)
    }

    /// Deletes a submission that has ended. Whether there was one. Its key is free again; the conversation stays as it is.
    ///
    /// # Errors
    /// The database failed, or the call came over a read-only connection.
    pub async fn delete_submission(&self, id: &str) -> Result<bool> {
        self.may_change()?;
        Ok(counted(self.ask(Command::Submission(Ask::Delete(id.into()))).await?)? > 0)
    }

    /// Deletes submissions that have ended, oldest first. How many there were.
    ///
    /// # Errors
    /// The database failed, or the call came over a read-only connection.
    pub async fn delete_submissions(&self, options: DeleteOptions) -> Result<usize> {
        self.may_change()?;
        counted(self.ask(Command::Submission(Ask::DeleteMany(options))).await?)
    }

    /// Waits until a submission has ended and [`on_submission_status`](crate::Agent::on_submission_status) has returned. `None` if
    /// there is none of this id.
    ///
    /// # Errors
    /// Called from inside a turn or from that hook; the object was restarted: ask again.
    pub async fn wait_for_submission(&self, id: &str) -> Result<Option<SubmissionInspection>> {
        self.may_wait("waitForSubmission")?;
        if self.mailbox.inside_status_hook() {
            return Err(Error::refused(
                "waitForSubmission refused: this code runs inside on_submission_status, and who waits is answered when that returned",
            ));
        }
        inspected(self.ask(Command::Submission(Ask::Wait(id.into()))).await?)
    }
}

/// The same from inside a turn, without waiting.
impl TurnScope {
    /// As [`AgentHandle::submit_messages`]. They are answered after this turn.
    ///
    /// # Errors
    /// As there.
    pub async fn submit_messages(&self, messages: Vec<UiMessage>, options: SubmitOptions) -> Result<Submitted> {
        submitted(self.ask(Command::Submission(Ask::Submit(values(messages), options, 0))).await?)
    }

    /// As [`AgentHandle::inspect_submission`].
    ///
    /// # Errors
    /// The database failed.
    pub async fn inspect_submission(&self, id: &str) -> Result<Option<SubmissionInspection>> {
        inspected(self.ask(Command::Submission(Ask::Inspect(id.into()))).await?)
    }

    /// As [`AgentHandle::list_submissions`].
    ///
    /// # Errors
    /// The database failed.
    pub async fn list_submissions(&self, options: ListOptions) -> Result<Vec<SubmissionInspection>> {
        listed(self.ask(Command::Submission(Ask::List(options))).await?)
    }

    /// As [`AgentHandle::cancel_submission`].
    ///
    /// # Errors
    /// The database failed.
    pub async fn cancel_submission(&self, id: &str, reason: Option<&str>) -> Result<Cancelled> {
        cancelled(self.ask(Command::Submission(Ask::Cancel(id.into(), reason.map(Into::into)))).await?)
    }

    /// As [`AgentHandle::delete_submission`].
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete_submission(&self, id: &str) -> Result<bool> {
        Ok(counted(self.ask(Command::Submission(Ask::Delete(id.into()))).await?)? > 0)
    }

    /// As [`AgentHandle::delete_submissions`].
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete_submissions(&self, options: DeleteOptions) -> Result<usize> {
        counted(self.ask(Command::Submission(Ask::DeleteMany(options))).await?)
    }
}

fn unexpected<T>() -> Result<T> {
    Err(Error::platform("the question about submissions got an answer to another"))
}

fn submitted(answer: Answer) -> Result<Submitted> {
    if let Answer::Submitted(submitted) = answer { Ok(*submitted) } else { unexpected() }
}

fn inspected(answer: Answer) -> Result<Option<SubmissionInspection>> {
    if let Answer::Submission(found) = answer { Ok(found.map(|found| *found)) } else { unexpected() }
}

fn listed(answer: Answer) -> Result<Vec<SubmissionInspection>> {
    if let Answer::Submissions(list) = answer { Ok(list) } else { unexpected() }
}

fn cancelled(answer: Answer) -> Result<Cancelled> {
    if let Answer::Cancelled(cancelled) = answer { Ok(*cancelled) } else { unexpected() }
}

fn counted(answer: Answer) -> Result<usize> {
    if let Answer::Count(n) = answer { Ok(n) } else { unexpected() }
}

/// The built-in methods about submissions.
const METHODS: [&str; 4] = ["submitMessages", "inspectSubmission", "listSubmissions", "cancelSubmission"];

impl Callables {
    /// Adds what the crate offers by itself, behind what the application has.
    pub(crate) fn with_built_in(self, groups: BuiltIns) -> Self {
        let names = METHODS.iter().filter(|_| groups.submissions);
        names.fold(self, |all, name| all.with(*name, |call| built_in(name, call)))
    }
}

/// One future for all of them, rather than one each: a state machine is the larger part of such a method.
async fn built_in(method: &'static str, call: Call) -> Result<Option<Value>> {
    let ask = asked(method, &call)?;
    if !ask.only_reads() {
        call.handle.may_change()?;
    }
    shown(call.handle.ask(Command::Submission(ask)).await?).map(Some)
}

fn asked(method: &str, call: &Call) -> Result<Ask> {
    Ok(match method {
        "submitMessages" => {
            let Some(Value::Array(messages)) = call.args.first() else {
                return Err(Error::input("submitMessages needs an array of messages"));
            };
            let foreign = |message: &Value| {
                message.get("role").and_then(Value::as_str).is_some_and(|role| matches!(role, "assistant" | "system"))
            };
            if messages.iter().any(foreign) {
                // A page that could write the others could make the model believe anything (decision 7).
                return Err(Error::input("a client may submit messages of the person only"));
            }
            let mut messages = messages.clone();
            messages.iter_mut().for_each(strip_reserved_value);
            let options = SubmitOptions {
                submission_id: text(call, 1, "submissionId")?,
                idempotency_key: text(call, 1, "idempotencyKey")?,
                metadata: field(call, 1, "metadata")?.cloned(),
            };
            Ask::Submit(messages, options, 0)
        }
        "listSubmissions" => {
            let status = match field(call, 0, "status")? {
                None => Vec::new(),
                Some(Value::Array(names)) => names.iter().map(status).collect::<Result<_>>()?,
                Some(name) => vec![status(name)?],
            };
            let limit = match field(call, 0, "limit")? {
                None => None,
                Some(n) => Some(n.as_u64().ok_or_else(|| Error::input("`limit` is not a whole number"))?),
            };
            Ask::List(ListOptions { status, limit: limit.map(|n| u32::try_from(n).unwrap_or(u32::MAX)) })
        }
        "cancelSubmission" => {
            let reason = match call.args.get(1) {
                None | Some(Value::Null) => None,
                Some(Value::String(reason)) => Some(reason.clone()),
                Some(_) => return Err(Error::input("the reason is not a string")),
            };
            Ask::Cancel(id(call)?, reason)
        }
        _ => Ask::Inspect(id(call)?),
    })
}

fn shown(answer: Answer) -> Result<Value> {
    Ok(match answer {
        Answer::Submitted(submitted) => {
            let mut shown = submitted.submission.json();
            if let Value::Object(fields) = &mut shown {
                fields.insert("accepted".into(), submitted.accepted.into());
            }
            shown
        }
        Answer::Submission(found) => found.map_or(Value::Null, |found| found.json()),
        Answer::Submissions(list) => list.iter().map(SubmissionInspection::json).collect(),
        Answer::Cancelled(cancelled) => cancelled.json(),
        _ => return unexpected(),
    })
}

fn id(call: &Call) -> Result<String> {
    match call.args.first() {
        Some(Value::String(id)) => Ok(id.clone()),
        _ => Err(Error::input("the id of a submission is a string")),
    }
}

fn status(name: &Value) -> Result<SubmissionStatus> {
    name.as_str().and_then(SubmissionStatus::parse).ok_or_else(|| Error::input("`status` is not the name of a status"))
}

/// A field of the options of a call, which may have none.
fn field<'a>(call: &'a Call, arg: usize, name: &str) -> Result<Option<&'a Value>> {
    match call.args.get(arg) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(options)) => Ok(options.get(name).filter(|value| !value.is_null())),
        Some(_) => Err(Error::input("the options are not an object")),
    }
}

fn text(call: &Call, arg: usize, name: &str) -> Result<Option<String>> {
    match field(call, arg, name)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::input(format!("`{name}` is not a string"))),
    }
}
