//! A conversation that is shown and not changed: its rows were written by a newer release and met by an older one after a rollback, or
//! its storage refuses every write. It goes on where it was when the newer release is deployed again, or when there is room.

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

/// Why a conversation can only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// A newer release wrote its rows.
    Newer,
    /// Its storage refuses what the first step of an incarnation has to write.
    Refused,
}

impl Frozen {
    /// What everybody is told who wants to change something.
    fn told(self) -> &'static str {
        match self {
            Frozen::Newer => {
                "This conversation was written by a newer release. It can be read; deploy the newer release again to go on."
            }
            Frozen::Refused => "This conversation can be read, but nothing can be stored at the moment. Try again later.",
        }
    }
}

impl Engine {
    /// What can be read of rows whose meaning is not known.
    pub(super) fn load_newer(db: &dyn Sql, boot: Boot, identity: Identity, config: Config) -> Result<Engine> {
        let mut engine = Self::at_rest(db, boot, identity, config)?;
        engine.frozen = Some(Frozen::Newer);
        Ok(engine)
    }

    /// What can be read where nothing can be written.
    ///
    /// # Errors
    /// The database cannot be read either.
    pub fn load_refused(db: &dyn Sql, boot: Boot, identity: Identity, config: Config) -> Result<Engine> {
        let mut engine = Self::load(db, boot, identity, config)?;
        // What is offered could not be taken up.
        engine.notice = None;
        engine.frozen = Some(Frozen::Refused);
        Ok(engine)
    }

    /// Whether this input is worth an answer of a conversation that can only be read.
    pub fn may_be_read_for(input: &Input) -> bool {
        matches!(input, Input::Connected(..) | Input::Frame(..) | Input::Command(_, Some(_)) | Input::Rpc(..))
    }

    /// One input of a conversation that may only be read.
    pub(super) fn step_frozen(&mut self, cx: &mut Cx<'_>, input: Input, why: Frozen) -> Result<()> {
        match input {
            Input::Boot(sockets) => {
                sockets.into_iter().for_each(|(conn, meta)| self.clients.add_survivor(conn, meta));
                if why == Frozen::Newer {
                    cx.emit(Event::new("chat:onstart:degraded").with("step", "schema").with("error", "rows of a newer release"));
                }
            }
            Input::Connected(conn, meta) => self.connected(cx, conn, meta)?,
            Input::Disconnected(conn) => self.disconnected(&conn),
            Input::Frame(conn, text) => match wire::decode(&text) {
                ClientFrame::Chat { id, .. } => self.refuse(cx, &conn, id, why.told().into()),
                ClientFrame::Probe { probe } => cx.send_one(&conn, wire::resume_none(None, probe.as_deref())),
                // The page cleared itself before it asked: it gets its messages back (decision 42).
                ClientFrame::Clear => cx.send_one(&conn, wire::transcript(&self.window(cx.db)?, false)),
                ClientFrame::State(_) => cx.send_one(&conn, wire::state_error("Connection is readonly")),
                ClientFrame::Rpc { .. } | ClientFrame::Application => self.frame(cx, &conn, &text)?,
                _ => cx.ignored(&conn, "frame", "the conversation can only be read"),
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
                    _ => Err(Error::refused(why.told())),
                };
                cx.push(Effect::Reply(to, answer));
            }
            Input::Command(_, None) | Input::Wake | Input::Job(..) | Input::HookEnded(_) => {}
        }
        Ok(())
    }
}
