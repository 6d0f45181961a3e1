//! Reads an answer: is it a stream at all, what is each event, and did it end as it should (`providers.md` §10.1, §10.2, §10.4).
//!
//! An end of the bytes is never by itself a success: only a finish reason or the protocol's terminator is.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{encode::left_out, step::Step};
use crate::{
    error::Error,
    limits::{ERROR_BODY, ERROR_FRONT, SSE_EVENT, STEP_MS, WHOLE_ANSWER},
    model::{
        Finish, ModelError, ModelErrorClass, ModelEvent, ModelRequest, Usage,
        classify::{self, Origin},
        codec::{Decoder, End, Flow, Head},
        sse::{Sse, SseEvent, TooLarge},
        workers_ai,
    },
};

/// The decoder of one answer.
pub(super) struct ChatDecoder {
    head: Head,
    body: Body,
    reader: Reader,
    /// What the server was not sent, until it was said.
    left_out: Option<String>,
}

/// What the bytes are.
enum Body {
    /// Nothing but white space so far.
    Undecided,
    Events {
        sse: Sse,
        front: Vec<u8>,
    },
    /// A JSON answer in one piece.
    Whole(Vec<u8>),
    /// An error, or a page.
    Refusal(Vec<u8>),
}

/// What the events mean.
struct Reader {
    origin: Origin,
    step: Step,
    /// The terminator was seen.
    terminated: bool,
    /// Whether the last event was no JSON.
    strange: bool,
    any_event: bool,
    lossy: bool,
}

impl ChatDecoder {
    pub fn new(request: &ModelRequest, origin: Origin, head: Head) -> Self {
        let failed = !(200..300).contains(&head.status);
        let step = Step::new(request, origin.profile);
        let reader = Reader { origin, step, terminated: false, strange: false, any_event: false, lossy: false };
        let left_out = left_out(request, reader.origin.profile);
        Self { head, left_out, body: if failed { Body::Refusal(Vec::new()) } else { Body::Undecided }, reader }
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Flow {
        let mut bytes = bytes;
        out.extend(self.left_out.take().map(ModelEvent::Warning));
        if let Body::Undecided = self.body {
            // A byte order mark says nothing either; its bytes begin nothing else.
            let blank = |b: &u8| b.is_ascii_whitespace() || matches!(b, 0xEF | 0xBB | 0xBF);
            let Some(at) = bytes.iter().position(|b| !blank(b)) else { return Flow::More };
            bytes = bytes.get(at..).unwrap_or_default();
            self.body = match bytes.first() {
                Some(b'{' | b'[') => Body::Whole(Vec::new()),
                Some(b'<') => Body::Refusal(Vec::new()),
                _ => Body::Events { sse: Sse::default(), front: Vec::new() },
            };
        }
        match &mut self.body {
            Body::Undecided => Flow::More,
            Body::Refusal(body) => keep(body, bytes, ERROR_BODY),
            Body::Whole(body) => {
                if keep(body, bytes, WHOLE_ANSWER) == Flow::Done {
                    self.reader.step.fail(too_large());
                    return Flow::Done;
                }
                Flow::More
            }
            Body::Events { sse, front } => {
                keep(front, bytes, ERROR_FRONT);
                let reader = &mut self.reader;
                match sse.push(bytes, &mut |event| reader.event(event, out)) {
                    Ok(flow) => flow,
                    Err(TooLarge) => {
                        self.reader.step.fail(too_large());
                        Flow::Done
                    }
                }
            }
        }
    }

    fn end(&mut self, end: End, out: &mut Vec<ModelEvent>) -> Result<Finish, ModelError> {
        out.extend(self.left_out.take().map(ModelEvent::Warning));
        let outcome = self.outcome(&end, out);
        // Whatever the outcome, what clients saw beginning is closed.
        match outcome.and_then(|()| self.reader.step.reason()) {
            Ok(finish) => {
                self.reader.step.close(true, out);
                match self.reader.step.take_failure() {
                    None => Ok(finish),
                    Some(error) => Err(error),
                }
            }
            Err(error) => {
                self.reader.step.close(false, out);
                Err(error)
            }
        }
    }
}

impl ChatDecoder {
    /// Whether the answer is complete (`providers.md` §10.4).
    fn outcome(&mut self, end: &End, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        if *end == End::Aborted {
            return Err(ModelError::new(ModelErrorClass::Aborted, "stopped"));
        }
        match std::mem::replace(&mut self.body, Body::Undecided) {
            Body::Undecided if *end == End::Eof => {
                return Err(self.no_answer("the provider sent an empty answer", ""));
            }
            Body::Undecided => {}
            Body::Refusal(body) if (200..300).contains(&self.head.status) => {
                let text = String::from_utf8_lossy(&body);
                return Err(self.no_answer("the provider answered with a web page", &text));
            }
            Body::Refusal(body) => return Err(classify::http(&self.reader.origin, &self.head, &body)),
            Body::Whole(body) => self.whole(&body, end, out)?,
            Body::Events { mut sse, front } => {
                if !self.reader.terminated && !self.reader.step.has_failed() {
                    let reader = &mut self.reader;
                    // What is left at the end of the bytes may be half an event: then it counts for nothing.
                    let mut last = |event: SseEvent<'_>| match is_json(event.data) {
                        true => reader.event(event, out),
                        false if is_terminator(event.data) => reader.event(event, out),
                        false => Flow::More,
                    };
                    if sse.finish(&mut last).is_err() {
                        self.reader.step.fail(too_large());
                    }
                }
                if !self.reader.any_event && *end == End::Eof && !self.reader.step.has_failed() {
                    let text = String::from_utf8_lossy(&front);
                    return Err(self.no_answer("the provider's answer has no events", &text));
                }
            }
        }
        let step = &mut self.reader.step;
        if let Some(error) = step.take_failure() {
            return Err(error);
        }
        if step.is_finished() {
            return match end {
                End::Eof => Ok(()),
                _ if self.reader.terminated => Ok(()),
                _ if step.has_whole_calls() => {
                    out.push(ModelEvent::Warning("the connection broke after the answer was complete".into()));
                    Ok(())
                }
                _ => Err(broken(end)),
            };
        }
        if !self.reader.terminated {
            return Err(broken(end));
        }
        if step.has_produced() {
            out.push(ModelEvent::Warning("the provider named no finish reason".into()));
            return Ok(());
        }
        Err(transient("empty-answer", "the model gave an empty answer"))
    }

