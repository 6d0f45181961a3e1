//! The calls of a step: checked, recorded, and run here, left to the page, or put before a person. Every call gets exactly one
//! answer (`turns-and-tools.md` §6); those of pages and people arrive in `claims`.

use serde_json::Value;

use super::{
    Engine,
    input::{Ambiguous, Approval, Failure, Gate, Site, ToolDef, ToolOutcome},
    outcome::{Cx, Effect, ToolCall, ToolRun},
    schema,
    turn::Phase,
};
use crate::{
    error::{Error, Result},
    ids::{CallId, Fence, TurnId},
    limits,
    model::{ModelError, ModelErrorClass},
    store::{
        calls::{self, Call, NewCall, State},
        turns::Turn,
    },
    transcript::{prompt, repair},
    wire::{Ending, chunk::Chunk, is_too_deep},
};

/// Where a call of the current step is.
#[derive(Debug)]
enum Progress {
    /// Its arguments still come in.
    Announced,
    /// The application is asked to mend this input, which is refused for this reason otherwise.
    Repairing(Value, String),
    /// It may be run with this input.
    Ready(Value),
    /// The predicate of its tool is asked whether it may run with this input.
    Checking(Value),
    /// Its tool runs.
    Running,
    /// A page or a person is to answer it.
    Open,
    /// It has its answer.
    Settled,
}

/// A call of the current step, or one of an earlier leg that a person allowed.
pub(super) struct StepCall {
    slot: u32,
    pub(super) id: CallId,
    pub(super) name: String,
    /// Whether clients were told of it.
    shown: bool,
    progress: Progress,
    /// Whether its answer comes from outside: the leg ends with this step.
    pub(super) parks: bool,
    /// Whether the agent or a person allowed it already.
    allowed: bool,
    /// The turn that made it, if its row is there and only has to be moved: another turn may run it, under the name it always had.
    recorded: Option<TurnId>,
    /// Whether a person allowed it.
    approved: bool,
}

impl StepCall {
    /// A call that is recorded already: a person allowed it after its leg had ended, or its incarnation died.
    pub(super) fn recorded(ordinal: usize, call: &Call, input: Value) -> Self {
        Self {
            // Slots of the provider count from 0.
            slot: u32::MAX - ordinal as u32,
            id: call.call.clone(),
            name: call.name.clone(),
            shown: true,
            progress: Progress::Ready(input),
            parks: false,
            allowed: true,
            recorded: Some(call.turn.clone()),
            approved: call.approved == Some(true),
        }
    }

    /// A call that waits for a page or a person since before its incarnation died.
    pub(super) fn waiting(ordinal: usize, call: &Call) -> Self {
        Self { progress: Progress::Open, parks: true, ..Self::recorded(ordinal, call, Value::Null) }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.progress, Progress::Running)
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.progress, Progress::Settled)
    }

    /// It was answered from outside.
    pub(super) fn answered(&mut self) {
        self.progress = Progress::Settled;
    }
}

impl Engine {
    pub(super) fn call_started(&mut self, cx: &mut Cx<'_>, slot: u32, id: &str, name: String) -> Result<()> {
        let call = self.call_of(cx, slot, id, &name)?;
        let known = self.tool_exists(&name);
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        if let Some(entry) = running.calls.iter_mut().find(|c| c.slot == slot) {
            // A tool nobody has is shown once it is refused: clients cannot change its kind afterwards.
            entry.shown = known;
        }
        if known {
            self.close_blocks(cx);
            self.put(cx, Chunk::ToolInputStart { call, tool: name });
        }
        Ok(())
    }

    pub(super) fn call_delta(&mut self, cx: &mut Cx<'_>, slot: u32, delta: String) {
        let Some(running) = self.running.as_ref() else { return };
        let Some(call) = running.calls.iter().find(|c| c.slot == slot && c.shown) else { return };
        let call = call.id.clone();
        if !delta.is_empty() {
            self.put(cx, Chunk::ToolInputDelta { call, delta });
        }
    }

