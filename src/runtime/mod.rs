//! The driver: a mailbox in front of the engine, one transaction an input, effects after the commit.
//!
//! The same code runs in the Durable Object and in the simulator; what differs is behind [`Platform`]. Nothing awaits while an
//! input is stepped, so no borrow is ever held across an await. A job ends by posting what it found.

mod http;
mod jobs;
pub mod platform;
mod recovery;
pub mod router;
mod watch;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use futures_channel::oneshot;
use futures_util::{FutureExt, future::LocalBoxFuture};

use crate::{
    agent::{
        Agent, Message,
        handle::{AgentHandle, Mailbox},
        tool::Tools,
        turn::{StepPlan, Turn},
    },
    engine::{
        Engine, Identity,
        config::Config,
        events::Event,
        input::{Answer, Command, ConnMeta, Fault, Input, ReplyTo},
        outcome::{AlarmPlan, Cx, Effect, Outcome, StatusNote, StepResult},
    },
    error::{Error, ErrorKind, Result, StorageFault},
    ids::{Boot, ConnId, Fence, LegId, TurnId},
    limits,
    rng::Rng,
    store::Sql,
    time::Millis,
    wire::{self, ClientFrame, Ending, Terminal},
};
use platform::{Cancel, HttpRequest, Platform};

/// A socket that asks to be connected.
#[derive(Clone, Debug)]
pub struct ConnRequest {
    /// Its id; not shared with any other socket.
    pub id: ConnId,
    /// The `_pk` the client chose, or a random text.
    pub label: String,
    /// The upgrade request.
    pub request: HttpRequest,
}

/// Code of the application that must not wait for some things, since they wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// What a turn waits for.
    Turn,
    /// The hook that waiters of a submission wait for.
    StatusHook,
}

/// What the jobs of the running turn share.
struct ActiveTurn {
    fence: Fence,
    turn: Rc<Turn>,
    tools: Tools,
    cancel: Cancel,
    /// Tripped, nothing more is heard of the model.
    silence: Cancel,
    /// The steps that ended.
    steps: Vec<Rc<StepResult>>,
    /// What `before_step` said of a step: a second call for the same step is not asked about again.
    plan: Option<(u32, StepPlan)>,
}

/// Whether an incarnation still steps anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Lives,
    /// It asked the platform for its end.
    Leaves,
    /// Storage belongs to another one now.
    Replaced,
}

/// One object: an agent, a platform, and the engine between them.
pub struct Runtime<A: Agent, P: Platform> {
    agent: A,
    platform: P,
    engine: RefCell<Option<Engine>>,
    rng: RefCell<Option<Rng>>,
    inbox: RefCell<VecDeque<Input>>,
    draining: Cell<bool>,
    standing: Cell<Standing>,
    replies: RefCell<Vec<(ReplyTo, oneshot::Sender<Result<Answer>>)>>,
    next_reply: Cell<u64>,
    active: RefCell<Option<ActiveTurn>>,
    /// The legs whose response hooks run. One that outlived a failed step is not started a second time.
    hooks: RefCell<Vec<LegId>>,
    /// The turn whose step the database refused, and why: what becomes of it is decided when it is taken up again.
    fault: RefCell<Option<(TurnId, Fault)>>,
    /// Whether the last step failed in a way that trying again does not mend.
    hopeless: Cell<bool>,
    /// The tools that run, of any attempt.
    at_work: RefCell<Vec<recovery::AtWork>>,
    /// Whose code is being polled (`turns-and-tools.md` §2.2).
    inside: Cell<Option<Inside>>,
    /// Changes of submissions that the application is still to be told, and whether it is being told one.
    notes: RefCell<VecDeque<StatusNote>>,
    telling: Cell<bool>,
}

