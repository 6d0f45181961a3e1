//! The one alarm: it beats while anything runs or is owed, so that the object is neither evicted in mid-turn nor woken for nothing.
//! At rest it stands where the first call that is waited for is overdue, or it is off.

use super::{
    Engine,
    outcome::{AlarmPlan, Cx},
};
use crate::{error::Result, limits, time::Millis};

/// What an alarm is said to be set to that an earlier incarnation set.
pub(super) const UNKNOWN: Millis = Millis(0);

impl Engine {
    /// The alarm that woke this incarnation has its successor already. Told before the first step.
    pub fn armed(&mut self, successor: Millis) {
        self.alarm = Some(successor);
    }

    /// The platform clears the slot before it calls the handler, which arms a successor before anything else.
    pub(super) fn alarm_fired(&mut self, cx: &mut Cx<'_>, successor: Option<Millis>) -> Result<()> {
        self.alarm = successor;
        self.expire(cx)
    }

    /// Runs at the end of every step: an alarm if and only if something is due (I23).
    pub(super) fn plan_alarm(&mut self, cx: &mut Cx<'_>) {
        let active =
            self.running.is_some() || self.waiting.is_some() || self.something_waits() || !self.hooks.is_empty() || self.hook_runs;
        if mutant!(W41) && self.alarm.is_none() && self.running.is_some() {
            return;
        }
        let active = active || mutant!(W27);
        let beat = active.then(|| cx.now + limits::HEARTBEAT_MS);
        let attempt = self.waiting.as_ref().filter(|_| self.running.is_none()).and_then(|turn| turn.not_before);
        let due = self.next_deadline.into_iter().chain(attempt).min();
        let wanted = match (beat, due) {
            (Some(beat), Some(deadline)) => Some(beat.min(deadline)),
            (beat, deadline) => beat.or(deadline),
        };
        // A beat that comes sooner than wanted is left alone: setting the alarm is a write. One that an earlier incarnation set may be at
        // any time, if the clock has stepped back since.
        let stands = active && self.alarm != Some(UNKNOWN) && self.alarm.is_some_and(|at| Some(at) <= wanted);
        if wanted == self.alarm || stands {
            return;
        }
        cx.out.alarm = wanted.map_or(AlarmPlan::Clear, AlarmPlan::Set);
        self.alarm = wanted;
    }
}
