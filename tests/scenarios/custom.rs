//! An agent whose every hook a scenario can set, and that writes down which of them were called.

use std::{borrow::Cow, cell::RefCell, fmt::Write, rc::Rc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use serde_json::Value;
use wakeful::{
    engine::events::Event,
    ids::ConnId,
    model::ModelError,
    prelude::*,
    wire::{chunk::Chunk, message::Part},
};

type Hook<I, O> = Rc<dyn Fn(I) -> LocalBoxFuture<'static, O>>;
type Ask<I, O> = Rc<dyn Fn(&I) -> O>;
type Check<I, O> = Rc<dyn Fn(&I) -> Result<O>>;

/// What the hooks saw, a line each; shared by all incarnations.
#[derive(Clone, Default)]
pub struct Seen(Rc<RefCell<Vec<String>>>);

impl Seen {
    pub fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    /// The lines so far, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

#[derive(Clone)]
pub struct Custom {
    pub seen: Seen,
    pub config: Config,
    tools: Rc<dyn Fn(&Turn) -> Tools>,
    callables: Callables,
    before_turn: Option<Hook<Turn, Result<TurnPlan>>>,
    before_step: Option<Hook<u32, ()>>,
    on_response: Option<Hook<(AgentHandle, ChatResponse), ()>>,
    on_message: Option<Hook<(AgentHandle, ConnId, Message), ()>>,
    on_request: Option<Hook<(AgentHandle, HttpRequest), Option<HttpResponse>>>,
    authorize: Option<Hook<(Principal, ToolCall), Decision>>,
    on_status: Option<Hook<SubmissionInspection, ()>>,
    recovery: Option<Hook<(AgentHandle, RecoveryInfo), Result<RecoveryDecision>>>,
    keep: Option<Hook<RecoveryInfo, Result<bool>>>,
    exhausted: Option<Hook<RecoveryExhausted, ()>>,
    repair: Option<Ask<Part, Option<Part>>>,
    class: Option<ErrorClass>,
    wait: Option<ClientToolWait>,
    validate: Option<Check<Value, ()>>,
    tags: Option<Check<ConnRequest, Vec<String>>>,
    chunks: bool,
}

impl Default for Custom {
    fn default() -> Self {
        Self {
            seen: Seen::default(),
            config: Config::default(),
            tools: Rc::new(|_| Tools::new()),
            callables: Callables::new(),
            before_turn: None,
            before_step: None,
            on_response: None,
            on_message: None,
            on_request: None,
            authorize: None,
            on_status: None,
            recovery: None,
            keep: None,
            exhausted: None,
            repair: None,
            class: None,
            wait: None,
            validate: None,
            tags: None,
            chunks: false,
        }
    }
}

/// A tool that takes any object.
pub fn tool<Fut>(name: &str, run: impl Fn(Value, TurnScope) -> Fut + 'static) -> Tool
where
    Fut: Future<Output = Result<Value, ToolError>> + 'static,
{
    Tool::dynamic(name, format!("The tool {name}."), serde_json::json!({ "type": "object" }), run)
}

impl Custom {
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose turns end with their object, and at errors that waiting would mend (decision 37).
    pub fn ending() -> Self {
        Self::new().config(|config| config.chat_recovery.enabled = false)
    }

    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub fn tools(mut self, tools: impl Fn(&Turn) -> Tools + 'static) -> Self {
        self.tools = Rc::new(tools);
        self
    }

    /// One tool that takes any object.
    pub fn tool<Fut>(self, name: &'static str, run: impl Fn(Value, TurnScope) -> Fut + 'static) -> Self
    where
        Fut: Future<Output = Result<Value, ToolError>> + 'static,
    {
        let tool = tool(name, run);
        self.tools(move |_| Tools::new().with(tool.clone()))
    }

    pub fn callables(mut self, callables: Callables) -> Self {
        self.callables = callables;
        self
    }

    pub fn before_turn<Fut: Future<Output = Result<TurnPlan>> + 'static>(mut self, hook: impl Fn(Turn) -> Fut + 'static) -> Self {
        self.before_turn = Some(Rc::new(move |turn| hook(turn).boxed_local()));
        self
    }

    /// Waits for this before each model call; it is given the number of the step.
    pub fn before_step<Fut: Future<Output = ()> + 'static>(mut self, hook: impl Fn(u32) -> Fut + 'static) -> Self {
        self.before_step = Some(Rc::new(move |step| hook(step).boxed_local()));
        self
    }

    pub fn on_recovery(self, decide: impl Fn(&RecoveryInfo) -> RecoveryDecision + 'static) -> Self {
        self.recovery_hook(move |_, turn| std::future::ready(Ok(decide(&turn))))
    }

    pub fn recovery_hook<Fut>(mut self, hook: impl Fn(AgentHandle, RecoveryInfo) -> Fut + 'static) -> Self
    where
        Fut: Future<Output = Result<RecoveryDecision>> + 'static,
    {
        self.recovery = Some(Rc::new(move |(handle, turn)| hook(handle, turn).boxed_local()));
        self
    }

    pub fn keeps_recovering(self, keep: impl Fn(&RecoveryInfo) -> bool + 'static) -> Self {
        self.keep_hook(move |turn| std::future::ready(Ok(keep(&turn))))
    }

    pub fn keep_hook<Fut: Future<Output = Result<bool>> + 'static>(mut self, hook: impl Fn(RecoveryInfo) -> Fut + 'static) -> Self {
        self.keep = Some(Rc::new(move |turn| hook(turn).boxed_local()));
        self
    }

    pub fn exhausted_hook<Fut: Future<Output = ()> + 'static>(mut self, hook: impl Fn(RecoveryExhausted) -> Fut + 'static) -> Self {
        self.exhausted = Some(Rc::new(move |turn| hook(turn).boxed_local()));
        self
    }

    pub fn repairs(mut self, hook: impl Fn(&Part) -> Option<Part> + 'static) -> Self {
        self.repair = Some(Rc::new(hook));
        self
    }

    /// What every failed model call is taken for.
    pub fn classifies(mut self, class: ErrorClass) -> Self {
        self.class = Some(class);
        self
    }

    pub fn on_response<Fut: Future<Output = ()> + 'static>(
        mut self,
        hook: impl Fn(AgentHandle, ChatResponse) -> Fut + 'static,
    ) -> Self {
        self.on_response = Some(Rc::new(move |(handle, response)| hook(handle, response).boxed_local()));
        self
    }

    pub fn on_message<Fut: Future<Output = ()> + 'static>(
        mut self,
        hook: impl Fn(AgentHandle, ConnId, Message) -> Fut + 'static,
    ) -> Self {
        self.on_message = Some(Rc::new(move |(handle, conn, message)| hook(handle, conn, message).boxed_local()));
        self
    }

    pub fn on_request<Fut>(mut self, hook: impl Fn(AgentHandle, HttpRequest) -> Fut + 'static) -> Self
    where
        Fut: Future<Output = Option<HttpResponse>> + 'static,
    {
        self.on_request = Some(Rc::new(move |(handle, request)| hook(handle, request).boxed_local()));
        self
    }

    pub fn authorize<Fut: Future<Output = Decision> + 'static>(mut self, hook: impl Fn(Principal, ToolCall) -> Fut + 'static) -> Self {
        self.authorize = Some(Rc::new(move |(who, call)| hook(who, call).boxed_local()));
        self
    }

    pub fn on_status<Fut: Future<Output = ()> + 'static>(mut self, hook: impl Fn(SubmissionInspection) -> Fut + 'static) -> Self {
        self.on_status = Some(Rc::new(move |submission| hook(submission).boxed_local()));
        self
    }

    /// How long any page's tool is waited for.
    pub fn wait(mut self, wait: ClientToolWait) -> Self {
        self.wait = Some(wait);
        self
    }

    pub fn validate(mut self, check: impl Fn(&Value) -> Result<()> + 'static) -> Self {
        self.validate = Some(Rc::new(check));
        self
    }

    pub fn tags(mut self, tags: impl Fn(&ConnRequest) -> Result<Vec<String>> + 'static) -> Self {
        self.tags = Some(Rc::new(tags));
        self
    }

    /// Also writes down every chunk.
    pub fn seeing_chunks(mut self) -> Self {
        self.chunks = true;
        self
    }
}

