//! Every number of the crate, with its unit and the reason for its value.

/// Bytes of one text frame from a client. Twice [`WIRE_WINDOW`]: a client posts back what it was sent, escaped once more (decision 41).
pub const FRAME_IN: usize = 16 * 1024 * 1024;
/// Bytes of messages in a transcript frame or get-messages, newest first, at least one message (decision 41).
pub const WIRE_WINDOW: usize = 8 * 1024 * 1024;
/// Bytes of stored messages held for one model call by default (decision 19).
pub const HYDRATION: usize = 16 * 1024 * 1024;
/// Messages in one posted transcript (decision 41).
pub const POSTED_MESSAGES: usize = 20_000;
/// Bytes of one new user message (decision 41).
pub const USER_MESSAGE: usize = 8 * 1024 * 1024;
/// Nesting of JSON from outside. The parser recurses; a wasm stack does not grow (decision 41).
pub const JSON_DEPTH: usize = 128;
/// Nesting of a value from a model, a tool, a custom body or the application. It is stored inside a message, which nests it a few
/// levels further, and has to be read again by a parser that stops at [`JSON_DEPTH`].
pub const VALUE_DEPTH: usize = 96;
/// Bytes of a body in one row. The platform refuses values above 2 MB; half of it leaves room for escapes (decision 41).
pub const ROW_BODY: usize = 1024 * 1024;
/// Bytes above which no value is ever bound (I27).
pub const ROW_MAX: usize = 1_800_000;
/// Bytes of a request id or message id chosen by a client. Longer ones would bloat every frame of their turn.
pub const ID: usize = 256;
/// Bytes of an object's name in a URL (decision 46).
pub const NAME: usize = 256;
/// Bytes of the shared state of an object: one row, sent whole at every connect.
pub const STATE: usize = 1_000_000;
/// Bytes of the custom body kept for later turns: one row.
pub const LAST_BODY: usize = 1_000_000;
/// Bytes of the ids of the messages one request ends with, as JSON. They go out with each of its last frames, and wait in memory
/// with the turn; a thousand ids of the usual length fit.
pub const TURN_IDS: usize = 64 * 1024;
/// Bytes of the metadata that the application gives a turn for its reply: part of one row.
pub const TURN_METADATA: usize = 256 * 1024;
/// Messages between an answer's question and the end of the path that are looked through for its place: far more than may wait.
pub const APPENDED: i64 = 4_096;
/// Turns started by response hooks of each other, without anybody else asking for one (`turns-and-tools.md` §16.3).
pub const HOOK_CHAIN: u32 = 16;
/// Turns that may wait behind the running one. More is a flood, not a conversation: each would cost a model call.
pub const QUEUED_TURNS: usize = 64;
/// Submissions that may wait for their slot: a night's work at a minute each. Their ids are in memory, their messages on disk.
pub const PENDING_SUBMISSIONS: usize = 1_000;
/// Bytes of the metadata of a submission: a note for whoever looks at it later, not a document (`turns-and-tools.md` §3.6).
pub const SUBMISSION_METADATA: usize = 16 * 1024;
/// Bytes of the reason a submission is cancelled for; the rest is cut. As long as that of a denied call.
pub const SUBMISSION_REASON: usize = 2 * 1024;
/// Submissions in one list: at least, at most, and unless told otherwise (`turns-and-tools.md` §3.6).
pub const LISTED_SUBMISSIONS: (u32, u32, u32) = (1, 100, 50);
/// Submissions deleted at once: at least, at most, and unless told otherwise (`turns-and-tools.md` §3.6).
pub const DELETED_SUBMISSIONS: (u32, u32, u32) = (1, 500, 100);
/// Milliseconds a `debounce` waits for a newer message unless told otherwise (the peer's number).
pub const DEBOUNCE_MS: u32 = 750;
/// Bytes of the arguments of one tool call; beyond it the model is told, nothing runs.
pub const TOOL_INPUT: usize = 1024 * 1024;
/// Bytes of one server tool's output stored whole; beyond it head and tail are kept with a mark (decision 41).
pub const TOOL_OUTPUT: usize = 8 * 1024 * 1024;
/// Bytes of a tool's error text that model and clients see (`turns-and-tools.md` §6.3).
pub const TOOL_ERROR: usize = 8 * 1024;
/// Bytes of a tool's JSON schema (`turns-and-tools.md` §6.4).
pub const TOOL_SCHEMA: usize = 64 * 1024;
/// Nesting of a tool's JSON schema, and of references inside it (`turns-and-tools.md` §6.4).
pub const SCHEMA_DEPTH: usize = 64;
/// Bytes of a tool's name, as providers accept them.
pub const TOOL_NAME: usize = 64;
/// Tools of a page in one request (`turns-and-tools.md` §8.2).
pub const CLIENT_TOOLS: usize = 128;
/// Bytes of their schemas and descriptions in all; stored with each turn (`turns-and-tools.md` §8.2).
pub const CLIENT_TOOLS_BYTES: usize = 256 * 1024;
/// Refused tools of a page that are reported one by one; of a flood the number is enough.
pub const CLIENT_TOOLS_REPORTED: usize = 8;
/// Bytes of the description of a page's tool; the rest is cut (`turns-and-tools.md` §8.2).
pub const TOOL_DESCRIPTION: usize = 8 * 1024;
/// Bytes of the output of a page's tool; a larger one is settled as an error (`turns-and-tools.md` §12).
pub const CLIENT_OUTPUT: usize = 256 * 1024;
/// Bytes of the reason of an approval or denial (`turns-and-tools.md` §10.2).
pub const APPROVAL_REASON: usize = 2 * 1024;
/// Characters of an approval's id: over 128 bits of a 62-letter alphabet, so that it cannot be guessed (`turns-and-tools.md` §10.1).
pub const APPROVAL_ID: usize = 24;
/// Milliseconds a complete batch waits for its owner's resume request, which has to come first (decision 31).
pub const CONTINUATION_MS: i64 = 50;
/// Milliseconds a page's tool is waited for at least and at most, if it is not waited for without end (`turns-and-tools.md` §11).
pub const CLIENT_WAIT_MS: std::ops::RangeInclusive<u32> = 1_000..=86_400_000;
/// Starts of a tool that may run again, over deaths (`recovery.md` §6.3): one that dies each time is not tried for ever.
pub const TOOL_CLAIMS: i64 = 3;
/// Milliseconds a new tab is told of a recovery: later nobody expects an answer any more (`recovery.md` §2.4).
pub const RECOVERING_SHOWN_MS: i64 = 900_000;
/// Milliseconds a server tool may run unless it says otherwise: the longest wait people accept without a sign of life, doubled.
pub const TOOL_TIMEOUT_MS: u32 = 120_000;
/// Model calls in one turn by default (the peer's number).
pub const MAX_STEPS: u32 = 10;

