//! What an application may choose. Plain fields with defaults; a field that is not here is a number of [`crate::limits`].

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
    /// Model calls in one turn, unless the turn says otherwise.
    pub max_steps: u32,
    /// Server tools that may run at once; `None` for as many as the model asks for.
    pub max_parallel_tools: Option<usize>,
    /// Whether clients may set the shared state. Closed by default: any visitor of the page is a client (decision 20).
    pub client_state: bool,
    /// Whether a connecting client is told name and class of the object. Without it `ready` of the stock clients never resolves.
    pub send_identity: bool,
    /// Bytes of stored messages held for one model call, newest first.
    pub hydration_budget: usize,
    /// Milliseconds a hook may take.
    pub hook_deadline_ms: u32,
    /// Milliseconds running tools may go on after a stop before their calls are settled without them.
    pub abort_grace_ms: u32,
    /// Whether text of one network read goes out as one chunk (decision 52).
    pub coalesce_deltas: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_steps: limits::MAX_STEPS,
            max_parallel_tools: None,
            client_state: false,
            send_identity: true,
            hydration_budget: limits::HYDRATION,
            hook_deadline_ms: limits::HOOK_MS,
            abort_grace_ms: limits::ABORT_GRACE_MS,
            coalesce_deltas: true,
        }
    }
}
