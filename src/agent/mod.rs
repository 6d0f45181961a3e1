//! What an application writes: one type that implements [`Agent`], with one required method.
//!
//! The trait has no `Env` and no runtime type, so the same agent runs in a Durable Object and in a unit test.

pub mod callable;
pub mod handle;
pub mod submissions;
pub mod tool;
pub mod turn;

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    Config,
    engine::{
        events::Event,
        input::{Decision, RecoveryDecision, ToolOutcome},
        outcome::{
            ChatErrorContext, ChatResponse, ClientToolSettled, Principal, RecoveryExhausted, RecoveryInfo, Stage, StepResult, ToolCall,
        },
        submissions::SubmissionInspection,
    },
    error::Result,
    ids::ConnId,
    model::{ErrorClass, ModelError, ModelRef, classify},
    runtime::{
        ConnRequest,
        platform::{HttpRequest, HttpResponse},
    },
    wire::{chunk::Chunk, message::Part},
};
use callable::Callables;
use handle::AgentHandle;
use tool::{ClientToolWait, Tools};
use turn::{Step, StepPlan, ToolDecision, Turn, TurnPlan};

/// The system prompt of an agent that has none of its own.
pub const DEFAULT_INSTRUCTIONS: &str = "You are a helpful assistant. Answer briefly and truthfully; say so when you do not know.";

/// A message of the application's own protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A text frame that is no frame of the chat protocol.
    Text(String),
    /// A binary frame.
    Binary(Vec<u8>),
}

