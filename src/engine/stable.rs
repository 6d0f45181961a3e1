//! Whether the conversation is at rest, for whoever wants to act only then (`recovery.md` §2.15).

use serde_json::Value;

use super::{
    Engine,
    input::{Answer, ReplyTo},
    outcome::{Cx, Effect},
};
use crate::{
    error::{Error, Result},
    ids::Fence,
    limits,
    store::{calls, turns},
    wire::is_too_deep,
};

impl Engine {
    /// Whether a page or a person can still answer a call, of the running answer, of one between two attempts, or of a parked one. A
    /// server tool never waits for anybody (tools D15).
    pub(super) fn has_pending_interaction(&self, cx: &Cx<'_>) -> Result<bool> {
        let parked = self.parked.iter().map(|parked| &parked.message);
        for message in self.present().filter_map(|turn| turn.reply.as_ref()).chain(parked) {
            if calls::is_asked(cx.db, message)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_stable(&self, cx: &Cx<'_>) -> Result<bool> {
        let idle = !self.is_busy() && !self.something_waits() && self.pending.is_none() && self.promised.is_none();
        Ok(idle && !self.has_pending_interaction(cx)?)
    }

    pub(super) fn wait_until_stable(&mut self, cx: &mut Cx<'_>, reply: Option<ReplyTo>) -> Result<()> {
        self.stable_waiters.extend(reply);
        self.tell_stable(cx)
    }

    /// Answers who waits for rest, once there is some. Runs at the end of every step.
    pub(super) fn tell_stable(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if self.stable_waiters.is_empty() || !self.is_stable(cx)? {
            return Ok(());
        }
        for to in std::mem::take(&mut self.stable_waiters) {
            cx.push(Effect::Reply(to, Ok(Answer::Done)));
        }
        Ok(())
    }

    /// Keeps a value with the running turn. The inner error is the caller's.
    pub(super) fn stash(&mut self, cx: &mut Cx<'_>, fence: &Fence, value: &Value) -> Result<Result<()>> {
        let Some(running) = self.running.as_ref().filter(|r| r.fence == *fence) else {
            return Ok(Err(Error::refused("the turn of this value has ended")));
        };
        let text = value.to_string();
        if is_too_deep(value) || text.len() > limits::STASH {
            let most = limits::STASH;
            return Ok(Err(Error::limit(format!("a value of {} bytes cannot be kept, limit {most} (limits::STASH)", text.len()))));
        }
        turns::stash(cx.db, &running.turn.id, Some(&text))?;
        Ok(Ok(()))
    }
}
