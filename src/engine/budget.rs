//! The bounds of recovery: whether a turn whose segment ended badly gets another attempt, and how long it waits for it.

use std::borrow::Cow;

use crate::{limits, time::Millis};

/// How long a turn is put back to work: `Config::chat_recovery`. Names, defaults and units of `recovery.md` §2.4.
///
/// ```
/// use wakeful::{ChatRecovery, Config};
/// let chat_recovery = ChatRecovery { max_interrupted_attempts: Some(3), ..ChatRecovery::default() };
/// let config = Config { chat_recovery, ..Config::default() };
/// assert_eq!(config.chat_recovery.max_attempts, 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRecovery {
    /// Whether an interrupted turn goes on at all. Without it the turn ends as stopped, with what it has (decision 37).
    pub enabled: bool,
    /// Attempts in a row without durable progress, and retries after errors that waiting may mend, in all; at least 1.
    pub max_attempts: u32,
    /// Milliseconds an attempt waits for work of an earlier one that does not stop; then it is tried again, as often as `max_attempts`.
    pub stable_timeout_ms: u32,
    /// Milliseconds since the last progress. Binds once two attempts ran since.
    pub no_progress_timeout_ms: u32,
    /// Durable segments a turn may write from its first interruption on; `None` for no bound.
    pub max_recovery_work: Option<u64>,
    /// Attempts whose incarnation died, the first run included; at least 1, `None` for no bound. Progress does not reset it.
    pub max_interrupted_attempts: Option<u32>,
    /// Over what `max_interrupted_attempts` counts.
    pub interrupted_scope: InterruptedScope,
    /// Milliseconds since its admission after which an interrupted turn does not go on by itself; `None` for any age. A day is sensible
    /// for an assistant that acts: nobody expects an answer from last week to begin typing.
    pub max_turn_age_ms: Option<u32>,
    /// What clients are told when a turn is given up.
    pub terminal_message: Cow<'static, str>,
}

impl Default for ChatRecovery {
    fn default() -> Self {
        Self {
            enabled: true,
            max_attempts: limits::RECOVERY_ATTEMPTS,
            stable_timeout_ms: limits::STABLE_MS,
            no_progress_timeout_ms: limits::RECOVERY_NO_PROGRESS_MS,
            max_recovery_work: Some(limits::RECOVERY_WORK),
            max_interrupted_attempts: Some(limits::RECOVERY_INTERRUPTED),
            interrupted_scope: InterruptedScope::Turn,
            max_turn_age_ms: None,
            terminal_message: Cow::Borrowed("The assistant was interrupted and could not recover. Please try again."),
        }
    }
}

/// Over what interrupted attempts are counted (decision 11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptedScope {
    /// The turn.
    #[default]
    Turn,
    /// A step of the model: each that ends well starts the count anew. A long turn then survives any number of deployments, and
    /// `max_recovery_work` is what bounds it.
    Step,
}

/// What a turn remembers of its attempts. Columns of `wk_turn`, so that they live as long as the turn (I10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts that came to nothing since the last progress, a burst of deaths for one. The attempt being opened is one more:
    /// see [`Counters::attempt`].
    pub since_progress: u32,
    /// Attempts whose incarnation died, the first run included.
    pub interrupted: u32,
    /// Retries taken after errors that waiting may mend.
    pub transient: u32,
    /// The highest progress an evaluation saw.
    pub progress_seen: i64,
    /// The progress at the first evaluation: what was written before is no work of recovery.
    pub work_base: i64,
    /// When an evaluation last saw progress, or the turn parked.
    pub last_progress_at: Option<Millis>,
    /// When the last evaluation was; `None` before the first.
    pub last_attempt_at: Option<Millis>,
}

impl Counters {
    /// The number of the attempt being opened, from 1, as hooks and events tell it: 1 again after progress.
    pub fn attempt(&self) -> u32 {
        self.since_progress.saturating_add(1)
    }

    /// Whether its leg was interrupted before.
    pub(super) fn is_recovering(&self) -> bool {
        self.last_attempt_at.is_some()
    }

    /// A step of the model ended well and is on disk.
    pub fn step_ended(&mut self, bounds: &ChatRecovery) {
        if bounds.interrupted_scope == InterruptedScope::Step && !mutant!(N3) {
            self.interrupted = 0;
        }
    }
}

/// Why a turn needs another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The incarnation died.
    Interrupted {
        /// Distinct boots among the attempts it left open.
        boots: u32,
    },
    /// The application's stall limit.
    Stalled,
    /// A provider error that waiting may mend.
    Transient,
}