    /// An answer in one piece: an error, a completion, or several values one behind the other.
    fn whole(&mut self, body: &[u8], end: &End, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        if self.reader.step.has_failed() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(body);
        let Some(values) = values_in(&text) else {
            return Err(match end {
                End::Eof => self.no_answer("the provider's answer is not valid JSON", &text),
                _ => broken(end),
            });
        };
        for value in values {
            self.reader.value("", value, true, out);
        }
        let step = &self.reader.step;
        if !step.has_failed() && !step.is_finished() && !step.has_produced() && !self.reader.terminated {
            let error = classify::http(&self.reader.origin, &self.head, body);
            return Err(match error.class {
                ModelErrorClass::Transient if error.code.is_none() => self.no_answer("the provider's answer is no completion", &text),
                _ => error,
            });
        }
        self.reader.terminated = true;
        Ok(())
    }

    fn no_answer(&self, what: &str, body: &str) -> ModelError {
        let mut error = classify::protocol(&self.reader.origin, what, body);
        error.status = Some(self.head.status);
        error
    }
}

impl Reader {
    fn event(&mut self, event: SseEvent<'_>, out: &mut Vec<ModelEvent>) -> Flow {
        let data = event.data.trim();
        if data.is_empty() || data.starts_with(':') || (event.name == "ping" && data == "{}") {
            return Flow::More;
        }
        self.any_event = true;
        if event.lossy && !std::mem::replace(&mut self.lossy, true) {
            out.push(ModelEvent::Warning("the provider sent bytes that are no UTF-8; they were replaced".into()));
        }
        if is_terminator(data) {
            self.terminated = true;
            return Flow::Done;
        }
        self.data(event.name, data, out);
        if self.step.has_failed() || self.terminated { Flow::Done } else { Flow::More }
    }

