//! Sockets: who is connected, what each is owed, and the frames that change no turn (wire §2.2–2.6, §2.15).

use serde_json::Value;

use super::{
    Engine,
    events::Event,
    input::{ConnMeta, RpcBody, RpcReply},
    outcome::{Cx, Effect, Principal, RpcCall},
    turn::Phase,
};
use crate::{
    error::{Error, Result},
    ids::{ConnId, RequestId},
    limits,
    store::{meta, streams},
    time::Millis,
    wire::{self, ClientFrame, Ending},
};

/// Why a socket gets no live response frames, or will be offered the next stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// It gets everything live.
    No,
    /// It was offered the running stream and has not taken it up: nothing live until then (O6).
    Offered,
    /// It asked before there was a stream: it will be offered the next one.
    Parked,
}

/// What ended request a socket was offered and has not taken up.
enum Offer {
    None,
    Of(RequestId),
    /// An earlier incarnation knew.
    Unknown,
}

/// Ends that came before a socket.
struct Untold {
    /// How many ends there were in this incarnation when it connected.
    before: i64,
    /// Those it was told of all the same, because it asked for their streams.
    known: Vec<RequestId>,
}

struct Client {
    conn: ConnId,
    meta: ConnMeta,
    waiting: Waiting,
    /// Whether it waits for the pending continuation: it will be offered that stream.
    awaits: bool,
    /// Whether its page begins a continuation with the message that goes on. One that attaches when nothing in it is allowed yet
    /// begins with an empty message, and chokes on what comes of calls of an earlier leg (wire X29).
    seeded: bool,
    /// When it was opened, if nobody was asked anything since.
    since: Millis,
    /// Whether its last decision came right behind that: made before the page had the transcript, which shows the call as undecided
    /// again. A stream of its own would begin without the call then.
    hasty: bool,
    /// The ended request whose log it was offered, until it takes it up.
    offered: Offer,
    /// What it does not know of ends that came before it, until it learns that nothing is going on, or is told of them.
    untold: Option<Untold>,
    /// Whether its transcript lacks what an interrupted answer holds, because that was not read yet.
    lacks: bool,
    calls: usize,
}

/// The connected sockets. Not rows: a client that lost its object probes again.
#[derive(Default)]
pub(super) struct Clients(Vec<Client>);

impl Clients {
    pub(super) fn add(&mut self, conn: ConnId, meta: ConnMeta, since: Millis) {
        self.remove(&conn);
        self.0.push(Client {
            conn,
            meta,
            waiting: Waiting::No,
            awaits: false,
            seeded: true,
            since,
            hasty: false,
            offered: Offer::None,
            untold: None,
            lacks: false,
            calls: 0,
        });
    }

    fn remove(&mut self, conn: &ConnId) {
        self.0.retain(|c| c.conn != *conn);
    }

    fn get(&self, conn: &ConnId) -> Option<&Client> {
        self.0.iter().find(|c| c.conn == *conn)
    }

    fn get_mut(&mut self, conn: &ConnId) -> Option<&mut Client> {
        self.0.iter_mut().find(|c| c.conn == *conn)
    }

    fn those(&self, which: impl Fn(&Client) -> bool) -> Vec<ConnId> {
        self.0.iter().filter(|c| which(c)).map(|c| c.conn.clone()).collect()
    }

    /// Every socket.
    pub(super) fn all(&self) -> Vec<ConnId> {
        self.those(|_| true)
    }

    /// Every socket but one.
    pub(super) fn others(&self, not: &ConnId) -> Vec<ConnId> {
        self.those(|c| c.conn != *not)
    }

    /// Those that get live response frames.
    pub(super) fn live(&self) -> Vec<ConnId> {
        self.those(|c| c.waiting != Waiting::Offered)
    }

    fn protocol(&self, not: Option<&ConnId>) -> Vec<ConnId> {
        self.those(|c| !c.meta.no_protocol && Some(&c.conn) != not)
    }

    pub(super) fn is_connected(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some()
    }

    pub(super) fn is_readonly(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some_and(|c| c.meta.readonly)
    }

