//! A browser tab as the stock hooks make one: what it sends, and what the person in front of it sees.
//!
//! It follows `useAgentChat` frame by frame (`wire-protocol.md` §2.10–2.15): one path for the streams this tab asked for or attached
//! to, another for those it only watches, the rules by which a transcript replaces or spares what is on the screen, and the resume
//! handshake. A socket from [`crate::testkit::World::socket`] keeps the same log but sends nothing by itself.

mod check;
mod reduce;

use std::{
    cell::{Ref, RefCell, RefMut},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use serde_json::{Map, Value, json};

use self::reduce::{Builder, Sdk, Write};
use crate::ids::ConnId;

/// What the tab shows as the state of its own request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing is under way, or the answer is complete.
    #[default]
    Ready,
    /// Asked, nothing of the answer yet.
    Submitted,
    /// The answer arrives.
    Streaming,
    /// It failed with this text.
    Error(String),
}

/// The end of a turn as `onTurnEnd` reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// The request.
    pub request: String,
    /// `completed`, `error`, `aborted` or `skipped`.
    pub outcome: String,
    /// The user messages it answered.
    pub message_ids: Vec<String>,
    /// Whether it was learnt from a replay.
    pub replay: bool,
}

/// One line of a socket's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The socket was accepted.
    Opened,
    /// A frame the tab sent.
    Sent(Value),
    /// A text frame the tab received.
    Received(String),
    /// A binary frame the tab received.
    Binary(Vec<u8>),
    /// The socket closed.
    Closed(u16, String),
}

/// What waits to be carried to the object.
#[derive(Clone, Debug)]
pub(super) enum Out {
    Text(String),
    Binary(Vec<u8>),
    Close(u16, String, bool),
}

/// What waits to be carried to the tab.
#[derive(Clone, Debug)]
pub(super) enum In {
    Text(String),
    Binary(Vec<u8>),
    Close(u16, String),
}

/// A simulated client. Cloning shares it. Whatever it sends travels when the world runs.
#[derive(Clone)]
pub struct Client(Rc<RefCell<Tab>>);

/// How a tab behaves.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// Reduces frames, probes and acknowledges, as the hooks do.
    pub(super) hook: bool,
    /// The hook's `resume` option.
    pub(super) resume: bool,
}

struct Tab {
    label: String,
    behaviour: Behaviour,
    conn: Option<ConnId>,
    /// Sockets opened so far; logs are kept for each.
    logs: Vec<Vec<Entry>>,
    taken: usize,
    outgoing: VecDeque<Out>,
    incoming: VecDeque<In>,
    lagging: bool,
    minted: u64,

    messages: Vec<Value>,
    status: Status,
    own: Vec<Own>,
    observed: Option<(String, Builder)>,
    local: BTreeSet<String>,
    reply_of: BTreeMap<String, String>,
    protected: Option<(String, Option<String>)>,
    probe: Option<Probe>,
    /// Whether it asks for a continuation once the question that is under way is answered.
    asks_next: bool,
    replayable: BTreeSet<String>,
    acked: BTreeSet<String>,
    applied: BTreeMap<String, u64>,
    recovering: bool,
    ends: Vec<TurnEnd>,
    ended: BTreeSet<String>,
    offline: BTreeSet<String>,

    body: Map<String, Value>,
    state: Option<Value>,
    identity: Option<Value>,
}

struct Probe {
    id: String,
    /// Sent after a tool result, to attach to the continuation.
    tool: bool,
    /// The message that the answer will be read into, as it was when this was sent; an empty one if `None`.
    seed: Option<Value>,
}

/// A stream that this tab asked for or attached to.
struct Own {
    request: String,
    sdk: Sdk,
    resumed: bool,
    /// Replayed chunks, applied together when the burst ends.
    burst: Vec<Value>,
    /// Blocks that replayed, already applied chunks left open.
    reopen: Vec<(String, Value)>,
}

impl Client {
    pub(super) fn new(label: &str, behaviour: Behaviour) -> Self {
        Self(Rc::new(RefCell::new(Tab {
            label: label.into(),
            behaviour,
            conn: None,
            logs: Vec::new(),
            taken: 0,
            outgoing: VecDeque::new(),
            incoming: VecDeque::new(),
            lagging: false,
            minted: 0,
            messages: Vec::new(),
            status: Status::Ready,
            own: Vec::new(),
            observed: None,
            local: BTreeSet::new(),
            reply_of: BTreeMap::new(),
            protected: None,
            probe: None,
            asks_next: false,
            replayable: BTreeSet::new(),
            acked: BTreeSet::new(),
            applied: BTreeMap::new(),
            recovering: false,
            ends: Vec::new(),
            ended: BTreeSet::new(),
            offline: BTreeSet::new(),
            body: Map::new(),
            state: None,
            identity: None,
        })))
    }

