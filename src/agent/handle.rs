//! What application code may do with its conversation: [`AgentHandle`] may wait for turns, [`TurnScope`] runs inside one and may not.

use std::{future::Future, pin::pin, rc::Rc};

use futures_channel::oneshot;
use futures_util::future::{Either, LocalBoxFuture, select};
use serde_json::{Value, json};

use super::turn::Turn;
use crate::{
    engine::input::{Answer, Command, Place, TurnResult, TurnStatus},
    error::{Error, Result},
    ids::{CallId, ConnId, Fence, RequestId},
    runtime::platform::{Cancel, Tripped},
    time::Millis,
    wire::message::UiMessage,
};

/// The runtime as application code reaches it.
pub(crate) trait Mailbox {
    /// Steps a command; the answer may come at once or when a turn ends.
    fn ask(self: Rc<Self>, command: Command) -> oneshot::Receiver<Result<Answer>>;
    /// A new id.
    fn mint(&self) -> String;
    /// The clock.
    fn now(&self) -> Millis;
    /// Waits.
    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()>;
    /// Whether code of a running turn is being polled right now.
    fn inside_turn(&self) -> bool;
    /// Whether `on_submission_status` is being polled right now.
    fn inside_status_hook(&self) -> bool;
    /// Sends a binary frame.
    fn send_binary(&self, conn: &ConnId, bytes: &[u8]);
    /// Runs a job in the background.
    fn spawn(&self, job: LocalBoxFuture<'static, ()>);
    /// Nothing more is heard of the model of the running turn.
    fn silence_model(&self);
    /// Ends this incarnation.
    fn abort_object(&self, reason: &str);
}

/// A way to the conversation from hooks, callables and HTTP handlers.
#[derive(Clone)]
pub struct AgentHandle {
    pub(super) mailbox: Rc<dyn Mailbox>,
    readonly: bool,
    pub(super) chain: u32,
}

impl AgentHandle {
    pub(crate) fn new(mailbox: Rc<dyn Mailbox>, readonly: bool) -> Self {
        Self { mailbox, readonly, chain: 0 }
    }

    /// The handle of a response hook: the turns it starts know how many hooks led to them.
    pub(crate) fn of_hook(mailbox: Rc<dyn Mailbox>, chain: u32) -> Self {
        Self { mailbox, readonly: false, chain }
    }

    /// Appends messages, shows them to everyone, and has them answered. Empty input is skipped.
    ///
    /// A message is a UI message as JSON; one without an `id` gets one. [`UiMessage::user`] makes the usual kind.
    ///
    /// # Errors
    /// Called from inside a turn of the same agent; a message that is none; an id that exists.
    pub async fn save_messages(&self, messages: Vec<UiMessage>) -> Result<TurnResult> {
        self.may_change()?;
        self.may_wait("programmatic")?;
        self.turn(self.save(messages, None, None)).await
    }

    /// [`save_messages`](Self::save_messages) that can be called off: with `signal` tripped before, nothing is stored and no model is
    /// asked; later, the turn is stopped.
    ///
    /// # Errors
    /// As `save_messages`.
    pub async fn save_messages_until(&self, messages: Vec<UiMessage>, signal: &Cancel) -> Result<TurnResult> {
        self.may_change()?;
        self.may_wait("programmatic")?;
        if signal.is_tripped() {
            return Ok(TurnResult { status: TurnStatus::Aborted, ..TurnResult::default() });
        }
        let id = RequestId::from(self.mailbox.mint());
        let turn = self.turn(self.save(messages, None, Some(id.clone())));
        match select(pin!(turn), signal.tripped()).await {
            Either::Left((result, _)) => result,
            Either::Right(((), turn)) => {
                self.done(Command::Abort(id)).await?;
                turn.await
            }
        }
    }

    fn save(&self, messages: Vec<UiMessage>, metadata: Option<Value>, request_id: Option<RequestId>) -> Command {
        Command::SaveMessages { messages: values(messages), metadata, request_id, chain: self.chain }
    }

    /// [`save_messages`](Self::save_messages) with metadata for the reply.
    ///
    /// # Errors
    /// As `save_messages`.
    pub async fn save_messages_with(&self, messages: Vec<UiMessage>, metadata: Value) -> Result<TurnResult> {
        self.may_change()?;
        self.may_wait("programmatic")?;
        self.turn(self.save(messages, Some(metadata), None)).await
    }