/// Why a turn is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many incarnations died with it.
    InterruptedAttemptsExceeded,
    /// It keeps writing and comes to no end.
    WorkBudgetExceeded,
    /// It wrote nothing for too long.
    NoProgressTimeout,
    /// The application's `should_keep_recovering` said no.
    RecoveryAborted,
    /// Too many attempts came to nothing.
    MaxAttemptsExceeded,
    /// Work of an earlier attempt would not stop.
    StableTimeout,
    /// Its rows cannot be taken up.
    RecoveryError,
    /// Memory ran out, and an incarnation lived to say so (decision 38).
    OutOfMemory,
}

impl Reason {
    /// The reason of this name, in a row.
    pub(super) fn parse(name: &str) -> Reason {
        let all = [
            Reason::InterruptedAttemptsExceeded,
            Reason::WorkBudgetExceeded,
            Reason::NoProgressTimeout,
            Reason::RecoveryAborted,
            Reason::MaxAttemptsExceeded,
            Reason::StableTimeout,
            Reason::OutOfMemory,
        ];
        all.into_iter().find(|reason| reason.as_str() == name).unwrap_or(Reason::RecoveryError)
    }

    /// The name in rows, hooks and events (`recovery.md` §2.8).
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::InterruptedAttemptsExceeded => "interrupted_attempts_exceeded",
            Reason::WorkBudgetExceeded => "work_budget_exceeded",
            Reason::NoProgressTimeout => "no_progress_timeout",
            Reason::RecoveryAborted => "recovery_aborted",
            Reason::MaxAttemptsExceeded => "max_attempts_exceeded",
            Reason::StableTimeout => "stable_timeout",
            Reason::RecoveryError => "recovery_error",
            Reason::OutOfMemory => "out_of_memory",
        }
    }
}

/// What becomes of a turn, and the counters to write either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another attempt.
    Go {
        /// To write with it.
        counters: Counters,
        /// Whether the application's `should_keep_recovering` is asked first: from the second evaluation on, unless parked. A no seals
        /// the turn as [`Reason::RecoveryAborted`]. The engine reads the same from the turn's row, when the attempt begins.
        ask: bool,
    },
    /// No further attempt.
    Seal {
        /// The first that holds, in the order of `recovery.md` §2.8.
        reason: Reason,
        /// To write with it.
        counters: Counters,
    },
}

/// Judges a turn before its next attempt (`recovery.md` §2.8, §6.4). `progress` is the number of segments it ever wrote; `parked` says
/// that it waits for a page or a person, which costs nothing: everything is counted, nothing binds.
///
/// A transient error is judged when it happens, by the retries taken until then, and is counted only if it gets one; then
/// [`backoff`] of the new count is the wait.
pub fn evaluate(before: &Counters, progress: i64, trigger: Trigger, parked: bool, now: Millis, bounds: &ChatRecovery) -> Verdict {
    let forgotten = mutant!(N1) && before.last_attempt_at.is_some_and(|last| age(last, now) > 3_600_000);
    let before = if forgotten { &Counters::default() } else { before };
    let first = before.last_attempt_at.is_none();
    let made = !first && progress > before.progress_seen;
    let debounced = !mutant!(W3)
        && matches!(trigger, Trigger::Interrupted { .. })
        && before.last_attempt_at.is_some_and(|last| is_burst(last, now));
    let mut counters = Counters {
        since_progress: if first || made { 0 } else { before.since_progress.saturating_add(u32::from(!debounced)) },
        interrupted: match trigger {
            _ if mutant!(W1) && made => 0,
            // Before the first evaluation one attempt was opened, and it is the one that died.
            Trigger::Interrupted { boots } => before.interrupted.saturating_add(if first { 1 } else { boots }),
            Trigger::Stalled | Trigger::Transient => before.interrupted,
        },
        transient: before.transient,
        progress_seen: if first { progress } else { progress.max(before.progress_seen) },
        work_base: if first { progress } else { before.work_base },
        last_progress_at: if made || parked { Some(now) } else { before.last_progress_at.or(Some(now)) },
        last_attempt_at: Some(now),
    };
    if !parked && let Some(reason) = exceeded(before, &counters, first, now, bounds) {
        return Verdict::Seal { reason, counters };
    }
    if trigger == Trigger::Transient {
        counters.transient = counters.transient.saturating_add(1);
    }
    Verdict::Go { counters, ask: !first && !parked }
}

