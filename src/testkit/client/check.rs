//! What must hold of the frames of any one socket, whatever the scenario (`wire-protocol.md` §9, rows 60, 119 and 164–171).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Entry;

/// The types a server may send (wire §2.1).
const KNOWN: &[&str] = &[
    "cf_agent_identity",
    "cf_agent_state",
    "cf_agent_state_error",
    "cf_agent_mcp_servers",
    "cf_agent_use_chat_response",
    "cf_agent_chat_messages",
    "cf_agent_message_updated",
    "cf_agent_chat_clear",
    "cf_agent_stream_resuming",
    "cf_agent_stream_resume_none",
    "cf_agent_stream_pending",
    "cf_agent_chat_recovering",
    "cf_agent_tool_result_ack",
];

/// What one socket knows of one request.
#[derive(Default)]
struct Request {
    /// Chunks came since the last terminal.
    open: bool,
    ended: bool,
    /// The opened blocks and calls of the stream.
    text: BTreeSet<String>,
    reasoning: BTreeSet<String>,
    calls: BTreeSet<String>,
    started: bool,
    /// A chunk with content came live, and no transcript after it yet.
    unsaved: bool,
    failed: bool,
    next_seq: Option<u64>,
    /// A resume was offered and not yet acknowledged.
    withheld: bool,
    /// Resumes acknowledged: for each a replay and a terminal may follow, even if the live terminal crossed the ACK on its way.
    acks: u32,
    continuation: bool,
}

/// The rules that the frames of one socket break. `at_rest` adds those that only hold when nothing is under way.
pub(super) fn violations(log: &[Entry], at_rest: bool) -> Vec<String> {
    let mut check = Check::default();
    for entry in log {
        match entry {
            Entry::Sent(frame) => check.sent(frame),
            Entry::Received(text) => check.received(text),
            Entry::Binary(_) | Entry::Opened | Entry::Closed(..) => {}
        }
    }
    if at_rest && !log.iter().any(|e| matches!(e, Entry::Closed(..))) {
        check.rest();
    }
    check.broken
}

#[derive(Default)]
struct Check {
    broken: Vec<String>,
    requests: BTreeMap<String, Request>,
    asked: BTreeSet<String>,
    /// Probes by how often they were sent and are still to be answered: one that was buffered offline is repeated on the new socket.
    probes: BTreeMap<String, u32>,
    streaming: Option<String>,
    transcripts: u32,
    identified: bool,
    cleared: bool,
}

impl Check {
    fn fail(&mut self, row: &str, what: impl std::fmt::Display) {
        self.broken.push(format!("wire {row}: {what}"));
    }

    fn sent(&mut self, frame: &Value) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        match frame["type"].as_str().unwrap_or_default() {
            "cf_agent_use_chat_request" => {
                // The id of a finished request may be used again (wire §4.16).
                if self.requests.get(&id).is_some_and(|r| r.ended) {
                    self.requests.remove(&id);
                }
                self.asked.insert(id);
            }
            "cf_agent_stream_resume_ack" => {
                // A complete replay follows, whatever comes before it; none if the terminal crossed the ACK and another stream runs.
                let request = self.requests.entry(id).or_default();
                request.withheld = false;
                request.acks += 1;
            }
            "cf_agent_stream_resume_request" => {
                if let Some(probe) = frame["probeId"].as_str() {
                    *self.probes.entry(probe.into()).or_insert(0) += 1;
                }
            }
            "cf_agent_chat_clear" => self.clear(),
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.cleared = true;
        self.requests.values_mut().for_each(|r| r.unsaved = false);
    }

    fn received(&mut self, text: &str) {
        let frame: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let Some(kind) = frame["type"].as_str().map(str::to_owned) else {
            return self.fail("171", format!("a frame is no JSON object with a type: {text:.200}"));
        };
        if kind.starts_with("cf_") && !KNOWN.contains(&kind.as_str()) {
            self.fail("171", format!("unknown type {kind}"));
        }
        let probe = frame["probeId"].as_str().map(str::to_owned);
        match kind.as_str() {
            "cf_agent_identity" => self.identified = true,
            "cf_agent_chat_messages" => {
                self.transcripts += 1;
                if !frame["messages"].is_array() {
                    self.fail("171", "a transcript without messages");
                }
                if frame["connect"] == true && (self.transcripts > 1 || self.identified) {
                    self.fail("169", "`connect:true` on a transcript that is not the one of the connect sequence");
                }
                self.requests.values_mut().for_each(|r| r.unsaved = false);
            }
            "cf_agent_chat_clear" => self.clear(),
            "cf_agent_stream_resuming" => {
                let id = frame["id"].as_str().unwrap_or_default().to_owned();
                if let Some(probe) = &probe {
                    self.answered(probe);
                }
                // The answer to a probe may cross the ACK of the announcement; the client acknowledges once.
                let request = self.requests.entry(id).or_default();
                request.withheld = request.acks == 0;
            }
            "cf_agent_stream_pending" | "cf_agent_stream_resume_none" => {
                if let Some(probe) = &probe {
                    self.answered(probe);
                }
            }
            "cf_agent_use_chat_response" => self.response(&frame),
            _ => {}
        }
    }

