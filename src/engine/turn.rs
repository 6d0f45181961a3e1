//! The life of a turn: start, steps, end (`recovery.md` §6.5). One transaction ends it: message, log, attempt, turn, owed hook.

use std::rc::Rc;

use super::{
    Engine,
    admission::body_value,
    barrier::CONTINUATION,
    budget::Trigger,
    calls::StepCall,
    client_tools,
    config::MessageConcurrency,
    endings::Took,
    events::Event,
    input::{Failure, JobEvent, Prepared, TurnStatus},
    outcome::{Cx, Effect, StepResult, TurnInfo},
    recovery::{Doom, Partial},
    stream::Stream,
    take,
};
use crate::{
    error::{Error, ErrorKind, Result, StorageFault},
    ids::{CallId, ConnId, Fence, MessageId},
    limits,
    model::{Finish, FinishReason, ModelRequest, Msg, Usage},
    store::{
        calls, messages,
        streams::{self, Notice},
        turns::{self, Kind, Turn},
    },
    time::Millis,
    transcript::{
        prompt,
        reducer::Accumulator,
        repair::{self, Close},
    },
    wire::{
        self, Ending, Terminal,
        chunk::Chunk,
        message::{Part, UiMessage, call_id, is_settled},
    },
};

/// What the running turn waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// What an interrupted attempt left, and the application's word about it.
    Recovering,
    /// The agent, to say how it is to run.
    Preparing,
    /// The model.
    Model,
    /// The next silent retry of a model call.
    Retrying,
    /// Server tools.
    Tools,
    /// Server tools that were told to stop.
    Stopping,
}

/// The running turn. Everything here but the tail of the answer can be had again from rows.
pub(super) struct Running {
    pub(super) turn: Turn,
    pub(super) fence: Fence,
    pub(super) extends: bool,
    pub(super) phase: Phase,
    pub(super) reply: Accumulator,
    pub(super) stream: Stream,
    pub(super) plan: Option<Rc<Prepared>>,
    pub(super) history: Vec<Rc<Msg>>,
    /// What system messages of the history say, for the end of the prompt.
    pub(super) system: String,
    /// The current step, from 1.
    pub(super) step: u32,
    pub(super) calls: Vec<StepCall>,
    /// The only tools the model is offered in the current step; all if `None`.
    pub(super) offered: Option<Vec<String>>,
    /// Silent retries of the current model call.
    pub(super) retries: u32,
    /// Whether a client saw something of the current model call.
    pub(super) shown: bool,
    /// Sockets that took this stream up by a replay: their view needs healing at the end (O5).
    pub(super) resumed: Vec<ConnId>,
    pub(super) reason: FinishReason,
    /// Tokens of the current model call, and of those before it.
    pub(super) usage: Usage,
    spent: Usage,
    started_at: Millis,
    rows_before: u64,
    /// Whether a newer message wants it to end at its next step.
    pub(super) steered: bool,
    /// The calls of an earlier leg that run in this one.
    pub(super) earlier: Vec<CallId>,
    /// Who answered the calls that it goes on after.
    pub(super) owner: Option<ConnId>,
    /// Whether something was decided that no chunk says: everybody gets the message at the end.
    pub(super) heals: bool,
    /// What interrupted attempts left, until the application said what becomes of it.
    pub(super) partial: Option<Box<Partial>>,
    /// Whether the application's own budget is asked about this attempt.
    pub(super) asks: bool,
    /// Whether events told that this attempt was scheduled: one that was waited for, when that began.
    pub(super) told: bool,
    /// Why it is taken up to be brought to rest only.
    pub(super) doom: Option<Doom>,
    /// Calls that were closed because nobody will answer them, as they were: the application may want something else in their place.
    pub(super) orphans: Vec<(MessageId, Part)>,
}

impl Running {
    /// What it took.
    pub(super) fn took(&self) -> Took {
        let usage = self.spent.plus(self.usage);
        Took { since: Some((self.started_at, self.rows_before)), model_calls: Some(self.step), usage: Some(usage), finish: None }
    }