    fn data(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) {
        if name.is_empty()
            && self.step.is_named()
            && let Ok(chunk) = serde_json::from_str::<PlainChunk<'_>>(data)
            && let Some((delta, usage)) = chunk.parts()
        {
            self.strange = false;
            return self.plain(delta, usage, out);
        }
        let values = match serde_json::from_str(data) {
            Ok(value) => Some(vec![value]),
            Err(_) => values_in(data).or_else(|| values_in(&without_lone_surrogates(data)?)),
        };
        match values {
            Some(values) => {
                self.strange = false;
                for value in values {
                    self.value(name, value, false, out);
                }
            }
            None if name == "error" => {
                let error = classify::stream_text(&self.origin, data);
                self.step.fail(error);
            }
            None => self.garbage(data, out),
        }
    }

    /// Data that is no JSON: ignored once, unless it may have been a piece of a call.
    fn garbage(&mut self, data: &str, out: &mut Vec<ModelEvent>) {
        if self.step.has_open_call() || std::mem::replace(&mut self.strange, true) {
            let error = classify::protocol(&self.origin, "the provider sent events that are not JSON", data);
            self.step.fail(error);
        } else {
            out.push(ModelEvent::Warning("an event that is not JSON was ignored".into()));
        }
    }

    /// The common event: a piece of text.
    fn plain(&mut self, delta: PlainDelta<'_>, counted: Option<&RawValue>, out: &mut Vec<ModelEvent>) {
        if let Some(usage) = counted.and_then(|raw| serde_json::from_str(raw.get()).ok()).as_ref().and_then(usage) {
            self.step.usage(usage);
        }
        let reasoning = delta.reasoning_content.filter(|text| !text.is_empty()).or(delta.reasoning);
        if let Some(text) = reasoning {
            self.step.reasoning(text, out);
        }
        if let Some(text) = delta.content {
            self.step.text(text, out);
        }
        if let Some(calls) = delta.tool_calls
            && let Ok(Value::Array(entries)) = serde_json::from_str(calls.get())
        {
            for entry in entries {
                self.step.call(entry, false, out);
            }
        }
    }

    fn value(&mut self, event: &str, value: Value, whole: bool, out: &mut Vec<ModelEvent>) {
        if let Some(error) = classify::stream(&self.origin, event, &value) {
            return self.step.fail(error);
        }
        match value {
            Value::Array(items) => {
                for item in items {
                    self.object(item, whole, out);
                }
            }
            other => self.object(other, whole, out),
        }
    }

    fn object(&mut self, value: Value, whole: bool, out: &mut Vec<ModelEvent>) {
        let Value::Object(fields) = value else { return };
        let mut fields = workers_ai::unwrap_envelope(fields);
        if workers_ai::is_message(&fields) {
            self.terminated |= workers_ai::message_event(&mut self.step, fields, out);
            return;
        }
        self.step.name(text_at(&fields, "id"), text_at(&fields, "model"), out);
        let usages = [fields.get("usage"), fields.get("x_groq").and_then(|own| own.get("usage"))];
        for usage in usages.into_iter().flatten().filter_map(usage) {
            self.step.usage(usage);
        }
        match fields.remove("choices") {
            Some(Value::Array(choices)) if !choices.is_empty() => {
                if let Some(Value::Object(choice)) = choices.into_iter().next() {
                    self.choice(choice, whole, out);
                }
            }
            _ => workers_ai::native(&mut self.step, fields, out),
        }
    }

    fn choice(&mut self, mut choice: Map<String, Value>, whole: bool, out: &mut Vec<ModelEvent>) {
        if let Some(usage) = choice.get("usage").and_then(usage) {
            self.step.usage(usage);
        }
        let part = match choice.remove("delta") {
            Some(Value::Object(delta)) => Some(delta),
            _ => match choice.remove("message") {
                Some(Value::Object(message)) if whole => Some(message),
                _ => None,
            },
        };
        match part {
            Some(part) => self.delta(part, whole, out),
            // The completions before chats had text here.
            None => self.step.text(take_text(&mut choice, "text").unwrap_or_default(), out),
        }
        if let Some(word) = choice.get("finish_reason").and_then(Value::as_str) {
            self.step.finish(word);
        }
    }

