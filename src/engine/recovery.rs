//! A turn whose attempt was interrupted is put back to work, within bounds (`recovery.md` §6).
//!
//! An attempt is counted and judged in the transaction that opens it, and is on disk before anything of the turn is read: whatever
//! kills the object while it is taken up was counted before. Then what the interrupted one left is folded into one message, the
//! application is asked, and the turn goes on in that message or begins anew under the same id.

use serde_json::Value;

use super::{
    Engine,
    admission::body_value,
    budget::{self, Reason, Trigger, Verdict},
    calls::StepCall,
    client_tools,
    endings::Took,
    events::Event,
    input::{EffectClass, Failure, Fault, RecoveryDecision},
    outcome::{Cx, Effect, RecoveryInfo, RecoveryKind, TurnInfo},
    turn::{Phase, Running},
};
use crate::{
    error::Result,
    ids::{Fence, MessageId},
    limits,
    model::{ErrorClass, ModelError, ModelErrorClass},
    store::{
        calls::{self, State},
        messages, meta, streams,
        turns::{self, Kind, Turn},
    },
    transcript::{reducer::Accumulator, repair},
    wire::{
        self, Ending, Terminal,
        chunk::Chunk,
        message::{Part, UiMessage, call_id, is_settled},
    },
};

/// What attempts before the present one left of an answer.
pub(super) struct Partial {
    pub(super) message: UiMessage,
    /// Whether the message is stored already, shorter.
    pub(super) extends: bool,
    /// Whether the answer was complete, and only its end is missing.
    complete: bool,
    /// Calls that go on: those that pages or people are to answer, and those that may run (again).
    pub(super) open: Vec<calls::Call>,
    /// Calls as they were before they were closed.
    orphans: Vec<Part>,
    /// The log of the last attempt that wrote one; empty if none did.
    pub(super) stream: String,
}

impl Partial {
    /// How its turn goes on.
    pub(super) fn kind(&self) -> RecoveryKind {
        if repair::is_worth_storing(&self.message) { RecoveryKind::Continue } else { RecoveryKind::Retry }
    }

    /// Whether something in it must not be thrown away: what a tool did, or may have done.
    pub(super) fn has_results(&self) -> bool {
        !self.open.is_empty() || self.message.parts.iter().any(|part| call_id(part).is_some() && is_settled(part))
    }

    fn waits_for_someone(&self) -> bool {
        self.open.iter().any(|call| call.state.is_asked() || mutant!(W7))
    }
}

/// Why an interrupted turn gets no other attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doom {
    /// A bound was reached.
    Bound(Reason),
    /// It is older than turns may go on by themselves.
    Age,
}

impl Engine {
    /// The turn that has the slot: it runs, or waits for its next attempt.
    pub(super) fn present(&self) -> impl Iterator<Item = &Turn> {
        self.running.iter().map(|running| &running.turn).chain(&self.waiting)
    }

