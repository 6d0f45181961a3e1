//! Finds message, code and type in the shapes in which servers report errors (`providers.md` §13.1), nested and escaped as they are.

use serde_json::{Map, Value};

use super::wait;

/// What a server said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    pub message: String,
    pub code: Option<String>,
    pub kind: Option<String>,
    /// A status written into the body.
    pub status: Option<u16>,
    pub retry_ms: Option<u64>,
    pub request_id: Option<String>,
    /// Tokens of the prompt and of the window, where they have fields of their own.
    pub prompt: Option<u64>,
    pub window: Option<u64>,
}

/// JSON inside JSON inside JSON is as deep as gateways nest it.
const NESTING: u32 = 4;

/// Reads a body: JSON of any shape, a page, or plain text.
pub(super) fn read(text: &str) -> Said {
    let text = text.trim();
    if text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        return read_value(&value, NESTING).unwrap_or_default();
    }
    if text.starts_with('<') {
        return Said { message: title(text), ..Said::default() };
    }
    unwrap_text(text, NESTING)
}

/// Reads an event of a stream, if it is an error.
pub(super) fn of_stream(event: &str, value: &Value) -> Option<Said> {
    let items;
    let fields = match value {
        Value::Array(list) => {
            items = list.iter().find_map(Value::as_object)?;
            items
        }
        Value::Object(fields) => fields,
        _ if event == "error" => return Some(read_value(value, NESTING).unwrap_or_default()),
        _ => return None,
    };
    let is = |key: &str, word: &str| fields.get(key).and_then(Value::as_str) == Some(word);
    let told = |key: &str| fields.get(key).is_some_and(is_told);
    let answers = ["choices", "response", "usage", "delta", "result"].iter().any(|key| told(key));
    let error = event == "error"
        || told("error")
        || is("type", "error")
        || is("object", "error")
        || fields.get("success") == Some(&Value::Bool(false))
        || fields.get("response").and_then(|r| r.get("error")).is_some_and(is_told)
        || base_resp(fields).is_some()
        || (!answers && (told("errors") || told("detail")))
        || (!answers && text_of(fields).is_some() && ["code", "status", "statusCode"].iter().any(|key| told(key)));
    error.then(|| read_value(value, NESTING).unwrap_or_default())
}

/// Whether a field holds something: servers write `error: null`, `""`, `false` and `{}` for none.
fn is_told(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn read_value(value: &Value, depth: u32) -> Option<Said> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::String(text) => Some(unwrap_text(text, depth)),
        Value::Array(items) => items.iter().find_map(|item| read_value(item, depth)),
        Value::Object(fields) => Some(read_fields(fields, depth)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn read_fields(fields: &Map<String, Value>, depth: u32) -> Said {
    let inner = ["error", "errors", "detail"]
        .iter()
        .filter_map(|key| fields.get(*key))
        .chain(fields.get("response").and_then(|r| r.get("error")))
        .filter(|value| is_told(value))
        .find_map(|value| read_value(value, depth));
    let mut said = inner.unwrap_or_default();
    if said.message.is_empty()
        && let Some(text) = text_of(fields)
    {
        let outer = unwrap_text(text, depth);
        said = Said { code: said.code.or(outer.code), kind: said.kind.or(outer.kind), ..outer };
    }
    if let Some((code, message)) = base_resp(fields) {
        said.code = Some(code);
        said.message = message;
    }
    // OpenRouter wraps the words of the server behind it; they say more than its own.
    if let Some(raw) = fields.get("metadata").and_then(|m| m.get("raw"))
        && let Some(raw) = read_value(raw, depth)
        && !raw.message.is_empty()
    {
        said.message = raw.message;
        said.code = raw.code.or(said.code);
        said.kind = raw.kind.or(said.kind);
    }
    said.code = said.code.or_else(|| word(fields.get("code")));
    said.kind = said.kind.or_else(|| word(fields.get("type")).filter(|t| t != "error")).or_else(|| word(fields.get("status")));
    said.status = said.status.or_else(|| ["code", "status", "statusCode", "status_code"].iter().find_map(|k| status(fields.get(*k))));
    said.retry_ms = said.retry_ms.or_else(|| retry_delay(fields));
    said.request_id = said.request_id.or_else(|| word(fields.get("request_id")));
    said.prompt = said.prompt.or_else(|| fields.get("n_prompt_tokens").and_then(Value::as_u64));
    said.window = said.window.or_else(|| fields.get("n_ctx").and_then(Value::as_u64));
    said
}

fn text_of(fields: &Map<String, Value>) -> Option<&str> {
    ["message", "Message", "description", "msg"].iter().find_map(|key| fields.get(*key)?.as_str()).filter(|text| !text.is_empty())
}

/// MiniMax reports failures beside the answer, with status 200.
fn base_resp(fields: &Map<String, Value>) -> Option<(String, String)> {
    let base = fields.get("base_resp")?;
    let code = base.get("status_code")?.as_i64().filter(|code| *code != 0)?;
    Some((code.to_string(), base.get("status_msg").and_then(Value::as_str).unwrap_or_default().to_owned()))
}

/// A text that is, or ends in, a JSON error of its own: `AiError: {"object":"error",…}`.
fn unwrap_text(text: &str, depth: u32) -> Said {
    let plain = || Said { message: text.trim().to_owned(), ..Said::default() };
    let Some(at) = text.find('{').filter(|_| depth > 0) else { return plain() };
    let json = text.get(at..).unwrap_or_default();
    // A server may append words behind the object; the first value counts.
    match serde_json::Deserializer::from_str(json).into_iter::<Value>().next() {
        Some(Ok(value)) => match read_value(&value, depth) {
            Some(said) if !said.message.is_empty() => said,
            _ => plain(),
        },
        _ => plain(),
    }
}

fn title(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let within = |open: &str, close: &str| {
        let start = lower.find(open)? + open.len();
        let start = start + lower.get(start..)?.find('>')? + 1;
        let end = start + lower.get(start..)?.find(close)?;
        page.get(start..end).map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    within("<title", "</title").or_else(|| within("<h1", "</h1")).unwrap_or_else(|| "a web page instead of an answer".to_owned())
}

fn word(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn status(value: Option<&Value>) -> Option<u16> {
    let number = match value? {
        Value::Number(number) => number.as_u64()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// `details: [{retryDelay: "23s"}]`.
fn retry_delay(fields: &Map<String, Value>) -> Option<u64> {
    fields.get("details")?.as_array()?.iter().find_map(|detail| wait::span(detail.get("retryDelay")?.as_str()?))
}

/// Numbers of three to five digits in front of a colon: `3040: no capacity`.
pub(super) fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(':').rev().skip(1).filter_map(|part| {
        let part = part.trim_end();
        let digits = part.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        (3..=5).contains(&digits.len()).then_some(digits)
    })
}