    fn delta(&mut self, mut delta: Map<String, Value>, whole: bool, out: &mut Vec<ModelEvent>) {
        let details = take_items(&mut delta, "reasoning_details");
        let details = self.step.details(details);
        // The names repeat each other where a server sends several: the first that has text counts.
        let mut reasoning = take_text(&mut delta, "reasoning_content").unwrap_or_default();
        for text in [take_text(&mut delta, "reasoning").unwrap_or_default(), details] {
            if reasoning.is_empty() {
                reasoning = text;
            }
        }
        self.step.reasoning(reasoning, out);
        let google = delta.get("extra_content").and_then(|extra| extra.get("google"));
        let thought = google.and_then(|own| own.get("thought")) == Some(&Value::Bool(true));
        match delta.remove("content") {
            Some(Value::String(text)) if thought => self.step.reasoning(text, out),
            Some(Value::String(text)) => self.step.text(text, out),
            Some(Value::Array(parts)) => parts.into_iter().for_each(|part| self.part(part, out)),
            _ => {}
        }
        self.step.refusal(take_text(&mut delta, "refusal").unwrap_or_default(), out);
        for image in take_items(&mut delta, "images") {
            if let Some(url) = image.pointer("/image_url/url").and_then(Value::as_str) {
                self.file(url, out);
            }
        }
        for note in take_items(&mut delta, "annotations") {
            if let Some(url) = note.pointer("/url_citation/url").and_then(Value::as_str) {
                let title = note.pointer("/url_citation/title").and_then(Value::as_str).map(str::to_owned);
                self.step.aside(ModelEvent::Source { url: url.to_owned(), title }, out);
            }
        }
        for entry in take_items(&mut delta, "tool_calls") {
            self.step.call(entry, whole, out);
        }
        // The form before tools had ids: one call, without an index.
        if let Some(call @ Value::Object(_)) = delta.remove("function_call") {
            let mut entry = Map::new();
            entry.insert("index".into(), 0.into());
            entry.insert("function".into(), call);
            self.step.call(Value::Object(entry), whole, out);
        }
    }

    /// An item of `content` as an array.
    fn part(&mut self, part: Value, out: &mut Vec<ModelEvent>) {
        let mut fields = match part {
            Value::Object(fields) => fields,
            Value::String(text) => return self.step.text(text, out),
            _ => return,
        };
        if text_at(&fields, "type") != Some("thinking") {
            return self.step.text(take_text(&mut fields, "text").unwrap_or_default(), out);
        }
        match fields.remove("thinking") {
            Some(Value::String(text)) => self.step.reasoning(text, out),
            Some(Value::Array(inner)) => {
                for text in inner.iter().filter_map(|item| item.get("text")).filter_map(Value::as_str) {
                    self.step.reasoning(text.to_owned(), out);
                }
            }
            _ => {}
        }
    }

    fn file(&mut self, url: &str, out: &mut Vec<ModelEvent>) {
        let known = url.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next()).filter(|media| !media.is_empty());
        let media_type = known.unwrap_or("image/png").to_owned();
        if url.len() <= SSE_EVENT {
            self.step.aside(ModelEvent::File { media_type, url: url.to_owned() }, out);
        }
    }
}