    /// Whether this chunk says what came of a call of an earlier leg.
    pub(super) fn is_of_earlier_leg(&self, chunk: &str) -> bool {
        !self.earlier.is_empty()
            && match Chunk::parse(chunk) {
                Some(
                    Chunk::ToolOutputAvailable { call, .. } | Chunk::ToolOutputError { call, .. } | Chunk::ToolOutputDenied { call },
                ) => self.earlier.contains(&call),
                _ => false,
            }
    }
}

impl Engine {
    /// Starts queued turns until one runs. Runs at the end of every step.
    pub(super) fn next_turn(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        while self.running.is_none() {
            if let Some(waiting) = &self.waiting {
                // Turns behind it wait with it (decision 35). A due time further off than the longest wait was written before the clock
                // stepped back.
                let due =
                    waiting.not_before.is_none_or(|due| due <= cx.now || due - cx.now > i64::from(limits::RECOVERY_RETRY_AFTER_MS));
                if !due {
                    return Ok(());
                }
                if let Some(turn) = self.waiting.take() {
                    self.attempt_due(cx, turn)?;
                }
                continue;
            }
            if self.submission_is_next() {
                self.start_submission(cx)?;
                continue;
            }
            let Some(first) = self.queue.front() else { return Ok(()) };
            if self.is_overtaken(first) {
                if let Some(turn) = self.queue.pop_front() {
                    self.disarm(cx, turn, "the conversation went on")?;
                }
                continue;
            }
            let gives_way = !first.cancelled && first.yields && self.queue.iter().skip(1).any(|later| later.yields);
            if let Some(due) = first.not_before.filter(|due| !first.cancelled && !gives_way && *due > cx.now) {
                // It holds the slot while it waits: what comes meanwhile is later than it. A due time further off than the longest
                // wait was written before the clock stepped back.
                let longest = if first.trigger == CONTINUATION { limits::CONTINUATION_MS } else { i64::from(self.longest_wait()) };
                let left = (due - cx.now).min(longest);
                if let Some(first) = self.queue.front_mut() {
                    first.not_before = Some(cx.now + left);
                }
                self.wake_in(cx, left);
                return Ok(());
            }
            let Some(mut turn) = self.queue.pop_front() else { return Ok(()) };
            if turn.cancelled {
                self.end_unstarted(cx, &turn)?;
                continue;
            }
            if gives_way {
                self.end_superseded(cx, &turn)?;
                continue;
            }
            turns::read_asked(cx.db, &mut turn)?;
            self.choose_reply(cx, &mut turn);
            turns::start(cx.db, &turn, cx.now)?;
            self.open(cx, turn)?;
        }
        Ok(())
    }

    /// Chooses the message that an attempt writes. Fixed before the first model call (I5).
    pub(super) fn choose_reply(&self, cx: &mut Cx<'_>, turn: &mut Turn) {
        turn.attempt += 1;
        if turn.reply.is_none() {
            turn.reply = match turn.kind {
                Kind::Extend => turn.anchor.clone(),
                Kind::Answer | Kind::Branch => Some(cx.rng.text(16).into()),
            };
        }
    }

    /// Opens the attempt of a turn whose row is written.
    pub(super) fn open(&mut self, cx: &mut Cx<'_>, mut turn: Turn) -> Result<()> {
        let owner = self.take_owner(cx, &turn)?;
        let orphans = self.supersede_parked(cx, &turn)?;
        let reply_id = turn.reply.clone().ok_or_else(|| Error::corrupt(format!("turn {} has no reply id", turn.id)))?;
        let stored = if turn.kind == Kind::Extend { messages::get(cx.db, &reply_id)? } else { None };
        let before = stored.and_then(|stored| UiMessage::from_row(&stored.body).ok());
        if turn.kind == Kind::Extend && before.is_none() {
            // What it was to extend is gone or cannot be read: it answers in a message of its own.
            turn.reply = Some(cx.rng.text(16).into());
            turns::start(cx.db, &turn, cx.now)?;
        }
        let reply_id = turn.reply.clone().unwrap_or(reply_id);
        let extends = before.is_some();
        let reply = match before {
            Some(message) => Accumulator::extending(message),
            None => Accumulator::new(&reply_id),
        };
        let allowed = if extends { self.allowed_calls(cx, &reply_id, &reply)? } else { Vec::new() };
        let info = TurnInfo {
            request_id: turn.request_id.to_string(),
            trigger: turn.trigger.clone(),
            continuation: extends,
            body: body_value(turn.body.as_deref()),
            client_tools: turn.client_tools.as_deref().map(client_tools::stored).unwrap_or_default(),
        };
        cx.emit(
            Event::new("chat:turn:start")
                .quiet()
                .with("requestId", turn.request_id.as_str())
                .with("trigger", turn.trigger.as_str())
                .with("admission", turn.admission())
                .with("continuation", extends)
                .with("generation", self.generation)
                .with("waitedMs", cx.now.since(turn.created_at)),
        );
        let running = self.run(cx, turn, Phase::Preparing, reply, extends)?;
        running.earlier = allowed.iter().map(|call| call.id.clone()).collect();
        running.calls = allowed;
        running.owner = owner;
        running.orphans = orphans;
        cx.push(Effect::Prepare(running.fence.clone(), Box::new(info)));
        Ok(())
    }

