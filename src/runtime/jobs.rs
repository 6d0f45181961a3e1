//! The work between two inputs: asking the agent, pumping a model's answer, running a tool, calling a hook. Each job is an ordinary
//! future that ends by posting what it found, fenced; none touches the engine or a row.

use std::{
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream,
};

use super::{
    ActiveTurn, Inside, Runtime,
    platform::{Answer, Cancel, Platform},
    watch::{Watch, stalled},
};
use crate::{
    agent::{
        Agent,
        callable::Call,
        handle::{AgentHandle, TurnScope},
        tool::{Approval, Tool, ToolError, Tools},
        turn::{Step, ToolDecision, Turn, TurnPlan},
    },
    engine::{
        events::Event,
        input::{Answer as Reply, Command, Decision, Failure, Input, JobEvent, Prepared, RpcBody, RpcReply, Site, ToolOutcome},
        outcome::{
            ChatErrorContext, ChatResponse, ClientToolSettled, Principal, RpcCall, Stage, StatusNote, StepResult, ToolCall, ToolRun,
        },
    },
    error::{Error, Result},
    ids::{ConnId, Fence, LegId, RequestId},
    limits,
    model::{
        Finish, ModelError, ModelErrorClass, ModelEvent, ModelRequest,
        codec::{self, Decoder, End, Flow, Head},
        demo,
        profile::{self, Route},
    },
    wire::{self, Ending, Terminal, ToolApproval},
};

/// Polls `future` with the object's mark of whose code runs set, and only then (`turns-and-tools.md` §2.2).
struct Scoped<A: Agent, P: Platform, F> {
    runtime: Rc<Runtime<A, P>>,
    inside: Inside,
    future: Pin<Box<F>>,
}

impl<A: Agent, P: Platform, F: Future> Future for Scoped<A, P, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let before = this.runtime.inside.replace(Some(this.inside));
        let poll = this.future.as_mut().poll(cx);
        this.runtime.inside.set(before);
        poll
    }
}

/// How a wait ended.
enum Waited<T> {
    Ready(T),
    Expired,
    Cancelled,
}

impl<A: Agent, P: Platform> Runtime<A, P> {
    fn scoped<F: Future>(self: &Rc<Self>, inside: Inside, future: F) -> Scoped<A, P, F> {
        Scoped { runtime: self.clone(), inside, future: Box::pin(future) }
    }

    /// Runs a hook under a deadline. One that is ready at once costs no timer.
    async fn within<T>(&self, ms: u32, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        if let Some(ready) = future.as_mut().now_or_never() {
            return Some(ready);
        }
        match select(future, self.platform.sleep(ms)).await {
            Either::Left((ready, _)) => Some(ready),
            Either::Right(_) => None,
        }
    }

    /// Runs a hook of the application that nobody waits for. One that takes too long is dropped where it stands (decision 44).
    pub(super) async fn bounded(&self, name: &'static str, conn: Option<&ConnId>, hook: impl Future<Output = ()>) {
        if self.within(self.agent.config().hook_deadline_ms, hook).await.is_none() {
            self.observe(&Event::new("hook:timeout").with("hook", name).with("connection", conn.map(|conn| conn.as_str())));
        }
    }

    /// Asks the agent how a turn is to run.
    pub(super) fn prepare(self: &Rc<Self>, fence: Fence, turn: Turn) {
        let turn = Rc::new(turn);
        *self.active.borrow_mut() = Some(ActiveTurn {
            fence: fence.clone(),
            turn: turn.clone(),
            tools: Tools::new(),
            cancel: Cancel::new(),
            silence: Cancel::new(),
            steps: Vec::new(),
            plan: None,
        });
        let this = self.clone();
        self.start(Box::pin(async move {
            let prepared = match this.planned(&turn).await {
                Ok(plan) => this.plan(&fence, &turn, plan).map(Box::new),
                Err(error) => Err(error),
            };
            let prepared = prepared.map_err(|error| {
                let error = ModelError::new(ModelErrorClass::InvalidRequest, error.to_string());
                Box::new(this.failure(error, &turn, Stage::Turn))
            });
            this.post(Input::Job(fence, JobEvent::Prepared(prepared)));
        }));
    }