    fn wait(&mut self, conn: &ConnId, waiting: Waiting) {
        if let Some(client) = self.get_mut(conn) {
            client.waiting = waiting;
        }
    }

    /// A stream starts: those that wait for one are to be offered it.
    pub(super) fn offer_parked(&mut self) -> Vec<ConnId> {
        self.end_parking(Waiting::Offered)
    }

    /// The continuation starts: those that wait for it wait for its stream now.
    pub(super) fn park_awaiting(&mut self) {
        self.0.iter_mut().filter(|c| c.awaits).for_each(|c| (c.awaits, c.waiting) = (false, Waiting::Parked));
    }

    /// Whether a socket waits for the pending continuation from now on.
    pub(super) fn await_continuation(&mut self, conn: &ConnId, awaits: bool) {
        if let Some(client) = self.get_mut(conn) {
            client.awaits = awaits;
        }
    }

    /// The log of an ended request is offered.
    pub(super) fn offer_ended(&mut self, conn: &ConnId, id: &RequestId) {
        if let Some(client) = self.get_mut(conn) {
            client.offered = Offer::Of(id.clone());
        }
    }

    /// A socket that outlived the object may have been offered anything.
    pub(super) fn add_survivor(&mut self, conn: ConnId, meta: ConnMeta) {
        self.add(conn, meta, Millis(0));
        if let Some(client) = self.0.last_mut() {
            client.offered = Offer::Unknown;
        }
    }

    fn takes_up(&mut self, conn: &ConnId, id: &RequestId) -> bool {
        let Some(client) = self.get_mut(conn) else { return false };
        let takes = match &client.offered {
            Offer::None => false,
            Offer::Unknown => true,
            Offer::Of(offered) => offered == id,
        };
        if takes {
            client.offered = Offer::None;
        }
        takes
    }

    /// What a socket begins the continuation with that it attaches to.
    pub(super) fn seed(&mut self, conn: &ConnId, seeded: bool) {
        if let Some(client) = self.get_mut(conn) {
            client.seeded = seeded;
        }
    }

    /// A turn waits for somebody from here on: whoever is connected was asked over its socket, and no transcript of a new connection
    /// takes back what it answers.
    pub(super) fn heard_the_question(&mut self) {
        self.0.iter_mut().for_each(|client| client.since = Millis(0));
    }

    /// Those whose transcript lacks what was read just now.
    pub(super) fn lacking(&mut self) -> Vec<ConnId> {
        let lacking = self.0.iter_mut().filter_map(|client| std::mem::take(&mut client.lacks).then(|| client.conn.clone()));
        lacking.collect()
    }

    /// A decision came over this socket.
    pub(super) fn decides(&mut self, conn: &ConnId, now: Millis) {
        if let Some(client) = self.get_mut(conn) {
            client.hasty = now.since(client.since) < limits::HASTY_MS;
        }
    }

    /// Whether its page may have forgotten a decision that it made here.
    pub(super) fn is_hasty(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some_and(|client| client.hasty)
    }

    /// Those that get no chunks of calls of an earlier leg, and take part in the stream.
    pub(super) fn unseeded(&self) -> Vec<ConnId> {
        self.those(|c| !c.seeded && c.waiting != Waiting::Offered)
    }

    pub(super) fn is_seeded(&self, conn: &ConnId) -> bool {
        self.get(conn).is_none_or(|c| c.seeded)
    }

    pub(super) fn awaits_continuation(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some_and(|c| c.awaits)
    }

    /// Whether a socket was promised or offered a stream.
    fn takes_part(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some_and(|c| c.awaits || c.waiting != Waiting::No)
    }

    pub(super) fn not_awaiting(&self) -> Vec<ConnId> {
        self.those(|c| !c.awaits)
    }

    /// There is no continuation any more: those that wait for it are to be told.
    pub(super) fn release_awaiting(&mut self) -> Vec<ConnId> {
        let waiting = self.those(|c| c.awaits);
        // What is offered to them later they take up without having asked: they begin with what they show.
        for client in self.0.iter_mut().filter(|c| c.awaits) {
            (client.awaits, client.seeded) = (false, true);
            if client.waiting == Waiting::Parked {
                client.waiting = Waiting::No;
            }
        }
        waiting
    }

