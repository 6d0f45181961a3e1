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
    store::turns::{self, Turn},
    wire::{self, Ending, Terminal, message::UiMessage},
};

impl Engine {
    /// A queued turn that was stopped before its slot: no model call, its messages stay.
    pub(super) fn end_unstarted(&mut self, cx: &mut Cx<'_>, turn: &Turn) -> Result<()> {
        turns::finish(cx.db, &turn.id, "aborted", Some("cancelled before its slot"), cx.now)?;
        take(&mut self.senders, &turn.id);
        let is_last = !self.something_waits();
        if is_last {
            // A tab keeps an answer of its own below the messages that came after its question until the next transcript (wire
            // §2.11), and no turn is left to send one.
            self.tell_transcript(cx)?;
        }
        self.close_request(cx, turn, Ending::Aborted, false);
        self.answer_waiter(cx, turn, TurnStatus::Aborted, None, None, false);
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
        cx.emit(finished(turn, "skipped"));
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
                self.skipped(cx, &running.turn, "history_cleared");
            }
            cx.emit(finished(&running.turn, "aborted"));
            self.answer_waiter(cx, &running.turn, TurnStatus::Skipped, None, None, running.extends);
        }
        if let Some(turn) = self.waiting.take() {
            // Its last attempt has had its end.
            self.skipped(cx, &turn, "history_cleared");
            cx.emit(finished(&turn, "aborted"));
            self.answer_waiter(cx, &turn, TurnStatus::Skipped, None, None, false);
        }
        self.recovered(cx);
        for turn in std::mem::take(&mut self.queue) {
            self.close_request(cx, &turn, Ending::Skipped, false);
            cx.emit(finished(&turn, "stale"));
            self.answer_waiter(cx, &turn, TurnStatus::Skipped, None, None, false);
        }
        self.senders.clear();
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

/// The last frame of a request of before a clear.
pub(super) fn cleared(id: RequestId, continuation: bool) -> Terminal {
    Terminal { id, ending: Ending::Aborted, body: String::new(), message_ids: None, continuation }
}

/// The end of a turn that did not run, or that was cleared away.
fn finished(turn: &Turn, status: &str) -> Event {
    Event::new("chat:turn:finish")
        .with("requestId", turn.request_id.as_str())
        .with("trigger", turn.trigger.as_str())
        .with("status", status)
}
