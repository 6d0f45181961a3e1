//! Chunks → the parts of one assistant message, so that what is stored is what the screens show.
//!
//! Two reducers run in browsers: the one of the AI SDK in the tab that asked, the one of the agents package in every other
//! (wire §3.4, §3.5). For the order of chunks we emit (wire §3.6) this one ends with the parts both agree on. Where they differ
//! it keeps what the AI SDK keeps, except that an input is always an object (field T-03) and a settled call never changes again.
//!
//! The text of an open block is kept outside the JSON tree: a delta costs its own length, however long the text is by then.

use serde_json::{Map, Value};

use super::repair::{is_content, object_input};
use crate::{
    ids::CallId,
    wire::{
        chunk::Chunk,
        message::{Part, Role, UiMessage, call_id, is_settled, part_type, state, str_field, text_part},
    },
};

/// One assistant message under construction.
#[derive(Clone, Debug)]
pub struct Accumulator {
    message: UiMessage,
    /// Whether the message was there before the stream; then its id stays (decision 6).
    extends: bool,
    text: Option<Block>,
    reasoning: Option<Block>,
    /// Calls whose input is not final: arguments still stream, or an approval was asked for before they were complete.
    inputs: Vec<Input>,
}

/// A block that still grows. Parts are never removed, so its index stays right.
#[derive(Clone, Debug)]
struct Block {
    id: u32,
    index: usize,
    text: String,
}

#[derive(Clone, Debug)]
struct Input {
    call: CallId,
    index: usize,
    raw: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Reasoning,
}

impl Accumulator {
    /// An empty reply.
    pub fn new(id: &str) -> Self {
        Self::start(UiMessage::new(id, Role::Assistant), false)
    }

    /// A reply that goes on: same id, the parts so far are kept and closed.
    pub fn extending(mut message: UiMessage) -> Self {
        message.parts.iter_mut().for_each(|part| {
            end_block(part);
        });
        Self::start(message, true)
    }

    fn start(message: UiMessage, extends: bool) -> Self {
        Self { message, extends, text: None, reasoning: None, inputs: Vec::new() }
    }