    pub(super) fn principal(&self, conn: &ConnId) -> Principal {
        Principal { conn: conn.clone(), label: self.get(conn).map(|c| c.meta.label.clone()).unwrap_or_default() }
    }

    /// The stream ends: whoever has not taken it up gets its last frames all the same.
    pub(super) fn forget_offers(&mut self) {
        self.0.iter_mut().filter(|c| c.waiting == Waiting::Offered).for_each(|c| c.waiting = Waiting::No);
    }

    /// Nothing will stream: the parked ones are to be told.
    pub(super) fn release_parked(&mut self) -> Vec<ConnId> {
        self.end_parking(Waiting::No)
    }

    fn end_parking(&mut self, next: Waiting) -> Vec<ConnId> {
        let parked = self.those(|c| c.waiting == Waiting::Parked);
        self.0.iter_mut().filter(|c| c.waiting == Waiting::Parked).for_each(|c| c.waiting = next);
        parked
    }
}

impl Engine {
    /// The connect sequence (wire §2.2).
    pub(super) fn connected(&mut self, cx: &mut Cx<'_>, conn: ConnId, meta: ConnMeta) -> Result<()> {
        let no_protocol = meta.no_protocol;
        self.clients.add(conn.clone(), meta, cx.now);
        if let Some(client) = self.clients.get_mut(&conn) {
            client.untold = Some(Untold { before: self.ends, known: Vec::new() });
        }
        if self.active_stream().is_some() || self.accepted().is_some() || self.notice.is_some() {
            self.tell_ends(cx, &conn)?;
        }
        if let Some(id) = self.active_stream() {
            self.clients.wait(&conn, Waiting::Offered);
            cx.send_one(&conn, wire::resuming(&id, None));
        } else if let Some(notice) = self.notice.as_ref().filter(|n| n.terminal.ending == Ending::Aborted) {
            // The log of a stream whose producer died, until someone has seen its end.
            let id = notice.terminal.id.clone();
            self.clients.offer_ended(&conn, &id);
            cx.send_one(&conn, wire::resuming(&id, None));
        } else {
            if let Some(id) = self.accepted() {
                self.clients.wait(&conn, Waiting::Parked);
                cx.send_one(&conn, wire::pending(&id, None));
            }
            cx.send_one(&conn, wire::transcript(&self.window(cx.db)?, true));
            let unread = self.running.as_ref().is_some_and(|r| r.phase == Phase::Recovering && r.partial.is_none());
            if let Some(client) = self.clients.get_mut(&conn) {
                client.lacks = unread;
            }
        }
        if let Some((root, _)) = self.recovering.as_ref().filter(|(_, since)| cx.now.since(*since) < limits::RECOVERING_SHOWN_MS) {
            cx.send_one(&conn, wire::recovering(Some(root)));
        } else if self.ever_recovered && self.recovering.is_none() {
            // It may have been away when that was over.
            cx.send_one(&conn, wire::recovering(None));
        }
        if no_protocol {
            return Ok(());
        }
        let state = meta::get(cx.db, meta::STATE)?;
        if self.config.send_identity {
            cx.send_one(&conn, wire::identity(&self.identity.name, &self.identity.agent, state.is_some()));
        }
        if let Some(state) = state {
            cx.send_one(&conn, wire::state(&state));
        }
        cx.send_one(&conn, wire::mcp_servers());
        Ok(())
    }

    pub(super) fn disconnected(&mut self, conn: &ConnId) {
        self.clients.remove(conn);
    }

