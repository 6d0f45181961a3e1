//! The platform as one incarnation sees it, and what outlives incarnations.
//!
//! Whatever leaves the object passes an output gate: nobody learns of a commit that is not on disk (recovery §1.5).

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    rc::Rc,
    task::Poll,
};

use futures_util::future::LocalBoxFuture;

use super::{
    client::{Client, In},
    clock::{Clock, Gates},
    db::Db,
    death::{self, KillPoint, Verdict},
    jobs::Jobs,
    model::Provider,
};
use crate::{
    engine::{events::Event, input::ConnMeta, outcome::Effect},
    error::{Error, Result},
    ids::ConnId,
    model::codec::WireRequest,
    runtime::platform::{Answer, Cancel, Platform},
    store::Sql,
    time::Millis,
};

/// The name of the object unless the world says otherwise.
const NAME: &str = "room-1";

/// What outlives an incarnation.
pub(super) struct Core {
    pub(super) name: RefCell<String>,
    pub(super) seed: Cell<u64>,
    pub(super) clock: Clock,
    pub(super) gates: RefCell<Gates>,
    pub(super) provider: Provider,
    pub(super) jobs: Jobs,
    pub(super) sockets: RefCell<BTreeMap<ConnId, (ConnMeta, Client)>>,
    pub(super) dialled: Cell<u32>,
    pub(super) life: Cell<u64>,
    /// Present if the schedule is random.
    pub(super) order: RefCell<Option<fastrand::Rng>>,
    pub(super) events: RefCell<Vec<Event>>,
    pub(super) story: RefCell<VecDeque<String>>,
    pub(super) alarms: RefCell<Vec<Millis>>,
    pub(super) zombie_frames: Cell<u64>,
    /// Whether the living incarnation asked for its end.
    pub(super) aborted: Cell<bool>,
    /// Whether an object that ends itself is left alone.
    pub(super) refuses_abort: Cell<bool>,
    /// Whether commits wait for the disk's turn.
    pub(super) slow_disk: Cell<bool>,
    /// What the output gate holds back, in order.
    held: RefCell<VecDeque<(Client, ConnId, In)>>,
    /// Incarnations whose program is gone while their isolate lives.
    pub(super) half_dead: RefCell<BTreeSet<u64>>,
    pub(super) deaths: Cell<u32>,
    /// The handler of an alarm runs, or what it did is not confirmed.
    pub(super) ringing: Cell<bool>,
    /// How often in a row it failed.
    pub(super) alarm_failures: Cell<u32>,
    /// How much later than it is due the next alarm comes.
    pub(super) alarm_shift: Cell<i64>,
    /// Alarms since anything else happened.
    pub(super) idle_alarms: Cell<u32>,
}

impl Core {
    pub(super) fn new() -> Self {
        Self {
            name: RefCell::new(NAME.into()),
            seed: Cell::new(1),
            clock: Clock::new(),
            gates: RefCell::default(),
            provider: Provider::default(),
            jobs: Jobs::default(),
            sockets: RefCell::default(),
            dialled: Cell::new(0),
            life: Cell::new(0),
            order: RefCell::new(None),
            events: RefCell::default(),
            story: RefCell::default(),
            alarms: RefCell::default(),
            zombie_frames: Cell::new(0),
            aborted: Cell::new(false),
            refuses_abort: Cell::new(false),
            slow_disk: Cell::new(false),
            held: RefCell::default(),
            half_dead: RefCell::default(),
            deaths: Cell::new(0),
            ringing: Cell::new(false),
            alarm_failures: Cell::new(0),
            alarm_shift: Cell::new(0),
            idle_alarms: Cell::new(0),
        }
    }

    /// The output gate opens: what was held back goes out.
    pub(super) fn release(&self) {
        while let Some((client, conn, frame)) = self.next_held() {
            // What was meant for a socket that is gone is not for the next one of its tab.
            if client.conn() == Some(conn) {
                self.deliver(&client, frame);
            }
        }
    }

    fn next_held(&self) -> Option<(Client, ConnId, In)> {
        self.held.borrow_mut().pop_front()
    }

    /// What was held back never goes out.
    pub(super) fn drop_held(&self) {
        self.held.borrow_mut().clear();
    }

    fn deliver(&self, client: &Client, frame: In) {
        if let In::Text(text) = &frame {
            self.tell_of(&format!("{} ← ", client.label()), text);
        }
        client.push(frame);
    }

    pub(super) fn tell(&self, line: impl AsRef<str>) {
        self.tell_of(line.as_ref(), "");
    }

    /// A line of the story, which may begin with something long.
    pub(super) fn tell_of(&self, line: &str, long: &str) {
        const LINE_MAX: usize = 400;
        let shown = long.len().min(LINE_MAX.saturating_sub(line.len()));
        let cut = (0..=shown).rev().find(|i| long.is_char_boundary(*i)).unwrap_or(0);
        let more = if cut < long.len() { "…" } else { "" };
        let mut story = self.story.borrow_mut();
        if story.len() == 1_000 {
            story.pop_front();
        }
        story.push_back(format!("{:>9} {line}{}{more}", self.clock.passed(), &long[..cut]));
    }
}

/// The platform as one incarnation sees it.
pub struct Sim {
    core: Rc<Core>,
    db: Db,
    life: u64,
}

