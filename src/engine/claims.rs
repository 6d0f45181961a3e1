//! Answers from pages and decisions of people. A call takes one, whoever is first; every other answer gets a verdict and changes
//! nothing (`turns-and-tools.md` §9, §10).

use serde_json::{Value, value::RawValue};

use super::{
    Engine, client_tools,
    events::Event,
    input::{Answer, Decision, ReplyTo},
    outcome::{ClientToolSettled, Cx, Effect, ToolCall},
};
use crate::{
    error::{Error, Result},
    ids::{CallId, ConnId, MessageId},
    limits,
    store::{
        calls::{self, Call, Settlement, Site, State},
        messages, meta,
    },
    transcript::{reconcile::Posted, reducer::Accumulator, sanitise},
    wire::{
        self, ToolApproval, ToolResult,
        chunk::Chunk,
        message::{Role, UiMessage, call_id, state},
    },
};

/// What a page's tool that did not answer in time is said to have done.
const TIMED_OUT: &str = "client tool timed out";
/// Why a call that nobody decided about in time did not run.
const APPROVAL_TIMED_OUT: &str = "approval timed out";

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is the call's outcome.
    Accepted,
    /// The call has the same one.
    Duplicate,
    /// The call has another one: the first counts.
    Conflict,
    /// Nobody waits for it any more.
    Late,
    /// The call runs on the server, or a person has to allow it first.
    NotClientTool,
    /// Nobody is asked whether this call may run.
    NotAwaitingApproval,
    /// The application does not let this client decide.
    Refused,
    /// There is no such call.
    Unknown,
    /// It is too large and was replaced by an error.
    TooLarge,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Duplicate => "duplicate",
            Verdict::Conflict => "conflict",
            Verdict::Late => "late",
            Verdict::NotClientTool => "not_client_tool",
            Verdict::NotAwaitingApproval => "not_awaiting_approval",
            Verdict::Refused => "refused",
            Verdict::Unknown => "unknown",
            Verdict::TooLarge => "too_large",
        }
    }
}

/// The verdict on a result; `hash` is that of what was sent.
fn judge_result(call: Option<&Call>, hash: &str) -> Verdict {
    let Some(call) = call else { return Verdict::Unknown };
    match (call.site, call.state) {
        (Site::Server, _) => Verdict::NotClientTool,
        (Site::Client, State::Waiting) => Verdict::Accepted,
        (Site::Client, State::AwaitingApproval | State::Approved | State::Started) => Verdict::NotClientTool,
        (Site::Client, State::Settled) => match &call.hash {
            _ if overtaken(call) => Verdict::Late,
            Some(first) if first == hash => Verdict::Duplicate,
            _ => Verdict::Conflict,
        },
    }
}

/// The verdict on a decision.
fn judge_approval(call: Option<&Call>, approved: bool) -> Verdict {
    let Some(call) = call else { return Verdict::Unknown };
    match (call.state, call.approved) {
        (State::AwaitingApproval, _) => Verdict::Accepted,
        (_, Some(first)) if first == approved => Verdict::Duplicate,
        (_, Some(_)) => Verdict::Conflict,
        (State::Settled, None) if overtaken(call) => Verdict::Late,
        (_, None) => Verdict::NotAwaitingApproval,
    }
}

/// Whether a call was settled without an answer.
fn overtaken(call: &Call) -> bool {
    matches!(call.settled_by.as_deref(), Some("timeout" | "superseded" | "repair"))
}

/// What a page gave, as it is stored: an output, or the text of an error.
struct Given {
    outcome: std::result::Result<Value, String>,
    hash: String,
    /// Whether it is not what the page sent, because that cannot be stored.
    replaced: bool,
}

