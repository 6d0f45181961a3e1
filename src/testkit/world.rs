//! The world around one object: time, network, sockets, storage, and the scheduler that decides what happens next.
//!
//! The production runtime is driven, on the platform in `sim.rs`. Everything is single-threaded and virtual: jobs are polled one
//! at a time, time jumps to the next timer when nothing else can happen, and what a run does is a function of its seed and script.

use std::{
    cell::RefCell,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
};

use serde_json::{Value, json};

use super::{
    client::{Behaviour, Client, Out, essence, said},
    clock::{Clock, Gates},
    db::Db,
    death::{Death, Died, KillPoint},
    model::{Exchange, ProviderRequest, Reply, Script},
    sim::{Core, Sim},
};
use crate::{
    agent::{Agent, handle::AgentHandle},
    engine::{events::Event, input::ConnMeta},
    ids::ConnId,
    runtime::{
        ConnRequest, Runtime,
        platform::{HttpRequest, HttpResponse},
    },
    store::{Meter, Sql},
    time::Millis,
};

/// Time jumps after which a world is not expected to come to rest any more.
const JUMPS_MAX: u32 = 20_000;
/// Polls and deliveries at one instant after which something spins.
const STEPS_MAX: u32 = 5_000_000;
/// Alarms in a row, and nothing else, after which an object wakes for nothing.
const IDLE_ALARMS_MAX: u32 = 1_000;
/// How often the platform tries an alarm again whose handler failed, and after how long for the first time.
const ALARM_RETRIES: u32 = 6;
const ALARM_RETRY_MS: i64 = 2_000;
/// Lines of the story a failure shows.
const STORY_SHOWN: usize = 40;

/// What becomes of the sockets when the object dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// They stay attached, as over a hibernation.
    Kept,
    /// They close with 1006, as in a crash or a deploy.
    Closed,
}

/// How a client connects. [`World::connect`] uses the plain form.
#[derive(Clone, Debug)]
pub struct Dial {
    label: String,
    query: String,
    headers: Vec<(String, String)>,
    behaviour: Behaviour,
    hydrates: bool,
}

impl Dial {
    /// A tab with the stock hooks; `label` becomes its `_pk`.
    pub fn new(label: &str) -> Self {
        let behaviour = Behaviour { hook: true, resume: true };
        Self { label: label.into(), query: String::new(), headers: Vec::new(), behaviour, hydrates: true }
    }

    /// A bare socket: keeps a log, sends only what it is told to.
    pub fn raw(mut self) -> Self {
        self.behaviour.hook = false;
        self.hydrates = false;
        self
    }

    /// The hook's `resume: false`.
    pub fn without_resume(mut self) -> Self {
        self.behaviour.resume = false;
        self
    }

    /// The hook's `getInitialMessages: null`.
    pub fn without_history(mut self) -> Self {
        self.hydrates = false;
        self
    }

    /// More query parameters, `a=b&c=d`.
    pub fn query(mut self, query: &str) -> Self {
        self.query = query.into();
        self
    }

    /// One more header on the upgrade; the name in lower case.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// One object with everything around it. See [the module](crate::testkit) for an example.
pub struct World<A: Agent> {
    core: Rc<Core>,
    make: Box<dyn Fn() -> A>,
    db: RefCell<Db>,
    runtime: RefCell<Option<Rc<Runtime<A, Sim>>>>,
    dials: RefCell<Vec<(Client, Dial)>>,
}

impl<A: Agent + Clone> World<A> {
    /// A world for this agent; every incarnation gets a clone of it.
    pub fn new(agent: A) -> Self {
        Self::with(move || agent.clone())
    }
}

impl<A: Agent> World<A> {
    /// A world for the agents this makes, one for each incarnation.
    pub fn with(make: impl Fn() -> A + 'static) -> Self {
        Self {
            core: Rc::new(Core::new()),
            make: Box::new(make),
            db: RefCell::new(Db::new()),
            runtime: RefCell::new(None),
            dials: RefCell::default(),
        }
    }

