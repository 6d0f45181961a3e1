//! The frames between object and browser (wire §2): tolerant in, exact out.
//!
//! In: anything a socket may carry becomes a [`ClientFrame`]; what is no frame of ours goes to the application. Out: functions
//! that write one frame each. Nothing here knows a row, a clock or a connection.

pub mod chunk;
pub mod message;

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    ids::{CallId, MessageId, RequestId},
    limits,
    wire::chunk::Writer,
};

/// A frame from a client.
#[derive(Debug)]
pub enum ClientFrame {
    /// The client sets the shared state.
    State(Value),
    /// The client calls a method.
    Rpc {
        /// Its id of the call.
        id: String,
        /// The method.
        method: String,
        /// The arguments.
        args: Vec<Value>,
    },
    /// The client asks for an answer.
    Chat {
        /// Its id of the request.
        id: RequestId,
        /// What it asks, or why that cannot be understood.
        body: Result<ChatBody, String>,
    },
    /// The client asks what is going on.
    Probe {
        /// To be echoed.
        probe: Option<String>,
    },
    /// The client takes up a stream.
    Ack {
        /// The request.
        id: RequestId,
    },
    /// The client stops a request.
    Cancel {
        /// The request.
        id: RequestId,
    },
    /// The client clears the conversation.
    Clear,
    /// A tool ran in the page.
    ToolResult(ToolResult),
    /// A person decided about a call.
    ToolApproval(ToolApproval),
    /// A frame of ours that is not acted on, with the reason.
    Ignored {
        /// Its type.
        kind: String,
        /// Why.
        reason: &'static str,
    },
    /// Not a frame of ours: for the application.
    Application,
}

/// What a tool in the page gave.
#[derive(Debug)]
pub struct ToolResult {
    /// The call.
    pub call: CallId,
    /// The tool by its name; empty from clients that do not know it.
    pub tool: String,
    /// The output as the JSON text it came in, or the text of an error.
    pub outcome: Result<Box<RawValue>, String>,
    /// Whether the model is to go on once the batch is complete.
    pub auto_continue: bool,
    /// Schemas of the page's tools, if the key was there.
    pub client_tools: Option<Value>,
    /// Whether the sender wants to know what came of it.
    pub ack: bool,
}

/// What a person decided about a call.
#[derive(Clone, Debug)]
pub struct ToolApproval {
    /// The call.
    pub call: CallId,
    /// The message it is of; set by the engine.
    pub message: Option<MessageId>,
    /// Whether it may run.
    pub approved: bool,
    /// Why.
    pub reason: Option<String>,
    /// Whether the model is to go on once the batch is complete.
    pub auto_continue: bool,
    /// Whether the sender wants to know what came of it.
    pub ack: bool,
}

/// The body of a chat request.
#[derive(Debug, Default)]
pub struct ChatBody {
    /// The posted transcript, each message as the JSON text it came in.
    pub messages: Vec<Box<RawValue>>,
    /// Whether the last answer is to be given anew.
    pub regenerate: bool,
    /// Schemas of the page's tools, if the key was there.
    pub client_tools: Option<Value>,
    /// Every other key.
    pub custom: Map<String, Value>,
}

/// The top level of an object with its values unread: a field of the wrong type spoils nothing but itself. Of equal keys the last
/// counts, as in JavaScript.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Top;
        impl<'de> Visitor<'de> for Top {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    fields.push((key, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Top)
    }
}

/// A key, borrowed where it holds no escape.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Option<Self> {
        // Raw values are read without recursion, however deep they are.
        serde_json::from_str(text).ok()
    }

    fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw)
    }

    fn str(&self, key: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(key)?.get();
        raw.starts_with('"').then(|| serde_json::from_str(raw).ok()).flatten()
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.raw(key).and_then(|raw| raw.get().parse().ok())
    }
}

/// Whether a value is nested too deep to be read again once it is part of a message.
pub fn is_too_deep(value: &Value) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left == 0 || items.iter().any(|item| deeper(item, left - 1)),
            Value::Object(fields) => left == 0 || fields.values().any(|item| deeper(item, left - 1)),
            _ => false,
        }
    }
    deeper(value, limits::VALUE_DEPTH)
}