impl<A: Agent, P: Platform> Runtime<A, P> {
    /// Makes the runtime of an object. Touches no storage.
    pub fn new(agent: A, platform: P) -> Rc<Self> {
        Rc::new(Self {
            agent,
            platform,
            engine: RefCell::new(None),
            rng: RefCell::new(None),
            inbox: RefCell::new(VecDeque::new()),
            draining: Cell::new(false),
            standing: Cell::new(Standing::Lives),
            replies: RefCell::new(Vec::new()),
            next_reply: Cell::new(0),
            active: RefCell::new(None),
            hooks: RefCell::new(Vec::new()),
            fault: RefCell::new(None),
            hopeless: Cell::new(false),
            at_work: RefCell::new(Vec::new()),
            inside: Cell::new(None),
            notes: RefCell::new(VecDeque::new()),
            telling: Cell::new(false),
        })
    }

    /// Whether storage said that another incarnation has taken over, or is about to.
    pub fn is_over(&self) -> bool {
        self.standing.get() != Standing::Lives
    }

    /// The world.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The application.
    pub fn agent(&self) -> &A {
        &self.agent
    }

    /// A way to the conversation for application code.
    pub fn handle(self: &Rc<Self>) -> AgentHandle {
        AgentHandle::new(self.clone(), false)
    }

    /// Takes an input. Inputs are stepped one at a time in the order they came; one that arrives meanwhile waits.
    pub fn post(self: &Rc<Self>, input: Input) {
        self.inbox.borrow_mut().push_back(input);
        if self.draining.replace(true) {
            return;
        }
        // What follows is nobody's turn, even where a tool's own call led to it: hooks started from here may wait for turns.
        let inside = self.inside.take();
        loop {
            let next = self.inbox.borrow_mut().pop_front();
            let Some(input) = next else { break };
            self.step(input, true);
        }
        self.inside.set(inside);
        self.draining.set(false);
    }

    fn step(self: &Rc<Self>, input: Input, may_wake: bool) {
        if self.is_over() {
            return;
        }
        let now = self.platform.now();
        let mut engine = self.engine.take();
        let mut rng = self.rng.take().unwrap_or_else(|| Rng::new(self.platform.entropy()));
        let mut out = Outcome::default();
        let blame = Blame::of(&input);
        let buffers_only = engine.as_ref().is_some_and(|engine| engine.writes_nothing(&input, now));
        let db = self.platform.sql();
        let mut input = Some(input);
        let mut body = || -> Result<()> {
            let Some(waits) = &input else { return Err(Error::platform("the transaction was run twice")) };
            let mut cx = Cx { db, now, rng: &mut rng, out: &mut out };
            if engine.is_none() {
                engine = Some(self.boot(&mut cx, waits)?);
            }
            if let (Some(engine), Some(input)) = (engine.as_mut(), input.take()) {
                engine.step(&mut cx, input)?;
            }
            match cx.out.alarm {
                AlarmPlan::Keep => Ok(()),
                AlarmPlan::Set(at) => self.platform.arm(Some(at)),
                AlarmPlan::Clear => self.platform.arm(None),
            }
        };
        let result = if buffers_only || mutant!(N6) { body() } else { db.transaction(&mut body) };
        *self.rng.borrow_mut() = Some(rng);
        match result {
            Ok(()) => {
                *self.engine.borrow_mut() = engine;
                self.hopeless.set(false);
                // A smaller read is remembered until the turn ends: the next failure ends it.
                self.fault.borrow_mut().take_if(|(_, fault)| *fault != Fault::NoMemory);
                out.effects.into_iter().for_each(|effect| self.perform(effect));
            }
            Err(error) => self.failed(error, blame, may_wake, input),
        }
    }

    /// The first step of an incarnation: hot rows, and the sockets that outlived the last one.
    fn boot(&self, cx: &mut Cx<'_>, input: &Input) -> Result<Engine> {
        self.boot_as(cx, input, Engine::load)
    }

