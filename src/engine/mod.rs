//! The engine: one conversation as a machine. An input goes in, rows change inside the caller's transaction, effects come out.
//!
//! Nothing here awaits, reads a clock or draws randomness by itself. Memory is a cache of *hot rows* (turns that are not final, the
//! open attempt, what is owed) plus what may be lost: the tail of the running answer that is not on disk yet, and who is connected.
//! [`Engine::load`] after any death gives what the last committed step left.
//!
//! One file per family of inputs: `boot` starts an incarnation, `clients` speaks to sockets, `admission` takes requests,
//! `turn` runs them, `stream` turns model events into chunks, `calls` runs tools, `claims` takes the answers of pages and people,
//! `barrier` lets a parked turn go on, `submissions` keeps work for later, `hooks` owes what follows a turn, `schedule` keeps the one
//! alarm. `budget` judges how often a turn is put back to work.

mod admission;
mod barrier;
mod boot;
pub mod budget;
mod calls;
mod claims;
pub mod client_tools;
mod clients;
pub mod config;
mod endings;
pub mod events;
mod frozen;
mod give_up;
mod hooks;
pub mod input;
pub mod outcome;
pub(crate) mod prepare;
mod recovery;
mod reply;
mod schedule;
pub mod schema;
mod stable;
mod stream;
pub mod submissions;
mod turn;

use std::collections::VecDeque;

use config::Config;
use events::Event;
use input::{Answer, Command, Fault, Input, JobEvent, ReplyTo};
use outcome::{Cx, Effect};

use crate::{
    error::{Error, Result},
    ids::{Boot, CallId, ConnId, MessageId, RequestId, TurnId},
    limits,
    store::{
        Sql, calls as call_rows, messages, meta,
        outbox::{self, Owed},
        schema as tables,
        streams::{self, Notice},
        submissions as submission_rows,
        turns::{self, Turn},
    },
    time::Millis,
    wire::{Terminal, ToolApproval},
};

/// Who this object is, on the wire.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The object's name.
    pub name: String,
    /// The kebab-case name of its class.
    pub agent: String,
}

/// One conversation.
pub struct Engine {
    boot: Boot,
    identity: Identity,
    config: Config,
    clients: clients::Clients,
    /// Admitted turns that have not started, in order.
    queue: VecDeque<Turn>,
    /// Submissions that have not started, in order; their messages wait in their rows.
    submissions: VecDeque<submission_rows::Waiting>,
    running: Option<Box<turn::Running>>,
    /// The turn whose attempt was interrupted, until the next one is due.
    waiting: Option<Turn>,
    /// Whether clients were ever told that an answer is being recovered: one that was away may still believe it.
    ever_recovered: bool,
    /// Whether clients are told that an answer is being recovered, by which id, and since when.
    recovering: Option<(RequestId, Millis)>,
    /// The turn that waits for pages or people. Only the newest can: each turn that starts settles what an older one waits for.
    parked: Option<barrier::Parked>,
    /// The continuation that somebody wants of the parked turn, or already of the running one.
    pending: Option<barrier::Pending>,
    /// The id of a continuation that an approval may lead to, which the application is still asked about.
    promised: Option<RequestId>,
    /// Who decided about what, while the application is asked whether they may.
    asking: Vec<(ConnId, CallId)>,
    /// Decisions that came while another about the same call is looked at.
    later: Vec<(ConnId, ToolApproval)>,
    /// When the first call that is waited for is overdue.
    next_deadline: Option<Millis>,
    /// The newest message of the active path.
    leaf: Option<MessageId>,
    generation: i64,
    last_seq: i64,
    /// The last bad ending, kept for whoever was away.
    notice: Option<Notice>,
    /// The last endings, for who missed them and for a late ACK.
    ended: VecDeque<Terminal>,
    /// How many there were in this incarnation.
    ends: i64,
    /// Whether those of earlier incarnations are among them.
    knows_earlier_ends: bool,
    /// Who sent the message a turn answers.
    senders: Vec<(TurnId, ConnId)>,
    /// When the wake arrives that is on its way for the turn at the head of the queue.
    waking: Option<Millis>,
    /// Who waits for a turn inside this incarnation.
    waiters: Vec<(TurnId, ReplyTo)>,
    /// Who waits for the end of a submission inside this incarnation.
    submission_waiters: Vec<(String, ReplyTo)>,
    /// Who waits for rest inside this incarnation.
    stable_waiters: Vec<ReplyTo>,
    /// Owed hooks; the first one is running if `hook_runs`.
    hooks: VecDeque<hooks::OwedHook>,
    hook_runs: bool,
    /// What the alarm is set to. A time that is past stands for one that is not known.
    alarm: Option<Millis>,
    last_body: Option<String>,
    /// The tools of the page that sent the last request with any, as JSON.
    client_tools: Option<String>,
    /// What the open attempt of an earlier incarnation left: its turn and its log.
    dead: Option<(Turn, String)>,
    /// Why the rows are only shown, if they are.
    frozen: Option<frozen::Frozen>,
    /// Why a step of that turn was refused, if that is why it was left.
    fault: Option<(TurnId, Fault)>,
    owed_at_boot: Vec<Owed>,
}