    /// How the agent wants the turn to run, if it may run at all.
    async fn planned(self: &Rc<Self>, turn: &Turn) -> Result<TurnPlan> {
        let hook = self.scoped(Inside::Turn, self.agent.before_turn(turn));
        let plan = self.within(limits::BEFORE_TURN_MS, hook).await.unwrap_or_else(|| {
            Err(Error::application(format!("before_turn took more than {} ms (limits::BEFORE_TURN_MS)", limits::BEFORE_TURN_MS)))
        })?;
        match self.deadline("authorize_turn", self.scoped(Inside::Turn, self.agent.authorize_turn(turn))).await? {
            Decision::Allow => Ok(plan),
            Decision::Deny(reason) => Err(Error::refused(reason)),
        }
    }

    /// Runs a hook whose answer is needed. None in time is an error.
    pub(super) async fn deadline<T>(&self, name: &'static str, hook: impl Future<Output = T>) -> Result<T> {
        let ms = if mutant!(N4) { i32::MAX as u32 } else { self.agent.config().hook_deadline_ms };
        let late = || Error::application(format!("{name} took more than {ms} ms (Config::hook_deadline_ms)"));
        self.within(ms, hook).await.ok_or_else(late)
    }

    /// An error with what clients are told about it, and what the application takes it for.
    fn failure(&self, mut error: ModelError, turn: &Turn, stage: Stage) -> Failure {
        let mut context = ChatErrorContext {
            request_id: turn.request_id.clone(),
            stage,
            messages_persisted: true,
            continuation: turn.continuation,
            classification: error.judgement(),
        };
        if stage == Stage::Stream {
            error.judged = self.agent.classify_chat_error(&error, &context);
            context.classification = error.judgement();
        }
        let shown = self.agent.on_chat_error(&error, &context);
        Failure { error, shown }
    }

    /// A request that is not run: one closing frame for its sender (decision 14).
    pub(super) fn refuse(&self, conn: ConnId, id: RequestId, reason: String) {
        let error = ModelError::new(ModelErrorClass::InvalidRequest, reason);
        let context = ChatErrorContext {
            request_id: id.to_string(),
            stage: Stage::Parse,
            messages_persisted: false,
            continuation: false,
            classification: error.judgement(),
        };
        let body = self.agent.on_chat_error(&error, &context);
        let terminal = Terminal { id, ending: Ending::Error, body, message_ids: None, continuation: false };
        self.platform.send(&[conn], &wire::terminal(&terminal));
    }

