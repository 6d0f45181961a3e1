//! Virtual time: a clock that stands still until it is moved, and gates that a test opens by hand.
//!
//! Nothing here sleeps. A job that waits registers a waker; the world moves the clock to the next timer when nothing else can
//! happen, or the test opens the gate the job waits at.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use crate::time::Millis;

/// 2026-01-01T00:00:00Z: worlds begin here unless they say otherwise.
const START: i64 = 1_767_225_600_000;

/// A clock that only moves when told. Cloning shares it.
#[derive(Clone)]
pub struct Clock(Rc<Time>);

struct Time {
    /// Milliseconds that passed; never steps back, timers live on it.
    passed: Cell<i64>,
    /// What the wall clock is ahead of [`START`] plus `passed`.
    skew: Cell<i64>,
    timers: RefCell<BTreeMap<(i64, u64), Option<Waker>>>,
    next: Cell<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock at the beginning of 2026.
    pub fn new() -> Self {
        Self(Rc::new(Time { passed: Cell::new(0), skew: Cell::new(0), timers: RefCell::default(), next: Cell::new(0) }))
    }

    /// The wall clock.
    pub fn now(&self) -> Millis {
        Millis(START + self.0.passed.get() + self.0.skew.get())
    }

    /// Milliseconds since the world began.
    pub fn passed(&self) -> i64 {
        self.0.passed.get()
    }

    /// Steps the wall clock, forwards or back, as an NTP correction or a move to another machine does. Timers do not notice.
    pub fn skew(&self, ms: i64) {
        self.0.skew.set(self.0.skew.get() + ms);
    }

    /// Resolves when `ms` have passed.
    pub fn sleep(&self, ms: u32) -> Sleep {
        let key = (self.0.passed.get() + i64::from(ms), self.0.next.get());
        self.0.next.set(key.1 + 1);
        self.0.timers.borrow_mut().insert(key, None);
        Sleep { time: self.0.clone(), key }
    }

    /// Milliseconds until the next timer is due; 0 if one is overdue.
    pub fn next_timer(&self) -> Option<i64> {
        self.0.timers.borrow().keys().next().map(|(due, _)| (due - self.0.passed.get()).max(0))
    }

    /// Lets `ms` pass and wakes every timer that is due then.
    pub fn advance(&self, ms: i64) {
        let passed = self.0.passed.get() + ms.max(0);
        self.0.passed.set(passed);
        let later = self.0.timers.borrow_mut().split_off(&(passed + 1, 0));
        let due = std::mem::replace(&mut *self.0.timers.borrow_mut(), later);
        due.into_values().flatten().for_each(Waker::wake);
    }
}

/// See [`Clock::sleep`]. Dropping it removes the timer.
pub struct Sleep {
    time: Rc<Time>,
    key: (i64, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.time.timers.borrow_mut().get_mut(&self.key) {
            Some(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            // Fired: `advance` took it out.
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.time.timers.borrow_mut().remove(&self.key);
    }
}

/// Named gates. Whoever waits at one goes on when the test opens it. Cloning shares them.
///
/// Scripted answers wait at them ([`crate::testkit::Reply::gate`]), and so can tools of the agent under test.
#[derive(Clone, Default)]
pub struct Gates(Rc<RefCell<GateState>>);

#[derive(Default)]
struct GateState {
    permits: BTreeMap<String, Permits>,
    waiting: BTreeMap<u64, (String, Waker)>,
    next: u64,
}

#[derive(Clone, Copy)]
enum Permits {
    Open,
    Some(u32),
}

impl Gates {
    /// All gates closed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a gate for everybody, now and later.
    pub fn open(&self, name: &str) {
        self.0.borrow_mut().permits.insert(name.into(), Permits::Open);
        self.wake(name);
    }

    /// Lets `n` waiters through, now or later.
    pub fn pass(&self, name: &str, n: u32) {
        {
            let mut state = self.0.borrow_mut();
            let permits = state.permits.entry(name.into()).or_insert(Permits::Some(0));
            if let Permits::Some(left) = permits {
                *left += n;
            }
        }
        self.wake(name);
    }

    /// Goes on when the gate lets one through.
    pub fn wait(&self, name: &str) -> Wait {
        let key = self.0.borrow().next;
        self.0.borrow_mut().next = key + 1;
        Wait { gates: self.clone(), name: name.into(), key }
    }

    /// The names of the gates somebody waits at.
    pub fn waiting(&self) -> Vec<String> {
        self.0.borrow().waiting.values().map(|(name, _)| name.clone()).collect()
    }

    fn wake(&self, name: &str) {
        let wakers: Vec<Waker> = self.0.borrow().waiting.values().filter(|(n, _)| n == name).map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// See [`Gates::wait`].
pub struct Wait {
    gates: Gates,
    name: String,
    key: u64,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.gates.0.borrow_mut();
        match state.permits.get_mut(&self.name) {
            Some(Permits::Open) => {}
            Some(Permits::Some(left)) if *left > 0 => *left -= 1,
            _ => {
                state.waiting.insert(self.key, (self.name.clone(), cx.waker().clone()));
                return Poll::Pending;
            }
        }
        state.waiting.remove(&self.key);
        Poll::Ready(())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.gates.0.borrow_mut().waiting.remove(&self.key);
    }
}

/// Gives everybody else a turn.
pub(super) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn timers_fire_when_due_and_vanish_when_dropped() {
        let clock = Clock::new();
        let start = clock.now();
        let (mut first, mut second, third) = (clock.sleep(10), clock.sleep(30), clock.sleep(5));
        drop(third);
        assert_eq!(clock.next_timer(), Some(10));
        assert_eq!((&mut first).now_or_never(), None);
        clock.advance(10);
        assert_eq!((&mut first).now_or_never(), Some(()));
        assert_eq!((&mut second).now_or_never(), None);
        clock.skew(-3_600_000);
        assert_eq!(clock.now() - start, 10 - 3_600_000);
        clock.advance(20);
        assert_eq!((&mut second).now_or_never(), Some(()));
        assert_eq!(clock.next_timer(), None);
    }

    #[test]
    fn a_gate_lets_through_as_many_as_it_was_told() {
        let gates = Gates::new();
        let (mut a, mut b) = (gates.wait("g"), gates.wait("g"));
        assert_eq!((&mut a).now_or_never(), None);
        assert_eq!((&mut b).now_or_never(), None);
        assert_eq!(gates.waiting(), ["g", "g"]);
        gates.pass("g", 1);
        assert_eq!((&mut a).now_or_never(), Some(()));
        assert_eq!((&mut b).now_or_never(), None);
        gates.open("g");
        assert_eq!((&mut b).now_or_never(), Some(()));
        assert_eq!(gates.wait("g").now_or_never(), Some(()));
        assert!(gates.waiting().is_empty());
    }
}