/// Chunks in one stored segment of a stream (decision 41).
pub const SEGMENT_CHUNKS: usize = 10;
/// Bytes in one stored segment unless a single chunk is larger (decision 41).
pub const SEGMENT_BYTES: usize = 256 * 1024;
/// Milliseconds a chunk may wait for its segment (decision 41).
pub const SEGMENT_MS: i64 = 5_000;
/// Segments read at a time for a replay (wire §5.5).
pub const REPLAY_PAGE: i64 = 10;
/// Milliseconds between two beats of the alarm while a turn runs; the platform evicts after 70–140 s without an event (`recovery.md` §1.1).
pub const HEARTBEAT_MS: i64 = 30_000;
/// Final turns kept for late questions about them (decisions, Names).
pub const KEPT_TURNS: i64 = 200;
/// Ended requests whose outcome is remembered for a late ACK (wire §6.3).
pub const ENDED_MEMORY: usize = 32;

/// Milliseconds after its opening in which a socket's page may not have worked off what it is sent then. A page that is slower than this
/// is rare, and people are slower.
pub const HASTY_MS: i64 = 2_000;

/// Turns of earlier incarnations whose ends are told to pages that missed them: a page that was away longer has missed the transcript too.
pub const ENDED_TURNS: i64 = 16;

/// Requests whose names outlive a clear, for the same pages.
pub const ENDED_KEPT: usize = 16;

/// Attempts of each of them whose ends are told again: more than a turn may have without progress (`max_attempts`).
pub const ENDED_ATTEMPTS: u32 = 16;

