//! How interrupted turns end that do not go on: given up, declined, stopped, or left behind by the conversation. One transaction
//! settles message, calls, logs, turn, notice and submission, and owes the hooks (`recovery.md` §6.6).

use super::{
    Engine,
    budget::Reason,
    endings::Took,
    hooks::ExhaustedRow,
    input::TurnStatus,
    outcome::{Cx, Effect, RecoveryKind},
    recovery::Partial,
    turn::Phase,
};
use crate::{
    error::Result,
    store::{
        calls, streams,
        turns::{self, Kind, Turn},
    },
    transcript::repair::{self, Close},
    wire::{self, Ending, Terminal},
};

/// What clients are shown of a turn that the application does not let go on.
const DECLINED: &str = "Submission was interrupted and automatic continuation was declined.";

/// How an interrupted turn ends.
struct Rest<'a> {
    ending: Ending,
    reason: &'a str,
    /// What clients are shown.
    body: String,
    /// What there is of its answer; nothing if it is not to be kept.
    partial: Option<Partial>,
    /// The log that whoever was away is shown; an empty one if the answer is in the transcript.
    log: Option<String>,
    /// What its last attempt took, if a model was asked in it.
    took: Took,
}

impl<'a> Rest<'a> {
    fn new(ending: Ending, reason: &'a str, body: String, partial: Option<Partial>) -> Self {
        Self { ending, reason, body, partial, log: None, took: Took::default() }
    }
}

