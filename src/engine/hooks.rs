//! Owed hooks: recorded with the end of their turn, run one at a time in the order turns ended, again after a restart.

use serde::{Deserialize, Serialize};

use super::{
    Engine,
    budget::Reason,
    events::Event,
    input::TurnStatus,
    outcome::{ChatResponse, Cx, Effect, RecoveryExhausted, RecoveryKind},
};
use crate::{
    error::Result,
    ids::LegId,
    limits,
    store::{
        Sql, messages,
        outbox::{self, Hook, Owed},
        turns::Turn,
    },
    time::Millis,
    wire::message::UiMessage,
};

/// A hook that is due.
pub(super) struct OwedHook {
    leg: LegId,
    call: Call,
}

enum Call {
    Response {
        row: ResponseRow,
        /// The reply, where this incarnation wrote it; else it is read when the hook starts.
        message: Option<UiMessage>,
        recovered: bool,
    },
    Exhausted(ExhaustedRow),
}

/// The row of an owed response hook.
#[derive(Serialize, Deserialize)]
struct ResponseRow {
    request_id: String,
    message_id: Option<String>,
    continuation: bool,
    status: String,
    error: Option<String>,
    #[serde(default)]
    chain: u32,
}

/// The row of an owed `on_exhausted`. What there was of the answer is in its message.
#[derive(Serialize, Deserialize)]
pub(super) struct ExhaustedRow {
    pub(super) incident_id: String,
    pub(super) root_request_id: String,
    pub(super) request_id: String,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) retries: bool,
    pub(super) stream_id: String,
    pub(super) created_at: i64,
    pub(super) reason: String,
    pub(super) terminal_message: String,
    pub(super) message_id: Option<String>,
}

impl OwedHook {
    /// An owed hook that an earlier incarnation did not finish; `None` if its row says nothing.
    fn read(owed: &Owed) -> Option<OwedHook> {
        let call = match owed.hook {
            Hook::Response => Call::Response { row: serde_json::from_str(&owed.payload).ok()?, message: None, recovered: true },
            Hook::Exhausted => Call::Exhausted(serde_json::from_str(&owed.payload).ok()?),
        };
        Some(OwedHook { leg: owed.leg.clone(), call })
    }

    fn effect(&self, db: &dyn Sql) -> Result<Effect> {
        Ok(match &self.call {
            Call::Response { row, message, recovered } => {
                let response = ChatResponse {
                    request_id: row.request_id.clone(),
                    message: match message {
                        Some(message) => Some(message.clone()),
                        None => stored(db, row.message_id.as_deref())?,
                    },
                    continuation: row.continuation,
                    status: match row.status.as_str() {
                        "completed" => TurnStatus::Completed,
                        "aborted" => TurnStatus::Aborted,
                        _ => TurnStatus::Error,
                    },
                    error: row.error.clone(),
                    recovered: *recovered,
                };
                Effect::ResponseHook(self.leg.clone(), row.chain + 1, Box::new(response))
            }
            Call::Exhausted(row) => {
                let partial = stored(db, row.message_id.as_deref())?;
                let exhausted = RecoveryExhausted {
                    incident_id: row.incident_id.clone(),
                    root_request_id: row.root_request_id.clone(),
                    request_id: row.request_id.clone(),
                    attempt: row.attempt,
                    max_attempts: row.max_attempts,
                    kind: if row.retries { RecoveryKind::Retry } else { RecoveryKind::Continue },
                    stream_id: row.stream_id.clone(),
                    created_at: Millis(row.created_at),
                    reason: Reason::parse(&row.reason),
                    terminal_message: row.terminal_message.clone(),
                    partial_text: partial.as_ref().map(UiMessage::text).unwrap_or_default(),
                    partial_parts: partial.map(|message| message.parts).unwrap_or_default(),
                };
                Effect::Exhausted(self.leg.clone(), Box::new(exhausted))
            }
        })
    }
}

fn stored(db: &dyn Sql, id: Option<&str>) -> Result<Option<UiMessage>> {
    let Some(id) = id else { return Ok(None) };
    Ok(messages::get(db, id)?.and_then(|stored| UiMessage::from_row(&stored.body).ok()))
}

impl Engine {
    /// Hooks that an earlier incarnation owed are started again, unless they were often enough.
    pub(super) fn take_over_hooks(&mut self, cx: &mut Cx<'_>, owed: Vec<Owed>) -> Result<()> {
        for row in owed {
            let given_up = Event::new("hook:given_up").with("hook", row.hook.name());
            match OwedHook::read(&row).filter(|_| row.claims <= limits::OUTBOX_CLAIMS || mutant!(W30)) {
                Some(hook) => {
                    outbox::claim(cx.db, &row.leg)?;
                    self.hooks.push_back(hook);
                }
                None => {
                    outbox::done(cx.db, &row.leg)?;
                    cx.emit(given_up.with("claims", row.claims));
                }
            }
        }
        Ok(())
    }

    /// Owes the hook of a turn that ends in this transaction.
    pub(super) fn owe_response(
        &mut self,
        cx: &mut Cx<'_>,
        turn: &Turn,
        message: Option<UiMessage>,
        status: TurnStatus,
        error: Option<String>,
        continuation: bool,
    ) -> Result<()> {
        let row = ResponseRow {
            request_id: turn.request_id.to_string(),
            message_id: message.as_ref().map(|m| m.id.clone()),
            continuation,
            status: status.as_str().into(),
            error,
            chain: turn.chain,
        };
        let leg = LegId::from(format!("{}.{}", turn.id, turn.attempt));
        let payload = serde_json::to_string(&row).unwrap_or_default();
        self.owe(cx, leg, Hook::Response, &payload, Call::Response { row, message, recovered: false })
    }

    /// Owes the hook of a turn that is given up in this transaction.
    pub(super) fn owe_exhausted(&mut self, cx: &mut Cx<'_>, row: ExhaustedRow) -> Result<()> {
        let leg = LegId::from(format!("exhausted:{}", row.incident_id));
        let payload = serde_json::to_string(&row).unwrap_or_default();
        self.owe(cx, leg, Hook::Exhausted, &payload, Call::Exhausted(row))
    }

    fn owe(&mut self, cx: &mut Cx<'_>, leg: LegId, hook: Hook, payload: &str, call: Call) -> Result<()> {
        outbox::owe(cx.db, &leg, hook, payload, cx.now)?;
        self.hooks.push_back(OwedHook { leg, call });
        Ok(())
    }

    /// Owed hooks run one at a time, in the order their turns ended.
    pub(super) fn next_hook(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if self.hook_runs {
            return Ok(());
        }
        if let Some(hook) = self.hooks.front() {
            let effect = hook.effect(cx.db)?;
            self.hook_runs = true;
            cx.push(effect);
        }
        Ok(())
    }

    pub(super) fn hook_ended(&mut self, cx: &mut Cx<'_>, leg: &LegId) -> Result<()> {
        self.hook_runs = false;
        if self.hooks.front().is_some_and(|hook| hook.leg == *leg) {
            self.hooks.pop_front();
            if !mutant!(N5) {
                outbox::done(cx.db, leg)?;
            }
        }
        Ok(())
    }
}