/// Milliseconds to the first event with content; reasoning models are silent for long (decision 39).
pub const FIRST_EVENT_MS: u32 = 300_000;
/// Milliseconds between two events with content (decision 39).
pub const NEXT_EVENT_MS: u32 = 120_000;
/// Milliseconds of one model call in all (decision 39).
pub const STEP_MS: u32 = 3_600_000;
/// Silent retries of a model call that showed nothing yet (decision 34).
pub const MODEL_RETRIES: u32 = 2;
/// Milliseconds before the first silent retry; doubled each time (`providers.md` §13.1).
pub const RETRY_BASE_MS: u32 = 2_000;
/// Milliseconds a provider's `Retry-After` may keep a turn waiting in memory (`providers.md` §13.1).
pub const RETRY_IN_MEMORY_MS: u32 = 10_000;
/// Bytes of one server-sent event (`providers.md` §3).
pub const SSE_EVENT: usize = 8 * 1024 * 1024;
/// Bytes of text, reasoning and arguments of one step (`providers.md` §3).
pub const STEP_TEXT: usize = 16 * 1024 * 1024;
/// Tool calls in one step (`providers.md` §10.3).
pub const STEP_CALLS: usize = 128;
/// Bytes read of an error body; it is read only to find its message (`providers.md` §3).
pub const ERROR_BODY: usize = 64 * 1024;
/// Bytes kept of an error body for the log (`providers.md` §13.1).
pub const ERROR_RAW: usize = 4 * 1024;
/// Bytes of an error message kept (`providers.md` §13.1).
pub const ERROR_MESSAGE: usize = 2 * 1024;
/// Characters of a provider's own message shown to clients (decision 43).
pub const ERROR_SHOWN: usize = 300;
/// Bytes of one request to a provider whose own cap is not known (`providers.md` §3).
pub const REQUEST_BODY: usize = 20 * 1024 * 1024;

/// Milliseconds a hook may take (decision 44).
pub const HOOK_MS: u32 = 10_000;
/// Milliseconds `before_turn` may take (decision 44).
pub const BEFORE_TURN_MS: u32 = 30_000;
/// Milliseconds `on_chat_response` may take (decision 44).
pub const CHAT_RESPONSE_MS: u32 = 900_000;
/// Milliseconds a running tool may go on after an abort before its call is settled without it (`turns-and-tools.md` §14).
pub const ABORT_GRACE_MS: u32 = 5_000;
/// Times a hook is started over restarts before its row is given up (`recovery.md` §6.6).
pub const OUTBOX_CLAIMS: i64 = 3;

/// Attempts in a row without progress, and retries after transient errors in all (the peer's number).
pub const RECOVERY_ATTEMPTS: u32 = 10;
/// Milliseconds a turn may be without progress: longer than any deployment takes (the peer's number).
pub const RECOVERY_NO_PROGRESS_MS: u32 = 300_000;
/// Segments a turn may write once it was interrupted: 100,000 chunks, which only what never ends comes to (the peer's number).
pub const RECOVERY_WORK: u64 = 10_000;
/// Attempts whose incarnation died. The next one would most likely be the death of another (the peer's number).
pub const RECOVERY_INTERRUPTED: u32 = 5;
/// Milliseconds within which deaths in a row are one attempt: what a deployment needs to replace all incarnations (the peer's number).
pub const RECOVERY_BURST_MS: i64 = 30_000;
/// Milliseconds before the attempt after the first transient error; doubled each time (the peer's number).
pub const RECOVERY_BACKOFF_MS: u32 = 1_000;
/// Milliseconds to which that doubles at most: a beat of the alarm (the peer's number).
pub const RECOVERY_BACKOFF_MOST_MS: u32 = 30_000;
/// Milliseconds a provider's `Retry-After` may put the next attempt off; people wait for it (the peer's number).
pub const RECOVERY_RETRY_AFTER_MS: u32 = 60_000;

/// Attempts that may end the object before what is left of their turn was even read: a row that kills is brought to rest unread, before
/// the deaths of [`RECOVERY_INTERRUPTED`] are used up (`recovery.md` §6.6).
pub const RECOVERY_CLAIMS: u32 = 3;
/// Milliseconds an attempt waits for work of an earlier one that does not hear its stop (the peer's number).
pub const STABLE_MS: u32 = 10_000;
/// Milliseconds until that is tried again (the peer's number).
pub const STABLE_RETRY_MS: u32 = 3_000;
/// Bytes of the value that an application keeps with a turn: a checkpoint, part of one row, written anew each time.
pub const STASH: usize = 64 * 1024;

