//! Workers AI over the `AI` binding (`providers.md` §4): the request as the binding wants it, and the forms of answer it has beside
//! Chat Completions: its own older one, envelopes, and the events of Anthropic's Messages from models of the catalogue.

use serde_json::{Map, Value};

use super::{
    ModelError, ModelEvent, ModelRequest, Usage,
    codec::{Target, WireRequest},
    openai_chat::{self, Step, json::Json, take_items, take_text},
    profile::Binding,
};

/// Encodes a request for the binding. Of the model's own options, `gateway` goes to the gateway; its headers go with the request.
///
/// # Errors
/// As [`super::openai_chat::encode`].
pub fn encode(request: &ModelRequest, binding: &Binding) -> Result<WireRequest, ModelError> {
    let model = request.model.model.as_str();
    let body = openai_chat::body(request, binding.profile, None, &["gateway"])?;
    let headers = openai_chat::own_headers(request)?;
    let mut options = Json::default();
    options.object(|j| {
        // With it, errors of the model arrive as answers too, with status and headers.
        j.key("returnRawResponse").raw("true");
        match request.model.options.as_ref().and_then(|own| own.get("gateway")) {
            Some(Value::String(id)) => j.key("gateway").object(|j| j.text("id", id)),
            Some(gateway @ Value::Object(_)) => j.key("gateway").value(gateway),
            _ => {}
        }
        if !is_native(model) {
            j.text("openaiEndpoint", "/v1/chat/completions");
        }
        let affinity = !request.session_key.is_empty() && headers.iter().all(|(name, _)| name != "x-session-affinity");
        if affinity || !headers.is_empty() {
            j.key("extraHeaders").object(|j| {
                if affinity {
                    j.text("x-session-affinity", &openai_chat::session_hash(&request.session_key));
                }
                headers.iter().for_each(|(name, value)| j.text(name, value));
            });
        }
    });
    let target = Target::AiBinding { model: model.to_owned(), options: options.into_text() };
    Ok(WireRequest { target, headers: Vec::new(), body })
}

/// Whether the model is one of Workers AI itself; all others are of the catalogue and speak through an endpoint.
fn is_native(model: &str) -> bool {
    model.starts_with("@cf/") || model.starts_with("@hf/")
}

/// The answer inside `{success: true, result: {…}}`.
pub(super) fn unwrap_envelope(mut fields: Map<String, Value>) -> Map<String, Value> {
    if fields.get("success") == Some(&Value::Bool(true))
        && let Some(Value::Object(result)) = fields.remove("result")
    {
        return result;
    }
    fields
}

/// The native form: `response` and complete calls beside each other.
pub(super) fn native(step: &mut Step, mut fields: Map<String, Value>, out: &mut Vec<ModelEvent>) {
    for name in ["reasoning_content", "reasoning"] {
        step.reasoning(take_text(&mut fields, name).unwrap_or_default(), out);
    }
    match fields.remove("response") {
        Some(Value::String(text)) => step.text(text, out),
        // JSON mode answers with the value itself.
        Some(value @ (Value::Object(_) | Value::Array(_))) => step.text(value.to_string(), out),
        _ => {}
    }
    for entry in take_items(&mut fields, "tool_calls") {
        // With an index they are deltas like everyone's, and the last of them is empty.
        let complete = entry.get("index").is_none();
        step.call(entry, complete, out);
    }
    if let Some(word) = fields.get("finish_reason").and_then(Value::as_str) {
        step.finish(word);
    }
}

/// Whether an event or answer is one of Anthropic's Messages, whatever was asked for.
pub(super) fn is_message(fields: &Map<String, Value>) -> bool {
    let Some(kind) = fields.get("type").and_then(Value::as_str) else { return false };
    match kind {
        "message" => fields.contains_key("content"),
        "ping" => true,
        _ => kind.starts_with("message_") || kind.starts_with("content_block_"),
    }
}