    /// The answers of the model, in order; more may be added later.
    pub fn model(self, script: impl Into<Script>) -> Self {
        self.answer(script);
        self
    }

    /// Answers computed from the request.
    pub fn model_fn(self, answer: impl FnMut(&ProviderRequest) -> Reply + 'static) -> Self {
        self.core.provider.script(Script::function(answer));
        self
    }

    /// Lets the model accept requests no real provider would.
    pub fn unchecked_requests(self) -> Self {
        self.core.provider.unchecked();
        self
    }

    /// Ids are drawn from this, and what can happen at the same time happens in an order drawn from it. Without a seed the order is
    /// that of arrival.
    pub fn seed(self, seed: u64) -> Self {
        self.core.seed.set(seed);
        *self.core.order.borrow_mut() = Some(fastrand::Rng::with_seed(seed));
        self
    }

    /// Commits reach the disk only when its turn comes: by seed, or else when nothing else can happen. Until then frames, requests and
    /// [`Death::Memory`] treat them as the platform's output gate does: nobody learns of them, and they may be lost.
    pub fn slow_disk(self) -> Self {
        self.core.slow_disk.set(true);
        self
    }

    /// The object's name.
    pub fn named(self, name: &str) -> Self {
        *self.core.name.borrow_mut() = name.into();
        self
    }

    /// Uses these gates, which tools of the agent may wait at too.
    pub fn with_gates(self, gates: &Gates) -> Self {
        *self.core.gates.borrow_mut() = gates.clone();
        self
    }

    /// Begins with the rows of a database, for example of another world.
    pub fn with_db(self, db: &Db) -> Self {
        *self.db.borrow_mut() = db.supersede();
        self
    }

    // --- clients

    /// A tab with the stock hooks: loads the history, opens the socket, probes, and waits until everything has arrived, as a person
    /// does before typing.
    pub fn connect(&self, label: &str) -> Client {
        let client = self.dial(Dial::new(label));
        self.settle();
        client
    }

    /// A bare socket that got its first frames.
    pub fn socket(&self, label: &str) -> Client {
        let client = self.dial(Dial::new(label).raw());
        self.settle();
        client
    }

    /// Connects in any way. The first frames travel when the world runs.
    pub fn dial(&self, dial: Dial) -> Client {
        let client = Client::new(&dial.label, dial.behaviour.clone());
        self.dials.borrow_mut().push((client.clone(), dial.clone()));
        if dial.hydrates {
            client.hydrate(self.get_messages());
        }
        self.open(&client, &dial);
        client
    }

    /// Opens a new socket for a client that lost its own, with the same `_pk`. What was typed meanwhile goes first.
    ///
    /// # Panics
    /// The client is connected, or not of this world.
    pub fn reconnect(&self, client: &Client) {
        assert!(client.conn().is_none(), "{} is connected", client.label());
        let dial = self.dials.borrow().iter().find(|(c, _)| c.is(client)).map(|(_, dial)| dial.clone());
        self.open(client, &dial.expect("a client of this world"));
    }

    /// Cuts the socket of a client, as a lost network does; the object notices.
    pub fn disconnect(&self, client: &Client) {
        self.ended(client, 1006, "", false);
    }

    fn open(&self, client: &Client, dial: &Dial) {
        let n = self.core.dialled.get() + 1;
        self.core.dialled.set(n);
        let id = ConnId::from(format!("conn-{n}"));
        let more = if dial.query.is_empty() { String::new() } else { format!("&{}", dial.query) };
        let mut headers = vec![("upgrade".to_owned(), "websocket".to_owned())];
        headers.extend(dial.headers.iter().cloned());
        let request =
            HttpRequest { method: "GET".into(), url: format!("{}?_pk={}{more}", self.url(""), dial.label), headers, body: Vec::new() };
        let runtime = self.object();
        match runtime.admit(&ConnRequest { id: id.clone(), label: dial.label.clone(), request }) {
            Ok((meta, _tags)) => {
                self.core.tell(format!("{} connects as {id}", dial.label));
                self.core.sockets.borrow_mut().insert(id.clone(), (meta.clone(), client.clone()));
                client.opened(id.clone());
                self.stretch(|| runtime.opened(id, meta));
            }
            Err(e) => {
                self.core.tell(format!("{} is refused: {e}", dial.label));
                client.refused(&json!({ "error": e.message() }).to_string());
            }
        }
    }

