//! Submissions: messages that are accepted now and answered in their order (`turns-and-tools.md` §3.6).
//!
//! Accepting is a row and nothing else. In the transaction in which a slot begins, the messages move from that row into the
//! conversation and the turn is opened; in the transaction that ends the turn, the row gets its outcome. There is no moment at which
//! messages are applied and their turn is not.

use serde_json::{Value, json};

use super::{
    Engine,
    admission::{Admit, fitting, may_chain},
    calls::cut,
    events::Event,
    input::{Answer, ReplyTo},
    outcome::{Cx, Effect, StatusNote},
};
use crate::{
    error::{Error, Result},
    ids::RequestId,
    limits,
    store::{
        fits,
        submissions::{self as rows, Waiting},
        turns::Turn,
    },
    time::Millis,
    transcript::reconcile::Taken,
    wire::{self, Ending, message::UiMessage},
};

pub use crate::store::submissions::{SubmissionInspection, SubmissionStatus};

/// The trigger of a turn that answers a submission.
pub(super) const SUBMISSION: &str = "submission";

/// What a submission ends with when a clear takes its conversation away.
const RESET: &str = "skipped: the conversation was reset";

/// How messages are submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubmitOptions {
    /// Its id, and that of its request; one is made if there is none.
    pub submission_id: Option<String>,
    /// Names it too: submitting again under the same key finds it.
    pub idempotency_key: Option<String>,
    /// A note for whoever looks at it later.
    pub metadata: Option<Value>,
}

/// Which submissions to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListOptions {
    /// Those of these statuses; all if empty.
    pub status: Vec<SubmissionStatus>,
    /// How many at most, from 1 to 100; 50 unless told.
    pub limit: Option<u32>,
}

/// Which submissions to delete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// Those of these statuses; all final ones if empty.
    pub status: Vec<SubmissionStatus>,
    /// Those that ended before.
    pub completed_before: Option<Millis>,
    /// How many at most, from 1 to 500, oldest first; 100 unless told.
    pub limit: Option<u32>,
}

/// What submitting led to.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// Whether it is new. If not, its id or key was known, and nothing was stored.
    pub accepted: bool,
    /// The submission.
    pub submission: SubmissionInspection,
}

/// What became of a wish to cancel a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancelled {
    /// Whether it was.
    pub outcome: CancelOutcome,
    /// What it was before.
    pub previous_status: Option<SubmissionStatus>,
    /// Whether its messages are in the conversation.
    pub messages_applied: bool,
    /// What it is now.
    pub submission: Option<SubmissionInspection>,
}

impl Cancelled {
    /// As clients see it.
    pub fn json(&self) -> Value {
        let outcome = match self.outcome {
            CancelOutcome::Cancelled => "cancelled",
            CancelOutcome::AlreadyTerminal => "already_terminal",
            CancelOutcome::NotFound => "not_found",
        };
        let mut shown = json!({ "outcome": outcome, "messagesApplied": self.messages_applied });
        if let (Value::Object(fields), Some(before), Some(now)) = (&mut shown, self.previous_status, &self.submission) {
            fields.insert("previousStatus".into(), before.as_str().into());
            fields.insert("submission".into(), now.json());
        }
        shown
    }
}

/// Whether a submission was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was.
    Cancelled,
    /// It had ended.
    AlreadyTerminal,
    /// There is none.
    NotFound,
}

/// What may be asked about submissions.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Accept messages; the number is that of the response hooks that led to this, one from the other.
    Submit(Vec<Value>, SubmitOptions, u32),
    /// Look at one.
    Inspect(String),
    /// Look at some.
    List(ListOptions),
    /// Stop one, for a reason.
    Cancel(String, Option<String>),
    /// Delete one that is final.
    Delete(String),
    /// Delete some that are final.
    DeleteMany(DeleteOptions),
    /// Wait for the end of one.
    Wait(String),
}

impl Ask {
    /// Whether it changes no row.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Ask::Inspect(_) | Ask::List(_) | Ask::Wait(_))
    }
}

