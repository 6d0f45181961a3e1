//! What a provider's failure means: body shapes, the order of the tests, overflow texts with their numbers, waits asked for, and
//! what of it may be shown (`providers.md` §13). The order of the tests is the specification.

mod overflow;
mod said;
mod wait;

use serde_json::Value;

use super::{
    ModelError, ModelErrorClass, Numbers, OverflowKind,
    codec::Head,
    profile::{Profile, Route},
};
use crate::limits::{ERROR_MESSAGE, ERROR_RAW, ERROR_SHOWN};
use said::Said;

pub use overflow::smaller_cap;

/// Whose failures these are.
#[derive(Clone, Debug)]
pub struct Origin {
    pub(crate) profile: &'static Profile,
    binding: bool,
    secrets: Vec<String>,
    request_bytes: usize,
}

impl Origin {
    /// Of requests to `route`; values of `headers` are taken for secrets.
    pub fn of(route: &Route, headers: &[(String, String)]) -> Self {
        let key = match route {
            Route::Http(endpoint) => endpoint.api_key.as_ref(),
            Route::AiBinding(_) | Route::Demo => None,
        };
        let secrets =
            headers.iter().map(|(_, value)| value).chain(key).filter(|s| s.len() >= crate::limits::SECRET).cloned().collect();
        Self { profile: route.profile(), binding: matches!(route, Route::AiBinding(_)), secrets, request_bytes: 0 }
    }

    /// Says how large the request was, for servers that refuse a long one without a word.
    pub fn request_bytes(mut self, bytes: usize) -> Self {
        self.request_bytes = bytes;
        self
    }

    /// `text` without keys.
    fn scrub(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in &self.secrets {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), "[key]");
            }
        }
        hide_keys(&clean)
    }
}

/// An answer with an error status, or a JSON answer with status 200 that turned out to be an error.
pub fn http(origin: &Origin, head: &Head, body: &[u8]) -> ModelError {
    let text = String::from_utf8_lossy(body);
    let said = said::read(&text);
    let mut error = judge(origin, Some(head.status), &said);
    error.raw = clip(&origin.scrub(&text), ERROR_RAW).into();
    error.request_id = ["x-request-id", "request-id", "cf-aig-log-id", "x-generation-id", "cf-ray"]
        .iter()
        .find_map(|name| head.header(name))
        .map(|id| clip(id, 256))
        .or(error.request_id);
    if let Some(ms) = wait::of_headers(head) {
        error.retry_after_ms = Some(ms);
    }
    match head.header("x-should-retry").map(str::trim) {
        Some("false") => error.no_retry = true,
        Some("true") if error.class == ModelErrorClass::InvalidRequest => error.class = ModelErrorClass::Transient,
        _ => {}
    }
    // The account is empty, or only for the moment: the header tells.
    if error.class == ModelErrorClass::Quota && head.status == 402 && error.retry_after_ms.is_some() {
        error.class = ModelErrorClass::RateLimit;
    }
    capped(origin, error)
}

/// An event of a stream that is an error, if it is one. `event` is the name of the event.
pub fn stream(origin: &Origin, event: &str, value: &Value) -> Option<ModelError> {
    let said = said::of_stream(event, value)?;
    let mut error = judge(origin, None, &said);
    error.raw = clip(&origin.scrub(&value.to_string()), ERROR_RAW).into();
    Some(capped(origin, error))
}

/// An event named `error` whose data is no JSON.
pub fn stream_text(origin: &Origin, text: &str) -> ModelError {
    let mut error = judge(origin, None, &said::read(text));
    error.raw = clip(&origin.scrub(text), ERROR_RAW).into();
    capped(origin, error)
}

/// A failure before there was any answer.
pub fn transport(route: &Route, text: &str) -> ModelError {
    let origin = Origin::of(route, &[]);
    let mut error = judge(&origin, None, &said::read(text));
    error.raw = clip(&origin.scrub(text), ERROR_RAW).into();
    if error.class == ModelErrorClass::Transient && error.code.is_none() {
        error.code = Some("network".into());
    }
    capped(&origin, error)
}