    /// An attempt begins: its row is written, and it is the running one.
    pub(super) fn run(
        &mut self,
        cx: &mut Cx<'_>,
        turn: Turn,
        phase: Phase,
        reply: Accumulator,
        extends: bool,
    ) -> Result<&mut Running> {
        let stream = Stream::new(streams::name(&turn.id, turn.attempt));
        turns::open_attempt(cx.db, &turn, &self.boot, &stream.id, cx.now)?;
        let fence = Fence { turn: turn.id.clone(), attempt: turn.attempt, boot: self.boot.clone() };
        let running = Running {
            turn,
            fence,
            extends,
            phase,
            reply,
            stream,
            plan: None,
            history: Vec::new(),
            system: String::new(),
            step: 0,
            calls: Vec::new(),
            offered: None,
            retries: 0,
            shown: false,
            resumed: Vec::new(),
            reason: FinishReason::Stop,
            usage: Usage::default(),
            spent: Usage::default(),
            started_at: cx.now,
            rows_before: cx.db.meter().written,
            steered: false,
            earlier: Vec::new(),
            owner: None,
            heals: false,
            partial: None,
            asks: false,
            told: false,
            doom: None,
            orphans: Vec::new(),
        };
        Ok(self.running.insert(Box::new(running)))
    }

    /// The calls of a message that a person allowed and that have not run.
    fn allowed_calls(&self, cx: &Cx<'_>, message: &MessageId, reply: &Accumulator) -> Result<Vec<StepCall>> {
        let open = calls::open(cx.db, message)?;
        let allowed = open.iter().filter(|call| call.state == calls::State::Approved).enumerate();
        let calls = allowed.filter_map(|(n, call)| {
            let input = reply.call(&call.call)?.get("input").cloned().unwrap_or_default();
            Some(StepCall::recorded(n, call, input))
        });
        Ok(calls.collect())
    }

    /// A job of the running turn reports.
    pub(super) fn job(&mut self, cx: &mut Cx<'_>, event: JobEvent) -> Result<()> {
        match event {
            JobEvent::Recover => self.recover(cx),
            JobEvent::Unstable => self.unstable(cx),
            JobEvent::RecoveryDecided(decision) => self.recovery_decided(cx, decision),
            JobEvent::PartsRepaired(parts) => self.parts_repaired(cx, parts),
            JobEvent::Prepared(Ok(plan)) => self.prepared(cx, *plan),
            JobEvent::Prepared(Err(failure)) => self.fail(cx, *failure),
            JobEvent::Model(events) => self.model_events(cx, events),
            JobEvent::ModelEnded(Ok(finish)) => self.model_finished(cx, finish),
            JobEvent::ModelEnded(Err(failure)) => self.model_failed(cx, *failure),
            JobEvent::Offered(names) => {
                if let Some(running) = self.running.as_mut() {
                    running.offered = Some(names);
                }
                Ok(())
            }
            JobEvent::CallRepaired(call, input) => self.call_repaired(cx, &call, input),
            JobEvent::ApprovalChecked(call, verdict) => self.approval_checked(cx, &call, verdict),
            JobEvent::ToolEnded(call, outcome) => self.tool_ended(cx, &call, outcome),
            JobEvent::GraceOver => self.finish(cx, Ending::Aborted, None),
            // As where the database says it: nothing of the attempt is gone on with, and the next one reads less (decision 38).
            JobEvent::OutOfMemory(text) => Err(Error::new(ErrorKind::Storage(StorageFault::NoMemory), text)),
            JobEvent::FlushDue => {
                if let Some(running) = self.running.as_mut() {
                    running.stream.timer = false;
                    running.stream.flush(cx)?;
                }
                Ok(())
            }
            JobEvent::RetryDue => {
                if let Some(running) = self.running.as_mut().filter(|r| r.phase == Phase::Retrying) {
                    running.phase = Phase::Model;
                    self.send_request(cx);
                }
                Ok(())
            }
        }
    }