    fn boot_as(&self, cx: &mut Cx<'_>, input: &Input, load: Load) -> Result<Engine> {
        let boot = Boot::from(cx.rng.text(16));
        let identity = Identity { name: self.platform.name(), agent: router::kebab(&self.platform.class()) };
        let mut engine = load(cx.db, boot, identity, self.agent.config())?;
        if let Some((turn, fault)) = self.fault.borrow().clone() {
            engine.blame(turn, fault);
        }
        if let Input::Alarm(Some(successor)) = input {
            engine.armed(*successor);
        }
        let mut sockets = self.platform.sockets();
        if let Input::Connected(new, _) = input {
            sockets.retain(|(conn, _)| conn != new);
        }
        engine.step(cx, Input::Boot(sockets))?;
        Ok(engine)
    }

    /// A step failed: nothing of it happened. Memory is dropped and will be read anew from rows, under a new boot token, so that
    /// whatever still runs is fenced off. `unread` is the input if the step did not get as far as that.
    fn failed(self: &Rc<Self>, error: Error, blame: Blame, may_wake: bool, unread: Option<Input>) {
        let event = Event::new("storage:failed").with("error", error.message()).with("input", blame.name());
        self.agent.on_event(&event);
        self.platform.emit(&event);
        // Also where no step failed but something outside said that the object was reset.
        self.engine.take();
        if let Some(active) = self.active.take() {
            active.cancel.trip();
        }
        let unread = unread.filter(Engine::may_be_read_for).filter(|_| !error.is_gone());
        let asks = match &unread {
            Some(Input::Command(_, to)) => *to,
            _ => None,
        };
        let (asked, lost): (Vec<_>, Vec<_>) = self.replies.take().into_iter().partition(|(to, _)| Some(*to) == asks);
        for (_, waiter) in lost {
            let _ = waiter.send(Err(error.clone()));
        }
        if error.is_gone() {
            self.standing.set(Standing::Replaced);
            return;
        }
        let fault = match error.kind() {
            ErrorKind::Storage(StorageFault::NoMemory) => Some(Fault::NoMemory),
            ErrorKind::Storage(StorageFault::Other) | ErrorKind::Platform => None,
            _ => Some(Fault::Refused),
        };
        self.hopeless.set(fault.is_some());
        if let (Blame::Turn(turn), Some(mut fault)) = (&blame, fault) {
            let again = matches!(&*self.fault.borrow(), Some((before, Fault::NoMemory)) if before == turn);
            if fault == Fault::NoMemory && again {
                fault = Fault::NoMemoryAgain;
            }
            *self.fault.borrow_mut() = Some((turn.clone(), fault));
        }
        self.replies.borrow_mut().extend(asked);
        match unread {
            // Once more, now that memory is read anew. Once: a database that keeps failing is left alone.
            Some(input) if may_wake => self.step(input, false),
            Some(input) => {
                if let Err(more) = self.show(input) {
                    self.apologise(blame, asks, more);
                }
            }
            None => {
                if may_wake {
                    // Bring what was running to rest now rather than at the next event.
                    self.step(Input::Alarm(None), false);
                }
                self.apologise(blame, None, error);
            }
        }
    }

    /// An input that nothing can be stored for: what there is can still be read.
    fn show(self: &Rc<Self>, input: Input) -> Result<()> {
        let mut rng = self.rng.take().unwrap_or_else(|| Rng::new(self.platform.entropy()));
        let mut out = Outcome::default();
        let mut cx = Cx { db: self.platform.sql(), now: self.platform.now(), rng: &mut rng, out: &mut out };
        let shown = self.boot_as(&mut cx, &input, Engine::load_refused).and_then(|mut engine| engine.step(&mut cx, input));
        *self.rng.borrow_mut() = Some(rng);
        shown.map(|()| out.effects.into_iter().for_each(|effect| self.perform(effect)))
    }

    /// Whoever asked for what failed is told so.
    fn apologise(&self, blame: Blame, asks: Option<ReplyTo>, error: Error) {
        if let Some(to) = asks {
            self.reply(to, Err(error));
        }
        match blame {
            // Every probe has its answer (wire 168).
            Blame::Probe(conn, probe) => self.platform.send(&[conn], &wire::resume_none(None, probe.as_deref())),
            Blame::Chat(conn, Some(id)) => {
                let body = "The conversation could not be stored. Try again; if it keeps failing, start a new one.".into();
                let terminal = Terminal { id, ending: Ending::Error, body, message_ids: None, continuation: false };
                self.platform.send(&[conn], &wire::terminal(&terminal));
            }
            Blame::Chat(_, None) | Blame::Turn(_) | Blame::Other(_) => {}
        }
    }

