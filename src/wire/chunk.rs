//! The chunks of an answer (wire §3.3): what goes into the `body` of a response frame and into the stream log.
//!
//! Only chunks both generations of the AI SDK understand are emitted. The text of a chunk is made once and shared by the log and
//! every socket.

use serde_json::{Map, Value};

use crate::ids::{CallId, MessageId};

/// One chunk. Block ids count up in a stream; blocks of one kind never overlap (wire X28).
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// The stream begins. No id where an existing message is extended (wire §6.2).
    Start {
        /// The id of the reply.
        message_id: Option<MessageId>,
        /// Metadata of the reply.
        metadata: Option<Value>,
    },
    /// A model call begins.
    StartStep,
    /// A model call and its tools are done.
    FinishStep,
    /// A text block begins.
    TextStart {
        /// The block.
        id: u32,
    },
    /// More text.
    TextDelta {
        /// The block.
        id: u32,
        /// The text.
        delta: String,
    },
    /// A text block ends.
    TextEnd {
        /// The block.
        id: u32,
        /// Provider metadata.
        meta: Option<Value>,
    },
    /// A reasoning block begins.
    ReasoningStart {
        /// The block.
        id: u32,
    },
    /// More reasoning.
    ReasoningDelta {
        /// The block.
        id: u32,
        /// The text.
        delta: String,
    },
    /// A reasoning block ends.
    ReasoningEnd {
        /// The block.
        id: u32,
        /// Provider metadata.
        meta: Option<Value>,
    },
    /// A call begins.
    ToolInputStart {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
    },
    /// More of its arguments.
    ToolInputDelta {
        /// The call.
        call: CallId,
        /// A piece of JSON text.
        delta: String,
    },
    /// A call is complete.
    ToolInputAvailable {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// An object.
        input: Value,
        /// Provider metadata.
        meta: Option<Value>,
    },
    /// A call that cannot be executed.
    ToolInputError {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What came as input.
        input: Value,
        /// Why.
        error: String,
        /// Whether the tool is not one we know.
        dynamic: bool,
    },
    /// A person must agree.
    ToolApprovalRequest {
        /// The approval.
        approval: String,
        /// The call.
        call: CallId,
    },
    /// A result.
    ToolOutputAvailable {
        /// The call.
        call: CallId,
        /// The result.
        output: Value,
        /// Whether a later one replaces it.
        preliminary: bool,
    },
    /// A failure.
    ToolOutputError {
        /// The call.
        call: CallId,
        /// Why.
        error: String,
        /// Whether the tool is not one we know.
        dynamic: bool,
    },
    /// A refusal.
    ToolOutputDenied {
        /// The call.
        call: CallId,
    },
    /// A source of the answer.
    Source {
        /// Its id.
        id: u32,
        /// Its address.
        url: String,
        /// Its title.
        title: Option<String>,
    },
    /// A generated file.
    File {
        /// Its media type.
        media_type: String,
        /// Its address.
        url: String,
    },
    /// `data-NAME`, as the application made it.
    Data(Map<String, Value>),
    /// Metadata to merge.
    Metadata(Value),
    /// The stream is complete.
    Finish {
        /// Why the model stopped.
        reason: String,
        /// Metadata to merge.
        metadata: Option<Value>,
    },
}