impl Sim {
    pub(super) fn new(core: Rc<Core>, db: Db) -> Self {
        let life = core.life.get();
        Self { core, db, life }
    }

    fn superseded(&self) -> bool {
        self.db.is_superseded()
    }

    /// A point is reached at which this incarnation may die. Whether it is a zombie from here on.
    fn reach(&self, point: KillPoint) -> Verdict {
        if self.superseded() {
            return Verdict::Lives;
        }
        let verdict = self.db.fate().reach(point);
        if verdict == Verdict::Superseded {
            self.db.revoke();
        }
        verdict
    }

    fn may_die(&self, point: KillPoint) {
        if self.reach(point) == Verdict::Stops {
            death::stop();
        }
    }

    /// Something leaves the object.
    fn put(&self, client: &Client, frame: In) {
        if self.core.slow_disk.get() && self.db.pending_commits() > 0 {
            let Some(conn) = client.conn() else { return };
            self.core.held.borrow_mut().push_back((client.clone(), conn, frame));
        } else {
            // The disk is quick: it is there before whatever waits for it.
            self.db.flush();
            self.core.deliver(client, frame);
        }
    }
}

impl Platform for Sim {
    fn sql(&self) -> &dyn Sql {
        &self.db
    }

    fn now(&self) -> Millis {
        self.core.clock.now()
    }

    fn entropy(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        fastrand::Rng::with_seed(self.core.seed.get().wrapping_add(self.life << 32)).fill(&mut bytes);
        bytes
    }

    fn name(&self) -> String {
        self.core.name.borrow().clone()
    }

    fn sockets(&self) -> Vec<(ConnId, ConnMeta)> {
        self.core.sockets.borrow().iter().map(|(id, (meta, _))| (id.clone(), meta.clone())).collect()
    }

    fn arm(&self, at: Option<Millis>) -> Result<()> {
        if self.superseded() {
            return Err(Error::storage("Error: Connection closed: this Durable Object instance is no longer active."));
        }
        self.db.set_alarm(at);
        if let Some(at) = at {
            self.core.alarms.borrow_mut().push(at);
        }
        self.core.tell(
            at.map_or_else(|| "the alarm is cleared".to_owned(), |at| format!("the alarm is set to fire in {} ms", at - self.now())),
        );
        Ok(())
    }

    fn sync(&self) -> LocalBoxFuture<'static, ()> {
        if !self.core.slow_disk.get() {
            self.db.flush();
        }
        Box::pin(self.db.durable())
    }

    fn send(&self, to: &[ConnId], frame: &str) {
        if self.superseded() {
            self.core.zombie_frames.set(self.core.zombie_frames.get() + 1);
            return;
        }
        let sockets = self.core.sockets.borrow();
        let clients: Vec<Client> = to.iter().filter_map(|conn| sockets.get(conn)).map(|(_, client)| client.clone()).collect();
        drop(sockets);
        for (n, client) in clients.iter().enumerate() {
            if n > 0 && n == clients.len().div_ceil(2) {
                self.may_die(KillPoint::DuringEffect);
            }
            self.put(client, In::Text(frame.into()));
        }
    }

    fn send_binary(&self, to: &ConnId, frame: &[u8]) {
        let client = self.core.sockets.borrow().get(to).map(|(_, client)| client.clone());
        if let Some(client) = client.filter(|_| !self.superseded()) {
            self.put(&client, In::Binary(frame.to_vec()));
        }
    }

    fn close(&self, conn: &ConnId, code: u16, reason: &str) {
        if self.superseded() {
            return;
        }
        let client = self.core.sockets.borrow_mut().remove(conn);
        if let Some((_, client)) = client {
            self.put(&client, In::Close(code, reason.into()));
        }
    }

    fn fetch(&self, request: WireRequest, cancel: Cancel) -> LocalBoxFuture<'static, Result<Answer>> {
        if self.core.half_dead.borrow().contains(&self.life) {
            // Nothing of that program runs any more.
            return Box::pin(std::future::pending());
        }
        self.core.tell_of("a provider is asked: ", &request.body);
        let gates = self.core.gates.borrow().clone();
        let mut asked = Box::pin(self.core.provider.clone().fetch(request, cancel, self.core.clock.clone(), gates));
        let on_disk = self.sync();
        let this = Self { core: self.core.clone(), db: self.db.clone(), life: self.life };
        Box::pin(async move {
            on_disk.await;
            let begun = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
            this.may_die(KillPoint::DuringEffect);
            match begun {
                Poll::Ready(answer) => answer,
                Poll::Pending => asked.await,
            }
        })
    }

    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.core.clock.sleep(ms))
    }

    fn spawn(&self, job: LocalBoxFuture<'static, ()>) {
        self.core.jobs.spawn(self.life, job);
    }

    fn abort(&self, reason: &str) {
        self.core.tell(format!("the object ends itself: {reason}"));
        self.core.aborted.set(!self.superseded() && !self.core.refuses_abort.get());
    }

    fn performing(&self, effect: &Effect) {
        // What only the log and the observer of chunks hear of is no place of its own.
        if !matches!(effect, Effect::Emit(_) | Effect::Observe(_)) {
            self.may_die(KillPoint::BeforeEffect);
        }
    }

    fn emit(&self, event: &Event) {
        self.core.tell_of("event ", &event.line());
        self.core.events.borrow_mut().push(event.clone());
    }
}
