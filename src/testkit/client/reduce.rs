//! How clients fold chunks into messages: the AI SDK's way in the tab that asked, and the agents package's way in tabs that watch.
//!
//! Written from the documents (`wire-protocol.md` §3.4, §3.5) and deliberately not shared with the engine: the two are compared.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A message being streamed into, as the AI SDK keeps it.
pub(super) struct Sdk {
    pub(super) message: Map<String, Value>,
    open: BTreeMap<(Block, String), usize>,
    arguments: BTreeMap<String, Arguments>,
    /// A resumed stream begins anew when its `start` names another message.
    resumed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Block {
    Text,
    Reasoning,
}

struct Arguments {
    text: String,
    name: String,
    dynamic: bool,
}

/// What a chunk did to the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// Nothing a person sees.
    Nothing,
    /// The message is shown, the status stays.
    Publish,
    /// The message is shown, the status is `streaming`.
    Stream,
}

impl Sdk {
    /// A stream into `seed`, or into a new message with a local id.
    pub(super) fn new(seed: Option<&Value>, local_id: &str, resumed: bool) -> Self {
        let fresh = || json!({ "id": local_id, "role": "assistant", "parts": [] });
        let message = seed.cloned().unwrap_or_else(fresh).as_object().cloned().unwrap_or_default();
        Self { message, open: BTreeMap::new(), arguments: BTreeMap::new(), resumed }
    }

    /// The message as it stands.
    pub(super) fn snapshot(&self) -> Value {
        Value::Object(self.message.clone())
    }

    fn parts(&mut self) -> &mut Vec<Value> {
        let parts = self.message.entry("parts").or_insert_with(|| json!([]));
        if !parts.is_array() {
            *parts = json!([]);
        }
        parts.as_array_mut().unwrap()
    }

