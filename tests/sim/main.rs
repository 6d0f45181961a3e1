//! The simulator's long tests: lives drawn from a seed (`lives`), and scripts whose object dies at every point there is (`crash`).
//!
//! A plain `cargo test` takes a sample of both. `npm test` lives 10,000 seeds and dies everywhere, in an optimised build;
//! `npm run sim -- --seeds 1000000` goes on for as long as one likes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests say so by panicking

/// A life is mostly small allocations, and there are millions of lives.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod crash;
mod lives;
mod rows;
mod scripts;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// What is known to be wrong: in which script (empty for all, and for random lives), in which words, and why. Empty is where this is
/// going.
const KNOWN: &[(&str, &str)] = &[];

fn is_known(script: &str, line: &str) -> bool {
    KNOWN.iter().any(|(of, words)| (of.is_empty() || *of == script) && line.contains(words))
}

/// A number that was set for this run.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Whether everything is to be tried, not a sample.
fn thorough() -> bool {
    number("WAKEFUL_SEEDS").is_some()
}

/// Counts what was done, and how fast.
struct Pace {
    began: Instant,
    done: AtomicU64,
    told: AtomicU64,
}

#[allow(clippy::disallowed_methods)] // how quick the machine is, is no part of any life
fn now() -> Instant {
    Instant::now()
}

impl Pace {
    fn new() -> Self {
        Self { began: now(), done: AtomicU64::new(0), told: AtomicU64::new(0) }
    }

    fn seconds(&self) -> f64 {
        now().duration_since(self.began).as_secs_f64()
    }

    /// One more. How many there were before.
    fn count(&self) -> u64 {
        self.done.fetch_add(1, Ordering::Relaxed)
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether ten seconds have passed since this was last so.
    fn is_time_to_tell(&self) -> bool {
        let tens = (self.seconds() / 10.0) as u64;
        self.told.fetch_max(tens, Ordering::Relaxed) < tens
    }

    fn said(&self) -> String {
        format!("{} in {:.0} s, {:.0} a second", self.done(), self.seconds(), self.done() as f64 / self.seconds())
    }
}

/// What a caught panic says.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a text".into())
}

/// Does each of `work` on all cores; what failed, in the order of the work.
fn on_all_cores<T: Sync>(work: &[T], run: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let next = AtomicU64::new(0);
    let failed: Mutex<Vec<(usize, Vec<String>)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(each) = work.get(at) else { return };
                    let broken = run(each);
                    if !broken.is_empty() {
                        failed.lock().unwrap().push((at, broken));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    failed.into_iter().flat_map(|(_, broken)| broken).collect()
}