/// An event that holds a piece of text and nothing else that matters. Read without building a tree: this is the hot path, and what
/// does not fit goes the long way.
#[derive(Deserialize)]
struct PlainChunk<'a> {
    #[serde(borrow)]
    choices: [PlainChoice<'a>; 1],
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    success: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PlainChoice<'a> {
    #[serde(borrow)]
    delta: PlainDelta<'a>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PlainDelta<'a> {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    extra_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    images: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

impl<'a> PlainChunk<'a> {
    /// The delta and the usage, if nothing beside them matters.
    fn parts(self) -> Option<(PlainDelta<'a>, Option<&'a RawValue>)> {
        let beside = [self.error, self.x_groq, self.base_resp, self.r#type, self.success];
        let [choice] = self.choices;
        let delta = choice.delta;
        let rare = [delta.reasoning_details, delta.refusal, delta.function_call, delta.extra_content, delta.images, delta.annotations];
        let mut odd = beside.iter().chain(&rare).chain([&choice.finish_reason, &choice.usage]);
        odd.all(|field| field.is_none()).then_some((delta, self.usage))
    }
}

/// Tokens, in the names of every server that speaks this protocol (`providers.md` §12).
fn usage(value: &Value) -> Option<Usage> {
    let top = |name: &str| count(value.get(name));
    let within = |outer: &str, name: &str| count(value.get(outer).and_then(|o| o.get(name)));
    let mut usage = Usage {
        input: top("prompt_tokens").or_else(|| top("input_tokens")),
        cached_read: within("prompt_tokens_details", "cached_tokens")
            .or_else(|| top("prompt_cache_hit_tokens"))
            .or_else(|| top("cached_tokens")),
        cache_write: within("prompt_tokens_details", "cache_write_tokens").or_else(|| top("cache_creation_input_tokens")),
        output: top("completion_tokens").or_else(|| top("output_tokens")),
        reasoning: within("completion_tokens_details", "reasoning_tokens").or_else(|| top("reasoning_tokens")),
    };
    // Some servers count reasoning beside the output; the total tells.
    if let (Some(output), Some(reasoning)) = (usage.output, usage.reasoning) {
        let apart =
            usage.input.zip(top("total_tokens")).is_some_and(|(input, total)| reasoning > 0 && input + output + reasoning == total);
        if output < reasoning || apart {
            usage.output = Some(output + reasoning);
        }
    }
    (usage != Usage::default()).then_some(usage)
}

/// A number of tokens: as a number, a float or a text; what cannot be one is none.
pub(crate) fn count(value: Option<&Value>) -> Option<u64> {
    const MOST: u64 = 100_000_000;
    let number = match value? {
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && *n <= MOST as f64).map(|n| n as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| *n <= MOST)
}

/// Takes a member that is a text out of an object.
#[inline(never)]
pub(crate) fn take_text(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Takes the items of a member that is a list; none if it is not.
#[inline(never)]
pub(crate) fn take_items(fields: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match fields.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

#[inline(never)]
fn text_at<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn is_terminator(data: &str) -> bool {
    data.trim().eq_ignore_ascii_case("[done]")
}

fn is_json(data: &str) -> bool {
    values_in(data).is_some()
}

/// The values of a text that is one or several of them, one behind the other.
fn values_in(text: &str) -> Option<Vec<Value>> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    values.ok().filter(|values| !values.is_empty())
}

/// The text with each half of a pair that stands alone replaced. Servers that cut text in UTF-16 send such escapes, which no UTF-8
/// string can hold; `None` if there are none.
fn without_lone_surrogates(json: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut clean = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(next) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += next;
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                clean.push_str(json.get(copied..at)?);
                clean.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Any other escape is two bytes here; the second may be a backslash itself.
            _ => at += 2,
        }
    }
    (copied > 0).then(|| clean + json.get(copied..).unwrap_or_default())
}

/// Appends while there is room; [`Flow::Done`] when it is full.
fn keep(body: &mut Vec<u8>, bytes: &[u8], most: usize) -> Flow {
    let room = most.saturating_sub(body.len());
    body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    if bytes.len() > room { Flow::Done } else { Flow::More }
}

fn too_large() -> ModelError {
    ModelError::new(ModelErrorClass::Protocol, format!("the provider sent an event above {SSE_EVENT} bytes"))
}

fn broken(end: &End) -> ModelError {
    match end {
        End::Eof => transient("truncated", "the answer ended before it was complete"),
        End::ReadError(text) if text.trim() == "Error: aborted" => transient("truncated", "the answer ended before it was complete"),
        // The runtime looks for these words: it is the object that ends, not the connection (recovery D19), or memory (decision 38).
        End::ReadError(text) if Error::tells_of_a_reset(text) || Error::tells_of_memory(text) => transient("network", text),
        End::ReadError(_) => transient("network", "the connection to the model provider broke"),
        End::Stalled { ms } => {
            let mut error = transient("timeout", "");
            error.message = match *ms {
                STEP_MS => format!("the answer was not complete after {} seconds", ms / 1_000),
                _ => format!("the model said nothing for {} seconds", ms / 1_000),
            };
            error.no_retry = true;
            error
        }
        End::Aborted => ModelError::new(ModelErrorClass::Aborted, "stopped"),
    }
}

fn transient(code: &str, message: &str) -> ModelError {
    let mut error = ModelError::new(ModelErrorClass::Transient, message);
    error.code = Some(code.to_owned());
    error
}