/// The first bound that is exceeded, in the order of `recovery.md` §2.8.
fn exceeded(before: &Counters, counters: &Counters, first: bool, now: Millis, bounds: &ChatRecovery) -> Option<Reason> {
    if bounds.max_interrupted_attempts.is_some_and(|most| counters.interrupted >= most.max(1)) {
        return Some(Reason::InterruptedAttemptsExceeded);
    }
    if first {
        return None;
    }
    if mutant!(W1) {
        return None;
    }
    let work = u64::try_from(counters.progress_seen.saturating_sub(counters.work_base)).unwrap_or(0);
    if bounds.max_recovery_work.is_some_and(|most| work > most) {
        return Some(Reason::WorkBudgetExceeded);
    }
    // Two attempts have to have run since: with one alone, the time may be that of an outage or of a clock that jumped (recovery N2).
    // The second one is known by its evaluation, later than the progress, even where a burst counts as one.
    let two = mutant!(N2) || counters.since_progress >= 2 || before.last_attempt_at > before.last_progress_at;
    let idle = counters.last_progress_at.map_or(0, |last| age(last, now));
    if two && idle > i64::from(bounds.no_progress_timeout_ms) {
        return Some(Reason::NoProgressTimeout);
    }
    let most = bounds.max_attempts.max(1);
    (counters.transient >= most || counters.since_progress >= most).then_some(Reason::MaxAttemptsExceeded)
}

/// Whether this death belongs to the one before: a deployment wakes an object many times. A clock that stepped back tells nothing, and
/// must not make a burst of everything until it has caught up.
fn is_burst(last: Millis, now: Millis) -> bool {
    (last <= now || mutant!(N13)) && age(last, now) < limits::RECOVERY_BURST_MS
}

/// [`Millis::since`] for times out of rows, which may be anything.
fn age(earlier: Millis, now: Millis) -> i64 {
    now.0.saturating_sub(earlier.0).max(0)
}