    /// Lets the last assistant message go on, in place. Skipped if the conversation does not end in one.
    ///
    /// # Errors
    /// Called from inside a turn of the same agent.
    pub async fn continue_last_turn(&self, body: Option<Value>) -> Result<TurnResult> {
        self.may_change()?;
        self.may_wait("programmatic")?;
        self.turn(Command::ContinueLastTurn { body, chain: self.chain }).await
    }

    /// Appends messages without a turn; messages that exist are left as they are.
    ///
    /// # Errors
    /// A message that is none.
    pub async fn add_messages(&self, messages: Vec<UiMessage>) -> Result<()> {
        self.may_change()?;
        self.done(Command::AddMessages { messages: values(messages), upsert: false, place: Place::End }).await
    }

    /// Adds messages without a turn somewhere else than at the end; they become the end of the conversation.
    ///
    /// # Errors
    /// A message that is none; nothing is there to add it after.
    pub async fn add_messages_at(&self, place: Place, messages: Vec<UiMessage>) -> Result<()> {
        self.may_change()?;
        self.done(Command::AddMessages { messages: values(messages), upsert: false, place }).await
    }

    /// Appends messages without a turn; messages that exist are replaced.
    ///
    /// # Errors
    /// A message that is none.
    pub async fn upsert_messages(&self, messages: Vec<UiMessage>) -> Result<()> {
        self.may_change()?;
        self.done(Command::AddMessages { messages: values(messages), upsert: true, place: Place::End }).await
    }

    /// Forgets the conversation and tells everyone.
    ///
    /// # Errors
    /// The database failed.
    pub async fn clear_messages(&self) -> Result<()> {
        self.may_change()?;
        self.done(Command::Clear).await
    }