    /// A text frame.
    pub(super) fn frame(&mut self, cx: &mut Cx<'_>, conn: &ConnId, text: &str) -> Result<()> {
        if !self.clients.is_connected(conn) {
            // Sockets are handed over at boot and at connect; a frame of another one has nobody to be answered.
            cx.ignored(conn, "unknown", "the socket is not connected");
            return Ok(());
        }
        if text.len() > limits::FRAME_IN {
            let reason = format!("the message has {} bytes, limit {} (limits::FRAME_IN)", text.len(), limits::FRAME_IN);
            match wire::chat_id_of_prefix(text) {
                Some(id) => self.refuse(cx, conn, id, reason),
                None => cx.ignored(conn, "oversized", "above limits::FRAME_IN"),
            }
            return Ok(());
        }
        match wire::decode(text) {
            ClientFrame::Chat { id, body } => self.chat_request(cx, conn, id, body)?,
            ClientFrame::Probe { probe } => self.probe(cx, conn, probe.as_deref())?,
            ClientFrame::Ack { id } => self.ack(cx, conn, &id)?,
            ClientFrame::Cancel { .. } if self.clients.is_readonly(conn) => {
                cx.ignored(conn, "cf_agent_chat_request_cancel", "the connection is read-only");
            }
            ClientFrame::Cancel { id } => self.cancel(cx, &id)?,
            ClientFrame::Clear if self.clients.is_readonly(conn) => {
                // The page cleared itself before it asked: it gets its messages back (decision 42).
                cx.send_one(conn, wire::transcript(&self.window(cx.db)?, false));
                cx.ignored(conn, "cf_agent_chat_clear", "the connection is read-only");
            }
            ClientFrame::Clear => self.clear(cx, Some(conn))?,
            ClientFrame::State(state) => {
                if self.clients.is_readonly(conn) || !self.config.client_state {
                    cx.send_one(conn, wire::state_error("Connection is readonly"));
                } else {
                    cx.push(Effect::ValidateState(conn.clone(), state));
                }
            }
            ClientFrame::Rpc { id, method, args } => self.rpc(cx, conn, id, method, args),
            ClientFrame::ToolResult(result) => self.tool_result(cx, conn, result)?,
            ClientFrame::ToolApproval(approval) => self.tool_approval(cx, conn, approval)?,
            ClientFrame::Ignored { kind, reason } => cx.ignored(conn, &kind, reason),
            ClientFrame::Application => cx.push(Effect::Message(conn.clone(), text.into())),
        }
        Ok(())
    }

    /// Whoever watched a stream and was not here at its end protects what it saw of it against everything that follows, until a probe
    /// finds that nothing is going on. Where something is, it has to be told of the ends it missed.
    fn tell_ends(&mut self, cx: &mut Cx<'_>, conn: &ConnId) -> Result<()> {
        let Some(Untold { before, known }) = self.clients.get_mut(conn).and_then(|client| client.untold.take()) else { return Ok(()) };
        self.recall_ends(cx.db)?;
        let since = usize::try_from(self.ends - before).unwrap_or(0);
        let missed = self.ended.len().saturating_sub(since);
        // The last notice is offered, with its end.
        let offered = self.notice.as_ref().map(|notice| &notice.terminal.id);
        let news = |terminal: &&wire::Terminal| Some(&terminal.id) != offered && !known.contains(&terminal.id);
        for terminal in self.ended.iter().take(missed).filter(news) {
            let frame = match terminal.ending {
                Ending::Recovering => wire::terminal(terminal),
                _ => wire::replay_terminal(&terminal.id, Some(terminal)),
            };
            cx.send_one(conn, frame);
        }
        Ok(())
    }

    /// The running request once it has a first chunk.
    fn active_stream(&self) -> Option<RequestId> {
        self.running.as_ref().filter(|r| r.stream.started).map(|r| r.turn.request_id.clone())
    }

    /// The latest accepted request that does not stream yet.
    fn accepted(&self) -> Option<RequestId> {
        if mutant!(W23) {
            return None;
        }
        // A turn that is being recovered is known by the id it was asked for under.
        self.queue.back().map(|t| &t.request_id).or(self.present().next().map(|t| &t.root)).cloned()
    }