/// The id and the role of a message, without reading the rest of it.
pub fn id_and_role(message: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let fields = Fields::read(message)?;
    Some((fields.str("id")?, fields.str("role")?))
}

/// Reads a text frame. Never fails: what cannot be read is [`ClientFrame::Application`] or says why.
pub fn decode(text: &str) -> ClientFrame {
    let Some(fields) = Fields::read(text) else { return ClientFrame::Application };
    let Some(kind) = fields.str("type") else { return ClientFrame::Application };
    let ignored = |reason| ClientFrame::Ignored { kind: kind.to_string(), reason };
    let id = || fields.str("id").filter(|id| !id.is_empty() && id.len() <= limits::ID).map(|id| RequestId::from(&*id));
    match &*kind {
        "cf_agent_state" => match fields.raw("state").map(|raw| serde_json::from_str(raw.get())) {
            Some(Ok(state)) => ClientFrame::State(state),
            _ => ignored("no readable state"),
        },
        "rpc" => {
            let args = fields.raw("args").and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
            match (fields.str("id"), fields.str("method"), args) {
                (Some(id), Some(method), Some(args)) => ClientFrame::Rpc { id: id.into(), method: method.into(), args },
                _ => ClientFrame::Application,
            }
        }
        "cf_agent_use_chat_request" => {
            let init = fields.raw("init").and_then(|raw| Fields::read(raw.get()));
            let method = init.as_ref().and_then(|init| init.str("method"));
            if method.as_deref().is_some_and(|m| m != "POST") || (init.is_some() && method.is_none()) {
                return ignored("not a POST");
            }
            let Some(id) = id() else { return ignored("no usable id") };
            let body = match init.as_ref().map(|init| init.str("body")) {
                Some(Some(body)) => chat_body(&body),
                _ => Err("the request has no body".to_string()),
            };
            ClientFrame::Chat { id, body }
        }
        "cf_agent_stream_resume_request" => {
            ClientFrame::Probe { probe: fields.str("probeId").filter(|p| p.len() <= limits::ID).map(Cow::into_owned) }
        }
        "cf_agent_stream_resume_ack" => id().map_or_else(|| ignored("no usable id"), |id| ClientFrame::Ack { id }),
        "cf_agent_chat_request_cancel" => id().map_or_else(|| ignored("no usable id"), |id| ClientFrame::Cancel { id }),
        "cf_agent_chat_clear" => ClientFrame::Clear,
        "cf_agent_chat_messages" => ignored("the server's transcript wins"),
        "cf_agent_tool_result" => match fields.str("toolCallId") {
            Some(call) if !call.is_empty() => ClientFrame::ToolResult(tool_result(&fields, CallId::from(&*call))),
            _ => ignored("no usable call id"),
        },
        "cf_agent_tool_approval" => match (fields.str("toolCallId"), fields.flag("approved")) {
            (Some(call), Some(approved)) if !call.is_empty() => ClientFrame::ToolApproval(ToolApproval {
                call: CallId::from(&*call),
                message: None,
                approved,
                reason: fields.str("reason").filter(|reason| !reason.trim().is_empty()).map(Cow::into_owned),
                auto_continue: fields.flag("autoContinue").unwrap_or_default(),
                ack: fields.flag("ack").unwrap_or_default(),
            }),
            _ => ignored("no usable call id or decision"),
        },
        _ => ClientFrame::Application,
    }
}

fn tool_result(fields: &Fields<'_>, call: CallId) -> ToolResult {
    let outcome = if fields.str("state").is_some_and(|state| state == "output-error") {
        Err(fields.str("errorText").map_or_else(|| DENIED_BY_USER.into(), Cow::into_owned))
    } else {
        // JavaScript drops a field that is undefined.
        Ok(fields.raw("output").unwrap_or(RawValue::NULL).to_owned())
    };
    ToolResult {
        call,
        tool: fields.str("toolName").map(Cow::into_owned).unwrap_or_default(),
        outcome,
        auto_continue: fields.flag("autoContinue").unwrap_or_default(),
        client_tools: fields.raw("clientTools").and_then(|raw| serde_json::from_str(raw.get()).ok()),
        ack: fields.flag("ack").unwrap_or_default(),
    }
}

