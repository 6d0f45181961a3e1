//! Writes a request body (`providers.md` §5). The same history gives the same bytes, so that prefix caches hold (PV-51).
//!
//! Whatever the history looks like, the request is one every server accepts in these points: each call is answered exactly once,
//! right behind its message; ids are filled, unique, and of the form the server wants; arguments are objects; names are legal.

use std::{borrow::Cow, collections::BTreeSet, rc::Rc};

use serde_json::{Map, Value};

use super::{
    files::{self, FilePart},
    json::Json,
};
use crate::{
    limits::TOOL_NAME,
    model::{
        AssistantPart, ModelError, ModelErrorClass, ModelRequest, Msg, OverflowKind, Reasoning, ToolChoice, ToolOutput, ToolResult,
        ToolSpec, UserPart,
        profile::{CallIds, Control, Profile, Replay, Required, UsageMode, is_openai_reasoning_model, least_openai_effort},
    },
};

const NO_RESULT: &str = "the tool did not return a result";
const DENIED: &str = "the user did not allow this call";

/// The body for a server with `profile`; `model` goes into it unless it is addressed otherwise. Members of the application's own
/// options named in `without` are left out.
pub(crate) fn body(request: &ModelRequest, profile: &Profile, model: Option<&str>, without: &[&str]) -> Result<String, ModelError> {
    let nothing = Map::new();
    let own = request.model.options.as_ref().and_then(Value::as_object).unwrap_or(&nothing);
    let mut json = Json::default();
    let mut count = 0;
    json.object(|j| {
        let mut fields = Fields { json: &mut *j, own };
        if let Some(model) = model {
            fields.text("model", model);
        }
        fields.with("messages", |j| count = messages(request, profile, j));
        fields.with("stream", |j| j.raw("true"));
        match profile.usage {
            UsageMode::StreamOptions => fields.with("stream_options", |j| j.raw(r#"{"include_usage":true}"#)),
            UsageMode::Include => fields.with("usage", |j| j.raw(r#"{"include":true}"#)),
            UsageMode::Always => {}
        }
        if !request.tools.is_empty() {
            fields.with("tools", |j| j.array(|j| request.tools.iter().for_each(|tool| write_tool(tool, j))));
            tool_choice(request, profile, &mut fields);
        }
        if let Some(cap) = request.max_output {
            fields.with(profile.cap_field, |j| j.raw(&cap.to_string()));
        }
        if takes_sampling(request, profile) {
            for (name, value) in [("temperature", request.temperature), ("top_p", request.top_p)] {
                if let Some(value) = value.filter(|v| v.is_finite()) {
                    fields.with(name, |j| j.value(&value.into()));
                }
            }
        }
        reasoning(request, profile, &mut fields);
        if profile.cache_key && !request.session_key.is_empty() {
            fields.text("prompt_cache_key", &session_hash(&request.session_key));
        }
        for (name, value) in own.iter().filter(|(name, value)| !value.is_null() && !without.contains(&name.as_str())) {
            j.key(name).value(value);
        }
    });
    if count == 0 && !own.contains_key("messages") {
        return Err(ModelError::new(ModelErrorClass::InvalidRequest, "there is nothing to send: no system prompt and no message"));
    }
    let body = json.into_text();
    if body.len() > profile.request_cap {
        let text = format!("the request has {} bytes, {} takes {}", body.len(), profile.id, profile.request_cap);
        return Err(ModelError::new(ModelErrorClass::Overflow(OverflowKind::Bytes), text));
    }
    Ok(body)
}

/// About how many bytes a request has, without writing it.
pub(super) fn rough_size(request: &ModelRequest) -> usize {
    let user = |part: &UserPart| match part {
        UserPart::Text(text) => text.len(),
        UserPart::File { url, .. } => url.len(),
    };
    let assistant = |part: &AssistantPart| match part {
        AssistantPart::Text { text, .. } => text.len(),
        AssistantPart::Reasoning { .. } => 0,
        AssistantPart::ToolCall { input, .. } => input.to_string().len(),
    };
    let result = |result: &ToolResult| match &result.output {
        ToolOutput::Text(text) | ToolOutput::Error(text) => text.len(),
        ToolOutput::Json(value) => value.to_string().len(),
        ToolOutput::Denied(_) => 0,
    };
    let messages = request.messages.iter().map(|message| match &**message {
        Msg::User(parts) => parts.iter().map(user).sum::<usize>(),
        Msg::Assistant(parts) => parts.iter().map(assistant).sum(),
        Msg::Tool(results) => results.iter().map(result).sum(),
    });
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.input_schema.to_string().len());
    request.system.len() + messages.sum::<usize>() + tools.sum::<usize>()
}

/// What the request asks for and this server is not sent.
pub(super) fn left_out(request: &ModelRequest, profile: &Profile) -> Option<String> {
    let mut left = Vec::new();
    if !takes_sampling(request, profile) && (request.temperature.is_some() || request.top_p.is_some()) {
        left.push("temperature and top_p");
    }
    if required(request, profile) == Demand::Impossible {
        left.push("tool_choice \"required\"");
    }
    let off = request.reasoning == Reasoning::Off && !profile.openai_reasoning;
    if off && matches!(profile.control, Control::None | Control::Effort) {
        left.push("reasoning off");
    }
    (!left.is_empty()).then(|| format!("{} does not take: {}", request.model.model, left.join(", ")))
}

/// A stable name for prefix caches that does not tell the conversation's own.
pub(crate) fn session_hash(key: &str) -> String {
    format!("{:016x}", fnv(key.as_bytes(), 0))
}

/// The members of the body. The application's own options win: what they name is not written here, `null` leaves it out.
struct Fields<'a> {
    json: &'a mut Json,
    own: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn with(&mut self, name: &str, write: impl FnOnce(&mut Json)) {
        if !self.own.contains_key(name) {
            write(self.json.key(name));
        }
    }

    fn text(&mut self, name: &str, text: &str) {
        self.with(name, |j| j.string(text));
    }
}

fn takes_sampling(request: &ModelRequest, profile: &Profile) -> bool {
    !(profile.openai_reasoning && is_openai_reasoning_model(&request.model.model))
}

fn write_tool(tool: &ToolSpec, json: &mut Json) {
    json.object(|j| {
        j.text("type", "function");
        j.key("function").object(|j| {
            j.text("name", &legal_name(&tool.name));
            if !tool.description.is_empty() {
                j.text("description", &tool.description);
            }
            j.key("parameters").object(|j| {
                let members = tool.input_schema.as_object();
                if members.and_then(|m| m.get("type")).and_then(Value::as_str) != Some("object") {
                    j.text("type", "object");
                }
                for (name, value) in members.into_iter().flatten() {
                    let object_type = name != "type" || value == "object";
                    if name != "$schema" && object_type && !value.is_null() {
                        schema(value, j.key(name));
                    }
                }
            });
        });
    });
}

/// A schema without members that are null (`default: null` of an optional field): some servers refuse them.
fn schema(value: &Value, json: &mut Json) {
    match value {
        Value::Object(members) => json.object(|j| {
            for (name, value) in members.iter().filter(|(name, value)| !value.is_null() || *name == "const") {
                schema(value, j.key(name));
            }
        }),
        Value::Array(items) => json.array(|j| items.iter().for_each(|item| schema(item, j))),
        other => json.value(other),
    }
}

/// How a demanded call can be demanded.
#[derive(PartialEq)]
enum Demand<'a> {
    None,
    Word(&'static str),
    Named(&'a str),
    Impossible,
}

fn required<'a>(request: &'a ModelRequest, profile: &Profile) -> Demand<'a> {
    if request.tool_choice != ToolChoice::Required {
        return Demand::None;
    }
    match (profile.required, &*request.tools) {
        (Required::Ok, _) => Demand::Word("required"),
        (Required::Any, _) => Demand::Word("any"),
        (Required::Named, [only]) => Demand::Named(&only.name),
        (Required::Named, _) => Demand::Impossible,
    }
}

fn tool_choice(request: &ModelRequest, profile: &Profile, fields: &mut Fields<'_>) {
    let named = |fields: &mut Fields<'_>, name: &str| {
        fields.with("tool_choice", |j| {
            j.object(|j| {
                j.text("type", "function");
                j.key("function").object(|j| j.text("name", &legal_name(name)));
            });
        });
    };
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => fields.text("tool_choice", "none"),
        ToolChoice::Named(name) => named(fields, name),
        ToolChoice::Required => match required(request, profile) {
            Demand::Word(word) => fields.text("tool_choice", word),
            Demand::Named(name) => named(fields, name),
            Demand::None | Demand::Impossible => {}
        },
    }
}

