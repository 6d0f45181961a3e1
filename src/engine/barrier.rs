//! The barrier: when every call of a parked turn has its answer and somebody wants it to go on, it goes on, once
//! (`turns-and-tools.md` §9.6, decision 31).
//!
//! Completeness decides, not a timer. The wish is a row written with the answer that brought it, and the next leg is queued in the
//! transaction of the answer that completes the batch, so that no death between the two loses it.

use super::{
    Engine,
    budget::Counters,
    events::Event,
    outcome::{Cx, Effect},
};
use crate::{
    error::Result,
    ids::{ConnId, MessageId, RequestId, TurnId},
    limits,
    store::{
        calls::{self, Continuation, State},
        messages,
        turns::{self, Kind, Turn},
    },
    transcript::repair,
    wire::{
        self,
        message::{Part, UiMessage, call_id},
    },
};

/// The trigger of a leg that goes on after answers.
pub(super) const CONTINUATION: &str = "auto-continuation";

/// A turn whose last leg ended with calls that pages or people are to answer.
pub(super) struct Parked {
    pub(super) turn: Turn,
    /// The message that holds the calls.
    pub(super) message: MessageId,
}

/// A continuation that has not started: wished for, or complete and queued.
pub(super) struct Pending {
    pub(super) request_id: RequestId,
    turn: TurnId,
    /// The sockets that wait for its stream, its owner last. Some of them outlive the object.
    conns: Vec<ConnId>,
    /// Those of them that begin it with an empty message (wire X29).
    unseeded: Vec<ConnId>,
    /// Whether the batch is complete: its leg is in the queue.
    armed: bool,
}

impl Pending {
    pub(super) fn read(row: Continuation, queue: &[Turn]) -> Self {
        let armed = queue.iter().any(|turn| turn.id == row.turn && turn.request_id.as_str() == row.request_id);
        Self { request_id: row.request_id.into(), turn: row.turn, conns: row.conns, unseeded: row.unseeded, armed }
    }

    /// Who wants it, and will be offered its stream.
    pub(super) fn owner(&self) -> Option<&ConnId> {
        self.conns.last()
    }

    fn row(&self) -> Continuation {
        let (request_id, turn) = (self.request_id.to_string(), self.turn.clone());
        Continuation { request_id, turn, conns: self.conns.clone(), unseeded: self.unseeded.clone() }
    }

    /// This socket wants it from now on. Whether that is new.
    fn joined(&mut self, conn: &ConnId) -> bool {
        if self.owner() == Some(conn) {
            return false;
        }
        self.conns.retain(|waits| waits != conn);
        self.conns.push(conn.clone());
        true
    }
}

impl Engine {
    /// Somebody wants the model to go on once the batch of this message is complete.
    pub(super) fn opt_in(&mut self, cx: &mut Cx<'_>, message: &MessageId, conn: Option<&ConnId>) -> Result<()> {
        let running = self.running.as_ref().map(|r| &r.turn).filter(|turn| turn.reply.as_ref() == Some(message));
        let parked = self.parked.as_ref().filter(|parked| parked.message == *message).map(|parked| &parked.turn);
        let Some(turn) = running.or(parked).map(|turn| turn.id.clone()) else { return Ok(()) };
        if let Some(conn) = conn {
            self.clients.await_continuation(conn, true);
        }
        let (is_new, mut pending) = match self.pending.take() {
            Some(pending) => (false, pending),
            None => {
                let request_id = self.promised.take().unwrap_or_else(|| cx.rng.text(16).into());
                (true, Pending { request_id, turn, conns: Vec::new(), unseeded: Vec::new(), armed: false })
            }
        };
        // Who is gone for good is not waited for.
        pending.conns.retain(|conn| self.clients.is_connected(conn));
        let moved = conn.is_some_and(|conn| pending.joined(conn));
        if is_new || moved {
            calls::put_continuation(cx.db, &pending.row(), message)?;
        }
        if is_new {
            cx.emit(Event::new("continuation:held").with("requestId", pending.request_id.as_str()));
        }
        self.pending = Some(pending);
        Ok(())
    }

