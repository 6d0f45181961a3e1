//! The neutral model: what a model call is asked and what it answers, whatever the provider speaks.
//!
//! Pure values. A codec ([`codec`]) turns a [`ModelRequest`] into bytes and bytes into [`ModelEvent`]s; neither knows a socket
//! or a clock. JSON at the wire stays untyped: a closed type breaks on the first server that adds a field.

pub mod classify;
pub mod codec;
pub mod demo;
pub mod openai_chat;
pub mod profile;
pub mod sse;
pub mod workers_ai;

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which model answers: `provider/model`, with the address and key where the provider needs them.
///
/// ```
/// use wakeful::model::ModelRef;
/// let model: ModelRef = "openai-compatible/qwen3".into();
/// let model = model.base_url("http://127.0.0.1:11434/v1").api_key("none");
/// assert_eq!(model.provider, "openai-compatible");
/// assert_eq!(model.model, "qwen3");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRef {
    /// `workers-ai`, `openai`, `openai-chat`, `openai-compatible`, `demo`, or a name of [`profile`].
    pub provider: String,
    /// The provider's own name of the model.
    pub model: String,
    /// Overrides the provider's address.
    pub base_url: Option<String>,
    /// Sent as the provider wants it; never logged, never shown.
    pub api_key: Option<String>,
    /// Headers added to each request.
    pub headers: Vec<(String, String)>,
    /// Fields merged into the request body last.
    pub options: Option<Value>,
}

impl ModelRef {
    /// Overrides the provider's address.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The provider's key.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// One more header on each request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Fields merged into the request body last, for what this crate has no name for.
    pub fn options(mut self, options: Value) -> Self {
        self.options = Some(options);
        self
    }
}

impl From<&str> for ModelRef {
    fn from(text: &str) -> Self {
        let (provider, model) = text.split_once('/').unwrap_or((text, ""));
        Self { provider: provider.into(), model: model.into(), ..Self::default() }
    }
}

impl From<String> for ModelRef {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// One model call.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// Who answers.
    pub model: ModelRef,
    /// The system prompt; empty for none.
    pub system: String,
    /// The conversation, oldest first. Shared: every step of a turn starts with the same history.
    pub messages: Vec<Rc<Msg>>,
    /// What the model may call, in the order they were registered.
    pub tools: Rc<[ToolSpec]>,
    /// Whether it must.
    pub tool_choice: ToolChoice,
    /// Most tokens of the answer.
    pub max_output: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// How much to think.
    pub reasoning: Reasoning,
    /// A stable name of the conversation, for prefix caches.
    pub session_key: String,
}

/// Whether and what the model must call.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// Something.
    Required,
    /// This tool.
    Named(String),
}

/// How much the model should think before it answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reasoning {
    /// As the provider does by itself.
    #[default]
    Default,
    /// Not at all, where the model allows it.
    Off,
    /// `minimal`, `low`, `medium`, `high`, `xhigh`.
    Effort(String),
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// `^[a-zA-Z0-9_-]{1,64}$`.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of its input; an object.
    pub input_schema: Value,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Msg {
    /// From the person.
    User(Vec<UserPart>),
    /// From the model.
    Assistant(Vec<AssistantPart>),
    /// Results of the calls of the assistant message before it, in the order of the calls.
    Tool(Vec<ToolResult>),
}

impl Msg {
    /// Whether a call of this id is made in it.
    pub fn has_call(&self, id: &str) -> bool {
        let Msg::Assistant(parts) = self else { return false };
        parts.iter().any(|part| matches!(part, AssistantPart::ToolCall { id: of, .. } if of == id))
    }
}

/// A piece of a user message.
#[derive(Clone, Debug, PartialEq)]
pub enum UserPart {
    /// Text.
    Text(String),
    /// A file: a `data:` or `https:` address.
    File {
        /// Its media type.
        media_type: String,
        /// Where its bytes are.
        url: String,
        /// Its name, if it has one.
        filename: Option<String>,
    },
}

/// A piece of an assistant message. `meta` is the stored `providerMetadata` with its namespaces.
#[derive(Clone, Debug, PartialEq)]
pub enum AssistantPart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Provider metadata.
        meta: Option<Value>,
    },
    /// Reasoning.
    Reasoning {
        /// The text; may be empty where only metadata is left.
        text: String,
        /// Provider metadata.
        meta: Option<Value>,
    },
    /// A call.
    ToolCall {
        /// Equal to the id of its result.
        id: String,
        /// The tool.
        name: String,
        /// Its input; an object.
        input: Value,
        /// Provider metadata.
        meta: Option<Value>,
    },
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What came out.
    pub output: ToolOutput,
}