/// A chat agent. Every method but [`model`](Agent::model) has a default.
///
/// ```
/// use wakeful::prelude::*;
///
/// struct Helper;
///
/// impl Agent for Helper {
///     fn model(&self, _: &Turn) -> ModelRef {
///         "workers-ai/@cf/moonshotai/kimi-k2.5".into()
///     }
/// }
/// ```
#[allow(async_fn_in_trait)] // single-threaded by nature: no future of an object is ever sent
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    note = "implement `wakeful::Agent` for it: `fn model(&self, _: &Turn) -> ModelRef` is the one required method"
)]
pub trait Agent: 'static {
    /// Which model answers this turn.
    fn model(&self, turn: &Turn) -> ModelRef;

    /// The system prompt.
    fn instructions(&self, _turn: &Turn) -> Cow<'static, str> {
        DEFAULT_INSTRUCTIONS.into()
    }

    /// What the model may call.
    fn tools(&self, _turn: &Turn) -> Tools {
        Tools::new()
    }

    /// How long the page may take for this tool of its own. `None` leaves it to the tool.
    fn client_tool_wait(&self, _name: &str) -> Option<ClientToolWait> {
        None
    }

    /// Whether this client may allow or deny this call. Everybody may whose connection is not read-only. No answer within
    /// [`Config::hook_deadline_ms`] is a no.
    async fn authorize_approval(&self, _who: &Principal, _call: &ToolCall) -> Decision {
        Decision::Allow
    }

    /// A page answered a call of one of its tools, or did not in time. Its answer is stored and shown by now.
    async fn on_client_tool_result(&self, _settled: &ClientToolSettled) {}

    /// The agent's choices. Asked when the object starts and wherever one of its numbers is needed: it should always say the same.
    fn config(&self) -> Config {
        Config::default()
    }

    /// Changes how this turn is to run. An error ends the turn before any model call; so does more than
    /// [`crate::limits::BEFORE_TURN_MS`].
    async fn before_turn(&self, _turn: &Turn) -> Result<TurnPlan> {
        Ok(TurnPlan::default())
    }

    /// Whether this turn may run. Asked once [`before_turn`](Agent::before_turn) has spoken; a denial ends the turn with its reason,
    /// and so does no answer within [`Config::hook_deadline_ms`].
    async fn authorize_turn(&self, _turn: &Turn) -> Decision {
        Decision::Allow
    }

    /// Changes one model call. An error ends the turn; so does more than [`Config::hook_deadline_ms`].
    async fn before_step(&self, _step: &Step) -> Result<StepPlan> {
        Ok(StepPlan::default())
    }

    /// The model gave a tool an input that it does not take: another one, or `None` to tell the model. Asked once for a call.
    async fn repair_tool_call(&self, _call: &ToolCall, _error: &str) -> Option<Value> {
        None
    }

    /// A tool is about to run here. An error becomes the error of the call, and so does more than [`Config::hook_deadline_ms`].
    async fn before_tool_call(&self, _call: &ToolCall) -> Result<ToolDecision> {
        Ok(ToolDecision::Allow { input: None })
    }

    /// A tool ran here, or was blocked or replaced: what came of it, after so many milliseconds. The model is told afterwards.
    async fn after_tool_call(&self, _call: &ToolCall, _outcome: &ToolOutcome, _elapsed_ms: i64) {}

    /// A step has ended. Nothing waits for this.
    async fn on_step_finish(&self, _turn: &Turn, _step: &StepResult) {}

    /// Sees every chunk of an answer. Must not block: the stream waits for it.
    fn on_chunk(&self, _chunk: &Chunk) {}

    /// A turn ended and the next one may run. Called at least once for each turn that produced or attempted a reply; again, with
    /// `recovered`, if the object died meanwhile.
    async fn on_chat_response(&self, _handle: &AgentHandle, _response: &ChatResponse) {}

    /// A submission was accepted, started or ended. Called once for each change, in their order; a change that the object died with is
    /// not told again. Who waits for a submission is answered when this returned, so it may not wait for one itself.
    async fn on_submission_status(&self, _submission: &SubmissionInspection) {}

    /// The text clients are shown for an error. The default says what to do and adds the provider's own words, scrubbed.
    fn on_chat_error(&self, error: &ModelError, context: &ChatErrorContext) -> String {
        match context.stage {
            Stage::Parse => error.message.clone(),
            Stage::Turn | Stage::Stream => classify::public_message(error),
        }
    }

    /// What a failed model call is to be taken for; `None` leaves it to the built-in table. `RateLimit` and `Transient` are tried
    /// again silently as long as nobody saw anything of the answer (decision 34), and recovered like a death after that.
    fn classify_chat_error(&self, _error: &ModelError, _context: &ChatErrorContext) -> Option<ErrorClass> {
        None
    }

    /// The object died in the middle of an answer, or the provider failed in a way that waiting may mend: what becomes of it. The
    /// default keeps what there is and goes on; an application that lets old turns rest looks at
    /// [`created_at`](RecoveryInfo::created_at). An error ends the turn; no answer within [`Config::hook_deadline_ms`] is the default.
    async fn on_chat_recovery(&self, _handle: &AgentHandle, _turn: &RecoveryInfo) -> Result<RecoveryDecision> {
        Ok(RecoveryDecision::default())
    }

    /// Whether an interrupted turn is worth another attempt, from the second one on: the application's own budget. An error is a yes,
    /// and so is no answer within [`Config::hook_deadline_ms`].
    async fn should_keep_recovering(&self, _turn: &RecoveryInfo) -> Result<bool> {
        Ok(true)
    }

    /// A turn was given up: a bound of [`Config::chat_recovery`] was reached. Clients are told by then. Called at least once.
    async fn on_exhausted(&self, _turn: &RecoveryExhausted) {}

    /// What stands in the place of a call that nobody will answer: the call with an answer, or another kind of part. `None` tells the
    /// model that it was interrupted. Must not block.
    ///
    /// ```
    /// # use wakeful::{prelude::*, wire::message::Part};
    /// # struct MyAgent;
    /// # impl Agent for MyAgent {
    /// #     fn model(&self, _: &Turn) -> ModelRef { "demo".into() }
    /// fn repair_interrupted_tool_part(&self, part: &Part) -> Option<Part> {
    ///     // A question that was never answered becomes what the assistant said.
    ///     let question = part.get("input")?.get("prompt")?.clone();
    ///     (part["type"] == "tool-ask_user").then(|| Part::from_iter([("type".into(), "text".into()), ("text".into(), question)]))
    /// }
    /// # }
    /// ```
    fn repair_interrupted_tool_part(&self, _part: &Part) -> Option<Part> {
        None
    }

    /// Sees every event. No event carries message content.
    fn on_event(&self, _event: &Event) {}

    /// An HTTP request to the object that is not `get-messages`. `None` answers 404.
    async fn on_request(&self, _handle: &AgentHandle, _request: &HttpRequest) -> Option<HttpResponse> {
        None
    }

    /// Tags of a new socket, at most 9 of at most 256 characters. An error refuses the connection.
    fn connection_tags(&self, _request: &ConnRequest) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Whether a connection may change nothing.
    fn is_readonly(&self, _request: &ConnRequest) -> bool {
        false
    }

    /// Whether a connection gets identity, state and MCP frames.
    fn sends_protocol(&self, _request: &ConnRequest) -> bool {
        true
    }

    /// A socket is connected and got its first frames.
    async fn on_connect(&self, _handle: &AgentHandle, _conn: &ConnId) {}

    /// A frame that is none of the chat protocol.
    async fn on_message(&self, _handle: &AgentHandle, _conn: &ConnId, _message: &Message) {}

    /// A socket is gone.
    async fn on_close(&self, _handle: &AgentHandle, _conn: &ConnId, _code: u16, _reason: &str) {}

    /// Whether a client may set this state. Asked only where [`Config::client_state`] is open.
    fn validate_state(&self, _state: &Value, _conn: &ConnId) -> Result<()> {
        Ok(())
    }

    /// The shared state changed; by a client if there is a connection.
    async fn on_state_changed(&self, _handle: &AgentHandle, _state: &Value, _by: Option<&ConnId>) {}

    /// What clients may call by name. An allow-list: nothing else is reachable.
    fn callables(&self) -> Callables {
        Callables::new()
    }
}
