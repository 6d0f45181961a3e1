//! The scripted model: what a provider answers, byte for byte, and what it was asked.
//!
//! Answers are written as a provider of the OpenAI chat protocol sends them, so the codecs are exercised and not bypassed. Every
//! request is checked against the rules all such providers share; one that breaks them fails the test with the request in hand.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
};

use futures_util::{
    future::{self, Either},
    stream,
};
use serde_json::{Value, json};

use super::clock::{Clock, Gates, yield_now};
use crate::{
    error::{Error, Result},
    model::codec::{Target, WireRequest},
    runtime::platform::{Answer, Cancel},
};

/// A step of a scripted answer.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    /// One network read.
    Bytes(Vec<u8>),
    /// So many milliseconds pass.
    Delay(u32),
    /// A gate that the test opens.
    Gate(String),
    /// Nothing, for ever.
    Stall,
    /// Reading fails with this text.
    Broken(String),
}

/// One scripted answer. The free functions ([`text`], [`call`], [`http_error`] …) begin one; its methods add to it.
///
/// ```
/// use serde_json::json;
/// use wakeful::testkit::{gate, reasoning, script, text};
///
/// let script = script![
///     reasoning("A question about weather.").call("weather", json!({"city": "Oslo"})),
///     text("It is ").gate("slowly").text("sunny."),
/// ];
/// # let _ = (script, gate("x"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    /// What happens before the head of the answer arrives.
    lead: Vec<Piece>,
    pieces: Vec<Piece>,
    calls: u32,
    finish: Option<String>,
    /// Nothing is added at the end: the answer says by itself how it ends.
    bare: bool,
    burst: bool,
    cut_every: Option<usize>,
    refused: Option<String>,
}

/// An answer of one text delta.
pub fn text(text: &str) -> Reply {
    Reply::new().text(text)
}

/// An answer of several text deltas, each in a network read of its own.
pub fn text_deltas(deltas: &[&str]) -> Reply {
    deltas.iter().fold(Reply::new(), |reply, delta| reply.text(delta))
}

/// Several text deltas that arrive in one network read.
pub fn one_read(deltas: &[&str]) -> Reply {
    text_deltas(deltas).in_one_read()
}

/// An answer that begins with reasoning.
pub fn reasoning(text: &str) -> Reply {
    Reply::new().reasoning(text)
}

/// An answer that calls a tool.
pub fn call(name: &str, input: Value) -> Reply {
    Reply::new().call(name, input)
}

/// An answer that calls several tools at once.
pub fn calls<'a>(list: impl IntoIterator<Item = (&'a str, Value)>) -> Reply {
    list.into_iter().fold(Reply::new(), |reply, (name, input)| reply.call(name, input))
}

/// An answer that first waits at a gate.
pub fn gate(name: &str) -> Reply {
    Reply::new().gate(name)
}

/// An answer that first takes its time.
pub fn delay(ms: u32) -> Reply {
    Reply::new().delay(ms)
}

/// A refusal: a status and a body, JSON if it can be.
pub fn http_error(status: u16, body: impl Into<Value>) -> Reply {
    let body = match body.into() {
        Value::String(text) => text,
        json => json.to_string(),
    };
    raw(body).status(status).header("content-type", "application/json")
}

/// An answer that never begins: connecting fails with this text.
pub fn refused(text: &str) -> Reply {
    Reply { refused: Some(text.into()), ..Reply::new() }
}

/// An answer that is an error event and nothing else.
pub fn in_stream_error(kind: &str, message: &str) -> Reply {
    Reply::new().in_stream_error(kind, message)
}

/// A connection that is accepted and then silent for ever.
pub fn stall() -> Reply {
    Reply::new().stall()
}

/// A connection that ends without a word.
pub fn cut() -> Reply {
    Reply::new().cut()
}

/// An answer without any content that ends as it should.
pub fn empty() -> Reply {
    Reply::new()
}

/// These bytes as one network read, and nothing else.
pub fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply { bare: true, ..Reply::new() }.raw(bytes)
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