    fn perform(self: &Rc<Self>, effect: Effect) {
        self.platform.performing(&effect);
        match effect {
            Effect::Send(to, frame) => self.platform.send(&to, &frame),
            Effect::Close(conn, code, reason) => self.platform.close(&conn, code, &reason),
            Effect::Prepare(fence, turn) => self.prepare(fence, *turn),
            Effect::Confirm(fence) => self.confirm(fence),
            Effect::RecoveryHook(fence, ask, info) => self.recovery_hook(fence, ask, *info),
            Effect::Exhausted(leg, exhausted) => self.exhausted(leg, *exhausted),
            Effect::RepairParts(fence, parts) => self.repair_parts(fence, parts),
            Effect::CallModel(fence, step, request) => self.call_model(fence, step, *request),
            Effect::RepairCall(fence, call, error) => self.repair_call(fence, *call, error),
            Effect::StepFinished(fence, result) => self.step_finished(&fence, *result),
            Effect::Refuse(conn, id, reason) => self.refuse(conn, id, reason),
            Effect::CheckApproval(fence, run) => self.check_approval(fence, *run),
            Effect::RunTool(fence, run) => self.run_tool(fence, *run),
            Effect::Cancel(fence) => self.cancel(&fence),
            Effect::Timer(fence, event, ms) => self.timer(fence, event, ms),
            Effect::Wake(ms) => {
                let (this, sleep) = (self.clone(), self.platform.sleep(ms));
                self.start(Box::pin(async move {
                    sleep.await;
                    this.post(Input::Wake);
                }));
            }
            Effect::Reply(to, answer) => self.reply(to, answer),
            Effect::ValidateState(conn, state) => {
                let command = match self.agent.validate_state(&state, &conn) {
                    Ok(()) => Command::SetState { state, source: Some(conn) },
                    Err(error) => {
                        let event = Event::new("state:refused").with("connection", conn.as_str()).with("reason", error.message());
                        self.observe(&event);
                        Command::RefuseState { conn }
                    }
                };
                self.post(Input::Command(command, None));
            }
            Effect::StateChanged(state, by) => self.state_changed(state, by),
            Effect::Call(conn, call) => self.call(conn, call),
            Effect::Message(conn, text) => self.message(conn, Message::Text(text.into())),
            Effect::AuthorizeApproval(who, call, frame) => self.authorize_approval(who, *call, frame),
            Effect::ClientToolSettled(settled) => self.client_tool_settled(*settled),
            Effect::ResponseHook(leg, chain, response) => self.response_hook(leg, chain, *response),
            Effect::SubmissionStatus(note) => self.submission_status(*note),
            Effect::Observe(chunk) => self.agent.on_chunk(&chunk),
            Effect::Emit(event) => self.observe(&event),
        }
    }

    fn reply(&self, to: ReplyTo, answer: Result<Answer>) {
        let mut replies = self.replies.borrow_mut();
        if let Some(at) = replies.iter().position(|(waits, _)| *waits == to) {
            // A caller that no longer waits loses nothing but the answer.
            let _ = replies.swap_remove(at).1.send(answer);
        }
    }

    /// Starts a job. Most get to their end, or to their request, without waiting: a task of the platform for them would only delay
    /// it.
    fn start(&self, mut job: LocalBoxFuture<'static, ()>) {
        if job.as_mut().now_or_never().is_none() {
            self.platform.spawn(job);
        }
    }

    fn observe(&self, event: &Event) {
        self.agent.on_event(event);
        if !event.quiet {
            self.platform.emit(event);
        }
    }