    fn answered(&mut self, probe: &str) {
        match self.probes.get_mut(probe) {
            Some(0) => self.fail("168", format!("probe {probe} answered twice")),
            Some(due) => *due -= 1,
            None => self.fail("168", format!("probe {probe} was never sent on this socket")),
        }
    }

    fn response(&mut self, frame: &Value) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        let Some(body) = frame["body"].as_str() else {
            return self.fail("166", format!("a response frame of {id} without body"));
        };
        let (done, error) = (frame["done"] == true, frame["error"] == true);
        let replay = frame["replay"] == true;
        let live_chunk = !done && !error && !replay && !body.is_empty();
        let mut request = self.requests.remove(&id).unwrap_or_default();
        if request.ended && request.acks > 0 && (replay || error) {
            request = Request { continuation: request.continuation, acks: request.acks - 1, ..Request::default() };
        }
        if request.ended {
            self.fail("164", format!("a frame of {id} after its terminal: {frame}"));
        }
        if request.withheld && live_chunk {
            self.fail("165", format!("a live frame of {id} between RESUMING and ACK"));
        }
        let continuation = frame["continuation"] == true;
        if request.started && request.continuation != continuation {
            self.fail("119", format!("{id} is a continuation in some of its frames only: {frame}"));
        } else if continuation {
            request.continuation = true;
        }
        if !body.is_empty() && !error {
            match serde_json::from_str::<Value>(body) {
                Ok(chunk) if chunk["type"].is_string() => self.chunk(&id, &mut request, &chunk, frame, replay),
                // Plain text on a terminal is allowed.
                _ if done => {}
                _ => self.fail("60", format!("the body of a frame of {id} is no chunk: {body:.200}")),
            }
        }
        if let Some(seq) = frame["seq"].as_u64().filter(|_| body.is_empty()) {
            // A chunk that is not for this socket leaves its number.
            if request.next_seq.is_some_and(|next| next != seq) {
                self.fail("60", format!("blank {seq} of {id} where {:?} was due", request.next_seq));
            }
            request.next_seq = Some(seq + 1);
        }
        if error {
            request.failed = true;
        }
        if done {
            let outcome = frame["outcome"].as_str().unwrap_or_default();
            // T20. A stream that died and will be recovered closes before its partial is folded (wire §4.13).
            if request.unsaved && !replay && !self.cleared && outcome != "recovering" {
                self.fail("167", format!("the terminal of {id} comes before its transcript"));
            }
            request.ended = true;
            request.open = false;
            if self.streaming.as_deref() == Some(&id) {
                self.streaming = None;
            }
        }
        self.requests.insert(id, request);
    }

    fn chunk(&mut self, id: &str, request: &mut Request, chunk: &Value, frame: &Value, replay: bool) {
        match &self.streaming {
            Some(other) if other != id => {
                let other = other.clone();
                self.fail("166", format!("a chunk of {id} while {other} streams"));
            }
            _ => self.streaming = Some(id.to_owned()),
        }
        request.open = true;
        if replay && frame["seq"] == 0 && request.acks > 0 {
            // Each ACK has a replay of its own; two may be on their way.
            *request = Request { continuation: request.continuation, acks: request.acks, open: true, ..Request::default() };
        }
        if let Some(seq) = frame["seq"].as_u64() {
            // The first number seen is where this socket joined; from there on without gaps.
            if request.next_seq.is_some_and(|next| next != seq) {
                self.fail("60", format!("chunk {seq} of {id} where {:?} was due", request.next_seq));
            }
            if request.next_seq.is_none() && replay && seq != 0 && !request.continuation {
                self.fail("60", format!("the replay of {id} begins with chunk {seq}"));
            }
            request.next_seq = Some(seq + 1);
        }
        let key = |name: &str| chunk[name].as_str().unwrap_or_default().to_owned();
        let kind = key("type");
        let mut orphan = false;
        match kind.as_str() {
            "start" => {
                if request.started {
                    self.fail("166", format!("{id} starts twice"));
                }
                request.started = true;
            }
            "text-start" => orphan = !request.text.insert(key("id")),
            "text-delta" => orphan = !request.text.contains(&key("id")),
            "text-end" => orphan = !request.text.remove(&key("id")),
            "reasoning-start" => orphan = !request.reasoning.insert(key("id")),
            "reasoning-delta" => orphan = !request.reasoning.contains(&key("id")),
            "reasoning-end" => orphan = !request.reasoning.remove(&key("id")),
            "tool-input-start" => drop(request.calls.insert(key("toolCallId"))),
            "tool-input-available" | "tool-input-error" => drop(request.calls.insert(key("toolCallId"))),
            "tool-input-delta" => orphan = !request.calls.contains(&key("toolCallId")),
            // In a continuation the message may hold the call already.
            "tool-output-available" | "tool-output-error" | "tool-output-denied" | "tool-approval-request" => {
                orphan = !request.continuation && !request.calls.contains(&key("toolCallId"));
            }
            _ => {}
        }
        if orphan {
            self.fail("166", format!("{kind} of {id} without its opener, or opened twice: {chunk}"));
        }
        if request.text.len() > 1 || request.reasoning.len() > 1 {
            self.fail("166", format!("two blocks of one kind are open in {id}"));
        }
        if !request.started && kind != "start" {
            self.fail("166", format!("{id} begins with {kind} instead of start"));
            request.started = true;
        }
        let content = !matches!(kind.as_str(), "start" | "start-step" | "finish-step" | "finish" | "message-metadata");
        if content && !replay {
            request.unsaved = true;
        }
    }

    fn rest(&mut self) {
        let open: Vec<&String> = self.requests.iter().filter(|(_, r)| r.open || (r.failed && !r.ended)).map(|(id, _)| id).collect();
        let open = open.into_iter().map(|id| format!("{id} never got its terminal")).collect::<Vec<_>>();
        let silent = self.asked.iter().filter(|id| !self.requests.get(*id).is_some_and(|r| r.ended));
        let silent = silent.map(|id| format!("{id} was asked and never ended")).collect::<Vec<_>>();
        open.into_iter().chain(silent).for_each(|what| self.fail("164", what));
        let unanswered: Vec<String> = self.probes.iter().filter(|(_, due)| **due > 0).map(|(p, _)| p.clone()).collect();
        unanswered.into_iter().for_each(|probe| self.fail("168", format!("probe {probe} got no answer")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response(id: &str, seq: u64, chunk: Value) -> Entry {
        Entry::Received(
            json!({ "type": "cf_agent_use_chat_response", "id": id, "body": chunk.to_string(), "done": false, "seq": seq })
                .to_string(),
        )
    }

    fn terminal(id: &str) -> Entry {
        Entry::Received(
            json!({ "type": "cf_agent_use_chat_response", "id": id, "body": "", "done": true, "outcome": "completed" }).to_string(),
        )
    }

    fn transcript(connect: bool) -> Entry {
        let mut frame = json!({ "type": "cf_agent_chat_messages", "messages": [] });
        if connect {
            frame["connect"] = true.into();
        }
        Entry::Received(frame.to_string())
    }

    fn good() -> Vec<Entry> {
        vec![
            transcript(true),
            response("R", 0, json!({ "type": "start", "messageId": "a" })),
            response("R", 1, json!({ "type": "text-start", "id": "0" })),
            response("R", 2, json!({ "type": "text-delta", "id": "0", "delta": "x" })),
            response("R", 3, json!({ "type": "text-end", "id": "0" })),
            transcript(false),
            terminal("R"),
        ]
    }

    #[test]
    fn a_plain_turn_breaks_no_rule_and_each_spoiled_one_its_own() {
        assert_eq!(violations(&good(), true), Vec::<String>::new());
        let spoil = |row: &str, change: &dyn Fn(&mut Vec<Entry>)| {
            let mut log = good();
            change(&mut log);
            let broken = violations(&log, true);
            assert!(broken.iter().any(|b| b.starts_with(&format!("wire {row}:"))), "wire {row}: {broken:?}");
        };
        spoil("60", &|log| drop(log.remove(3)));
        spoil("119", &|log| {
            let end = json!({ "type": "cf_agent_use_chat_response", "id": "R", "body": "", "done": true, "continuation": true });
            log[6] = Entry::Received(end.to_string());
        });
        spoil("164", &|log| drop(log.pop()));
        spoil("164", &|log| log.push(terminal("R")));
        spoil("165", &|log| log.insert(3, Entry::Received(json!({ "type": "cf_agent_stream_resuming", "id": "R" }).to_string())));
        spoil("166", &|log| drop(log.remove(2)));
        spoil("166", &|log| log.insert(3, response("Q", 0, json!({ "type": "start" }))));
        spoil("167", &|log| log.swap(5, 6));
        spoil("168", &|log| log.push(Entry::Sent(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" }))));
        spoil("169", &|log| log.push(transcript(true)));
        spoil("171", &|log| log.push(Entry::Received("[]".into())));
        spoil("171", &|log| log.push(Entry::Received(json!({ "type": "cf_agent_nonsense" }).to_string())));
    }
}