    fn tab(&self) -> Ref<'_, Tab> {
        self.0.borrow()
    }

    fn edit_tab(&self) -> RefMut<'_, Tab> {
        self.0.borrow_mut()
    }

    // --- what the person does

    /// Sends a text. Returns the id of the request.
    pub fn send(&self, text: &str) -> String {
        let id = self.edit_tab().mint("u");
        self.send_message(json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] }))
    }

    /// Sends a user message of any shape. Returns the id of the request.
    pub fn send_message(&self, message: Value) -> String {
        let mut tab = self.edit_tab();
        if tab.status == Status::Streaming {
            tab.protect_tail();
        }
        tab.messages.push(message.clone());
        if tab.conn.is_none() {
            let id = message["id"].as_str().unwrap_or_default().to_owned();
            tab.offline.insert(id);
        }
        tab.request("submit-message")
    }

    /// Asks again for the last answer. Returns the id of the request.
    pub fn regenerate(&self) -> String {
        let mut tab = self.edit_tab();
        if let Some(last) = tab.messages.iter().rposition(|m| m["role"] == "assistant") {
            tab.messages.truncate(last);
        }
        tab.request("regenerate-message")
    }

    /// Replaces a user message and everything after it. Returns the id of the request.
    ///
    /// # Panics
    /// The tab shows no such message.
    pub fn edit(&self, message: &str, text: &str) -> String {
        let mut tab = self.edit_tab();
        let place = tab.messages.iter().position(|m| m["id"] == message);
        let place = place.unwrap_or_else(|| panic!("{} shows no message {message}", tab.label));
        tab.messages.truncate(place);
        tab.messages.push(json!({ "id": message, "role": "user", "parts": [{ "type": "text", "text": text }] }));
        tab.request("submit-message")
    }

    /// Sends a request with the messages as they are on the screen.
    pub fn resend(&self) -> String {
        self.edit_tab().request("submit-message")
    }

    /// Stops what this tab asked for or attached to: the server is told, and the screen stops at once.
    pub fn stop(&self) {
        let mut tab = self.edit_tab();
        let running: Vec<String> = tab.own.drain(..).map(|own| own.request).collect();
        if !running.is_empty() {
            tab.status = Status::Ready;
        }
        for id in running {
            // The id stays known until its terminal, so that late frames are swallowed.
            tab.post(json!({ "id": id, "type": "cf_agent_chat_request_cancel" }));
        }
    }

    /// Cancels any request by its id.
    pub fn cancel(&self, request: &str) {
        self.frame(json!({ "id": request, "type": "cf_agent_chat_request_cancel" }));
    }

    /// Clears the conversation, here and everywhere.
    pub fn clear(&self) {
        let mut tab = self.edit_tab();
        tab.forget();
        tab.post(json!({ "type": "cf_agent_chat_clear" }));
    }

    /// Answers a call of a client tool, and attaches to the continuation.
    pub fn tool_result(&self, call: &str, output: Value) {
        let mut tab = self.edit_tab();
        let name = tab.settle(call, &[("state", "output-available".into()), ("output", output.clone())]);
        tab.post(
            json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": name, "output": output, "autoContinue": true }),
        );
        tab.attach_to_continuation();
    }

    /// Fails a call of a client tool. Does not continue by itself.
    pub fn tool_error(&self, call: &str, text: &str) {
        let mut tab = self.edit_tab();
        let name = tab.settle(call, &[("state", "output-error".into()), ("errorText", text.into())]);
        tab.post(json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": name, "state": "output-error", "errorText": text, "autoContinue": false }));
    }

    /// Answers a request for approval, and attaches to the continuation.
    pub fn approve(&self, call: &str, approved: bool) {
        self.decide(call, json!({ "approved": approved }));
    }

    /// Denies a call with a reason, and attaches to the continuation.
    pub fn deny(&self, call: &str, reason: &str) {
        self.decide(call, json!({ "approved": false, "reason": reason }));
    }

    fn decide(&self, call: &str, fields: Value) {
        let mut tab = self.edit_tab();
        tab.settle(call, &[("state", "approval-responded".into())]);
        let mut frame = json!({ "type": "cf_agent_tool_approval", "toolCallId": call, "autoContinue": true });
        fields.as_object().into_iter().flatten().for_each(|(key, value)| frame[key] = value.clone());
        tab.post(frame);
        tab.attach_to_continuation();
    }

    /// The ids of the calls on the screen that wait for this tab or the person in front of it, in order.
    pub fn open_calls(&self) -> Vec<String> {
        let tab = self.tab();
        let parts = tab.messages.iter().filter_map(|m| m["parts"].as_array()).flatten();
        let open = parts.filter(|p| matches!(p["state"].as_str(), Some("input-available" | "approval-requested")));
        open.filter_map(|p| p["toolCallId"].as_str()).map(str::to_owned).collect()
    }

    /// Writes the shared state, optimistically as the client does.
    pub fn set_state(&self, state: Value) {
        let mut tab = self.edit_tab();
        tab.state = Some(state.clone());
        tab.post(json!({ "state": state, "type": "cf_agent_state" }));
    }

    /// Calls a method. Its replies are read by [`Client::replies`].
    pub fn rpc(&self, method: &str, args: Value) -> String {
        let mut tab = self.edit_tab();
        let id = tab.mint("rpc");
        tab.post(json!({ "args": args, "id": id, "method": method, "type": "rpc" }));
        id
    }

    /// Fields that every later request carries besides the messages: a custom body, `clientTools`.
    pub fn set_body(&self, body: Value) {
        self.edit_tab().body = body.as_object().cloned().unwrap_or_default();
    }

    /// Sends any frame.
    pub fn frame(&self, frame: Value) {
        self.edit_tab().post(frame);
    }

    /// Sends any text.
    pub fn raw(&self, text: impl Into<String>) {
        self.edit_tab().outgoing.push_back(Out::Text(text.into()));
    }

    /// Sends bytes.
    pub fn binary(&self, bytes: impl Into<Vec<u8>>) {
        self.edit_tab().outgoing.push_back(Out::Binary(bytes.into()));
    }

    /// Asks whether something is under way. Returns the id of the probe.
    pub fn probe(&self) -> String {
        self.edit_tab().probe(false)
    }

    /// Acknowledges a resume.
    pub fn ack(&self, request: &str) {
        self.frame(json!({ "type": "cf_agent_stream_resume_ack", "id": request }));
    }

    /// Closes the socket from this side.
    pub fn close(&self, code: u16, reason: &str) {
        self.edit_tab().outgoing.push_back(Out::Close(code, reason.into(), true));
    }

    /// Holds back everything to and from this tab until it is switched off again.
    pub fn lag(&self, lagging: bool) {
        self.edit_tab().lagging = lagging;
    }

    // --- what the person sees

    /// The messages on the screen.
    pub fn messages(&self) -> Vec<Value> {
        self.tab().messages.clone()
    }

    /// The messages on the screen as `role: text`, with calls as `[tool state]`.
    pub fn said(&self) -> Vec<String> {
        self.tab().messages.iter().map(said).collect()
    }

    /// The state of its own request.
    pub fn status(&self) -> Status {
        self.tab().status.clone()
    }

    /// Whether it watches a stream that it did not ask for.
    pub fn watches(&self) -> bool {
        self.tab().observed.is_some()
    }

    /// Whether it shows that an answer is being recovered.
    pub fn recovering(&self) -> bool {
        self.tab().recovering
    }

    /// The turns it saw end.
    pub fn turn_ends(&self) -> Vec<TurnEnd> {
        self.tab().ends.clone()
    }

    /// The shared state as it knows it.
    pub fn state(&self) -> Option<Value> {
        self.tab().state.clone()
    }

    /// The identity frame it got.
    pub fn identity(&self) -> Option<Value> {
        self.tab().identity.clone()
    }

    // --- the log

    /// Its `_pk`.
    pub fn label(&self) -> String {
        self.tab().label.clone()
    }

    /// The id of its socket, while it has one.
    pub fn conn(&self) -> Option<ConnId> {
        self.tab().conn.clone()
    }

    /// The log of its newest socket.
    pub fn log(&self) -> Vec<Entry> {
        self.tab().logs.last().cloned().unwrap_or_default()
    }

    /// The frames its newest socket received, parsed.
    pub fn frames(&self) -> Vec<Value> {
        received(self.tab().logs.last().map_or(&[], Vec::as_slice))
    }

    /// The frames received since the last time this was asked, over all its sockets.
    pub fn take_frames(&self) -> Vec<Value> {
        let mut tab = self.edit_tab();
        let all: Vec<Entry> = tab.logs.iter().flatten().cloned().collect();
        let from = std::mem::replace(&mut tab.taken, all.len());
        received(&all[from..])
    }

    /// The frames of one type its newest socket received.
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        self.frames().into_iter().filter(|f| f["type"] == kind).collect()
    }

    /// The response frames of a request on its newest socket.
    pub fn responses(&self, request: &str) -> Vec<Value> {
        self.of_type("cf_agent_use_chat_response").into_iter().filter(|f| f["id"] == request).collect()
    }

    /// The chunks of a request on its newest socket, replayed ones included.
    pub fn chunks(&self, request: &str) -> Vec<Value> {
        let bodies = self.responses(request);
        bodies.iter().filter_map(|f| f["body"].as_str()).filter_map(|body| serde_json::from_str(body).ok()).collect()
    }

    /// The terminal frames of a request on its newest socket.
    pub fn terminals(&self, request: &str) -> Vec<Value> {
        self.responses(request).into_iter().filter(|f| f["done"] == true).collect()
    }

    /// The replies to a call.
    pub fn replies(&self, rpc: &str) -> Vec<Value> {
        self.of_type("rpc").into_iter().filter(|f| f["id"] == rpc).collect()
    }

    /// Which rules of the wire the frames so far break; see [`Client::check`].
    pub fn violations(&self, at_rest: bool) -> Vec<String> {
        let tab = self.tab();
        let newest = tab.logs.len();
        let judged = tab.logs.iter().enumerate().map(|(i, log)| check::violations(log, at_rest && i + 1 == newest));
        judged.flatten().map(|broken| format!("{}: {broken}", tab.label)).collect()
    }

    /// Checks every frame so far against what must hold at any time (wire 60, 119, 164–169, 171).
    ///
    /// # Panics
    /// A rule is broken.
    pub fn check(&self) {
        let broken = self.violations(false);
        assert!(broken.is_empty(), "{}\n{}", broken.join("\n"), self.story());
    }

    /// The log of all its sockets, a line each.
    pub fn story(&self) -> String {
        let tab = self.tab();
        let lines = tab.logs.iter().flatten().map(|entry| match entry {
            Entry::Opened => format!("{} opened", tab.label),
            Entry::Sent(frame) => format!("{} → {frame}", tab.label),
            Entry::Received(text) => format!("{} ← {text}", tab.label),
            Entry::Binary(bytes) => format!("{} ← {} bytes", tab.label, bytes.len()),
            Entry::Closed(code, reason) => format!("{} closed {code} {reason}", tab.label),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    // --- what the world does with it

    pub(super) fn is(&self, other: &Client) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn hydrate(&self, messages: Vec<Value>) {
        let mut tab = self.edit_tab();
        let known: BTreeSet<String> = tab.messages.iter().filter_map(|m| m["id"].as_str()).map(str::to_owned).collect();
        let missing = messages.into_iter().filter(|m| !m["id"].as_str().is_some_and(|id| known.contains(id)));
        let shown = std::mem::take(&mut tab.messages);
        tab.messages = missing.chain(shown).collect();
    }

    pub(super) fn opened(&self, conn: ConnId) {
        let mut tab = self.edit_tab();
        tab.conn = Some(conn);
        tab.logs.push(vec![Entry::Opened]);
        // What was typed while offline goes first (wire §1.11), then the probe.
        let again = tab.logs.len() > 1;
        if tab.behaviour.hook && tab.behaviour.resume {
            match tab.probe.take() {
                Some(probe) if again => {
                    let frame = json!({ "type": "cf_agent_stream_resume_request", "probeId": probe.id });
                    tab.probe = Some(probe);
                    tab.post(frame);
                }
                _ => drop(tab.probe(false)),
            }
        }
    }

    pub(super) fn refused(&self, text: &str) {
        let mut tab = self.edit_tab();
        tab.logs.push(vec![
            Entry::Opened,
            Entry::Received(text.into()),
            Entry::Closed(1011, "Uncaught exception during session setup".into()),
        ]);
    }

    /// The socket is gone, by whatever cause.
    pub(super) fn lost(&self, code: u16, reason: &str) {
        let mut tab = self.edit_tab();
        tab.conn = None;
        tab.incoming.clear();
        if let Some(log) = tab.logs.last_mut() {
            log.push(Entry::Closed(code, reason.into()));
        }
        tab.acked.clear();
        tab.protected = None;
        let interrupted: Vec<Own> = tab.own.drain(..).collect();
        for mut own in interrupted {
            tab.flush(&mut own);
            tab.local.remove(&own.request);
            tab.status = Status::Error("WebSocket closed mid-stream".into());
        }
    }

    pub(super) fn push(&self, frame: In) {
        self.edit_tab().incoming.push_back(frame);
    }

    pub(super) fn has_outgoing(&self) -> bool {
        let tab = self.tab();
        !tab.lagging && tab.conn.is_some() && !tab.outgoing.is_empty()
    }

    pub(super) fn has_incoming(&self) -> bool {
        let tab = self.tab();
        !tab.lagging && !tab.incoming.is_empty()
    }

    pub(super) fn pop_outgoing(&self) -> Option<(ConnId, Out)> {
        let mut tab = self.edit_tab();
        let conn = tab.conn.clone()?;
        let out = tab.outgoing.pop_front()?;
        if let Out::Text(text) = &out {
            let frame = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
            if let Some(log) = tab.logs.last_mut() {
                log.push(Entry::Sent(frame));
            }
        }
        Some((conn, out))
    }

    /// Takes one frame off the wire and acts on it. A close comes back to the caller.
    pub(super) fn receive(&self) -> Option<(u16, String)> {
        let mut tab = self.edit_tab();
        let frame = tab.incoming.pop_front()?;
        let text = match frame {
            In::Close(code, reason) => return Some((code, reason)),
            In::Binary(bytes) => {
                if let Some(log) = tab.logs.last_mut() {
                    log.push(Entry::Binary(bytes));
                }
                return None;
            }
            In::Text(text) => text,
        };
        let parsed = serde_json::from_str::<Value>(&text);
        if let Some(log) = tab.logs.last_mut() {
            log.push(Entry::Received(text));
        }
        if let Ok(frame) = parsed {
            tab.frame(&frame);
        }
        None
    }
}

impl Tab {
    fn mint(&mut self, kind: &str) -> String {
        self.minted += 1;
        format!("{}-{kind}{}", self.label, self.minted)
    }

    fn post(&mut self, frame: Value) {
        self.outgoing.push_back(Out::Text(frame.to_string()));
    }

    fn probe(&mut self, tool: bool) -> String {
        let id = self.mint("p");
        let seed = self.messages.last().filter(|m| m["role"] == "assistant" && resumable(m)).cloned();
        self.probe = Some(Probe { id: id.clone(), tool, seed });
        self.post(json!({ "type": "cf_agent_stream_resume_request", "probeId": id }));
        id
    }

    fn request(&mut self, trigger: &str) -> String {
        let id = self.mint("r");
        let mut body = json!({ "messages": self.messages, "trigger": trigger });
        self.body.iter().for_each(|(key, value)| body[key] = value.clone());
        let frame = json!({ "id": id, "init": { "method": "POST", "body": body.to_string() }, "type": "cf_agent_use_chat_request" });
        if self.behaviour.hook {
            let seed = self.messages.last().filter(|m| m["role"] == "assistant" && trigger == "submit-message").cloned();
            let local = self.mint("a");
            self.local.insert(id.clone());
            self.own.push(Own {
                request: id.clone(),
                sdk: Sdk::new(seed.as_ref(), &local, false),
                resumed: false,
                burst: Vec::new(),
                reopen: Vec::new(),
            });
            self.status = Status::Submitted;
        }
        self.post(frame);
        id
    }

    fn settle(&mut self, call: &str, fields: &[(&str, Value)]) -> String {
        let parts = self.messages.iter_mut().filter_map(|m| m["parts"].as_array_mut()).flatten();
        let mut name = String::new();
        for part in parts.filter(|p| p["toolCallId"] == call) {
            fields.iter().for_each(|(key, value)| part[*key] = value.clone());
            let kind = part["type"].as_str().unwrap_or_default();
            name = part["toolName"].as_str().or_else(|| kind.strip_prefix("tool-")).unwrap_or_default().to_owned();
        }
        name
    }

    fn attach_to_continuation(&mut self) {
        if !self.behaviour.hook {
            return;
        }
        self.status = Status::Submitted;
        match &self.probe {
            // Results that follow while a probe is under way share it (wire §2.16).
            Some(probe) if probe.tool => {}
            // The question of a new connection comes first.
            Some(_) if self.conn.is_some() => self.asks_next = true,
            _ => drop(self.probe(true)),
        }
    }

    fn forget(&mut self) {
        self.messages.clear();
        self.observed = None;
        self.recovering = false;
        self.reply_of.clear();
        self.replayable.clear();
        self.acked.clear();
        self.protected = None;
        self.offline.clear();
        self.applied.clear();
    }

    fn frame(&mut self, frame: &Value) {
        match frame["type"].as_str().unwrap_or_default() {
            "cf_agent_identity" => self.identity = Some(frame.clone()),
            "cf_agent_state" => self.state = Some(frame["state"].clone()),
            _ if !self.behaviour.hook => {}
            "cf_agent_chat_clear" => self.forget(),
            "cf_agent_chat_recovering" => self.recovering = frame["recovering"] == true,
            "cf_agent_chat_messages" => self.transcript(frame),
            "cf_agent_message_updated" => self.updated(&frame["message"]),
            "cf_agent_stream_resume_none" => self.resume_none(frame),
            "cf_agent_stream_resuming" => self.resuming(frame["id"].as_str().unwrap_or_default()),
            "cf_agent_use_chat_response" => self.response(frame),
            _ => {}
        }
    }

    /// A transcript replaces the list, except for what this tab is in the middle of (wire §2.11).
    fn transcript(&mut self, frame: &Value) {
        let snapshot = frame["messages"].as_array().cloned().unwrap_or_default();
        let typed_offline = std::mem::take(&mut self.offline);
        let shown = std::mem::take(&mut self.messages);
        let mut next = snapshot;
        if let Some((id, _)) = self.protected.clone() {
            let place = next.iter().position(|m| m["id"] == id.as_str());
            let overtaken = place.is_some_and(|i| next.iter().skip(i + 1).any(|m| m["role"] == "assistant"));
            let own = shown.iter().find(|m| m["id"] == id.as_str()).cloned().or_else(|| place.map(|i| next[i].clone()));
            if overtaken {
                self.protected = None;
            } else if let Some(own) = own {
                next.retain(|m| m["id"] != id.as_str());
                next.push(own);
            }
        }
        if let Some((_, builder)) = &mut self.observed
            && !builder.parts.is_empty()
        {
            let stored = next.iter().find(|m| m["id"] == builder.id.as_str()).and_then(|m| m["parts"].as_array()).map_or(0, Vec::len);
            if builder.parts.len() >= stored && !builder.diverges_from(&next) {
                builder.merge_into(&mut next);
            }
        }
        if frame["connect"] == true {
            let missing = shown.into_iter().filter(|m| m["id"].as_str().is_some_and(|id| typed_offline.contains(id)));
            for message in missing.collect::<Vec<_>>() {
                if !next.iter().any(|m| m["id"] == message["id"]) {
                    next.push(message);
                }
            }
        }
        self.messages = next;
    }

    fn updated(&mut self, message: &Value) {
        let calls = |m: &Value| -> BTreeSet<String> {
            let parts = m["parts"].as_array().map_or(&[][..], Vec::as_slice);
            parts.iter().filter_map(|p| p["toolCallId"].as_str()).map(str::to_owned).collect()
        };
        let theirs = calls(message);
        let place = self.messages.iter().position(|m| m["id"] == message["id"]);
        let place = place.or_else(|| self.messages.iter().position(|m| !calls(m).is_disjoint(&theirs)));
        if let Some(i) = place {
            let id = self.messages[i]["id"].clone();
            self.messages[i] = message.clone();
            self.messages[i]["id"] = id;
        }
    }

    fn resume_none(&mut self, frame: &Value) {
        let Some(probe) = &self.probe else { return };
        if frame["probeId"].as_str().is_some_and(|id| id != probe.id) {
            return;
        }
        self.probe = None;
        if self.own.is_empty() {
            self.status = Status::Ready;
        }
        if frame["reason"] == "idle" && frame["probeId"].is_string() {
            self.observed = None;
        }
        if std::mem::take(&mut self.asks_next) {
            self.status = Status::Submitted;
            self.probe(true);
        }
    }

    fn resuming(&mut self, id: &str) {
        if !self.behaviour.resume && self.probe.is_none() {
            return;
        }
        let probe = self.probe.take();
        self.asks_next = false;
        if !probe.as_ref().is_some_and(|p| p.tool) {
            self.replayable.insert(id.into());
        }
        if let Some(Probe { seed, .. }) = probe {
            self.local.insert(id.into());
            let local = self.mint("a");
            self.own.retain(|own| own.request != id);
            self.own.push(Own {
                request: id.into(),
                sdk: Sdk::new(seed.as_ref(), &local, true),
                resumed: true,
                burst: Vec::new(),
                reopen: Vec::new(),
            });
            self.status = Status::Submitted;
        } else if self.local.contains(id) || self.acked.contains(id) {
            return;
        } else {
            let local = self.mint("a");
            self.observed = Some((id.into(), Builder::new(&local, false)));
            self.recovering = false;
            self.acked.insert(id.into());
        }
        self.post(json!({ "type": "cf_agent_stream_resume_ack", "id": id }));
    }

    fn response(&mut self, frame: &Value) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        let (done, error, replay) = (frame["done"] == true, frame["error"] == true, frame["replay"] == true);
        let continuation = frame["continuation"] == true;
        let chunk = frame["body"].as_str().filter(|b| !b.trim().is_empty()).and_then(|b| serde_json::from_str::<Value>(b).ok());
        self.note_end(&id, frame);
        if self.local.contains(&id) {
            self.own_frame(&id, frame, chunk.as_ref());
            return;
        }
        let watching = self.observed.as_ref().is_some_and(|(o, _)| *o == id);
        if replay && self.observed.is_none() && !self.replayable.contains(&id) {
            return;
        }
        if done && !error && !watching && !self.replayable.contains(&id) {
            self.applied.remove(&id);
            self.acked.remove(&id);
            return;
        }
        if error {
            self.replayable.remove(&id);
            self.applied.remove(&id);
            self.acked.remove(&id);
            self.recovering = false;
            if watching {
                self.observed = None;
            }
            return;
        }
        let seq = frame["seq"].as_u64();
        let seen = replay && continuation && seq.is_some_and(|s| self.applied.get(&id).is_some_and(|a| s <= *a));
        let start = chunk.as_ref().is_some_and(|c| c["type"] == "start");
        if replay
            && !continuation
            && start
            && let Some(message) = chunk.as_ref().and_then(|c| c["messageId"].as_str())
        {
            self.replayable.remove(&id);
            self.empty_hydrated(message);
        }
        if done || frame["replayComplete"] == true {
            self.replayable.remove(&id);
        }
        if done {
            self.acked.remove(&id);
            self.applied.remove(&id);
            if frame["outcome"] != "recovering" {
                self.recovering = false;
            }
        } else if (!seen || start)
            && let Some(seq) = seq
        {
            let highest = self.applied.get(&id).copied().unwrap_or(0).max(seq);
            self.applied.insert(id.clone(), highest);
        }
        let fresh = self.observed.as_ref().is_none_or(|(o, _)| *o != id) || (replay && start);
        if fresh {
            let local = self.mint("a");
            self.observed = Some((id.clone(), Builder::new(&local, continuation)));
        }
        let Some((_, builder)) = &mut self.observed else { return };
        let apply = chunk.filter(|_| !seen || start);
        if let Some(chunk) = &apply {
            builder.apply(chunk);
        }
        // A replay is trusted as a whole; single live chunks yield to a stored copy that says something else.
        let shows = done || (apply.is_some() && !replay);
        if frame["replayComplete"] == true || (shows && !builder.diverges_from(&self.messages)) {
            builder.merge_into(&mut self.messages);
        }
        if done {
            self.observed = None;
        }
    }

    /// A frame of a stream this tab asked for or attached to: first the hook, then the transport.
    fn own_frame(&mut self, id: &str, frame: &Value, chunk: Option<&Value>) {
        let (done, error, replay) = (frame["done"] == true, frame["error"] == true, frame["replay"] == true);
        let continuation = frame["continuation"] == true;
        if let Some(chunk) = chunk.filter(|c| c["type"] == "start")
            && let Some(message) = chunk["messageId"].as_str()
        {
            self.reply_of.insert(id.into(), message.into());
            if !continuation && self.protected.as_ref().is_none_or(|(p, _)| p != message) {
                let place = self.messages.iter().position(|m| m["id"] == message);
                let before = place.map_or(self.messages.last(), |i| i.checked_sub(1).and_then(|i| self.messages.get(i)));
                self.protected = Some((message.into(), before.and_then(|m| m["id"].as_str()).map(str::to_owned)));
            }
            if replay && !continuation && self.replayable.remove(id) {
                self.empty_hydrated(message);
            }
        }
        if done || error {
            self.replayable.remove(id);
            if self.observed.as_ref().is_some_and(|(o, _)| o == id) {
                self.observed = None;
            }
            let reply = self.reply_of.remove(id);
            self.unprotect(reply.as_deref());
            self.local.remove(id);
            self.acked.remove(id);
        }
        let Some(place) = self.own.iter().position(|own| own.request == id) else { return };
        let mut own = self.own.remove(place);
        if error {
            self.applied.remove(id);
            self.flush(&mut own);
            let text = frame["body"].as_str().filter(|b| !b.is_empty()).unwrap_or("Stream error");
            self.status = Status::Error(text.into());
            return;
        }
        let mut alive = true;
        for chunk in self.unseen(&mut own, frame, chunk) {
            let ends_burst = !replay || done || frame["replayComplete"] == true;
            if own.resumed && !ends_burst {
                let again = chunk["type"] == "start"
                    && !continuation
                    && own.burst.iter().any(|c| c["type"] == "start" && c["messageId"] == chunk["messageId"]);
                if again {
                    own.burst.clear();
                }
                own.burst.push(chunk);
            } else {
                alive = self.flush(&mut own) && self.write(&mut own, &chunk);
            }
        }
        if own.resumed && (!replay || done || frame["replayComplete"] == true) {
            alive = self.flush(&mut own) && alive;
        }
        if done {
            self.applied.remove(id);
            if alive {
                self.status = Status::Ready;
            }
        } else if alive {
            self.own.insert(place, own);
        }
        // If the SDK threw, its stream is gone, and the hook goes on swallowing frames of this id.
    }

    /// The chunks to apply for a frame: none if a replayed continuation chunk was applied before, with what it left open again.
    fn unseen(&mut self, own: &mut Own, frame: &Value, chunk: Option<&Value>) -> Vec<Value> {
        let Some(chunk) = chunk else { return Vec::new() };
        if !own.resumed {
            return vec![chunk.clone()];
        }
        let seq = frame["seq"].as_u64();
        let applied = self.applied.get(&own.request).copied();
        if frame["replay"] == true && frame["continuation"] == true && seq.is_some_and(|s| applied.is_some_and(|a| s <= a)) {
            let kind = chunk["type"].as_str().unwrap_or_default();
            let key = |prefix: &str, field: &str| format!("{prefix}:{}", chunk[field].as_str().unwrap_or_default());
            match kind {
                "text-start" => own.reopen.push((key("text", "id"), chunk.clone())),
                "reasoning-start" => own.reopen.push((key("reasoning", "id"), chunk.clone())),
                "tool-input-start" => own.reopen.push((key("tool", "toolCallId"), chunk.clone())),
                "text-end" => own.reopen.retain(|(k, _)| *k != key("text", "id")),
                "reasoning-end" => own.reopen.retain(|(k, _)| *k != key("reasoning", "id")),
                "tool-input-available" | "tool-input-error" => own.reopen.retain(|(k, _)| *k != key("tool", "toolCallId")),
                _ => {}
            }
            return Vec::new();
        }
        if let Some(seq) = seq {
            self.applied.insert(own.request.clone(), applied.unwrap_or(0).max(seq));
        }
        own.reopen.drain(..).map(|(_, opener)| opener).chain([chunk.clone()]).collect()
    }

    /// Applies the replayed chunks. False if the SDK threw.
    fn flush(&mut self, own: &mut Own) -> bool {
        let burst = std::mem::take(&mut own.burst);
        burst.iter().all(|chunk| self.write(own, chunk))
    }

    /// Applies a chunk and shows the message. False if the SDK threw.
    fn write(&mut self, own: &mut Own, chunk: &Value) -> bool {
        match own.sdk.apply(chunk) {
            Ok(Write::Nothing) => {}
            Ok(write) => {
                let message = own.sdk.snapshot();
                match self.messages.iter().rposition(|m| m["id"] == message["id"]) {
                    Some(i) => self.messages[i] = message,
                    None => self.messages.push(message),
                }
                if write == Write::Stream {
                    self.status = Status::Streaming;
                }
            }
            Err(text) => {
                self.status = Status::Error(text);
                return false;
            }
        }
        true
    }

    /// A copy that was loaded before the replay is emptied: the replay fills it again.
    fn empty_hydrated(&mut self, message: &str) {
        if let Some(last) = self.messages.last_mut().filter(|m| m["role"] == "assistant" && m["id"] == message) {
            last["parts"] = json!([]);
        }
    }

    fn protect_tail(&mut self) {
        let Some(place) = self.messages.iter().rposition(|m| m["role"] == "assistant") else { return };
        let id = self.messages[place]["id"].as_str().unwrap_or_default().to_owned();
        if self.protected.as_ref().is_none_or(|(p, _)| *p != id) {
            let before = place.checked_sub(1).and_then(|i| self.messages[i]["id"].as_str()).map(str::to_owned);
            self.protected = Some((id, before));
        }
        let message = self.messages.remove(place);
        self.messages.push(message);
    }

    /// Puts the protected message back where it belongs.
    fn unprotect(&mut self, only: Option<&str>) {
        let Some((id, anchor)) = self.protected.clone() else { return };
        if only.is_some_and(|only| only != id) {
            return;
        }
        self.protected = None;
        let Some(place) = self.messages.iter().position(|m| m["id"] == id.as_str()) else { return };
        let message = self.messages.remove(place);
        let to = match anchor {
            None => 0,
            Some(anchor) => self.messages.iter().position(|m| m["id"] == anchor.as_str()).map_or(place, |i| i + 1),
        };
        self.messages.insert(to, message);
    }

    fn note_end(&mut self, id: &str, frame: &Value) {
        if frame["done"] != true {
            return;
        }
        let outcome = if frame["error"] == true { "error" } else { frame["outcome"].as_str().unwrap_or("completed") };
        if outcome == "recovering" || !self.ended.insert(id.into()) {
            return;
        }
        let ids = frame["messageIds"].as_array().map_or(&[][..], Vec::as_slice);
        let message_ids = ids.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        self.ends.push(TurnEnd { request: id.into(), outcome: outcome.into(), message_ids, replay: frame["replay"] == true });
    }
}

/// Whether a resumed stream goes on inside this message (wire §3.4, X3).
fn resumable(message: &Value) -> bool {
    let parts = message["parts"].as_array().map_or(&[][..], Vec::as_slice);
    parts.iter().any(|p| match p["state"].as_str() {
        Some("input-streaming" | "approval-responded") => true,
        Some("input-available") => p["providerExecuted"] == true,
        _ => false,
    })
}

fn received(log: &[Entry]) -> Vec<Value> {
    let texts = log.iter().filter_map(|entry| if let Entry::Received(text) = entry { Some(text) } else { None });
    texts.map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))).collect()
}

