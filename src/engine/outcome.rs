//! What a step asks the world to do after its commit, and the context a step runs in.

use std::rc::Rc;

use serde_json::Value;

use super::{
    client_tools::ClientTool,
    events::Event,
    input::{Answer, JobEvent, ReplyTo},
    submissions::SubmissionInspection,
};
use crate::{
    error::Result,
    ids::{CallId, ConnId, Fence, LegId, MessageId, RequestId},
    model::{ErrorClass, FinishReason, ModelRequest, Usage},
    rng::Rng,
    store::Sql,
    time::Millis,
    wire::{
        ToolApproval,
        message::{Part, UiMessage, part_type, str_field, tool_name},
    },
};

/// Something to do once the rows are committed, in order.
pub enum Effect {
    /// Send one frame to these sockets; written once, shared by all.
    Send(Vec<ConnId>, Rc<str>),
    /// Close a socket.
    Close(ConnId, u16, String),
    /// Ask the agent how the turn is to run.
    Prepare(Fence, Box<TurnInfo>),
    /// Confirm that the attempt is on disk, then report [`JobEvent::Recover`].
    Confirm(Fence),
    /// Ask the application about an interrupted turn; whether its own budget is asked for too.
    RecoveryHook(Fence, bool, Box<RecoveryInfo>),
    /// Run `on_exhausted` for this turn.
    Exhausted(LegId, Box<RecoveryExhausted>),
    /// Ask the application what becomes of calls that nobody will answer, each with its message.
    RepairParts(Fence, Vec<(MessageId, Part)>),
    /// Call the model for this step, counted from 1.
    CallModel(Fence, u32, Box<ModelRequest>),
    /// Ask the application to mend the input of a call that its tool does not take.
    RepairCall(Fence, Box<ToolCall>, String),
    /// Tell the application that a step has ended.
    StepFinished(Fence, Box<StepResult>),
    /// Tell a client that its request is not run: why, in the application's words.
    Refuse(ConnId, RequestId, String),
    /// Ask the predicate of a tool whether a call may run.
    CheckApproval(Fence, Box<ToolRun>),
    /// Run a server tool.
    RunTool(Fence, Box<ToolRun>),
    /// Stop what the turn has running.
    Cancel(Fence),
    /// Report an event after a while.
    Timer(Fence, JobEvent, u32),
    /// Step an [`Input::Wake`](super::input::Input::Wake) after so many milliseconds.
    Wake(u32),
    /// Answer a waiting caller.
    Reply(ReplyTo, Result<Answer>),
    /// Let the application check a client's state.
    ValidateState(ConnId, Value),
    /// Tell the application that the state changed.
    StateChanged(Value, Option<ConnId>),
    /// Run a callable.
    Call(ConnId, RpcCall),
    /// Hand a frame of its own to the application.
    Message(ConnId, Box<str>),
    /// Ask the application whether this client may decide about a call.
    AuthorizeApproval(Principal, Box<ToolCall>, ToolApproval),
    /// Tell the application that a page answered a call.
    ClientToolSettled(Box<ClientToolSettled>),
    /// Run `on_chat_response` for this leg; the number is that of the chain its own turns belong to.
    ResponseHook(LegId, u32, Box<ChatResponse>),
    /// Call `on_submission_status`, then answer who waited.
    SubmissionStatus(Box<StatusNote>),
    /// Show a chunk to the `on_chunk` hook.
    Observe(crate::wire::chunk::Chunk),
    /// Log an event.
    Emit(Event),
}

/// A call of a callable.
#[derive(Clone, Debug)]
pub struct RpcCall {
    /// The caller's id of it.
    pub id: String,
    /// The method.
    pub method: String,
    /// The arguments.
    pub args: Vec<Value>,
    /// Whether the caller may change nothing.
    pub readonly: bool,
}