impl Engine {
    /// Answers; `None` if the answer comes later. The inner error is the caller's.
    pub(super) fn submission(&mut self, cx: &mut Cx<'_>, ask: Ask, reply: Option<ReplyTo>) -> Result<Option<Result<Answer>>> {
        let answer = match ask {
            Ask::Submit(messages, options, chain) => match self.submit(cx, messages, options, chain)? {
                Ok(submitted) => Answer::Submitted(Box::new(submitted)),
                Err(refused) => return Ok(Some(Err(refused))),
            },
            Ask::Inspect(id) => Answer::Submission(rows::get(cx.db, &id)?.map(Box::new)),
            Ask::List(ListOptions { status, limit }) => {
                Answer::Submissions(rows::list(cx.db, names(&status).as_deref(), clamp(limit, limits::LISTED_SUBMISSIONS))?)
            }
            Ask::Cancel(id, reason) => Answer::Cancelled(Box::new(self.cancel_submission(cx, &id, reason)?)),
            Ask::Delete(id) => Answer::Count(usize::from(rows::delete(cx.db, &id)?)),
            Ask::DeleteMany(DeleteOptions { status, completed_before, limit }) => {
                let most = clamp(limit, limits::DELETED_SUBMISSIONS);
                Answer::Count(rows::delete_many(cx.db, names(&status).as_deref(), completed_before, most)?)
            }
            Ask::Wait(id) => {
                let Some(to) = reply else { return Ok(None) };
                match rows::get(cx.db, &id)? {
                    None => Answer::Submission(None),
                    Some(submission) => {
                        if submission.status.is_final() {
                            // Behind whatever the hook is still to be told.
                            let note = StatusNote { submission, is_news: false, waiters: vec![to] };
                            cx.push(Effect::SubmissionStatus(Box::new(note)));
                        } else {
                            self.submission_waiters.push((id, to));
                        }
                        return Ok(None);
                    }
                }
            }
        };
        Ok(Some(Ok(answer)))
    }