    /// Looks whether the parked turn can go on, or has nothing left to wait for. Runs after each answer and when a leg parks.
    pub(super) fn check_batch(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(parked) = self.parked.as_ref() else { return Ok(()) };
        let open = calls::open(cx.db, &parked.message)?;
        if open.iter().any(|call| call.state.is_asked()) && !mutant!(W21) {
            return Ok(());
        }
        let wanted = self.pending.is_some();
        if wanted && self.leaf.as_ref() == Some(&parked.message) {
            return self.arm(cx);
        }
        if wanted {
            self.drop_pending(cx, "the conversation went on")?;
        }
        if open.is_empty() {
            // Complete, and nobody wants it to go on.
            self.end_parked(cx, None)?;
        }
        Ok(())
    }

    /// The batch is complete: the next leg of its turn is queued. It starts at its owner's probe, or a moment later.
    fn arm(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let (Some(parked), Some(pending)) = (self.parked.take(), self.pending.as_mut()) else { return Ok(()) };
        pending.armed = true;
        let mut turn = Turn {
            kind: Kind::Extend,
            trigger: CONTINUATION.into(),
            root: pending.request_id.clone(),
            request_id: pending.request_id.clone(),
            counters: Counters::default(),
            progress: 0,
            claims: 0,
            anchor: Some(parked.message.clone()),
            reply: Some(parked.message),
            cancelled: false,
            outdated: false,
            yields: false,
            not_before: Some(cx.now + limits::CONTINUATION_MS),
            chain: 0,
            body: self.last_body.clone(),
            client_tools: self.client_tools.clone(),
            metadata: None,
            origin_ids: None,
            // It was completed when the leg ended that answered it (decision 30).
            submission: None,
            created_at: cx.now,
            ..parked.turn
        };
        turns::unpark(cx.db, &turn)?;
        cx.emit(Event::new("continuation:fired").with("requestId", turn.request_id.as_str()));
        (turn.body, turn.client_tools) = (None, None);
        self.next_deadline = calls::next_deadline(cx.db)?;
        self.queue.push_front(turn);
        Ok(())
    }

    /// Whether the first of the queue is a continuation that must not run any more: its message is not the end of the path.
    pub(super) fn is_overtaken(&self, turn: &Turn) -> bool {
        turn.trigger == CONTINUATION && turn.anchor != self.leaf
    }

    /// The queued continuation is taken back: its turn waits again, or is over.
    pub(super) fn disarm(&mut self, cx: &mut Cx<'_>, turn: Turn, why: &'static str) -> Result<()> {
        let Some(message) = turn.reply.clone() else { return Ok(()) };
        turns::park(cx.db, &turn.id)?;
        self.parked = Some(Parked { turn, message: message.clone() });
        self.drop_pending(cx, why)?;
        if !self.something_waits() {
            for conn in self.clients.release_parked() {
                cx.send_one(&conn, wire::resume_none(None, None));
            }
        }
        if calls::open(cx.db, &message)?.is_empty() { self.end_parked(cx, None) } else { Ok(()) }
    }

