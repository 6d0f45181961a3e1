//! The first step of an incarnation: what the last one left is taken up or brought to rest.

use super::{
    Engine,
    endings::Took,
    events::Event,
    input::{ConnMeta, TurnStatus},
    outcome::Cx,
};
use crate::{
    error::Result,
    ids::ConnId,
    store::{calls, messages, streams, turns},
    transcript::{
        reducer::Accumulator,
        repair::{self, Close},
    },
    wire::{self, Ending, Terminal, message::UiMessage},
};

impl Engine {
    pub(super) fn boot(&mut self, cx: &mut Cx<'_>, sockets: Vec<(ConnId, ConnMeta)>) -> Result<()> {
        for (conn, meta) in sockets {
            self.clients.add_survivor(conn, meta);
        }
        let owed = std::mem::take(&mut self.owed_at_boot);
        self.take_over_hooks(cx, owed)?;
        let interrupted = self.dead.take();
        if mutant!(W8) {
            self.spend_parked(cx)?;
        }
        let lost = interrupted.is_some() || !self.queue.is_empty();
        // Sockets that outlived an attempt of recovery still show it.
        self.recovering = self.recovering.take().or_else(|| {
            interrupted
                .as_ref()
                .filter(|(turn, _)| turn.counters.last_attempt_at.is_some())
                .map(|(turn, _)| (turn.root.clone(), cx.now))
        });
        match interrupted {
            Some((turn, stream)) if self.config.chat_recovery.enabled => {
                let fault = self.fault.take().filter(|(blamed, _)| *blamed == turn.id).map(|(_, fault)| fault);
                self.take_up(cx, turn, &stream, fault)?;
            }
            Some((turn, stream)) => self.end_interrupted(cx, &turn, stream)?,
            None => {}
        }
        self.resume_awaiting(cx)?;
        let waits = self.parked.as_ref().map(|parked| parked.message.clone());
        if let Some(message) = waits.as_ref().filter(|_| !self.clients.not_awaiting().is_empty()) {
            // A decision that the application was asked about is lost, and so may be a result that could not be stored: its tab shows
            // it, and may wait for what would have followed.
            if let Some(stored) = messages::get(cx.db, message)? {
                cx.send(self.clients.all(), wire::message_updated(&stored.body));
            }
        }
        if lost || waits.is_some() {
            // Who was promised a stream that had not begun is known no more: they see the next one live. Others do not mind.
            cx.send(self.clients.not_awaiting(), wire::resume_none(None, None));
        }
        Ok(())
    }

    /// A leg whose incarnation died ends `aborted`: what was on disk of its answer is stored, its log is offered (decision 37).
    fn end_interrupted(&mut self, cx: &mut Cx<'_>, turn: &turns::Turn, stream: String) -> Result<()> {
        let reply = turn.reply.clone().unwrap_or_else(|| turn.id.as_str().into());
        let before = messages::get(cx.db, &reply)?;
        let extends = before.is_some();
        let before = before.map(|stored| UiMessage::from_row(&stored.body));
        // Bringing a turn to rest must not depend on what it wrote into.
        let unreadable = matches!(before, Some(Err(_)));
        let mut reply_message = match before {
            Some(Ok(message)) => Accumulator::extending(message),
            Some(Err(_)) | None => Accumulator::new(&reply),
        };
        streams::replay(cx.db, &stream, &mut |_, text| {
            if let Some(chunk) = wire::chunk::Chunk::parse(text) {
                reply_message.apply(&chunk);
            }
            Ok(())
        })?;
        for call in calls::open(cx.db, &reply)?.iter().filter(|call| call.state == calls::State::Started) {
            // Its message may say that it was only allowed: that it started is in its row.
            reply_message.give_up(&call.call, repair::INTERRUPTED);
        }
        let mut message = reply_message.into_message();
        repair::close(&mut message, Close::Interrupted);
        calls::settle_open(cx.db, &reply, "repair", cx.now)?;
        let stored = !unreadable && self.store_reply(cx, turn, extends, &mut message)?;
        turns::drop_attempts(cx.db, &turn.id)?;
        turns::finish(cx.db, &turn.id, "aborted", Some("interrupted"), cx.now)?;
        let terminal = Terminal {
            id: turn.request_id.clone(),
            ending: Ending::Aborted,
            body: String::new(),
            message_ids: turn.origin_ids.clone(),
            continuation: extends,
        };
        // A turn of the application leaves an older notice up; with its row goes its log.
        self.take_down_notice(cx)?;
        let notice = streams::Notice { stream, terminal: terminal.clone() };
        streams::put_notice(cx.db, &turn.id, &notice)?;
        self.notice = Some(notice);
        // Sockets that outlived the object still show the turn as running (wire X7).
        self.tell_transcript(cx)?;
        cx.send(self.clients.all(), wire::terminal(&terminal));
        // Also where nothing was on disk: what was shown and lost must not stay on a screen, and a tab keeps its own copy of an answer
        // until that has ended.
        self.tell_transcript(cx)?;
        if stored {
            cx.send(self.clients.all(), wire::message_updated(&message.json()));
        }
        self.remember_ending(terminal);
        self.recovered(cx);
        let message_id = stored.then(|| message.id.clone());
        self.end_submission(cx, turn, Ending::Error, message_id, Some("interrupted".into()))?;
        self.owe_response(cx, turn, stored.then_some(message), TurnStatus::Aborted, None, extends)?;
        self.finished(cx, turn, extends, TurnStatus::Aborted.as_str(), Some("interrupted"), Took::default());
        cx.emit(
            Event::new("chat:turn:interrupted")
                .with("requestId", turn.request_id.as_str())
                .with("trigger", turn.trigger.as_str())
                .with("partial", stored),
        );
        Ok(())
    }

    /// What must not happen to a turn that waits for a person (recovery W8).
    fn spend_parked(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(parked) = self.parked.take() else { return Ok(()) };
        let mut turn = parked.turn;
        turn.counters.interrupted += 1;
        turns::retry(cx.db, &turn)?;
        turns::park(cx.db, &turn.id)?;
        if turn.counters.interrupted >= 5 {
            return self.give_up(cx, turn, super::budget::Reason::InterruptedAttemptsExceeded, Took::default());
        }
        self.parked = Some(super::barrier::Parked { turn, message: parked.message });
        Ok(())
    }
}