    /// The next model call of the turn.
    pub(super) fn next_step(&mut self, cx: &mut Cx<'_>) {
        if let Some(running) = self.running.as_mut() {
            running.step += 1;
            running.calls.clear();
            running.offered = None;
            running.retries = 0;
            running.shown = false;
            running.spent = running.spent.plus(std::mem::take(&mut running.usage));
            running.phase = Phase::Model;
        }
        self.send_request(cx);
    }

    fn send_request(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = self.running.as_ref() else { return };
        let Some(plan) = running.plan.clone() else { return };
        let request = ModelRequest {
            model: plan.model.clone(),
            system: [plan.system.as_str(), running.system.as_str()].concat(),
            messages: prompt::assemble(&running.history, &running.reply.message(), !mutant!(W20)),
            tools: plan.tools.iter().map(|t| t.spec.clone()).collect(),
            tool_choice: plan.tool_choice.clone(),
            max_output: plan.max_output,
            temperature: plan.temperature,
            top_p: plan.top_p,
            reasoning: plan.reasoning.clone(),
            session_key: self.identity.name.clone(),
        };
        cx.push(Effect::CallModel(running.fence.clone(), running.step, Box::new(request)));
    }

    fn model_finished(&mut self, cx: &mut Cx<'_>, finish: Finish) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|r| r.phase == Phase::Model) else { return Ok(()) };
        running.reason = finish.reason;
        self.close_blocks(cx);
        self.run_calls(cx)
    }

    /// All calls of the step have an answer, or there were none.
    pub(super) fn end_step(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        self.put_if_open(cx, Chunk::FinishStep);
        let Some(running) = self.running.as_ref() else { return Ok(()) };
        let most = running.plan.as_ref().map_or(limits::MAX_STEPS, |plan| plan.max_steps);
        // A call that is answered from outside ends the leg, even if its answer is there already (T67).
        let parks = running.calls.iter().any(|c| c.parks);
        let stop_after = running.plan.as_ref().map(|plan| plan.stop_after.as_slice()).unwrap_or_default();
        let stops = running.steered || running.calls.iter().any(|c| stop_after.contains(&c.name));
        let goes_on = !running.calls.is_empty() && !parks && running.reason.runs_calls() && running.step < most && !stops;
        if running.step > 0 {
            let result = StepResult {
                step: running.step,
                finish_reason: running.reason,
                usage: running.usage,
                parts: running.reply.last_step(),
            };
            cx.push(Effect::StepFinished(running.fence.clone(), Box::new(result)));
        }
        if goes_on {
            self.step_is_kept(cx)?;
            self.next_step(cx);
            return Ok(());
        }
        let reason = running.reason.as_str().to_string();
        if running.stream.started {
            self.put(cx, Chunk::Finish { reason, metadata: None });
        }
        self.finish(cx, Ending::Completed, None)
    }