    /// Applies one chunk.
    ///
    /// # Errors
    /// The SDK throws: the whole stream fails (wire X10).
    pub(super) fn apply(&mut self, chunk: &Value) -> Result<Write, String> {
        let text = |key: &str| chunk.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("type");
        match kind.as_str() {
            "start" => {
                if let Some(id) = chunk.get("messageId").and_then(Value::as_str) {
                    if self.resumed && self.message.get("id").and_then(Value::as_str) != Some(id) {
                        self.parts().clear();
                        self.open.clear();
                        self.arguments.clear();
                    }
                    self.message.insert("id".into(), id.into());
                }
                self.metadata(chunk);
                let shown = chunk.get("messageId").is_some() || chunk.get("messageMetadata").is_some();
                return Ok(if shown { Write::Publish } else { Write::Nothing });
            }
            "start-step" => {
                self.parts().push(json!({ "type": "step-start" }));
                return Ok(Write::Nothing);
            }
            "finish-step" => return Ok(Write::Nothing),
            "reset-step" => {
                let keep = self.step_start();
                self.parts().truncate(keep);
                self.open.clear();
                self.arguments.clear();
            }
            "finish" | "message-metadata" => {
                self.metadata(chunk);
                let shown = chunk.get("messageMetadata").is_some();
                return Ok(if shown { Write::Stream } else { Write::Nothing });
            }
            "text-start" | "reasoning-start" => {
                let block = if kind == "text-start" { Block::Text } else { Block::Reasoning };
                let mut part =
                    json!({ "type": if block == Block::Text { "text" } else { "reasoning" }, "text": "", "state": "streaming" });
                if block == Block::Reasoning {
                    part["id"] = text("id").into();
                }
                copy(chunk, "providerMetadata", &mut part, "providerMetadata");
                self.parts().push(part);
                let place = self.parts().len() - 1;
                self.open.insert((block, text("id")), place);
            }
            "text-delta" | "reasoning-delta" | "text-end" | "reasoning-end" => {
                let block = if kind.starts_with("text") { Block::Text } else { Block::Reasoning };
                let key = (block, text("id"));
                let place = *self.open.get(&key).ok_or_else(|| format!("{kind} for {:?}, which is not open", key.1))?;
                let part = &mut self.parts()[place];
                if kind.ends_with("delta") {
                    let longer = part["text"].as_str().unwrap_or_default().to_owned() + &text("delta");
                    part["text"] = longer.into();
                } else {
                    part["state"] = "done".into();
                    copy(chunk, "citations", part, "citations");
                    self.open.remove(&key);
                }
                copy(chunk, "providerMetadata", &mut self.parts()[place], "providerMetadata");
            }
            "tool-input-start" => {
                let dynamic = chunk.get("dynamic") == Some(&Value::Bool(true));
                self.arguments.insert(text("toolCallId"), Arguments { text: String::new(), name: text("toolName"), dynamic });
                let place = self.tool_in_step(&text("toolCallId"), dynamic);
                self.tool(place, &text("toolName"), dynamic, chunk, "input-streaming", &[]);
            }
            "tool-input-delta" => {
                let id = text("toolCallId");
                let arguments = self.arguments.get_mut(&id).ok_or_else(|| format!("tool-input-delta for {id:?} without its start"))?;
                arguments.text.push_str(&text("inputTextDelta"));
                let (raw, name, dynamic) = (arguments.text.clone(), arguments.name.clone(), arguments.dynamic);
                // The SDK shows a guess at unfinished JSON; here it is the value once it is complete.
                let input = serde_json::from_str(&raw).unwrap_or(Value::Null);
                let place = self.tool_in_step(&id, dynamic);
                self.tool(place, &name, dynamic, chunk, "input-streaming", &[("input", input), ("rawInput", raw.into())]);
            }
            "tool-input-available" | "tool-input-error" => {
                let failed = kind == "tool-input-error";
                let existing = self.tool_in_step(&text("toolCallId"), false).or_else(|| self.tool_in_step(&text("toolCallId"), true));
                let dynamic = match existing {
                    Some(place) if failed => self.parts()[place]["type"] == "dynamic-tool",
                    _ => chunk.get("dynamic") == Some(&Value::Bool(true)),
                };
                let input = chunk.get("input").cloned().unwrap_or(Value::Null);
                let place = self.tool_in_step(&text("toolCallId"), dynamic);
                let state = if failed { "output-error" } else { "input-available" };
                let error = chunk.get("errorText").cloned().unwrap_or(Value::Null);
                self.tool(place, &text("toolName"), dynamic, chunk, state, &[("input", input), ("errorText", error)]);
                self.arguments.remove(&text("toolCallId"));
            }
            "tool-approval-request" => {
                let place = self.tool_anywhere(&text("toolCallId"))?;
                let part = &mut self.parts()[place];
                part["state"] = "approval-requested".into();
                part["approval"] = json!({ "id": text("approvalId") });
                for (from, to) in
                    [("approvalDescriptor", "descriptor"), ("signature", "signature"), ("inputSchemaInput", "inputSchemaInput")]
                {
                    let mut approval = part["approval"].take();
                    copy(chunk, from, &mut approval, to);
                    part["approval"] = approval;
                }
            }
            "tool-approval-response" => {
                let id = text("approvalId");
                let place = self.parts().iter().position(|p| p.pointer("/approval/id").and_then(Value::as_str) == Some(&id));
                let place = place.ok_or_else(|| format!("No tool invocation found for approval ID {id:?}"))?;
                let part = &mut self.parts()[place];
                part["state"] = "approval-responded".into();
                part["approval"]["approved"] = chunk.get("approved").cloned().unwrap_or(Value::Null);
            }
            "tool-output-available" | "tool-output-error" => {
                let place = self.tool_anywhere(&text("toolCallId"))?;
                let part = self.parts()[place].clone();
                let dynamic = part["type"] == "dynamic-tool";
                let name = name_of(&part);
                let input = part.get("input").cloned().unwrap_or(Value::Null);
                let field = |key: &str| chunk.get(key).cloned().unwrap_or(Value::Null);
                if kind == "tool-output-available" {
                    let output = field("output");
                    self.tool(
                        Some(place),
                        &name,
                        dynamic,
                        chunk,
                        "output-available",
                        &[("input", input), ("preliminary", field("preliminary"))],
                    );
                    self.parts()[place]["output"] = output;
                } else {
                    self.tool(
                        Some(place),
                        &name,
                        dynamic,
                        chunk,
                        "output-error",
                        &[("input", input), ("errorText", field("errorText"))],
                    );
                }
            }
            "tool-output-denied" => {
                let place = self.tool_anywhere(&text("toolCallId"))?;
                self.parts()[place]["state"] = "output-denied".into();
            }
            "source-url" | "source-document" | "file" | "reasoning-file" | "custom" | "steering-message" => {
                self.parts().push(chunk.clone())
            }
            "error" => return Err(text("errorText")),
            data if data.starts_with("data-") => {
                if chunk.get("transient") == Some(&Value::Bool(true)) {
                    return Ok(Write::Nothing);
                }
                place_data(self.parts(), chunk);
            }
            _ => return Ok(Write::Nothing),
        }
        Ok(Write::Stream)
    }