impl Chunk {
    /// The chunk as JSON text.
    pub fn json(&self) -> String {
        let mut w = Writer::new();
        match self {
            Chunk::Start { message_id, metadata } => {
                w.kind("start").opt_str("messageId", message_id.as_deref()).opt("messageMetadata", metadata.as_ref())
            }
            Chunk::StartStep => w.kind("start-step"),
            Chunk::FinishStep => w.kind("finish-step"),
            Chunk::TextStart { id } => w.kind("text-start").num("id", *id),
            Chunk::TextDelta { id, delta } => w.kind("text-delta").num("id", *id).str("delta", delta),
            Chunk::TextEnd { id, meta } => w.kind("text-end").num("id", *id).opt("providerMetadata", meta.as_ref()),
            Chunk::ReasoningStart { id } => w.kind("reasoning-start").num("id", *id),
            Chunk::ReasoningDelta { id, delta } => w.kind("reasoning-delta").num("id", *id).str("delta", delta),
            Chunk::ReasoningEnd { id, meta } => w.kind("reasoning-end").num("id", *id).opt("providerMetadata", meta.as_ref()),
            Chunk::ToolInputStart { call, tool } => w.kind("tool-input-start").str("toolCallId", call).str("toolName", tool),
            Chunk::ToolInputDelta { call, delta } => w.kind("tool-input-delta").str("toolCallId", call).str("inputTextDelta", delta),
            Chunk::ToolInputAvailable { call, tool, input, meta } => w
                .kind("tool-input-available")
                .str("toolCallId", call)
                .str("toolName", tool)
                .val("input", input)
                .opt("providerMetadata", meta.as_ref()),
            Chunk::ToolInputError { call, tool, input, error, dynamic } => w
                .kind("tool-input-error")
                .str("toolCallId", call)
                .str("toolName", tool)
                .val("input", input)
                .flag("dynamic", *dynamic)
                .str("errorText", error),
            Chunk::ToolApprovalRequest { approval, call } => {
                w.kind("tool-approval-request").str("approvalId", approval).str("toolCallId", call)
            }
            Chunk::ToolOutputAvailable { call, output, preliminary } => {
                w.kind("tool-output-available").str("toolCallId", call).val("output", output).flag("preliminary", *preliminary)
            }
            Chunk::ToolOutputError { call, error, dynamic } => {
                w.kind("tool-output-error").str("toolCallId", call).str("errorText", error).flag("dynamic", *dynamic)
            }
            Chunk::ToolOutputDenied { call } => w.kind("tool-output-denied").str("toolCallId", call),
            Chunk::Source { id, url, title } => {
                w.kind("source-url").str("sourceId", &format!("source-{id}")).str("url", url).opt_str("title", title.as_deref())
            }
            Chunk::File { media_type, url } => w.kind("file").str("mediaType", media_type).str("url", url),
            Chunk::Data(fields) => return Value::Object(fields.clone()).to_string(),
            Chunk::Metadata(metadata) => w.kind("message-metadata").val("messageMetadata", metadata),
            Chunk::Finish { reason, metadata } => {
                w.kind("finish").str("finishReason", reason).opt("messageMetadata", metadata.as_ref())
            }
        };
        w.end()
    }

    /// Reads a chunk of our own log; `None` for what this version does not know.
    pub fn parse(text: &str) -> Option<Chunk> {
        let Value::Object(mut o) = serde_json::from_str(text).ok()? else { return None };
        let kind = o.get("type")?.as_str()?.to_owned();
        Some(match kind.as_str() {
            "start" => Chunk::Start {
                message_id: take_str(&mut o, "messageId").map(MessageId::from),
                metadata: o.shift_remove("messageMetadata"),
            },
            "start-step" => Chunk::StartStep,
            "finish-step" => Chunk::FinishStep,
            "text-start" => Chunk::TextStart { id: take_num(&mut o) },
            "text-delta" => Chunk::TextDelta { id: take_num(&mut o), delta: take_str(&mut o, "delta")? },
            "text-end" => Chunk::TextEnd { id: take_num(&mut o), meta: o.shift_remove("providerMetadata") },
            "reasoning-start" => Chunk::ReasoningStart { id: take_num(&mut o) },
            "reasoning-delta" => Chunk::ReasoningDelta { id: take_num(&mut o), delta: take_str(&mut o, "delta")? },
            "reasoning-end" => Chunk::ReasoningEnd { id: take_num(&mut o), meta: o.shift_remove("providerMetadata") },
            "tool-input-start" => Chunk::ToolInputStart { call: take_call(&mut o)?, tool: take_str(&mut o, "toolName")? },
            "tool-input-delta" => Chunk::ToolInputDelta { call: take_call(&mut o)?, delta: take_str(&mut o, "inputTextDelta")? },
            "tool-input-available" => Chunk::ToolInputAvailable {
                call: take_call(&mut o)?,
                tool: take_str(&mut o, "toolName")?,
                input: o.shift_remove("input").unwrap_or(Value::Null),
                meta: o.shift_remove("providerMetadata"),
            },
            "tool-input-error" => Chunk::ToolInputError {
                call: take_call(&mut o)?,
                tool: take_str(&mut o, "toolName")?,
                input: o.shift_remove("input").unwrap_or(Value::Null),
                error: take_str(&mut o, "errorText")?,
                dynamic: take_flag(&o, "dynamic"),
            },
            "tool-approval-request" => {
                Chunk::ToolApprovalRequest { approval: take_str(&mut o, "approvalId")?, call: take_call(&mut o)? }
            }
            "tool-output-available" => Chunk::ToolOutputAvailable {
                call: take_call(&mut o)?,
                output: o.shift_remove("output").unwrap_or(Value::Null),
                preliminary: take_flag(&o, "preliminary"),
            },
            "tool-output-error" => Chunk::ToolOutputError {
                call: take_call(&mut o)?,
                error: take_str(&mut o, "errorText")?,
                dynamic: take_flag(&o, "dynamic"),
            },
            "tool-output-denied" => Chunk::ToolOutputDenied { call: take_call(&mut o)? },
            "source-url" => Chunk::Source {
                id: take_str(&mut o, "sourceId").and_then(|s| s.strip_prefix("source-")?.parse().ok()).unwrap_or_default(),
                url: take_str(&mut o, "url")?,
                title: take_str(&mut o, "title"),
            },
            "file" => Chunk::File { media_type: take_str(&mut o, "mediaType")?, url: take_str(&mut o, "url")? },
            "message-metadata" => Chunk::Metadata(o.shift_remove("messageMetadata")?),
            "finish" => Chunk::Finish {
                reason: take_str(&mut o, "finishReason").unwrap_or_default(),
                metadata: o.shift_remove("messageMetadata"),
            },
            data if data.starts_with("data-") => Chunk::Data(o),
            _ => return None,
        })
    }
}