/// Reads such an event; `true` if it is the last.
pub(super) fn message_event(step: &mut Step, mut fields: Map<String, Value>, out: &mut Vec<ModelEvent>) -> bool {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let index = fields.get("index").cloned().unwrap_or(Value::Null);
    match kind.as_str() {
        "message_start" => {
            if let Some(Value::Object(message)) = fields.remove("message") {
                begin(step, &message, out);
            }
        }
        "content_block_start" => {
            if let Some(Value::Object(block)) = fields.remove("content_block") {
                start_block(step, block, index, out);
            }
        }
        "content_block_delta" => {
            if let Some(Value::Object(delta)) = fields.remove("delta") {
                block_delta(step, delta, index, out);
            }
        }
        "message_delta" => {
            count(step, fields.get("usage"));
            stop(step, fields.get("delta").and_then(|delta| delta.get("stop_reason")));
        }
        "message_stop" => return true,
        // An answer in one piece.
        "message" => {
            begin(step, &fields, out);
            for (at, block) in take_items(&mut fields, "content").into_iter().enumerate() {
                if let Value::Object(block) = block {
                    start_block(step, block, at.into(), out);
                }
            }
            stop(step, fields.get("stop_reason"));
            return true;
        }
        _ => {}
    }
    false
}

fn begin(step: &mut Step, message: &Map<String, Value>, out: &mut Vec<ModelEvent>) {
    let text = |name: &str| message.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    step.name(text("id"), text("model"), out);
    count(step, message.get("usage"));
}

fn start_block(step: &mut Step, mut block: Map<String, Value>, index: Value, out: &mut Vec<ModelEvent>) {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut text = |name: &str| take_text(&mut block, name).unwrap_or_default();
    match kind.as_str() {
        "text" => step.text(text("text"), out),
        "thinking" => {
            step.reasoning(text("thinking"), out);
            sign(step, "signature", text("signature"), out);
        }
        "redacted_thinking" => sign(step, "redactedData", text("data"), out),
        "tool_use" => {
            let mut entry = Map::new();
            entry.insert("index".into(), index);
            entry.insert("id".into(), text("id").into());
            let mut function = Map::new();
            function.insert("name".into(), text("name").into());
            // The input is here when it does not come in pieces.
            if let Some(input @ Value::Object(_)) =
                block.remove("input").filter(|input| input.as_object().is_some_and(|o| !o.is_empty()))
            {
                function.insert("arguments".into(), input);
            }
            entry.insert("function".into(), Value::Object(function));
            step.call(Value::Object(entry), false, out);
        }
        _ => {}
    }
}

fn block_delta(step: &mut Step, mut delta: Map<String, Value>, index: Value, out: &mut Vec<ModelEvent>) {
    let kind = delta.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut text = |name: &str| take_text(&mut delta, name).unwrap_or_default();
    match kind.as_str() {
        "text_delta" => step.text(text("text"), out),
        "thinking_delta" => step.reasoning(text("thinking"), out),
        "signature_delta" => sign(step, "signature", text("signature"), out),
        "input_json_delta" => {
            let piece = text("partial_json");
            call(step, index, String::new(), String::new(), piece.into(), out);
        }
        _ => {}
    }
}

/// A call, or a piece of one, as an entry of `tool_calls`.
fn call(step: &mut Step, index: Value, id: String, name: String, arguments: Value, out: &mut Vec<ModelEvent>) {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    function.insert("arguments".into(), arguments);
    let mut entry = Map::new();
    entry.insert("index".into(), index);
    entry.insert("id".into(), id.into());
    entry.insert("function".into(), Value::Object(function));
    step.call(Value::Object(entry), false, out);
}

fn sign(step: &mut Step, name: &str, value: String, out: &mut Vec<ModelEvent>) {
    if !value.is_empty() {
        let mut fields = Map::new();
        fields.insert(name.into(), value.into());
        step.meta("anthropic", fields, out);
    }
}

fn stop(step: &mut Step, reason: Option<&Value>) {
    if let Some(word) = reason.and_then(Value::as_str) {
        step.finish(word);
    }
}

/// Tokens of Messages: the input is counted in three parts, and later events correct earlier ones part by part.
fn count(step: &mut Step, usage: Option<&Value>) {
    let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
    let number = |name: &str| openai_chat::count(usage.get(name));
    let known = step.known_usage();
    let cached_read = number("cache_read_input_tokens").or(known.cached_read);
    let cache_write = number("cache_creation_input_tokens").or(known.cache_write);
    let fresh = number("input_tokens")
        .or_else(|| known.input.map(|all| all.saturating_sub(known.cached_read.unwrap_or(0) + known.cache_write.unwrap_or(0))));
    step.usage(Usage {
        input: fresh.map(|fresh| fresh + cached_read.unwrap_or(0) + cache_write.unwrap_or(0)),
        cached_read,
        cache_write,
        output: number("output_tokens").or(known.output),
        reasoning: known.reasoning,
    });
}