/// What came out of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutput {
    /// A string result.
    Text(String),
    /// Any other result.
    Json(Value),
    /// It failed, with this text.
    Error(String),
    /// It was not allowed, with the reason if there was one.
    Denied(Option<String>),
}

/// What a model says while it answers, in order. `slot` numbers the calls of one step from 0: providers repeat and forget ids.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The provider's id of the answer and the model that gives it.
    Meta {
        /// The id of the answer.
        id: Option<String>,
        /// The model's own name of itself.
        model: Option<String>,
    },
    /// A text block begins. Blocks follow each other, they never overlap.
    TextStart,
    /// More text.
    TextDelta(String),
    /// The text block ends.
    TextEnd {
        /// Provider metadata of the block.
        meta: Option<Value>,
    },
    /// A reasoning block begins.
    ReasoningStart,
    /// More reasoning.
    ReasoningDelta(String),
    /// The reasoning block ends.
    ReasoningEnd {
        /// Provider metadata of the block (signatures and the like).
        meta: Option<Value>,
    },
    /// A call begins.
    ToolInputStart {
        /// Its place in the step.
        slot: u32,
        /// The provider's id; may be empty or repeated.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of its arguments, as text.
    ToolInputDelta {
        /// Its place in the step.
        slot: u32,
        /// A piece of JSON text.
        text: String,
    },
    /// A call is complete. `input` is an object.
    ToolCall {
        /// Its place in the step.
        slot: u32,
        /// The provider's id; may be empty or repeated.
        id: String,
        /// The tool.
        name: String,
        /// Its input.
        input: Value,
        /// Provider metadata to echo.
        meta: Option<Value>,
    },
    /// A call whose arguments are no JSON object.
    ToolInputError {
        /// Its place in the step.
        slot: u32,
        /// The provider's id; may be empty or repeated.
        id: String,
        /// The tool.
        name: String,
        /// The arguments as they came.
        raw: String,
        /// What is wrong with them.
        message: String,
    },
    /// A source the answer rests on.
    Source {
        /// Its address.
        url: String,
        /// Its title.
        title: Option<String>,
    },
    /// A generated file.
    File {
        /// Its media type.
        media_type: String,
        /// A `data:` or `https:` address.
        url: String,
    },
    /// Something odd that was put right; for the log.
    Warning(String),
    /// What the call cost so far; the last one counts.
    Usage(Usage),
}

impl ModelEvent {
    /// Whether a client would see something of it. Once one was shown, the call is not silently repeated (decision 34), and only
    /// these prove that the provider is alive (decision 39).
    pub fn is_content(&self) -> bool {
        match self {
            ModelEvent::TextDelta(text) | ModelEvent::ReasoningDelta(text) | ModelEvent::ToolInputDelta { text, .. } => {
                !text.is_empty()
            }
            ModelEvent::ToolInputStart { .. }
            | ModelEvent::ToolCall { .. }
            | ModelEvent::ToolInputError { .. }
            | ModelEvent::Source { .. }
            | ModelEvent::File { .. } => true,
            ModelEvent::Meta { .. }
            | ModelEvent::TextStart
            | ModelEvent::TextEnd { .. }
            | ModelEvent::ReasoningStart
            | ModelEvent::ReasoningEnd { .. }
            | ModelEvent::Warning(_)
            | ModelEvent::Usage(_) => false,
        }
    }
}

/// Tokens of one model call (`providers.md` §12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Everything the model read, cached parts included.
    pub input: Option<u64>,
    /// Of it, read from a cache.
    pub cached_read: Option<u64>,
    /// Of it, written to a cache.
    pub cache_write: Option<u64>,
    /// Everything the model wrote, reasoning included.
    pub output: Option<u64>,
    /// Of it, reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// The tokens of two calls; what neither of them said stays unsaid.
    pub fn plus(self, other: Usage) -> Usage {
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
        Usage {
            input: sum(self.input, other.input),
            cached_read: sum(self.cached_read, other.cached_read),
            cache_write: sum(self.cache_write, other.cache_write),
            output: sum(self.output, other.output),
            reasoning: sum(self.reasoning, other.reasoning),
        }
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It ran out of its output limit.
    Length,
    /// It wants its calls answered.
    ToolCalls,
    /// A filter stopped it.
    ContentFilter,
    /// It failed.
    Error,
    /// Something else.
    Other,
}

impl FinishReason {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool-calls",
            FinishReason::ContentFilter => "content-filter",
            FinishReason::Error => "error",
            FinishReason::Other => "other",
        }
    }

    /// Whether the complete calls of the step are executed (decision 40).
    pub fn runs_calls(self) -> bool {
        !matches!(self, FinishReason::Length | FinishReason::ContentFilter | FinishReason::Error)
    }
}

/// A model call that ended as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why it stopped.
    pub reason: FinishReason,
    /// The provider's word for it.
    pub raw: String,
}