impl Given {
    fn read(outcome: &std::result::Result<Box<RawValue>, String>) -> Given {
        let (outcome, replaced) = match outcome {
            Err(text) => {
                let mut text = text.clone();
                super::calls::cut(&mut text, limits::TOOL_ERROR);
                (Err(text), false)
            }
            Ok(raw) if raw.get().len() > limits::CLIENT_OUTPUT => {
                let (size, most) = (raw.get().len(), limits::CLIENT_OUTPUT);
                (Err(format!("tool output too large: {size} bytes, limit {most}")), true)
            }
            Ok(raw) => match serde_json::from_str(raw.get()) {
                Ok(value) if !wire::is_too_deep(&value) => (Ok(value), false),
                Err(error) if !error.to_string().starts_with("recursion limit") => {
                    (Err(format!("tool output cannot be read: {error}")), true)
                }
                _ => (Err(format!("tool output nested deeper than {} levels", limits::VALUE_DEPTH)), true),
            },
        };
        let hashed = match &outcome {
            Ok(value) => sanitise::value_hash(&Value::Array(vec![value.clone()])),
            Err(text) => sanitise::value_hash(&Value::String(text.clone())),
        };
        Given { outcome, hash: hashed, replaced }
    }
}

impl Engine {
    /// A page answered a call.
    pub(super) fn tool_result(&mut self, cx: &mut Cx<'_>, conn: &ConnId, frame: ToolResult) -> Result<()> {
        // What a turn that is being taken up left says which of its calls are open.
        self.recover(cx)?;
        let found = calls::find(cx.db, &frame.call)?;
        if self.refuses_readonly(cx, conn, &frame.call, found.as_ref(), "cf_agent_tool_result")? {
            return Ok(());
        }
        if let Some(call) = found.as_ref().filter(|call| !frame.tool.is_empty() && call.name != frame.tool) {
            // The id decides; a page with another idea of the name is worth knowing of.
            cx.emit(Event::new("tool:result-name-mismatch").with("callId", call.call.as_str()).with("tool", call.name.as_str()));
        }
        let given = Given::read(&frame.outcome);
        let verdict = judge_result(found.as_ref(), &given.hash);
        let by = format!("ws:{conn}");
        let Some(call) = found.filter(|_| verdict == Verdict::Accepted) else {
            return self.answer_loser(cx, conn, "tool:result", &frame.call, verdict, frame.ack);
        };
        if let Some(list) = frame.client_tools.as_ref().filter(|list| list.as_array().is_none_or(|list| !list.is_empty())) {
            self.remember_client_tools(cx, Some(list))?;
        }
        let failed = given.outcome.is_err();
        let verdict = if given.replaced { Verdict::TooLarge } else { verdict };
        self.claim(cx, &call, given, &by, verdict)?;
        self.acknowledge(cx, conn, &call.call, verdict, frame.ack);
        if frame.auto_continue || (failed && self.config.continue_on_client_error) {
            self.opt_in(cx, &call.message, Some(conn))?;
        }
        self.check_batch(cx)
    }

    /// The one transition of a page's call to its outcome.
    fn claim(&mut self, cx: &mut Cx<'_>, call: &Call, given: Given, by: &str, verdict: Verdict) -> Result<()> {
        let word = if given.outcome.is_ok() { "output" } else { "error" };
        let settlement = Settlement { outcome: word, by, hash: Some(&given.hash), reason: None };
        calls::answer(cx.db, &call.message, &call.call, &settlement, cx.now)?;
        let chunk = match &given.outcome {
            Ok(output) => Chunk::ToolOutputAvailable { call: call.call.clone(), output: output.clone(), preliminary: false },
            Err(error) => Chunk::ToolOutputError { call: call.call.clone(), error: error.clone(), dynamic: false },
        };
        if self.is_running_in(&call.message) {
            self.answered(&call.call);
            // A message that is being streamed is overwritten by its next chunk: the answer has to be one (wire X11).
            self.put(cx, chunk);
            self.flush(cx)?;
        } else {
            self.change_stored(cx, &call.message, |message| message.apply(&chunk))?;
            self.next_deadline = calls::next_deadline(cx.db)?;
        }
        cx.emit(
            Event::new("tool:result")
                .with("callId", call.call.as_str())
                .with("tool", call.name.as_str())
                .with("verdict", verdict.as_str())
                .with("outcome", word)
                .with("by", by),
        );
        cx.push(Effect::ClientToolSettled(Box::new(ClientToolSettled {
            call_id: call.call.clone(),
            tool_name: call.name.clone(),
            by: by.into(),
            outcome: given.outcome,
        })));
        Ok(())
    }