    /// A wished-for continuation is not wanted any more. Calls that are open stay open.
    pub(super) fn drop_pending(&mut self, cx: &mut Cx<'_>, why: &'static str) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        calls::drop_continuation(cx.db)?;
        cx.emit(Event::new("continuation:dropped").with("requestId", pending.request_id.as_str()).with("reason", why));
        for conn in self.clients.release_awaiting() {
            cx.send_one(&conn, wire::resume_none(None, None));
        }
        Ok(())
    }

    /// Someone stops the pending continuation. Whether this was its id.
    pub(super) fn cancel_pending(&mut self, cx: &mut Cx<'_>, id: &RequestId) -> Result<bool> {
        let Some(pending) = self.pending.as_ref().filter(|pending| pending.request_id == *id) else { return Ok(false) };
        let armed = pending.armed.then(|| self.queue.iter().position(|turn| turn.request_id == *id)).flatten();
        match armed.and_then(|at| self.queue.remove(at)) {
            Some(turn) => self.disarm(cx, turn, "cancelled")?,
            None => self.drop_pending(cx, "cancelled")?,
        }
        Ok(true)
    }

    /// A turn opens its attempt: what the parked one still waits for is settled, because the conversation goes on without it
    /// (decision 47). A turn that extends the same message runs the calls that were allowed.
    ///
    /// Comes back with those calls as they were.
    pub(super) fn supersede_parked(&mut self, cx: &mut Cx<'_>, by: &Turn) -> Result<Vec<(MessageId, Part)>> {
        let mut orphans = Vec::new();
        let Some(parked) = self.parked.as_ref() else { return Ok(orphans) };
        let message = parked.message.clone();
        let goes_on = by.kind == Kind::Extend && by.anchor.as_ref() == Some(&message);
        let open = calls::open(cx.db, &message)?;
        let lost: Vec<_> = open.iter().filter(|call| !(goes_on && call.state == State::Approved)).collect();
        for call in &lost {
            let gone = calls::Settlement { outcome: "error", by: "superseded", hash: None, reason: None };
            calls::answer(cx.db, &message, &call.call, &gone, cx.now)?;
            cx.emit(Event::new("tool:superseded").with("callId", call.call.as_str()).with("tool", call.name.as_str()));
        }
        if !lost.is_empty() {
            self.change_stored(cx, &message, |reply| {
                lost.iter().for_each(|call| {
                    orphans.extend(reply.call(&call.call).map(|part| (message.clone(), part.clone())));
                    let never_ran = call.state == State::Approved && call.claims == 0;
                    reply.give_up(&call.call, if never_ran { repair::NOT_RUN } else { repair::INTERRUPTED });
                });
            })?;
        }
        self.drop_pending(cx, "superseded")?;
        self.end_parked(cx, Some("superseded"))?;
        Ok(orphans)
    }

    /// The parked turn has nothing left to wait for.
    fn end_parked(&mut self, cx: &mut Cx<'_>, reason: Option<&str>) -> Result<()> {
        let Some(parked) = self.parked.take() else { return Ok(()) };
        self.next_deadline = calls::next_deadline(cx.db)?;
        turns::finish(cx.db, &parked.turn.id, "completed", reason, cx.now)
    }

    /// The owner of the continuation that starts with this turn, if it is one.
    pub(super) fn take_owner(&mut self, cx: &Cx<'_>, turn: &Turn) -> Result<Option<ConnId>> {
        let Some(pending) = self.pending.take_if(|pending| pending.armed && pending.turn == turn.id) else { return Ok(None) };
        calls::drop_continuation(cx.db)?;
        self.clients.park_awaiting();
        Ok(pending.owner().cloned())
    }

    /// The first step of an incarnation: sockets that outlived the last one go on waiting for the pending continuation.
    pub(super) fn resume_awaiting(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        pending.conns.iter().for_each(|conn| self.clients.await_continuation(conn, true));
        pending.unseeded.iter().for_each(|conn| self.clients.seed(conn, false));
        if !pending.armed && self.parked.is_none() {
            // It was wished for while its leg still ran, and that is over.
            self.drop_pending(cx, "interrupted")?;
        }
        Ok(())
    }

    /// A probe asks for the pending continuation. Its id, if this socket may have it: it starts then if it is complete.
    pub(super) fn claim_pending(&mut self, cx: &Cx<'_>, conn: &ConnId) -> Result<Option<RequestId>> {
        let Some(pending) = self.pending.as_mut() else {
            // An approval of this socket is with the application: its page shows the call as allowed.
            self.clients.seed(conn, true);
            return Ok(self.promised.clone().filter(|_| self.clients.awaits_continuation(conn)));
        };
        let joined = pending.joined(conn);
        let id = pending.request_id.clone();
        self.clients.await_continuation(conn, true);
        let queued = self.queue.front().filter(|turn| turn.request_id == id).and_then(|turn| turn.reply.clone());
        let message = self.parked.as_ref().map(|parked| parked.message.clone()).or(queued);
        let open = message.as_ref().map(|message| calls::open(cx.db, message)).transpose()?.unwrap_or_default();
        let seeded = open.iter().any(|call| call.approved == Some(true));
        self.clients.seed(conn, seeded);
        let was = !pending.unseeded.contains(conn);
        if let Some(message) = message.filter(|_| joined || was != seeded) {
            // Who asked has to be known, and what it begins with, should the object sleep before it goes on.
            pending.conns.retain(|waits| waits == conn || self.clients.is_connected(waits));
            pending.unseeded.retain(|waits| waits != conn && self.clients.is_connected(waits));
            if !seeded {
                pending.unseeded.push(conn.clone());
            }
            calls::put_continuation(cx.db, &pending.row(), &message)?;
        }
        if let Some(first) = self.queue.front_mut().filter(|turn| turn.request_id == id) {
            first.not_before = None;
        }
        Ok(Some(id))
    }

    /// Shows what came of calls of an earlier leg to every page that cannot take it from the stream.
    pub(super) fn show_earlier_leg_unseeded(&self, cx: &mut Cx<'_>) -> Result<()> {
        let recovers = self.running.as_ref().is_some_and(|running| running.turn.counters.is_recovering());
        self.show_earlier_leg(cx, if recovers { self.clients.live() } else { self.clients.unseeded() })
    }

    /// Shows what came of calls of an earlier leg to pages that cannot take it from the stream (wire X29): the message as it was, with
    /// their outcomes and nothing of this leg.
    pub(super) fn show_earlier_leg(&self, cx: &mut Cx<'_>, to: Vec<ConnId>) -> Result<()> {
        let Some(running) = self.running.as_ref().filter(|r| !r.earlier.is_empty() && !to.is_empty()) else { return Ok(()) };
        let Some(stored) = messages::get(cx.db, running.reply.id())? else { return Ok(()) };
        let Ok(mut message) = UiMessage::from_row(&stored.body) else { return Ok(()) };
        for part in &mut message.parts {
            if let Some(now) =
                call_id(part).filter(|id| running.earlier.iter().any(|call| &**call == *id)).and_then(|id| running.reply.call(id))
            {
                *part = now.clone();
            }
        }
        cx.send(to, wire::message_updated(&message.json()));
        Ok(())
    }

    /// A socket may be about to want a continuation: until that is known, its probe is told so.
    pub(super) fn promise(&mut self, cx: &mut Cx<'_>, conn: &ConnId) {
        if self.pending.is_none() && self.promised.is_none() {
            self.promised = Some(cx.rng.text(16).into());
        }
        self.clients.await_continuation(conn, true);
    }

    /// It does not want one after all.
    pub(super) fn break_promise(&mut self, cx: &mut Cx<'_>, conn: &ConnId) {
        let asks = self.asking.iter().map(|(by, _)| by).chain(self.later.iter().map(|(by, _)| by)).any(|by| by == conn);
        if self.pending.is_none() && !asks && self.clients.awaits_continuation(conn) {
            self.clients.await_continuation(conn, false);
            cx.send_one(conn, wire::resume_none(None, None));
        }
    }

    /// The leg has ended with open calls, or with answers that want it to go on: it parks. `cx.now` is when pages may begin.
    pub(super) fn park(&mut self, cx: &mut Cx<'_>, turn: Turn, message: MessageId) -> Result<()> {
        turns::park(cx.db, &turn.id)?;
        calls::wait(cx.db, &message, self.config.approval_wait_ms, cx.now)?;
        self.next_deadline = calls::next_deadline(cx.db)?;
        self.parked = Some(Parked { turn, message });
        self.clients.heard_the_question();
        Ok(())
    }
}

impl Engine {
    /// Wakes the object once the first of the queue is due, unless an earlier wake is on its way.
    pub(super) fn wake_in(&mut self, cx: &mut Cx<'_>, ms: i64) {
        let due = cx.now + ms;
        if self.waking.is_none_or(|at| at > due) {
            self.waking = Some(due);
            cx.push(Effect::Wake(u32::try_from(ms).unwrap_or_default()));
        }
    }
}
