//! Where the message that a turn wrote goes.

use super::{Engine, outcome::Cx};
use crate::{
    error::Result,
    ids::MessageId,
    store::{
        messages::{self, NewMessage},
        turns::{Kind, Turn},
    },
    transcript::{repair, sanitise},
    wire::message::UiMessage,
};

impl Engine {
    /// Stores what a turn wrote, if it wrote anything, and puts it into the path (`turns-and-tools.md` §4.4).
    pub(super) fn store_reply(&mut self, cx: &mut Cx<'_>, turn: &Turn, extends: bool, message: &mut UiMessage) -> Result<bool> {
        sanitise::sanitise(message);
        if !repair::is_worth_storing(message) {
            return Ok(false);
        }
        let hash = sanitise::content_hash(message);
        let body = message.json();
        if extends {
            messages::replace(cx.db, &message.id, &body, &hash)?;
            return Ok(true);
        }
        messages::insert(
            cx.db,
            &NewMessage {
                id: &message.id,
                parent: turn.anchor.as_deref(),
                role: message.role,
                turn: Some(&turn.id),
                body: &body,
                hash: &hash,
            },
        )?;
        self.put_into_path(cx, turn, message.id.as_str().into())?;
        Ok(true)
    }

    /// The place of a new reply. It follows its question, and whatever was said meanwhile follows it (`turns-and-tools.md` §4.4).
    fn put_into_path(&mut self, cx: &mut Cx<'_>, turn: &Turn, reply: MessageId) -> Result<()> {
        if turn.outdated {
            // Its question says something else now, and is answered anew.
            return Ok(());
        }
        let (Some(anchor), Some(leaf)) = (&turn.anchor, &self.leaf) else { return self.move_leaf(cx.db, Some(reply)) };
        if anchor == leaf {
            return self.move_leaf(cx.db, Some(reply));
        }
        match messages::next_on_path(cx.db, anchor, leaf)? {
            Some((said, false)) => messages::follow(cx.db, &said, &reply),
            // An earlier reply to the same question: this one takes its place, unless the conversation went on from there.
            Some((earlier, true)) if earlier == *leaf && turn.kind == Kind::Branch => self.move_leaf(cx.db, Some(reply)),
            // The question left the path: so does its answer.
            Some(_) | None => Ok(()),
        }
    }
}