    fn plan(&self, fence: &Fence, turn: &Turn, plan: TurnPlan) -> Result<Prepared> {
        if plan.max_steps == Some(0) {
            return Err(Error::input("max_steps = 0: a turn needs at least one model call"));
        }
        let mut tools = self.agent.tools(turn).merge(plan.tools);
        let config = self.agent.config();
        for name in tools.merge_client(&turn.client_tools, &config.client_tool_override) {
            // A page may not take the place of a tool that a person has to allow, or that the application protects (decision 9).
            self.observe(&Event::new("tool:client-override-refused").with("name", name).with("requestId", turn.request_id.as_str()));
        }
        if let Some(names) = &plan.active_tools {
            tools.keep(names);
        }
        tools.check()?;
        if plan.message_metadata.as_ref().is_some_and(crate::wire::is_too_deep) {
            return Err(Error::limit(format!("message_metadata is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH)));
        }
        let defs = tools.iter().map(|tool| {
            let mut def = tool.def();
            if let (Site::Client, Some(wait)) = (def.site, self.agent.client_tool_wait(tool.name())) {
                def.wait_ms = wait.ms();
            }
            def
        });
        let defs = defs.collect();
        if let Some(active) = self.active.borrow_mut().as_mut().filter(|active| active.fence == *fence) {
            active.tools = tools;
        }
        Ok(Prepared {
            model: plan.model.unwrap_or_else(|| self.agent.model(turn)),
            system: plan.instructions.unwrap_or_else(|| self.agent.instructions(turn).into_owned()),
            tools: defs,
            tool_choice: plan.tool_choice.unwrap_or_default(),
            max_steps: plan.max_steps.unwrap_or(config.max_steps).max(1),
            max_output: plan.max_output_tokens,
            temperature: plan.temperature,
            top_p: plan.top_p,
            reasoning: plan.reasoning.unwrap_or_default(),
            metadata: plan.message_metadata,
            stop_after: plan.stop_after,
        })
    }

    /// The cancel switch and context of the turn behind this fence, while it is the running one.
    fn active(&self, fence: &Fence) -> Option<(Cancel, Rc<Turn>)> {
        let active = self.active.borrow();
        active.as_ref().filter(|a| a.fence == *fence).map(|a| (a.cancel.clone(), a.turn.clone()))
    }

    /// The switch that silences the model of the turn behind this fence.
    fn silence(&self, fence: &Fence) -> Cancel {
        self.active.borrow().as_ref().filter(|a| a.fence == *fence).map(|a| a.silence.clone()).unwrap_or_default()
    }

    /// Stops what the turn has running. Its jobs still report; their fence is stale by then, or they are waited for.
    pub(super) fn cancel(&self, fence: &Fence) {
        if let Some((cancel, _)) = self.active(fence) {
            cancel.trip();
        }
    }

    pub(super) fn timer(self: &Rc<Self>, fence: Fence, event: JobEvent, ms: u32) {
        let this = self.clone();
        let sleep = self.platform.sleep(ms);
        let cancelled = self.active(&fence).map(|(cancel, _)| cancel);
        self.start(Box::pin(async move {
            // A stopped turn must not keep the object awake for its timers; only the grace of its tools outlives the stop.
            match cancelled.filter(|_| !matches!(event, JobEvent::GraceOver)) {
                Some(cancel) => {
                    if let Either::Right(_) = select(sleep, cancel.tripped()).await {
                        return;
                    }
                }
                None => sleep.await,
            }
            this.post(Input::Job(fence, event));
        }));
    }

    /// One model call.
    pub(super) fn call_model(self: &Rc<Self>, fence: Fence, step: u32, request: ModelRequest) {
        let Some((cancel, turn)) = self.active(&fence) else { return };
        let this = self.clone();
        self.start(Box::pin(async move {
            let failed = |error, stage| Box::new(this.failure(error, &turn, stage));
            let ended = match this.planned_step(&fence, &turn, step, request).await {
                Err(error) => {
                    let error = ModelError::new(ModelErrorClass::InvalidRequest, error.message());
                    Err(failed(error, Stage::Turn))
                }
                Ok(_) if cancel.is_tripped() => Err(failed(ModelError::new(ModelErrorClass::Aborted, "stopped"), Stage::Stream)),
                Ok(request) => {
                    let ended = match profile::route(&request.model) {
                        Ok(Route::Demo) => this.play(&fence, &request, &cancel).await,
                        Ok(route) => this.pump(&fence, &request, &route, &cancel).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = &ended
                        && Error::tells_of_a_reset(&error.message)
                        && !cancel.is_tripped()
                    {
                        return this.interrupted(&error.message);
                    }
                    if let Err(error) = &ended
                        && this.is_out_of_memory(&error.message, &cancel)
                    {
                        return this.post(Input::Job(fence, JobEvent::OutOfMemory(error.message.clone())));
                    }
                    ended.map_err(|error| failed(error, Stage::Stream))
                }
            };
            this.post(Input::Job(fence, JobEvent::ModelEnded(ended)));
        }));
    }

    /// The request of a step, as `before_step` wants it.
    async fn planned_step(
        self: &Rc<Self>,
        fence: &Fence,
        turn: &Rc<Turn>,
        step: u32,
        mut request: ModelRequest,
    ) -> Result<ModelRequest> {
        let (known, previous) = {
            let active = self.active.borrow();
            let Some(active) = active.as_ref().filter(|a| a.fence == *fence) else { return Ok(request) };
            (active.plan.clone().filter(|(of, _)| *of == step).map(|(_, plan)| plan), active.steps.clone())
        };
        let plan = match known {
            Some(plan) => plan,
            None => {
                let about =
                    Step { turn: turn.clone(), step, model: request.model.clone(), messages: request.messages.clone(), previous };
                let plan = self.deadline("before_step", self.scoped(Inside::Turn, self.agent.before_step(&about))).await??;
                if let Some(active) = self.active.borrow_mut().as_mut().filter(|a| a.fence == *fence) {
                    active.plan = Some((step, plan.clone()));
                }
                if let Some(names) = &plan.active_tools {
                    self.post(Input::Job(fence.clone(), JobEvent::Offered(names.clone())));
                }
                plan
            }
        };
        if let Some(model) = plan.model {
            request.model = model;
        }
        if let Some(instructions) = plan.instructions {
            request.system = instructions;
        }
        if let Some(messages) = plan.messages {
            request.messages = messages.into_iter().map(Rc::new).collect();
        }
        if let Some(names) = plan.active_tools {
            request.tools = request.tools.iter().filter(|tool| names.contains(&tool.name)).cloned().collect();
        }
        if let Some(choice) = plan.tool_choice {
            request.tool_choice = choice;
        }
        Ok(request)
    }

    pub(super) fn step_finished(self: &Rc<Self>, fence: &Fence, result: StepResult) {
        let result = Rc::new(result);
        let turn = {
            let mut active = self.active.borrow_mut();
            let Some(active) = active.as_mut().filter(|a| a.fence == *fence) else { return };
            active.steps.push(result.clone());
            active.turn.clone()
        };
        let this = self.clone();
        self.start(Box::pin(async move {
            this.bounded("on_step_finish", None, this.agent.on_step_finish(&turn, &result)).await;
        }));
    }

    /// Asks for another input of a call. None in time leaves it as it is.
    pub(super) fn repair_call(self: &Rc<Self>, fence: Fence, call: ToolCall, error: String) {
        let this = self.clone();
        self.start(Box::pin(async move {
            let hook = this.scoped(Inside::Turn, this.agent.repair_tool_call(&call, &error));
            let repaired = this.deadline("repair_tool_call", hook).await.ok().flatten();
            this.post(Input::Job(fence, JobEvent::CallRepaired(call.call_id, repaired)));
        }));
    }

    /// The built-in model: a script instead of a network.
    async fn play(self: &Rc<Self>, fence: &Fence, request: &ModelRequest, cancel: &Cancel) -> Result<Finish, ModelError> {
        let script = demo::script(request);
        let silence = self.silence(fence);
        for (delay, event) in script.events {
            if delay > 0 {
                select(self.platform.sleep(delay), cancel.tripped()).await;
            }
            if silence.is_tripped() && !cancel.is_tripped() {
                // The script has no connection that could be watched: its silence lasts as long as that of one would.
                let stall = self.agent.config().stall_ms();
                let ms = stall.unwrap_or(limits::NEXT_EVENT_MS);
                select(self.platform.sleep(ms), cancel.tripped()).await;
                if !cancel.is_tripped() {
                    return Err(ModelError { stalled: stall.is_some(), ..stalled(ms) });
                }
            }
            if cancel.is_tripped() {
                return Err(ModelError::new(ModelErrorClass::Aborted, "stopped"));
            }
            self.post(Input::Job(fence.clone(), JobEvent::Model(vec![event])));
        }
        Ok(script.finish)
    }

    /// Sends the request and pumps the answer: one network read, one post.
    async fn pump(
        self: &Rc<Self>,
        fence: &Fence,
        request: &ModelRequest,
        route: &Route,
        cancel: &Cancel,
    ) -> Result<Finish, ModelError> {
        let wire = codec::encode(request, route)?;
        let stall = self.agent.config().stall_ms();
        let first = stall.map_or(limits::FIRST_EVENT_MS, |stall| stall.min(limits::FIRST_EVENT_MS));
        let began = self.platform.now();
        // Dropping the connection is what stops a provider: this switch is tripped on every way out.
        let connection = Cancel::new();
        let _release = Release(connection.clone());
        let answer = match self.wait(self.platform.fetch(wire, connection.clone()), first, cancel).await {
            Waited::Ready(Ok(answer)) => answer,
            Waited::Ready(Err(error)) => return Err(codec::transport_error(route, error.message())),
            Waited::Expired => {
                let mut error = stalled(first);
                error.stalled = first < limits::FIRST_EVENT_MS;
                return Err(error);
            }
            Waited::Cancelled => return Err(ModelError::new(ModelErrorClass::Aborted, "stopped")),
        };
        let Answer { status, headers, mut body } = answer;
        let silence = self.silence(fence);
        let mut heard = stream::poll_fn(|cx| if silence.is_tripped() { Poll::Pending } else { body.poll_next_unpin(cx) });
        let mut decoder = codec::decoder(request, route, Head { status, headers });
        let mut watch = Watch { began, content: None, stall };
        let mut timer = self.platform.sleep(stall.map_or(limits::NEXT_EVENT_MS, |stall| stall.min(limits::NEXT_EVENT_MS)));
        let mut stopped = cancel.tripped();
        let end = loop {
            // One timer at a time, looked at only when it fires: a timer for every read would cost more than the read.
            let read = match select(heard.next(), select(&mut timer, &mut stopped)).await {
                Either::Left((read, _)) => read,
                Either::Right((Either::Right(_), _)) => break End::Aborted,
                Either::Right((Either::Left(_), _)) => match watch.left(self.platform.now()) {
                    Ok(ms) => {
                        timer = self.platform.sleep(ms);
                        continue;
                    }
                    Err(ms) => break End::Stalled { ms },
                },
            };
            let bytes = match read {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => break End::ReadError(error.message().to_string()),
                None => break End::Eof,
            };
            let mut events = Vec::new();
            let flow = decoder.push(&bytes, &mut events);
            if events.iter().any(ModelEvent::is_content) {
                watch.content = Some(self.platform.now());
            }
            if !events.is_empty() {
                self.post(Input::Job(fence.clone(), JobEvent::Model(events)));
            }
            if flow == Flow::Done {
                break End::Eof;
            }
        };
        drop(body);
        let end = if cancel.is_tripped() { End::Aborted } else { end };
        let by_application = matches!(&end, End::Stalled { ms } if stall.is_some_and(|stall| stall == *ms));
        self.close(fence, decoder, end).map_err(|mut error| {
            error.stalled = by_application;
            error
        })
    }

    fn close(self: &Rc<Self>, fence: &Fence, mut decoder: Box<dyn Decoder>, end: End) -> Result<Finish, ModelError> {
        let mut events = Vec::new();
        let result = decoder.end(end, &mut events);
        if !events.is_empty() {
            self.post(Input::Job(fence.clone(), JobEvent::Model(events)));
        }
        result
    }

    async fn wait<T>(&self, future: impl Future<Output = T>, ms: u32, cancel: &Cancel) -> Waited<T> {
        match select(pin!(future), select(self.platform.sleep(ms), cancel.tripped())).await {
            Either::Left((ready, _)) => Waited::Ready(ready),
            Either::Right((Either::Left(_), _)) => Waited::Expired,
            Either::Right((Either::Right(_), _)) => Waited::Cancelled,
        }
    }

    /// The tool of a call and the scope it runs in, while its turn is the running one.
    fn tool_of(self: &Rc<Self>, fence: &Fence, run: &ToolRun) -> Option<(Option<Tool>, TurnScope)> {
        let active = self.active.borrow();
        let active = active.as_ref().filter(|a| a.fence == *fence)?;
        let scope = TurnScope {
            mailbox: self.clone(),
            turn: active.turn.clone(),
            fence: fence.clone(),
            call: run.call.clone(),
            step: run.step,
            key: run.idempotency_key.clone(),
            cancel: active.cancel.clone(),
        };
        Some((active.tools.get(&run.name).cloned(), scope))
    }

    /// What the predicate of a tool says of a call. Whatever goes wrong with it, a person is asked.
    async fn approval(self: &Rc<Self>, tool: Option<&Tool>, run: &ToolRun, scope: TurnScope) -> Approval {
        let Some(check) = tool.and_then(|tool| tool.check_approval(run.input.clone(), scope)) else { return Approval::Ask };
        let ms = self.agent.config().hook_deadline_ms;
        let fault = match self.within(ms, self.scoped(Inside::Turn, check)).await {
            Some(Ok(verdict)) => return verdict,
            Some(Err(error)) => error.message().to_owned(),
            None => format!("it took more than {ms} ms"),
        };
        let event = Event::new("hook:failed").with("hook", "needs_approval").with("tool", run.name.as_str());
        self.observe(&event.with("callId", run.call.as_str()).with("reason", fault));
        Approval::Ask
    }

    /// Whether a call may run, in the words of its tool.
    pub(super) fn check_approval(self: &Rc<Self>, fence: Fence, run: ToolRun) {
        let Some((tool, scope)) = self.tool_of(&fence, &run) else { return };
        let this = self.clone();
        self.start(Box::pin(async move {
            let verdict = this.approval(tool.as_ref(), &run, scope).await;
            this.post(Input::Job(fence, JobEvent::ApprovalChecked(run.call, verdict)));
        }));
    }

    /// One server tool, under its deadline.
    pub(super) fn run_tool(self: &Rc<Self>, fence: Fence, run: ToolRun) {
        let Some((tool, scope)) = self.tool_of(&fence, &run) else { return };
        let this = self.clone();
        self.start(Box::pin(async move {
            let (call, cancel) = (run.call.clone(), scope.cancel.clone());
            let at_work = this.at_work(&fence);
            let outcome = this.execute(tool, run, scope).await;
            drop(at_work);
            let event = match outcome {
                ToolOutcome::Error(text) | ToolOutcome::Fatal(text) if this.is_out_of_memory(&text, &cancel) => {
                    JobEvent::OutOfMemory(text)
                }
                outcome => JobEvent::ToolEnded(call, outcome),
            };
            this.post(Input::Job(fence, event));
        }));
    }

    /// Whether a call failed because memory ran out, in a turn that may be taken up again.
    fn is_out_of_memory(&self, error: &str, cancel: &Cancel) -> bool {
        Error::tells_of_memory(error) && !cancel.is_tripped() && self.agent.config().chat_recovery.enabled
    }

    /// Hook, tool, hook.
    async fn execute(self: &Rc<Self>, tool: Option<Tool>, run: ToolRun, scope: TurnScope) -> ToolOutcome {
        let Some(tool) = tool else { return ToolOutcome::Error(format!("there is no tool `{}`", run.name)) };
        let call = ToolCall {
            request_id: run.request_id.clone(),
            call_id: run.call.clone(),
            tool_name: run.name.clone(),
            input: run.input.clone(),
            step: run.step,
        };
        let began = self.platform.now();
        let outcome = self.decided(&tool, run, scope, &call).await;
        let elapsed = self.platform.now().since(began);
        self.bounded("after_tool_call", None, self.scoped(Inside::Turn, self.agent.after_tool_call(&call, &outcome, elapsed))).await;
        outcome
    }

    async fn decided(self: &Rc<Self>, tool: &Tool, mut run: ToolRun, scope: TurnScope, call: &ToolCall) -> ToolOutcome {
        if run.approved
            && let Approval::Deny(reason) = self.approval(Some(tool), &run, scope.clone()).await
        {
            // The rules may have become stricter since a person allowed it.
            return ToolOutcome::Error(format!("the tool `{}` may not run any more: {reason}", run.name));
        }
        let hook = self.scoped(Inside::Turn, self.agent.before_tool_call(call));
        match self.deadline("before_tool_call", hook).await.and_then(|decision| decision) {
            Ok(ToolDecision::Allow { input: None }) => {}
            Ok(ToolDecision::Allow { input: Some(other) }) => run.input = other,
            Ok(ToolDecision::Block { reason }) => {
                let reason = reason.unwrap_or_else(|| format!("tool {} was blocked by a policy hook", run.name));
                return ToolOutcome::Output(reason.into());
            }
            Ok(ToolDecision::Substitute { output }) => return ToolOutcome::Output(output),
            Err(error) => return ToolOutcome::Error(error.message().to_owned()),
        }
        if scope.is_cancelled() {
            // The turn was stopped while the hook was asked.
            return ToolOutcome::Error(crate::transcript::repair::ABORTED.into());
        }
        let Some(work) = tool.start(run.input, scope) else {
            return ToolOutcome::Error(format!("the tool `{}` runs in the page", run.name));
        };
        match self.within(run.timeout_ms, self.scoped(Inside::Turn, work)).await {
            Some(Ok(output)) => ToolOutcome::Output(output),
            Some(Err(ToolError::ToModel(text))) => ToolOutcome::Error(text),
            Some(Err(ToolError::Fatal(text))) => ToolOutcome::Fatal(text),
            None => ToolOutcome::Error(format!("tool {} timed out after {} ms", run.name, run.timeout_ms)),
        }
    }

    /// Asks whether a client may decide about a call. A hook that takes too long allows nothing.
    pub(super) fn authorize_approval(self: &Rc<Self>, who: Principal, call: ToolCall, frame: ToolApproval) {
        let this = self.clone();
        self.start(Box::pin(async move {
            let may = this.deadline("authorize_approval", this.agent.authorize_approval(&who, &call)).await;
            let may = may.unwrap_or_else(|late| Decision::Deny(late.message().to_owned()));
            this.post(Input::Command(Command::Decide(who.conn, frame, may), None));
        }));
    }

    pub(super) fn client_tool_settled(self: &Rc<Self>, settled: ClientToolSettled) {
        let this = self.clone();
        self.start(Box::pin(async move {
            this.bounded("on_client_tool_result", None, this.agent.on_client_tool_result(&settled)).await;
        }));
    }

    /// The hook after a turn. It may wait for turns: its own is over.
    pub(super) fn response_hook(self: &Rc<Self>, leg: LegId, chain: u32, response: ChatResponse) {
        let this = self.clone();
        self.owed_hook(leg, async move {
            let handle = AgentHandle::of_hook(this.clone(), chain);
            let hook = this.agent.on_chat_response(&handle, &response);
            if this.within(limits::CHAT_RESPONSE_MS, hook).await.is_none() {
                this.observe(
                    &Event::new("hook:timeout").with("hook", "on_chat_response").with("requestId", response.request_id.as_str()),
                );
            }
        });
    }

    /// Runs an owed hook, unless it runs already: one that outlived a failed step of the engine is not started a second time.
    pub(super) fn owed_hook(self: &Rc<Self>, leg: LegId, hook: impl Future<Output = ()> + 'static) {
        if self.hooks.borrow().contains(&leg) {
            return;
        }
        self.hooks.borrow_mut().push(leg.clone());
        let this = self.clone();
        self.start(Box::pin(async move {
            hook.await;
            this.hooks.borrow_mut().retain(|running| *running != leg);
            this.post(Input::HookEnded(leg));
        }));
    }

    /// Tells the application what became of submissions, one change at a time and in their order, and then whoever waited.
    pub(super) fn submission_status(self: &Rc<Self>, note: StatusNote) {
        self.notes.borrow_mut().push_back(note);
        if self.telling.replace(true) {
            return;
        }
        let this = self.clone();
        self.start(Box::pin(async move {
            loop {
                let next = this.notes.borrow_mut().pop_front();
                let Some(StatusNote { submission, is_news, waiters }) = next else { break };
                if is_news {
                    let hook = this.scoped(Inside::StatusHook, this.agent.on_submission_status(&submission));
                    this.bounded("on_submission_status", None, hook).await;
                }
                for to in waiters {
                    this.reply(to, Ok(Reply::Submission(Some(Box::new(submission.clone())))));
                }
            }
            this.telling.set(false);
        }));
    }

    /// A method called by a client.
    pub(super) fn call(self: &Rc<Self>, conn: ConnId, call: RpcCall) {
        let RpcCall { id, method, args, readonly } = call;
        let callables = self.agent.callables().with_built_in(self.agent.config().callables);
        let method = match callables.get(&method) {
            Ok(method) => method,
            Err(error) => {
                let body = RpcBody::Error(error.message().to_string());
                return self.post(Input::Rpc(conn, RpcReply { id, body }));
            }
        };
        let this = self.clone();
        let (out_conn, out_id, out_runtime) = (conn.clone(), id.clone(), Rc::downgrade(self));
        let out = Rc::new(move |piece| {
            if let Some(runtime) = out_runtime.upgrade() {
                let reply = RpcReply { id: out_id.clone(), body: RpcBody::Chunk(piece) };
                runtime.post(Input::Rpc(out_conn.clone(), reply));
            }
        });
        self.start(Box::pin(async move {
            let handle = AgentHandle::new(this.clone(), readonly);
            let body = match method(Call { args, conn: conn.clone(), handle, out }).await {
                Ok(value) => RpcBody::Done(value),
                Err(error) => RpcBody::Error(error.message().to_string()),
            };
            this.post(Input::Rpc(conn, RpcReply { id, body }));
        }));
    }
}

/// Trips its switch when it goes out of scope.
struct Release(Cancel);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.trip();
    }
}