    /// A model call failed: again if nobody saw anything of it, else the turn ends with what it has (decision 34).
    fn model_failed(&mut self, cx: &mut Cx<'_>, failure: Failure) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|r| r.phase == Phase::Model) else { return Ok(()) };
        let error = &failure.error;
        let doubled = u64::from(limits::RETRY_BASE_MS) << running.retries.min(4);
        // ±20 %, so that conversations that failed together do not come back together.
        let jittered = doubled * 4 / 5 + cx.rng.below(doubled * 2 / 5 + 1);
        let delay = error.retry_after_ms.unwrap_or(jittered);
        if !running.shown
            && !error.no_retry
            && running.retries < error.retries_in_step()
            && delay <= u64::from(limits::RETRY_IN_MEMORY_MS)
        {
            running.retries += 1;
            running.phase = Phase::Retrying;
            cx.emit(
                Event::new("chat:model:retry")
                    .with("requestId", running.turn.request_id.as_str())
                    .with("attempt", running.retries)
                    .with("delayMs", delay)
                    .with("status", error.status)
                    .with("code", error.code.clone()),
            );
            let fence = running.fence.clone();
            cx.push(Effect::Timer(fence, JobEvent::RetryDue, u32::try_from(delay).unwrap_or(limits::RETRY_IN_MEMORY_MS)));
            return Ok(());
        }
        if self.may_recover(&failure.error) {
            let trigger = if failure.error.stalled { Trigger::Stalled } else { Trigger::Transient };
            return self.suspend(cx, trigger, &failure);
        }
        self.fail(cx, failure)
    }