    /// The platform hands over an event. If it was to end this object, it has not: what there is goes on from rows, as after a death.
    fn heard(self: &Rc<Self>) {
        if self.standing.get() == Standing::Leaves {
            self.standing.set(Standing::Lives);
            self.failed(Error::platform("the object was to be ended, and was not"), Blame::Other("abort"), false, None);
        }
    }

    /// Asks the application about a socket before it is accepted.
    ///
    /// # Errors
    /// A hook failed or its tags are not acceptable: the connection is not to be set up.
    pub fn admit(self: &Rc<Self>, request: &ConnRequest) -> Result<(ConnMeta, Vec<String>)> {
        self.heard();
        let tags = self.agent.connection_tags(request)?;
        if tags.len() >= limits::TAGS {
            return Err(Error::limit(format!(
                "{} tags, limit {} (limits::TAGS, one is the connection's id)",
                tags.len(),
                limits::TAGS - 1
            )));
        }
        if let Some(bad) = tags.iter().find(|tag| tag.is_empty() || tag.chars().count() > limits::TAG) {
            return Err(Error::limit(format!("the tag {bad:?} must have 1 to {} characters (limits::TAG)", limits::TAG)));
        }
        let meta = ConnMeta {
            label: request.label.clone(),
            readonly: self.agent.is_readonly(request),
            no_protocol: !self.agent.sends_protocol(request),
        };
        Ok((meta, tags))
    }

    /// A socket was accepted.
    pub fn opened(self: &Rc<Self>, conn: ConnId, meta: ConnMeta) {
        self.post(Input::Connected(conn.clone(), meta));
        let this = self.clone();
        self.start(Box::pin(async move {
            let handle = this.handle();
            this.bounded("on_connect", Some(&conn), this.agent.on_connect(&handle, &conn)).await;
        }));
    }

    /// A text frame arrived.
    pub fn text(self: &Rc<Self>, conn: &ConnId, text: String) {
        self.heard();
        self.post(Input::Frame(conn.clone(), text.into_boxed_str()));
    }

    /// A binary frame arrived: always the application's.
    pub fn binary(self: &Rc<Self>, conn: &ConnId, bytes: Vec<u8>) {
        self.heard();
        self.message(conn.clone(), Message::Binary(bytes));
    }

    /// A socket is gone.
    pub fn closed(self: &Rc<Self>, conn: &ConnId, code: u16, reason: &str, _clean: bool) {
        self.heard();
        self.post(Input::Disconnected(conn.clone()));
        let (this, conn, reason) = (self.clone(), conn.clone(), reason.to_string());
        self.start(Box::pin(async move {
            let handle = this.handle();
            this.bounded("on_close", Some(&conn), this.agent.on_close(&handle, &conn, code, &reason)).await;
        }));
    }

    /// The alarm fired. Its successor is armed first: whatever becomes of this handler, what is due stays due (I23).
    ///
    /// # Errors
    /// The alarm could not be armed, or the step failed in a way that will not pass by itself: the platform is told, and its own few
    /// retries are all there is.
    pub fn alarm(self: &Rc<Self>) -> Result<()> {
        self.heard();
        if self.is_over() {
            return Err(Error::platform("this incarnation of the object is over"));
        }
        let successor = self.platform.now() + limits::HEARTBEAT_MS;
        self.platform.arm(Some(successor))?;
        self.post(Input::Alarm(Some(successor)));
        if self.engine.borrow().is_none() && self.hopeless.get() && !self.is_over() {
            self.platform.arm(None)?;
            return Err(Error::platform("the alarm could not be handled: the database refuses it"));
        }
        Ok(())
    }

    /// The platform ended another object, or this one, under the call of a turn: what becomes of the turn is decided as after a death,
    /// by this incarnation if it lives and else by the next.
    fn interrupted(self: &Rc<Self>, error: &str) {
        self.failed(Error::platform(error), Blame::Other("reset"), true, None);
    }

