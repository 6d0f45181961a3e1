//! Requests become turns: what a client posts or the application asks for is checked, stored, and queued (`turns-and-tools.md` §4).

use serde_json::{Map, Value};

use super::{
    Engine,
    budget::Counters,
    config::{AcceptClientMessages, MessageConcurrency},
    endings::skipped,
    events::Event,
    input::{Answer, Place, ReplyTo, TurnResult, TurnStatus},
    outcome::{Cx, Effect},
    submissions::SUBMISSION,
};
use crate::{
    error::{Error, ErrorKind, Result},
    ids::{ConnId, MessageId, RequestId, TurnId},
    limits,
    store::{
        messages::{self, NewMessage},
        meta,
        turns::{self, Kind, Turn},
    },
    time::Millis,
    transcript::{
        reconcile::{self, Taken, Target},
        sanitise,
    },
    wire::{
        self, ChatBody,
        message::{Role, UiMessage},
    },
};

/// What a new turn is made of.
pub(super) struct Admit {
    request_id: RequestId,
    kind: Kind,
    trigger: &'static str,
    anchor: Option<MessageId>,
    body: Option<String>,
    client_tools: Option<String>,
    metadata: Option<String>,
    origin_ids: Option<String>,
    yields: bool,
    not_before: Option<Millis>,
    chain: u32,
    /// The place of the submission it is for, whose slot has come.
    slot: Option<i64>,
}

impl Admit {
    /// A turn that the application asks for: under an id of ours, giving way to nobody.
    pub(super) fn of_application(
        cx: &mut Cx<'_>,
        kind: Kind,
        anchor: Option<MessageId>,
        body: Option<String>,
        client_tools: Option<String>,
        chain: u32,
    ) -> Self {
        Self {
            request_id: cx.rng.text(16).into(),
            kind,
            trigger: "programmatic",
            anchor,
            body,
            client_tools,
            metadata: None,
            origin_ids: None,
            yields: false,
            not_before: None,
            chain,
            slot: None,
        }
    }

    /// The turn of a submission, at its place in the order.
    pub(super) fn of_submission(self, id: RequestId, seq: i64, origin_ids: Option<String>) -> Self {
        Self { request_id: id, trigger: SUBMISSION, origin_ids, slot: Some(seq), ..self }
    }
}