/// A server tool to run.
#[derive(Clone, Debug)]
pub struct ToolRun {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub name: String,
    /// Its input; valid by its schema.
    pub input: Value,
    /// How long it may run.
    pub timeout_ms: u32,
    /// The step, from 1.
    pub step: u32,
    /// The request it belongs to.
    pub request_id: RequestId,
    /// Names this call for ever: `turn/message/call`. For tools that can be told not to do a thing twice.
    pub idempotency_key: String,
    /// Whether a person allowed it.
    pub approved: bool,
}

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The socket.
    pub conn: ConnId,
    /// The `_pk` it chose. A label: anybody may choose any.
    pub label: String,
}

/// A call, as hooks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The request it belongs to.
    pub request_id: RequestId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool_name: String,
    /// Its input.
    pub input: Value,
    /// The model call that asked for it, from 1.
    pub step: u32,
}

/// A call that a page answered, or that nobody answered in time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientToolSettled {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool_name: String,
    /// Who answered: `ws:` and the socket, or `timeout`.
    pub by: String,
    /// The output, or the text of an error.
    pub outcome: std::result::Result<Value, String>,
}

/// A step that has ended: one model call and what came of the calls it made.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// The step, from 1.
    pub step: u32,
    /// Why the model stopped.
    pub finish_reason: FinishReason,
    /// The tokens of this step.
    pub usage: Usage,
    /// What was added to the message in it: text, reasoning, calls with their results, data.
    pub parts: Vec<Part>,
}

impl StepResult {
    /// The text of the step.
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| part_type(part) == "text").filter_map(|part| str_field(part, "text")).collect()
    }

    /// The names of the tools it called, in order.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(tool_name)
    }
}

/// How an interrupted turn goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryKind {
    /// It begins anew: nothing of its answer is there.
    Retry,
    /// In the message it began.
    Continue,
}

impl RecoveryKind {
    /// Its name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            RecoveryKind::Retry => "retry",
            RecoveryKind::Continue => "continue",
        }
    }
}

/// An interrupted turn, as hooks see it.
#[derive(Clone, Debug)]
pub struct RecoveryInfo {
    /// Names the interruption and everything that follows from it: the turn.
    pub incident_id: String,
    /// The id its leg was asked for under.
    pub root_request_id: String,
    /// The id of this attempt.
    pub request_id: String,
    /// The attempt since the last progress, from 1.
    pub attempt: u32,
    /// How many there may be.
    pub max_attempts: u32,
    /// How it goes on.
    pub kind: RecoveryKind,
    /// The log of the last attempt that wrote one; empty if none did.
    pub stream_id: String,
    /// The text so far.
    pub partial_text: String,
    /// What there is of the message.
    pub partial_parts: Vec<Part>,
    /// What the application kept last with [`TurnScope::stash`](crate::agent::handle::TurnScope::stash).
    pub recovery_data: Option<Value>,
    /// The custom fields of the request; untrusted.
    pub body: Option<Value>,
    /// The tools of the page that asked; untrusted.
    pub client_tools: Vec<ClientTool>,
    /// When the leg was admitted: for an application that lets old turns rest.
    pub created_at: Millis,
    /// Milliseconds since then.
    pub age_ms: i64,
    /// Segments written since the first interruption.
    pub work: i64,
}

/// A turn that was given up, as hooks see it. Told at least once, with the same `incident_id`.
#[derive(Clone, Debug)]
pub struct RecoveryExhausted {
    /// The turn.
    pub incident_id: String,
    /// The id its leg was asked for under.
    pub root_request_id: String,
    /// The id of its last attempt.
    pub request_id: String,
    /// The attempt since the last progress, from 1.
    pub attempt: u32,
    /// How many there may be.
    pub max_attempts: u32,
    /// How it would have gone on.
    pub kind: RecoveryKind,
    /// The log of the last attempt that wrote one; empty if none did.
    pub stream_id: String,
    /// When the leg was admitted.
    pub created_at: Millis,
    /// Why.
    pub reason: super::budget::Reason,
    /// What clients are shown.
    pub terminal_message: String,
    /// The text so far.
    pub partial_text: String,
    /// What there is of the message, as it is stored.
    pub partial_parts: Vec<Part>,
}