    /// The newest part of the conversation, as much as clients are sent.
    ///
    /// # Errors
    /// The database failed.
    pub async fn messages(&self) -> Result<Vec<UiMessage>> {
        match self.ask(Command::GetMessages).await? {
            Answer::Messages(texts) => texts.iter().map(|text| UiMessage::from_row(text)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// The shared state, if it was ever set.
    ///
    /// # Errors
    /// The database failed.
    pub async fn state(&self) -> Result<Option<Value>> {
        match self.ask(Command::GetState).await? {
            Answer::State(state) => Ok(state),
            _ => Ok(None),
        }
    }

    /// Sets the shared state and sends it to every client.
    ///
    /// # Errors
    /// It is too large, or the call came over a read-only connection.
    pub async fn set_state(&self, state: Value) -> Result<()> {
        self.may_change()?;
        self.done(Command::SetState { state, source: None }).await
    }

    /// Stops a request, running or waiting. Unknown ids are ignored.
    ///
    /// # Errors
    /// The database failed.
    pub async fn abort_request(&self, id: &str) -> Result<()> {
        self.may_change()?;
        self.done(Command::Abort(RequestId::from(id))).await
    }

    /// Stops everything that runs or waits.
    ///
    /// # Errors
    /// The database failed.
    pub async fn abort_all_requests(&self) -> Result<()> {
        self.may_change()?;
        self.done(Command::AbortAll).await
    }

    /// Lets a page have more time for a call that has a deadline: so many milliseconds from now.
    ///
    /// # Errors
    /// The call is not waited for, or without a deadline.
    pub async fn extend_client_tool_wait(&self, call: &str, ms: u32) -> Result<()> {
        self.may_change()?;
        self.done(Command::ExtendWait(CallId::from(call), ms)).await
    }

    /// Sends a text frame of the application to every socket.
    ///
    /// # Errors
    /// The object is going away.
    pub async fn broadcast(&self, text: impl Into<String>) -> Result<()> {
        self.done(Command::Broadcast(text.into())).await
    }

    /// Sends a text frame of the application to one socket.
    ///
    /// # Errors
    /// The object is going away.
    pub async fn send(&self, conn: &ConnId, text: impl Into<String>) -> Result<()> {
        self.done(Command::SendTo(conn.clone(), text.into())).await
    }

    /// Sends a binary frame of the application to one socket.
    pub fn send_binary(&self, conn: &ConnId, bytes: &[u8]) {
        self.mailbox.send_binary(conn, bytes);
    }

    /// Closes a socket. 1008 and 4000–4999 are final for stock clients, anything else is retried.
    ///
    /// # Errors
    /// The object is going away.
    pub async fn close(&self, conn: &ConnId, code: u16, reason: impl Into<String>) -> Result<()> {
        self.done(Command::CloseConn(conn.clone(), code, reason.into())).await
    }

    /// Whether a page or a person can still answer a call: a tool of a page that runs, an approval that is asked for. A server tool is
    /// never waited for.
    ///
    /// # Errors
    /// The database failed.
    pub async fn has_pending_interaction(&self) -> Result<bool> {
        match self.ask(Command::HasPendingInteraction).await? {
            Answer::Is(yes) => Ok(yes),
            _ => Ok(false),
        }
    }

    /// Waits until nothing is under way: no turn runs, recovers or waits for its slot, and nobody's answer is waited for. `false` if
    /// that did not come within so many milliseconds; without a number it waits as long as the object lives.
    ///
    /// # Errors
    /// Called from inside a turn, which would wait for itself; the database failed.
    pub async fn wait_until_stable(&self, timeout_ms: Option<u32>) -> Result<bool> {
        self.may_wait("waitUntilStable")?;
        let stable = pin!(self.done(Command::WaitUntilStable));
        let Some(ms) = timeout_ms else { return stable.await.map(|()| true) };
        match select(stable, self.mailbox.sleep(ms)).await {
            Either::Left((done, _)) => done.map(|()| true),
            Either::Right(_) => Ok(false),
        }
    }

    /// Lets the model of the running answer fall silent, as where a connection has died and nobody noticed. What brings the turn back
    /// is [`crate::Config::chat_stream_stall_timeout_ms`], or the limits that hold without it. For tests and demonstrations of that.
    pub fn silence_model(&self) {
        self.mailbox.silence_model();
    }

    /// Ends the object where it stands, as a deploy or a crash does: its sockets close, what was not committed is lost, and its turn
    /// goes on as [`crate::Config::chat_recovery`] says. For tests and demonstrations of exactly that.
    pub fn abort_object(&self, reason: &str) {
        self.mailbox.abort_object(reason);
    }

    /// The clock.
    pub fn now(&self) -> Millis {
        self.mailbox.now()
    }

    /// Waits. Keeps the object from hibernating meanwhile.
    pub fn sleep(&self, ms: u32) -> impl Future<Output = ()> + use<> {
        self.mailbox.sleep(ms)
    }

    /// Runs `job` in the background until it ends or the object dies. Nothing of it survives a death, and nobody starts it again.
    pub fn spawn(&self, job: impl Future<Output = ()> + 'static) {
        self.mailbox.spawn(Box::pin(job));
    }

    pub(super) fn may_wait(&self, trigger: &str) -> Result<()> {
        if self.mailbox.inside_turn() {
            // The turn would wait for itself (`turns-and-tools.md` §2.2). The text is stable.
            return Err(Error::refused(format!(
                "turn admission ({trigger}) refused: this code already runs inside a turn of the same agent; use submit mode or addMessages"
            )));
        }
        Ok(())
    }

    pub(super) fn may_change(&self) -> Result<()> {
        if self.readonly { Err(Error::refused("Connection is readonly")) } else { Ok(()) }
    }

    pub(super) async fn ask(&self, command: Command) -> Result<Answer> {
        let answer = self.mailbox.clone().ask(command);
        answer.await.unwrap_or_else(|_| Err(Error::platform("the object was restarted before it could answer")))
    }

    async fn done(&self, command: Command) -> Result<()> {
        self.ask(command).await.map(|_| ())
    }

    async fn turn(&self, command: Command) -> Result<TurnResult> {
        match self.ask(command).await? {
            Answer::Turn(result) => Ok(result),
            _ => Err(Error::platform("the turn gave no result")),
        }
    }
}

pub(super) fn values(messages: Vec<UiMessage>) -> Vec<Value> {
    messages.into_iter().map(UiMessage::into_value).collect()
}

/// What a running tool may do. Nothing here waits for a turn.
#[derive(Clone)]
pub struct TurnScope {
    pub(crate) mailbox: Rc<dyn Mailbox>,
    pub(crate) turn: Rc<Turn>,
    pub(crate) fence: Fence,
    pub(crate) call: CallId,
    pub(crate) step: u32,
    pub(crate) key: String,
    pub(crate) cancel: Cancel,
}

impl TurnScope {
    /// The turn this tool runs in.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The call this tool answers.
    pub fn call_id(&self) -> &str {
        &self.call
    }

    /// The model call that asked for it, from 1.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Names this call for ever, over restarts: hand it to whatever must not happen twice.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// Whether the turn was stopped. A tool that looks can end early; one that does not gets a grace period.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_tripped()
    }

    /// Waits until the turn is stopped.
    pub fn cancelled(&self) -> Tripped {
        self.cancel.tripped()
    }

    /// Shows an early result, replaced by the final one.
    ///
    /// # Errors
    /// The tool has ended.
    pub async fn preliminary(&self, output: Value) -> Result<()> {
        self.done(Command::Preliminary(self.fence.clone(), self.call.clone(), output)).await
    }

    /// Keeps a value with the turn, in place of the one before: [`on_chat_recovery`](crate::Agent::on_chat_recovery) gets it back as
    /// `recovery_data` if the object dies. A hint: what the answer says is in its log.
    ///
    /// # Errors
    /// It is too large; the turn has ended.
    pub async fn stash(&self, value: Value) -> Result<()> {
        self.done(Command::Stash(self.fence.clone(), value)).await
    }

    /// Adds a `data-NAME` part to the reply; one of the same name and id is replaced.
    ///
    /// # Errors
    /// The turn has ended.
    pub async fn data(&self, name: &str, id: Option<&str>, data: Value) -> Result<()> {
        let mut chunk = json!({ "type": format!("data-{name}"), "data": data });
        if let (Some(id), Value::Object(fields)) = (id, &mut chunk) {
            fields.insert("id".into(), id.into());
        }
        self.done(Command::Emit(self.fence.clone(), chunk)).await
    }

    /// Sends a `data-NAME` chunk that is not stored.
    ///
    /// # Errors
    /// The turn has ended.
    pub async fn progress(&self, name: &str, data: Value) -> Result<()> {
        let chunk = json!({ "type": format!("data-{name}"), "data": data, "transient": true });
        self.done(Command::Emit(self.fence.clone(), chunk)).await
    }

    /// Merges metadata into the reply.
    ///
    /// # Errors
    /// The turn has ended.
    pub async fn metadata(&self, metadata: Value) -> Result<()> {
        self.done(Command::Emit(self.fence.clone(), json!({ "type": "message-metadata", "messageMetadata": metadata }))).await
    }

    /// Appends messages without a turn; the model of this turn does not see them.
    ///
    /// # Errors
    /// A message that is none.
    pub async fn add_messages(&self, messages: Vec<UiMessage>) -> Result<()> {
        self.done(Command::AddMessages { messages: values(messages), upsert: false, place: Place::End }).await
    }

    /// The shared state, if it was ever set.
    ///
    /// # Errors
    /// The database failed.
    pub async fn state(&self) -> Result<Option<Value>> {
        match self.ask(Command::GetState).await? {
            Answer::State(state) => Ok(state),
            _ => Ok(None),
        }
    }

    /// Sets the shared state and sends it to every client.
    ///
    /// # Errors
    /// It is too large.
    pub async fn set_state(&self, state: Value) -> Result<()> {
        self.done(Command::SetState { state, source: None }).await
    }

    /// Stops this turn once the tool returns.
    ///
    /// # Errors
    /// The database failed.
    pub async fn abort_self(&self) -> Result<()> {
        self.done(Command::Abort(RequestId::from(self.turn.request_id.as_str()))).await
    }

    /// The clock.
    pub fn now(&self) -> Millis {
        self.mailbox.now()
    }

    /// Waits.
    pub fn sleep(&self, ms: u32) -> impl Future<Output = ()> + use<> {
        self.mailbox.sleep(ms)
    }

    pub(super) async fn ask(&self, command: Command) -> Result<Answer> {
        let answer = self.mailbox.clone().ask(command);
        answer.await.unwrap_or_else(|_| Err(Error::platform("the object was restarted before it could answer")))
    }

    async fn done(&self, command: Command) -> Result<()> {
        self.ask(command).await.map(|_| ())
    }
}