    pub(super) fn call_complete(
        &mut self,
        cx: &mut Cx<'_>,
        slot: u32,
        id: &str,
        name: String,
        input: Value,
        meta: Option<Value>,
    ) -> Result<()> {
        let call = self.call_of(cx, slot, id, &name)?;
        let meta = meta.filter(|meta| !is_too_deep(meta));
        if let Err(error) = self.check(&name, &input) {
            if self.tool_exists(&name) {
                self.ask_repair(cx, slot, call, name, input, error);
            } else {
                self.reject(cx, slot, call, name, input, error);
            }
            return Ok(());
        }
        self.take_call(cx, slot, call, name, input, meta)
    }

    /// A call that may be made is shown, and recorded where its answer comes from outside.
    fn take_call(&mut self, cx: &mut Cx<'_>, slot: u32, call: CallId, name: String, input: Value, meta: Option<Value>) -> Result<()> {
        self.close_blocks(cx);
        let open = self.tool(&name).filter(|tool| tool.site == Site::Client && tool.gate == Gate::Never).cloned();
        let progress = match open {
            // A page may answer as soon as it sees the call, so the row that takes its answer is there first.
            Some(tool) => {
                self.await_answer(cx, slot, &tool, None)?;
                Progress::Open
            }
            None => Progress::Ready(input.clone()),
        };
        self.put(cx, Chunk::ToolInputAvailable { call, tool: name, input, meta });
        if matches!(progress, Progress::Open) {
            self.flush(cx)?;
        }
        self.progress(slot, progress);
        Ok(())
    }

    /// The input does not fit: the application may mend it, once (`turns-and-tools.md` §6.3).
    fn ask_repair(&mut self, cx: &mut Cx<'_>, slot: u32, call: CallId, name: String, input: Value, error: String) {
        let Some(running) = self.running.as_ref() else { return };
        let info = ToolCall {
            request_id: running.turn.request_id.clone(),
            call_id: call,
            tool_name: name,
            input: input.clone(),
            step: running.step,
        };
        cx.push(Effect::RepairCall(running.fence.clone(), Box::new(info), error.clone()));
        self.progress(slot, Progress::Repairing(input, error));
    }