fn take_str(o: &mut Map<String, Value>, key: &str) -> Option<String> {
    match o.shift_remove(key)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn take_num(o: &mut Map<String, Value>) -> u32 {
    take_str(o, "id").and_then(|s| s.parse().ok()).unwrap_or_default()
}

fn take_call(o: &mut Map<String, Value>) -> Option<CallId> {
    take_str(o, "toolCallId").map(CallId::from)
}

fn take_flag(o: &Map<String, Value>, key: &str) -> bool {
    o.get(key) == Some(&Value::Bool(true))
}

/// Writes one JSON object field by field, without a tree in between.
pub(crate) struct Writer(String);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    fn key(&mut self, key: &str) -> &mut Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(key);
        self.0.push_str("\":");
        self
    }

    pub(crate) fn kind(&mut self, kind: &str) -> &mut Self {
        self.key("type").0.push('"');
        self.0.push_str(kind);
        self.0.push('"');
        self
    }

    pub(crate) fn str(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        quote(&mut self.0, text);
        self
    }

    pub(crate) fn opt_str(&mut self, key: &str, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            self.str(key, text);
        }
        self
    }

    fn num(&mut self, key: &str, n: u32) -> &mut Self {
        self.key(key).0.push_str(&format!("\"{n}\""));
        self
    }

    pub(crate) fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key).0.push_str(json);
        self
    }

    pub(crate) fn val(&mut self, key: &str, value: &Value) -> &mut Self {
        self.raw(key, &value.to_string())
    }

    pub(crate) fn opt(&mut self, key: &str, value: Option<&Value>) -> &mut Self {
        if let Some(value) = value {
            self.val(key, value);
        }
        self
    }

    /// A field whose name comes from outside.
    pub(crate) fn field(&mut self, key: &str, value: &Value) -> &mut Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, key);
        self.0.push(':');
        self.0.push_str(&value.to_string());
        self
    }

    pub(crate) fn flag(&mut self, key: &str, on: bool) -> &mut Self {
        if on {
            self.raw(key, "true");
        }
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('"');
    escape(out, text);
    out.push('"');
}