    /// Accepts messages. The inner error is the caller's.
    fn submit(&mut self, cx: &mut Cx<'_>, values: Vec<Value>, options: SubmitOptions, chain: u32) -> Result<Result<Submitted>> {
        let SubmitOptions { submission_id, idempotency_key, metadata } = options;
        let named = |what: &str, name: &Option<String>| match name {
            Some(name) if name.is_empty() || name.len() > limits::ID => {
                Err(Error::input(format!("{what} must have 1 to {} bytes (limits::ID)", limits::ID)))
            }
            _ => Ok(()),
        };
        if let Err(refused) = named("submissionId", &submission_id).and_then(|()| named("idempotencyKey", &idempotency_key)) {
            return Ok(Err(refused));
        }
        let by_id = submission_id.as_deref().map_or(Ok(None), |id| rows::get(cx.db, id))?;
        let by_key = idempotency_key.as_deref().map_or(Ok(None), |key| rows::by_key(cx.db, key))?;
        let known = match (by_id, by_key) {
            (Some(one), Some(other)) if one.submission_id != other.submission_id => {
                return Ok(Err(Error::input("submissionId and idempotencyKey name two different submissions")));
            }
            (one, other) => one.or(other),
        };
        if let Some(submission) = known {
            return Ok(Ok(Submitted { accepted: false, submission }));
        }
        if values.is_empty() {
            return Ok(Err(Error::input("submitMessages requires at least one message")));
        }
        if self.submissions.len() >= limits::PENDING_SUBMISSIONS {
            return Ok(Err(Error::limit(format!(
                "{} submissions are waiting already (limits::PENDING_SUBMISSIONS): let them be answered first",
                self.submissions.len()
            ))));
        }
        let fit = may_chain(cx, chain).and_then(|()| fitting("the metadata", metadata.as_ref(), limits::SUBMISSION_METADATA));
        let messages = match fit.and_then(|()| self.application_messages(cx, values)) {
            Ok(messages) => messages,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.new_ids(cx, &messages)? {
            return Ok(Err(refused));
        }
        let id = RequestId::from(submission_id.unwrap_or_else(|| cx.rng.text(16)));
        if self.is_live(&id) {
            // Frames of two requests under one id cannot be told apart (decision 15).
            return Ok(Err(Error::input(format!("a request with the id {id} is running or waiting"))));
        }
        let mut body = String::new();
        wire::array(&mut body, &messages.iter().map(UiMessage::json).collect::<Vec<_>>());
        if let Err(refused) = fits("a submission", &body) {
            return Ok(Err(refused));
        }
        let submission = SubmissionInspection {
            submission_id: id.to_string(),
            idempotency_key,
            request_id: id.to_string(),
            status: SubmissionStatus::Pending,
            error: None,
            metadata,
            created_at: cx.now,
            messages_applied_at: None,
            started_at: None,
            completed_at: None,
            message_id: None,
        };
        let seq = self.next_seq(cx.now);
        rows::insert(cx.db, &submission, seq, chain, &body)?;
        self.submissions.push_back(Waiting { id, seq });
        cx.emit(Event::new("submission:create").with("submissionId", submission.submission_id.as_str()));
        self.status_changed(cx, submission.clone());
        Ok(Ok(Submitted { accepted: true, submission }))
    }

    /// Whether a turn or a submission waits for its slot.
    pub(super) fn something_waits(&self) -> bool {
        !self.queue.is_empty() || !self.submissions.is_empty()
    }

    pub(super) fn submission_waits(&self, id: &str) -> bool {
        self.submissions.iter().any(|waiting| &*waiting.id == id)
    }

    /// Whether the oldest of what waits is a submission.
    pub(super) fn submission_is_next(&self) -> bool {
        let turn = self.queue.front().map(|turn| turn.seq);
        self.submissions.front().is_some_and(|waiting| turn.is_none_or(|turn| waiting.seq < turn))
    }

    /// The slot of the first submission has come: its messages go into the conversation, all or none, and its turn starts.
    pub(super) fn start_submission(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(Waiting { id, seq }) = self.submissions.pop_front() else { return Ok(()) };
        // Whoever cancelled it did so in its row (field C-03).
        let still = rows::get(cx.db, &id)?.filter(|submission| submission.status == SubmissionStatus::Pending);
        let Some(mut submission) = still else { return Ok(()) };
        let (body, chain) = rows::asked(cx.db, &id)?;
        let fit = match stored(&body) {
            Ok(messages) => self.new_ids(cx, &messages)?.map(|ids| (ids, messages)),
            Err(unreadable) => Err(unreadable),
        };
        let (origin_ids, messages) = match fit {
            Ok(fit) => fit,
            // The id of a message was free when it was submitted and is not now.
            Err(error) => return self.end(cx, submission, SubmissionStatus::Error, Some(error.message().into())),
        };
        self.append(cx, messages.iter().map(Taken::whole).collect())?;
        self.tell_transcript(cx)?;
        submission.status = SubmissionStatus::Running;
        (submission.messages_applied_at, submission.started_at) = (Some(cx.now), Some(cx.now));
        rows::update(cx.db, &submission)?;
        self.status_changed(cx, submission);
        let (kind, anchor) = self.end_of_path(cx)?;
        let admit = Admit::of_application(cx, kind, anchor, self.last_body.clone(), self.client_tools.clone(), chain);
        self.admit(cx, admit.of_submission(id, seq, origin_ids))?;
        Ok(())
    }

    /// The leg that answers a submission has ended. One that was cancelled meanwhile stays so.
    pub(super) fn end_submission(
        &mut self,
        cx: &mut Cx<'_>,
        turn: &Turn,
        ending: Ending,
        message: Option<String>,
        error: Option<String>,
    ) -> Result<()> {
        let Some(mut submission) = turn.submission.as_deref().map_or(Ok(None), |id| rows::get(cx.db, id))? else { return Ok(()) };
        let status = match ending {
            // Also where the turn parks: what was submitted has its answer (decision 30).
            Ending::Completed => SubmissionStatus::Completed,
            Ending::Error => SubmissionStatus::Error,
            Ending::Skipped => SubmissionStatus::Skipped,
            Ending::Aborted | Ending::Recovering => SubmissionStatus::Aborted,
        };
        match submission.status {
            SubmissionStatus::Running => {
                submission.message_id = message;
                self.end(cx, submission, status, error)
            }
            SubmissionStatus::Aborted if message.is_some() => {
                submission.message_id = message;
                rows::update(cx.db, &submission)
            }
            _ => Ok(()),
        }
    }

    fn end(
        &mut self,
        cx: &mut Cx<'_>,
        mut submission: SubmissionInspection,
        status: SubmissionStatus,
        error: Option<String>,
    ) -> Result<()> {
        (submission.status, submission.error, submission.completed_at) = (status, error, Some(cx.now));
        rows::update(cx.db, &submission)?;
        self.status_changed(cx, submission);
        Ok(())
    }

    /// Stops a submission. One that waits leaves no trace in the conversation; of one that runs the turn is stopped.
    pub(super) fn cancel_submission(&mut self, cx: &mut Cx<'_>, id: &str, reason: Option<String>) -> Result<Cancelled> {
        let Some(mut submission) = rows::get(cx.db, id)? else {
            let outcome = CancelOutcome::NotFound;
            return Ok(Cancelled { outcome, previous_status: None, messages_applied: false, submission: None });
        };
        let previous = submission.status;
        let messages_applied = submission.messages_applied_at.is_some();
        let mut outcome = CancelOutcome::AlreadyTerminal;
        if !previous.is_final() {
            outcome = CancelOutcome::Cancelled;
            self.submissions.retain(|waiting| &*waiting.id != id);
            submission.error = reason.map(|mut reason| {
                cut(&mut reason, limits::SUBMISSION_REASON);
                reason
            });
            (submission.status, submission.completed_at) = (SubmissionStatus::Aborted, Some(cx.now));
            rows::update(cx.db, &submission)?;
            if self.present().any(|turn| turn.submission.as_deref() == Some(id)) {
                self.abort(cx)?;
                // Where it ended at once, what it had is stored.
                submission = rows::get(cx.db, id)?.unwrap_or(submission);
            }
            self.status_changed(cx, submission.clone());
        }
        Ok(Cancelled { outcome, previous_status: Some(previous), messages_applied, submission: Some(submission) })
    }

    /// Stops all that wait.
    pub(super) fn cancel_submissions(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        for waiting in self.submissions.clone() {
            self.cancel_submission(cx, &waiting.id, None)?;
        }
        Ok(())
    }

    /// A clear takes away the conversation they belong to.
    pub(super) fn skip_submissions(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        self.submissions.clear();
        for submission in rows::live(cx.db)? {
            self.end(cx, submission, SubmissionStatus::Skipped, Some(RESET.into()))?;
        }
        Ok(())
    }

    fn status_changed(&mut self, cx: &mut Cx<'_>, submission: SubmissionInspection) {
        let event = |name| Event::new(name).with("submissionId", submission.submission_id.as_str());
        cx.emit(event("submission:status").with("status", submission.status.as_str()));
        if submission.status == SubmissionStatus::Error {
            cx.emit(event("submission:error").with("messagesApplied", submission.messages_applied_at.is_some()));
        }
        let mut waiters = Vec::new();
        if submission.status.is_final() {
            self.submission_waiters.retain(|(id, to)| {
                let waits = *id != submission.submission_id;
                if !waits {
                    waiters.push(*to);
                }
                waits
            });
        }
        cx.push(Effect::SubmissionStatus(Box::new(StatusNote { submission, is_news: true, waiters })));
    }
}

/// The messages of a row.
fn stored(body: &str) -> Result<Vec<UiMessage>> {
    let Value::Array(values) = serde_json::from_str(body)? else { return Err(Error::corrupt("the messages cannot be read")) };
    values.into_iter().map(UiMessage::from_client).collect()
}

fn names(statuses: &[SubmissionStatus]) -> Option<String> {
    let names: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    (!names.is_empty()).then(|| wire::string_array(&names))
}

fn clamp(wanted: Option<u32>, (least, most, usual): (u32, u32, u32)) -> u32 {
    wanted.unwrap_or(usual).clamp(least, most)
}
