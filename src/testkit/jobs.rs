//! The executor: jobs, and who of them can go on.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::{BTreeMap, VecDeque},
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
};

use futures_util::future::LocalBoxFuture;

/// The executor: jobs, and who of them can go on.
pub(super) struct Jobs {
    all: RefCell<BTreeMap<u64, Job>>,
    ready: RefCell<VecDeque<u64>>,
    /// Wakers must be `Send`, so all they hold is the end of a channel.
    woken: mpsc::Receiver<u64>,
    waker: mpsc::Sender<u64>,
    next: Cell<u64>,
}

struct Job {
    /// The incarnation that started it.
    life: u64,
    /// Away while it is polled.
    work: Option<LocalBoxFuture<'static, ()>>,
}

impl Default for Jobs {
    fn default() -> Self {
        let (waker, woken) = mpsc::channel();
        Self { all: RefCell::default(), ready: RefCell::default(), woken, waker, next: Cell::new(0) }
    }
}

struct JobWaker {
    job: u64,
    woken: mpsc::Sender<u64>,
}

impl Wake for JobWaker {
    fn wake(self: Arc<Self>) {
        // Nobody listens any more when the world is gone.
        let _ = self.woken.send(self.job);
    }
}

impl Jobs {
    pub(super) fn spawn(&self, life: u64, job: LocalBoxFuture<'static, ()>) {
        let id = self.next.get();
        self.next.set(id + 1);
        self.all.borrow_mut().insert(id, Job { life, work: Some(job) });
        self.ready.borrow_mut().push_back(id);
    }

    pub(super) fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// The jobs that can go on, in the order they were woken.
    fn queue(&self) -> RefMut<'_, VecDeque<u64>> {
        let mut ready = self.ready.borrow_mut();
        for job in self.woken.try_iter() {
            if !ready.contains(&job) {
                ready.push_back(job);
            }
        }
        ready
    }

    pub(super) fn ready_count(&self) -> usize {
        self.queue().len()
    }

    /// Takes the n-th ready job.
    pub(super) fn ready(&self, n: usize) -> Option<u64> {
        self.queue().remove(n)
    }

    pub(super) fn poll(&self, id: u64) {
        // Nothing stays borrowed while a job runs: it may spawn others.
        let Some(mut job) = self.all.borrow_mut().get_mut(&id).and_then(|job| job.work.take()) else { return };
        let waker = Waker::from(Arc::new(JobWaker { job: id, woken: self.waker.clone() }));
        // A job that dies in its middle is gone, whatever becomes of the others.
        let mut place = Place { jobs: self, id, ended: true };
        if job.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            place.ended = false;
            if let Some(slot) = self.all.borrow_mut().get_mut(&id) {
                slot.work = Some(job);
            }
        }
    }

    /// Drops the jobs of earlier incarnations where they stand.
    pub(super) fn bury(&self, living: u64) {
        let (alive, dead) = std::mem::take(&mut *self.all.borrow_mut()).into_iter().partition(|(_, job)| job.life == living);
        *self.all.borrow_mut() = alive;
        drop(dead);
    }

    /// Drops every job where it stands.
    pub(super) fn clear(&self) {
        let dead = std::mem::take(&mut *self.all.borrow_mut());
        self.queue().clear();
        drop(dead);
    }
}

/// The place of a job while it is polled. Whatever ends it takes it away.
struct Place<'a> {
    jobs: &'a Jobs,
    id: u64,
    ended: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.ended {
            self.jobs.all.borrow_mut().remove(&self.id);
        }
    }
}