/// Appends `text` as it stands between the quotes of a JSON string. Called from everywhere: it stays a call, for the size of the
/// worker.
#[inline(never)]
pub(crate) fn escape(out: &mut String, text: &str) {
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        // Escaped bytes are ASCII, so both cuts lie on character boundaries.
        out.push_str(text.get(plain..i).unwrap_or_default());
        if escape.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(escape);
        }
        plain = i + 1;
    }
    out.push_str(text.get(plain..).unwrap_or_default());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn every_chunk_is_the_json_of_the_wire_and_reads_back() {
        let call = || CallId::from("c1");
        let table = [
            (Chunk::Start { message_id: Some("a1".into()), metadata: None }, json!({"type":"start","messageId":"a1"})),
            (Chunk::Start { message_id: None, metadata: Some(json!({"k":1})) }, json!({"type":"start","messageMetadata":{"k":1}})),
            (Chunk::StartStep, json!({"type":"start-step"})),
            (Chunk::FinishStep, json!({"type":"finish-step"})),
            (Chunk::TextStart { id: 1 }, json!({"type":"text-start","id":"1"})),
            (Chunk::TextDelta { id: 1, delta: "H\"i\n".into() }, json!({"type":"text-delta","id":"1","delta":"H\"i\n"})),
            (Chunk::TextEnd { id: 1, meta: None }, json!({"type":"text-end","id":"1"})),
            (Chunk::ReasoningStart { id: 2 }, json!({"type":"reasoning-start","id":"2"})),
            (Chunk::ReasoningDelta { id: 2, delta: "r".into() }, json!({"type":"reasoning-delta","id":"2","delta":"r"})),
            (
                Chunk::ReasoningEnd { id: 2, meta: Some(json!({"x":{"s":1}})) },
                json!({"type":"reasoning-end","id":"2","providerMetadata":{"x":{"s":1}}}),
            ),
            (
                Chunk::ToolInputStart { call: call(), tool: "t".into() },
                json!({"type":"tool-input-start","toolCallId":"c1","toolName":"t"}),
            ),
            (
                Chunk::ToolInputDelta { call: call(), delta: "{".into() },
                json!({"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"{"}),
            ),
            (
                Chunk::ToolInputAvailable { call: call(), tool: "t".into(), input: json!({"a":1}), meta: None },
                json!({"type":"tool-input-available","toolCallId":"c1","toolName":"t","input":{"a":1}}),
            ),
            (
                Chunk::ToolInputError { call: call(), tool: "t".into(), input: json!("x"), error: "bad".into(), dynamic: true },
                json!({"type":"tool-input-error","toolCallId":"c1","toolName":"t","input":"x","dynamic":true,"errorText":"bad"}),
            ),
            (
                Chunk::ToolApprovalRequest { approval: "p".into(), call: call() },
                json!({"type":"tool-approval-request","approvalId":"p","toolCallId":"c1"}),
            ),
            (
                Chunk::ToolOutputAvailable { call: call(), output: json!([1]), preliminary: true },
                json!({"type":"tool-output-available","toolCallId":"c1","output":[1],"preliminary":true}),
            ),
            (
                Chunk::ToolOutputError { call: call(), error: "e".into(), dynamic: false },
                json!({"type":"tool-output-error","toolCallId":"c1","errorText":"e"}),
            ),
            (Chunk::ToolOutputDenied { call: call() }, json!({"type":"tool-output-denied","toolCallId":"c1"})),
            (
                Chunk::Source { id: 3, url: "https://e".into(), title: Some("T".into()) },
                json!({"type":"source-url","sourceId":"source-3","url":"https://e","title":"T"}),
            ),
            (
                Chunk::File { media_type: "image/png".into(), url: "data:".into() },
                json!({"type":"file","mediaType":"image/png","url":"data:"}),
            ),
            (Chunk::Metadata(json!({"m":1})), json!({"type":"message-metadata","messageMetadata":{"m":1}})),
            (Chunk::Finish { reason: "stop".into(), metadata: None }, json!({"type":"finish","finishReason":"stop"})),
        ];
        for (chunk, expected) in table {
            let text = chunk.json();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
            assert_eq!(Chunk::parse(&text), Some(chunk));
        }
        let data = json!({"type":"data-weather","id":"w","data":{"t":1}});
        assert_eq!(Chunk::parse(&data.to_string()).map(|c| c.json()), Some(data.to_string()));
        assert_eq!(Chunk::parse(r#"{"type":"of-tomorrow"}"#), None);
    }

    proptest! {
        #[test]
        fn any_text_is_quoted_as_json(text in any::<String>()) {
            let mut out = String::new();
            quote(&mut out, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