/// The request id of a chat frame that is too large to be read whole. Clients write it first, so the beginning is enough.
pub fn chat_id_of_prefix(text: &str) -> Option<RequestId> {
    let mut end = text.len().min(limits::ID_SEARCH);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let head = text.get(..end)?;
    let after = head.split_once("\"id\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    let mut values = serde_json::Deserializer::from_str(after).into_iter::<String>();
    let id = values.next()?.ok()?;
    let near =
        head.contains("cf_agent_use_chat_request") || text.get(end..).is_some_and(|t| t.ends_with("\"cf_agent_use_chat_request\"}"));
    (near && !id.is_empty() && id.len() <= limits::ID).then(|| RequestId::from(id))
}

fn chat_body(text: &str) -> Result<ChatBody, String> {
    let fields = Fields::read(text).ok_or("the body is not a JSON object")?;
    let raw = fields.raw("messages").ok_or("the body has no `messages`")?;
    let messages: Vec<Box<RawValue>> = serde_json::from_str(raw.get()).map_err(|_| "`messages` is not an array")?;
    if messages.len() > limits::POSTED_MESSAGES {
        return Err(format!("{} messages were posted, limit {} (limits::POSTED_MESSAGES)", messages.len(), limits::POSTED_MESSAGES));
    }
    let mut body =
        ChatBody { messages, regenerate: fields.str("trigger").is_some_and(|t| t == "regenerate-message"), ..ChatBody::default() };
    for (key, raw) in &fields.0 {
        match &**key {
            "messages" | "trigger" => {}
            "clientTools" => body.client_tools = serde_json::from_str(raw.get()).ok(),
            _ => {
                let value: Value = serde_json::from_str(raw.get()).map_err(|e| format!("`{key}` cannot be read: {e}"))?;
                if is_too_deep(&value) {
                    return Err(format!("`{key}` is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH));
                }
                body.custom.insert(key.to_string(), value);
            }
        }
    }
    Ok(body)
}

/// How a request ended, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Completed,
    /// With an error; the body is its text.
    Error,
    /// Someone stopped it.
    Aborted,
    /// It was not run.
    Skipped,
    /// Its turn goes on under another id.
    Recovering,
}

impl Ending {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Completed => "completed",
            Ending::Error => "error",
            Ending::Aborted => "aborted",
            Ending::Skipped => "skipped",
            Ending::Recovering => "recovering",
        }
    }

    /// The ending of this name.
    pub fn parse(text: &str) -> Ending {
        match text {
            "error" => Ending::Error,
            "aborted" => Ending::Aborted,
            "skipped" => Ending::Skipped,
            "recovering" => Ending::Recovering,
            _ => Ending::Completed,
        }
    }
}

/// The last frame of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    /// The request.
    pub id: RequestId,
    /// How it ended.
    pub ending: Ending,
    /// The text of an error, or of an empty answer.
    pub body: String,
    /// The trailing user messages of the request, as a JSON array; `None` if there were none.
    pub message_ids: Option<String>,
    /// Whether the request extended an earlier message.
    pub continuation: bool,
}

/// The error of a page's tool that gives none (wire §2.16).
const DENIED_BY_USER: &str = "Tool execution denied by user";
const RESPONSE: &str = "cf_agent_use_chat_response";

/// One chunk of an answer. `seq` is absent for chunks that are not stored.
pub fn chunk(id: &RequestId, body: &str, seq: Option<i64>, continuation: bool, replay: bool) -> String {
    let mut w = Writer::new();
    w.str("id", id).kind(RESPONSE).str("body", body).raw("done", "false");
    if let Some(seq) = seq {
        w.raw("seq", &seq.to_string());
    }
    w.flag("continuation", continuation).flag("replay", replay);
    w.end()
}

/// The end of the stored prefix of a stream that goes on.
pub fn replay_complete(id: &RequestId, continuation: bool) -> String {
    let mut w = Writer::new();
    w.str("id", id).kind(RESPONSE).str("body", "").raw("done", "false");
    w.flag("continuation", continuation).flag("replay", true).flag("replayComplete", true);
    w.end()
}