/// A message as one line: its role, its text, its calls with their states.
pub fn said(message: &Value) -> String {
    let parts = message["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let pieces = parts.iter().filter_map(|part| {
        let kind = part["type"].as_str().unwrap_or_default();
        match kind {
            "text" => part["text"].as_str().map(str::to_owned),
            "reasoning" => part["text"].as_str().map(|text| format!("({text})")),
            "dynamic-tool" => {
                Some(format!("[{} {}]", part["toolName"].as_str().unwrap_or_default(), part["state"].as_str().unwrap_or_default()))
            }
            _ => kind.strip_prefix("tool-").map(|name| format!("[{name} {}]", part["state"].as_str().unwrap_or_default())),
        }
    });
    format!("{}: {}", message["role"].as_str().unwrap_or_default(), pieces.collect::<Vec<_>>().join(" "))
}

/// What two copies of a message must agree on (wire 170): id, role, texts, calls with their states and values, files, sources, data.
/// Left out is what the peer's own reducers disagree on: names beside the type, ids of reasoning, metadata of blocks.
pub fn essence(message: &Value) -> Value {
    let parts = message["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let parts = parts.iter().map(|part| {
        let kind = part["type"].as_str().unwrap_or_default();
        let keys: &[&str] = match kind {
            "text" | "reasoning" => &["text"],
            "step-start" => &[],
            tool if tool.starts_with("tool-") || tool == "dynamic-tool" => &["toolCallId", "state", "input", "output", "errorText"],
            "file" => &["mediaType", "url"],
            "source-url" => &["url", "title"],
            _ => &["id", "data"],
        };
        // A dynamic tool is a plain one to the agents package.
        let kind =
            if kind == "dynamic-tool" { format!("tool-{}", part["toolName"].as_str().unwrap_or_default()) } else { kind.to_owned() };
        let mut kept = json!({ "type": kind });
        for key in keys {
            if let Some(value) = part.get(*key).filter(|v| !v.is_null()) {
                kept[*key] = value.clone();
            }
        }
        kept
    });
    json!({ "id": message["id"], "role": message["role"], "parts": parts.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tab() -> Client {
        let client = Client::new("S1", Behaviour { hook: true, resume: true });
        client.opened("c1".into());
        client
    }

    fn give(client: &Client, frame: Value) {
        client.push(In::Text(frame.to_string()));
        assert_eq!(client.receive(), None);
    }

    fn response(id: &str, chunk: Value, extra: Value) -> Value {
        let body = if chunk.is_null() { String::new() } else { chunk.to_string() };
        let mut frame = json!({ "type": "cf_agent_use_chat_response", "id": id, "body": body, "done": false });
        extra.as_object().unwrap().iter().for_each(|(k, v)| frame[k] = v.clone());
        frame
    }

    fn sent(client: &Client) -> Vec<Value> {
        std::iter::from_fn(|| client.pop_outgoing())
            .map(|(_, out)| if let Out::Text(t) = out { serde_json::from_str(&t).unwrap() } else { Value::Null })
            .collect()
    }

    fn user(id: &str) -> Value {
        json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": "hi" }] })
    }

    #[test]
    fn a_tab_shows_the_answer_it_asked_for_and_keeps_its_copy_over_a_transcript() {
        let client = tab();
        let request = client.send("hi");
        assert_eq!(client.status(), Status::Submitted);
        assert_eq!(sent(&client).len(), 2);
        give(&client, response(&request, json!({ "type": "start", "messageId": "a1" }), json!({})));
        assert_eq!(client.status(), Status::Submitted);
        give(&client, response(&request, json!({ "type": "text-start", "id": "0" }), json!({})));
        give(&client, response(&request, json!({ "type": "text-delta", "id": "0", "delta": "hello" }), json!({})));
        assert_eq!(client.status(), Status::Streaming);
        // wire §2.11: the streamed copy wins and goes last, above it a message of another tab.
        let asked = client.messages()[0]["id"].as_str().unwrap().to_owned();
        give(&client, json!({ "type": "cf_agent_chat_messages", "messages": [user(&asked), user("x")] }));
        assert_eq!(client.said(), ["user: hi", "user: hi", "assistant: hello"]);
        give(&client, response(&request, Value::Null, json!({ "done": true, "outcome": "completed", "messageIds": [asked] })));
        assert_eq!(client.status(), Status::Ready);
        assert_eq!(client.said(), ["user: hi", "assistant: hello", "user: hi"]);
        assert_eq!(client.turn_ends()[0].outcome, "completed");
    }

    // wire X8
    #[test]
    fn a_frame_after_the_terminal_shows_a_zombie() {
        let client = tab();
        let request = client.send("hi");
        give(&client, response(&request, Value::Null, json!({ "done": true })));
        give(&client, response(&request, json!({ "type": "start", "messageId": "z" }), json!({})));
        give(&client, response(&request, json!({ "type": "text-delta", "id": "0", "delta": "boo" }), json!({})));
        assert_eq!(client.said(), ["user: hi", "assistant: boo"]);
        assert!(client.violations(false).iter().any(|v| v.contains("wire 164")));
    }

    #[test]
    fn an_observer_builds_the_message_and_heals_from_the_transcript() {
        let client = tab();
        sent(&client);
        give(&client, json!({ "type": "cf_agent_chat_messages", "messages": [user("u1")] }));
        for chunk in [
            json!({ "type": "start", "messageId": "a1" }),
            json!({ "type": "text-start", "id": "0" }),
            json!({ "type": "text-delta", "id": "0", "delta": "he" }),
        ] {
            give(&client, response("R", chunk, json!({})));
        }
        assert!(client.watches());
        assert_eq!((client.status(), client.said()), (Status::Ready, vec!["user: hi".into(), "assistant: he".into()]));
        // wire X24: a shorter text for the same id loses, a longer one wins.
        let stored = json!({ "id": "a1", "role": "assistant", "parts": [{ "type": "text", "text": "hello" }] });
        give(&client, json!({ "type": "cf_agent_chat_messages", "messages": [user("u1"), stored] }));
        assert_eq!(client.said()[1], "assistant: hello");
        give(&client, response("R", Value::Null, json!({ "done": true, "outcome": "completed" })));
        assert!(!client.watches());
        assert_eq!(client.said()[1], "assistant: hello");
    }

    #[test]
    fn a_probe_attaches_once_and_replays_in_one_burst() {
        let client = tab();
        let probe = sent(&client)[0]["probeId"].as_str().unwrap().to_owned();
        give(&client, json!({ "type": "cf_agent_stream_resuming", "id": "R" }));
        give(&client, json!({ "type": "cf_agent_stream_resuming", "id": "R", "probeId": probe }));
        assert_eq!(sent(&client), [json!({ "type": "cf_agent_stream_resume_ack", "id": "R" })]);
        let replay = json!({ "replay": true });
        give(&client, response("R", json!({ "type": "start", "messageId": "a1" }), replay.clone()));
        give(&client, response("R", json!({ "type": "text-start", "id": "0" }), replay.clone()));
        give(&client, response("R", json!({ "type": "text-delta", "id": "0", "delta": "he" }), replay));
        assert_eq!(client.messages(), Vec::<Value>::new());
        give(&client, response("R", Value::Null, json!({ "replay": true, "replayComplete": true })));
        assert_eq!(client.said(), ["assistant: he"]);
        give(&client, response("R", json!({ "type": "text-delta", "id": "0", "delta": "llo" }), json!({})));
        assert_eq!((client.said()[0].as_str(), client.status()), ("assistant: hello", Status::Streaming));
    }

    // wire X13
    #[test]
    fn what_was_typed_offline_survives_only_the_connect_transcript() {
        for (connect, expected) in [(true, 1), (false, 0)] {
            let client = tab();
            client.lost(1006, "");
            client.send("typed offline");
            client.opened("c2".into());
            let mut frame = json!({ "type": "cf_agent_chat_messages", "messages": [] });
            if connect {
                frame["connect"] = true.into();
            }
            give(&client, frame);
            assert_eq!(client.messages().len(), expected, "connect: {connect}");
        }
    }

    #[test]
    fn stopping_swallows_what_still_arrives() {
        let client = tab();
        let request = client.send("hi");
        sent(&client);
        client.stop();
        assert_eq!(sent(&client)[0]["type"], "cf_agent_chat_request_cancel");
        give(&client, response(&request, json!({ "type": "start", "messageId": "a" }), json!({})));
        give(&client, response(&request, json!({ "type": "text-start", "id": "0" }), json!({})));
        assert_eq!((client.said(), client.status()), (vec!["user: hi".to_owned()], Status::Ready));
        give(&client, response(&request, Value::Null, json!({ "done": true, "outcome": "aborted" })));
        assert_eq!(client.turn_ends()[0].outcome, "aborted");
    }

    #[test]
    fn a_lost_socket_fails_the_stream_it_carried() {
        let client = tab();
        client.send("hi");
        client.lost(1006, "gone");
        assert_eq!(client.status(), Status::Error("WebSocket closed mid-stream".into()));
        assert_eq!(client.log().last(), Some(&Entry::Closed(1006, "gone".into())));
    }
}