/// Where an error came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request of a client could not be understood, or may not be run. Nothing of it is stored.
    Parse,
    /// The agent could not say how the turn is to run, or did not allow it.
    Turn,
    /// A model call or a tool failed.
    Stream,
}

impl Stage {
    /// Its name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Parse => "parse",
            Stage::Turn => "turn",
            Stage::Stream => "stream",
        }
    }
}

/// What `on_chat_error` learns besides the error.
#[derive(Clone, Debug)]
pub struct ChatErrorContext {
    /// The request.
    pub request_id: String,
    /// Where it came up.
    pub stage: Stage,
    /// Whether the messages of the request are stored.
    pub messages_persisted: bool,
    /// Whether the turn extends an earlier message.
    pub continuation: bool,
    /// What the error was taken for.
    pub classification: ErrorClass,
}

/// What hooks learn about a turn.
#[derive(Clone, Debug, Default)]
pub struct TurnInfo {
    /// The id clients know it by.
    pub request_id: String,
    /// Who started it.
    pub trigger: String,
    /// Whether it extends an earlier message.
    pub continuation: bool,
    /// The custom fields of the request; untrusted.
    pub body: Option<Value>,
    /// The tools of the page that asked; untrusted.
    pub client_tools: Vec<ClientTool>,
}

/// What `on_chat_response` is called with.
#[derive(Clone, Debug)]
pub struct ChatResponse {
    /// The id clients knew the turn by.
    pub request_id: String,
    /// The reply as stored, if there is one.
    pub message: Option<UiMessage>,
    /// Whether it extended an earlier message.
    pub continuation: bool,
    /// How it ended: `completed`, `error` or `aborted`.
    pub status: super::input::TurnStatus,
    /// The text clients were shown, if it failed.
    pub error: Option<String>,
    /// Whether the hook is called again because the object died during the first call.
    pub recovered: bool,
}

/// A submission changed its status, or somebody waits for one that is final.
#[derive(Clone, Debug)]
pub struct StatusNote {
    /// The submission.
    pub submission: SubmissionInspection,
    /// Whether the hook is to be called. The notes are worked off in order, so that nobody is answered before it returned.
    pub is_news: bool,
    /// Who waited for its end.
    pub waiters: Vec<ReplyTo>,
}

/// What to do with the one alarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlarmPlan {
    /// Leave it.
    #[default]
    Keep,
    /// Set it.
    Set(Millis),
    /// Clear it.
    Clear,
}

/// The result of one step.
#[derive(Default)]
pub struct Outcome {
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// The alarm, armed in the same synchronous stretch as the commit.
    pub alarm: AlarmPlan,
}

/// What a step runs in: the open transaction, the time, the generator, and where its effects go.
pub struct Cx<'a> {
    /// The database, inside the transaction of this step.
    pub db: &'a dyn Sql,
    /// The time of this step.
    pub now: Millis,
    /// The generator of ids.
    pub rng: &'a mut Rng,
    /// Where effects go.
    pub out: &'a mut Outcome,
}

impl Cx<'_> {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Sends a frame to these sockets, if there are any.
    pub fn send(&mut self, to: Vec<ConnId>, frame: impl Into<Rc<str>>) {
        if !to.is_empty() {
            self.push(Effect::Send(to, frame.into()));
        }
    }

    /// Sends a frame to one socket.
    pub fn send_one(&mut self, to: &ConnId, frame: impl Into<Rc<str>>) {
        self.push(Effect::Send(vec![to.clone()], frame.into()));
    }

    /// Logs an event.
    pub fn emit(&mut self, event: Event) {
        self.push(Effect::Emit(event));
    }

    /// Logs that a frame was not acted on.
    pub fn ignored(&mut self, conn: &ConnId, kind: &str, reason: &str) {
        self.emit(Event::new("frame:ignored").with("type", kind).with("reason", reason).with("connection", conn.as_str()));
    }
}