/// Milliseconds between two looks at what is due in rows of a newer release, which this one must not touch.
pub const FROZEN_MS: i64 = 3_600_000;

/// Deaths of one turn where the plug may be pulled: they are the demonstration's own, and more than anybody has patience for.
pub const PLUG_PULLS: u32 = 100;
/// Milliseconds between the answer to a pull and the death: enough for the answer to leave, too little to be seen.
pub const PLUG_FUSE_MS: u32 = 20;
/// Milliseconds of silence after which the demo model is given up where the plug may be pulled: five times its longest pause, and
/// short enough to watch.
pub const PLUG_STALL_MS: u32 = 5_000;
/// Milliseconds of silence after which another model is given up there: one that thinks unseen must have the time for it.
pub const PLUG_STALL_MODEL_MS: u32 = 30_000;
/// Seconds the tool `wait` waits at most: half of what a tool has ([`TOOL_TIMEOUT_MS`]).
pub const PLUG_WAIT_S: u32 = 60;

/// Tags of a socket (platform).
pub const TAGS: usize = 10;
/// Characters of one tag (platform).
pub const TAG: usize = 256;
/// Bytes of a socket's attachment (platform: 16,384).
pub const ATTACHMENT: usize = 16_000;
/// Bytes of an HTTP body read by the object (decision 41).
pub const HTTP_BODY: usize = 16 * 1024 * 1024;
/// RPC calls of one socket that may be unanswered at a time; more is a flood.
pub const RPC_IN_FLIGHT: usize = 256;
/// Characters of a socket's id: more than the generator's 64 bits, so that the sockets of no two incarnations meet.
pub const CONN_ID: usize = 12;
/// Characters of a label for clients that bring none.
pub const CONN_LABEL: usize = 21;
/// Attempts at an object whose error says that a retry may help.
pub const ROUTE_ATTEMPTS: u32 = 3;
/// Bytes of a close reason: a control frame holds 125, two of them are the code (RFC 6455 §5.5).
pub const CLOSE_REASON: usize = 123;

/// Bytes of a request that Workers AI and the gateway take.
pub const WORKERS_AI_BODY: usize = 25 * 1024 * 1024;
/// Bytes of the request from which an error without a body means that it was too long, where the server says it so.
pub const MUTE_OVERFLOW: usize = 1_000_000;
/// Characters at the head of a message that are searched for phrases. Behind them, servers quote the prompt.
pub const ERROR_SEARCHED: usize = 300;
/// Shortest secret worth hiding; hiding shorter values would eat the text.
pub const SECRET: usize = 8;
/// Bytes of an answer that is no stream: its text, escaped, and what is around it.
pub const WHOLE_ANSWER: usize = 2 * STEP_TEXT;
/// Bytes kept of the front of a body, to say what it was if it was no answer.
pub const ERROR_FRONT: usize = 1_024;
/// Bytes of a text file put into the prompt; more would be a prompt of its own.
pub const TEXT_FILE: usize = 256 * 1024;

/// Schemas applied to one value, through references and `allOf`, `anyOf`, `oneOf` (`turns-and-tools.md` §6.4).
pub const SCHEMA_HOPS: usize = 32;
/// Calls on the stack. Deeper than any input that passed the parser needs, shallow enough for a wasm stack.
pub const SCHEMA_FRAMES: usize = 256;
/// Schemas applied to one input in all. Alternatives that contain each other would otherwise take exponential time.
pub const SCHEMA_WORK: usize = 2_000_000;
/// Faults told at once. A model that made more has misread the schema as a whole.
pub const SCHEMA_FAULTS: usize = 5;
/// Characters of a value or name repeated in a message.
pub const SCHEMA_SHOWN: usize = 60;
/// Names listed in a message.
pub const SCHEMA_LISTED: usize = 20;

/// Milliseconds before the second attempt at an object, at most; doubled for each further one (wire §1.3).
pub const ROUTE_DELAY_MS: u32 = 100;
/// Milliseconds before any attempt at an object, at most (wire §1.3).
pub const ROUTE_DELAY_MOST_MS: u32 = 800;
/// Bytes of a call id of a provider that are kept; a longer one is replaced.
pub const CALL_ID: usize = 128;
/// Bytes of an oversized frame that are searched for its id. Clients write it first.
pub const ID_SEARCH: usize = 4_096;