    /// Adds what `chunk` says. Chunks that make no sense here (a result of an unknown call, the end of no block) change nothing.
    pub fn apply(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::TextDelta { id, delta } => self.grow(Kind::Text, *id, delta),
            Chunk::ReasoningDelta { id, delta } => self.grow(Kind::Reasoning, *id, delta),
            Chunk::ToolInputDelta { call, delta } => {
                if let Some(input) = self.inputs.iter_mut().rfind(|input| input.call == *call) {
                    input.raw.push_str(delta);
                }
            }
            Chunk::Start { message_id, metadata } => {
                if let (Some(id), false) = (message_id, self.extends) {
                    self.message.id = id.to_string();
                }
                self.merge_metadata(metadata.as_ref());
            }
            Chunk::StartStep => self.push([("type", "step-start".into())]),
            Chunk::FinishStep => {}
            Chunk::TextStart { id } => self.open(Kind::Text, *id),
            Chunk::TextEnd { id, meta } => self.end(Kind::Text, *id, meta.as_ref()),
            Chunk::ReasoningStart { id } => self.open(Kind::Reasoning, *id),
            Chunk::ReasoningEnd { id, meta } => self.end(Kind::Reasoning, *id, meta.as_ref()),
            Chunk::ToolInputStart { call, tool } => {
                if self.call(call).is_none() {
                    self.inputs.push(Input { call: call.clone(), index: self.message.parts.len(), raw: String::new() });
                    self.push(call_fields(call, tool, false, "input-streaming"));
                }
            }
            Chunk::ToolInputAvailable { call, tool, input, meta } => self.input_available(call, tool, input, meta.as_ref()),
            Chunk::ToolInputError { call, tool, input, error, dynamic } => self.input_error(call, tool, input, error, *dynamic),
            Chunk::ToolApprovalRequest { approval, call } => self.approval_request(approval, call),
            Chunk::ToolOutputAvailable { call, output, preliminary } => {
                if let Some(part) = self.settle(call, "output-available") {
                    part.insert("output".into(), output.clone());
                    if *preliminary {
                        part.insert("preliminary".into(), true.into());
                    }
                }
            }
            Chunk::ToolOutputError { call, error, dynamic: _ } => {
                if let Some(part) = self.settle(call, "output-error") {
                    part.insert("errorText".into(), error.as_str().into());
                }
            }
            Chunk::ToolOutputDenied { call } => self.deny(call),
            Chunk::Source { id, url, title } => {
                let id = format!("source-{id}");
                let fixed = [("type", "source-url".into()), ("sourceId", id.into()), ("url", url.as_str().into())];
                self.push(fixed.into_iter().chain(title.as_deref().map(|title| ("title", title.into()))));
            }
            Chunk::File { media_type, url } => {
                self.push([("type", "file".into()), ("mediaType", media_type.as_str().into()), ("url", url.as_str().into())]);
            }
            Chunk::Data(fields) => self.data(fields),
            Chunk::Metadata(metadata) => self.merge_metadata(Some(metadata)),
            Chunk::Finish { reason: _, metadata } => self.merge_metadata(metadata.as_ref()),
        }
    }

    /// The message so far. Open blocks and arguments are in it, marked as streaming.
    pub fn message(&self) -> UiMessage {
        let mut message = self.message.clone();
        self.fill(&mut message);
        message
    }

    /// The message, when nothing more comes.
    pub fn into_message(mut self) -> UiMessage {
        let mut message = std::mem::replace(&mut self.message, UiMessage::new("", Role::Assistant));
        self.fill(&mut message);
        message
    }

    /// The id of the message.
    pub fn id(&self) -> &str {
        &self.message.id
    }

    /// Whether there is nothing in it that anyone would see.
    pub fn is_empty(&self) -> bool {
        let open = |index: usize| [&self.text, &self.reasoning].into_iter().flatten().find(|block| block.index == index);
        let text = |index, part| open(index).map_or_else(|| str_field(part, "text").unwrap_or_default(), |block| &block.text);
        !self.message.parts.iter().enumerate().any(|(index, part)| is_content(part, text(index, part)))
    }

    /// The newest part of this call.
    pub fn call(&self, call: &str) -> Option<&Part> {
        self.message.parts.iter().rfind(|part| call_id(part) == Some(call))
    }

    /// The parts of the last step.
    pub fn last_step(&self) -> Vec<Part> {
        let message = self.message();
        let start = message.parts.iter().rposition(|part| part_type(part) == "step-start").map_or(0, |at| at + 1);
        message.parts.into_iter().skip(start).collect()
    }

    /// The calls that still wait for their end, in order.
    pub fn open_calls(&self) -> impl Iterator<Item = &Part> {
        self.message.parts.iter().filter(|part| call_id(part).is_some() && !is_settled(part))
    }

    fn call_mut(&mut self, call: &str) -> Option<&mut Part> {
        self.message.parts.iter_mut().rfind(|part| call_id(part) == Some(call))
    }

    fn push<'a>(&mut self, fields: impl IntoIterator<Item = (&'a str, Value)>) {
        self.message.parts.push(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    }

    fn block(&mut self, kind: Kind) -> &mut Option<Block> {
        match kind {
            Kind::Text => &mut self.text,
            Kind::Reasoning => &mut self.reasoning,
        }
    }

    fn open(&mut self, kind: Kind, id: u32) {
        if let Some(left_open) = self.block(kind).as_ref().map(|block| block.id) {
            self.end(kind, left_open, None);
        }
        let index = self.message.parts.len();
        match kind {
            Kind::Text => {
                let mut part = text_part("");
                part.insert("state".into(), "streaming".into());
                self.message.parts.push(part);
            }
            Kind::Reasoning => self.push([
                ("type", "reasoning".into()),
                ("id", id.to_string().into()),
                ("text", "".into()),
                ("state", "streaming".into()),
            ]),
        }
        *self.block(kind) = Some(Block { id, index, text: String::new() });
    }

    fn grow(&mut self, kind: Kind, id: u32, delta: &str) {
        if self.block(kind).as_ref().is_none_or(|block| block.id != id) {
            self.open(kind, id);
        }
        if let Some(block) = self.block(kind) {
            block.text.push_str(delta);
        }
    }

    fn end(&mut self, kind: Kind, id: u32, meta: Option<&Value>) {
        let Some(block) = self.block(kind).take_if(|block| block.id == id) else { return };
        if let Some(part) = self.message.parts.get_mut(block.index) {
            part.insert("text".into(), block.text.into());
            part.insert("state".into(), "done".into());
            set(part, "providerMetadata", meta);
        }
    }

    fn input_available(&mut self, call: &CallId, tool: &str, input: &Value, meta: Option<&Value>) {
        let open = self.inputs.iter().rposition(|input| input.call == *call);
        match self.call_mut(call) {
            None => self.push(
                call_fields(call, tool, false, "input-available")
                    .into_iter()
                    .chain([("input", object_input(Some(input)))])
                    .chain(meta.map(|meta| ("callProviderMetadata", meta.clone()))),
            ),
            Some(part) => {
                let streaming = state(part) == Some("input-streaming");
                let waits_for_input = matches!(state(part), Some("approval-requested" | "approval-responded"))
                    && (open.is_some() || !part.contains_key("input"));
                if streaming {
                    part.insert("state".into(), "input-available".into());
                }
                if streaming || waits_for_input {
                    part.insert("input".into(), object_input(Some(input)));
                    set(part, "callProviderMetadata", meta);
                }
            }
        }
        if let Some(open) = open {
            self.inputs.remove(open);
        }
    }

    fn input_error(&mut self, call: &CallId, tool: &str, input: &Value, error: &str, dynamic: bool) {
        if self.call(call).is_none() {
            self.push(call_fields(call, tool, dynamic, "output-error"));
        } else if self.settle(call, "output-error").is_none() {
            return;
        }
        if let Some(part) = self.call_mut(call) {
            part.insert("input".into(), object_input(Some(input)));
            if !input.is_object() {
                // `input` has to be an object for the next provider; what came stays readable.
                part.insert("rawInput".into(), input.clone());
            }
            part.insert("errorText".into(), error.into());
        }
    }

    fn approval_request(&mut self, approval: &str, call: &CallId) {
        let raw = self.inputs.iter().rfind(|input| input.call == *call).map(|input| Value::from(input.raw.as_str()));
        let Some(part) = self.call_mut(call) else { return };
        if is_settled(part) || state(part) == Some("approval-responded") {
            return;
        }
        if let (Some(raw), false) = (&raw, part.contains_key("input")) {
            part.insert("input".into(), object_input(Some(raw)));
        }
        part.insert("state".into(), "approval-requested".into());
        part.insert("approval".into(), Value::Object(Map::from_iter([("id".to_owned(), approval.into())])));
    }

    fn deny(&mut self, call: &CallId) {
        if self.call(call).and_then(|part| part.get("approval")?.get("approved")) == Some(&Value::Bool(true)) {
            return;
        }
        let Some(part) = self.settle(call, "output-denied") else { return };
        // A denied part without `approval.approved: false` is no valid message for the AI SDK.
        match part.get_mut("approval") {
            Some(Value::Object(approval)) => {
                approval.insert("approved".into(), false.into());
            }
            _ => {
                let approval = Map::from_iter([("id".to_owned(), call.as_str().into()), ("approved".to_owned(), false.into())]);
                part.insert("approval".into(), Value::Object(approval));
            }
        }
    }

    /// A call gets an error in place of the answer that nobody waits for any more.
    pub fn give_up(&mut self, call: &CallId, error: &str) {
        if let Some(part) = self.settle(call, "output-error") {
            part.insert("errorText".into(), error.into());
        }
    }

    /// Puts something else in the place of a call.
    pub fn replace(&mut self, call: &str, part: &Part) {
        if let Some(place) = self.message.parts.iter_mut().rfind(|part| call_id(part) == Some(call)) {
            *place = part.clone();
        }
    }

    /// A person decided about a call. Whether there is such a call that still can be decided.
    pub fn decide(&mut self, call: &CallId, approved: bool, reason: Option<&str>) -> bool {
        let part = if approved {
            let open = |part: &&mut Part| matches!(state(part), Some("input-available" | "approval-requested"));
            self.call_mut(call).filter(open)
        } else {
            self.settle(call, "output-denied")
        };
        let Some(part) = part else { return false };
        if approved {
            part.insert("state".into(), "approval-responded".into());
        }
        let id = part.get("approval").and_then(|approval| approval.get("id")).cloned().unwrap_or_else(|| call.as_str().into());
        let mut approval = Map::from_iter([("id".to_owned(), id), ("approved".to_owned(), approved.into())]);
        if let Some(reason) = reason {
            approval.insert("reason".into(), reason.into());
        }
        part.insert("approval".into(), Value::Object(approval));
        true
    }

    /// Moves a call that is not settled to an output state and clears what the state before may have left.
    fn settle(&mut self, call: &CallId, to: &str) -> Option<&mut Part> {
        let open = self.inputs.iter().rposition(|input| input.call == *call).map(|open| self.inputs.remove(open));
        let part = self.call_mut(call).filter(|part| !is_settled(part))?;
        if let (Some(open), false) = (open, part.contains_key("input")) {
            part.insert("input".into(), object_input(Some(&open.raw.into())));
        }
        part.insert("state".into(), to.into());
        for stale in ["output", "preliminary", "errorText"] {
            part.shift_remove(stale);
        }
        Some(part)
    }

    fn data(&mut self, fields: &Map<String, Value>) {
        let kind = part_type(fields);
        if !kind.starts_with("data-") || fields.get("transient") == Some(&Value::Bool(true)) {
            return;
        }
        let id = fields.get("id").filter(|id| !id.is_null());
        let known = id.and_then(|id| self.message.parts.iter_mut().find(|part| part_type(part) == kind && part.get("id") == Some(id)));
        match known {
            Some(part) => {
                part.insert("data".into(), fields.get("data").cloned().unwrap_or_default());
            }
            None => {
                let mut part = fields.clone();
                part.shift_remove("transient");
                self.message.parts.push(part);
            }
        }
    }

    fn merge_metadata(&mut self, new: Option<&Value>) {
        let Some(new) = new.filter(|new| !new.is_null()) else { return };
        match &mut self.message.metadata {
            Some(metadata) => merge(metadata, new),
            none => *none = Some(new.clone()),
        }
    }

    fn fill(&self, message: &mut UiMessage) {
        for block in [&self.text, &self.reasoning].into_iter().flatten() {
            if let Some(part) = message.parts.get_mut(block.index) {
                part.insert("text".into(), block.text.as_str().into());
            }
        }
        for input in self.inputs.iter().filter(|input| !input.raw.is_empty()) {
            if let Some(part) = message.parts.get_mut(input.index).filter(|part| state(part) == Some("input-streaming")) {
                part.insert("rawInput".into(), input.raw.as_str().into());
            }
        }
    }
}