    /// What is going on? Exactly one answer, at once (wire §2.15).
    fn probe(&mut self, cx: &mut Cx<'_>, conn: &ConnId, probe: Option<&str>) -> Result<()> {
        let owner = match &self.running {
            Some(running) => running.owner.as_ref(),
            None => self.pending.as_ref().and_then(|pending| pending.owner()),
        };
        let foreign = owner.is_some_and(|owner| owner != conn && self.clients.is_connected(owner));
        let asks = self.asking.iter().any(|(by, _)| by == conn);
        let goes_on = asks || self.running.as_ref().map_or(self.pending.is_some(), |running| running.extends);
        let frame = if foreign && !self.clients.takes_part(conn) || goes_on && self.clients.is_hasty(conn) {
            // Whoever answered the calls gets the stream as its own; the others see it live.
            wire::resume_none(Some("continuation-owned"), probe)
        } else if let Some(id) = self.active_stream() {
            self.clients.wait(conn, Waiting::Offered);
            wire::resuming(&id, probe)
        } else if let Some(id) = if self.running.is_none() { self.claim_pending(cx, conn)? } else { None } {
            wire::pending(&id, probe)
        } else if let Some(id) = self.accepted() {
            self.clients.wait(conn, Waiting::Parked);
            wire::pending(&id, probe)
        } else if let Some(notice) = &self.notice {
            let id = notice.terminal.id.clone();
            self.clients.offer_ended(conn, &id);
            wire::resuming(&id, probe)
        } else {
            if let Some(client) = self.clients.get_mut(conn) {
                client.untold = None;
            }
            wire::resume_none(Some("idle"), probe)
        };
        self.tell_ends(cx, conn)?;
        cx.send_one(conn, frame);
        Ok(())
    }

    /// A client takes up a stream: the whole prefix in one burst, then live.
    fn ack(&mut self, cx: &mut Cx<'_>, conn: &ConnId, id: &RequestId) -> Result<()> {
        let takes_up = self.clients.takes_up(conn, id);
        if let Some(running) = self.running.as_mut() {
            if running.turn.request_id != *id {
                // Another stream is active: any frame for this id would end something on the client. Unless it is what the client was
                // offered and now waits for: the log is gone, its end is all there is to say.
                if running.stream.started {
                    if takes_up {
                        self.replay_end(cx, conn, id)?;
                    }
                    return Ok(());
                }
            } else if running.stream.started {
                let continuation = running.extends;
                let seeded = self.clients.is_seeded(conn) && !running.turn.counters.is_recovering();
                let frame = |seq: i64, chunk: &str| {
                    let chunk = if seeded || !running.is_of_earlier_leg(chunk) { chunk } else { "" };
                    wire::chunk(id, chunk, Some(seq), continuation, true)
                };
                streams::replay(cx.db, &running.stream.id, &mut |seq, chunk| {
                    if let Some(seq) = seq {
                        cx.out.effects.push(Effect::Send(vec![conn.clone()], frame(seq, chunk).into()));
                    }
                    Ok(())
                })?;
                for (seq, chunk) in running.stream.buffered() {
                    cx.send_one(conn, frame(seq, chunk));
                    if mutant!(W22) {
                        cx.send_one(conn, frame(seq, chunk));
                    }
                }
                cx.send_one(conn, wire::replay_complete(id, continuation));
                if !running.resumed.contains(conn) {
                    running.resumed.push(conn.clone());
                }
                self.clients.wait(conn, Waiting::No);
                if !seeded {
                    self.show_earlier_leg(cx, vec![conn.clone()])?;
                }
                return Ok(());
            } else {
                // Not streaming yet: the socket is parked and will be offered the stream.
                return Ok(());
            }
        }
        self.clients.wait(conn, Waiting::No);
        if let Some(notice) = self.notice.clone().filter(|n| n.terminal.id == *id) {
            let continuation = notice.terminal.continuation;
            streams::replay(cx.db, &notice.stream, &mut |seq, chunk| {
                if seq.is_some() {
                    cx.out.effects.push(Effect::Send(vec![conn.clone()], wire::chunk(id, chunk, seq, continuation, true).into()));
                }
                Ok(())
            })?;
            if notice.terminal.ending == Ending::Error {
                cx.send_one(conn, wire::terminal(&notice.terminal));
            } else {
                cx.send_one(conn, wire::replay_terminal(id, Some(&notice.terminal)));
                self.show_closed(cx, conn)?;
                // A read-only connection looks and takes nothing away from the others (decision 42).
                if !self.clients.is_readonly(conn) {
                    self.take_down_notice(cx)?;
                }
            }
            return Ok(());
        }
        self.replay_end(cx, conn, id)?;
        if takes_up {
            // What it was offered was taken by another tab first: it got neither a transcript nor the log.
            self.show_closed(cx, conn)?;
        }
        Ok(())
    }