    /// The socket of a client is gone; tells the client and the object.
    fn ended(&self, client: &Client, code: u16, reason: &str, clean: bool) {
        let Some(conn) = client.conn() else { return };
        self.core.tell(format!("{} closes {code} {reason}", client.label()));
        self.core.sockets.borrow_mut().remove(&conn);
        client.lost(code, reason);
        let object = self.object();
        self.stretch(|| object.closed(&conn, code, reason, clean));
    }

    /// A text from a client; the same as [`Client::send`].
    pub fn send(&self, client: &Client, text: &str) -> String {
        client.send(text)
    }

    // --- running

    /// Lets one thing happen: a frame arrives, or a job goes on. False if nothing can happen without time passing.
    pub fn step(&self) -> bool {
        if self.runtime.borrow().as_ref().is_some_and(|runtime| runtime.is_over()) && !self.core.refuses_abort.get() {
            // The platform keeps nobody whom it has told so.
            self.restart(Sockets::Closed);
            return true;
        }
        let clients: Vec<Client> = self.dials.borrow().iter().map(|(client, _)| client.clone()).collect();
        let arriving = clients.iter().filter(|c| c.has_incoming()).map(|c| Move::ToClient(c.clone()));
        let leaving = clients.iter().filter(|c| c.has_outgoing()).map(|c| Move::ToObject(c.clone()));
        let flush = (self.core.slow_disk.get() && self.db.borrow().pending_commits() > 0).then_some(Move::Flush);
        let mut order = self.core.order.borrow_mut();
        let next = match &mut *order {
            // In order of arrival a frame is never later than the job that waits for it.
            None => arriving.chain(leaving).next().or_else(|| self.core.jobs.ready(0).map(Move::Poll)).or(flush),
            Some(rng) => {
                let other: Vec<Move> = arriving.chain(leaving).chain(flush).collect();
                let all = other.len() + self.core.jobs.ready_count();
                let pick = if all == 0 { 0 } else { rng.usize(..all) };
                match pick.checked_sub(other.len()) {
                    None => other.into_iter().nth(pick),
                    Some(job) => self.core.jobs.ready(job).map(Move::Poll),
                }
            }
        };
        drop(order);
        let Some(next) = next else { return false };
        self.core.idle_alarms.set(0);
        match next {
            Move::Flush => self.flush(),
            Move::Poll(job) => drop(self.stretch(|| self.core.jobs.poll(job))),
            Move::ToClient(client) => {
                if let Some((code, reason)) = client.receive() {
                    self.ended(&client, code, &reason, true);
                }
            }
            Move::ToObject(client) => match client.pop_outgoing() {
                None => {}
                Some((conn, Out::Text(text))) => {
                    self.core.tell_of(&format!("{} → ", client.label()), &text);
                    let object = self.object();
                    self.stretch(|| object.text(&conn, text));
                }
                Some((conn, Out::Binary(bytes))) => {
                    let object = self.object();
                    self.stretch(|| object.binary(&conn, bytes));
                }
                Some((_, Out::Close(code, reason, clean))) => self.ended(&client, code, &reason, clean),
            },
        }
        true
    }

    /// Lets one thing happen; where nothing can, lets time pass until something does. False at rest, and where somebody waits at a gate.
    pub fn tick(&self) -> bool {
        if self.step() {
            return true;
        }
        let due = self.next_due().filter(|_| self.gates().waiting().is_empty());
        due.map(|ms| self.pass(ms)).is_some()
    }