/// An answer that cannot be understood: a page, nothing, or something else that is no answer.
pub fn protocol(origin: &Origin, what: &str, body: &str) -> ModelError {
    let quoted: String = body.trim().chars().take(200).collect();
    let message = if quoted.is_empty() { what.to_owned() } else { format!("{what}: {quoted}") };
    let mut error = ModelError::new(ModelErrorClass::Protocol, clip(&origin.scrub(&message), ERROR_MESSAGE));
    error.raw = clip(&origin.scrub(body), ERROR_RAW).into();
    error
}

/// The text clients see unless the application says otherwise (decision 43): what to do, then the provider's own words.
pub fn public_message(error: &ModelError) -> String {
    let advice = match error.class {
        ModelErrorClass::Overflow(OverflowKind::Bytes) => "This is more than the model takes at once. Send less, or smaller files.",
        ModelErrorClass::Overflow(_) => "The conversation is too long for the model. Clear it or start a new one.",
        ModelErrorClass::RateLimit => "The model is asked too often right now. Wait a minute and try again.",
        ModelErrorClass::RequestTooBigForRate => "This request is above the model's rate limit. Send less, or use another model.",
        ModelErrorClass::Overloaded => "The model is overloaded right now. Try again in a moment.",
        ModelErrorClass::Transient => "The answer of the model was interrupted. Try again.",
        ModelErrorClass::Quota => "The account with the model provider is used up. Check its plan and billing.",
        ModelErrorClass::Auth => "The model provider refused the key. Check the configured API key.",
        ModelErrorClass::NotFound => "The model was not found. Check the configured model and address.",
        ModelErrorClass::InvalidRequest => "The model provider refused the request. Check the configured model and its options.",
        ModelErrorClass::ContentFilter => "The provider's content filter refused this. Put it in other words.",
        ModelErrorClass::ModelOutput => "The model made a mistake in calling a tool. Try again.",
        ModelErrorClass::Protocol => "The answer could not be understood. Check the model's address, or try again.",
        ModelErrorClass::Aborted => "The answer was stopped.",
    };
    match shown(&error.message) {
        own if own.is_empty() => advice.to_owned(),
        own => format!("{advice} ({own})"),
    }
}

/// The part of a provider's message that is for people: one line without markup, JSON, addresses and keys.
fn shown(message: &str) -> String {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // What follows the first brace or tag is a body that was pasted into the text.
    let line = line.split(['{', '<']).next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().filter(|word| !word.contains("://")).collect();
    let text = hide_keys(&words.join(" "));
    let text = text.trim_end_matches([':', ',', ' ', '(']);
    if text.chars().count() <= ERROR_SHOWN {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(ERROR_SHOWN - 1).collect();
    cut.push('…');
    cut
}

fn capped(origin: &Origin, mut error: ModelError) -> ModelError {
    error.retry_after_ms = error.retry_after_ms.map(|ms| ms.min(origin.profile.retry_after_cap_ms));
    error
}

fn judge(origin: &Origin, status: Option<u16>, said: &Said) -> ModelError {
    // A status inside the body counts where the answer itself began with 200, or had none.
    let status = match status {
        Some(status) if status >= 300 => Some(status),
        _ => said.status,
    };
    let text = haystack(said);
    let (class, numbers) = class_of(origin, status, said, &text);
    let mut error = ModelError::new(class, clip(&origin.scrub(&message_of(status, said)), ERROR_MESSAGE));
    error.status = status;
    error.code = said.code.clone().or_else(|| said.kind.clone()).map(|code| clip(&code, 256));
    error.retry_after_ms = said.retry_ms.or_else(|| wait::of_text(&text));
    error.request_id = said.request_id.clone();
    error.numbers = (numbers != Numbers::default()).then(|| Box::new(numbers));
    error
}

fn message_of(status: Option<u16>, said: &Said) -> String {
    match (said.message.trim(), status) {
        ("", Some(status)) => format!("the provider answered {status} without a message"),
        ("", None) => "the provider reported an error without a message".to_owned(),
        (message, _) => message.to_owned(),
    }
}

/// What phrases are searched in: the head of the message, then code and type; lower case, plain apostrophes, plain numbers.
fn haystack(said: &Said) -> String {
    let mut text: String = said.message.chars().take(crate::limits::ERROR_SEARCHED).collect();
    for part in [&said.code, &said.kind].into_iter().flatten() {
        text.push(' ');
        text.push_str(part);
    }
    let text = text.to_ascii_lowercase().replace('\u{2019}', "'");
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separator = |at: usize| at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4);
    text.char_indices().filter(|(at, c)| *c != ',' || !separator(*at)).map(|(_, c)| c).collect()
}

