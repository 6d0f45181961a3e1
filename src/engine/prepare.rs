//! What a model is asked with: the agent's plan and the history of the path. Calls in it that nobody will answer are closed before
//! any provider sees them, stored and shown, and the application may put something else in their place (`recovery.md` §3).

use std::rc::Rc;

use super::{
    Engine,
    events::Event,
    input::{Ambiguous, Failure, JobEvent, Prepared, ToolDef},
    outcome::{Cx, Effect},
    turn::Phase,
};
use crate::{
    error::Result,
    ids::{CallId, MessageId},
    model::{ModelError, ModelErrorClass},
    store::{calls, messages},
    transcript::{prompt, repair, sanitise},
    wire::{
        self,
        message::{Part, UiMessage, call_id, is_settled},
    },
};

impl Engine {
    /// The agent said how the turn is to run: read the history and make the first model call.
    pub(super) fn prepared(&mut self, cx: &mut Cx<'_>, plan: Prepared) -> Result<()> {
        let Some(running) = self.running.as_mut().filter(|r| r.phase == Phase::Preparing && r.plan.is_none()) else { return Ok(()) };
        let plan = running.plan.insert(Rc::new(plan));
        let fails = |tool: &&ToolDef| tool.ambiguous == Ambiguous::Fail;
        let lost = match running.turn.reply.as_ref().filter(|_| plan.tools.iter().any(|tool| fails(&tool))) {
            // Asked of the rows: the object may have died again since it found them.
            Some(reply) => calls::lost(cx.db, reply, Some(&running.turn.id))?,
            None => Vec::new(),
        };
        if let Some(tool) = plan.tools.iter().filter(fails).find(|tool| lost.iter().any(|(_, name)| *name == tool.spec.name)) {
            let text = format!("The tool `{}` was interrupted, and nobody knows whether it took effect.", tool.spec.name);
            self.refuse_to_go_on(cx, text);
            return Ok(());
        }
        let is_whole = self.read_history(cx, false)?;
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let orphans = std::mem::take(&mut running.orphans);
        if orphans.is_empty() && is_whole {
            return self.begin_steps(cx);
        }
        // What is to be written is written once the application has spoken: most turns write nothing here.
        cx.push(Effect::RepairParts(running.fence.clone(), orphans));
        Ok(())
    }

    /// The application said what it wants in the place of calls that nobody will answer.
    pub(super) fn parts_repaired(&mut self, cx: &mut Cx<'_>, parts: Vec<(MessageId, CallId, Part)>) -> Result<()> {
        if self.running.as_ref().is_none_or(|r| r.phase != Phase::Preparing || r.plan.is_none()) {
            return Ok(());
        }
        let mut changed = !self.read_history(cx, true)?;
        let replaced = !parts.is_empty();
        for (message, call, part) in parts {
            if let Some(running) = self.running.as_mut().filter(|r| r.reply.id() == &*message) {
                running.reply.replace(&call, &part);
            }
            let Some(stored) = messages::get(cx.db, &message)? else { continue };
            let Ok(mut stored) = UiMessage::from_row(&stored.body) else { continue };
            if let Some(place) = stored.parts.iter_mut().rfind(|part| call_id(part) == Some(&*call)) {
                *place = part;
                self.put_right(cx, &stored)?;
                changed = true;
            }
        }
        if changed {
            self.tell_transcript(cx)?;
        }
        if replaced {
            self.read_history(cx, false)?;
        }
        self.begin_steps(cx)
    }

    /// Reads the messages before the one the turn writes. Whether a provider would take them as they are; if not, and they are to be
    /// mended, they are stored so that it does.
    fn read_history(&mut self, cx: &mut Cx<'_>, mends: bool) -> Result<bool> {
        let Some(running) = self.running.as_ref() else { return Ok(true) };
        let Some(anchor) = running.turn.anchor.clone() else { return Ok(true) };
        let (reply, request) = (running.turn.reply.clone(), running.turn.request_id.clone());
        let (mut history, mut system) = (Vec::new(), String::new());
        let (mut orphans, mut normalised) = (Vec::new(), 0);
        for stored in messages::path(cx.db, &anchor, self.config.hydration_budget)? {
            if reply.as_ref() == Some(&stored.id) {
                // What the turn extends is put together with what it says.
                continue;
            }
            let Ok(mut message) = UiMessage::from_row(&stored.body) else {
                // One message that cannot be read must not silence all that come after it.
                cx.emit(Event::new("message:unreadable").with("messageId", stored.id.as_str()));
                continue;
            };
            if repair::is_broken(&message) {
                let (open, inputs) = repair::close_interrupted(&mut message, |_| false);
                if mends {
                    self.put_right(cx, &message)?;
                }
                normalised += inputs;
                orphans.extend(open.into_iter().map(|part| (stored.id.clone(), part)));
            }
            let words = prompt::system([&message]);
            if !words.is_empty() {
                system.push_str("\n\n");
                system.push_str(&words);
            }
            history.extend(prompt::one(&message).into_iter().map(Rc::new));
        }
        let is_whole = orphans.is_empty() && normalised == 0;
        if mends {
            let closed: Vec<Part> = orphans.into_iter().map(|(_, part)| part).collect();
            self.repaired(cx, &request, &closed, normalised);
        } else if let Some(running) = self.running.as_mut() {
            running.orphans.extend(orphans);
        }
        if let Some(running) = self.running.as_mut() {
            running.history = history;
            running.system = system;
        }
        Ok(is_whole)
    }

    fn put_right(&self, cx: &mut Cx<'_>, message: &UiMessage) -> Result<()> {
        let body = message.json();
        messages::replace(cx.db, &message.id, &body, &sanitise::content_hash(message))?;
        cx.send(self.clients.all(), wire::message_updated(&body));
        Ok(())
    }

    /// Calls that were allowed come first, then the model.
    fn begin_steps(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        if running.history.is_empty() && running.reply.is_empty() {
            self.refuse_to_go_on(cx, "nothing to send to the model: the conversation is empty".into());
            return Ok(());
        }
        if !running.calls.is_empty() {
            return self.run_approved(cx);
        }
        self.next_step(cx);
        Ok(())
    }

    /// No model is asked. Reported as a failed call: that ends the turn in a step of its own, and this one writes nothing.
    fn refuse_to_go_on(&mut self, cx: &mut Cx<'_>, text: String) {
        let Some(running) = self.running.as_mut() else { return };
        let failure = Failure { error: ModelError::new(ModelErrorClass::InvalidRequest, text.clone()), shown: text };
        running.phase = Phase::Model;
        cx.push(Effect::Timer(running.fence.clone(), JobEvent::ModelEnded(Err(Box::new(failure))), 0));
    }
}

/// Whether the application may put this in the place of a call: something a provider takes.
pub(crate) fn is_repair(part: &Part) -> bool {
    part.get("type").is_some_and(serde_json::Value::is_string) && (call_id(part).is_none() || is_settled(part))
}