    /// One event inside the object, and what becomes of an object that dies in it. Nothing if it did not come to its end.
    fn stretch<T>(&self, event: impl FnOnce() -> T) -> Option<T> {
        let value = match catch_unwind(AssertUnwindSafe(event)) {
            Ok(value) => Some(value),
            Err(panic) if panic.is::<Died>() => None,
            Err(panic) => resume_unwind(panic),
        };
        let struck = self.db.borrow().fate().take();
        match struck {
            Some(death) => self.carry_out(death),
            None if self.core.aborted.take() => self.restart(Sockets::Closed),
            None if self.core.slow_disk.get() => {}
            None => self.flush(),
        }
        value
    }

    /// Everything committed is on disk, and what waited for that goes on.
    fn flush(&self) {
        self.db.borrow().flush();
        self.core.ringing.set(false);
        self.core.release();
    }

    /// Lets everything happen that can without time passing.
    ///
    /// # Panics
    /// It never ends: something spins.
    pub fn settle(&self) {
        let mut steps = 0;
        loop {
            while self.step() {
                steps += 1;
                assert!(steps < STEPS_MAX, "the world spins without time passing\n{}", self.story());
            }
            if self.next_due() != Some(0) {
                return;
            }
            self.pass(0);
        }
    }

    /// Runs until nothing is left to happen: jobs, timers, alarms. Stops where somebody waits at a gate: time stands still then,
    /// because what comes next is the test's to decide.
    ///
    /// # Panics
    /// The world never comes to rest.
    pub fn run(&self) {
        for _ in 0..JUMPS_MAX {
            self.settle();
            if !self.gates().waiting().is_empty() {
                return;
            }
            match self.next_due() {
                None => return,
                Some(ms) => self.pass(ms),
            }
        }
        panic!("the world does not come to rest\n{}", self.story());
    }

    /// Runs for so long, gates or not.
    pub fn run_for(&self, ms: i64) {
        let mut left = ms;
        loop {
            self.settle();
            match self.next_due() {
                Some(due) if due <= left => {
                    left -= due;
                    self.pass(due);
                }
                _ => break,
            }
        }
        self.pass(left);
        self.settle();
    }

    /// Runs until `reached` holds, looking after every step.
    ///
    /// # Panics
    /// The world comes to rest, or waits at a gate, without it.
    pub fn run_until(&self, reached: impl Fn(&Self) -> bool) {
        let mut jumps = 0;
        while !reached(self) {
            if self.step() {
                continue;
            }
            let due = self.next_due().filter(|_| self.gates().waiting().is_empty() && jumps < JUMPS_MAX);
            let due = due.unwrap_or_else(|| panic!("the world came to rest before what was waited for\n{}", self.story()));
            jumps += 1;
            self.pass(due);
        }
    }

    /// Runs the world until `future` is done.
    ///
    /// # Panics
    /// The world comes to rest before.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let slot = Rc::new(RefCell::new(None));
        let out = slot.clone();
        self.core.jobs.spawn(
            self.core.life.get(),
            Box::pin(async move {
                let value = future.await;
                *out.borrow_mut() = Some(value);
            }),
        );
        self.run_until(|_| slot.borrow().is_some());
        slot.borrow_mut().take().expect("just seen")
    }

    /// Milliseconds to the next timer or alarm.
    fn next_due(&self) -> Option<i64> {
        let alarm = self.alarm_due().map(|at| (at - self.core.clock.now()).max(0));
        alarm.into_iter().chain(self.core.clock.next_timer()).min()
    }

    fn alarm_due(&self) -> Option<Millis> {
        self.alarm_at().map(|at| at + self.core.alarm_shift.get())
    }

    /// Lets time pass; an alarm that is due then fires.
    fn pass(&self, ms: i64) {
        self.core.clock.advance(ms);
        if self.alarm_due().is_some_and(|at| at <= self.core.clock.now()) {
            self.core.alarm_shift.set(0);
            self.ring();
        }
    }