impl Engine {
    /// A chat request of a client.
    pub(super) fn chat_request(
        &mut self,
        cx: &mut Cx<'_>,
        conn: &ConnId,
        id: RequestId,
        body: std::result::Result<ChatBody, String>,
    ) -> Result<()> {
        if self.clients.is_readonly(conn) {
            self.refuse(cx, conn, id, "Connection is readonly".into());
            return Ok(());
        }
        if self.is_live(&id) {
            // Any closing frame would carry the same id and end the first turn on the client (decision 15).
            cx.ignored(conn, "cf_agent_use_chat_request", "the request id is active");
            return Ok(());
        }
        let body = match body {
            Ok(body) => body,
            Err(reason) => {
                self.refuse(cx, conn, id, reason);
                return Ok(());
            }
        };
        if self.queue.len() >= limits::QUEUED_TURNS {
            let reason = format!("{} messages are waiting already: let them be answered first", self.queue.len());
            self.refuse(cx, conn, id, reason);
            return Ok(());
        }
        let custom = (!body.custom.is_empty()).then(|| Value::Object(body.custom.clone()).to_string());
        if custom.as_ref().is_some_and(|c| c.len() > limits::LAST_BODY) {
            self.refuse(cx, conn, id, format!("the custom body has more than {} bytes (limits::LAST_BODY)", limits::LAST_BODY));
            return Ok(());
        }
        let posted = match reconcile::read(&body.messages) {
            Ok(posted) => posted,
            Err(reason) => {
                self.refuse(cx, conn, id, reason);
                return Ok(());
            }
        };
        let ids: Vec<&str> = posted.iter().map(|p| &*p.id).collect();
        let stored = messages::heads(cx.db, &ids)?;
        let takes_text = self.config.accept_client_messages == AcceptClientMessages::NewAssistantText;
        let mut plan = match reconcile::plan(&posted, &stored, body.regenerate, takes_text) {
            Ok(plan) => plan,
            Err(reason) => {
                self.refuse(cx, conn, id, reason);
                return Ok(());
            }
        };
        if let Some(taken) = plan.insert.iter().find(|taken| self.is_being_written(&taken.message.id)) {
            let reason = format!("the message id {} belongs to the answer that is being written", taken.message.id);
            self.refuse(cx, conn, id, reason);
            return Ok(());
        }
        for (message, reason) in &plan.ignored {
            cx.emit(Event::new("chat:message:ignored").with("messageId", message.as_str()).with("reason", *reason));
        }
        let origin_ids = match origin(&plan.origin_ids) {
            Ok(ids) => ids,
            Err(error) => {
                self.refuse(cx, conn, id, error.to_string());
                return Ok(());
            }
        };
        // The first message of an idle object overlaps nothing, and neither does a regeneration (`turns-and-tools.md` §5.1).
        let overlaps = !body.regenerate && (self.is_busy() || self.something_waits());
        let strategy = if overlaps { self.config.message_concurrency } else { MessageConcurrency::Queue };
        if strategy == MessageConcurrency::Drop {
            cx.send_one(conn, wire::transcript(&self.window(cx.db)?, false));
            let terminal = skipped(id, origin_ids);
            cx.send_one(conn, wire::terminal(&terminal));
            cx.emit(Event::new("chat:request:dropped").with("requestId", terminal.id.as_str()));
            return Ok(());
        }
        self.take_down_notice(cx)?;
        self.remember_body(cx, custom.clone())?;
        self.remember_client_tools(cx, body.client_tools.as_ref())?;
        self.take_posted_results(cx, conn, &posted)?;
        if let Some(edited) = &plan.edit {
            messages::replace(cx.db, &edited.message.id, &edited.body, &sanitise::content_hash(&edited.message))?;
            self.outdate(cx, &edited.message.id)?;
        }
        if let Target::Branch(at) = &plan.target
            && plan.insert.is_empty()
        {
            self.move_leaf(cx.db, Some(at.as_str().into()))?;
        }
        if let Some(edited) = &plan.edit {
            self.skip_edited(cx, &edited.message.id)?;
        }
        let inserts = !plan.insert.is_empty();
        let collapsed = strategy == MessageConcurrency::MergeCollapse
            && plan.insert.iter().all(|taken| taken.message.role == Role::User)
            && self.collapse(cx, &mut plan.insert)?;
        self.append(cx, plan.insert)?;
        let (kind, anchor) = match plan.target {
            Target::Branch(at) if !inserts => (Kind::Branch, Some(MessageId::from(at))),
            _ if inserts => (Kind::Answer, self.leaf.clone()),
            _ => self.end_of_path(cx)?,
        };
        // Its sender shows what it typed already, but not what became of that.
        let shown = if collapsed { self.clients.all() } else { self.clients.others(conn) };
        if !shown.is_empty() {
            cx.send(shown, wire::transcript(&self.window(cx.db)?, false));
        }
        let (yields, not_before) = match strategy {
            MessageConcurrency::Queue | MessageConcurrency::Drop | MessageConcurrency::Interrupt => (false, None),
            MessageConcurrency::Latest | MessageConcurrency::Merge | MessageConcurrency::MergeCollapse | MessageConcurrency::Steer => {
                (true, None)
            }
            MessageConcurrency::Debounce { ms } => (true, Some(cx.now + i64::from(ms))),
        };
        let admit = Admit {
            request_id: id,
            kind,
            trigger: "ws-chat",
            anchor,
            body: custom,
            client_tools: self.client_tools.clone(),
            metadata: None,
            origin_ids,
            yields,
            not_before,
            chain: 0,
            slot: None,
        };
        let turn = self.admit(cx, admit)?;
        if kind == Kind::Extend || yields {
            self.senders.push((turn, conn.clone()));
        }
        match strategy {
            MessageConcurrency::Interrupt => self.abort(cx)?,
            MessageConcurrency::Steer => {
                if let Some(running) = self.running.as_mut() {
                    running.steered = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Joins the message that waits last with the new ones: one message, under the id of the newest (`turns-and-tools.md` §5.3). The
    /// one that waited leaves the path. Whether there was one.
    fn collapse(&mut self, cx: &mut Cx<'_>, new: &mut Vec<Taken>) -> Result<bool> {
        let Some(waits) =
            self.queue.back().filter(|turn| turn.yields && !turn.cancelled && turn.anchor.is_some() && turn.anchor == self.leaf)
        else {
            return Ok(false);
        };
        let id = waits.anchor.clone().unwrap_or_else(|| "".into());
        let heads = messages::heads(cx.db, &[id.as_str()])?;
        let stored = messages::get(cx.db, &id)?.and_then(|stored| UiMessage::from_row(&stored.body).ok());
        let (Some(head), Some(first), Some(last)) = (heads.get(&id), stored, new.last().map(|taken| taken.message.clone())) else {
            return Ok(false);
        };
        let parent = head.parent.clone();
        let all: Vec<UiMessage> = std::iter::once(first).chain(new.drain(..).map(|taken| taken.message)).collect();
        let joined = Taken::whole(&reconcile::collapse(&all, last));
        if joined.body.len() > limits::USER_MESSAGE {
            // Together they are more than one message may be: they stay apart.
            new.extend(all.iter().skip(1).map(Taken::whole));
            return Ok(false);
        }
        self.move_leaf(cx.db, parent)?;
        new.push(joined);
        Ok(true)
    }

    /// The application appends messages and wants an answer. The inner error is the caller's.
    pub(super) fn save_messages(
        &mut self,
        cx: &mut Cx<'_>,
        values: Vec<Value>,
        metadata: Option<Value>,
        request_id: Option<RequestId>,
        chain: u32,
        reply: Option<ReplyTo>,
    ) -> Result<Result<()>> {
        if values.is_empty() {
            self.skip(cx, reply);
            return Ok(Ok(()));
        }
        if let Err(refused) = may_chain(cx, chain).and_then(|()| fitting("the metadata", metadata.as_ref(), limits::TURN_METADATA)) {
            return Ok(Err(refused));
        }
        let messages = match self.application_messages(cx, values) {
            Ok(messages) => messages,
            Err(refused) => return Ok(Err(refused)),
        };
        let origin_ids = match self.new_ids(cx, &messages)? {
            Ok(ids) => ids,
            Err(refused) => return Ok(Err(refused)),
        };
        self.append(cx, messages.iter().map(Taken::whole).collect())?;
        self.tell_transcript(cx)?;
        let (kind, anchor) = self.end_of_path(cx)?;
        let mut admit = Admit {
            metadata: metadata.map(|m| m.to_string()),
            origin_ids,
            ..Admit::of_application(cx, kind, anchor, self.last_body.clone(), self.client_tools.clone(), chain)
        };
        if let Some(id) = request_id {
            admit.request_id = id;
        }
        let turn = self.admit(cx, admit)?;
        self.wait_for(turn, reply);
        Ok(Ok(()))
    }

    /// The application lets the last assistant message go on. The inner error is the caller's.
    pub(super) fn continue_last_turn(
        &mut self,
        cx: &mut Cx<'_>,
        body: Option<Value>,
        chain: u32,
        reply: Option<ReplyTo>,
    ) -> Result<Result<()>> {
        if let Err(refused) = may_chain(cx, chain).and_then(|()| fitting("the body", body.as_ref(), limits::LAST_BODY)) {
            return Ok(Err(refused));
        }
        let (kind, anchor) = self.end_of_path(cx)?;
        if kind != Kind::Extend {
            self.skip(cx, reply);
            return Ok(Ok(()));
        }
        let body = body.map(|b| b.to_string()).or_else(|| self.last_body.clone());
        let admit = Admit::of_application(cx, kind, anchor, body, self.client_tools.clone(), chain);
        let turn = self.admit(cx, admit)?;
        self.wait_for(turn, reply);
        Ok(Ok(()))
    }

    /// The application stores messages without a turn. The inner error is the caller's.
    pub(super) fn add_messages(&mut self, cx: &mut Cx<'_>, values: Vec<Value>, upsert: bool, place: Place) -> Result<Result<()>> {
        let messages = match self.application_messages(cx, values) {
            Ok(messages) => messages,
            Err(refused) => return Ok(Err(refused)),
        };
        let ids: Vec<&str> = messages.iter().map(|m| m.id.as_str()).collect();
        let known = messages::heads(cx.db, &ids)?;
        let (old, new): (Vec<_>, Vec<_>) = messages.into_iter().partition(|m| known.get(&m.id).is_some());
        if upsert {
            for message in &old {
                messages::replace(cx.db, &message.id, &message.json(), &sanitise::content_hash(message))?;
            }
        }
        match place {
            Place::End => {}
            Place::Root if !new.is_empty() => self.move_leaf(cx.db, None)?,
            Place::After(id) if messages::heads(cx.db, &[&id])?.ids().next().is_none() => {
                return Ok(Err(Error::new(ErrorKind::NotFound, format!("there is no message {id} to add one after"))));
            }
            Place::After(id) if !new.is_empty() => self.move_leaf(cx.db, Some(id.as_str().into()))?,
            Place::Root | Place::After(_) => {}
        }
        self.append(cx, new.iter().map(Taken::whole).collect())?;
        if self.running.is_none() {
            self.tell_transcript(cx)?;
        }
        Ok(Ok(()))
    }

    /// The ids of the user messages that new messages end with. The inner error is the caller's: one of them is stored already.
    pub(super) fn new_ids(&self, cx: &Cx<'_>, messages: &[UiMessage]) -> Result<Result<Option<String>>> {
        let ids: Vec<&str> = messages.iter().map(|m| m.id.as_str()).collect();
        if let Some(known) = messages::heads(cx.db, &ids)?.ids().next() {
            return Ok(Err(Error::input(format!("a message with the id {known} is stored already: use add_messages to change it"))));
        }
        let trailing = messages.iter().rev().take_while(|m| m.role == Role::User).count();
        Ok(origin(ids.get(ids.len() - trailing..).unwrap_or_default()))
    }

    pub(super) fn application_messages(&self, cx: &mut Cx<'_>, values: Vec<Value>) -> Result<Vec<UiMessage>> {
        let mut messages: Vec<UiMessage> = Vec::with_capacity(values.len());
        for mut value in values {
            if let Value::Object(fields) = &mut value
                && !fields.contains_key("id")
            {
                fields.insert("id".into(), cx.rng.text(16).into());
            }
            if wire::is_too_deep(&value) {
                return Err(Error::limit(format!("a message is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH)));
            }
            let mut message = UiMessage::from_client(value)?;
            sanitise::sanitise(&mut message);
            if messages.iter().any(|m| m.id == message.id) {
                return Err(Error::input(format!("the id {} is given twice", message.id)));
            }
            if self.is_being_written(&message.id) {
                return Err(Error::input(format!("the id {} belongs to the answer that is being written", message.id)));
            }
            messages.push(message);
        }
        Ok(messages)
    }

    /// Chains messages behind the leaf.
    pub(super) fn append(&mut self, cx: &mut Cx<'_>, new: Vec<Taken>) -> Result<()> {
        let mut parent = self.leaf.clone();
        for Taken { message, body } in &new {
            messages::insert(
                cx.db,
                &NewMessage {
                    id: &message.id,
                    parent: parent.as_deref(),
                    role: message.role,
                    turn: None,
                    body,
                    hash: &sanitise::content_hash(message),
                },
            )?;
            parent = Some(message.id.as_str().into());
        }
        self.move_leaf(cx.db, parent)
    }

    /// What a turn at the end of the path answers: a message, or the assistant message that it extends.
    pub(super) fn end_of_path(&self, cx: &Cx<'_>) -> Result<(Kind, Option<MessageId>)> {
        let Some(leaf) = self.leaf.clone() else { return Ok((Kind::Answer, None)) };
        let head = messages::heads(cx.db, &[leaf.as_str()])?;
        let is_assistant = head.get(leaf.as_str()).is_some_and(|h| h.role == Role::Assistant);
        Ok((if is_assistant { Kind::Extend } else { Kind::Answer }, Some(leaf)))
    }

    fn remember_body(&mut self, cx: &mut Cx<'_>, body: Option<String>) -> Result<()> {
        if self.last_body != body {
            meta::set(cx.db, meta::LAST_BODY, body.as_deref())?;
            self.last_body = body;
        }
        Ok(())
    }

    pub(super) fn tell_transcript(&self, cx: &mut Cx<'_>) -> Result<()> {
        let all = self.clients.all();
        if !all.is_empty() {
            cx.send(all, wire::transcript(&self.window(cx.db)?, false));
        }
        Ok(())
    }

    /// The next place in the order. Places follow the clock, so that none is given twice over restarts without reading old rows.
    pub(super) fn next_seq(&mut self, now: Millis) -> i64 {
        self.last_seq = now.0.max(self.last_seq + 1);
        self.last_seq
    }

    pub(super) fn admit(&mut self, cx: &mut Cx<'_>, admit: Admit) -> Result<TurnId> {
        let starts = admit.slot.is_some() || (!self.is_busy() && !self.something_waits());
        let submission = admit.slot.map(|_| admit.request_id.to_string());
        let mut turn = Turn {
            id: cx.rng.text(16).into(),
            seq: admit.slot.unwrap_or_else(|| self.next_seq(cx.now)),
            root: admit.request_id.clone(),
            counters: Counters::default(),
            progress: 0,
            claims: 0,
            request_id: admit.request_id,
            kind: admit.kind,
            trigger: admit.trigger.into(),
            anchor: admit.anchor,
            reply: None,
            attempt: 0,
            cancelled: false,
            outdated: false,
            yields: admit.yields,
            not_before: admit.not_before,
            chain: admit.chain,
            body: admit.body,
            client_tools: admit.client_tools,
            metadata: admit.metadata,
            origin_ids: admit.origin_ids,
            submission,
            created_at: cx.now,
        };
        let id = turn.id.clone();
        if starts {
            self.choose_reply(cx, &mut turn);
        }
        turns::insert(cx.db, &turn, self.generation, starts.then_some(cx.now))?;
        if starts {
            self.open(cx, turn)?;
        } else {
            (turn.body, turn.client_tools, turn.metadata) = (None, None, None);
            self.queue.push_back(turn);
        }
        Ok(id)
    }

    /// Whether this is the id of the running reply: told to every client with the first chunk, in no row before the end.
    fn is_being_written(&self, id: &str) -> bool {
        self.running.as_ref().is_some_and(|r| r.turn.reply.as_deref() == Some(id))
    }

    pub(super) fn is_live(&self, id: &RequestId) -> bool {
        let held = self.pending.as_ref().is_some_and(|pending| pending.request_id == *id);
        held || self.submission_waits(id) || self.present().chain(&self.queue).any(|t| t.request_id == *id || t.root == *id)
    }

    fn wait_for(&mut self, turn: TurnId, reply: Option<ReplyTo>) {
        if let Some(to) = reply {
            self.waiters.push((turn, to));
        }
    }

    fn skip(&self, cx: &mut Cx<'_>, reply: Option<ReplyTo>) {
        if let Some(to) = reply {
            cx.push(Effect::Reply(to, Ok(Answer::Turn(TurnResult { status: TurnStatus::Skipped, ..TurnResult::default() }))));
        }
    }

    /// Stops a request: the running one now, a queued one when its slot comes (wire §2.13).
    pub(super) fn cancel(&mut self, cx: &mut Cx<'_>, id: &RequestId) -> Result<()> {
        if self.cancel_pending(cx, id)? {
            return Ok(());
        }
        if self.submission_waits(id) {
            self.cancel_submission(cx, id, None)?;
            return Ok(());
        }
        if let Some(turn) = self.queue.iter_mut().find(|t| t.request_id == *id) {
            if !turn.cancelled {
                turn.cancelled = true;
                turns::cancel(cx.db, &turn.id)?;
            }
            return Ok(());
        }
        if self.present().any(|turn| turn.request_id == *id || turn.root == *id) {
            self.abort(cx)?;
        }
        Ok(())
    }

    /// Stops everything that runs or waits.
    pub(super) fn cancel_all(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if let Some(id) = self.pending.as_ref().map(|pending| pending.request_id.clone()) {
            self.cancel_pending(cx, &id)?;
        }
        self.cancel_submissions(cx)?;
        for turn in self.queue.iter_mut().filter(|t| !t.cancelled) {
            turn.cancelled = true;
            turns::cancel(cx.db, &turn.id)?;
        }
        self.abort(cx)
    }
}

/// The ids of the messages a request ends with, as its turn and its last frames carry them.
fn origin<S: AsRef<str>>(ids: &[S]) -> Result<Option<String>> {
    let list = wire::string_array(ids);
    if list.len() > limits::TURN_IDS {
        return Err(Error::limit(format!(
            "the ids of the messages have {} bytes, limit {} (limits::TURN_IDS): send fewer at once",
            list.len(),
            limits::TURN_IDS
        )));
    }
    Ok((!ids.is_empty()).then_some(list))
}

/// Whether one more turn may be started by a response hook that a response hook led to.
pub(super) fn may_chain(cx: &mut Cx<'_>, chain: u32) -> Result<()> {
    if chain <= limits::HOOK_CHAIN {
        return Ok(());
    }
    cx.emit(Event::new("hook:chain_cut").with("length", chain));
    Err(Error::refused(format!(
        "{} turns were started by response hooks of each other (limits::HOOK_CHAIN): a hook may not keep a conversation going for ever",
        limits::HOOK_CHAIN
    )))
}

/// Whether a value of the application can be stored with a turn.
pub(super) fn fitting(what: &str, value: Option<&Value>, most: usize) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    if wire::is_too_deep(value) {
        return Err(Error::limit(format!("{what} is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH)));
    }
    let size = value.to_string().len();
    if size > most {
        return Err(Error::limit(format!("{what} has {size} bytes, limit {most}")));
    }
    Ok(())
}

/// The custom fields of a turn as a value.
pub(super) fn body_value(text: Option<&str>) -> Option<Value> {
    text.and_then(|t| serde_json::from_str::<Map<String, Value>>(t).ok()).map(Value::Object)
}
