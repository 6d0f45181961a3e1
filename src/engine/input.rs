//! What can happen to a conversation. Every change of state begins with one of these.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::submissions::{Ask, Cancelled, SubmissionInspection, Submitted};
use crate::{
    ids::{CallId, ConnId, Fence, LegId, MessageId, RequestId},
    model::{Finish, ModelError, ModelEvent, ModelRef, Reasoning, ToolChoice, ToolSpec},
    time::Millis,
    wire::{ToolApproval, message::Part},
};

pub use crate::store::calls::Site;

/// What is remembered of a socket over hibernation, in its attachment. Never the query: it may carry a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnMeta {
    /// The `_pk` the client chose. A label: two live sockets may share it.
    #[serde(rename = "p")]
    pub label: String,
    /// May change nothing (decision 42).
    #[serde(rename = "r", default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
    /// Gets no identity, state and MCP frames.
    #[serde(rename = "q", default, skip_serializing_if = "std::ops::Not::not")]
    pub no_protocol: bool,
}

/// An input of the engine.
pub enum Input {
    /// The first of every incarnation: the sockets that survived.
    Boot(Vec<(ConnId, ConnMeta)>),
    /// A socket was accepted.
    Connected(ConnId, ConnMeta),
    /// A text frame arrived.
    Frame(ConnId, Box<str>),
    /// A socket is gone.
    Disconnected(ConnId),
    /// The alarm fired, or stands for it; and when its successor will, if one was armed.
    Alarm(Option<Millis>),
    /// A waiting turn may be due.
    Wake,
    /// The application asks for something; the answer goes to the token.
    Command(Command, Option<ReplyTo>),
    /// A job reports.
    Job(Fence, JobEvent),
    /// A callable answered.
    Rpc(ConnId, RpcReply),
    /// An owed hook returned.
    HookEnded(LegId),
}

/// Why the database refused a step of the running turn, where that will not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ran out of memory; a smaller read may work.
    NoMemory,
    /// It ran out of memory again.
    NoMemoryAgain,
    /// A value was too big, the database is full, or a constraint was broken.
    Refused,
}

impl Fault {
    /// Whether the turn ends by it.
    pub(super) fn ends_turn(self) -> bool {
        self != Fault::NoMemory
    }

    /// The reason it ends for.
    pub(super) fn reason(self) -> super::budget::Reason {
        match self {
            Fault::NoMemory | Fault::NoMemoryAgain => super::budget::Reason::OutOfMemory,
            Fault::Refused => super::budget::Reason::RecoveryError,
        }
    }
}

/// Names a waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo(pub u64);

/// What the application may ask for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Append messages and answer them.
    SaveMessages {
        /// UI messages; none makes no turn.
        messages: Vec<Value>,
        /// Metadata for the reply.
        metadata: Option<Value>,
        /// The id clients are to know it by; one of ours if `None`.
        request_id: Option<RequestId>,
        /// How many response hooks led to this, one from the other.
        chain: u32,
    },
    /// Let the last assistant message go on.
    ContinueLastTurn {
        /// The custom body; the stored one if `None`.
        body: Option<Value>,
        /// How many response hooks led to this, one from the other.
        chain: u32,
    },
    /// Append or upsert messages without a turn.
    AddMessages {
        /// UI messages, chained in order.
        messages: Vec<Value>,
        /// Replace those that exist.
        upsert: bool,
        /// Where they are added.
        place: Place,
    },
    /// Forget everything.
    Clear,
    /// Set the shared state; from a socket, or from the application.
    SetState {
        /// The new state.
        state: Value,
        /// The socket that asked, which gets no echo.
        source: Option<ConnId>,
    },
    /// A client's state was refused by the application's validation.
    RefuseState {
        /// The socket that asked.
        conn: ConnId,
    },
    /// Read the shared state.
    GetState,
    /// Read the transcript, newest window.
    GetMessages,
    /// Stop a request.
    Abort(RequestId),
    /// Stop everything that runs or waits.
    AbortAll,
    /// Send a frame of the application to every socket.
    Broadcast(String),
    /// Send a frame of the application to one socket.
    SendTo(ConnId, String),
    /// Close a socket.
    CloseConn(ConnId, u16, String),
    /// Emit an application chunk (`data-*`, metadata) into the running turn.
    Emit(Fence, Value),
    /// Keep a value with the running turn, for its recovery.
    Stash(Fence, Value),
    /// Whether somebody can still answer a call.
    HasPendingInteraction,
    /// Wait until nothing is under way and nothing waits for an answer.
    WaitUntilStable,
    /// An early result of a running tool.
    Preliminary(Fence, CallId, Value),
    /// The application said whether a client may decide about a call.
    Decide(ConnId, ToolApproval, Decision),
    /// About submissions.
    Submission(Ask),
    /// A call that is waited for is waited for so many milliseconds from now.
    ExtendWait(CallId, u32),
}

/// Where messages are added to the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// At its end.
    #[default]
    End,
    /// As a beginning of its own: what was said before leaves the path, and stays stored.
    Root,
    /// After this message: what followed it leaves the path, and stays stored.
    After(String),
}

/// What a command is answered with.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Done.
    Done,
    /// A turn ended.
    Turn(TurnResult),
    /// The shared state.
    State(Option<Value>),
    /// Messages as JSON texts, oldest first.
    Messages(Vec<String>),
    /// A submission was taken, or had been.
    Submitted(Box<Submitted>),
    /// A submission, if there is one.
    Submission(Option<Box<SubmissionInspection>>),
    /// Submissions, newest first.
    Submissions(Vec<SubmissionInspection>),
    /// What became of a wish to cancel a submission.
    Cancelled(Box<Cancelled>),
    /// How many.
    Count(usize),
    /// Yes or no.
    Is(bool),
}