    /// Index of the first part of the current step.
    fn step_start(&mut self) -> usize {
        self.parts().iter().rposition(|p| p["type"] == "step-start").map_or(0, |i| i + 1)
    }

    /// Input chunks only match inside the current step.
    fn tool_in_step(&mut self, call: &str, dynamic: bool) -> Option<usize> {
        let from = self.step_start();
        let found = self.parts().iter().skip(from).position(|p| p["toolCallId"] == call && (p["type"] == "dynamic-tool") == dynamic);
        found.map(|i| from + i)
    }

    fn tool_anywhere(&mut self, call: &str) -> Result<usize, String> {
        let from = self.step_start();
        let in_step = self.parts().iter().skip(from).position(|p| p["toolCallId"] == call).map(|i| from + i);
        let place = in_step.or_else(|| self.parts().iter().rposition(|p| p["toolCallId"] == call));
        place.ok_or_else(|| format!("No tool invocation found for tool call ID {call:?}"))
    }

    fn tool(&mut self, place: Option<usize>, name: &str, dynamic: bool, chunk: &Value, state: &str, fields: &[(&str, Value)]) {
        let place = place.unwrap_or_else(|| {
            self.parts().push(json!({ "type": if dynamic { "dynamic-tool".into() } else { format!("tool-{name}") }, "toolCallId": chunk["toolCallId"] }));
            self.parts().len() - 1
        });
        let part = &mut self.parts()[place];
        part["state"] = state.into();
        if dynamic {
            part["toolName"] = name.into();
        }
        let map = part.as_object_mut().unwrap();
        for key in ["input", "output", "errorText", "rawInput", "preliminary"] {
            match fields.iter().find(|(k, _)| *k == key) {
                Some((_, value)) if !value.is_null() => drop(map.insert(key.into(), value.clone())),
                _ => drop(map.remove(key)),
            }
        }
        for key in ["title", "toolMetadata", "providerExecuted"] {
            copy(chunk, key, part, key);
        }
        let meta = if state.starts_with("output-") { "resultProviderMetadata" } else { "callProviderMetadata" };
        copy(chunk, "providerMetadata", part, meta);
    }

    fn metadata(&mut self, chunk: &Value) {
        if let Some(more) = chunk.get("messageMetadata").filter(|m| !m.is_null()) {
            let own = self.message.entry("metadata").or_insert(Value::Null);
            deep_merge(own, more);
        }
    }
}

/// A message somebody else asked for, as the agents package builds it.
pub(super) struct Builder {
    pub(super) id: String,
    pub(super) parts: Vec<Value>,
    metadata: Option<Value>,
    continuation: bool,
    /// Chunks of a continuation until it is known which message they extend.
    waiting: Option<Vec<Value>>,
}

impl Builder {
    pub(super) fn new(id: &str, continuation: bool) -> Self {
        Self { id: id.into(), parts: Vec::new(), metadata: None, continuation, waiting: continuation.then(Vec::new) }
    }

