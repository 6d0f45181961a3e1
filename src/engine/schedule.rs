//! The one alarm: it beats while anything runs or is owed, so that the object is neither evicted in mid-turn nor woken for nothing.

use super::{
    Engine,
    outcome::{AlarmPlan, Cx},
};
use crate::limits;

impl Engine {
    /// The platform clears the slot before it calls the handler.
    pub(super) fn alarm_fired(&mut self, _cx: &mut Cx<'_>) {
        self.armed = false;
    }

    /// Runs at the end of every step: an alarm if and only if something is due (I23).
    pub(super) fn plan_alarm(&mut self, cx: &mut Cx<'_>) {
        let active = self.running.is_some() || !self.queue.is_empty() || !self.hooks.is_empty() || self.hook_runs;
        if active && !self.armed {
            cx.out.alarm = AlarmPlan::Set(cx.now + limits::HEARTBEAT_MS);
            self.armed = true;
        } else if !active && self.armed {
            cx.out.alarm = AlarmPlan::Clear;
            self.armed = false;
        }
    }
}