impl Engine {
    /// Reads the hot rows. Bounded work, no message bodies.
    ///
    /// # Errors
    /// The database failed. Rows of a newer release are no error: they give an engine that only shows them.
    pub fn load(db: &dyn Sql, boot: Boot, identity: Identity, config: Config) -> Result<Engine> {
        if !tables::migrate(db)? {
            return Self::load_newer(db, boot, identity, config);
        }
        let (mut live, mut waiting, mut parked) = (Vec::new(), None, None);
        // Rows may contradict each other; whatever they say, each turn has one place and comes to an end.
        for (turn, at) in turns::live(db)? {
            match (at, turn.reply.clone()) {
                (turns::Live::Waiting, _) if waiting.is_none() => waiting = Some(turn),
                (turns::Live::Parked, Some(message)) => {
                    // Only the newest can be answered.
                    let older = parked.replace(barrier::Parked { turn, message });
                    live.extend(older.map(|older| Turn { cancelled: true, ..older.turn }));
                }
                (turns::Live::Queued, _) if mutant!(W13) && turn.attempt == 0 => {}
                (turns::Live::Queued | turns::Live::Waiting | turns::Live::Parked, _) => live.push(turn),
            }
        }
        for turn in live.iter_mut().filter(|turn| turn.trigger == barrier::CONTINUATION) {
            // Nobody's probe is on its way any more.
            turn.not_before = None;
        }
        let dead = match turns::the_open_attempt(db)? {
            // Any attempt that is open now belongs to an incarnation that is gone: this one has not started yet.
            Some((id, stream)) => {
                let queued = live.iter().position(|turn| turn.id == id).map(|at| live.remove(at));
                let turn = queued.or_else(|| waiting.take_if(|turn| turn.id == id));
                let turn = turn.or_else(|| parked.take_if(|parked| parked.turn.id == id).map(|parked| parked.turn));
                if turn.is_none() {
                    turns::drop_attempts(db, &id)?;
                }
                turn.map(|turn| (turn, stream))
            }
            None => None,
        };
        let submissions = submission_rows::waiting(db)?;
        let waits = parked.iter().map(|parked: &barrier::Parked| &parked.turn).chain(dead.iter().map(|(turn, _)| turn));
        let last_seq = live.iter().chain(&waiting).chain(waits).map(|turn| turn.seq).chain(submission_rows::last_seq(db)?);
        let last_seq = last_seq.max().unwrap_or(0);
        let owed_at_boot = outbox::owed(db)?;
        if mutant!(W32)
            && let Some(leaf) = meta::get(db, meta::LEAF)?
        {
            messages::path(db, &leaf, usize::MAX)?;
        }
        let mut engine = Self::at_rest(db, boot, identity, config)?;
        if dead.is_some() || waiting.is_some() || !live.is_empty() || !submissions.is_empty() || !owed_at_boot.is_empty() {
            engine.alarm = Some(schedule::UNKNOWN);
        }
        for turn in waiting.iter().chain(dead.iter().map(|(turn, _)| turn)) {
            engine.ended.extend(recovery::earlier_ends(turn));
        }
        if let Some(turn) = &waiting {
            engine.ended.push_back(recovery::last_end(turn));
            engine.recovering = Some((turn.root.clone(), turn.counters.last_attempt_at.unwrap_or(Millis(0))));
        }
        engine.pending = call_rows::continuation(db)?.map(|row| barrier::Pending::read(row, &live));
        engine.next_deadline = call_rows::next_deadline(db)?;
        engine.notice = streams::notice(db)?;
        engine.queue = live.into();
        engine.submissions = submissions.into();
        (engine.waiting, engine.parked, engine.dead) = (waiting, parked, dead);
        (engine.last_seq, engine.owed_at_boot) = (last_seq, owed_at_boot);
        Ok(engine)
    }