    /// Applies one chunk; blocks are matched by position, calls by id, and nothing ever throws.
    pub(super) fn apply(&mut self, chunk: &Value) {
        if let Some(waiting) = &mut self.waiting {
            waiting.push(chunk.clone());
        }
        let text = |key: &str| chunk.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("type");
        let call = self.parts.iter().rposition(|p| !p["toolCallId"].is_null() && p["toolCallId"] == chunk["toolCallId"]);
        let state = call.map(|i| self.parts[i]["state"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
        let terminal = matches!(state.as_str(), "output-available" | "output-error" | "output-denied");
        match kind.as_str() {
            "start" | "finish" | "message-metadata" => {
                if kind == "start"
                    && !self.continuation
                    && let Some(id) = chunk.get("messageId").and_then(Value::as_str)
                {
                    self.id = id.into();
                }
                if let Some(more) = chunk.get("messageMetadata").and_then(Value::as_object) {
                    let own = self.metadata.get_or_insert_with(|| json!({}));
                    more.iter().for_each(|(k, v)| own[k] = v.clone());
                }
            }
            "start-step" | "step-start" => self.parts.push(json!({ "type": "step-start" })),
            "text-start" | "reasoning-start" => {
                let part = if kind == "text-start" { "text" } else { "reasoning" };
                self.parts.push(json!({ "type": part, "text": "", "state": "streaming" }));
            }
            "text-delta" | "reasoning-delta" => {
                let part = if kind == "text-delta" { "text" } else { "reasoning" };
                match self.parts.iter_mut().rfind(|p| p["type"] == part) {
                    Some(last) => last["text"] = (last["text"].as_str().unwrap_or_default().to_owned() + &text("delta")).into(),
                    None => self.parts.push(json!({ "type": part, "text": text("delta"), "state": "streaming" })),
                }
            }
            "text-end" | "reasoning-end" => {
                let part = if kind == "text-end" { "text" } else { "reasoning" };
                if let Some(last) = self.parts.iter_mut().rfind(|p| p["type"] == part) {
                    last["state"] = "done".into();
                    if part == "reasoning" {
                        copy(chunk, "providerMetadata", last, "providerMetadata");
                    }
                }
            }
            "tool-input-start" if call.is_none() => self.push_call(chunk, "input-streaming", None),
            "tool-input-available" => match call {
                None => self.push_call(chunk, "input-available", Some(object(&chunk["input"]))),
                Some(i) if state == "input-streaming" => {
                    self.parts[i]["state"] = "input-available".into();
                    self.parts[i]["input"] = object(&chunk["input"]);
                    self.call_fields(i, chunk);
                }
                Some(i) if state.starts_with("approval-") && self.parts[i].get("input").is_none() => {
                    self.parts[i]["input"] = object(&chunk["input"]);
                }
                Some(_) => {}
            },
            "tool-input-error" => match call {
                None => {
                    self.push_call(chunk, "output-error", Some(object(&chunk["input"])));
                    let last = self.parts.last_mut().unwrap();
                    last["errorText"] = chunk["errorText"].clone();
                }
                Some(i) if !terminal => {
                    self.parts[i]["state"] = "output-error".into();
                    self.parts[i]["errorText"] = chunk["errorText"].clone();
                    self.parts[i]["input"] = object(&chunk["input"]);
                }
                Some(_) => {}
            },
            "tool-approval-request" => {
                if let Some(i) = call.filter(|_| !terminal && state != "approval-responded") {
                    self.parts[i]["state"] = "approval-requested".into();
                    self.parts[i]["approval"] = json!({ "id": text("approvalId") });
                }
            }
            "tool-output-denied" => {
                if let Some(i) = call.filter(|_| !terminal && state != "approval-responded") {
                    self.parts[i]["state"] = "output-denied".into();
                }
            }
            "tool-output-available" => {
                if let Some(i) = call {
                    self.parts[i]["state"] = "output-available".into();
                    self.parts[i]["output"] = chunk.get("output").cloned().unwrap_or(Value::Null);
                    copy(chunk, "preliminary", &mut self.parts[i], "preliminary");
                }
            }
            "tool-output-error" => {
                if let Some(i) = call {
                    self.parts[i]["state"] = "output-error".into();
                    self.parts[i]["errorText"] = chunk["errorText"].clone();
                }
            }
            "file" => self.parts.push(json!({ "type": "file", "mediaType": chunk["mediaType"], "url": chunk["url"] })),
            "source-url" | "source-document" => self.parts.push(chunk.clone()),
            data if data.starts_with("data-") && chunk.get("transient") != Some(&Value::Bool(true)) => {
                place_data(&mut self.parts, chunk)
            }
            _ => {}
        }
    }

    fn push_call(&mut self, chunk: &Value, state: &str, input: Option<Value>) {
        let name = chunk["toolName"].as_str().unwrap_or_default();
        let mut part = json!({ "type": format!("tool-{name}"), "toolCallId": chunk["toolCallId"], "toolName": name, "state": state });
        if let Some(input) = input {
            part["input"] = input;
        }
        self.parts.push(part);
        self.call_fields(self.parts.len() - 1, chunk);
    }

    fn call_fields(&mut self, i: usize, chunk: &Value) {
        copy(chunk, "providerExecuted", &mut self.parts[i], "providerExecuted");
        copy(chunk, "providerMetadata", &mut self.parts[i], "callProviderMetadata");
        copy(chunk, "title", &mut self.parts[i], "title");
    }

    /// Puts the message into the list: over the one with its id, a continuation over the last assistant message, else at the end.
    pub(super) fn merge_into(&mut self, messages: &mut Vec<Value>) {
        let mut place = messages.iter().position(|m| m["id"] == self.id.as_str());
        if place.is_none() && self.continuation {
            place = messages.iter().rposition(|m| m["role"] == "assistant");
        }
        if let Some(waiting) = self.waiting.take() {
            self.parts.clear();
            self.metadata = None;
            if let Some(seed) = place.map(|i| messages[i].clone()) {
                self.parts = seed["parts"].as_array().cloned().unwrap_or_default();
                self.metadata = seed.get("metadata").cloned();
                self.id = seed["id"].as_str().unwrap_or_default().into();
            }
            waiting.iter().for_each(|chunk| self.apply(chunk));
        }
        let mut message = json!({ "id": self.id, "role": "assistant", "parts": self.parts });
        if let Some(metadata) = &self.metadata {
            message["metadata"] = metadata.clone();
        }
        match place {
            Some(i) => messages[i] = message,
            None => messages.push(message),
        }
    }

    /// Whether the list holds a copy of this message whose text is not a beginning of ours; then that copy wins.
    pub(super) fn diverges_from(&self, messages: &[Value]) -> bool {
        let text =
            |parts: &[Value]| parts.iter().filter(|p| p["type"] == "text").filter_map(|p| p["text"].as_str()).collect::<String>();
        let stored = messages.iter().find(|m| m["id"] == self.id.as_str()).and_then(|m| m["parts"].as_array());
        stored.is_some_and(|stored| !text(&self.parts).starts_with(&text(stored)))
    }
}

fn name_of(part: &Value) -> String {
    let kind = part["type"].as_str().unwrap_or_default();
    part["toolName"].as_str().or_else(|| kind.strip_prefix("tool-")).unwrap_or_default().to_owned()
}

fn copy(from: &Value, key: &str, to: &mut Value, as_key: &str) {
    if let Some(value) = from.get(key).filter(|v| !v.is_null()) {
        to[as_key] = value.clone();
    }
}

fn place_data(parts: &mut Vec<Value>, chunk: &Value) {
    let same = |p: &&mut Value| !chunk["id"].is_null() && p["type"] == chunk["type"] && p["id"] == chunk["id"];
    match parts.iter_mut().find(same) {
        Some(part) => part["data"] = chunk["data"].clone(),
        None => parts.push(chunk.clone()),
    }
}

fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object).unwrap_or_else(|| json!({})),
        _ => json!({}),
    }
}