    /// The turn ends with an error; what it has stays.
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, failure: Failure) -> Result<()> {
        if let Some(running) = &self.running {
            cx.emit(
                Event::new("chat:request:failed")
                    .with("requestId", running.turn.request_id.as_str())
                    .with("stage", if running.step == 0 { "turn" } else { "stream" })
                    .with("class", format!("{:?}", failure.error.class))
                    .with("status", failure.error.status)
                    .with("code", failure.error.code.clone())
                    .with("providerRequestId", failure.error.request_id.clone()),
            );
        }
        self.finish(cx, Ending::Error, Some(failure.shown))
    }

    /// Someone stopped the running turn: at once, or after the running tools had their grace.
    pub(super) fn abort(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return self.abandon(cx) };
        match running.phase {
            Phase::Stopping => Ok(()),
            Phase::Tools if running.calls.iter().any(StepCall::is_running) => {
                running.phase = Phase::Stopping;
                let fence = running.fence.clone();
                cx.push(Effect::Cancel(fence.clone()));
                cx.push(Effect::Timer(fence, JobEvent::GraceOver, self.config.abort_grace_ms));
                Ok(())
            }
            Phase::Recovering => self.abandon(cx),
            Phase::Preparing | Phase::Model | Phase::Retrying | Phase::Tools => self.finish(cx, Ending::Aborted, None),
        }
    }

    /// The cutover: the turn comes to rest, in one transaction.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, ending: Ending, error: Option<String>) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        // Also after a good end: what is left of the turn is a timer, and no timer keeps an idle object awake.
        cx.push(Effect::Cancel(running.fence.clone()));
        if ending == Ending::Error {
            // The log is kept for whoever was away: it has to hold what the others saw.
            running.stream.flush(cx)?;
        }
        let took = running.took();
        let Running { turn, extends, mut reply, stream, .. } = *running;
        for call in running.calls.iter().filter(|call| ending == Ending::Error && call.is_running()) {
            reply.give_up(&call.id, repair::INTERRUPTED);
        }
        let mut message = reply.into_message();
        let open_call = |part: &Part| call_id(part).is_some() && !is_settled(part);
        let cut_off = running.heals || (ending != Ending::Completed && message.parts.iter().any(open_call));
        let closed = match ending {
            Ending::Completed => false,
            Ending::Aborted | Ending::Skipped | Ending::Recovering => repair::close(&mut message, Close::Aborted),
            Ending::Error => repair::close(&mut message, Close::Stopped(FinishReason::Error)),
        };
        let unsettled = running.calls.iter().any(|c| !c.is_settled());
        if let Some(reply_id) = turn.reply.as_ref().filter(|_| ending != Ending::Completed && unsettled) {
            // A turn that did not end well never parks.
            calls::settle_open(cx.db, reply_id, "repair", cx.now)?;
        }
        // Calls that were allowed before this leg are closed with it, even if nothing of it was shown.
        let stored = (stream.started || (extends && closed)) && self.store_reply(cx, &turn, extends, &mut message)?;
        let state = match ending {
            Ending::Completed => "completed",
            Ending::Error => "failed",
            Ending::Aborted | Ending::Recovering => "aborted",
            Ending::Skipped => "skipped",
        };
        if !mutant!(W38) {
            turns::drop_attempts(cx.db, &turn.id)?;
        }
        let reason = error.as_deref().or(running.steered.then_some("steered"));
        let asks = ending == Ending::Completed && running.calls.iter().any(|c| c.parks);
        let parks = asks && stored && (unsettled || self.pending.is_some());
        if !parks {
            turns::finish(cx.db, &turn.id, state, reason, cx.now)?;
            self.drop_pending(cx, "the turn has ended")?;
        }
        let body = match (&error, ending) {
            (Some(text), _) => text.clone(),
            (None, Ending::Completed) if !stored => "No response was generated.".into(),
            _ => String::new(),
        };
        let terminal =
            Terminal { id: turn.request_id.clone(), ending, body, message_ids: turn.origin_ids.clone(), continuation: extends };
        // An older notice goes with any ending: with a good one it is no longer true, with a bad one there is a newer.
        self.take_down_notice(cx)?;
        if ending == Ending::Error {
            let notice = Notice { stream: stream.id.clone(), terminal: terminal.clone() };
            streams::put_notice(cx.db, &turn.id, &notice)?;
            self.notice = Some(notice);
        } else if stream.has_rows() {
            streams::drop_stream(cx.db, &stream.id)?;
        }
        if turn.seq % 16 == 0 {
            turns::prune(cx.db)?;
        }

        self.clients.forget_offers();
        let sender = take(&mut self.senders, &turn.id).filter(|_| turn.kind == Kind::Extend);
        if mutant!(W24) {
            cx.send(self.clients.all(), wire::terminal(&terminal));
        }
        if stream.started || stored {
            self.tell_transcript(cx)?;
        }
        let healed = stored.then(|| wire::message_updated(&message.json()));
        if let Some(frame) = healed.as_ref().filter(|_| !cut_off) {
            let mut heal = running.resumed;
            // A tab whose transcript ended in the message that went on shows its beginning twice (wire X4).
            heal.extend(sender.filter(|conn| !heal.contains(conn)));
            heal.retain(|conn| self.clients.is_connected(conn));
            cx.send(heal, frame.as_str());
        }
        if !mutant!(W24) {
            cx.send(self.clients.all(), wire::terminal(&terminal));
        }
        if let Some(frame) = healed.filter(|_| cut_off) {
            // No chunk says what became of these calls, and a tab prefers its own copy of an answer to a transcript's until the
            // answer has ended.
            cx.send(self.clients.all(), frame);
        }
        if !stream.started && !self.something_waits() {
            for conn in self.clients.release_parked() {
                // Who waits for a continuation knows its id only from here: an error is shown to those that take it up (wire X12).
                let failed = ending == Ending::Error && turn.trigger == CONTINUATION;
                if failed {
                    self.clients.offer_ended(&conn, &terminal.id);
                }
                cx.send_one(&conn, if failed { wire::resuming(&terminal.id, None) } else { wire::resume_none(None, None) });
            }
        }
        self.remember_ending(terminal);
        self.recovered(cx);
        self.incident_over(cx, &turn, ending, parks && running.phase == Phase::Recovering);

        let status = match ending {
            Ending::Completed => TurnStatus::Completed,
            Ending::Error => TurnStatus::Error,
            Ending::Aborted | Ending::Skipped | Ending::Recovering => TurnStatus::Aborted,
        };
        // A leg that came to nothing has the message that it was to extend.
        let message = (stored || extends).then_some(message);
        if !(mutant!(W17) && turn.counters.is_recovering()) {
            self.end_submission(cx, &turn, ending, message.as_ref().map(|m| m.id.clone()), error.clone())?;
        }
        if !(mutant!(W19) && turn.counters.is_recovering()) {
            self.owe_response(cx, &turn, message.clone(), status, error.clone(), extends)?;
        }
        self.answer_waiter(cx, &turn, status, error, message, extends);
        let took = Took { finish: (ending == Ending::Completed).then_some(running.reason), ..took };
        self.finished(cx, &turn, extends, status.as_str(), running.steered.then_some("steered"), took);
        if let Some(message) = turn.reply.clone().filter(|_| parks) {
            self.park(cx, turn, message)?;
            self.check_batch(cx)?;
        }
        Ok(())
    }

    fn longest_wait(&self) -> u32 {
        match self.config.message_concurrency {
            MessageConcurrency::Debounce { ms } => ms,
            _ => limits::DEBOUNCE_MS,
        }
    }
}