fn reasoning(request: &ModelRequest, profile: &Profile, fields: &mut Fields<'_>) {
    let effort = match &request.reasoning {
        Reasoning::Default => return,
        Reasoning::Off => None,
        Reasoning::Effort(effort) => Some(match effort.as_str() {
            "minimal" if profile.three_efforts => "low",
            "xhigh" if profile.three_efforts => "high",
            effort => effort,
        }),
    };
    if profile.openai_reasoning {
        if is_openai_reasoning_model(&request.model.model) {
            fields.text("reasoning_effort", effort.unwrap_or_else(|| least_openai_effort(&request.model.model)));
        }
        return;
    }
    match (profile.control, effort) {
        (Control::Effort | Control::Template, Some(effort)) => fields.text("reasoning_effort", effort),
        (Control::Template, None) => fields.with("chat_template_kwargs", |j| j.raw(r#"{"enable_thinking":false}"#)),
        (Control::EnableThinking, effort) => {
            fields.with("enable_thinking", |j| j.raw(if effort.is_some() { "true" } else { "false" }))
        }
        (Control::Thinking, Some(_)) => fields.with("thinking", |j| j.raw(r#"{"type":"enabled"}"#)),
        (Control::Thinking, None) => fields.with("thinking", |j| j.raw(r#"{"type":"disabled"}"#)),
        (Control::Object, Some(effort)) => fields.with("reasoning", |j| j.object(|j| j.text("effort", effort))),
        (Control::Object, None) => fields.with("reasoning", |j| j.raw(r#"{"enabled":false}"#)),
        (Control::None, _) | (Control::Effort, None) => {}
    }
}

/// Writes the messages and says how many.
fn messages(request: &ModelRequest, profile: &Profile, json: &mut Json) -> usize {
    let mut ids = Ids::of(&request.messages, profile.call_ids);
    let mut count = 0;
    let mut after_result = false;
    json.array(|j| {
        if !request.system.is_empty() {
            let developer = profile.openai_reasoning && is_openai_reasoning_model(&request.model.model);
            j.object(|j| {
                j.text("role", if developer { "developer" } else { "system" });
                j.text("content", &request.system);
            });
            count += 1;
        }
        let mut rest = request.messages.as_slice();
        while let Some((message, after)) = rest.split_first() {
            rest = after;
            match &**message {
                Msg::User(parts) => {
                    let parts: Vec<FilePart<'_>> = parts.iter().filter_map(|part| user_part(part, profile)).collect();
                    if parts.is_empty() {
                        continue;
                    }
                    if after_result && profile.assistant_between {
                        j.raw(r#"{"role":"assistant","content":""}"#);
                        count += 1;
                    }
                    after_result = false;
                    user(&parts, j);
                    count += 1;
                }
                Msg::Assistant(parts) => {
                    let results = take_results(&mut rest);
                    let calls: Vec<WireCall<'_>> = parts.iter().filter_map(|part| ids.call(part)).collect();
                    if assistant(parts, &calls, profile, j) {
                        count += 1;
                        after_result = false;
                    }
                    count += calls.len();
                    after_result |= !calls.is_empty();
                    write_results(&calls, results, profile, j);
                }
                // Results whose calls are not in front of them answer nothing.
                Msg::Tool(_) => {}
            }
        }
    });
    count
}

/// The results that directly follow an assistant message.
fn take_results<'a>(rest: &mut &'a [Rc<Msg>]) -> Vec<&'a ToolResult> {
    let mut results = Vec::new();
    while let Some((first, after)) = rest.split_first()
        && let Msg::Tool(batch) = &**first
    {
        results.extend(batch);
        *rest = after;
    }
    results
}

fn user_part<'a>(part: &'a UserPart, profile: &Profile) -> Option<FilePart<'a>> {
    match part {
        UserPart::Text(text) if text.is_empty() => None,
        UserPart::Text(text) => Some(FilePart::Text(text.clone())),
        UserPart::File { media_type, url, filename } => Some(files::form(profile, media_type, url, filename.as_deref())),
    }
}

/// Text alone is sent as a string: some servers refuse arrays.
fn user(parts: &[FilePart<'_>], json: &mut Json) {
    let texts = parts.iter().map(|part| match part {
        FilePart::Text(text) => Some(text.as_str()),
        FilePart::Image(_) | FilePart::Audio(..) | FilePart::Document(..) => None,
    });
    json.object(|j| {
        j.text("role", "user");
        j.key("content");
        match texts.collect::<Option<Vec<&str>>>() {
            Some(texts) => j.strings(texts.iter().enumerate().flat_map(|(at, text)| [if at > 0 { "\n\n" } else { "" }, text])),
            None => j.array(|j| parts.iter().for_each(|part| part.write(j))),
        }
    });
}

/// A call with the id the server is told.
struct WireCall<'a> {
    id: &'a str,
    wire_id: String,
    name: &'a str,
    input: &'a Value,
    meta: Option<&'a Value>,
}

/// Writes an assistant message unless there is nothing in it.
fn assistant(parts: &[AssistantPart], calls: &[WireCall<'_>], profile: &Profile, json: &mut Json) -> bool {
    let texts = || {
        parts.iter().filter_map(|part| match part {
            AssistantPart::Text { text, .. } => Some(text.as_str()),
            AssistantPart::Reasoning { .. } | AssistantPart::ToolCall { .. } => None,
        })
    };
    let silent = texts().all(str::is_empty);
    if silent && calls.is_empty() {
        return false;
    }
    json.object(|j| {
        j.text("role", "assistant");
        j.key("content");
        match silent && profile.null_content {
            true => j.raw("null"),
            false => j.strings(texts()),
        }
        replay(parts, !calls.is_empty(), profile, j);
        if !calls.is_empty() {
            j.key("tool_calls").array(|j| calls.iter().for_each(|call| write_call(call, profile, j)));
        }
    });
    true
}

fn replay(parts: &[AssistantPart], has_calls: bool, profile: &Profile, json: &mut Json) {
    let own = |part: &'_ AssistantPart| match part {
        AssistantPart::Reasoning { meta, .. } => is_ours(meta.as_ref(), profile),
        AssistantPart::Text { .. } | AssistantPart::ToolCall { .. } => false,
    };
    let texts = || {
        parts.iter().filter(|part| own(part)).filter_map(|part| match part {
            AssistantPart::Reasoning { text, .. } => Some(text.as_str()),
            AssistantPart::Text { .. } | AssistantPart::ToolCall { .. } => None,
        })
    };
    match profile.replay {
        Replay::None => {}
        Replay::Field(name) => {
            if texts().any(|text| !text.is_empty()) {
                json.key(name).strings(texts());
            }
        }
        // Where reasoning is demanded, a message from another model is sent with an empty one rather than refused.
        Replay::WithCalls(name) => {
            if has_calls {
                json.key(name).strings(texts());
            }
        }
        Replay::Details => {
            let mut details: Vec<Value> = Vec::new();
            for part in parts {
                if let AssistantPart::Reasoning { meta: Some(meta), .. } = part
                    && let Some(entries) =
                        meta.get(profile.namespace).and_then(|own| own.get("reasoning_details")).and_then(Value::as_array)
                {
                    entries.iter().for_each(|entry| super::step::merge_detail(&mut details, entry.clone()));
                }
            }
            if !details.is_empty() {
                json.key("reasoning_details").array(|j| details.iter().for_each(|entry| j.value(entry)));
            }
        }
    }
}

/// Whether a part came from this server as far as its metadata tells: none at all is the mark of servers without any.
fn is_ours(meta: Option<&Value>, profile: &Profile) -> bool {
    match meta.and_then(Value::as_object) {
        Some(spaces) if !spaces.is_empty() => spaces.contains_key(profile.namespace),
        _ => true,
    }
}

fn write_call(call: &WireCall<'_>, profile: &Profile, json: &mut Json) {
    json.object(|j| {
        j.text("id", &call.wire_id);
        j.text("type", "function");
        j.key("function").object(|j| {
            j.text("name", &legal_name(call.name));
            match call.input {
                Value::Object(_) => j.text("arguments", &call.input.to_string()),
                _ => j.text("arguments", "{}"),
            }
        });
        let echoed = call.meta.and_then(|meta| meta.get(profile.namespace)).and_then(Value::as_object);
        for (name, value) in echoed.into_iter().flatten() {
            if !matches!(name.as_str(), "id" | "type" | "function" | "index") {
                j.key(name).value(value);
            }
        }
    });
}

fn write_results(calls: &[WireCall<'_>], mut results: Vec<&ToolResult>, profile: &Profile, json: &mut Json) {
    for call in calls {
        let found = results.iter().position(|result| result.call_id == call.id);
        let content: Cow<'_, str> = match found.map(|at| &results.remove(at).output) {
            Some(ToolOutput::Text(text)) => text.into(),
            Some(ToolOutput::Json(value)) => value.to_string().into(),
            Some(ToolOutput::Error(text)) => error_text(text).into(),
            Some(ToolOutput::Denied(reason)) => reason.as_deref().filter(|r| !r.trim().is_empty()).unwrap_or(DENIED).into(),
            None => error_text(NO_RESULT).into(),
        };
        json.object(|j| {
            j.text("role", "tool");
            j.text("tool_call_id", &call.wire_id);
            if profile.result_names {
                j.text("name", &legal_name(call.name));
            }
            j.text("content", &content);
        });
    }
}

fn error_text(text: &str) -> String {
    let mut json = Json::default();
    json.object(|j| j.text("error", text));
    json.into_text()
}

/// A name every server accepts. Models invent others; a request with such a name would be refused for good.
fn legal_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= TOOL_NAME && name.chars().all(legal) {
        return name.into();
    }
    let name: String = name.chars().take(TOOL_NAME).map(|c| if legal(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name.into() }
}

/// Gives each call of a request an id the server accepts, the same in each encoding of the same history.
struct Ids {
    rule: CallIds,
    /// Ids that are sent as they are: nothing rewritten may become one of them.
    reserved: BTreeSet<String>,
    used: BTreeSet<String>,
    count: u64,
}

impl Ids {
    fn of(messages: &[Rc<Msg>], rule: CallIds) -> Self {
        let mut reserved = BTreeSet::new();
        for message in messages {
            let Msg::Assistant(parts) = &**message else { continue };
            for part in parts {
                if let AssistantPart::ToolCall { id, .. } = part
                    && fits(id, rule)
                {
                    reserved.insert(id.clone());
                }
            }
        }
        Self { rule, reserved, used: BTreeSet::new(), count: 0 }
    }

    fn call<'a>(&mut self, part: &'a AssistantPart) -> Option<WireCall<'a>> {
        let AssistantPart::ToolCall { id, name, input, meta } = part else { return None };
        self.count += 1;
        let wire_id = if fits(id, self.rule) && !self.used.contains(id) { id.clone() } else { self.fresh(id) };
        self.used.insert(wire_id.clone());
        Some(WireCall { id, wire_id, name, input, meta: meta.as_ref() })
    }

    /// A new id for a call whose own is empty, taken or not acceptable.
    fn fresh(&self, id: &str) -> String {
        let (front, length) = if self.rule == CallIds::Nine { ("", 9) } else { ("call_", 12) };
        // A taken or empty id is told apart by its place in the conversation.
        let again = self.used.contains(id) || id.is_empty();
        let mut salt = if again { self.count } else { 0 };
        loop {
            let candidate = letters(front, fnv(id.as_bytes(), salt), length);
            if !self.reserved.contains(&candidate) && !self.used.contains(&candidate) {
                return candidate;
            }
            salt = salt.wrapping_add(0x1_0000);
        }
    }
}

fn fits(id: &str, rule: CallIds) -> bool {
    match rule {
        CallIds::Any => !id.is_empty(),
        CallIds::Safe(most) => {
            !id.is_empty() && id.len() <= most && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        }
        CallIds::Nine => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
    }
}

/// FNV-1a over `bytes` and `salt`, mixed so that each bit of the result depends on all of them.
fn fnv(bytes: &[u8], salt: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for byte in bytes.iter().copied().chain(salt.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ (hash >> 29)
}

fn letters(front: &str, mut number: u64, length: usize) -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = front.to_owned();
    for _ in 0..length {
        let digit = usize::try_from(number % 36).unwrap_or(0);
        text.push(ALPHABET.get(digit).copied().unwrap_or(b'0') as char);
        number /= 36;
    }
    text
}
