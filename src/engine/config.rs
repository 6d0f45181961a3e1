//! What an application may choose. Plain fields with defaults; a field that is not here is a number of [`crate::limits`].

use super::budget::ChatRecovery;
use crate::limits;

/// The choices of an agent.
///
/// ```
/// use wakeful::Config;
/// let config = Config { max_steps: 4, ..Config::default() };
/// assert!(config.send_identity);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// What becomes of a message that is sent while another is answered.
    pub message_concurrency: MessageConcurrency,
    /// Model calls in one turn, unless the turn says otherwise.
    pub max_steps: u32,
    /// Server tools that may run at once; `None` for as many as the model asks for.
    pub max_parallel_tools: Option<usize>,
    /// What is taken of a posted transcript besides new messages of the person (decision 7).
    pub accept_client_messages: AcceptClientMessages,
    /// Whether a page's tool may take the place of a server tool of the same name, for its turn. One that needs approval it never
    /// may (decision 9).
    pub client_tool_override: ClientToolOverride,
    /// Whether the model goes on after an error of a page's tool that the page itself would leave at that.
    pub continue_on_client_error: bool,
    /// Milliseconds a person may take to allow a call before it counts as denied; `None` for as long as they like.
    pub approval_wait_ms: Option<u32>,
    /// Whether clients may set the shared state. Closed by default: any visitor of the page is a client (decision 20).
    pub client_state: bool,
    /// Whether a connecting client is told name and class of the object. Without it `ready` of the stock clients never resolves.
    pub send_identity: bool,
    /// Bytes of stored messages held for one model call, newest first.
    pub hydration_budget: usize,
    /// Which groups of methods clients may call without the application having written them.
    pub callables: BuiltIns,
    /// Milliseconds a hook may take.
    pub hook_deadline_ms: u32,
    /// Milliseconds running tools may go on after a stop before their calls are settled without them.
    pub abort_grace_ms: u32,
    /// Whether text of one network read goes out as one chunk (decision 52).
    pub coalesce_deltas: bool,
    /// Milliseconds without anything new of a model's answer after which the call is given up and the turn goes on with another;
    /// `None` or 0 for the limits that hold anyway ([`limits::FIRST_EVENT_MS`], [`limits::NEXT_EVENT_MS`]). Needs `chat_recovery`:
    /// without it the turn fails.
    pub chat_stream_stall_timeout_ms: Option<u32>,
    /// Whether and how long a turn is put back to work after its object died, or after an error that waiting may mend.
    pub chat_recovery: ChatRecovery,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            message_concurrency: MessageConcurrency::Queue,
            max_steps: limits::MAX_STEPS,
            max_parallel_tools: None,
            accept_client_messages: AcceptClientMessages::UserOnly,
            client_tool_override: ClientToolOverride::Allow,
            continue_on_client_error: false,
            approval_wait_ms: None,
            client_state: false,
            send_identity: true,
            hydration_budget: limits::HYDRATION,
            callables: BuiltIns::default(),
            hook_deadline_ms: limits::HOOK_MS,
            abort_grace_ms: limits::ABORT_GRACE_MS,
            coalesce_deltas: true,
            chat_stream_stall_timeout_ms: None,
            chat_recovery: ChatRecovery::default(),
        }
    }
}

/// Groups of built-in methods for clients (decision 50). A method of the application with the same name wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltIns {
    /// `submitMessages`, `inspectSubmission`, `listSubmissions`, `cancelSubmission`.
    pub submissions: bool,
}

/// What is taken of a posted transcript besides new messages of the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptClientMessages {
    /// Nothing: a page that could write them could make the model believe anything.
    #[default]
    UserOnly,
    /// New assistant messages that are only text: for pages that begin with a greeting of their own.
    NewAssistantText,
}

/// Which server tools a page's tool of the same name may replace for its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientToolOverride {
    /// All that need no approval.
    #[default]
    Allow,
    /// None.
    Deny,
    /// All that need no approval but these.
    Protect(Vec<String>),
}

/// What becomes of a message that a client sends while another is answered (`turns-and-tools.md` §5). Read when it arrives.
///
/// Regenerations and turns of the application are never dropped and never give way: they wait for their slot.
///
/// ```
/// use wakeful::{Config, MessageConcurrency};
/// let config = Config { message_concurrency: MessageConcurrency::Latest, ..Config::default() };
/// assert_ne!(config.message_concurrency, MessageConcurrency::debounce());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageConcurrency {
    /// It waits, and each is answered.
    #[default]
    Queue,
    /// It waits, and only the newest is answered; those before it stay in the conversation.
    Latest,
    /// As `Latest`: the one answer sees all of them.
    Merge,
    /// As `Latest`, and those that wait become one message: the id of the newest, their texts with a blank line between.
    MergeCollapse,
    /// It is not taken; its sender gets the conversation as it is.
    Drop,
    /// As `Latest`, and the newest waits until no newer one came for so long.
    Debounce {
        /// Milliseconds.
        ms: u32,
    },
    /// The running turn ends at its next step; then the newest is answered on top of what it has.
    Steer,
    /// The running turn ends at once with what it has; then it is answered. A newer one ends it in turn: of several sent together only
    /// the last has its answer.
    Interrupt,
}

impl Config {
    /// The stall limit, if there is one; 0 is none (decision 39).
    pub(crate) fn stall_ms(&self) -> Option<u32> {
        self.chat_stream_stall_timeout_ms.filter(|ms| *ms > 0)
    }
}

impl MessageConcurrency {
    /// `Debounce` with the usual wait, [`limits::DEBOUNCE_MS`].
    pub fn debounce() -> Self {
        MessageConcurrency::Debounce { ms: limits::DEBOUNCE_MS }
    }
}