fn class_of(origin: &Origin, status: Option<u16>, said: &Said, text: &str) -> (ModelErrorClass, Numbers) {
    let has = |phrase: &str| has(text, phrase);
    if let Some(class) = guard(said, text) {
        return (class, Numbers::default());
    }
    if !matches!(status, Some(401 | 402 | 403 | 404 | 429)) {
        if let Some((kind, numbers)) = overflow::find(text) {
            return (ModelErrorClass::Overflow(kind), numbers.with(said));
        }
        let mute = origin.profile.mute_overflow && said.message.trim().is_empty() && matches!(status, Some(400 | 413));
        if mute && origin.request_bytes >= crate::limits::MUTE_OVERFLOW {
            return (ModelErrorClass::Overflow(OverflowKind::Input), Numbers::default());
        }
    }
    let quota = has("insufficient_quota")
        || has("billing")
        || has("credit balance")
        || has("insufficient balance")
        || has("insufficient credits")
        || has("daily free allocation")
        || (has("quota exceeded") && (has("day") || has("daily") || has("month")));
    if quota {
        return (ModelErrorClass::Quota, Numbers::default());
    }
    let class = code_class(origin.profile, said)
        .or_else(|| phrase_class(status, text))
        .or_else(|| status.and_then(status_class))
        .or_else(|| type_class(text))
        .unwrap_or(if origin.binding { ModelErrorClass::InvalidRequest } else { ModelErrorClass::Transient });
    (class, Numbers::default())
}

/// Texts that look like an overflow, or like something worse than they are (`providers.md` §13.4).
fn guard(said: &Said, text: &str) -> Option<ModelErrorClass> {
    let has = |phrase: &str| has(text, phrase);
    if has("tokens per min") {
        let limit = overflow::number_after(text, "limit ");
        let requested = overflow::number_after(text, "requested ");
        return Some(match (limit, requested) {
            (Some(limit), Some(requested)) if requested > limit => ModelErrorClass::RequestTooBigForRate,
            _ => ModelErrorClass::RateLimit,
        });
    }
    if has("extra usage") {
        return Some(ModelErrorClass::Quota);
    }
    if has("current quota") {
        // A server that names the seconds to wait means a rate.
        return Some(if said.retry_ms.is_some() { ModelErrorClass::RateLimit } else { ModelErrorClass::Quota });
    }
    if has("maximum usage size allowed during peak load") {
        return Some(ModelErrorClass::Overloaded);
    }
    if has("please wait") || has("rate limit") || has("too many requests") {
        return Some(ModelErrorClass::RateLimit);
    }
    if has("string too long") && has("10485760") {
        return Some(ModelErrorClass::Overflow(OverflowKind::Bytes));
    }
    if has("image exceeds") || has("too many images") || has("many-image requests") {
        return Some(ModelErrorClass::Overflow(OverflowKind::Bytes));
    }
    let refused = [
        "maximum value for",
        "too large: ",
        "maximum allowed number of output tokens",
        "thinking.budget_tokens",
        "string too long",
        "array too long",
    ];
    if refused.iter().any(|phrase| has(phrase)) {
        return Some(ModelErrorClass::InvalidRequest);
    }
    has("request timeout").then_some(ModelErrorClass::Transient)
}

/// The codes that name a class by themselves.
fn code_class(profile: &Profile, said: &Said) -> Option<ModelErrorClass> {
    let own = |code: &str| profile.codes.iter().find(|(known, _)| *known == code).map(|(_, class)| *class);
    if let Some(class) = said.code.as_deref().and_then(own) {
        return Some(class);
    }
    if !profile.codes.is_empty()
        && let Some(class) = said::codes_in(&said.message).find_map(own)
    {
        return Some(class);
    }
    [&said.code, &said.kind].into_iter().flatten().find_map(|code| {
        Some(match code.to_ascii_lowercase().as_str() {
            "insufficient_quota" | "billing_error" | "billing_hard_limit_reached" | "insufficient_balance" => ModelErrorClass::Quota,
            "rate_limit_exceeded" | "rate_limit_error" | "throttlingexception" | "resource_exhausted" | "too_many_requests" => {
                ModelErrorClass::RateLimit
            }
            "overloaded_error" | "overloaded" | "unavailable" | "slow_down" | "capacity_exceeded" | "engine_overloaded_error" => {
                ModelErrorClass::Overloaded
            }
            "invalid_api_key" | "authentication_error" | "permission_error" | "unauthenticated" | "permission_denied" => {
                ModelErrorClass::Auth
            }
            "model_not_found" | "not_found_error" | "not_found" | "notfounderror" => ModelErrorClass::NotFound,
            "content_filter" | "content_policy_violation" | "data_inspection_failed" | "responsibleaipolicyviolation" => {
                ModelErrorClass::ContentFilter
            }
            "tool_use_failed" | "malformed_function_call" => ModelErrorClass::ModelOutput,
            _ => return None,
        })
    })
}