    /// Whether a turn has the slot.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || self.waiting.is_some()
    }

    /// The first step of an incarnation found an attempt of one that is gone, or of one that could not go on for this reason.
    pub(super) fn take_up(&mut self, cx: &mut Cx<'_>, mut turn: Turn, stream: &str, fault: Option<Fault>) -> Result<()> {
        if mutant!(W35) && self.recovering.is_some() {
            return Ok(());
        }
        let progress = if mutant!(W5) { 0 } else { turn.progress } + streams::segments(cx.db, stream)?;
        let reply = turn.reply.clone().unwrap_or_else(|| turn.id.as_str().into());
        let parked = calls::is_asked(cx.db, &reply)?;
        turns::drop_attempts(cx.db, &turn.id)?;
        if mutant!(W6) {
            return Ok(());
        }
        self.detected(cx, &turn);
        let verdict =
            budget::evaluate(&turn.counters, progress, Trigger::Interrupted { boots: 1 }, parked, cx.now, &self.config.chat_recovery);
        let (Verdict::Go { counters, .. } | Verdict::Seal { counters, .. }) = verdict;
        turn.counters = counters;
        cx.emit(self.about("chat:recovery:attempt", &turn));
        if mutant!(W4) && cx.now.since(turn.created_at) > 900_000 {
            return self.give_up(cx, turn, Reason::NoProgressTimeout, Took::default());
        }
        if turn.claims >= limits::RECOVERY_CLAIMS && !mutant!(W36) {
            // Whatever is read of it, or asked about it, ends the object: it is brought to rest unread (recovery 60).
            return self.seal_unread(cx, turn);
        }
        match (fault, verdict) {
            (Some(fault), _) if fault.ends_turn() => self.doom(cx, turn, Doom::Bound(fault.reason())),
            (_, Verdict::Go { .. }) => {
                if !parked && self.is_too_old(cx, &turn) {
                    return self.doom(cx, turn, Doom::Age);
                }
                // Sockets that outlived the object still show the attempt as running (wire X7).
                self.close_attempt(cx, &turn)?;
                self.attempt(cx, turn, false)
            }
            (_, Verdict::Seal { reason, .. }) => self.doom(cx, turn, Doom::Bound(reason)),
        }
    }

    /// The turn gets no other attempt. That is on disk, and counted, before what there is of it is read: reading it may be what ends
    /// the object.
    fn doom(&mut self, cx: &mut Cx<'_>, mut turn: Turn, doom: Doom) -> Result<()> {
        turn.claims = turn.claims.saturating_add(1);
        turns::retry(cx.db, &turn)?;
        let reply = Accumulator::new(turn.reply.as_deref().unwrap_or_default());
        let running = self.run(cx, turn, Phase::Recovering, reply, false)?;
        running.doom = Some(doom);
        cx.push(Effect::Confirm(running.fence.clone()));
        Ok(())
    }

    fn meet_doom(&mut self, cx: &mut Cx<'_>, doom: Doom) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        cx.push(Effect::Cancel(running.fence.clone()));
        match doom {
            Doom::Bound(reason) => self.give_up(cx, running.turn, reason, Took::default()),
            Doom::Age => self.let_rest(cx, running.turn, Took::default()),
        }
    }

    /// Whether a turn is to rest rather than to go on by itself (I29). One that somebody is asked about is in no hurry.
    fn is_too_old(&self, cx: &Cx<'_>, turn: &Turn) -> bool {
        !mutant!(W39) && self.config.chat_recovery.max_turn_age_ms.is_some_and(|most| cx.now.since(turn.created_at) > i64::from(most))
    }

    /// The first interruption of a leg.
    fn detected(&self, cx: &mut Cx<'_>, turn: &Turn) {
        if !turn.counters.is_recovering() {
            cx.emit(self.about("chat:recovery:detected", turn));
        }
    }

    /// Clients learn that this request ends and its turn goes on.
    fn close_attempt(&mut self, cx: &mut Cx<'_>, turn: &Turn) -> Result<()> {
        let terminal = last_end(turn);
        if mutant!(W12) {
            return Ok(());
        }
        cx.send(self.clients.all(), wire::terminal(&terminal));
        self.remember_ending(terminal);
        if !std::mem::replace(&mut self.ever_recovered, true) {
            meta::set(cx.db, meta::RECOVERED, Some("1"))?;
        }
        if self.recovering.is_none() {
            cx.send(self.clients.all(), wire::recovering(Some(&turn.root)));
        }
        self.recovering = Some((turn.root.clone(), cx.now));
        Ok(())
    }

    /// Clients learn that nothing is being recovered any more.
    pub(super) fn recovered(&mut self, cx: &mut Cx<'_>) {
        if self.recovering.take().is_some() {
            cx.send(self.clients.all(), wire::recovering(None));
        }
    }

    /// A turn has waited long enough for its next attempt; its alarm may have come late.
    pub(super) fn attempt_due(&mut self, cx: &mut Cx<'_>, turn: Turn) -> Result<()> {
        if self.is_too_old(cx, &turn) && !calls::is_asked(cx.db, turn.reply.as_deref().unwrap_or(&turn.id))? {
            // The attempt before has had its end; this one never began.
            let request_id = cx.rng.text(16).into();
            return self.doom(cx, Turn { request_id, ..turn }, Doom::Age);
        }
        self.attempt(cx, turn, true)
    }

    /// Opens the next attempt of a turn. It is on disk before anything else is done. `told` says that events told when it is due.
    pub(super) fn attempt(&mut self, cx: &mut Cx<'_>, mut turn: Turn, told: bool) -> Result<()> {
        // Its row says so in any incarnation: it may have waited for this attempt longer than its object lived.
        let asks = was_retried(&turn);
        turn.not_before = None;
        turn.claims = turn.claims.saturating_add(1);
        if mutant!(W14) {
            turn.reply = None;
        }
        self.choose_reply(cx, &mut turn);
        turn.request_id = turns::request_of(&turn.id, turn.attempt);
        turns::read_asked(cx.db, &mut turn)?;
        if mutant!(W36) {
            turns::retry(cx.db, &Turn { counters: budget::Counters::default(), claims: 0, ..turn.clone() })?;
        } else {
            turns::retry(cx.db, &turn)?;
        }
        let fence = Fence { turn: turn.id.clone(), attempt: turn.attempt, boot: self.boot.clone() };
        let reply = Accumulator::new(turn.reply.as_deref().unwrap_or_default());
        let running = self.run(cx, turn, Phase::Recovering, reply, false)?;
        (running.told, running.asks) = (told, asks);
        cx.push(Effect::Confirm(fence));
        Ok(())
    }

    /// Work of an earlier attempt does not end: it is tried again a little later, as often as there may be attempts (decision 38).
    pub(super) fn unstable(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let unread = |running: &mut Box<Running>| running.phase == Phase::Recovering && running.partial.is_none();
        if let Some(doom) = self.running.as_ref().and_then(|running| running.doom) {
            return self.meet_doom(cx, doom);
        }
        let Some(running) = self.running.take_if(unread) else { return Ok(()) };
        let mut turn = running.turn;
        turns::drop_attempts(cx.db, &turn.id)?;
        if !running.told {
            cx.emit(self.about("chat:recovery:scheduled", &turn).with("delayMs", 0));
        }
        turn.claims = 0;
        turn.counters.since_progress = turn.counters.since_progress.saturating_add(1);
        cx.emit(self.about("chat:recovery:attempt", &turn));
        if turn.counters.since_progress >= self.config.chat_recovery.max_attempts.max(1) {
            return self.give_up(cx, turn, Reason::StableTimeout, Took::default());
        }
        self.wait_again(cx, turn, limits::STABLE_RETRY_MS, None)
    }

    /// The next attempt of a turn is due in a while.
    fn wait_again(&mut self, cx: &mut Cx<'_>, mut turn: Turn, ms: u32, kind: Option<RecoveryKind>) -> Result<()> {
        turn.not_before = Some(cx.now + i64::from(ms));
        turns::wait(cx.db, &turn)?;
        let event = self.about("chat:recovery:scheduled", &turn).with("recoveryKind", kind.map(RecoveryKind::as_str));
        cx.emit(event.with("delayMs", ms));
        self.waiting = Some(turn);
        Ok(())
    }

    /// The attempt is on disk: what those before it left is read.
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let unread = |running: &&Running| running.phase == Phase::Recovering && running.partial.is_none();
        let Some(running) = self.running.as_deref().filter(unread) else { return Ok(()) };
        let (turn, doom) = (running.turn.clone(), running.doom);
        // Whatever comes of it, nobody lacks it any more.
        let lacking = self.clients.lacking();
        if turn.cancelled {
            return self.abandon(cx);
        }
        if !self.is_on_path(cx, &turn)? {
            // What it answered was edited away (decision 35).
            return self.skip_recovery(cx);
        }
        if let Some(doom) = doom {
            return self.meet_doom(cx, doom);
        }
        let partial = self.fold(cx, &turn)?;
        if mutant!(W16) && partial.kind() == RecoveryKind::Retry && turn.attempt > 1 {
            return self.skip_recovery(cx);
        }
        if partial.complete && partial.open.is_empty() && !mutant!(N12) {
            return self.complete_recovered(cx, partial);
        }
        if partial.waits_for_someone() {
            return self.park_recovered(cx, partial);
        }
        let counters = &turn.counters;
        let info = RecoveryInfo {
            incident_id: turn.id.to_string(),
            root_request_id: turn.root.to_string(),
            request_id: turn.request_id.to_string(),
            attempt: counters.attempt(),
            max_attempts: self.config.chat_recovery.max_attempts,
            kind: partial.kind(),
            stream_id: partial.stream.clone(),
            partial_text: partial.message.text(),
            partial_parts: partial.message.parts.clone(),
            recovery_data: turns::stashed(cx.db, &turn.id)?.and_then(|text| serde_json::from_str(&text).ok()),
            body: body_value(turn.body.as_deref()),
            client_tools: turn.client_tools.as_deref().map(client_tools::stored).unwrap_or_default(),
            created_at: turn.created_at,
            age_ms: cx.now.since(turn.created_at),
            work: counters.progress_seen.saturating_sub(counters.work_base),
        };
        if let Some(running) = self.running.as_mut() {
            running.partial = Some(Box::new(partial));
            cx.push(Effect::RecoveryHook(running.fence.clone(), running.asks, Box::new(info)));
        }
        // Who came before it was read sees it now, however long the application takes (decision 36).
        if !lacking.is_empty() {
            cx.send(lacking, wire::transcript(&self.window(cx.db)?, false));
        }
        Ok(())
    }

    /// Whether what a turn answers, or extends, is still part of the conversation.
    fn is_on_path(&self, cx: &Cx<'_>, turn: &Turn) -> Result<bool> {
        if turn.outdated {
            return Ok(false);
        }
        let (Some(anchor), Some(leaf)) = (&turn.anchor, &self.leaf) else { return Ok(turn.anchor.is_none()) };
        Ok(anchor == leaf || !mutant!(N9) && messages::next_on_path(cx.db, anchor, leaf)?.is_some())
    }

    /// This message says something else now: the turn that answers it does not go on by itself after an interruption (decision 35).
    pub(super) fn outdate(&mut self, cx: &mut Cx<'_>, message: &str) -> Result<()> {
        let present = self.running.as_mut().map(|running| &mut running.turn).or(self.waiting.as_mut());
        if let Some(turn) = present.filter(|turn| turn.anchor.as_deref() == Some(message)) {
            turn.outdated = true;
            turns::outdate(cx.db, &turn.id)?;
        }
        Ok(())
    }

    /// What the attempts so far left, as one message: the stored one, and their logs. Calls are closed, but for those that go on.
    pub(super) fn fold(&mut self, cx: &mut Cx<'_>, turn: &Turn) -> Result<Partial> {
        let id = turn.reply.clone().unwrap_or_else(|| turn.id.as_str().into());
        let stored = messages::get(cx.db, &id)?;
        let before = stored.as_ref().and_then(|stored| UiMessage::from_row(&stored.body).ok());
        let extends = before.is_some();
        let mut reply = match before {
            Some(message) => Accumulator::extending(message),
            None => Accumulator::new(&id),
        };
        let (mut complete, mut stream) = (false, String::new());
        for (_, log, _) in streams::of_turn(cx.db, &turn.id)?.into_iter().filter(|(attempt, ..)| *attempt < turn.attempt) {
            streams::replay(cx.db, &log, &mut |_, text| {
                if let Some(chunk) = Chunk::parse(text) {
                    complete = matches!(chunk, Chunk::Finish { .. });
                    reply.apply(&chunk);
                }
                Ok(())
            })?;
            stream = log;
        }
        Ok(Partial { extends, complete, stream, ..self.close_lost(cx, turn, reply)? })
    }

    /// Closes the calls of an interrupted answer, but for those that go on: what a page or a person can still answer, and what may run
    /// (again).
    fn close_lost(&self, cx: &mut Cx<'_>, turn: &Turn, mut reply: Accumulator) -> Result<Partial> {
        let id: MessageId = reply.id().into();
        let (lost, open): (Vec<_>, Vec<_>) = calls::open(cx.db, &id)?.into_iter().partition(|call| {
            let again = (call.effect != EffectClass::Once && call.claims < limits::TOOL_CLAIMS) || mutant!(W7);
            (call.state == State::Started && !again) || reply.call(&call.call).is_none()
        });
        let mut orphans = Vec::new();
        for call in &lost {
            // It started and nobody knows how it ended: it is never started again (I13).
            orphans.extend(reply.call(&call.call).cloned());
            reply.give_up(&call.call, repair::INTERRUPTED);
            calls::settle(cx.db, &id, &call.call, "error", "repair", cx.now)?;
        }
        let mut message = reply.into_message();
        let goes_on = |call: &str| open.iter().any(|open| &*open.call == call);
        let (more, normalised) = repair::close_interrupted(&mut message, goes_on);
        orphans.extend(more);
        self.repaired(cx, &turn.request_id, &orphans, normalised);
        Ok(Partial { message, extends: false, complete: false, open, orphans, stream: String::new() })
    }

    /// Calls were closed, or their inputs put right.
    pub(super) fn repaired(&self, cx: &mut Cx<'_>, request: &str, orphans: &[Part], normalised: usize) {
        if orphans.is_empty() && normalised == 0 {
            return;
        }
        let ids: Vec<Value> = orphans.iter().filter_map(call_id).map(Value::from).collect();
        cx.emit(
            Event::new("chat:transcript:repaired")
                .with("requestId", request)
                .with("removedToolCalls", ids.len())
                .with("normalizedInputs", normalised)
                .with("toolCallIds", ids),
        );
    }

    /// The logs of attempts before the present one are in a stored message now.
    pub(super) fn drop_logs(&mut self, cx: &mut Cx<'_>, turn: &mut Turn) -> Result<()> {
        for (attempt, stream, segments) in streams::of_turn(cx.db, &turn.id)? {
            if attempt < turn.attempt && !mutant!(W28) {
                turn.progress += segments;
                streams::drop_stream(cx.db, &stream)?;
            }
        }
        Ok(())
    }

    /// The application said whether the turn goes on.
    pub(super) fn recovery_decided(&mut self, cx: &mut Cx<'_>, decision: Result<RecoveryDecision, String>) -> Result<()> {
        let Some(mut running) = self.running.take_if(|r| r.phase == Phase::Recovering) else { return Ok(()) };
        let Some(partial) = running.partial.take() else { return Ok(()) };
        running.turn.claims = 0;
        let decision = match decision {
            Ok(decision) => decision,
            Err(text) => return self.fail_recovery(cx, running.turn, *partial, text),
        };
        if decision.aborted {
            return self.seal(cx, running.turn, *partial, Reason::RecoveryAborted, Took::default());
        }
        if !decision.go_on {
            return self.decline(cx, running.turn, *partial, decision.persist);
        }
        let kind = partial.kind();
        let kept = decision.persist || !mutant!(W9) && partial.has_results();
        let Partial { mut message, extends, open, orphans, .. } = *partial;
        let stored = kept && self.store_reply(cx, &running.turn, extends, &mut message)?;
        if extends && !kept {
            // What was stored before stays, and is gone on from.
            let before = messages::get(cx.db, &MessageId::from(message.id.as_str()))?;
            message = before.and_then(|before| UiMessage::from_row(&before.body).ok()).unwrap_or(message);
        }
        self.drop_logs(cx, &mut running.turn)?;
        let extends = (stored || extends) && !mutant!(W15);
        running.turn.trigger = if extends { turns::GOES_ON } else { turns::BEGINS_ANEW }.into();
        turns::retry(cx.db, &running.turn)?;
        // Also where nothing is kept: what was shown and lost must not stay on a screen.
        self.tell_transcript(cx)?;
        if stored {
            // Tabs that streamed it protect their own copy, which may be a few words ahead of the disk (O5).
            cx.send(self.clients.all(), wire::message_updated(&message.json()));
        }
        if !running.told {
            cx.emit(self.about("chat:recovery:scheduled", &running.turn).with("recoveryKind", kind.as_str()).with("delayMs", 0));
        }
        running.orphans = orphans.into_iter().filter(|_| extends).map(|part| (message.id.as_str().into(), part)).collect();
        let ready = open.iter().enumerate().filter_map(|(n, call)| {
            let part = message.parts.iter().rfind(|part| call_id(part) == Some(&*call.call))?;
            Some(StepCall::recorded(n, call, part.get("input").cloned().unwrap_or_default()))
        });
        running.calls = if extends { ready.collect() } else { Vec::new() };
        running.earlier = running.calls.iter().map(|call| call.id.clone()).collect();
        // Not every page can take what comes of these calls from the stream.
        running.heals |= !running.earlier.is_empty();
        running.reply = if extends { Accumulator::extending(message) } else { Accumulator::new(&message.id) };
        running.extends = extends;
        running.phase = Phase::Preparing;
        let info = TurnInfo {
            request_id: running.turn.request_id.to_string(),
            trigger: running.turn.trigger.clone(),
            continuation: extends,
            body: body_value(running.turn.body.as_deref()),
            client_tools: running.turn.client_tools.as_deref().map(client_tools::stored).unwrap_or_default(),
        };
        cx.push(Effect::Prepare(running.fence.clone(), Box::new(info)));
        self.running = Some(running);
        Ok(())
    }

    /// Whether a failed model call leads to another attempt later (decision 34).
    pub(super) fn may_recover(&self, error: &ModelError) -> bool {
        let Some(running) = self.running.as_ref().filter(|_| self.config.chat_recovery.enabled) else { return false };
        // Of this attempt, or of those before it in this leg.
        let has_output = running.stream.started || running.step > 1 || running.turn.progress > 0 && !running.reply.is_empty();
        match error.judged {
            _ if error.stalled => true,
            Some(class) => matches!(class, ErrorClass::RateLimit | ErrorClass::Transient),
            // The provider itself says that asking again is of no use (PV-47).
            None if error.no_retry && error.status.is_some_and(|status| status >= 400) => false,
            None => match error.class {
                ModelErrorClass::RateLimit | ModelErrorClass::Overloaded => true,
                ModelErrorClass::Transient => has_output,
                _ => false,
            },
        }
    }

    /// A live attempt cannot go on now: what it has is stored, and the next one is due in a while.
    pub(super) fn suspend(&mut self, cx: &mut Cx<'_>, trigger: Trigger, failure: &Failure) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        cx.push(Effect::Cancel(running.fence.clone()));
        running.stream.flush(cx)?;
        let took = running.took();
        let mut turn = running.turn;
        // What a page was told of it may still answer: the next attempt waits for that, as after a death (recovery D8–D10).
        let mut partial = self.close_lost(cx, &turn, running.reply)?;
        let parked = partial.waits_for_someone();
        let stored = running.stream.started && self.store_reply(cx, &turn, running.extends, &mut partial.message)?;
        turn.progress += streams::segments(cx.db, &running.stream.id)?;
        streams::drop_stream(cx.db, &running.stream.id)?;
        turns::drop_attempts(cx.db, &turn.id)?;
        self.clients.forget_offers();
        if trigger == Trigger::Stalled {
            cx.emit(
                Event::new("chat:stream:stalled")
                    .with("requestId", turn.request_id.as_str())
                    .with("timeoutMs", self.config.stall_ms()),
            );
        }
        if stored {
            self.tell_transcript(cx)?;
        }
        self.detected(cx, &turn);
        let verdict = budget::evaluate(&turn.counters, turn.progress, trigger, parked, cx.now, &self.config.chat_recovery);
        let (Verdict::Go { counters, .. } | Verdict::Seal { counters, .. }) = verdict;
        turn.counters = counters;
        cx.emit(self.about("chat:recovery:attempt", &turn));
        match verdict {
            Verdict::Go { .. } => {
                if !parked && self.is_too_old(cx, &turn) {
                    return self.let_rest(cx, turn, took);
                }
                let wait = match trigger {
                    Trigger::Transient => budget::backoff(counters.transient, failure.error.retry_after_ms),
                    Trigger::Stalled | Trigger::Interrupted { .. } => 0,
                };
                self.close_attempt(cx, &turn)?;
                let kind = if stored || running.extends { RecoveryKind::Continue } else { RecoveryKind::Retry };
                self.wait_again(cx, turn, wait, Some(kind))
            }
            Verdict::Seal { reason, .. } => self.give_up(cx, turn, reason, took),
        }
    }

    /// The answer was complete when the object died: it ends as it would have, without a model call (recovery D12).
    fn complete_recovered(&mut self, cx: &mut Cx<'_>, partial: Partial) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            self.drop_logs(cx, &mut running.turn)?;
            running.reply = Accumulator::extending(partial.message);
            running.extends = partial.extends;
            running.stream.started = true;
            self.running = Some(running);
        }
        self.finish(cx, Ending::Completed, None)
    }

    /// Somebody can still answer calls of the interrupted attempt: its turn waits for them (recovery D8–D10). A call beside them that
    /// was running and may run again does so in the next leg, as one that was allowed; so there has to be one.
    fn park_recovered(&mut self, cx: &mut Cx<'_>, partial: Partial) -> Result<()> {
        let message = MessageId::from(partial.message.id.as_str());
        let runs_again = calls::set_aside(cx.db, &message)?;
        if let Some(mut running) = self.running.take() {
            self.drop_logs(cx, &mut running.turn)?;
            running.calls = partial.open.iter().enumerate().map(|(n, call)| StepCall::waiting(n, call)).collect();
            running.reply = Accumulator::extending(partial.message);
            running.extends = partial.extends;
            running.stream.started = true;
            self.running = Some(running);
        }
        self.finish(cx, Ending::Completed, None)?;
        if runs_again { self.opt_in(cx, &message, None) } else { Ok(()) }
    }

    /// What is read of a turn that is being taken up, until that is stored: it must not vanish from a screen (decision 36).
    pub(super) fn show_partial(&self, shown: &mut Vec<String>) {
        let partial = self.running.as_ref().and_then(|r| r.partial.as_ref());
        if let Some(partial) = partial.filter(|partial| !partial.extends && repair::is_worth_storing(&partial.message)) {
            shown.push(partial.message.json());
        }
    }

    /// A step of a turn that was interrupted ended well: where deaths are counted by the step, they are forgotten once it is on disk.
    pub(super) fn step_is_kept(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|r| r.turn.counters.interrupted > 0) else { return Ok(()) };
        running.turn.counters.step_ended(&self.config.chat_recovery);
        if running.turn.counters.interrupted == 0 {
            running.stream.flush(cx)?;
            turns::retry(cx.db, &running.turn)?;
        }
        Ok(())
    }

    /// A turn that was interrupted came to its end by itself, or waits for somebody as it did before.
    pub(super) fn incident_over(&self, cx: &mut Cx<'_>, turn: &Turn, ending: Ending, only_waits: bool) {
        if !turn.counters.is_recovering() {
            return;
        }
        cx.emit(match ending {
            Ending::Completed if only_waits => self.about("chat:recovery:skipped", turn).with("reason", "awaiting_client_interaction"),
            Ending::Completed => self.about("chat:recovery:completed", turn),
            Ending::Error => self.about("chat:recovery:failed", turn).with("reason", "turn_failed"),
            Ending::Aborted | Ending::Skipped | Ending::Recovering => {
                self.about("chat:recovery:skipped", turn).with("reason", "user_cancelled")
            }
        });
    }

    pub(super) fn about(&self, name: &'static str, turn: &Turn) -> Event {
        Event::new(name)
            .with("incidentId", turn.id.as_str())
            .with("requestId", turn.request_id.as_str())
            .with("rootRequestId", turn.root.as_str())
            .with("attempt", turn.counters.attempt())
            .with("maxAttempts", self.config.chat_recovery.max_attempts)
    }
}

/// How the attempts of a turn ended before its last one.
pub(super) fn earlier_ends(turn: &Turn) -> Vec<Terminal> {
    turns::earlier_ends(&turn.id, &turn.root, turn.attempt, turn.kind == Kind::Extend, &last_end(turn))
}

/// Whether the last attempt of a leg is not its first: the next one is judged at least for the second time.
fn was_retried(turn: &Turn) -> bool {
    turn.root != turn.request_id
}

/// How the attempt before the next one of a turn ended.
pub(super) fn last_end(turn: &Turn) -> Terminal {
    Terminal {
        id: turn.request_id.clone(),
        ending: Ending::Recovering,
        body: String::new(),
        message_ids: turn.origin_ids.clone(),
        continuation: turn.goes_on(),
    }
}