/// The last frame of a request.
pub fn terminal(t: &Terminal) -> String {
    let mut w = Writer::new();
    w.str("id", &t.id).kind(RESPONSE).str("body", &t.body).raw("done", "true");
    w.flag("error", t.ending == Ending::Error).str("outcome", t.ending.as_str());
    if let Some(ids) = &t.message_ids {
        w.raw("messageIds", ids);
    }
    w.flag("continuation", t.continuation);
    w.end()
}

/// The last frame of a replay. `ended` is what is known of the request.
pub fn replay_terminal(id: &RequestId, ended: Option<&Terminal>) -> String {
    let mut w = Writer::new();
    w.str("id", id).kind(RESPONSE).str("body", "").raw("done", "true").flag("replay", true);
    if let Some(t) = ended {
        w.str("outcome", t.ending.as_str());
        if let Some(ids) = &t.message_ids {
            w.raw("messageIds", ids);
        }
        w.flag("continuation", t.continuation);
    }
    w.end()
}

/// Who answers here.
pub fn identity(name: &str, agent: &str, state_follows: bool) -> String {
    let mut w = Writer::new();
    w.str("name", name).str("agent", agent).kind("cf_agent_identity").flag("stateFollows", state_follows);
    w.end()
}

/// The shared state, from its JSON text.
pub fn state(json: &str) -> String {
    let mut w = Writer::new();
    w.raw("state", json).kind("cf_agent_state");
    w.end()
}

/// A refused state.
pub fn state_error(text: &str) -> String {
    let mut w = Writer::new();
    w.str("error", text).kind("cf_agent_state_error");
    w.end()
}

/// No MCP servers.
pub fn mcp_servers() -> &'static str {
    r#"{"mcp":{"prompts":[],"resources":[],"servers":{},"tools":[]},"type":"cf_agent_mcp_servers"}"#
}

/// The transcript, concatenated from the stored texts (decision 53).
pub fn transcript<S: AsRef<str>>(messages: &[S], connect: bool) -> String {
    let size: usize = messages.iter().map(|m| m.as_ref().len() + 1).sum();
    let mut out = String::with_capacity(size + 64);
    out.push_str(r#"{"type":"cf_agent_chat_messages","messages":"#);
    array(&mut out, messages);
    out.push_str(if connect { r#","connect":true}"# } else { "}" });
    out
}

/// JSON texts as one JSON array.
pub fn array<S: AsRef<str>>(out: &mut String, items: &[S]) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(item.as_ref());
    }
    out.push(']');
}

/// Strings as one JSON array.
pub fn string_array<S: AsRef<str>>(items: &[S]) -> String {
    let mut out = String::from("[");
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        chunk::quote(&mut out, item.as_ref());
    }
    out.push(']');
    out
}

/// One message that changed, from its JSON text.
pub fn message_updated(message: &str) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_message_updated").raw("message", message);
    w.end()
}

/// An interrupted turn is being put back to work, or no longer. `id` is the request it began with.
pub fn recovering(id: Option<&RequestId>) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_chat_recovering").raw("recovering", if id.is_some() { "true" } else { "false" });
    w.opt_str("id", id.map(|id| id.as_str()));
    w.end()
}

/// What came of a result or an approval, for a sender that asked (`turns-and-tools.md` §9.4).
pub fn tool_result_ack(call: &str, status: &str) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_tool_result_ack").str("toolCallId", call).str("status", status);
    w.end()
}

/// The conversation was cleared.
pub fn cleared() -> &'static str {
    r#"{"type":"cf_agent_chat_clear"}"#
}

/// A stream is offered.
pub fn resuming(id: &RequestId, probe: Option<&str>) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_stream_resuming").str("id", id).opt_str("probeId", probe);
    w.end()
}

/// A stream will be offered.
pub fn pending(id: &RequestId, probe: Option<&str>) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_stream_pending").str("id", id).opt_str("probeId", probe);
    w.end()
}

/// No stream is there; `idle` as the reason proves that nothing is going on.
pub fn resume_none(reason: Option<&str>, probe: Option<&str>) -> String {
    let mut w = Writer::new();
    w.kind("cf_agent_stream_resume_none").opt_str("reason", reason).opt_str("probeId", probe);
    w.end()
}

