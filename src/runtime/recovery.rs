//! The work between two attempts of a turn: waiting for the disk and for what still runs, and asking the application.

use std::rc::Rc;

use futures_util::future::{Either, select};

use super::{Runtime, platform::Platform};
use crate::{
    agent::{Agent, handle::AgentHandle},
    engine::{
        events::Event,
        input::{Input, JobEvent, RecoveryDecision},
        outcome::{RecoveryExhausted, RecoveryInfo},
        prepare::is_repair,
    },
    ids::{Fence, LegId, MessageId},
    runtime::platform::Cancel,
    wire::message::{Part, call_id},
};

/// A tool that runs. It may outlive its attempt: an application's code hears a stop only if it listens.
pub(super) struct AtWork {
    fence: Fence,
    ended: Cancel,
}

/// Says that a tool has ended when it goes out of scope.
pub(super) struct Leave<A: Agent, P: Platform> {
    runtime: Rc<Runtime<A, P>>,
    ended: Cancel,
}

impl<A: Agent, P: Platform> Drop for Leave<A, P> {
    fn drop(&mut self) {
        self.ended.trip();
        self.runtime.at_work.borrow_mut().retain(|work| !work.ended.is_tripped());
    }
}

impl<A: Agent, P: Platform> Runtime<A, P> {
    /// A tool of this attempt runs until the answer is dropped.
    pub(super) fn at_work(self: &Rc<Self>, fence: &Fence) -> Leave<A, P> {
        let ended = Cancel::new();
        self.at_work.borrow_mut().push(AtWork { fence: fence.clone(), ended: ended.clone() });
        Leave { runtime: self.clone(), ended }
    }

    /// A tool of an earlier attempt of the same turn that still runs here.
    fn straggler(&self, fence: &Fence) -> Option<Cancel> {
        let at_work = self.at_work.borrow();
        let earlier = at_work.iter().find(|work| work.fence.turn == fence.turn && work.fence != *fence);
        earlier.map(|work| work.ended.clone())
    }

    /// Reports once the attempt is on disk, and nothing of an earlier one runs any more: what follows may kill the object, and has to be
    /// counted then.
    pub(super) fn confirm(self: &Rc<Self>, fence: Fence) {
        let this = self.clone();
        let on_disk = self.platform.sync();
        self.start(Box::pin(async move {
            on_disk.await;
            let mut event = JobEvent::Recover;
            if this.straggler(&fence).is_some() {
                let all_ended = async {
                    while let Some(ended) = this.straggler(&fence) {
                        ended.tripped().await;
                    }
                };
                let timeout = this.platform.sleep(this.agent.config().chat_recovery.stable_timeout_ms);
                if let Either::Right(_) = select(Box::pin(all_ended), timeout).await {
                    event = JobEvent::Unstable;
                }
            }
            this.post(Input::Job(fence, event));
        }));
    }

    /// Asks what becomes of an interrupted turn. No answer in time is the default.
    pub(super) fn recovery_hook(self: &Rc<Self>, fence: Fence, ask: bool, info: RecoveryInfo) {
        let this = self.clone();
        self.start(Box::pin(async move {
            let handle = AgentHandle::new(this.clone(), false);
            let keep = !ask || {
                let asked = this.deadline("should_keep_recovering", this.agent.should_keep_recovering(&info)).await;
                asked.and_then(|keep| keep).unwrap_or_else(|error| {
                    this.failed_hook("should_keep_recovering", &info.incident_id, error.message());
                    true
                })
            };
            let decision = if keep {
                match this.deadline("on_chat_recovery", this.agent.on_chat_recovery(&handle, &info)).await {
                    Ok(Ok(decision)) => Ok(decision),
                    Ok(Err(error)) => Err(error.message().to_owned()),
                    Err(late) => {
                        this.failed_hook("on_chat_recovery", &info.incident_id, late.message());
                        Ok(RecoveryDecision::default())
                    }
                }
            } else {
                Ok(RecoveryDecision { aborted: true, ..RecoveryDecision::default() })
            };
            this.post(Input::Job(fence, JobEvent::RecoveryDecided(decision)));
        }));
    }

    fn failed_hook(&self, hook: &'static str, incident: &str, reason: &str) {
        self.observe(&Event::new("hook:failed").with("hook", hook).with("incidentId", incident).with("reason", reason));
    }

    /// The hook of a turn that was given up.
    pub(super) fn exhausted(self: &Rc<Self>, leg: LegId, exhausted: RecoveryExhausted) {
        let this = self.clone();
        self.owed_hook(leg, async move {
            this.bounded("on_exhausted", None, this.agent.on_exhausted(&exhausted)).await;
        });
    }

    /// Asks what the application wants in the place of calls that nobody will answer.
    pub(super) fn repair_parts(self: &Rc<Self>, fence: Fence, parts: Vec<(MessageId, Part)>) {
        let mut repaired = Vec::new();
        for (message, part) in parts {
            let Some(other) = self.agent.repair_interrupted_tool_part(&part) else { continue };
            let Some(call) = call_id(&part).filter(|_| is_repair(&other)) else {
                let event = Event::new("hook:failed").with("hook", "repair_interrupted_tool_part");
                self.observe(&event.with("messageId", message.as_str()).with("reason", "neither a settled call nor another part"));
                continue;
            };
            repaired.push((message, call.into(), other));
        }
        self.post(Input::Job(fence, JobEvent::PartsRepaired(repaired)));
    }
}