/// How a turn ended, for whoever waited for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnResult {
    /// The id under which clients saw it; empty if no turn ran.
    pub request_id: String,
    /// How it ended.
    pub status: TurnStatus,
    /// The text clients were shown, if it failed.
    pub error: Option<String>,
    /// The reply as stored.
    pub message: Option<Value>,
    /// Whether it extended an earlier message.
    pub continuation: bool,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnStatus {
    /// With a reply.
    Completed,
    /// With an error.
    Error,
    /// Nothing of it appears in the transcript.
    #[default]
    Skipped,
    /// Someone stopped it.
    Aborted,
}

impl TurnStatus {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TurnStatus::Completed => "completed",
            TurnStatus::Error => "error",
            TurnStatus::Skipped => "skipped",
            TurnStatus::Aborted => "aborted",
        }
    }
}

/// What a job of the running turn reports.
pub enum JobEvent {
    /// The attempt is on disk: what the interrupted one left may be read.
    Recover,
    /// Work of an earlier attempt still runs.
    Unstable,
    /// The application said whether an interrupted turn goes on, or failed to.
    RecoveryDecided(Result<RecoveryDecision, String>),
    /// The application said what becomes of calls that nobody will answer, where it wants something else than usual.
    PartsRepaired(Vec<(MessageId, CallId, Part)>),
    /// The agent said how the turn is to run.
    Prepared(Result<Box<Prepared>, Box<Failure>>),
    /// One network read of the model's answer.
    Model(Vec<ModelEvent>),
    /// The model call ended.
    ModelEnded(Result<Finish, Box<Failure>>),
    /// The only tools the model is offered in the current step.
    Offered(Vec<String>),
    /// The application gave a call another input, or none.
    CallRepaired(CallId, Option<Value>),
    /// The predicate of a tool said whether a call may run.
    ApprovalChecked(CallId, Approval),
    /// A tool ended.
    ToolEnded(CallId, ToolOutcome),
    /// The running tools had their grace after an abort.
    GraceOver,
    /// A call of the turn failed because memory ran out, in these words of the platform.
    OutOfMemory(String),
    /// The flush timer.
    FlushDue,
    /// The wait before a silent retry is over.
    RetryDue,
}

/// Why a model call or a hook failed, and what clients are told about it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What went wrong.
    pub error: ModelError,
    /// The text for clients, from `on_chat_error`.
    pub shown: String,
}

/// How a turn is to run: model, prompt, tools.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Who answers.
    pub model: ModelRef,
    /// The system prompt.
    pub system: String,
    /// What may be called, in order.
    pub tools: Vec<ToolDef>,
    /// Whether something must be.
    pub tool_choice: ToolChoice,
    /// Model calls at most.
    pub max_steps: u32,
    /// Tokens of an answer at most.
    pub max_output: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// How much to think.
    pub reasoning: Reasoning,
    /// Metadata of the reply.
    pub metadata: Option<Value>,
    /// Tools after whose step the turn ends.
    pub stop_after: Vec<String>,
}

/// A tool as the engine sees it: what the model is told, and what its execution means.
#[derive(Clone, Debug)]
pub struct ToolDef {
    /// Name, description, schema.
    pub spec: ToolSpec,
    /// What a second start would do.
    pub effect: EffectClass,
    /// What follows where it was interrupted and must not run twice.
    pub ambiguous: Ambiguous,
    /// How long it may run.
    pub timeout_ms: u32,
    /// Who executes it.
    pub site: Site,
    /// Which calls a person has to allow.
    pub gate: Gate,
    /// How long a page may take for it; `None` for as long as it likes.
    pub wait_ms: Option<u32>,
}

/// What a second start of a tool would do (`recovery.md` §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffectClass {
    /// Nothing: run it again.
    Pure,
    /// Nothing, with the same key.
    Keyed,
    /// Something twice: never started twice.
    #[default]
    Once,
}

/// What follows where a tool that must not run twice was running when its object died (`recovery.md` §6.3, decision 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ambiguous {
    /// The model is told that nobody knows how it ended.
    #[default]
    Tell,
    /// The same; and if the model makes the same call again in this answer, a person has to allow it.
    Ask,
    /// The turn ends.
    Fail,
}

/// Whether somebody may do something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// They may.
    #[default]
    Allow,
    /// They may not, for this reason.
    Deny(String),
}

/// Whether a call may run, as the predicate of its tool says (`turns-and-tools.md` §10.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// A person has to allow it.
    Ask,
    /// At once.
    Allow,
    /// Never, for this reason; nobody is asked.
    Deny(String),
}

/// What becomes of a turn whose attempt was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryDecision {
    /// Whether what there is of the answer is kept. Results of tools are kept in any case.
    pub persist: bool,
    /// Whether it goes on. If not, it ends as failed.
    pub go_on: bool,
    /// Whether the application's own budget is used up.
    pub aborted: bool,
}

impl Default for RecoveryDecision {
    fn default() -> Self {
        Self { persist: true, go_on: true, aborted: false }
    }
}

/// Which calls of a tool a person has to allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Those its predicate says.
    When,
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    /// With a result.
    Output(Value),
    /// With a text for the model.
    Error(String),
    /// Beyond help: the turn ends with this text.
    Fatal(String),
}

/// What a callable says.
#[derive(Clone, Debug)]
pub struct RpcReply {
    /// The caller's id of the call.
    pub id: String,
    /// A piece, the end, or a failure.
    pub body: RpcBody,
}

/// A piece, the end, or a failure of a call.
#[derive(Clone, Debug)]
pub enum RpcBody {
    /// One more piece of a stream.
    Chunk(Value),
    /// The end, with a value unless there is none.
    Done(Option<Value>),
    /// A failure.
    Error(String),
}