fn deep_merge(own: &mut Value, more: &Value) {
    match (own, more) {
        (Value::Object(own), Value::Object(more)) => {
            for (key, value) in more.iter().filter(|(_, v)| !v.is_null()) {
                deep_merge(own.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (own, more) => *own = more.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical() -> Vec<Value> {
        vec![
            json!({ "type": "start", "messageId": "a1" }),
            json!({ "type": "start-step" }),
            json!({ "type": "reasoning-start", "id": "0" }),
            json!({ "type": "reasoning-delta", "id": "0", "delta": "hm" }),
            json!({ "type": "reasoning-end", "id": "0" }),
            json!({ "type": "tool-input-start", "toolCallId": "c1", "toolName": "weather" }),
            json!({ "type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{\"city\":" }),
            json!({ "type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "\"Oslo\"}" }),
            json!({ "type": "tool-input-available", "toolCallId": "c1", "toolName": "weather", "input": { "city": "Oslo" } }),
            json!({ "type": "tool-output-available", "toolCallId": "c1", "output": "sun" }),
            json!({ "type": "finish-step" }),
            json!({ "type": "start-step" }),
            json!({ "type": "text-start", "id": "1" }),
            json!({ "type": "text-delta", "id": "1", "delta": "It is " }),
            json!({ "type": "text-delta", "id": "1", "delta": "sunny" }),
            json!({ "type": "text-end", "id": "1" }),
            json!({ "type": "finish-step" }),
            json!({ "type": "finish", "finishReason": "stop", "messageMetadata": { "model": "m" } }),
        ]
    }

    // wire §3.5: both reducers agree on the orders we emit.
    #[test]
    fn both_reducers_agree_on_the_canonical_order() {
        let mut sdk = Sdk::new(None, "local", false);
        let mut builder = Builder::new("other", false);
        for chunk in canonical() {
            sdk.apply(&chunk).unwrap();
            builder.apply(&chunk);
        }
        let mut list = Vec::new();
        builder.merge_into(&mut list);
        assert_eq!(super::super::essence(&sdk.snapshot()), super::super::essence(&list[0]));
        assert_eq!(sdk.message["id"], "a1");
        assert_eq!(sdk.message["parts"][3]["type"], "step-start");
        assert_eq!(sdk.message["parts"][4]["text"], "It is sunny");
        assert_eq!(sdk.message["metadata"]["model"], "m");
    }

    // wire X10
    #[test]
    fn the_sdk_fails_on_a_chunk_without_its_opener() {
        for chunk in [
            json!({ "type": "text-delta", "id": "1", "delta": "x" }),
            json!({ "type": "reasoning-end", "id": "1" }),
            json!({ "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x" }),
            json!({ "type": "tool-output-available", "toolCallId": "c", "output": 1 }),
            json!({ "type": "tool-approval-request", "toolCallId": "c", "approvalId": "p" }),
        ] {
            assert!(Sdk::new(None, "l", false).apply(&chunk).is_err(), "{chunk}");
            Builder::new("l", false).apply(&chunk);
        }
    }

    #[test]
    fn a_continuation_extends_the_last_assistant_message() {
        let mut list = vec![
            json!({ "id": "u", "role": "user", "parts": [] }),
            json!({ "id": "a", "role": "assistant", "parts": [{ "type": "text", "text": "one" }] }),
        ];
        let mut builder = Builder::new("n", true);
        for chunk in [
            json!({ "type": "start", "messageId": "zzz" }),
            json!({ "type": "text-start", "id": "9" }),
            json!({ "type": "text-delta", "id": "9", "delta": "two" }),
        ] {
            builder.apply(&chunk);
        }
        builder.merge_into(&mut list);
        assert_eq!(list.len(), 2);
        assert_eq!(list[1]["id"], "a");
        assert_eq!(list[1]["parts"][1]["text"], "two");
    }
}