    /// All there is to say of a stream whose log is gone.
    fn replay_end(&mut self, cx: &mut Cx<'_>, conn: &ConnId, id: &RequestId) -> Result<()> {
        let ended = self.end_of(cx.db, id)?;
        cx.send_one(conn, wire::replay_terminal(id, ended.as_ref()));
        if let Some(untold) = self.clients.get_mut(conn).and_then(|client| client.untold.as_mut()) {
            untold.known.push(id.clone());
        }
        Ok(())
    }

    /// What became of an answer whose log says neither how it ended nor what its open calls came to.
    fn show_closed(&self, cx: &mut Cx<'_>, conn: &ConnId) -> Result<()> {
        let window = self.window(cx.db)?;
        cx.send_one(conn, wire::transcript(&window, false));
        if let Some(message) = window.iter().rev().find(|message| message.contains("\"toolCallId\"")) {
            // A tab that took part in the answer keeps its own copy against a transcript's (O5).
            cx.send_one(conn, wire::message_updated(message));
        }
        Ok(())
    }

    pub(super) fn take_down_notice(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if let Some(notice) = self.notice.take() {
            streams::drop_notice(cx.db, &notice)?;
        }
        Ok(())
    }

    /// A request that is not run: one closing frame with the reason, for its sender alone (decision 14).
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, conn: &ConnId, id: RequestId, reason: String) {
        cx.emit(
            Event::new("chat:request:failed")
                .with("requestId", id.as_str())
                .with("stage", "parse")
                .with("reason", reason.as_str())
                .with("connection", conn.as_str()),
        );
        cx.push(Effect::Refuse(conn.clone(), id, reason));
    }

    /// Stores a state and tells everyone who is to know. The inner error is the caller's.
    pub(super) fn set_state(&mut self, cx: &mut Cx<'_>, state: &Value, source: Option<ConnId>) -> Result<Result<()>> {
        let text = state.to_string();
        if text.len() > limits::STATE {
            let error = Error::limit(format!("the state has {} bytes, limit {} (limits::STATE)", text.len(), limits::STATE));
            if let Some(conn) = &source {
                cx.send_one(conn, wire::state_error(error.message()));
            }
            return Ok(Err(error));
        }
        meta::set(cx.db, meta::STATE, Some(&text))?;
        cx.send(self.clients.protocol(source.as_ref()), wire::state(&text));
        cx.push(Effect::StateChanged(state.clone(), source));
        Ok(Ok(()))
    }

    fn rpc(&mut self, cx: &mut Cx<'_>, conn: &ConnId, id: String, method: String, args: Vec<Value>) {
        let Some(client) = self.clients.get_mut(conn) else { return };
        if client.calls >= limits::RPC_IN_FLIGHT {
            let error = format!("{} calls are unanswered on this connection, limit {}", client.calls, limits::RPC_IN_FLIGHT);
            cx.send_one(conn, wire::rpc_error(&id, &error));
            return;
        }
        client.calls += 1;
        let readonly = client.meta.readonly;
        cx.push(Effect::Call(conn.clone(), RpcCall { id, method, args, readonly }));
    }

    pub(super) fn rpc_reply(&mut self, cx: &mut Cx<'_>, conn: &ConnId, reply: RpcReply) {
        let Some(client) = self.clients.get_mut(conn) else { return };
        let frame = match reply.body {
            RpcBody::Chunk(value) => wire::rpc_chunk(&reply.id, &value),
            RpcBody::Done(value) => {
                client.calls = client.calls.saturating_sub(1);
                wire::rpc_done(&reply.id, value.as_ref())
            }
            RpcBody::Error(text) => {
                client.calls = client.calls.saturating_sub(1);
                wire::rpc_error(&reply.id, &text)
            }
        };
        cx.send_one(conn, frame);
    }
}