    fn message(self: &Rc<Self>, conn: ConnId, message: Message) {
        let this = self.clone();
        self.start(Box::pin(async move {
            let handle = this.handle();
            this.bounded("on_message", Some(&conn), this.agent.on_message(&handle, &conn, &message)).await;
        }));
    }

    fn state_changed(self: &Rc<Self>, state: serde_json::Value, by: Option<ConnId>) {
        let this = self.clone();
        self.start(Box::pin(async move {
            let handle = this.handle();
            this.bounded("on_state_changed", by.as_ref(), this.agent.on_state_changed(&handle, &state, by.as_ref())).await;
        }));
    }
}

/// How an engine is read from rows.
type Load = fn(&dyn Sql, Boot, Identity, Config) -> Result<Engine>;

/// Whom a failed step concerns.
enum Blame {
    /// A chat request, if its id could be read.
    Chat(ConnId, Option<crate::ids::RequestId>),
    /// A question for a stream, with its id.
    Probe(ConnId, Option<String>),
    /// The running turn.
    Turn(TurnId),
    /// Anything else, for the log.
    Other(&'static str),
}

impl Blame {
    fn of(input: &Input) -> Blame {
        match input {
            Input::Frame(conn, text) if text.contains("cf_agent_stream_resume_request") && text.len() <= 2 * limits::ID => {
                match wire::decode(text) {
                    ClientFrame::Probe { probe } => Blame::Probe(conn.clone(), probe),
                    _ => Blame::Chat(conn.clone(), None),
                }
            }
            Input::Frame(conn, text) => Blame::Chat(conn.clone(), wire::chat_id_of_prefix(text)),
            Input::Boot(_) => Blame::Other("boot"),
            Input::Connected(..) => Blame::Other("connected"),
            Input::Disconnected(_) => Blame::Other("disconnected"),
            Input::Alarm(_) => Blame::Other("alarm"),
            Input::Wake => Blame::Other("wake"),
            Input::Command(..) => Blame::Other("command"),
            Input::Job(fence, _) => Blame::Turn(fence.turn.clone()),
            Input::Rpc(..) => Blame::Other("rpc"),
            Input::HookEnded(_) => Blame::Other("hook"),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Blame::Chat(..) | Blame::Probe(..) => "frame",
            Blame::Turn(_) => "job",
            Blame::Other(name) => name,
        }
    }
}

impl<A: Agent, P: Platform> Mailbox for Runtime<A, P> {
    fn ask(self: Rc<Self>, command: Command) -> oneshot::Receiver<Result<Answer>> {
        let (sender, receiver) = oneshot::channel();
        if self.is_over() {
            let _ = sender.send(Err(Error::platform("this incarnation of the object is over")));
            return receiver;
        }
        let to = ReplyTo(self.next_reply.get());
        self.next_reply.set(to.0 + 1);
        self.replies.borrow_mut().push((to, sender));
        self.post(Input::Command(command, Some(to)));
        receiver
    }

    fn mint(&self) -> String {
        let mut rng = self.rng.borrow_mut();
        rng.get_or_insert_with(|| Rng::new(self.platform.entropy())).text(16)
    }

    fn now(&self) -> Millis {
        self.platform.now()
    }

    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()> {
        self.platform.sleep(ms)
    }

    fn inside_turn(&self) -> bool {
        self.inside.get() == Some(Inside::Turn)
    }

    fn inside_status_hook(&self) -> bool {
        self.inside.get() == Some(Inside::StatusHook)
    }

    fn send_binary(&self, conn: &ConnId, bytes: &[u8]) {
        self.platform.send_binary(conn, bytes);
    }

    fn spawn(&self, job: LocalBoxFuture<'static, ()>) {
        self.start(job);
    }

    fn silence_model(&self) {
        if let Some(active) = self.active.borrow().as_ref() {
            active.silence.trip();
        }
    }

    fn abort_object(&self, reason: &str) {
        // Whatever still runs here writes nothing any more, also where the platform lets it run on.
        if !self.is_over() {
            self.standing.set(Standing::Leaves);
        }
        self.platform.abort(reason);
    }
}