impl Engine {
    /// A bound was reached: the turn ends with what it has.
    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>, turn: Turn, reason: Reason, took: Took) -> Result<()> {
        let partial = self.fold(cx, &Turn { attempt: turn.attempt + 1, ..turn.clone() })?;
        self.seal(cx, turn, partial, reason, took)
    }

    pub(super) fn seal(&mut self, cx: &mut Cx<'_>, turn: Turn, partial: Partial, reason: Reason, took: Took) -> Result<()> {
        let (kind, stream) = (partial.kind(), partial.stream.clone());
        let kept = partial.extends || repair::is_worth_storing(&partial.message);
        let message = kept.then(|| partial.message.id.clone());
        self.exhaust(cx, &turn, reason, kind, stream, message)?;
        let body = self.config.chat_recovery.terminal_message.to_string();
        let rest = Rest { took, ..Rest::new(Ending::Error, reason.as_str(), body, Some(partial)) };
        self.end_recovery(cx, turn, rest)
    }

    /// A turn that cannot even be read is brought to rest by its row alone. Its log stays, for whoever was away.
    pub(super) fn seal_unread(&mut self, cx: &mut Cx<'_>, turn: Turn) -> Result<()> {
        // Attempts that could not read it wrote nothing: at most one log holds anything.
        let written = streams::of_turn(cx.db, &turn.id)?.pop();
        let log = written.map_or_else(|| streams::name(&turn.id, turn.attempt), |(_, log, _)| log);
        self.exhaust(cx, &turn, Reason::RecoveryError, RecoveryKind::Continue, log.clone(), None)?;
        let body = self.config.chat_recovery.terminal_message.to_string();
        let reason = Reason::RecoveryError.as_str();
        self.end_recovery(cx, turn, Rest { log: Some(log), ..Rest::new(Ending::Error, reason, body, None) })
    }

    fn exhaust(
        &mut self,
        cx: &mut Cx<'_>,
        turn: &Turn,
        reason: Reason,
        kind: RecoveryKind,
        stream_id: String,
        message_id: Option<String>,
    ) -> Result<()> {
        let event = self.about("chat:recovery:exhausted", turn).with("recoveryKind", kind.as_str()).with("reason", reason.as_str());
        cx.emit(event.with("streamId", stream_id.as_str()).with("createdAt", turn.created_at.0));
        let row = ExhaustedRow {
            incident_id: turn.id.to_string(),
            root_request_id: turn.root.to_string(),
            request_id: turn.request_id.to_string(),
            attempt: turn.counters.attempt(),
            max_attempts: self.config.chat_recovery.max_attempts,
            retries: kind == RecoveryKind::Retry,
            stream_id,
            created_at: turn.created_at.0,
            reason: reason.as_str().into(),
            terminal_message: self.config.chat_recovery.terminal_message.to_string(),
            message_id,
        };
        self.owe_exhausted(cx, row)
    }

    /// `on_chat_recovery` failed: the turn ends, and says so.
    pub(super) fn fail_recovery(&mut self, cx: &mut Cx<'_>, turn: Turn, partial: Partial, error: String) -> Result<()> {
        let reason = Reason::RecoveryError.as_str();
        let event = self.about("chat:recovery:failed", &turn).with("recoveryKind", partial.kind().as_str());
        cx.emit(event.with("reason", reason).with("error", error));
        let body = self.config.chat_recovery.terminal_message.to_string();
        self.end_recovery(cx, turn, Rest::new(Ending::Error, reason, body, Some(partial)))
    }

    /// The application does not let the turn go on.
    pub(super) fn decline(&mut self, cx: &mut Cx<'_>, turn: Turn, partial: Partial, persist: bool) -> Result<()> {
        let reason = "continue_disabled";
        self.skipped(cx, &turn, reason);
        let kept = persist || partial.has_results();
        let partial = Some(partial).filter(|_| kept);
        self.end_recovery(cx, turn, Rest::new(Ending::Error, reason, DECLINED.into(), partial))
    }

    /// The turn is older than the application lets turns go on by themselves.
    pub(super) fn let_rest(&mut self, cx: &mut Cx<'_>, turn: Turn, took: Took) -> Result<()> {
        let reason = "max_turn_age_exceeded";
        self.skipped(cx, &turn, reason);
        let partial = Some(self.fold(cx, &Turn { attempt: turn.attempt + 1, ..turn.clone() })?);
        self.end_recovery(cx, turn, Rest { took, ..Rest::new(Ending::Error, reason, DECLINED.into(), partial) })
    }

    /// Somebody stops a turn that is between two attempts, or about to be taken up.
    pub(super) fn abandon(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let (turn, partial) = match self.running.take_if(|r| r.phase == Phase::Recovering) {
            Some(running) => {
                cx.push(Effect::Cancel(running.fence.clone()));
                (running.turn, running.partial.map(|partial| *partial))
            }
            None => match self.waiting.take() {
                // The attempt before has had its end; this one never began.
                Some(turn) => (Turn { request_id: cx.rng.text(16).into(), ..turn }, None),
                None => return Ok(()),
            },
        };
        let partial = match partial {
            Some(partial) => partial,
            None => self.fold(cx, &Turn { attempt: turn.attempt + 1, ..turn.clone() })?,
        };
        let reason = "user_cancelled";
        self.skipped(cx, &turn, reason);
        self.end_recovery(cx, turn, Rest::new(Ending::Aborted, reason, String::new(), Some(partial)))
    }

    /// What the turn answered left the conversation.
    pub(super) fn skip_recovery(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        cx.push(Effect::Cancel(running.fence.clone()));
        self.leave_behind(cx, running.turn)
    }

    /// A question was edited, and answered anew with that: an interrupted turn does not go on with the old one (decision 35).
    pub(super) fn skip_edited(&mut self, cx: &mut Cx<'_>, question: &str) -> Result<()> {
        let answers = |turn: &Turn| turn.anchor.as_deref() == Some(question);
        if self.running.as_ref().is_some_and(|running| running.phase == Phase::Recovering && answers(&running.turn)) {
            return self.skip_recovery(cx);
        }
        match self.waiting.take_if(|turn| answers(turn)) {
            // The attempt before has had its end; this one never began.
            Some(turn) => {
                let request_id = cx.rng.text(16).into();
                self.leave_behind(cx, Turn { request_id, ..turn })
            }
            None => Ok(()),
        }
    }

    fn leave_behind(&mut self, cx: &mut Cx<'_>, turn: Turn) -> Result<()> {
        let reason = "conversation_changed";
        self.skipped(cx, &turn, reason);
        let partial = self.fold(cx, &Turn { attempt: turn.attempt + 1, ..turn.clone() })?;
        // What is not in the conversation yet must not become the answer of an edited question.
        let partial = Some(partial).filter(|partial| partial.extends || turn.anchor != self.leaf);
        self.end_recovery(cx, turn, Rest::new(Ending::Skipped, reason, String::new(), partial))
    }

    pub(super) fn skipped(&self, cx: &mut Cx<'_>, turn: &Turn, reason: &str) {
        cx.emit(self.about("chat:recovery:skipped", turn).with("reason", reason));
    }

    /// An interrupted turn comes to rest without another attempt.
    fn end_recovery(&mut self, cx: &mut Cx<'_>, mut turn: Turn, rest: Rest<'_>) -> Result<()> {
        let Rest { ending, reason, body, partial, log, took } = rest;
        let mut stored = None;
        if let Some(Partial { mut message, extends, .. }) = partial {
            if !mutant!(W42) {
                repair::close(&mut message, Close::Interrupted);
            }
            if self.store_reply(cx, &turn, extends, &mut message)? {
                stored = Some(message);
            }
        }
        if let Some(reply) = turn.reply.as_ref().filter(|_| !mutant!(W42)) {
            calls::settle_open(cx.db, reply, "repair", cx.now)?;
        }
        turn.attempt += 1;
        if log.is_none() {
            self.drop_logs(cx, &mut turn)?;
        }
        turns::drop_attempts(cx.db, &turn.id)?;
        let (state, status) = match ending {
            Ending::Error => ("failed", TurnStatus::Error),
            Ending::Skipped => ("skipped", TurnStatus::Skipped),
            _ => ("aborted", TurnStatus::Aborted),
        };
        turns::finish(cx.db, &turn.id, state, Some(reason), cx.now)?;
        self.take_down_notice(cx)?;
        let terminal = Terminal {
            id: turn.request_id.clone(),
            ending,
            body: body.clone(),
            message_ids: turn.origin_ids.clone(),
            continuation: turn.goes_on(),
        };
        if ending == Ending::Error && !mutant!(W11) {
            let stream = log.unwrap_or_else(|| streams::name(&turn.id, turn.attempt));
            let notice = streams::Notice { stream, terminal: terminal.clone() };
            streams::put_notice(cx.db, &turn.id, &notice)?;
            self.notice = Some(notice);
        }
        self.tell_transcript(cx)?;
        if let Some(message) = &stored {
            cx.send(self.clients.all(), wire::message_updated(&message.json()));
        }
        cx.send(self.clients.all(), wire::terminal(&terminal));
        self.remember_ending(terminal);
        self.recovered(cx);
        if !self.something_waits() {
            for conn in self.clients.release_parked() {
                cx.send_one(&conn, wire::resume_none(None, None));
            }
        }
        let error = (ending == Ending::Error).then_some(body);
        let message_id = stored.as_ref().map(|message| message.id.clone());
        self.end_submission(cx, &turn, ending, message_id, error.clone().or(Some(reason.into())))?;
        self.answer_waiter(cx, &turn, status, error.clone(), stored.clone(), false);
        if ending != Ending::Skipped {
            self.owe_response(cx, &turn, stored, status, error, turn.kind == Kind::Extend)?;
        }
        self.finished(cx, &turn, turn.kind == Kind::Extend, status.as_str(), Some(reason), took);
        Ok(())
    }
}