impl Reply {
    /// An answer without content.
    pub fn new() -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            lead: Vec::new(),
            pieces: Vec::new(),
            calls: 0,
            finish: None,
            bare: false,
            burst: false,
            cut_every: None,
            refused: None,
        }
    }

    /// One more text delta.
    pub fn text(self, text: &str) -> Self {
        self.delta(json!({ "content": text }))
    }

    /// One more reasoning delta.
    pub fn reasoning(self, text: &str) -> Self {
        self.delta(json!({ "reasoning_content": text }))
    }

    /// A tool call whose arguments come in two deltas. Its id is `call_0`, `call_1`, … in every answer, as with the providers that
    /// repeat ids.
    pub fn call(self, name: &str, input: Value) -> Self {
        let arguments = input.to_string();
        let id = format!("call_{}", self.calls);
        self.call_raw(&id, name, &arguments)
    }

    /// A tool call with this id and these arguments, valid or not.
    pub fn call_raw(mut self, id: &str, name: &str, arguments: &str) -> Self {
        let index = self.calls;
        self.calls += 1;
        let middle = (0..=arguments.len() / 2).rev().find(|i| arguments.is_char_boundary(*i)).unwrap_or(0);
        let (head, tail) = arguments.split_at(middle);
        let call = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": head } });
        let rest = json!({ "index": index, "function": { "arguments": tail } });
        self.delta(json!({ "tool_calls": [call] })).delta(json!({ "tool_calls": [rest] }))
    }

    /// Any delta object, for what has no method here.
    pub fn delta(self, delta: Value) -> Self {
        self.event(&chunk(delta, None))
    }

    /// Any JSON event.
    pub fn event(self, event: &Value) -> Self {
        self.raw(format!("data: {event}\n\n"))
    }

    /// These bytes as one network read.
    pub fn raw(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.pieces.push(Piece::Bytes(bytes.into()));
        self
    }

    /// Waits here until the test opens the gate.
    pub fn gate(mut self, name: &str) -> Self {
        self.pieces.push(Piece::Gate(name.into()));
        self
    }

    /// Waits here for so many milliseconds of virtual time.
    pub fn delay(mut self, ms: u32) -> Self {
        self.pieces.push(Piece::Delay(ms));
        self
    }

    /// Even the head of the answer waits until the test opens the gate.
    pub fn head_gate(mut self, name: &str) -> Self {
        self.lead.push(Piece::Gate(name.into()));
        self
    }

    /// Even the head of the answer takes so many milliseconds.
    pub fn head_delay(mut self, ms: u32) -> Self {
        self.lead.push(Piece::Delay(ms));
        self
    }

    /// An error event, then the end.
    pub fn in_stream_error(mut self, kind: &str, message: &str) -> Self {
        self.bare = true;
        self.event(&json!({ "error": { "message": message, "type": kind, "code": kind } }))
    }

    /// From here on nothing comes any more, and the connection stays open.
    pub fn stall(mut self) -> Self {
        self.bare = true;
        self.pieces.push(Piece::Stall);
        self
    }

    /// The body ends here, without a finish reason and without `[DONE]`.
    pub fn cut(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Reading fails here.
    pub fn broken(mut self, text: &str) -> Self {
        self.bare = true;
        self.pieces.push(Piece::Broken(text.into()));
        self
    }

    /// The finish reason; by default `stop`, or `tool_calls` after calls.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.into());
        self
    }

    /// The status of the answer.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// A header of the answer; the name in lower case.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Everything between two waits arrives in one network read.
    pub fn in_one_read(mut self) -> Self {
        self.burst = true;
        self
    }

    /// The bytes arrive cut into reads of `n`, through the middle of events and characters.
    pub fn cut_every(mut self, n: usize) -> Self {
        self.cut_every = Some(n.max(1));
        self
    }

    /// The pieces as they will happen.
    fn pieces(&self) -> VecDeque<Piece> {
        let mut all = self.pieces.clone();
        if !self.bare {
            let role = format!("data: {}\n\n", chunk(json!({ "role": "assistant", "content": "" }), None));
            all.insert(0, Piece::Bytes(role.into()));
            let reason = self.finish.as_deref().unwrap_or(if self.calls > 0 { "tool_calls" } else { "stop" });
            let usage = json!({ "id": ANSWER, "object": "chat.completion.chunk", "choices": [],
                "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } });
            let end = format!("data: {}\n\ndata: {usage}\n\ndata: [DONE]\n\n", chunk(json!({}), Some(reason)));
            all.push(Piece::Bytes(end.into()));
        }
        if self.burst || self.cut_every.is_some() {
            let mut joined: Vec<Piece> = Vec::new();
            for piece in all {
                match (joined.last_mut(), piece) {
                    (Some(Piece::Bytes(read)), Piece::Bytes(more)) => read.extend(more),
                    (_, piece) => joined.push(piece),
                }
            }
            all = joined;
        }
        match self.cut_every {
            None => all.into(),
            Some(n) => all
                .into_iter()
                .flat_map(|piece| match piece {
                    Piece::Bytes(bytes) => bytes.chunks(n).map(|cut| Piece::Bytes(cut.to_vec())).collect(),
                    other => vec![other],
                })
                .collect(),
        }
    }
}

const ANSWER: &str = "chatcmpl-scripted";

fn chunk(delta: Value, finish: Option<&str>) -> Value {
    json!({ "id": ANSWER, "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "scripted",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

/// The answers of a model, in the order it is asked, or computed from the request.
pub struct Script(Source);

enum Source {
    Queue(VecDeque<Reply>),
    Function(Box<dyn FnMut(&ProviderRequest) -> Reply>),
}

impl Script {
    /// Answers computed from the request.
    pub fn function(answer: impl FnMut(&ProviderRequest) -> Reply + 'static) -> Self {
        Self(Source::Function(Box::new(answer)))
    }
}

impl Default for Script {
    fn default() -> Self {
        Self(Source::Queue(VecDeque::new()))
    }
}

impl From<Vec<Reply>> for Script {
    fn from(replies: Vec<Reply>) -> Self {
        Self(Source::Queue(replies.into()))
    }
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        vec![reply].into()
    }
}

/// The answers of a model in order: `script![text("hi"), call("weather", json!({}))]`.
#[macro_export]
#[doc(hidden)]
macro_rules! __testkit_script {
    ($($reply:expr),* $(,)?) => { $crate::testkit::Script::from(vec![$($reply),*]) };
}
pub use crate::__testkit_script as script;

/// A request as a provider received it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRequest {
    /// Where it went.
    pub target: Target,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Value,
}

impl ProviderRequest {
    /// The messages of the request.
    pub fn messages(&self) -> &[Value] {
        self.body.get("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The roles of its messages, in order.
    pub fn roles(&self) -> Vec<&str> {
        self.messages().iter().map(|m| m.get("role").and_then(Value::as_str).unwrap_or_default()).collect()
    }

    /// The text of each message, in order; empty where there is none.
    pub fn texts(&self) -> Vec<String> {
        self.messages().iter().map(|m| content(m.get("content").unwrap_or(&Value::Null))).collect()
    }

    /// The text of the last user message.
    pub fn last_user(&self) -> String {
        let last = self.messages().iter().rev().find(|m| m.get("role").and_then(Value::as_str) == Some("user"));
        last.map_or_else(String::new, |m| content(m.get("content").unwrap_or(&Value::Null)))
    }

    /// The names of the tools it offers.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|t| t.pointer("/function/name").or_else(|| t.get("name")).and_then(Value::as_str)).collect()
    }

    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// What every provider of the chat protocol demands of a request.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), String> {
        let messages = self.body.get("messages").and_then(Value::as_array).ok_or("`messages` is not a list")?;
        if !messages.iter().any(|m| m.get("role").and_then(Value::as_str) == Some("user")) {
            return Err("no user message".into());
        }
        let mut open: Vec<&str> = Vec::new();
        let mut ever: BTreeSet<&str> = BTreeSet::new();
        for (i, message) in messages.iter().enumerate() {
            let role = message.get("role").and_then(Value::as_str).ok_or_else(|| format!("message {i} has no role"))?;
            if role != "tool" && !open.is_empty() {
                return Err(format!("message {i} ({role}) comes before the results of {open:?}"));
            }
            match role {
                "system" | "developer" | "user" => {
                    if content(message.get("content").unwrap_or(&Value::Null)).is_empty() && !has_parts(message) {
                        return Err(format!("message {i} ({role}) is empty"));
                    }
                }
                "assistant" => {
                    let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                    let text = content(message.get("content").unwrap_or(&Value::Null));
                    if calls.is_empty() && text.is_empty() {
                        return Err(format!("message {i} (assistant) has neither content nor calls"));
                    }
                    for call in calls {
                        let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
                        let name = call.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
                        if id.is_empty() || name.is_empty() {
                            return Err(format!("message {i} has a call without id or name"));
                        }
                        if !ever.insert(id) {
                            return Err(format!("call id {id} is used twice"));
                        }
                        // Workers AI takes an object here, everybody else its text.
                        let input = call.pointer("/function/arguments").unwrap_or(&Value::Null);
                        let object = match input {
                            Value::String(text) => serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()),
                            other => other.is_object(),
                        };
                        if !object {
                            return Err(format!("call {id} has arguments that are no object: {input}"));
                        }
                        open.push(id);
                    }
                }
                "tool" => {
                    let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
                    let place = open.iter().position(|o| *o == id);
                    open.remove(place.ok_or_else(|| format!("message {i} is the result of {id:?}, which is not open"))?);
                }
                other => return Err(format!("message {i} has the role {other:?}")),
            }
        }
        if !open.is_empty() {
            return Err(format!("the request ends with {open:?} open"));
        }
        let tools = self.tools();
        let names: BTreeSet<&&str> = tools.iter().collect();
        if names.len() != tools.len() {
            return Err(format!("two tools share a name: {tools:?}"));
        }
        Ok(())
    }
}

fn has_parts(message: &Value) -> bool {
    message.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty())
}

fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect(),
        _ => String::new(),
    }
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exchange {
    /// The provider still has the connection open.
    #[default]
    Open,
    /// The answer was read to its end.
    Read,
    /// The reader let go before the end, or aborted.
    Dropped,
}

/// The provider's side of the wire.
#[derive(Clone, Default)]
pub(super) struct Provider(Rc<ProviderState>);

#[derive(Default)]
struct ProviderState {
    script: RefCell<Script>,
    requests: RefCell<Vec<(ProviderRequest, Rc<Cell<Exchange>>)>>,
    unchecked: Cell<bool>,
}

impl Provider {
    /// Adds answers behind those that are left, or replaces them by a function.
    pub(super) fn script(&self, script: Script) {
        let mut own = self.0.script.borrow_mut();
        match (&mut own.0, script.0) {
            (Source::Queue(queue), Source::Queue(more)) => queue.extend(more),
            (_, source) => own.0 = source,
        }
    }

    /// Stops checking requests.
    pub(super) fn unchecked(&self) {
        self.0.unchecked.set(true);
    }

    pub(super) fn requests(&self) -> Vec<ProviderRequest> {
        self.0.requests.borrow().iter().map(|(request, _)| request.clone()).collect()
    }

    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        self.0.requests.borrow().iter().map(|(_, state)| state.get()).collect()
    }

    /// Answers left in the script.
    pub(super) fn left(&self) -> usize {
        match &self.0.script.borrow().0 {
            Source::Queue(queue) => queue.len(),
            Source::Function(_) => 0,
        }
    }

    /// Takes a request and answers it by the script.
    pub(super) async fn fetch(self, request: WireRequest, cancel: Cancel, clock: Clock, gates: Gates) -> Result<Answer> {
        let body = serde_json::from_str(&request.body)
            .unwrap_or_else(|e| panic!("a provider got a body that is no JSON ({e}): {}", request.body));
        let seen = ProviderRequest { target: request.target, headers: request.headers, body };
        if !self.0.unchecked.get()
            && let Err(broken) = seen.validate()
        {
            panic!("a provider got an illegal request: {broken}\n{:#}", seen.body);
        }
        let state = Rc::new(Cell::new(Exchange::Open));
        self.0.requests.borrow_mut().push((seen.clone(), state.clone()));
        // The function may look at the world, so nothing stays borrowed while it runs.
        let mut script = std::mem::take(&mut *self.0.script.borrow_mut());
        let reply = match &mut script.0 {
            Source::Queue(queue) => queue.pop_front(),
            Source::Function(answer) => Some(answer(&seen)),
        };
        *self.0.script.borrow_mut() = script;
        let count = self.0.requests.borrow().len();
        let reply = reply.unwrap_or_else(|| panic!("the script has no answer for request {count} of the model:\n{:#}", seen.body));
        let mut body = Body { pieces: reply.lead.clone().into(), cancel, clock, gates, state };
        body.next().await.transpose()?;
        if let Some(text) = reply.refused {
            body.state.set(Exchange::Read);
            return Err(Error::platform(text));
        }
        body.pieces = reply.pieces();
        let bytes = stream::unfold(body, |mut body| async move { body.next().await.map(|read| (read, body)) });
        Ok(Answer { status: reply.status, headers: reply.headers, body: Box::pin(bytes) })
    }
}

