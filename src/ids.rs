//! Names of things. Each is a cheap-to-clone string with a type of its own, so that a call id is never taken for a request id.

use std::{fmt, ops::Deref, rc::Rc};

macro_rules! id {
    ($(#[$doc:meta] $name:ident),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Rc<str>);

        impl $name {
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<S: Into<Rc<str>>> From<S> for $name {
            fn from(text: S) -> Self {
                Self(text.into())
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), &self.0)
            }
        }
    )*};
}

id! {
    /// One turn, from admission to its final state.
    TurnId,
    /// One leg of a turn: its work between two answers of people or pages (decision 30).
    LegId,
    /// The id under which clients see the work of a turn; chosen by the client or minted.
    RequestId,
    /// One stored message.
    MessageId,
    /// One tool call, unique in the object.
    CallId,
    /// One socket. Not `_pk`, which two live sockets may share (wire §1.9).
    ConnId,
    /// One incarnation of the object in memory.
    Boot,
}

/// What an effect carries and its result echoes: work of another turn, attempt or incarnation is recognised and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The turn the work belongs to.
    pub turn: TurnId,
    /// Its attempt, counted from 1.
    pub attempt: u32,
    /// The incarnation that started it.
    pub boot: Boot,
}