    /// The application mended the input of a call, or did not.
    pub(super) fn call_repaired(&mut self, cx: &mut Cx<'_>, call: &CallId, repaired: Option<Value>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let Some(entry) = running.calls.iter_mut().find(|c| c.id == *call && matches!(c.progress, Progress::Repairing(..))) else {
            return Ok(());
        };
        let Progress::Repairing(input, error) = std::mem::replace(&mut entry.progress, Progress::Announced) else { return Ok(()) };
        let (slot, name, call) = (entry.slot, entry.name.clone(), entry.id.clone());
        match repaired.map(|input| (self.check(&name, &input), input)) {
            Some((Ok(()), input)) => self.take_call(cx, slot, call, name, input, None)?,
            Some((Err(error), input)) => self.reject(cx, slot, call, name, input, error),
            None => self.reject(cx, slot, call, name, input, error),
        }
        if self.running.as_ref().is_some_and(|r| r.phase == Phase::Tools) {
            // The model call is over by now: what it left to do waited for this.
            self.check_gates(cx)?;
            self.start_ready(cx)?;
            self.step_if_settled(cx)?;
        }
        self.flush_if_due(cx)
    }

    /// Records that a call waits for a page, or under this id for a person.
    fn await_answer(&mut self, cx: &mut Cx<'_>, slot: u32, tool: &ToolDef, approval: Option<&str>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let Some(message) = running.turn.reply.clone() else { return Ok(()) };
        let Some((ordinal, call)) = running.calls.iter_mut().enumerate().find(|(_, call)| call.slot == slot) else { return Ok(()) };
        call.parks = true;
        let new = NewCall {
            message: &message,
            call: &call.id,
            turn: &running.turn.id,
            step: running.step,
            ordinal: ordinal as u32,
            name: &call.name,
            effect: tool.effect,
            site: tool.site,
            state: if approval.is_some() { State::AwaitingApproval } else { State::Waiting },
            approval,
            wait_ms: tool.wait_ms,
            boot: &self.boot,
        };
        calls::insert(cx.db, &new, cx.now)
    }

    pub(super) fn call_broken(
        &mut self,
        cx: &mut Cx<'_>,
        slot: u32,
        id: &str,
        name: String,
        raw: String,
        message: String,
    ) -> Result<()> {
        let call = self.call_of(cx, slot, id, &name)?;
        if self.tool_exists(&name) {
            self.ask_repair(cx, slot, call, name, Value::String(raw), message);
        } else {
            self.reject(cx, slot, call, name, Value::String(raw), message);
        }
        Ok(())
    }

    fn reject(&mut self, cx: &mut Cx<'_>, slot: u32, call: CallId, name: String, input: Value, mut error: String) {
        self.close_blocks(cx);
        // What is stored has to be read again, and a model may nest as deep as it likes.
        let input = if is_too_deep(&input) { Value::String(input.to_string()) } else { input };
        let dynamic = !self.tool_exists(&name);
        cut(&mut error, limits::TOOL_ERROR);
        self.put(cx, Chunk::ToolInputError { call, tool: name, input, error, dynamic });
        self.progress(slot, Progress::Settled);
    }

    fn progress(&mut self, slot: u32, progress: Progress) {
        if let Some(entry) = self.running.as_mut().and_then(|r| r.calls.iter_mut().find(|c| c.slot == slot)) {
            entry.progress = progress;
        }
    }

    fn tool_exists(&self, name: &str) -> bool {
        self.tool(name).is_some()
    }

    /// The tool of this name, if the model was offered it.
    fn tool(&self, name: &str) -> Option<&ToolDef> {
        self.tools().find(|t| t.spec.name == name)
    }

    /// What the model is offered in the current step.
    fn tools(&self) -> impl Iterator<Item = &ToolDef> {
        let running = self.running.as_deref();
        let offered = running.and_then(|r| r.offered.as_deref());
        let plan = running.and_then(|r| r.plan.as_ref()).map(|plan| plan.tools.as_slice()).unwrap_or_default();
        plan.iter().filter(move |tool| offered.is_none_or(|names| names.contains(&tool.spec.name)))
    }

    /// Whether a call can be run; the text is for the model.
    fn check(&self, name: &str, input: &Value) -> std::result::Result<(), String> {
        let Some(tool) = self.tool(name) else {
            let names: Vec<&str> = self.tools().map(|t| t.spec.name.as_str()).collect();
            let offer = if names.is_empty() { "there are no tools".to_string() } else { format!("available: {}", names.join(", ")) };
            return Err(format!("there is no tool `{name}`; {offer}"));
        };
        if is_too_deep(input) {
            return Err(format!("the input of `{name}` is nested deeper than {} levels", limits::VALUE_DEPTH));
        }
        let size = input.to_string().len();
        if size > limits::TOOL_INPUT {
            return Err(format!("the input of `{name}` has {size} bytes, limit {}", limits::TOOL_INPUT));
        }
        schema::validate(&tool.spec.input_schema, input).map_err(|e| format!("invalid input for `{name}`: {e}"))
    }

    /// The call of this slot, with an id that is unique in the object. Providers repeat ids and forget them (wire X34).
    fn call_of(&mut self, cx: &mut Cx<'_>, slot: u32, id: &str, name: &str) -> Result<CallId> {
        let Some(running) = self.running.as_mut() else { return Err(Error::corrupt("a call without a turn")) };
        if let Some(entry) = running.calls.iter().find(|c| c.slot == slot) {
            return Ok(entry.id.clone());
        }
        // After a clear no row knows the ids that were given before, and pages may still answer them.
        let usable = self.generation == 0
            && !id.is_empty()
            && id.len() <= limits::CALL_ID
            && !running.calls.iter().any(|c| &*c.id == id)
            // One that was cut off before it was complete is in no row.
            && running.reply.call(id).is_none()
            // A call that was refused has no row.
            && !running.history.iter().any(|message| message.has_call(id))
            && !calls::is_known(cx.db, id)?;
        let call: CallId = if usable { id.into() } else { format!("call_{}", cx.rng.text(24)).into() };
        running.calls.push(StepCall {
            slot,
            id: call.clone(),
            name: name.into(),
            shown: false,
            progress: Progress::Announced,
            parks: false,
            allowed: false,
            recorded: None,
            approved: false,
        });
        Ok(call)
    }

    /// The model call is over: run what it asked for, or ask who may allow it.
    pub(super) fn run_calls(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        // A call that never became complete was announced by mistake; it has no input to run with.
        let reason = running.reason;
        let reply = running.turn.reply.clone();
        let unfinished: Vec<(CallId, bool)> = running
            .calls
            .iter_mut()
            .filter(|c| match c.progress {
                Progress::Announced => true,
                Progress::Settled => false,
                _ => !reason.runs_calls(),
            })
            .map(|c| {
                c.progress = Progress::Settled;
                (c.id.clone(), c.parks)
            })
            .collect();
        for (call, recorded) in unfinished {
            if let Some(reply) = reply.as_ref().filter(|_| recorded) {
                calls::settle(cx.db, reply, &call, "error", "repair", cx.now)?;
            }
            if self.running.as_ref().is_some_and(|r| r.reply.call(&call).is_some()) {
                self.put(cx, Chunk::ToolOutputError { call, error: repair::not_executed(reason), dynamic: false });
            }
        }
        if let Some(running) = self.running.as_mut() {
            running.phase = Phase::Tools;
        }
        self.check_gates(cx)?;
        self.start_ready(cx)?;
        self.step_if_settled(cx)
    }

    /// Calls of tools that need approval: asked for, or their predicate is.
    fn check_gates(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_ref() else { return Ok(()) };
        let mut gated = Vec::new();
        for call in running.calls.iter().filter(|c| matches!(c.progress, Progress::Ready(_)) && !c.allowed) {
            let Some(tool) = self.tool(&call.name).cloned() else { continue };
            let unclear = tool.ambiguous == Ambiguous::Ask && self.was_interrupted(cx, call)? && !mutant!(N10);
            if tool.gate != Gate::Never || unclear {
                gated.push((call.slot, tool, unclear));
            }
        }
        for (slot, tool, unclear) in gated {
            if tool.gate == Gate::Always || unclear {
                self.ask_person(cx, slot, &tool)?;
                continue;
            }
            let Some(running) = self.running.as_mut() else { return Ok(()) };
            let step = running.step;
            let Some(call) = running.calls.iter_mut().find(|c| c.slot == slot) else { continue };
            let Progress::Ready(input) = std::mem::replace(&mut call.progress, Progress::Settled) else { continue };
            call.progress = Progress::Checking(input.clone());
            let run = ToolRun {
                call: call.id.clone(),
                name: call.name.clone(),
                input,
                timeout_ms: self.config.hook_deadline_ms,
                step,
                request_id: running.turn.request_id.clone(),
                idempotency_key: key(&running.turn, call),
                approved: false,
            };
            cx.push(Effect::CheckApproval(running.fence.clone(), Box::new(run)));
        }
        Ok(())
    }

    /// Whether the same call of this answer was interrupted: it may have had its effect. Where the application put something else in
    /// its place, nobody can tell what it was called with, and any call of the tool may be the same.
    fn was_interrupted(&self, cx: &Cx<'_>, call: &StepCall) -> Result<bool> {
        let (Some(running), Progress::Ready(input)) = (self.running.as_ref(), &call.progress) else { return Ok(false) };
        let Some(message) = running.turn.reply.as_ref() else { return Ok(false) };
        let lost = calls::lost(cx.db, message, None)?;
        let is_same = |id: &str| running.reply.call(id).and_then(|part| part.get("input")).is_none_or(|before| before == input);
        Ok(lost.iter().any(|(id, name)| *name == call.name && is_same(id)))
    }

    /// A call waits for a person from now on.
    fn ask_person(&mut self, cx: &mut Cx<'_>, slot: u32, tool: &ToolDef) -> Result<()> {
        let approval = cx.rng.text(limits::APPROVAL_ID);
        self.await_answer(cx, slot, tool, Some(&approval))?;
        self.progress(slot, Progress::Open);
        let call = self.running.as_ref().and_then(|r| r.calls.iter().find(|c| c.slot == slot)).map(|c| c.id.clone());
        if let Some(call) = call {
            self.put(cx, Chunk::ToolApprovalRequest { approval, call });
        }
        self.flush(cx)
    }

    /// The predicate of a tool spoke.
    pub(super) fn approval_checked(&mut self, cx: &mut Cx<'_>, call: &CallId, verdict: Approval) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|r| r.phase == Phase::Tools) else { return Ok(()) };
        let Some(entry) = running.calls.iter_mut().find(|c| c.id == *call && matches!(c.progress, Progress::Checking(_))) else {
            return Ok(());
        };
        let Progress::Checking(input) = std::mem::replace(&mut entry.progress, Progress::Settled) else { return Ok(()) };
        let (slot, name) = (entry.slot, entry.name.clone());
        let tool = self.tool(&name).cloned();
        match (verdict, tool) {
            (Approval::Ask, Some(tool)) => self.ask_person(cx, slot, &tool)?,
            (Approval::Allow, Some(tool)) if tool.site == Site::Client => {
                self.await_answer(cx, slot, &tool, None)?;
                self.flush(cx)?;
                self.progress(slot, Progress::Open);
            }
            (Approval::Allow, _) => {
                if let Some(entry) = self.running.as_mut().and_then(|r| r.calls.iter_mut().find(|c| c.slot == slot)) {
                    entry.allowed = true;
                    entry.progress = Progress::Ready(input);
                }
            }
            (Approval::Deny(mut reason), _) => {
                cut(&mut reason, limits::APPROVAL_REASON);
                if let Some(running) = self.running.as_mut() {
                    running.reply.decide(call, false, Some(&reason));
                    // The chunk has no place for the reason.
                    running.heals = true;
                }
                self.put(cx, Chunk::ToolOutputDenied { call: call.clone() });
            }
            (Approval::Ask, None) => {}
        }
        self.start_ready(cx)?;
        self.step_if_settled(cx)?;
        self.flush_if_due(cx)
    }

    /// The calls that a person allowed after the last leg, with the tools there are now (`turns-and-tools.md` §10.3).
    pub(super) fn run_approved(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        running.phase = Phase::Tools;
        let reply = running.turn.reply.clone();
        let ready: Vec<(u32, CallId, String, Value)> = running
            .calls
            .iter()
            .filter_map(|c| match &c.progress {
                Progress::Ready(input) => Some((c.slot, c.id.clone(), c.name.clone(), input.clone())),
                _ => None,
            })
            .collect();
        for (slot, call, name, input) in ready {
            let runs_here = self.tool(&name).is_none_or(|tool| tool.site == Site::Server);
            let fault = match self.check(&name, &input) {
                Err(fault) => Some(fault),
                Ok(()) => (!runs_here).then(|| format!("the tool `{name}` runs in the page now; this call was for the server")),
            };
            let (Some(mut error), Some(reply)) = (fault, &reply) else { continue };
            cut(&mut error, limits::TOOL_ERROR);
            calls::settle(cx.db, reply, &call, "error", "server", cx.now)?;
            self.begin_stream(cx);
            self.put(cx, Chunk::ToolOutputError { call, error, dynamic: false });
            self.progress(slot, Progress::Settled);
        }
        self.show_earlier_leg_unseeded(cx)?;
        self.start_ready(cx)?;
        self.step_if_settled(cx)
    }

    /// Starts calls that wait, as many as may run at once. The row is there before the tool is (I13).
    fn start_ready(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let most = self.config.max_parallel_tools.unwrap_or(usize::MAX).max(1);
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let (Some(plan), Some(reply)) = (running.plan.clone(), running.turn.reply.clone()) else { return Ok(()) };
        let mut active = running.calls.iter().filter(|c| c.is_running()).count();
        let mut started = false;
        for (ordinal, call) in running.calls.iter_mut().enumerate() {
            if active >= most || !matches!(call.progress, Progress::Ready(_)) {
                continue;
            }
            let Progress::Ready(input) = std::mem::replace(&mut call.progress, Progress::Running) else { continue };
            let Some(tool) = plan.tools.iter().find(|t| t.spec.name == call.name) else { continue };
            active += 1;
            started = true;
            if call.recorded.is_some() {
                // Exactly once: only the step that moves the row starts the tool.
                if !calls::start_recorded(cx.db, &reply, &call.id, &self.boot)? {
                    return Err(Error::corrupt(format!("the approved call {} is not there to be started", call.id)));
                }
            } else {
                let new = NewCall {
                    message: &reply,
                    call: &call.id,
                    turn: &running.turn.id,
                    step: running.step,
                    ordinal: ordinal as u32,
                    name: &call.name,
                    effect: tool.effect,
                    site: Site::Server,
                    state: State::Started,
                    approval: None,
                    wait_ms: None,
                    boot: &self.boot,
                };
                if !mutant!(N11) {
                    calls::insert(cx.db, &new, cx.now)?;
                }
            }
            cx.push(Effect::RunTool(
                running.fence.clone(),
                Box::new(ToolRun {
                    call: call.id.clone(),
                    name: call.name.clone(),
                    input,
                    timeout_ms: tool.timeout_ms,
                    step: running.step,
                    request_id: running.turn.request_id.clone(),
                    idempotency_key: key(&running.turn, call),
                    approved: call.approved,
                }),
            ));
        }
        if started {
            // What the call was made from is on disk with the record that it was made.
            running.stream.flush(cx)?;
        }
        Ok(())
    }

    /// A tool ended. Its result is on disk before anyone sees it (I12).
    pub(super) fn tool_ended(&mut self, cx: &mut Cx<'_>, call: &CallId, outcome: ToolOutcome) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let Some(entry) = running.calls.iter_mut().find(|c| c.id == *call && c.is_running()) else { return Ok(()) };
        entry.progress = Progress::Settled;
        let stopping = running.phase == Phase::Stopping;
        let Some(reply) = running.turn.reply.clone() else { return Ok(()) };
        let (word, chunk, fatal) = match outcome {
            ToolOutcome::Output(output) => {
                let output = if is_too_deep(&output) { Value::String(output.to_string()) } else { output };
                let output = prompt::cap_output(&output, limits::TOOL_OUTPUT).unwrap_or(output);
                ("output", Chunk::ToolOutputAvailable { call: call.clone(), output, preliminary: false }, None)
            }
            ToolOutcome::Error(mut error) => {
                cut(&mut error, limits::TOOL_ERROR);
                ("error", Chunk::ToolOutputError { call: call.clone(), error, dynamic: false }, None)
            }
            ToolOutcome::Fatal(mut error) => {
                cut(&mut error, limits::TOOL_ERROR);
                ("error", Chunk::ToolOutputError { call: call.clone(), error: error.clone(), dynamic: false }, Some(error))
            }
        };
        calls::settle(cx.db, &reply, call, word, "server", cx.now)?;
        self.begin_stream(cx);
        self.put(cx, chunk);
        if let Some(running) = self.running.as_mut() {
            running.stream.flush(cx)?;
        }
        if self.running.as_ref().is_some_and(|r| r.earlier.contains(call)) {
            self.show_earlier_leg_unseeded(cx)?;
        }
        if let Some(text) = fatal {
            let error = ModelError::new(ModelErrorClass::InvalidRequest, text.clone());
            return self.fail(cx, Failure { error, shown: text });
        }
        if stopping {
            let waits = self.running.as_ref().is_some_and(|r| r.calls.iter().any(StepCall::is_running));
            return if waits { Ok(()) } else { self.finish(cx, Ending::Aborted, None) };
        }
        self.start_ready(cx)?;
        self.step_if_settled(cx)
    }

    fn step_if_settled(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let answered = |c: &StepCall| matches!(c.progress, Progress::Settled | Progress::Open);
        if self.running.as_ref().is_some_and(|r| r.calls.iter().all(answered)) {
            self.end_step(cx)?;
            self.flush_if_due(cx)?;
        }
        Ok(())
    }

    /// An early result of a running tool: shown and logged, replaced by the final one. The inner error is the caller's.
    pub(super) fn preliminary(&mut self, cx: &mut Cx<'_>, fence: &Fence, call: &CallId, output: Value) -> Result<Result<()>> {
        let runs = self
            .running
            .as_ref()
            .is_some_and(|r| r.fence == *fence && r.phase == Phase::Tools && r.calls.iter().any(|c| c.id == *call && c.is_running()));
        if !runs {
            return Ok(Err(Error::refused("the tool of this result has ended")));
        }
        if is_too_deep(&output) {
            return Ok(Err(Error::limit(format!("the result is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH))));
        }
        self.put(cx, Chunk::ToolOutputAvailable { call: call.clone(), output, preliminary: true });
        self.flush_if_due(cx)?;
        Ok(Ok(()))
    }
}

/// Names a call for ever.
fn key(turn: &Turn, call: &StepCall) -> String {
    format!("{}/{}/{}", call.recorded.as_ref().unwrap_or(&turn.id), turn.reply.as_deref().unwrap_or_default(), call.id)
}

/// Cuts a text to at most `most` bytes, at a code point.
pub(crate) fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}