    /// An engine of a conversation in which nothing is under way.
    fn at_rest(db: &dyn Sql, boot: Boot, identity: Identity, config: Config) -> Result<Engine> {
        Ok(Engine {
            boot,
            identity,
            config,
            clients: clients::Clients::default(),
            queue: VecDeque::new(),
            submissions: VecDeque::new(),
            running: None,
            waiting: None,
            ever_recovered: meta::get(db, meta::RECOVERED)?.is_some(),
            recovering: None,
            parked: None,
            pending: None,
            promised: None,
            asking: Vec::new(),
            later: Vec::new(),
            next_deadline: None,
            leaf: meta::get(db, meta::LEAF)?.map(MessageId::from),
            generation: meta::get(db, meta::GENERATION)?.and_then(|g| g.parse().ok()).unwrap_or(0),
            last_seq: 0,
            notice: None,
            ended: VecDeque::new(),
            ends: 0,
            knows_earlier_ends: false,
            senders: Vec::new(),
            waking: None,
            waiters: Vec::new(),
            submission_waiters: Vec::new(),
            stable_waiters: Vec::new(),
            hooks: VecDeque::new(),
            hook_runs: false,
            alarm: None,
            last_body: meta::get(db, meta::LAST_BODY)?,
            client_tools: meta::get(db, meta::CLIENT_TOOLS)?,
            dead: None,
            frozen: None,
            fault: None,
            owed_at_boot: Vec::new(),
        })
    }

    /// The database refused a step of this turn. Told before the first step.
    pub fn blame(&mut self, turn: TurnId, fault: Fault) {
        if fault == Fault::NoMemory {
            self.config.hydration_budget /= 2;
        }
        self.fault = Some((turn, fault));
    }

    /// Whether this input may be stepped without a transaction because it writes nothing: text that is not due for its segment, and
    /// what only reads or only sends.
    pub fn writes_nothing(&self, input: &Input, now: Millis) -> bool {
        // A step ends by starting what is due.
        let due = |turn: &Turn| turn.cancelled || turn.not_before.is_none_or(|at| at <= now) || self.is_overtaken(turn);
        let starts = self.running.is_none() && (self.submission_is_next() || self.queue.front().is_some_and(due));
        if starts || self.waiting.is_some() {
            return false;
        }
        match input {
            Input::Job(fence, event) => match (&self.running, event) {
                (Some(running), JobEvent::Model(events)) if running.fence == *fence => {
                    running.only_buffers(events, now, self.config.coalesce_deltas)
                }
                // The history is read and the model is called, unless calls that were allowed come first.
                (Some(running), JobEvent::Prepared(Ok(_))) if running.fence == *fence => running.calls.is_empty(),
                (Some(running), JobEvent::RetryDue | JobEvent::Offered(_)) if running.fence == *fence => true,
                (Some(running), _) => running.fence != *fence,
                (None, _) => true,
            },
            Input::Command(Command::Submission(ask), _) => ask.only_reads(),
            Input::Command(Command::GetMessages | Command::GetState | Command::HasPendingInteraction, _)
            | Input::Rpc(..)
            | Input::Disconnected(_) => true,
            _ => false,
        }
    }