/// A piece of a callable's stream.
pub fn rpc_chunk(id: &str, result: &Value) -> String {
    let mut w = Writer::new();
    w.raw("done", "false").str("id", id).val("result", result).raw("success", "true").kind("rpc");
    w.end()
}

/// A callable's end.
pub fn rpc_done(id: &str, result: Option<&Value>) -> String {
    let mut w = Writer::new();
    w.raw("done", "true").str("id", id).opt("result", result).raw("success", "true").kind("rpc");
    w.end()
}

/// A callable's failure.
pub fn rpc_error(id: &str, error: &str) -> String {
    let mut w = Writer::new();
    w.str("error", error).str("id", id).raw("success", "false").kind("rpc");
    w.end()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn chat(init: Value) -> ClientFrame {
        decode(&json!({"id":"R","init":init,"type":"cf_agent_use_chat_request"}).to_string())
    }

    #[test]
    fn a_recorded_chat_request_is_read_whole() {
        let body = json!({"messages":[{"parts":[{"type":"text","text":"hi"}],"id":"u","role":"user"}],
            "trigger":"regenerate-message","clientTools":[{"name":"t"}],"mood":"good"});
        let ClientFrame::Chat { id, body: Ok(body) } = chat(json!({"method":"POST","body":body.to_string()})) else {
            panic!("not read")
        };
        assert_eq!(id, RequestId::from("R"));
        assert!(body.regenerate);
        assert_eq!(body.messages.first().map(|m| m.get()), Some(r#"{"parts":[{"type":"text","text":"hi"}],"id":"u","role":"user"}"#));
        assert_eq!(body.client_tools, Some(json!([{"name":"t"}])));
        assert_eq!(Value::Object(body.custom), json!({"mood":"good"}));
    }

    #[test]
    fn a_chat_request_that_cannot_be_read_says_why() {
        // wire 66, 67
        assert!(matches!(chat(json!({"method":"PUT","body":"{}"})), ClientFrame::Ignored { .. }));
        let table = [
            (json!({"method":"POST"}), "no body"),
            (json!({"method":"POST","body":{}}), "no body"),
            (json!({"method":"POST","body":"{"}), "not a JSON object"),
            (json!({"method":"POST","body":"[]"}), "not a JSON object"),
            (json!({"method":"POST","body":"{}"}), "no `messages`"),
            (json!({"method":"POST","body":"{\"messages\":7}"}), "not an array"),
        ];
        for (init, reason) in table {
            let ClientFrame::Chat { body: Err(text), .. } = chat(init.clone()) else { panic!("{init} was taken") };
            assert!(text.contains(reason), "{init}: {text}");
        }
        assert!(matches!(
            decode(r#"{"id":7,"init":{"method":"POST","body":"{}"},"type":"cf_agent_use_chat_request"}"#),
            ClientFrame::Ignored { .. }
        ));
    }

    #[test]
    fn what_is_no_frame_of_ours_goes_to_the_application() {
        // wire 41, 55
        for text in [
            "hello",
            r#"{"type":"x"}"#,
            "[]",
            "null",
            "{}",
            r#"{"type":7}"#,
            "",
            "{\"type\":",
            r#"{"type":"rpc","id":1,"method":"m","args":[]}"#,
            r#"{"type":"rpc","id":"1","method":"m","args":{}}"#,
        ] {
            assert!(matches!(decode(text), ClientFrame::Application), "{text}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        // field A-04
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let state = format!(r#"{{"type":"cf_agent_state","state":{deep}}}"#);
        assert!(matches!(decode(&state), ClientFrame::Ignored { .. }));
        let body = json!({"messages":[],"x":0}).to_string().replace(":0", &format!(":{deep}"));
        assert!(matches!(chat(json!({"method":"POST","body":body})), ClientFrame::Chat { body: Err(_), .. }));
    }

    #[test]
    fn the_id_of_an_oversized_request_is_found_at_its_beginning() {
        let text =
            format!(r#"{{"id":"R1","init":{{"method":"POST","body":"{}"}},"type":"cf_agent_use_chat_request"}}"#, "x".repeat(9000));
        assert_eq!(chat_id_of_prefix(&text), Some(RequestId::from("R1")));
        assert_eq!(chat_id_of_prefix(&text.replace("chat_request", "other")), None);
        assert_eq!(chat_id_of_prefix("\u{1F600}"), None);
    }

    #[test]
    fn frames_are_written_as_clients_read_them() {
        let id = RequestId::from("R");
        let end = Terminal {
            id: id.clone(),
            ending: Ending::Error,
            body: "quota".into(),
            message_ids: Some(string_array(&["u\"1"])),
            continuation: true,
        };
        let table = [
            (
                chunk(&id, "{\"type\":\"x\"}", Some(3), false, false),
                json!({"id":"R","type":RESPONSE,"body":"{\"type\":\"x\"}","done":false,"seq":3}),
            ),
            (
                chunk(&id, "b", None, true, true),
                json!({"id":"R","type":RESPONSE,"body":"b","done":false,"continuation":true,"replay":true}),
            ),
            (
                replay_complete(&id, false),
                json!({"id":"R","type":RESPONSE,"body":"","done":false,"replay":true,"replayComplete":true}),
            ),
            (
                terminal(&end),
                json!({"id":"R","type":RESPONSE,"body":"quota","done":true,"error":true,"outcome":"error","messageIds":["u\"1"],"continuation":true}),
            ),
            (replay_terminal(&id, None), json!({"id":"R","type":RESPONSE,"body":"","done":true,"replay":true})),
            (identity("r", "a", true), json!({"name":"r","agent":"a","type":"cf_agent_identity","stateFollows":true})),
            (identity("r", "a", false), json!({"name":"r","agent":"a","type":"cf_agent_identity"})),
            (state("{\"n\":1}"), json!({"state":{"n":1},"type":"cf_agent_state"})),
            (state_error("no"), json!({"error":"no","type":"cf_agent_state_error"})),
            (mcp_servers().into(), json!({"mcp":{"prompts":[],"resources":[],"servers":{},"tools":[]},"type":"cf_agent_mcp_servers"})),
            (
                transcript(&["{\"id\":\"a\"}", "{}"], true),
                json!({"type":"cf_agent_chat_messages","messages":[{"id":"a"},{}],"connect":true}),
            ),
            (transcript::<&str>(&[], false), json!({"type":"cf_agent_chat_messages","messages":[]})),
            (message_updated("{\"id\":\"a\"}"), json!({"type":"cf_agent_message_updated","message":{"id":"a"}})),
            (resuming(&id, Some("p")), json!({"type":"cf_agent_stream_resuming","id":"R","probeId":"p"})),
            (pending(&id, None), json!({"type":"cf_agent_stream_pending","id":"R"})),
            (resume_none(Some("idle"), Some("p")), json!({"type":"cf_agent_stream_resume_none","reason":"idle","probeId":"p"})),
            (resume_none(None, None), json!({"type":"cf_agent_stream_resume_none"})),
            (rpc_chunk("c", &json!(1)), json!({"done":false,"id":"c","result":1,"success":true,"type":"rpc"})),
            (rpc_done("c", None), json!({"done":true,"id":"c","success":true,"type":"rpc"})),
            (rpc_error("c", "e"), json!({"error":"e","id":"c","success":false,"type":"rpc"})),
        ];
        for (frame, expected) in table {
            assert_eq!(serde_json::from_str::<Value>(&frame).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_decoder(text in any::<String>()) {
            let _ = decode(&text);
            let _ = chat_id_of_prefix(&text);
        }

        #[test]
        fn no_field_of_a_wrong_type_panics_the_decoder(
            kind in prop::sample::select(vec!["cf_agent_state", "rpc", "cf_agent_use_chat_request", "cf_agent_stream_resume_request",
                "cf_agent_stream_resume_ack", "cf_agent_chat_request_cancel", "cf_agent_tool_result", "cf_agent_tool_approval"]),
            key in prop::sample::select(vec!["id", "init", "state", "args", "method", "probeId", "toolCallId", "approved"]),
            value in prop::sample::select(vec!["1", "null", "\"\"", "\"x\"", "[]", "{}", "{\"body\":1,\"method\":\"POST\"}", "true", "1e999"]),
        ) {
            let _ = decode(&format!(r#"{{"type":"{kind}","{key}":{value}}}"#));
        }
    }
}
