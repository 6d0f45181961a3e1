//! Rows that a newer release wrote, met by an older one after a rollback: the conversation is shown, and nothing is done with it. The
//! newer release, deployed again, goes on where it was.

use super::{
    Engine, Identity,
    config::Config,
    events::Event,
    input::{Answer, Command, Input},
    outcome::{AlarmPlan, Cx, Effect},
};
use crate::{
    error::{Error, Result},
    ids::Boot,
    limits,
    store::Sql,
    wire::{self, ClientFrame},
};

/// What everybody is told who wants to change something.
const FROZEN: &str = "This conversation was written by a newer release. It can be read; deploy the newer release again to go on.";

impl Engine {
    /// What can be read of rows whose meaning is not known.
    pub(super) fn load_frozen(db: &dyn Sql, boot: Boot, identity: Identity, config: Config) -> Result<Engine> {
        Ok(Engine { frozen: true, ..Self::at_rest(db, boot, identity, config)? })
    }

    /// One input of a conversation that may only be read.
    pub(super) fn step_frozen(&mut self, cx: &mut Cx<'_>, input: Input) -> Result<()> {
        match input {
            Input::Boot(sockets) => {
                sockets.into_iter().for_each(|(conn, meta)| self.clients.add_survivor(conn, meta));
                cx.emit(Event::new("chat:onstart:degraded").with("step", "schema").with("error", "rows of a newer release"));
            }
            Input::Connected(conn, meta) => self.connected(cx, conn, meta)?,
            Input::Disconnected(conn) => self.disconnected(&conn),
            Input::Frame(conn, text) => match wire::decode(&text) {
                ClientFrame::Chat { id, .. } => self.refuse(cx, &conn, id, FROZEN.into()),
                ClientFrame::Probe { probe } => cx.send_one(&conn, wire::resume_none(None, probe.as_deref())),
                ClientFrame::State(_) => cx.send_one(&conn, wire::state_error("Connection is readonly")),
                ClientFrame::Rpc { .. } | ClientFrame::Application => self.frame(cx, &conn, &text)?,
                _ => cx.ignored(&conn, "frame", "the rows are of a newer release"),
            },
            Input::Rpc(conn, reply) => self.rpc_reply(cx, &conn, reply),
            Input::Alarm(_) => {
                // Something is due that this release must not touch. The alarm stays, so that the newer one finds it.
                cx.out.alarm = AlarmPlan::Set(cx.now + limits::FROZEN_MS);
            }
            Input::Command(command, Some(to)) => {
                let answer = match command {
                    Command::GetMessages => self.window(cx.db).map(Answer::Messages),
                    Command::GetState => return self.command(cx, Command::GetState, Some(to)),
                    _ => Err(Error::refused(FROZEN)),
                };
                cx.push(Effect::Reply(to, answer));
            }
            Input::Command(_, None) | Input::Wake | Input::Job(..) | Input::HookEnded(_) => {}
        }
        Ok(())
    }
}