    /// One input, one transaction. Total: an error means that nothing of it happened and the engine has to be loaded anew.
    ///
    /// # Errors
    /// The database failed.
    pub fn step(&mut self, cx: &mut Cx<'_>, input: Input) -> Result<()> {
        if let Some(why) = self.frozen {
            return self.step_frozen(cx, input, why);
        }
        match input {
            Input::Boot(sockets) => self.boot(cx, sockets)?,
            Input::Connected(conn, meta) => self.connected(cx, conn, meta)?,
            Input::Frame(conn, text) => self.frame(cx, &conn, &text)?,
            Input::Disconnected(conn) => {
                self.disconnected(&conn);
                if mutant!(W26) {
                    self.abort(cx)?;
                }
            }
            Input::Alarm(successor) => self.alarm_fired(cx, successor)?,
            Input::Wake => self.waking = None,
            Input::Command(command, reply) => self.command(cx, command, reply)?,
            Input::Job(fence, event) => {
                if self.running.as_ref().is_some_and(|running| running.fence == fence) {
                    self.job(cx, event)?;
                } else {
                    // A late report of work that was stopped or replaced. Fenced off and harmless.
                    cx.emit(Event::new("job:stale").quiet().with("turn", fence.turn.as_str()).with("attempt", fence.attempt));
                }
            }
            Input::Rpc(conn, reply) => self.rpc_reply(cx, &conn, reply),
            Input::HookEnded(turn) => self.hook_ended(cx, &turn)?,
        }
        self.next_turn(cx)?;
        if self.parked.as_ref().is_some_and(|parked| self.leaf.as_ref() != Some(&parked.message)) {
            self.drop_pending(cx, "the conversation went on")?;
        }
        self.next_hook(cx)?;
        self.tell_stable(cx)?;
        self.plan_alarm(cx);
        Ok(())
    }

    fn command(&mut self, cx: &mut Cx<'_>, command: Command, reply: Option<ReplyTo>) -> Result<()> {
        let answer = match command {
            Command::SaveMessages { messages, metadata, request_id, chain } => {
                match self.save_messages(cx, messages, metadata, request_id, chain, reply)? {
                    Ok(()) => return Ok(()),
                    Err(refused) => Err(refused),
                }
            }
            Command::ContinueLastTurn { body, chain } => match self.continue_last_turn(cx, body, chain, reply)? {
                Ok(()) => return Ok(()),
                Err(refused) => Err(refused),
            },
            Command::AddMessages { messages, upsert, place } => self.add_messages(cx, messages, upsert, place)?.map(|()| Answer::Done),
            Command::Clear => {
                self.clear(cx, None)?;
                Ok(Answer::Done)
            }
            Command::SetState { state, source } => self.set_state(cx, &state, source)?.map(|()| Answer::Done),
            Command::RefuseState { conn } => {
                cx.send_one(&conn, crate::wire::state_error("State update rejected"));
                Ok(Answer::Done)
            }
            Command::GetState => meta::get(cx.db, meta::STATE)?
                .map(|text| serde_json::from_str(&text).map_err(|e| Error::corrupt(format!("the stored state cannot be read: {e}"))))
                .transpose()
                .map(Answer::State),
            Command::GetMessages => Ok(Answer::Messages(self.window(cx.db)?)),
            Command::Abort(request) => {
                self.cancel(cx, &request)?;
                Ok(Answer::Done)
            }
            Command::AbortAll => {
                self.cancel_all(cx)?;
                Ok(Answer::Done)
            }
            Command::Broadcast(text) => {
                cx.send(self.clients.all(), text);
                Ok(Answer::Done)
            }
            Command::SendTo(conn, text) => {
                if self.clients.is_connected(&conn) {
                    cx.send_one(&conn, text);
                }
                Ok(Answer::Done)
            }
            Command::CloseConn(conn, code, reason) => {
                cx.push(Effect::Close(conn, code, reason));
                Ok(Answer::Done)
            }
            Command::Emit(fence, chunk) => self.application_chunk(cx, &fence, chunk)?.map(|()| Answer::Done),
            Command::Preliminary(fence, call, output) => self.preliminary(cx, &fence, &call, output)?.map(|()| Answer::Done),
            Command::Decide(conn, approval, may) => {
                self.decide(cx, &conn, approval, may)?;
                Ok(Answer::Done)
            }
            Command::Submission(ask) => match self.submission(cx, ask, reply)? {
                Some(answer) => answer,
                None => return Ok(()),
            },
            Command::Stash(fence, value) => self.stash(cx, &fence, &value)?.map(|()| Answer::Done),
            Command::HasPendingInteraction => Ok(Answer::Is(self.has_pending_interaction(cx)?)),
            Command::WaitUntilStable => return self.wait_until_stable(cx, reply),
            Command::ExtendWait(call, ms) => return self.extend_wait(cx, &call, ms, reply),
        };
        if let Some(to) = reply {
            cx.push(Effect::Reply(to, answer));
        }
        Ok(())
    }