    /// A person decided about a call: the application is asked whether they may.
    pub(super) fn tool_approval(&mut self, cx: &mut Cx<'_>, conn: &ConnId, mut frame: ToolApproval) -> Result<()> {
        self.clients.decides(conn, cx.now);
        // What a turn that is being taken up left says which of its calls are open.
        self.recover(cx)?;
        let found = calls::find(cx.db, &frame.call)?;
        if self.refuses_readonly(cx, conn, &frame.call, found.as_ref(), "cf_agent_tool_approval")? {
            return Ok(());
        }
        let verdict = judge_approval(found.as_ref(), frame.approved);
        let Some(call) = found.filter(|_| verdict == Verdict::Accepted) else {
            return self.answer_loser(cx, conn, "tool:approval", &frame.call, verdict, frame.ack);
        };
        let asked = (conn.clone(), frame.call.clone());
        if self.asking.contains(&asked) || self.later.iter().any(|(by, later)| (by, &later.call) == (conn, &frame.call)) {
            cx.ignored(conn, "cf_agent_tool_approval", "the application is being asked about this call");
            return Ok(());
        }
        if let Some(reason) = &mut frame.reason {
            super::calls::cut(reason, limits::APPROVAL_REASON);
        }
        if frame.auto_continue && !self.clients.is_hasty(conn) {
            // The probe that follows on the same socket must not be told that nothing is going on (O7).
            self.promise(cx, conn);
        }
        if self.asking.iter().any(|(_, call)| *call == frame.call) {
            // The decision that came first is looked at first, however long that takes.
            self.later.push((conn.clone(), frame));
            return Ok(());
        }
        self.asking.push(asked);
        frame.message = Some(call.message.clone());
        let turn = self.running.as_ref().map(|r| &r.turn).or(self.parked.as_ref().map(|parked| &parked.turn));
        let info = ToolCall {
            request_id: turn.map_or_else(|| "".into(), |turn| turn.request_id.clone()),
            call_id: call.call.clone(),
            input: self.input_of(cx, &call)?,
            tool_name: call.name,
            step: call.step,
        };
        cx.push(Effect::AuthorizeApproval(self.clients.principal(conn), Box::new(info), frame));
        Ok(())
    }

    /// The application said whether a person may decide. Whoever decided after them has their turn.
    pub(super) fn decide(&mut self, cx: &mut Cx<'_>, conn: &ConnId, frame: ToolApproval, may: Decision) -> Result<()> {
        let call = frame.call.clone();
        self.decided(cx, conn, frame, may)?;
        while let Some(at) = self.later.iter().position(|(_, later)| later.call == call) {
            let (conn, frame) = self.later.remove(at);
            self.tool_approval(cx, &conn, frame)?;
            if self.asking.iter().any(|(_, asked)| *asked == call) {
                break;
            }
            // It came too late to count.
            self.break_promise(cx, &conn);
        }
        Ok(())
    }

    /// The call may have been decided meanwhile.
    fn decided(&mut self, cx: &mut Cx<'_>, conn: &ConnId, frame: ToolApproval, may: Decision) -> Result<()> {
        self.recover(cx)?;
        self.asking.retain(|(by, call)| by != conn || *call != frame.call);
        // The application was asked about this call and no other that has its id by now.
        let found = calls::find(cx.db, &frame.call)?.filter(|call| frame.message.as_ref() == Some(&call.message));
        let verdict = match may {
            Decision::Allow => judge_approval(found.as_ref(), frame.approved),
            Decision::Deny(reason) => {
                cx.ignored(conn, "cf_agent_tool_approval", &reason);
                Verdict::Refused
            }
        };
        let Some(call) = found.filter(|_| verdict == Verdict::Accepted) else {
            self.break_promise(cx, conn);
            return self.answer_loser(cx, conn, "tool:approval", &frame.call, verdict, frame.ack);
        };
        self.settle_approval(cx, &call, frame.approved, frame.reason.as_deref(), &format!("ws:{conn}"))?;
        self.acknowledge(cx, conn, &call.call, verdict, frame.ack);
        if frame.auto_continue {
            self.opt_in(cx, &call.message, Some(conn).filter(|conn| !self.clients.is_hasty(conn)))?;
        }
        self.check_batch(cx)
    }

