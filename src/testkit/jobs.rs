//! The executor: jobs, and who of them can go on.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::{BTreeMap, VecDeque},
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
};

use futures_util::future::LocalBoxFuture;

/// The executor: jobs, and who of them can go on.
pub(super) struct Jobs {
    all: RefCell<BTreeMap<u64, Option<LocalBoxFuture<'static, ()>>>>,
    ready: RefCell<VecDeque<u64>>,
    /// Wakers must be `Send`, so all they hold is the end of a channel.
    woken: mpsc::Receiver<u64>,
    waker: mpsc::Sender<u64>,
    next: Cell<u64>,
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
    pub(super) fn spawn(&self, job: LocalBoxFuture<'static, ()>) {
        let id = self.next.get();
        self.next.set(id + 1);
        self.all.borrow_mut().insert(id, Some(job));
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
        let Some(mut job) = self.all.borrow_mut().get_mut(&id).and_then(Option::take) else { return };
        let waker = Waker::from(Arc::new(JobWaker { job: id, woken: self.waker.clone() }));
        let ended = job.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(());
        let mut all = self.all.borrow_mut();
        if ended {
            all.remove(&id);
            drop(all);
        } else if let Some(slot) = all.get_mut(&id) {
            *slot = Some(job);
        }
    }

    /// Drops every job where it stands.
    pub(super) fn clear(&self) {
        let dead = std::mem::take(&mut *self.all.borrow_mut());
        self.queue().clear();
        drop(dead);
    }
}