    /// Calls the handler of the alarm now: as the platform does when it is due, or a second time.
    ///
    /// # Panics
    /// It was called again and again, and nothing else happened.
    pub fn ring(&self) {
        self.core.idle_alarms.set(self.core.idle_alarms.get() + 1);
        assert!(self.core.idle_alarms.get() < IDLE_ALARMS_MAX, "the alarm fires again and again for nothing\n{}", self.story());
        // The slot is empty when the handler starts (platform).
        self.db.borrow().set_alarm(None);
        self.core.tell("the alarm fires");
        self.core.ringing.set(true);
        let object = self.object();
        match self.stretch(|| object.alarm()) {
            Some(Ok(())) => self.core.alarm_failures.set(0),
            Some(Err(_)) if object.is_over() => {
                // Whoever is told so is not kept: the next incarnation hears the alarm.
                self.ring_later();
                self.restart(Sockets::Closed);
            }
            Some(Err(_)) => self.ring_later(),
            // It died, and that was seen to.
            None => {}
        }
    }

    /// As the platform does after an uncaught error: the alarm comes back, later each time, unless the handler had set another; after
    /// some tries it does not.
    fn ring_later(&self) {
        self.core.ringing.set(false);
        let failures = self.core.alarm_failures.get();
        if self.alarm_at().is_some() {
            return;
        }
        if failures == ALARM_RETRIES {
            self.core.alarm_failures.set(0);
            self.core.tell("the alarm failed too often and is gone");
            return;
        }
        self.core.alarm_failures.set(failures + 1);
        self.db.borrow().set_alarm(Some(self.core.clock.now() + (ALARM_RETRY_MS << failures)));
    }

    /// The next alarm comes so many milliseconds after it is due, or before if negative.
    pub fn shift_alarm(&self, ms: i64) {
        self.core.alarm_shift.set(ms);
    }

    /// The object: built by the event that needs it.
    fn object(&self) -> Rc<Runtime<A, Sim>> {
        if let Some(runtime) = &*self.runtime.borrow() {
            return runtime.clone();
        }
        let sim = Sim::new(self.core.clone(), self.db.borrow().clone());
        let runtime = Runtime::new((self.make)(), sim);
        *self.runtime.borrow_mut() = Some(runtime.clone());
        runtime
    }

    // --- death

    /// The object dies between two events. The next event builds a new one.
    pub fn die(&self, death: Death) {
        self.carry_out(death);
    }

    /// The object will die at the `nth` such point from now; 1 is the next. Several deaths strike one after the other: each begins to
    /// count when the one before has struck.
    ///
    /// ```
    /// # use wakeful::{prelude::*, testkit::{Death, KillPoint, World, script, text}};
    /// # #[derive(Clone)]
    /// # struct Helper;
    /// # impl Agent for Helper {
    /// #     fn model(&self, _: &Turn) -> ModelRef { "ollama/any".into() }
    /// # }
    /// let world = World::new(Helper).model(script![text("Hello.")]);
    /// let tab = world.connect("S1");
    /// tab.send("Hi.");
    /// // The question is on disk, and nobody was told: no tab, no provider.
    /// world.die_at(KillPoint::AfterCommit, 1, Death::Hard);
    /// world.run();
    /// assert_eq!(world.deaths(), 1);
    /// assert_eq!(world.said(), ["user: Hi.", "assistant: Hello."]);
    /// ```
    pub fn die_at(&self, point: KillPoint, nth: u32, death: Death) {
        self.db.borrow().fate().plan(point, nth, death);
    }

    /// Deaths that wait for their point.
    pub fn deaths_ahead(&self) -> usize {
        self.db.borrow().fate().waiting()
    }

    /// No death waits any more.
    pub fn spare(&self) {
        self.db.borrow().fate().forget();
    }

    /// What still runs of dead incarnations, zombies and half-dead ones, runs no more.
    pub fn bury(&self) {
        self.core.jobs.bury(self.core.life.get());
    }

    /// How often the object was at such a point so far.
    pub fn reached(&self, point: KillPoint) -> u32 {
        self.db.borrow().fate().reached(point)
    }

