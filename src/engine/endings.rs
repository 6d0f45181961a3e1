//! How turns end that do not run, or not any more: what their clients and callers are told.

use super::{
    Engine,
    events::Event,
    input::{Answer, TurnResult, TurnStatus},
    outcome::{Cx, Effect},
    take,
};
use crate::{
    error::Result,
    ids::RequestId,
    model::{FinishReason, Usage},
    store::turns::{self, Turn},
    time::Millis,
    wire::{self, Ending, Terminal, message::UiMessage},
};

/// Why a turn did not run that was stopped in the queue.
const UNSTARTED: &str = "cancelled before its slot";
/// Why a turn ended whose conversation was cleared.
const CLEARED: &str = "history_cleared";

/// What the last attempt of a leg took, as far as this incarnation knows.
#[derive(Default)]
pub(super) struct Took {
    /// When it began, and the rows that were written before.
    pub(super) since: Option<(Millis, u64)>,
    pub(super) model_calls: Option<u32>,
    pub(super) usage: Option<Usage>,
    /// Why the model stopped, if the leg came to its end by that.
    pub(super) finish: Option<FinishReason>,
}

impl Engine {
    /// A queued turn that was stopped before its slot: no model call, its messages stay.
    pub(super) fn end_unstarted(&mut self, cx: &mut Cx<'_>, turn: &Turn) -> Result<()> {
        turns::finish(cx.db, &turn.id, "aborted", Some(UNSTARTED), cx.now)?;
        take(&mut self.senders, &turn.id);
        let is_last = !self.something_waits();
        if is_last {
            // A tab keeps an answer of its own below the messages that came after its question until the next transcript (wire
            // §2.11), and no turn is left to send one.
            self.tell_transcript(cx)?;
        }
        self.close_request(cx, turn, Ending::Aborted, false);
        self.answer_waiter(cx, turn, TurnStatus::Aborted, None, None, false);
        self.finished(cx, turn, false, "aborted", Some(UNSTARTED), Took::default());
        if is_last {
            for conn in self.clients.release_parked() {
                cx.send_one(&conn, wire::resume_none(None, None));
            }
        }
        Ok(())
    }

    /// A queued turn that gave way to a later one: its messages stay, its sender is told (wire §4.15).
    pub(super) fn end_superseded(&mut self, cx: &mut Cx<'_>, turn: &Turn) -> Result<()> {
        turns::finish(cx.db, &turn.id, "skipped", Some("superseded"), cx.now)?;
        let terminal = skipped(turn.request_id.clone(), turn.origin_ids.clone());
        // Whoever sent it may be known no more after a restart; the others do not know the request and lose nothing.
        let to = match take(&mut self.senders, &turn.id) {
            Some(sender) => vec![sender],
            None => self.clients.all(),
        };
        cx.send(to, wire::terminal(&terminal));
        self.remember_ending(terminal);
        self.finished(cx, turn, false, "skipped", Some("superseded"), Took::default());
        Ok(())
    }

    /// The last frame of a request, of a kind with those before it (wire 119).
    pub(super) fn close_request(&mut self, cx: &mut Cx<'_>, turn: &Turn, ending: Ending, extends: bool) {
        let terminal = Terminal {
            id: turn.request_id.clone(),
            ending,
            body: String::new(),
            message_ids: turn.origin_ids.clone(),
            continuation: extends,
        };
        cx.send(self.clients.all(), wire::terminal(&terminal));
        self.remember_ending(terminal);
    }

    /// After a clear: the rows are gone, the clients still wait for their closing frames (wire §4.11).
    pub(super) fn drop_turns(&mut self, cx: &mut Cx<'_>) {
        self.clients.forget_offers();
        if let Some(running) = self.running.take() {
            cx.push(Effect::Cancel(running.fence.clone()));
            self.close_request(cx, &running.turn, Ending::Aborted, running.extends);
            if running.turn.counters.is_recovering() {
                self.skipped(cx, &running.turn, CLEARED);
            }
            self.finished(cx, &running.turn, running.extends, "aborted", Some(CLEARED), running.took());
            self.answer_waiter(cx, &running.turn, TurnStatus::Skipped, None, None, running.extends);
        }
        if let Some(turn) = self.waiting.take() {
            // Its last attempt has had its end.
            self.skipped(cx, &turn, CLEARED);
            self.finished(cx, &turn, false, "aborted", Some(CLEARED), Took::default());
            self.answer_waiter(cx, &turn, TurnStatus::Skipped, None, None, false);
        }
        self.recovered(cx);
        for turn in std::mem::take(&mut self.queue) {
            self.close_request(cx, &turn, Ending::Skipped, false);
            self.finished(cx, &turn, false, "stale", Some(CLEARED), Took::default());
            self.answer_waiter(cx, &turn, TurnStatus::Skipped, None, None, false);
        }
        self.senders.clear();
    }

    /// The end of a leg, told the same way however it came (`recovery.md` §2.13). What is not known of it is null.
    pub(super) fn finished(&self, cx: &mut Cx<'_>, turn: &Turn, extends: bool, status: &str, reason: Option<&str>, took: Took) {
        cx.emit(
            Event::new("chat:turn:finish")
                .with("requestId", turn.request_id.as_str())
                .with("trigger", turn.trigger.as_str())
                .with("admission", turn.admission())
                .with("continuation", extends)
                .with("status", status)
                .with("reason", reason)
                .with("durationMs", took.since.map(|(began, _)| cx.now.since(began)))
                .with("modelCalls", took.model_calls)
                .with("finishReason", took.finish.map(FinishReason::as_str))
                .with("usage", took.usage.and_then(|usage| serde_json::to_value(usage).ok()))
                .with("rowsWritten", took.since.map(|(_, before)| cx.db.meter().written.saturating_sub(before))),
        );
    }

    pub(super) fn answer_waiter(
        &mut self,
        cx: &mut Cx<'_>,
        turn: &Turn,
        status: TurnStatus,
        error: Option<String>,
        message: Option<UiMessage>,
        continuation: bool,
    ) {
        let Some(to) = take(&mut self.waiters, &turn.id) else { return };
        let result = TurnResult {
            request_id: turn.request_id.to_string(),
            status,
            error,
            message: message.map(UiMessage::into_value),
            continuation,
        };
        cx.push(Effect::Reply(to, Ok(Answer::Turn(result))));
    }
}

/// The last frame of a request that is not run.
pub(super) fn skipped(id: RequestId, message_ids: Option<String>) -> Terminal {
    Terminal { id, ending: Ending::Skipped, body: String::new(), message_ids, continuation: false }
}

/// What is kept of an end over a clear: the request, and whether it was a continuation.
pub(super) fn name(ended: &Terminal) -> String {
    format!("{}{}", if ended.continuation { '+' } else { '=' }, ended.id)
}

/// The last frame of a request of before a clear.
pub(super) fn cleared(name: &str) -> Terminal {
    let continuation = name.starts_with('+');
    Terminal {
        id: name.get(1..).unwrap_or_default().into(),
        ending: Ending::Aborted,
        body: String::new(),
        message_ids: None,
        continuation,
    }
}