/// The classes of failure (`providers.md` §13.1); mapped to the hook value by [`ModelErrorClass::hook_class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorClass {
    /// The context does not fit.
    Overflow(OverflowKind),
    /// Too many requests; wait.
    RateLimit,
    /// One request above the rate itself; waiting never helps.
    RequestTooBigForRate,
    /// The provider has no capacity.
    Overloaded,
    /// Network, timeout, truncated or empty answer.
    Transient,
    /// The account is used up.
    Quota,
    /// The key is missing or wrong.
    Auth,
    /// No such model or address.
    NotFound,
    /// The request is not acceptable.
    InvalidRequest,
    /// A filter refused it.
    ContentFilter,
    /// The model broke the provider's own rules.
    ModelOutput,
    /// The answer cannot be understood.
    Protocol,
    /// We stopped it.
    Aborted,
}

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowKind {
    /// The input is too long.
    Input,
    /// Only the output budget does not fit.
    Output,
    /// Too many bytes.
    Bytes,
}

/// The value of the `classify_chat_error` hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The context is too long.
    ContextOverflow,
    /// Too many requests.
    RateLimit,
    /// May go away by itself.
    Transient,
    /// Will not.
    Fatal,
    /// Cannot tell.
    Unknown,
}

impl ModelErrorClass {
    /// The class as the application's hook sees it.
    pub fn hook_class(self) -> ErrorClass {
        match self {
            ModelErrorClass::Overflow(_) => ErrorClass::ContextOverflow,
            ModelErrorClass::RateLimit | ModelErrorClass::RequestTooBigForRate => ErrorClass::RateLimit,
            ModelErrorClass::Overloaded | ModelErrorClass::Transient | ModelErrorClass::ModelOutput => ErrorClass::Transient,
            ModelErrorClass::Quota
            | ModelErrorClass::Auth
            | ModelErrorClass::NotFound
            | ModelErrorClass::InvalidRequest
            | ModelErrorClass::ContentFilter => ErrorClass::Fatal,
            ModelErrorClass::Protocol | ModelErrorClass::Aborted => ErrorClass::Unknown,
        }
    }

    /// Whether the call is repeated at once while nothing of it was shown (decision 34, `providers.md` §13.1).
    pub fn retries_in_step(self) -> u32 {
        match self {
            ModelErrorClass::RateLimit | ModelErrorClass::Overloaded | ModelErrorClass::Transient => crate::limits::MODEL_RETRIES,
            ModelErrorClass::ModelOutput | ModelErrorClass::Protocol => 1,
            _ => 0,
        }
    }
}

/// A model call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// What kind of failure.
    pub class: ModelErrorClass,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The provider's code or type.
    pub code: Option<String>,
    /// The provider's message, scrubbed of secrets, at most [`crate::limits::ERROR_MESSAGE`] bytes.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after_ms: Option<u64>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The body as it came, for the log only, at most [`crate::limits::ERROR_RAW`] bytes.
    pub raw: Box<str>,
    /// Whether silent retries are out of the question (`x-should-retry: false`, or a watchdog of ours).
    pub no_retry: bool,
    /// What an overflow said of itself.
    pub numbers: Option<Box<Numbers>>,
    /// What the application takes it for, if it says so.
    pub judged: Option<ErrorClass>,
    /// Whether the application's own limit on silence ended it.
    pub stalled: bool,
}

/// The tokens an overflow names (`providers.md` §13.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// What fits.
    pub limit: Option<u64>,
    /// The input.
    pub input: Option<u64>,
    /// Whether the input may be more: some servers stop counting at the limit.
    pub input_is_at_least: bool,
    /// The output asked for.
    pub output: Option<u64>,
    /// Both together.
    pub total: Option<u64>,
}

impl ModelError {
    /// What it is taken for: by the application, else by the built-in table.
    pub fn judgement(&self) -> ErrorClass {
        self.judged.unwrap_or_else(|| self.class.hook_class())
    }

    /// How often the model may be called again in the same step, as long as nobody saw anything of it.
    pub fn retries_in_step(&self) -> u32 {
        match self.judged {
            None => self.class.retries_in_step(),
            Some(ErrorClass::RateLimit | ErrorClass::Transient) => crate::limits::MODEL_RETRIES,
            Some(ErrorClass::ContextOverflow | ErrorClass::Fatal | ErrorClass::Unknown) => 0,
        }
    }

    /// A failure of `class` with a message.
    pub fn new(class: ModelErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            status: None,
            code: None,
            message: message.into(),
            retry_after_ms: None,
            request_id: None,
            raw: Box::default(),
            no_retry: false,
            judged: None,
            stalled: false,
            numbers: None,
        }
    }
}