    /// The newest window of the active path, oldest first, as JSON texts.
    fn window(&self, db: &dyn Sql) -> Result<Vec<String>> {
        let Some(leaf) = &self.leaf else { return Ok(Vec::new()) };
        let mut shown: Vec<String> = messages::path(db, leaf, limits::WIRE_WINDOW)?.into_iter().map(|m| m.body).collect();
        self.show_partial(&mut shown);
        Ok(shown)
    }

    fn move_leaf(&mut self, db: &dyn Sql, to: Option<MessageId>) -> Result<()> {
        if self.leaf != to {
            meta::set(db, meta::LEAF, to.as_deref())?;
            self.leaf = to;
        }
        Ok(())
    }

    fn remember_ending(&mut self, terminal: Terminal) {
        self.ended.retain(|t| t.id != terminal.id);
        self.ended.push_back(terminal);
        self.ends += 1;
        if self.ended.len() > limits::ENDED_MEMORY {
            self.ended.pop_front();
        }
    }

    /// Reads how turns ended before this incarnation. Few ask: it is not part of a load.
    fn recall_ends(&mut self, db: &dyn Sql) -> Result<()> {
        if !std::mem::replace(&mut self.knows_earlier_ends, true) {
            let names: Vec<String> =
                meta::get(db, meta::CLEARED)?.and_then(|list| serde_json::from_str(&list).ok()).unwrap_or_default();
            let mut earlier: Vec<Terminal> = names.iter().map(|name| endings::cleared(name)).collect();
            earlier.extend(turns::last_ended(db)?);
            while let Some(terminal) = earlier.pop() {
                if self.ended.iter().all(|known| known.id != terminal.id) {
                    self.ended.push_front(terminal);
                }
            }
        }
        Ok(())
    }

    /// How a request ended, if that is still known.
    fn end_of(&mut self, db: &dyn Sql, id: &RequestId) -> Result<Option<Terminal>> {
        if self.ended.iter().all(|known| known.id != *id) {
            self.recall_ends(db)?;
        }
        Ok(self.ended.iter().find(|known| known.id == *id).cloned())
    }

    /// Forgets everything (wire §2.14). `sender` cleared its own view already.
    fn clear(&mut self, cx: &mut Cx<'_>, sender: Option<&ConnId>) -> Result<()> {
        self.generation += 1;
        self.skip_submissions(cx)?;
        self.recall_ends(cx.db)?;
        messages::clear(cx.db)?;
        turns::clear(cx.db)?;
        streams::clear(cx.db)?;
        call_rows::clear(cx.db)?;
        outbox::clear(cx.db)?;
        meta::set(cx.db, meta::LAST_BODY, None)?;
        meta::set(cx.db, meta::CLIENT_TOOLS, None)?;
        meta::set(cx.db, meta::GENERATION, Some(&self.generation.to_string()))?;
        self.move_leaf(cx.db, None)?;
        self.last_body = None;
        self.client_tools = None;
        (self.parked, self.pending, self.promised, self.next_deadline) = (None, None, None, None);
        self.notice = None;
        // A running hook finishes for itself; its row is gone.
        self.hooks.clear();
        let parked = self.clients.release_parked();
        for conn in parked.into_iter().chain(self.clients.release_awaiting()) {
            cx.send_one(&conn, crate::wire::resume_none(None, None));
        }
        let others = self.clients.all().into_iter().filter(|conn| Some(conn) != sender).collect();
        cx.send(others, crate::wire::cleared());
        self.drop_turns(cx);
        // Whoever watched an answer and is away has to learn of its end all the same.
        let kept = self.ended.iter().rev().take(limits::ENDED_KEPT).rev();
        let names: Vec<String> = kept.map(endings::name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        meta::set(cx.db, meta::CLEARED, Some(&crate::wire::string_array(&names)))?;
        cx.emit(Event::new("chat:clear").with("generation", self.generation));
        Ok(())
    }
}

/// Takes the entry of a turn out of a short list.
fn take<T>(list: &mut Vec<(TurnId, T)>, turn: &TurnId) -> Option<T> {
    let at = list.iter().position(|(id, _)| id == turn)?;
    Some(list.swap_remove(at).1)
}
