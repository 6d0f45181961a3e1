//! Owed response hooks: recorded with the end of their turn, run one at a time in the order turns ended, again after a restart.

use serde::{Deserialize, Serialize};

use super::{
    Engine,
    input::TurnStatus,
    outcome::{ChatResponse, Cx, Effect},
};
use crate::{
    error::Result,
    ids::LegId,
    store::{
        Sql, messages,
        outbox::{self, Owed},
        turns::Turn,
    },
    wire::message::UiMessage,
};

/// A response hook that is due.
pub(super) struct OwedHook {
    leg: LegId,
    row: OwedRow,
    /// The reply, where this incarnation wrote it; else it is read when the hook starts.
    message: Option<UiMessage>,
    recovered: bool,
}

/// The row of an owed response hook.
#[derive(Serialize, Deserialize)]
struct OwedRow {
    request_id: String,
    message_id: Option<String>,
    continuation: bool,
    status: String,
    error: Option<String>,
    #[serde(default)]
    chain: u32,
}

impl OwedHook {
    /// An owed hook that an earlier incarnation did not finish; `None` if its row says nothing.
    pub(super) fn read(owed: &Owed) -> Option<OwedHook> {
        let row = serde_json::from_str(&owed.payload).ok()?;
        Some(OwedHook { leg: owed.leg.clone(), row, message: None, recovered: true })
    }

    fn response(&self, db: &dyn Sql) -> Result<ChatResponse> {
        let message = match (&self.message, &self.row.message_id) {
            (Some(message), _) => Some(message.clone()),
            (None, Some(id)) => messages::get(db, id)?.and_then(|stored| UiMessage::from_row(&stored.body).ok()),
            (None, None) => None,
        };
        let status = match self.row.status.as_str() {
            "completed" => TurnStatus::Completed,
            "aborted" => TurnStatus::Aborted,
            _ => TurnStatus::Error,
        };
        Ok(ChatResponse {
            request_id: self.row.request_id.clone(),
            message,
            continuation: self.row.continuation,
            status,
            error: self.row.error.clone(),
            recovered: self.recovered,
        })
    }
}

impl Engine {
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
        let row = OwedRow {
            request_id: turn.request_id.to_string(),
            message_id: message.as_ref().map(|m| m.id.clone()),
            continuation,
            status: status.as_str().into(),
            error,
            chain: turn.chain,
        };
        let payload = serde_json::to_string(&row).unwrap_or_default();
        let leg = LegId::from(format!("{}.{}", turn.id, turn.attempt));
        outbox::owe(cx.db, &leg, &payload, cx.now)?;
        self.hooks.push_back(OwedHook { leg, row, message, recovered: false });
        Ok(())
    }

    /// Response hooks run one at a time, in the order their turns ended.
    pub(super) fn next_hook(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        if self.hook_runs {
            return Ok(());
        }
        if let Some(hook) = self.hooks.front() {
            let response = hook.response(cx.db)?;
            self.hook_runs = true;
            cx.push(Effect::ResponseHook(hook.leg.clone(), hook.row.chain + 1, Box::new(response)));
        }
        Ok(())
    }

    pub(super) fn response_hook_ended(&mut self, cx: &mut Cx<'_>, leg: &LegId) -> Result<()> {
        self.hook_runs = false;
        if self.hooks.front().is_some_and(|hook| hook.leg == *leg) {
            self.hooks.pop_front();
            outbox::done(cx.db, leg)?;
        }
        Ok(())
    }
}