/// Milliseconds before the attempt after the `transient`-th error that waiting may mend: 1, 2, 4, 8, 16, 30, 30 s. A longer wait that the
/// provider asks for is kept up to 60 s.
pub fn backoff(transient: u32, retry_after_ms: Option<u64>) -> u32 {
    let doubled = limits::RECOVERY_BACKOFF_MS.saturating_mul(2_u32.saturating_pow(transient.saturating_sub(1)));
    let asked = retry_after_ms.map_or(0, |ms| u32::try_from(ms).unwrap_or(u32::MAX).min(limits::RECOVERY_RETRY_AFTER_MS));
    doubled.min(limits::RECOVERY_BACKOFF_MOST_MS).max(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_700_000_000_000);
    const DIED: Trigger = Trigger::Interrupted { boots: 1 };

    fn judge(before: &Counters, progress: i64, trigger: Trigger, now: Millis) -> Verdict {
        evaluate(before, progress, trigger, false, now, &ChatRecovery::default())
    }

    fn counters(verdict: Verdict) -> Counters {
        match verdict {
            Verdict::Go { counters, .. } | Verdict::Seal { counters, .. } => counters,
        }
    }

    fn reason(verdict: Verdict) -> Option<Reason> {
        match verdict {
            Verdict::Go { .. } => None,
            Verdict::Seal { reason, .. } => Some(reason),
        }
    }

    fn asks(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Go { ask: true, .. })
    }

    /// A turn that was judged once, so long ago, and wrote nothing since.
    fn judged(ms_ago: i64) -> Counters {
        counters(judge(&Counters::default(), 7, DIED, NOW + -ms_ago))
    }

    /// Ends a turn's segments one after the other until it is sealed: what each was, the milliseconds before it ended, the segments it
    /// wrote. Returns the runs of the model, the first included.
    fn run(bounds: &ChatRecovery, mut next: impl FnMut(usize) -> (Trigger, i64, i64)) -> (usize, Reason) {
        let (mut counters, mut progress, mut now) = (Counters::default(), 0, NOW);
        for runs in 1..100_000 {
            let (trigger, ms, wrote) = next(runs);
            progress += wrote;
            now = now + ms;
            match evaluate(&counters, progress, trigger, false, now, bounds) {
                Verdict::Seal { reason, .. } => return (runs, reason),
                Verdict::Go { counters: after, .. } => counters = after,
            }
        }
        panic!("never sealed");
    }

    // recovery 47: a deployment wakes the object again and again.
    #[test]
    fn a_burst_of_wakes_is_one_attempt() {
        let mut counters = judged(20_000);
        for wake in 0..8 {
            let verdict = judge(&counters, 7, Trigger::Interrupted { boots: 0 }, NOW + (-17_500 + wake * 2_500));
            assert_eq!(reason(verdict), None);
            counters = self::counters(verdict);
            assert_eq!(counters.attempt(), 1, "wake {wake}");
        }
        assert_eq!(self::counters(judge(&counters, 7, DIED, NOW + 30_000)).attempt(), 2);
    }

    // recovery 48
    #[test]
    fn progress_makes_the_next_attempt_the_first_again() {
        let mut counters = judged(0);
        for deploy in 1..4 {
            let verdict = judge(&counters, 7 + deploy, DIED, NOW + deploy * 60_000);
            assert!(asks(verdict), "{verdict:?}");
            counters = self::counters(verdict);
            assert_eq!((counters.attempt(), counters.progress_seen, counters.work_base), (1, 7 + deploy, 7));
        }
        assert_eq!(counters.interrupted, 4, "which no progress takes back");
    }

    // recovery 49, recovery 50, recovery N2: a late alarm is no reason to give up what had one attempt.
    #[test]
    fn the_time_bound_needs_two_attempts() {
        let once = judged(6 * 60_000);
        assert_eq!(reason(judge(&once, 7, Trigger::Stalled, NOW)), None);
        let twice = counters(judge(&once, 7, Trigger::Stalled, NOW + -5 * 60_000));
        assert_eq!(reason(judge(&twice, 7, Trigger::Stalled, NOW)), Some(Reason::NoProgressTimeout));
        assert_eq!(reason(judge(&twice, 8, Trigger::Stalled, NOW)), None, "unless the second wrote something");
        assert_eq!(reason(judge(&twice, 7, Trigger::Stalled, NOW + -60_000)), None, "300 s are not more than 300 s");
    }

    // recovery 54: `maxOomRetries` is deprecated and there is none here: two retries are three interrupted attempts.
    #[test]
    fn interrupted_attempts_count_the_first_run() {
        let bounds = ChatRecovery { max_interrupted_attempts: Some(3), ..ChatRecovery::default() };
        assert_eq!(run(&bounds, |_| (DIED, 60_000, 30)), (3, Reason::InterruptedAttemptsExceeded));
        for least in [0, 1] {
            let bounds = ChatRecovery { max_interrupted_attempts: Some(least), ..ChatRecovery::default() };
            assert_eq!(run(&bounds, |_| (DIED, 60_000, 30)), (1, Reason::InterruptedAttemptsExceeded));
            let stalled = evaluate(&Counters::default(), 0, Trigger::Stalled, false, NOW, &bounds);
            assert_eq!(reason(stalled), None, "a stall is no death");
        }
    }

    // recovery 55: the first evaluation does not ask, nor does one that a bound seals, nor a parked one.
    #[test]
    fn the_application_is_asked_from_the_second_evaluation_on() {
        let first = judge(&Counters::default(), 0, DIED, NOW);
        assert!(matches!(first, Verdict::Go { ask: false, .. }));
        let before = counters(first);
        assert!(asks(judge(&before, 0, DIED, NOW + 60_000)));
        assert!(matches!(evaluate(&before, 0, DIED, true, NOW, &ChatRecovery::default()), Verdict::Go { ask: false, .. }));
        let dying = Counters { interrupted: 4, ..before };
        assert_eq!(reason(judge(&dying, 0, DIED, NOW + 60_000)), Some(Reason::InterruptedAttemptsExceeded));
        assert_eq!(Reason::RecoveryAborted.as_str(), "recovery_aborted");
    }

    // recovery 57: all bounds at once; each row lifts the one that sealed the row above.
    #[test]
    fn the_reason_is_the_first_that_holds() {
        let before =
            Counters { since_progress: 10, transient: 10, interrupted: 4, progress_seen: 10_001, work_base: 0, ..judged(300_001) };
        let bounds = ChatRecovery::default();
        let no_deaths = ChatRecovery { max_interrupted_attempts: None, ..bounds.clone() };
        let no_work = ChatRecovery { max_recovery_work: None, ..no_deaths.clone() };
        let no_time = ChatRecovery { no_progress_timeout_ms: 300_001, ..no_work.clone() };
        let no_attempts = ChatRecovery { max_attempts: 12, ..no_time.clone() };
        for (bounds, expected) in [
            (&bounds, Some(Reason::InterruptedAttemptsExceeded)),
            (&no_deaths, Some(Reason::WorkBudgetExceeded)),
            (&no_work, Some(Reason::NoProgressTimeout)),
            (&no_time, Some(Reason::MaxAttemptsExceeded)),
            (&no_attempts, None),
        ] {
            let before = Counters { last_attempt_at: Some(NOW + -30_000), ..before };
            assert_eq!(reason(evaluate(&before, 10_001, DIED, false, NOW, bounds)), expected);
            assert_eq!(reason(evaluate(&before, 10_001, DIED, true, NOW, bounds)), None, "parked, nothing binds");
        }
    }

    // recovery 61
    #[test]
    fn a_clock_that_jumps_ahead_seals_nothing_by_itself() {
        for trigger in [DIED, Trigger::Stalled, Trigger::Transient] {
            let verdict = judge(&judged(0), 7, trigger, NOW + 2 * 3_600_000);
            assert!(asks(verdict), "{verdict:?}");
            assert_eq!(counters(verdict).attempt(), 2);
        }
    }

    // recovery 62, recovery N13: no age is negative, and a step back does not make a burst of whatever follows.
    #[test]
    fn a_clock_that_steps_back_neither_seals_nor_freezes() {
        let verdict = judge(&judged(0), 7, DIED, NOW + -3_600_000);
        assert!(asks(verdict), "{verdict:?}");
        let after = counters(verdict);
        assert_eq!((after.attempt(), after.last_attempt_at), (2, Some(NOW + -3_600_000)));
        let back_again = counters(judge(&after, 7, DIED, NOW + -3_590_000));
        assert_eq!(back_again.attempt(), 2, "from there on, bursts are told as ever");
        for wild in [i64::MIN, i64::MAX] {
            let rows =
                Counters { last_attempt_at: Some(Millis(wild)), last_progress_at: Some(Millis(-wild.saturating_add(1))), ..after };
            counters(judge(&rows, i64::MIN, DIED, NOW));
        }
    }

    // recovery 68, recovery 67
    #[test]
    fn waits_double_and_a_longer_one_may_be_asked_for() {
        let waits: Vec<u32> = (0..=8).map(|n| backoff(n, None)).collect();
        assert_eq!(waits, [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(backoff(u32::MAX, None), 30_000);
        for (asked, expected) in [(0, 4_000), (3_999, 4_000), (45_000, 45_000), (600_000, 60_000), (u64::MAX, 60_000)] {
            assert_eq!(backoff(3, Some(asked)), expected, "{asked}");
        }
        let mut counters = Counters::default();
        for expected in [1_000, 2_000, 4_000, 8_000, 16_000] {
            counters = self::counters(judge(&counters, 0, Trigger::Transient, NOW));
            assert_eq!(backoff(counters.transient, None), expected);
        }
    }

    // recovery 43, 45, 46, 51, 52, 53, 66: each as the sequence of evaluations it comes to. I10.
    #[test]
    fn every_way_to_fail_ends() {
        let usual = ChatRecovery::default();
        let immortal = ChatRecovery { max_interrupted_attempts: None, ..ChatRecovery::default() };
        let patient = ChatRecovery { no_progress_timeout_ms: 600_000, ..ChatRecovery::default() };
        let little = ChatRecovery { max_recovery_work: Some(3), ..ChatRecovery::default() };
        let wakes = |n: usize| if n.is_multiple_of(2) { Trigger::Interrupted { boots: 0 } } else { DIED };
        type Next = Box<dyn Fn(usize) -> (Trigger, i64, i64)>;
        let rows: Vec<(&ChatRecovery, Next, usize, Reason)> = vec![
            (&usual, Box::new(|_| (DIED, 60_000, 3)), 5, Reason::InterruptedAttemptsExceeded),
            (&usual, Box::new(|_| (DIED, 70 * 60_000, 3)), 5, Reason::InterruptedAttemptsExceeded),
            (&usual, Box::new(move |n| (wakes(n), 60_000, 3)), 9, Reason::InterruptedAttemptsExceeded),
            (&usual, Box::new(|_| (Trigger::Stalled, 2_000, 0)), 11, Reason::MaxAttemptsExceeded),
            (&usual, Box::new(|_| (Trigger::Stalled, 30_000, 0)), 11, Reason::MaxAttemptsExceeded),
            // Ten times 31 s are more than 300 s, and that reason comes first.
            (&usual, Box::new(|_| (Trigger::Stalled, 31_000, 0)), 11, Reason::NoProgressTimeout),
            (&patient, Box::new(|_| (Trigger::Stalled, 31_000, 0)), 11, Reason::MaxAttemptsExceeded),
            (&usual, Box::new(|_| (Trigger::Transient, 500, 0)), 11, Reason::MaxAttemptsExceeded),
            (&usual, Box::new(|_| (Trigger::Transient, 60_000, 1)), 11, Reason::MaxAttemptsExceeded),
            (&usual, Box::new(|_| (Trigger::Stalled, 60_000, 1)), 10_002, Reason::WorkBudgetExceeded),
            (&little, Box::new(|_| (Trigger::Stalled, 60_000, 2)), 3, Reason::WorkBudgetExceeded),
            (&immortal, Box::new(|n| (DIED, 60_000, i64::from(n <= 50))), 56, Reason::NoProgressTimeout),
            // Inside one burst for ever: the attempts are never more than one, the time bound has to see that they are.
            (&immortal, Box::new(|_| (DIED, 20_000, 0)), 17, Reason::NoProgressTimeout),
        ];
        for (at, (bounds, next, runs, reason)) in rows.into_iter().enumerate() {
            assert_eq!(run(bounds, next), (runs, reason), "row {at}");
        }
    }

    #[test]
    fn whatever_happens_without_progress_is_fifteen_runs_at_most() {
        let mut draw = Draw(1);
        for _ in 0..2_000 {
            let (runs, _) = run(&ChatRecovery::default(), |_| {
                let trigger = draw.of(&[DIED, Trigger::Stalled, Trigger::Transient]);
                (trigger, draw.of(&[-3_600_000, 0, 1_000, 29_999, 30_000, 301_000, 7_200_000]), 0)
            });
            assert!(runs <= 15, "{runs}");
        }
    }

    #[test]
    fn a_step_that_ends_well_starts_the_count_anew_where_that_is_its_scope() {
        let step = ChatRecovery { interrupted_scope: InterruptedScope::Step, ..ChatRecovery::default() };
        for (bounds, left) in [(&step, 0), (&ChatRecovery::default(), 1)] {
            let mut counters = judged(0);
            counters.step_ended(bounds);
            assert_eq!(counters, Counters { interrupted: left, ..judged(0) });
        }
    }

    #[test]
    fn reasons_have_the_names_of_the_original() {
        let names = "interrupted_attempts_exceeded work_budget_exceeded no_progress_timeout recovery_aborted max_attempts_exceeded \
                     stable_timeout recovery_error out_of_memory";
        let reasons = [
            Reason::InterruptedAttemptsExceeded,
            Reason::WorkBudgetExceeded,
            Reason::NoProgressTimeout,
            Reason::RecoveryAborted,
            Reason::MaxAttemptsExceeded,
            Reason::StableTimeout,
            Reason::RecoveryError,
            Reason::OutOfMemory,
        ];
        assert_eq!(reasons.map(Reason::as_str).join(" "), names);
    }

    /// What is to be expected around the thresholds, from facts that are written beside the inputs: at most 3 attempts, 3 segments of work,
    /// 3 interrupted attempts, 300 s.
    mod table {
        use super::*;

        pub const BOUNDS: ChatRecovery = ChatRecovery {
            enabled: true,
            max_attempts: 3,
            stable_timeout_ms: 10_000,
            no_progress_timeout_ms: 300_000,
            max_recovery_work: Some(3),
            max_interrupted_attempts: Some(3),
            interrupted_scope: InterruptedScope::Turn,
            max_turn_age_ms: None,
            terminal_message: Cow::Borrowed(""),
        };
        const fn died(boots: u32) -> Trigger {
            Trigger::Interrupted { boots }
        }
        /// Interrupted attempts before, what happened, after, too many.
        pub const DEATHS: [(u32, Trigger, u32, bool); 11] = [
            (0, died(0), 0, false),
            (0, died(2), 2, false),
            (1, died(1), 2, false),
            (1, died(2), 3, true),
            (2, died(0), 2, false),
            (2, died(1), 3, true),
            (9, died(0), 9, true),
            (2, Trigger::Stalled, 2, false),
            (3, Trigger::Stalled, 3, true),
            (2, Trigger::Transient, 2, false),
            (3, Trigger::Transient, 3, true),
        ];
        /// Milliseconds since the last evaluation and since the last progress; whether a death now is of the same burst, whether it is
        /// late without progress, whether both were one evaluation.
        pub const TIMES: [(i64, i64, bool, bool, bool); 12] = [
            (-3_600_000, -3_600_000, false, false, true),
            (-1, 29_999, false, false, false),
            (-1, 300_001, false, true, false),
            (0, 0, true, false, true),
            (29_999, 29_999, true, false, true),
            (29_999, 300_000, true, false, false),
            (29_999, 300_001, true, true, false),
            (30_000, 30_000, false, false, true),
            (30_000, 300_000, false, false, false),
            (30_000, 300_001, false, true, false),
            (300_001, 300_001, false, true, true),
            (7_200_000, 7_200_000, false, true, true),
        ];
        /// Fruitless attempts before; after a death of the same burst, and whether they are spent then; after anything else, and
        /// whether then.
        pub const ATTEMPTS: [(u32, u32, bool, u32, bool); 4] =
            [(0, 0, false, 1, false), (1, 1, false, 2, false), (2, 2, false, 3, true), (3, 3, true, 4, true)];
        /// Highest progress before, now; whether that is progress; the highest after. The base is 10.
        pub const PROGRESS: [(i64, i64, bool, i64, bool); 7] = [
            (10, 9, false, 10, false),
            (10, 10, false, 10, false),
            (10, 13, true, 13, false),
            (10, 14, true, 14, true),
            (13, 13, false, 13, false),
            (13, 14, true, 14, true),
            (14, 0, false, 14, true),
        ];
        /// Retries taken, whether they are spent.
        pub const RETRIES: [(u32, bool); 3] = [(2, false), (3, true), (4, true)];
        /// Parked, deaths, work, late, two attempts since progress, attempts or retries spent: the first row that fits. `-` fits both.
        pub const VERDICTS: [(&str, Option<Reason>); 6] = [
            ("1-----", None),
            ("01----", Some(Reason::InterruptedAttemptsExceeded)),
            ("001---", Some(Reason::WorkBudgetExceeded)),
            ("00011-", Some(Reason::NoProgressTimeout)),
            ("000--1", Some(Reason::MaxAttemptsExceeded)),
            ("000--0", None),
        ];

        pub fn verdict(facts: [bool; 6]) -> Option<Reason> {
            let fits = |row: &str| row.chars().zip(facts).all(|(want, fact)| want == '-' || (want == '1') == fact);
            VERDICTS.iter().find(|(row, _)| fits(row)).unwrap().1
        }
    }

    #[test]
    fn around_each_threshold_the_table_holds() {
        let mut cases = 0;
        for (interrupted, trigger, deaths, dead) in table::DEATHS {
            for (gap, idle, burst, late, one) in table::TIMES {
                for (since_progress, burst_since, burst_spent, since, spent) in table::ATTEMPTS {
                    for (seen, progress, made, highest, overworked) in table::PROGRESS {
                        for ((transient, refused), parked) in table::RETRIES.into_iter().flat_map(|r| [(r, false), (r, true)]) {
                            let before = Counters {
                                since_progress,
                                interrupted,
                                transient,
                                progress_seen: seen,
                                work_base: 10,
                                last_progress_at: Some(NOW + -idle),
                                last_attempt_at: Some(NOW + -gap),
                            };
                            let died = !matches!(trigger, Trigger::Stalled | Trigger::Transient);
                            let (since, spent) = match (made, died && burst) {
                                (true, _) => (0, false),
                                (false, true) => (burst_since, burst_spent),
                                (false, false) => (since, spent),
                            };
                            let two = !one || since >= 2;
                            let sealed = table::verdict([parked, dead, overworked, late && !made, two, spent || refused]);
                            let counters = Counters {
                                since_progress: since,
                                interrupted: deaths,
                                transient: transient + u32::from(trigger == Trigger::Transient && sealed.is_none()),
                                progress_seen: highest,
                                work_base: 10,
                                last_progress_at: if made || parked { Some(NOW) } else { before.last_progress_at },
                                last_attempt_at: Some(NOW),
                            };
                            let expected = match sealed {
                                Some(reason) => Verdict::Seal { reason, counters },
                                None => Verdict::Go { counters, ask: !parked },
                            };
                            let found = evaluate(&before, progress, trigger, parked, NOW, &table::BOUNDS);
                            assert_eq!(found, expected, "{before:?} {progress} {trigger:?} {parked}");
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(cases, 11 * 12 * 4 * 7 * 6);
    }

    /// Repeatable draws that the test against the original makes as well (`tests/e2e/peer/budget.test.mjs`).
    struct Draw(u32);

    impl Draw {
        fn of<T: Copy>(&mut self, values: &[T]) -> T {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // The low bits of such a generator have short periods.
            values[(self.0 >> 16) as usize % values.len()]
        }
    }

    /// One drawn input and our answer to it, as a line.
    fn answer(draw: &mut Draw) -> String {
        let bounds = ChatRecovery {
            max_attempts: draw.of(&[1, 2, 3, 10]),
            no_progress_timeout_ms: draw.of(&[0, 10_000, 300_000, 300_000]),
            max_recovery_work: draw.of(&[None, Some(0), Some(3), Some(3)]),
            max_interrupted_attempts: draw.of(&[None, Some(1), Some(3), Some(5), Some(5)]),
            ..ChatRecovery::default()
        };
        let first = draw.of(&[true, false, false, false, false, false, false, false]);
        let mut before = Counters {
            since_progress: draw.of(&[0, 0, 1, 1, 2, 3, 8, 9, 10]),
            interrupted: draw.of(&[0, 0, 1, 1, 2, 3, 4, 5]),
            transient: draw.of(&[0, 0, 0, 1, 2, 3, 9, 10]),
            progress_seen: draw.of(&[0, 5, 20]),
            ..Counters::default()
        };
        before.work_base = (before.progress_seen - draw.of(&[0, 0, 1, 2, 3, 4])).max(0);
        let last = NOW + -draw.of(&[-3_600_000, -1, 0, 1, 29_999, 30_000, 60_000, 300_001]);
        before.last_attempt_at = Some(last);
        let earlier = draw.of(&[None, Some(0), Some(0), Some(0), Some(1), Some(9_999), Some(270_001), Some(300_000), Some(-5_000)]);
        before.last_progress_at = earlier.map(|ms: i64| last + -ms);
        let progress = (before.progress_seen + draw.of(&[-1, 0, 0, 0, 0, 1, 4])).max(0);
        let [died, none, two] = [1, 0, 2].map(|boots| Trigger::Interrupted { boots });
        let trigger = draw.of(&[died, died, none, two, Trigger::Stalled, Trigger::Transient]);
        let parked = draw.of(&[true, false, false, false, false]);
        let keep = draw.of(&[true, true, false]);
        if first {
            before = Counters::default();
        }
        let verdict = evaluate(&before, progress, trigger, parked, NOW, &bounds);
        // Who asks and hears a no seals the turn.
        let reason = if asks(verdict) && !keep { Some(Reason::RecoveryAborted) } else { reason(verdict) };
        let after = counters(verdict);
        let transient = if reason == Some(Reason::RecoveryAborted) { before.transient } else { after.transient };
        format!(
            "{} asked:{} attempt:{} interrupted:{} transient:{transient} progress:{}-{} at:{}/{}",
            reason.map_or("go", Reason::as_str),
            asks(verdict),
            after.attempt(),
            after.interrupted,
            after.work_base,
            after.progress_seen,
            NOW.0 - after.last_progress_at.unwrap().0,
            NOW.0 - after.last_attempt_at.unwrap().0,
        )
    }

    /// FNV-1a of lines.
    fn hash<'a>(lines: impl IntoIterator<Item = &'a String>) -> u32 {
        let bytes = lines.into_iter().flat_map(|line| line.bytes().chain([b'\n']));
        bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    // recovery 63: this writes down what ours answers; `tests/e2e/peer/budget.test.mjs` asks the original the same. `BLESS=1` accepts a
    // change, `BUDGET_ANSWERS=file` writes every answer there.
    #[test]
    fn the_answers_that_are_compared_with_the_original_are_these() {
        let mut draw = Draw(0);
        let answers: Vec<String> = (0..100_000).map(|_| answer(&mut draw)).collect();
        let mut waits = Vec::new();
        for transient in 1..=12 {
            for asked in [None, Some(0), Some(1), Some(29), Some(31), Some(45), Some(60), Some(61), Some(600)] {
                waits.push((backoff(transient, asked.map(|seconds| seconds * 1_000)) / 1_000).to_string());
            }
        }
        if let Some(file) = std::env::var_os("BUDGET_ANSWERS") {
            std::fs::write(file, answers.join("\n")).unwrap();
        }
        let mut found = format!("backoff {:08x}\n", hash(&waits));
        for (block, answers) in answers.chunks(1_000).enumerate() {
            found.push_str(&format!("{block} {:08x}\n", hash(answers)));
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/recovery/budget.txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == found, "answers changed; BLESS=1 accepts that, and `npm run e2e:peer` says whether they still agree");
    }
}