    /// How often the object died.
    pub fn deaths(&self) -> u32 {
        self.core.deaths.get()
    }

    fn carry_out(&self, death: Death) {
        let sockets = if death == Death::HalfDeath { Sockets::Kept } else { Sockets::Closed };
        self.core.tell(format!("the object dies: {death:?}"));
        if death == Death::HalfDeath {
            self.core.half_dead.borrow_mut().insert(self.core.life.get());
        }
        let lost = death == Death::Memory;
        let jobs_end = matches!(death, Death::Hard | Death::Memory);
        self.end(sockets, jobs_end, lost);
    }

    /// The object dies, wherever it is: its memory and jobs are gone, its committed rows and its alarm stay. The next event builds a
    /// new one.
    pub fn restart(&self, sockets: Sockets) {
        self.core.tell(format!("the object dies, sockets {sockets:?}"));
        self.end(sockets, true, false);
    }

    /// The object is replaced while its jobs still run, as after a network partition. Whatever they write is refused.
    pub fn supersede(&self, sockets: Sockets) {
        self.core.tell(format!("the object is superseded, sockets {sockets:?}"));
        self.end(sockets, false, false);
    }

    /// The object leaves memory because it is idle; its sockets stay.
    ///
    /// # Panics
    /// It is not idle: a job still runs, and the platform would not let it sleep.
    pub fn hibernate(&self) {
        assert_eq!(self.core.jobs.count(), 0, "a job keeps the object awake\n{}", self.story());
        self.restart(Sockets::Kept);
    }

    /// An incarnation is over. What it committed is kept, or, where memory was its end, as much of it as anybody knows of.
    fn end(&self, sockets: Sockets, jobs_end: bool, lost: bool) {
        let dead = self.runtime.borrow_mut().take();
        if jobs_end {
            self.core.jobs.clear();
        }
        drop(dead);
        self.core.deaths.set(self.core.deaths.get() + 1);
        self.core.life.set(self.core.life.get() + 1);
        let next = self.db.borrow().supersede();
        next.crash(if lost { 0 } else { next.pending_commits() });
        *self.db.borrow_mut() = next;
        if sockets == Sockets::Closed {
            self.core.drop_held();
            let gone = std::mem::take(&mut *self.core.sockets.borrow_mut());
            gone.into_values().for_each(|(_, client)| client.lost(1006, ""));
        }
        self.core.release();
        if self.core.ringing.get() {
            self.ring_later();
        }
    }

    // --- the outside

    /// An HTTP request to the object.
    pub fn http(&self, request: HttpRequest) -> HttpResponse {
        let runtime = self.object();
        self.block_on(runtime.http(request))
    }

    /// A GET of a path below the object's address.
    pub fn get(&self, path: &str) -> HttpResponse {
        self.http(HttpRequest { method: "GET".into(), url: self.url(path), ..HttpRequest::default() })
    }

    /// The transcript as `get-messages` gives it.
    ///
    /// # Panics
    /// The answer is no list of messages.
    pub fn get_messages(&self) -> Vec<Value> {
        let response = self.get("/get-messages");
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, 200, "get-messages: {text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("get-messages is no list ({e}): {text:.500}"))
    }

    /// The transcript as lines, see [`said`].
    pub fn said(&self) -> Vec<String> {
        self.get_messages().iter().map(said).collect()
    }

    /// The handle by which an application speaks to its object.
    pub fn handle(&self) -> AgentHandle {
        self.object().handle()
    }

    /// From now on an object that ends itself is not ended: as on a platform that cannot, or fails to.
    pub fn refuse_aborts(&self) {
        self.core.refuses_abort.set(true);
    }

    /// Adds answers of the model behind those that are left.
    pub fn answer(&self, script: impl Into<Script>) {
        self.core.provider.script(script.into());
    }

    /// The address of the object, with a path behind it.
    pub fn url(&self, path: &str) -> String {
        format!("https://host.test/agents/chat-agent/{}{path}", self.core.name.borrow())
    }