struct Body {
    pieces: VecDeque<Piece>,
    cancel: Cancel,
    clock: Clock,
    gates: Gates,
    state: Rc<Cell<Exchange>>,
}

impl Body {
    /// The next network read.
    async fn next(&mut self) -> Option<Result<Vec<u8>>> {
        loop {
            if self.cancel.is_tripped() {
                self.pieces.clear();
                self.state.set(Exchange::Dropped);
                return Some(Err(Error::platform("The operation was aborted")));
            }
            let wait = match self.pieces.pop_front() {
                None => {
                    return None;
                }
                Some(Piece::Bytes(bytes)) => {
                    // Reads do not come faster than everybody else gets a turn.
                    yield_now().await;
                    if self.pieces.is_empty() {
                        self.state.set(Exchange::Read);
                    }
                    return Some(Ok(bytes));
                }
                Some(Piece::Broken(text)) => {
                    self.pieces.clear();
                    self.state.set(Exchange::Read);
                    return Some(Err(Error::platform(text)));
                }
                Some(Piece::Delay(ms)) => Either::Left(self.clock.sleep(ms)),
                Some(Piece::Gate(name)) => Either::Right(Either::Left(self.gates.wait(&name))),
                Some(Piece::Stall) => Either::Right(Either::Right(future::pending())),
            };
            future::select(std::pin::pin!(self.cancel.tripped()), wait).await;
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.state.get() == Exchange::Open {
            self.state.set(Exchange::Dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: Value) -> ProviderRequest {
        ProviderRequest {
            target: Target::Url("https://model.test".into()),
            headers: Vec::new(),
            body: json!({ "messages": messages }),
        }
    }

    #[test]
    fn an_answer_is_sse_as_a_provider_sends_it() {
        let pieces = text("hi").call("weather", json!({ "city": "Oslo" })).pieces();
        let sent: String = pieces
            .iter()
            .map(|p| if let Piece::Bytes(b) = p { String::from_utf8_lossy(b).into_owned() } else { String::new() })
            .collect();
        let events: Vec<&str> = sent.split("\n\n").filter_map(|e| e.strip_prefix("data: ")).collect();
        assert_eq!(events.last(), Some(&"[DONE]"));
        let parsed: Vec<Value> = events[..events.len() - 1].iter().map(|e| serde_json::from_str(e).unwrap()).collect();
        assert_eq!(parsed[1]["choices"][0]["delta"]["content"], "hi");
        let arguments: String = parsed[2..4]
            .iter()
            .map(|e| e["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap())
            .collect();
        assert_eq!(arguments, r#"{"city":"Oslo"}"#);
        assert_eq!(parsed[4]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(pieces.len(), 5);
        assert_eq!(one_read(&["a", "b", "c"]).pieces().len(), 1);
        assert!(text("ü").cut_every(1).pieces().iter().all(|p| matches!(p, Piece::Bytes(b) if b.len() == 1)));
        assert_eq!(text("a").cut().pieces().len(), 1);
    }

    #[test]
    fn requests_that_providers_refuse_are_found() {
        let assistant = json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] });
        let user = json!({ "role": "user", "content": "hi" });
        let result = json!({ "role": "tool", "tool_call_id": "c1", "content": "1" });
        assert_eq!(request(json!([user, assistant, result])).validate(), Ok(()));
        let table = [
            ("no user message", json!([{ "role": "system", "content": "x" }])),
            ("open", json!([user, assistant])),
            ("comes before the results", json!([user, assistant, user])),
            ("not open", json!([user, result])),
            ("used twice", json!([user, assistant, result, assistant, result])),
            ("role", json!([user, { "role": "robot", "content": "x" }])),
            ("neither content nor calls", json!([user, { "role": "assistant", "content": "" }])),
            ("is empty", json!([{ "role": "user", "content": "" }])),
        ];
        for (expected, messages) in table {
            let broken = request(messages).validate().unwrap_err();
            assert!(broken.contains(expected), "{expected}: {broken}");
        }
    }
}