impl Agent for Custom {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn instructions(&self, _: &Turn) -> Cow<'static, str> {
        "Be brief.".into()
    }

    fn tools(&self, turn: &Turn) -> Tools {
        (self.tools)(turn)
    }

    fn config(&self) -> Config {
        self.config.clone()
    }

    fn client_tool_wait(&self, _: &str) -> Option<ClientToolWait> {
        self.wait
    }

    async fn authorize_approval(&self, who: &Principal, call: &ToolCall) -> Decision {
        match &self.authorize {
            Some(hook) => hook((who.clone(), call.clone())).await,
            None => Decision::Allow,
        }
    }

    async fn on_client_tool_result(&self, settled: &ClientToolSettled) {
        let outcome = match &settled.outcome {
            Ok(output) => output.to_string(),
            Err(error) => error.clone(),
        };
        self.seen.add(format!("client tool {} {outcome}", settled.tool_name));
    }

    async fn on_chat_recovery(&self, handle: &AgentHandle, turn: &RecoveryInfo) -> Result<RecoveryDecision> {
        match &self.recovery {
            Some(hook) => hook((handle.clone(), turn.clone())).await,
            None => Ok(RecoveryDecision::default()),
        }
    }

    async fn should_keep_recovering(&self, turn: &RecoveryInfo) -> Result<bool> {
        match &self.keep {
            Some(hook) => hook(turn.clone()).await,
            None => Ok(true),
        }
    }

    async fn on_exhausted(&self, turn: &RecoveryExhausted) {
        self.seen.add(format!("exhausted {}", turn.reason.as_str()));
        if let Some(hook) = &self.exhausted {
            hook(turn.clone()).await;
        }
    }

    fn repair_interrupted_tool_part(&self, part: &Part) -> Option<Part> {
        self.repair.as_ref().and_then(|repair| repair(part))
    }

    fn classify_chat_error(&self, _: &ModelError, _: &ChatErrorContext) -> Option<ErrorClass> {
        self.class
    }

    async fn before_turn(&self, turn: &Turn) -> Result<TurnPlan> {
        match &self.before_turn {
            Some(hook) => hook(turn.clone()).await,
            None => Ok(TurnPlan::default()),
        }
    }

    async fn before_step(&self, step: &Step) -> Result<StepPlan> {
        if let Some(hook) = &self.before_step {
            hook(step.step).await;
        }
        Ok(StepPlan::default())
    }

    fn on_chunk(&self, chunk: &Chunk) {
        if self.chunks {
            self.seen.add(format!("chunk {}", chunk.json()));
        }
    }

    async fn on_chat_response(&self, handle: &AgentHandle, response: &ChatResponse) {
        let mut line = format!("response {} {}", response.request_id, response.status.as_str());
        if let Some(message) = &response.message {
            let _ = write!(line, " {:?}", message.text());
        }
        if let Some(error) = &response.error {
            let _ = write!(line, " error {error:?}");
        }
        if response.continuation {
            line.push_str(" continuation");
        }
        if response.recovered {
            line.push_str(" recovered");
        }
        self.seen.add(line);
        if let Some(hook) = &self.on_response {
            hook((handle.clone(), response.clone())).await;
        }
    }

    async fn on_submission_status(&self, submission: &SubmissionInspection) {
        if let Some(hook) = &self.on_status {
            hook(submission.clone()).await;
        }
        self.seen.add(format!("submission {} {}", submission.submission_id, submission.status.as_str()));
    }

    fn on_chat_error(&self, error: &ModelError, context: &ChatErrorContext) -> String {
        self.seen.add(format!("error {:?}", error.class));
        if context.stage == Stage::Parse { error.message.clone() } else { wakeful::model::classify::public_message(error) }
    }

    fn on_event(&self, _: &Event) {}

    async fn on_request(&self, handle: &AgentHandle, request: &HttpRequest) -> Option<HttpResponse> {
        match &self.on_request {
            Some(hook) => hook((handle.clone(), request.clone())).await,
            None => None,
        }
    }

    fn connection_tags(&self, request: &ConnRequest) -> Result<Vec<String>> {
        self.tags.as_ref().map_or(Ok(Vec::new()), |tags| tags(request))
    }

    /// `?readonly` in the address.
    fn is_readonly(&self, request: &ConnRequest) -> bool {
        request.request.url.contains("readonly")
    }

    /// Not with `?quiet` in the address.
    fn sends_protocol(&self, request: &ConnRequest) -> bool {
        !request.request.url.contains("quiet")
    }

    async fn on_connect(&self, _: &AgentHandle, conn: &ConnId) {
        self.seen.add(format!("connect {conn}"));
    }

    async fn on_message(&self, handle: &AgentHandle, conn: &ConnId, message: &Message) {
        self.seen.add(match message {
            Message::Text(text) => format!("text {text}"),
            Message::Binary(bytes) => format!("binary {bytes:?}"),
        });
        if let Some(hook) = &self.on_message {
            hook((handle.clone(), conn.clone(), message.clone())).await;
        }
    }

    async fn on_close(&self, _: &AgentHandle, conn: &ConnId, code: u16, reason: &str) {
        self.seen.add(format!("close {conn} {code} {reason}"));
    }

    fn validate_state(&self, state: &Value, _: &ConnId) -> Result<()> {
        self.validate.as_ref().map_or(Ok(()), |check| check(state))
    }

    async fn on_state_changed(&self, _: &AgentHandle, state: &Value, by: Option<&ConnId>) {
        self.seen.add(format!("state {state} by {}", by.map_or("the agent", |conn| conn.as_str())));
    }

    fn callables(&self) -> Callables {
        self.callables.clone()
    }
}