    // --- looking

    /// The gates of this world.
    pub fn gates(&self) -> Gates {
        self.core.gates.borrow().clone()
    }

    /// Opens a gate for everybody.
    pub fn open_gate(&self, name: &str) {
        self.gates().open(name);
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.core.clock.clone()
    }

    /// The database as the living incarnation sees it.
    pub fn db(&self) -> Db {
        self.db.borrow().clone()
    }

    /// What the living incarnation has cost.
    pub fn meter(&self) -> Meter {
        self.db.borrow().meter()
    }

    /// When the alarm will fire.
    pub fn alarm_at(&self) -> Option<Millis> {
        self.db.borrow().alarm()
    }

    /// Every time an alarm was set, and to when.
    pub fn alarms(&self) -> Vec<Millis> {
        self.core.alarms.borrow().clone()
    }

    /// The jobs that live.
    pub fn jobs(&self) -> usize {
        self.core.jobs.count()
    }

    /// Every request a provider got.
    pub fn provider_requests(&self) -> Vec<ProviderRequest> {
        self.core.provider.requests()
    }

    /// How far each answer of a provider has come.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.core.provider.exchanges()
    }

    /// Scripted answers nobody asked for yet.
    pub fn answers_left(&self) -> usize {
        self.core.provider.left()
    }

    /// Every event the object logged.
    pub fn events(&self) -> Vec<Event> {
        self.core.events.borrow().clone()
    }

    /// The events of one name.
    pub fn events_named(&self, name: &str) -> Vec<Event> {
        self.core.events.borrow().iter().filter(|e| e.name == name).cloned().collect()
    }

    /// What is remembered of each attached socket.
    pub fn sockets(&self) -> Vec<(ConnId, ConnMeta)> {
        self.core.sockets.borrow().iter().map(|(id, (meta, _))| (id.clone(), meta.clone())).collect()
    }

    /// Frames a superseded incarnation tried to send.
    pub fn zombie_frames(&self) -> u64 {
        self.core.zombie_frames.get()
    }

    /// The last things that happened, a line each.
    pub fn story(&self) -> String {
        let story = self.core.story.borrow();
        story.iter().skip(story.len().saturating_sub(STORY_SHOWN)).cloned().collect::<Vec<_>>().join("\n")
    }

    /// What should hold when nothing is under way and does not: a rule of the wire on some socket (wire 60, 119, 164–169, 171), a tab that
    /// shows something else than what is stored (wire 170), a write outside a transaction.
    pub fn complaints(&self) -> Vec<String> {
        let stored: Vec<Value> = self.get_messages().iter().map(essence).collect();
        let mut broken: Vec<String> = Vec::new();
        for (client, dial) in &*self.dials.borrow() {
            broken.extend(client.violations(true));
            if dial.behaviour.hook && client.conn().is_some() {
                let shown: Vec<Value> = client.messages().iter().map(essence).collect();
                if shown != stored {
                    let list = |messages: &[Value]| messages.iter().map(|m| format!("  {m}")).collect::<Vec<_>>().join("\n");
                    broken.push(format!("{}: wire 170: it shows\n{}\nstored is\n{}", client.label(), list(&shown), list(&stored)));
                }
            }
        }
        broken.extend(self.db().take_loose_writes().into_iter().map(|sql| format!("written outside a transaction: {sql}")));
        broken
    }

    /// Checks that nothing is there to complain about.
    ///
    /// # Panics
    /// There is, see [`World::complaints`].
    pub fn check(&self) {
        let broken = self.complaints();
        assert!(broken.is_empty(), "{}\n--\n{}", broken.join("\n"), self.story());
    }
}

impl<A: Agent> Drop for World<A> {
    /// Jobs hold the runtime, which holds the jobs.
    fn drop(&mut self) {
        self.core.jobs.clear();
    }
}

/// One thing that can happen next.
enum Move {
    ToClient(Client),
    ToObject(Client),
    Poll(u64),
    Flush,
}