    fn settle_approval(&mut self, cx: &mut Cx<'_>, call: &Call, approved: bool, reason: Option<&str>, by: &str) -> Result<()> {
        if approved {
            calls::approve(cx.db, call, reason, cx.now)?;
        } else {
            calls::answer(cx.db, &call.message, &call.call, &Settlement { outcome: "denied", by, hash: None, reason }, cx.now)?;
        }
        if self.is_running_in(&call.message) {
            if !approved {
                self.answered(&call.call);
            }
            if let Some(running) = self.running.as_mut() {
                running.reply.decide(&call.call, approved, reason);
                // No chunk says so, or not with the reason.
                running.heals = true;
            }
            if !approved {
                self.put(cx, Chunk::ToolOutputDenied { call: call.call.clone() });
                self.flush(cx)?;
            }
        } else {
            self.change_stored(cx, &call.message, |message| {
                message.decide(&call.call, approved, reason);
            })?;
            self.next_deadline = calls::next_deadline(cx.db)?;
        }
        cx.emit(
            Event::new("tool:approval")
                .with("callId", call.call.as_str())
                .with("tool", call.name.as_str())
                .with("approved", approved)
                .with("by", by),
        );
        Ok(())
    }

    /// Calls that were waited for long enough get their outcome; all of them before the batch is looked at.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if self.next_deadline.is_none_or(|due| due > cx.now) {
            return Ok(());
        }
        self.recover(cx)?;
        for call in calls::overdue(cx.db, cx.now)? {
            cx.emit(Event::new("tool:timeout").with("callId", call.call.as_str()).with("tool", call.name.as_str()));
            if call.state == State::AwaitingApproval {
                self.settle_approval(cx, &call, false, Some(APPROVAL_TIMED_OUT), "timeout")?;
            } else {
                let given = Given::read(&Err(TIMED_OUT.into()));
                self.claim(cx, &call, given, "timeout", Verdict::Accepted)?;
            }
            self.opt_in(cx, &call.message, None)?;
        }
        self.next_deadline = calls::next_deadline(cx.db)?;
        self.check_batch(cx)
    }

    /// The application lets a page have more time. The inner error is the caller's.
    pub(super) fn extend_wait(&mut self, cx: &mut Cx<'_>, call: &CallId, ms: u32, reply: Option<ReplyTo>) -> Result<()> {
        let waited = calls::wait_until(cx.db, call, cx.now + i64::from(ms))?;
        self.next_deadline = calls::next_deadline(cx.db)?;
        if let Some(to) = reply {
            let refused = || Error::refused(format!("the call {call} is not waited for with a deadline"));
            cx.push(Effect::Reply(to, if waited { Ok(Answer::Done) } else { Err(refused()) }));
        }
        Ok(())
    }

    /// Results that a posted transcript brings along (`turns-and-tools.md` §4.3). The request itself starts the turn.
    pub(super) fn take_posted_results(&mut self, cx: &mut Cx<'_>, conn: &ConnId, posted: &[Posted<'_>]) -> Result<()> {
        let Some(waiting) = self.parked.as_ref().map(|parked| parked.message.clone()) else { return Ok(()) };
        let copy = posted.iter().find(|p| p.role == Role::Assistant && *p.id == *waiting);
        let Some(message) = copy.and_then(|p| UiMessage::from_row(p.raw.get()).ok()) else { return Ok(()) };
        let open = calls::open(cx.db, &waiting)?;
        for call in open.iter().filter(|c| c.site == Site::Client && c.state == State::Waiting) {
            let Some(part) = message.parts.iter().find(|part| call_id(part) == Some(&*call.call)) else { continue };
            let outcome = match state(part) {
                Some("output-available") => {
                    let output = part.get("output").cloned().unwrap_or_default();
                    Ok(serde_json::value::to_raw_value(&output).unwrap_or_else(|_| RawValue::NULL.to_owned()))
                }
                Some("output-error") => Err(wire::message::str_field(part, "errorText").unwrap_or_default().to_owned()),
                _ => continue,
            };
            self.claim(cx, call, Given::read(&outcome), &format!("ws:{conn}"), Verdict::Accepted)?;
        }
        Ok(())
    }

    /// The tools of a page are those of this list from now on; `None` keeps them.
    pub(super) fn remember_client_tools(&mut self, cx: &mut Cx<'_>, list: Option<&Value>) -> Result<()> {
        let Some(list) = list else { return Ok(()) };
        let read = client_tools::read(list);
        for (name, reason) in read.refused.iter().take(limits::CLIENT_TOOLS_REPORTED) {
            cx.emit(Event::new("tool:client-schema-rejected").with("name", name.as_str()).with("reason", reason.as_str()));
        }
        if let Some(more) = read.refused.len().checked_sub(limits::CLIENT_TOOLS_REPORTED).filter(|more| *more > 0) {
            cx.emit(Event::new("tool:client-schema-rejected").with("more", more));
        }
        let kept = client_tools::write(&read.tools);
        if kept != self.client_tools {
            meta::set(cx.db, meta::CLIENT_TOOLS, kept.as_deref())?;
            self.client_tools = kept;
        }
        Ok(())
    }

    /// Changes a stored message and shows it to everyone.
    pub(super) fn change_stored(&mut self, cx: &mut Cx<'_>, id: &MessageId, change: impl FnOnce(&mut Accumulator)) -> Result<()> {
        let Some(stored) = messages::get(cx.db, id)? else { return Ok(()) };
        let Ok(message) = UiMessage::from_row(&stored.body) else {
            // The call has its outcome; the model gets the message without it.
            cx.emit(Event::new("message:unreadable").with("messageId", id.as_str()));
            return Ok(());
        };
        let mut message = Accumulator::extending(message);
        change(&mut message);
        let message = message.into_message();
        let body = message.json();
        messages::replace(cx.db, id, &body, &sanitise::content_hash(&message))?;
        cx.send(self.clients.all(), wire::message_updated(&body));
        Ok(())
    }

    /// A read-only connection changes nothing: it is shown what is stored (decision 42).
    fn refuses_readonly(
        &mut self,
        cx: &mut Cx<'_>,
        conn: &ConnId,
        call: &CallId,
        found: Option<&Call>,
        frame: &'static str,
    ) -> Result<bool> {
        if !self.clients.is_readonly(conn) {
            return Ok(false);
        }
        cx.ignored(conn, frame, "the connection is read-only");
        if found.is_some() {
            self.show_stored(cx, conn, call)?;
        }
        Ok(true)
    }

    /// An answer that changes nothing: its sender learns what holds.
    fn answer_loser(
        &mut self,
        cx: &mut Cx<'_>,
        conn: &ConnId,
        event: &'static str,
        call: &CallId,
        verdict: Verdict,
        ack: bool,
    ) -> Result<()> {
        self.acknowledge(cx, conn, call, verdict, ack);
        // A page may name a call as it likes; the log does not repeat it at any length.
        let mut name = call.to_string();
        super::calls::cut(&mut name, limits::CALL_ID);
        cx.emit(Event::new(event).with("callId", name).with("verdict", verdict.as_str()).with("by", format!("ws:{conn}")));
        if verdict != Verdict::Unknown {
            self.show_stored(cx, conn, call)?;
        }
        Ok(())
    }

    fn acknowledge(&self, cx: &mut Cx<'_>, conn: &ConnId, call: &CallId, verdict: Verdict, ack: bool) {
        if ack {
            cx.send_one(conn, wire::tool_result_ack(call, verdict.as_str()));
        }
    }

    /// Shows a client the stored message of a call. Not one that is being streamed: the stream says it better (wire X3).
    fn show_stored(&self, cx: &mut Cx<'_>, conn: &ConnId, call: &CallId) -> Result<()> {
        let Some(found) = calls::find(cx.db, call)? else { return Ok(()) };
        if !self.is_running_in(&found.message)
            && let Some(stored) = messages::get(cx.db, &found.message)?
        {
            cx.send_one(conn, wire::message_updated(&stored.body));
        }
        Ok(())
    }

    fn input_of(&self, cx: &Cx<'_>, call: &Call) -> Result<Value> {
        let input = |part: &wire::message::Part| part.get("input").cloned();
        if let Some(running) = self.running.as_ref().filter(|_| self.is_running_in(&call.message)) {
            return Ok(running.reply.call(&call.call).and_then(input).unwrap_or_default());
        }
        let stored = messages::get(cx.db, &call.message)?.and_then(|stored| UiMessage::from_row(&stored.body).ok());
        let found = stored.and_then(|message| message.parts.iter().rfind(|part| call_id(part) == Some(&*call.call)).and_then(input));
        Ok(found.unwrap_or_default())
    }

    fn is_running_in(&self, message: &MessageId) -> bool {
        self.running.as_ref().is_some_and(|r| r.turn.reply.as_ref() == Some(message))
    }

    fn answered(&mut self, call: &CallId) {
        if let Some(entry) = self.running.as_mut().and_then(|r| r.calls.iter_mut().find(|c| c.id == *call)) {
            entry.answered();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(site: Site, state: State) -> Call {
        Call {
            message: "a".into(),
            call: "c".into(),
            turn: "t".into(),
            step: 1,
            name: "t".into(),
            site,
            state,
            settled_by: None,
            hash: None,
            approved: None,
            wait_ms: None,
            effect: crate::engine::input::EffectClass::Once,
            claims: 0,
        }
    }

    fn settled(by: &str, hash: Option<&str>, approved: Option<bool>) -> Call {
        Call { settled_by: Some(by.into()), hash: hash.map(Into::into), approved, ..call(Site::Client, State::Settled) }
    }

    #[test]
    fn every_result_has_one_verdict() {
        // turns-and-tools.md §9.4, T68–T71, T84, decision 8
        let table = [
            (None, Verdict::Unknown),
            (Some(call(Site::Client, State::Waiting)), Verdict::Accepted),
            (Some(call(Site::Client, State::AwaitingApproval)), Verdict::NotClientTool),
            (Some(call(Site::Server, State::Started)), Verdict::NotClientTool),
            (Some(call(Site::Server, State::AwaitingApproval)), Verdict::NotClientTool),
            (Some(call(Site::Server, State::Approved)), Verdict::NotClientTool),
            (Some(call(Site::Server, State::Settled)), Verdict::NotClientTool),
            (Some(settled("ws:1", Some("h"), None)), Verdict::Duplicate),
            (Some(settled("ws:1", Some("other"), None)), Verdict::Conflict),
            (Some(settled("timeout", Some("h"), None)), Verdict::Late),
            (Some(settled("superseded", None, None)), Verdict::Late),
            (Some(settled("repair", None, None)), Verdict::Late),
            (Some(settled("ws:1", None, Some(false))), Verdict::Conflict),
        ];
        for (found, verdict) in table {
            assert_eq!(judge_result(found.as_ref(), "h"), verdict, "{found:?}");
        }
    }

    #[test]
    fn every_decision_has_one_verdict() {
        // T91, turns-and-tools.md §10.2
        let decided = |state, approved| Call { approved: Some(approved), ..call(Site::Server, state) };
        let table = [
            (None, true, Verdict::Unknown),
            (Some(call(Site::Server, State::AwaitingApproval)), true, Verdict::Accepted),
            (Some(call(Site::Client, State::AwaitingApproval)), false, Verdict::Accepted),
            (Some(decided(State::Approved, true)), true, Verdict::Duplicate),
            (Some(decided(State::Approved, true)), false, Verdict::Conflict),
            (Some(decided(State::Started, true)), false, Verdict::Conflict),
            (Some(decided(State::Settled, true)), true, Verdict::Duplicate),
            (Some(settled("ws:1", None, Some(false))), false, Verdict::Duplicate),
            (Some(settled("ws:1", None, Some(false))), true, Verdict::Conflict),
            (Some(settled("superseded", None, None)), true, Verdict::Late),
            (Some(call(Site::Client, State::Waiting)), true, Verdict::NotAwaitingApproval),
            (Some(call(Site::Server, State::Started)), true, Verdict::NotAwaitingApproval),
            (Some(call(Site::Server, State::Settled)), false, Verdict::NotAwaitingApproval),
        ];
        for (found, approved, verdict) in table {
            assert_eq!(judge_approval(found.as_ref(), approved), verdict, "{found:?} {approved}");
        }
    }
}