/// Phrases that count where the status says little: none at all, or some failure of the server.
fn phrase_class(status: Option<u16>, text: &str) -> Option<ModelErrorClass> {
    let has = |phrase: &str| has(text, phrase);
    if status == Some(403) && (has("moderation") || has("flagged")) {
        return Some(ModelErrorClass::ContentFilter);
    }
    if status.is_some_and(|status| status < 500) {
        return None;
    }
    if has("overloaded") || has("at capacity") || has("no capacity") || has("capacity temporarily exceeded") {
        return Some(ModelErrorClass::Overloaded);
    }
    let gone = ["timeout", "timed out", "connection lost", "connection closed", "connection reset", "network error"];
    gone.iter().any(|phrase| has(phrase)).then_some(ModelErrorClass::Transient)
}

fn status_class(status: u16) -> Option<ModelErrorClass> {
    Some(match status {
        401 | 403 => ModelErrorClass::Auth,
        402 => ModelErrorClass::Quota,
        404 => ModelErrorClass::NotFound,
        408 | 409 | 425 => ModelErrorClass::Transient,
        413 => ModelErrorClass::Overflow(OverflowKind::Bytes),
        429 => ModelErrorClass::RateLimit,
        498 | 503 | 529 => ModelErrorClass::Overloaded,
        400..=499 => ModelErrorClass::InvalidRequest,
        500..=599 => ModelErrorClass::Transient,
        300..=399 => ModelErrorClass::NotFound,
        _ => return None,
    })
}

/// Types too coarse to stand against a status.
fn type_class(text: &str) -> Option<ModelErrorClass> {
    let has = |phrase: &str| has(text, phrase);
    if has("invalid_request") || has("badrequest") || has("invalid_argument") || has("invalid_prompt") {
        return Some(ModelErrorClass::InvalidRequest);
    }
    None
}

/// One searcher for all phrases: inlined, it would be most of this module.
#[inline(never)]
fn has(text: &str, phrase: &str) -> bool {
    text.contains(phrase)
}

/// Hides words that look like keys: the known beginnings, and whatever follows `Bearer`.
fn hide_keys(text: &str) -> String {
    const BEGINNINGS: [&str; 10] = ["sk-", "sk_", "pk-", "gsk_", "xai-", "csk-", "hf_", "nvapi-", "AIza", "fw_"];
    let part_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '=' | '/' | '+');
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut bearer = false;
    while !rest.is_empty() {
        let word_end = rest.find(|c: char| !part_of_key(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(word_end);
        // `api_key=sk-…` is one run of these characters: the key begins behind the sign.
        let (front, key) = match word.rfind('=') {
            Some(at) if at + 1 < word.len() => word.split_at(at + 1),
            _ => ("", word),
        };
        let known = BEGINNINGS.iter().any(|b| key.starts_with(b)) && key.len() >= crate::limits::SECRET + 4;
        if known || (bearer && word.len() >= crate::limits::SECRET) {
            clean.push_str(front);
            clean.push_str("[key]");
        } else {
            clean.push_str(word);
        }
        if !word.is_empty() {
            bearer = word.eq_ignore_ascii_case("bearer");
        }
        let gap = after.find(part_of_key).unwrap_or(after.len());
        let (between, next) = after.split_at(gap);
        clean.push_str(between);
        rest = next;
    }
    clean
}

/// At most `bytes` of `text`, cut between characters.
fn clip(text: &str, bytes: usize) -> String {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests;