/// Replays stored chunk texts. Texts this version does not know are skipped.
pub fn fold<'a>(start: Accumulator, log: impl Iterator<Item = &'a str>) -> Accumulator {
    log.filter_map(Chunk::parse).fold(start, |mut reply, chunk| {
        reply.apply(&chunk);
        reply
    })
}

/// Marks a text or reasoning part that still streams as done. Whether it did.
pub(super) fn end_block(part: &mut Part) -> bool {
    let streams = matches!(part_type(part), "text" | "reasoning") && state(part) == Some("streaming");
    if streams {
        part.insert("state".into(), "done".into());
    }
    streams
}

fn call_fields(call: &CallId, tool: &str, dynamic: bool, state: &'static str) -> Vec<(&'static str, Value)> {
    let mut fields = Vec::with_capacity(4);
    if dynamic {
        fields.push(("type", "dynamic-tool".into()));
        fields.push(("toolName", tool.into()));
    } else {
        fields.push(("type", format!("tool-{tool}").into()));
    }
    fields.push(("toolCallId", call.as_str().into()));
    fields.push(("state", state.into()));
    fields
}

fn set(part: &mut Part, key: &str, value: Option<&Value>) {
    if let Some(value) = value {
        part.insert(key.into(), value.clone());
    }
}

/// Deep for objects; anything else is replaced. The keys left out are those the AI SDK leaves out.
fn merge(into: &mut Value, new: &Value) {
    match (into, new) {
        (Value::Object(into), Value::Object(new)) => {
            for (key, value) in new {
                match (into.get_mut(key), value) {
                    _ if matches!(key.as_str(), "__proto__" | "constructor" | "prototype") => {}
                    (Some(old @ Value::Object(_)), Value::Object(_)) => merge(old, value),
                    _ => {
                        into.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (into, new) => *into = new.clone(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(log: &[Value]) -> UiMessage {
        let texts: Vec<String> = log.iter().map(Value::to_string).collect();
        fold(Accumulator::new("a1"), texts.iter().map(String::as_str)).into_message()
    }

    fn parts(log: &[Value]) -> Value {
        serde_json::to_value(reply(log).parts).unwrap()
    }

    #[test]
    fn a_step_with_a_tool_and_an_answer_becomes_the_parts_both_clients_show() {
        let log = [
            json!({"type":"start","messageId":"a2"}),
            json!({"type":"start-step"}),
            json!({"type":"reasoning-start","id":"1"}),
            json!({"type":"reasoning-delta","id":"1","delta":"hm"}),
            json!({"type":"reasoning-delta","id":"1","delta":"m"}),
            json!({"type":"reasoning-end","id":"1","providerMetadata":{"x":{"s":"sig"}}}),
            json!({"type":"text-start","id":"2"}),
            json!({"type":"text-delta","id":"2","delta":"Let me "}),
            json!({"type":"text-delta","id":"2","delta":"look."}),
            json!({"type":"text-end","id":"2"}),
            json!({"type":"tool-input-start","toolCallId":"c1","toolName":"weather"}),
            json!({"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"{\"city\":"}),
            json!({"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"\"Bonn\"}"}),
            json!({"type":"tool-input-available","toolCallId":"c1","toolName":"weather",
                "input":{"city":"Bonn"},"providerMetadata":{"g":{"t":1}}}),
            json!({"type":"tool-output-available","toolCallId":"c1","output":{"p":1},"preliminary":true}),
            json!({"type":"tool-output-available","toolCallId":"c1","output":{"celsius":9}}),
            json!({"type":"source-url","sourceId":"source-1","url":"https://e.org","title":"E"}),
            json!({"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA=="}),
            json!({"type":"finish-step"}),
            json!({"type":"start-step"}),
            json!({"type":"text-start","id":"3"}),
            json!({"type":"text-delta","id":"3","delta":"9 °C"}),
            json!({"type":"text-end","id":"3"}),
            json!({"type":"finish-step"}),
            json!({"type":"finish","finishReason":"stop","messageMetadata":{"tokens":7}}),
        ];
        let message = reply(&log);
        // wire 61
        assert_eq!(message.id, "a2");
        assert_eq!(message.metadata, Some(json!({"tokens":7})));
        assert_eq!(
            serde_json::to_value(&message.parts).unwrap(),
            json!([
                {"type":"step-start"},
                {"type":"reasoning","id":"1","text":"hmm","state":"done","providerMetadata":{"x":{"s":"sig"}}},
                {"type":"text","text":"Let me look.","state":"done"},
                {"type":"tool-weather","toolCallId":"c1","state":"output-available","input":{"city":"Bonn"},
                 "callProviderMetadata":{"g":{"t":1}},"output":{"celsius":9}},
                {"type":"source-url","sourceId":"source-1","url":"https://e.org","title":"E"},
                {"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA=="},
                {"type":"step-start"},
                {"type":"text","text":"9 °C","state":"done"},
            ])
        );
    }

    #[test]
    fn what_is_open_is_shown_as_streaming_and_does_not_end_the_block() {
        let mut reply = Accumulator::new("a1");
        reply.apply(&Chunk::TextStart { id: 1 });
        reply.apply(&Chunk::TextDelta { id: 1, delta: "He".into() });
        reply.apply(&Chunk::ToolInputStart { call: "c".into(), tool: "t".into() });
        reply.apply(&Chunk::ToolInputDelta { call: "c".into(), delta: "{\"a".into() });
        let expected = json!([
            {"type":"text","text":"He","state":"streaming"},
            {"type":"tool-t","toolCallId":"c","state":"input-streaming","rawInput":"{\"a"},
        ]);
        assert_eq!(serde_json::to_value(reply.message().parts).unwrap(), expected);
        reply.apply(&Chunk::TextDelta { id: 1, delta: "llo".into() });
        reply.apply(&Chunk::TextEnd { id: 1, meta: Some(json!({"m":{}})) });
        assert_eq!(reply.message().text(), "Hello");
        assert_eq!(reply.message().parts.first().unwrap().get("providerMetadata"), Some(&json!({"m":{}})));
        assert_eq!(reply.open_calls().count(), 1);
    }

    #[test]
    fn an_extended_message_keeps_its_id_and_parts() {
        // decision 6, decision 32
        let old: UiMessage = serde_json::from_value(json!({"id":"a1","role":"assistant","metadata":{"k":{"a":1,"b":[1]}},"parts":[
            {"type":"text","text":"half","state":"streaming"},
            {"type":"tool-t","toolCallId":"c","state":"input-available","input":{}},
        ]}))
        .unwrap();
        let mut reply = Accumulator::extending(old);
        reply.apply(&Chunk::Start { message_id: Some("other".into()), metadata: Some(json!({"k":{"b":[2],"c":null}})) });
        reply.apply(&Chunk::ToolOutputAvailable { call: "c".into(), output: json!(null), preliminary: false });
        reply.apply(&Chunk::TextStart { id: 1 });
        reply.apply(&Chunk::TextDelta { id: 1, delta: " more".into() });
        let message = reply.into_message();
        assert_eq!(message.id, "a1");
        assert_eq!(message.metadata, Some(json!({"k":{"a":1,"b":[2],"c":null}})));
        assert_eq!(
            serde_json::to_value(message.parts).unwrap(),
            json!([
                {"type":"text","text":"half","state":"done"},
                {"type":"tool-t","toolCallId":"c","state":"output-available","input":{},"output":null},
                {"type":"text","text":" more","state":"streaming"},
            ])
        );
    }

    #[test]
    fn states_of_a_call() {
        let start = || json!({"type":"tool-input-start","toolCallId":"c","toolName":"t"});
        let input = |input: Value| json!({"type":"tool-input-available","toolCallId":"c","toolName":"t","input":input});
        let ask = || json!({"type":"tool-approval-request","toolCallId":"c","approvalId":"p"});
        let output = |n: i32| json!({"type":"tool-output-available","toolCallId":"c","output":n});
        let failed = || json!({"type":"tool-output-error","toolCallId":"c","errorText":"boom"});
        let denied = || json!({"type":"tool-output-denied","toolCallId":"c"});
        let table = [
            // wire X27, field T-03
            (vec![input(json!("{\"a\":1}"))], json!([{"type":"tool-t","toolCallId":"c","state":"input-available","input":{"a":1}}])),
            (vec![start(), input(json!([1]))], json!([{"type":"tool-t","toolCallId":"c","state":"input-available","input":{}}])),
            // T43
            (
                vec![json!({"type":"tool-input-error","toolCallId":"c","toolName":"zz",
                        "input":"{\"a","dynamic":true,"errorText":"no tool zz"})],
                json!([{"type":"dynamic-tool","toolName":"zz",
                    "toolCallId":"c","state":"output-error","input":{},"rawInput":"{\"a","errorText":"no tool zz"}]),
            ),
            // The kind follows the part that exists.
            (
                vec![
                    start(),
                    json!({"type":"tool-input-error","toolCallId":"c","toolName":"t","input":{"n":"x"},
                        "dynamic":true,"errorText":"/n: bad"}),
                ],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-error","input":{"n":"x"},"errorText":"/n: bad"}]),
            ),
            // T46
            (
                vec![start(), input(json!({})), failed()],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-error","input":{},"errorText":"boom"}]),
            ),
            // First write wins.
            (
                vec![input(json!({})), output(1), output(2), failed(), start(), input(json!({"b":1}))],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-available","input":{},"output":1}]),
            ),
            // field T-05
            (
                vec![input(json!({})), ask()],
                json!([{"type":"tool-t","toolCallId":"c","state":"approval-requested","input":{},"approval":{"id":"p"}}]),
            ),
            (
                vec![input(json!({})), ask(), denied()],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-denied","input":{},"approval":{"id":"p","approved":false}}]),
            ),
            (
                vec![input(json!({})), denied()],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-denied","input":{},"approval":{"id":"c","approved":false}}]),
            ),
            // Input that comes after the approval was asked for.
            (
                vec![
                    start(),
                    json!({"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\":1}"}),
                    ask(),
                    input(json!({"a":2})),
                ],
                json!([{"type":"tool-t","toolCallId":"c","state":"approval-requested","input":{"a":2},"approval":{"id":"p"}}]),
            ),
            // A preliminary result is not the end.
            (
                vec![
                    input(json!({})),
                    json!({"type":"tool-output-available","toolCallId":"c","output":1,"preliminary":true}),
                    failed(),
                ],
                json!([{"type":"tool-t","toolCallId":"c","state":"output-error","input":{},"errorText":"boom"}]),
            ),
            // Unknown calls.
            (
                vec![output(1), failed(), denied(), ask(), json!({"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"x"})],
                json!([]),
            ),
        ];
        for (log, expected) in table {
            assert_eq!(parts(&log), expected, "{log:?}");
        }
    }

    #[test]
    fn data_parts_are_replaced_by_id_and_transient_ones_never_stored() {
        // wire 77, wire 78
        let log = [
            json!({"type":"data-w","id":"x","data":1}),
            json!({"type":"data-w","id":"y","data":1}),
            json!({"type":"data-v","id":"x","data":1}),
            json!({"type":"data-w","id":"x","data":{"n":2}}),
            json!({"type":"data-w","data":3}),
            json!({"type":"data-w","data":3}),
            json!({"type":"data-w","id":"x","data":9,"transient":true}),
        ];
        assert_eq!(
            parts(&log),
            json!([
                {"type":"data-w","id":"x","data":{"n":2}},
                {"type":"data-w","id":"y","data":1},
                {"type":"data-v","id":"x","data":1},
                {"type":"data-w","data":3},
                {"type":"data-w","data":3},
            ])
        );
    }

    #[test]
    fn only_what_is_seen_counts_as_content() {
        let table: [(&[Chunk], bool); 8] = [
            (&[], true),
            (&[Chunk::StartStep, Chunk::TextStart { id: 1 }], true),
            (&[Chunk::TextStart { id: 1 }, Chunk::TextDelta { id: 1, delta: "x".into() }], false),
            (&[Chunk::ReasoningStart { id: 1 }, Chunk::ReasoningEnd { id: 1, meta: None }], true),
            (&[Chunk::ReasoningStart { id: 1 }, Chunk::ReasoningEnd { id: 1, meta: Some(json!({"a":{"redacted":"x"}})) }], false),
            (&[Chunk::ReasoningDelta { id: 1, delta: " \n".into() }], true),
            (&[Chunk::ReasoningDelta { id: 1, delta: "hm".into() }], false),
            (&[Chunk::Metadata(json!({"k":1}))], true),
        ];
        for (chunks, expected) in table {
            let mut reply = Accumulator::new("a");
            chunks.iter().for_each(|chunk| reply.apply(chunk));
            assert_eq!(reply.is_empty(), expected, "{chunks:?}");
        }
    }
}
