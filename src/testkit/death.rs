//! How an object dies, and where: at any of the points between two things it does that the world can tell apart.
//!
//! A point is where the object touches the world: its store, a socket, the network, application code. What happens between two
//! touches cannot be told from outside, so dying at each point once is dying everywhere once (recovery §6.8).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

/// How an object dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is gone: memory, jobs and sockets with it. Every commit had reached the disk.
    Hard,
    /// The isolate ran out of memory: as [`Death::Hard`], and commits that were not yet confirmed are lost, with all that was held
    /// back for them.
    Memory,
    /// A panic: the memory of the program is gone, and what the isolate holds survives. Sockets stay attached, and jobs of the old
    /// program go on, but nothing they do arrives.
    HalfDeath,
    /// Another incarnation took over, and this one does not know: it runs on until it touches its store. Its sockets are closed.
    Zombie,
}

impl Death {
    /// Every kind.
    pub const ALL: [Death; 4] = [Death::Hard, Death::Memory, Death::HalfDeath, Death::Zombie];
}

/// Where inside a step of the object it dies. Between two steps it dies by [`World::die`](crate::testkit::World::die).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillPoint {
    /// Something was delivered (a frame, an alarm, the result of a tool or hook), and its transaction has not begun.
    BeforeStep,
    /// The transaction has done its work and is not committed.
    BeforeCommit,
    /// The store refuses the commit and resets the object.
    CommitRefused,
    /// It is committed, and nothing of what was to follow has happened.
    AfterCommit,
    /// Between two effects of one step: before a frame, a model call, a tool, a hook.
    BeforeEffect,
    /// During an effect: half of the recipients have the frame; the provider has the request, and nothing came back.
    DuringEffect,
}

impl KillPoint {
    /// Every kind.
    pub const ALL: [KillPoint; 6] = [
        KillPoint::BeforeStep,
        KillPoint::BeforeCommit,
        KillPoint::CommitRefused,
        KillPoint::AfterCommit,
        KillPoint::BeforeEffect,
        KillPoint::DuringEffect,
    ];
}

/// What a point that was reached means for whoever reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Go on.
    Lives,
    /// Nothing more may happen: see [`stop`].
    Stops,
    /// Storage belongs to somebody else from here on.
    Superseded,
}

/// Which death waits where, and how often each point was reached.
#[derive(Default)]
pub(super) struct Fate {
    waiting: RefCell<VecDeque<(KillPoint, u32, Death)>>,
    reached: [Cell<u32>; KillPoint::ALL.len()],
    struck: Cell<Option<Death>>,
}

impl Fate {
    pub(super) fn plan(&self, point: KillPoint, nth: u32, death: Death) {
        self.waiting.borrow_mut().push_back((point, nth, death));
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    pub(super) fn forget(&self) {
        self.waiting.borrow_mut().clear();
    }

    pub(super) fn reached(&self, point: KillPoint) -> u32 {
        self.reached[point as usize].get()
    }

    /// A point is reached.
    pub(super) fn reach(&self, point: KillPoint) -> Verdict {
        if self.struck.get().is_some() {
            // A zombie, or an object that is about to be reset: it is dead already.
            return Verdict::Lives;
        }
        let reached = &self.reached[point as usize];
        reached.set(reached.get() + 1);
        let mut waiting = self.waiting.borrow_mut();
        let Some((_, left, death)) = waiting.front_mut().filter(|(at, ..)| *at == point) else { return Verdict::Lives };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return Verdict::Lives;
        }
        let death = *death;
        waiting.pop_front();
        self.struck.set(Some(death));
        if death == Death::Zombie { Verdict::Superseded } else { Verdict::Stops }
    }

    /// The store resets the object: an error of that class was raised.
    pub(super) fn reset(&self) {
        if self.struck.get().is_none() {
            self.struck.set(Some(Death::Memory));
        }
    }

    /// The death that struck and has not been carried out.
    pub(super) fn take(&self) -> Option<Death> {
        self.struck.take()
    }
}

/// What an unwinding stretch of a dying object carries.
pub(super) struct Died;

/// Stops the object where it stands. The world catches this at the end of the event; no hook of a panic runs.
pub(super) fn stop() -> ! {
    std::panic::resume_unwind(Box::new(Died))
}

pub(super) type SharedFate = Rc<Fate>;
