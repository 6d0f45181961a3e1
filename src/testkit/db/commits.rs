//! Commits, and what a crash leaves of them. Each is a savepoint that stays open until it is flushed, so that the newest can be lost.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use super::{Db, FaultAt, SUPERSEDED};
use crate::{
    error::{Error, Result},
    testkit::death::{self, KillPoint, SharedFate, Verdict},
    time::Millis,
};

/// What an incarnation is told whose commit could not be written.
const RESET: &str = "Error: Durable Object storage operation exceeded timeout which caused object to be reset.";

/// Looks at the rows after a commit.
pub(super) type Look = Rc<dyn Fn(&Db)>;

/// What a transaction that is taken back restores besides rows.
#[derive(Clone, Copy)]
pub(super) struct Before {
    alarm: Option<Millis>,
    schema: u64,
}

/// A transaction under way. Whatever ends it early, a death in its middle among it, takes it back.
struct Open<'a> {
    db: &'a Db,
    savepoint: &'a str,
    depth: u32,
    before: Before,
    done: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.db.shared.depth.set(self.depth);
        if !self.done
            && let Err(error) = self.db.take_back(self.savepoint, self.before)
        {
            panic!("a transaction cannot be taken back: {error}");
        }
    }
}

impl Db {
    /// Looks at the rows after every commit.
    pub fn watch(&self, look: impl Fn(&Db) + 'static) {
        *self.shared.watch.borrow_mut() = Some(Rc::new(look));
    }

    /// Commits that a crash may still lose.
    pub fn pending_commits(&self) -> usize {
        self.shared.pending.borrow().len()
    }

    /// Commits that crashes lost so far.
    pub fn lost_commits(&self) -> u64 {
        self.shared.lost.get()
    }

    /// Everything committed reaches the disk.
    pub(in crate::testkit) fn flush(&self) {
        if self.shared.pending.take().is_empty() {
            return;
        }
        self.command("RELEASE p0").expect("a savepoint that is open");
        self.shared.flushed.set(self.shared.transactions.get());
        self.shared.held.take().into_iter().for_each(Waker::wake);
    }

    /// A crash: of the commits that are pending, the first `keep` are kept.
    pub(in crate::testkit) fn crash(&self, keep: usize) {
        let lost = self.shared.pending.borrow_mut().split_off(keep);
        if let Some(before) = lost.first() {
            self.shared.lost.set(self.shared.lost.get() + lost.len() as u64);
            self.take_back(&format!("p{keep}"), *before).expect("a savepoint that is open");
        }
        self.flush();
        self.shared.flushed.set(self.shared.transactions.get());
    }

    /// Resolves when everything that is committed now is on disk.
    pub(in crate::testkit) fn durable(&self) -> impl Future<Output = ()> + use<> {
        let (shared, until) = (self.shared.clone(), self.shared.transactions.get());
        poll_fn(move |cx| {
            if shared.pending.borrow().is_empty() || shared.flushed.get() >= until {
                return Poll::Ready(());
            }
            shared.held.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    }

    pub(in crate::testkit) fn fate(&self) -> SharedFate {
        self.shared.fate.clone()
    }

    /// Whether another incarnation owns the rows now.
    pub(in crate::testkit) fn is_superseded(&self) -> bool {
        self.life != self.shared.life.get()
    }

    /// Makes every handle so far useless, where no new one is there yet.
    pub(in crate::testkit) fn revoke(&self) {
        self.shared.life.set(self.shared.life.get() + 1);
    }

    /// A point is reached at which the object may die.
    fn reach(&self, point: KillPoint) -> Result<()> {
        match self.shared.fate.reach(point) {
            Verdict::Lives => Ok(()),
            Verdict::Stops if point == KillPoint::CommitRefused => Err(Error::storage(RESET)),
            Verdict::Stops => death::stop(),
            Verdict::Superseded => {
                self.revoke();
                if point == KillPoint::AfterCommit { Ok(()) } else { Err(Error::storage(SUPERSEDED)) }
            }
        }
    }

    /// Takes back everything since a savepoint.
    fn take_back(&self, savepoint: &str, before: Before) -> Result<()> {
        self.shared.alarm.set(before.alarm);
        self.shared.schema.set(before.schema);
        // A full disk and the like end the transaction by themselves; there is nothing left to roll back then.
        if self.shared.opened.conn.is_autocommit() {
            return Ok(());
        }
        self.command(&format!("ROLLBACK TO {savepoint}"))?;
        self.command(&format!("RELEASE {savepoint}"))
    }

    /// One transaction: all of it or nothing, and a crash may still take it back.
    pub(in crate::testkit) fn commit(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.alive()?;
        let depth = self.shared.depth.get();
        if depth == 0 {
            self.reach(KillPoint::BeforeStep)?;
        }
        self.strike(|at| *at == FaultAt::Begin)?;
        // Nested ones are savepoints, as with the platform's `transactionSync`.
        let savepoint = if depth == 0 { format!("p{}", self.pending_commits()) } else { format!("t{depth}") };
        let before = Before { alarm: self.shared.alarm.get(), schema: self.shared.schema.get() };
        self.command(&format!("SAVEPOINT {savepoint}"))?;
        self.shared.depth.set(depth + 1);
        let mut open = Open { db: self, savepoint: &savepoint, depth, before, done: false };
        body()?;
        if depth > 0 {
            self.command(&format!("RELEASE {savepoint}"))?;
            open.done = true;
            return Ok(());
        }
        self.reach(KillPoint::BeforeCommit)?;
        self.reach(KillPoint::CommitRefused)?;
        self.strike(|at| *at == FaultAt::Commit)?;
        self.shared.pending.borrow_mut().push(before);
        self.shared.transactions.set(self.shared.transactions.get() + 1);
        open.done = true;
        drop(open);
        let watch = self.shared.watch.borrow().clone();
        if let Some(look) = watch {
            look(self);
        }
        self.reach(KillPoint::AfterCommit)
    }
}
