//! The one error type of the crate, and the classes the driver acts on.
//!
//! A caller needs to know three things of a failure: what to tell the person, whether the object may go on
//! (storage faults say no), and whether the fault lies in the input. Everything else is text.

use std::fmt;

/// `Result` of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as anyone acts on the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The database refused or failed; see [`StorageFault`].
    Storage(StorageFault),
    /// Rows that contradict each other. The turn concerned fails; the conversation stays usable.
    Corrupt,
    /// The caller's value is not acceptable.
    Input,
    /// A size or count above a number in [`crate::limits`].
    Limit,
    /// Something named does not exist.
    NotFound,
    /// Not allowed here or now.
    Refused,
    /// A model provider failed.
    Model,
    /// A hook or tool of the application failed.
    Application,
    /// The platform failed (network, sockets, alarm).
    Platform,
}

/// What a storage failure means for the object (`recovery.md` §1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFault {
    /// This incarnation is over: reset, superseded or out of memory. Nothing may be written any more.
    Gone,
    /// The statement ran out of memory. A smaller read may work.
    NoMemory,
    /// The value is above the platform's row limit. Never retried.
    TooBig,
    /// The database is full. Never retried.
    Full,
    /// A constraint refused the row.
    Constraint,
    /// Anything else.
    Other,
}

/// An error: a kind to act on and a text that names the thing, the limit and the way out.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What the platform says when it resets an object.
const RESETS: [&str; 5] = [
    "reset because its code was updated",
    "script has been upgraded",
    "instance is no longer active",
    "object was reset",
    "object to be reset",
];

/// What it says when one took too much memory.
const MEMORY: &str = "exceeded its memory limit";

impl Error {
    /// An error of `kind` with a text for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The caller's value is not acceptable.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// A number of [`crate::limits`] was exceeded.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, message)
    }

    /// Not allowed here or now.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// Rows contradict each other.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// A hook or tool failed.
    pub fn application(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Application, message)
    }

    /// The platform failed.
    pub fn platform(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Platform, message)
    }

    /// Classifies the text of a failed SQL call. The platform reports causes only as text, wrapped any number of times.
    pub fn storage(message: impl Into<String>) -> Self {
        let message = message.into();
        let gone = [MEMORY, "Network connection lost"];
        let fault = if Self::tells_of_a_reset(&message) || gone.iter().any(|g| message.contains(g)) {
            StorageFault::Gone
        } else if message.contains("SQLITE_NOMEM") {
            StorageFault::NoMemory
        } else if message.contains("SQLITE_TOOBIG") {
            StorageFault::TooBig
        } else if message.contains("SQLITE_FULL") {
            StorageFault::Full
        } else if message.contains("SQLITE_CONSTRAINT") {
            StorageFault::Constraint
        } else {
            StorageFault::Other
        };
        Self::new(ErrorKind::Storage(fault), message)
    }

    /// Whether a text is what the platform says when it resets an object, wherever it comes up (`recovery.md` §1.3).
    pub(crate) fn tells_of_a_reset(text: &str) -> bool {
        RESETS.iter().any(|reset| text.contains(reset))
    }

    /// Whether a text is what the platform says when another object, or the worker that was called, took too much memory. Who is told
    /// lives, and can say so (decision 38). What others say of their processes and containers is none of it.
    pub(crate) fn tells_of_memory(text: &str) -> bool {
        text.contains(MEMORY) && ["Durable Object", "Worker"].iter().any(|whose| text.contains(whose))
    }

    /// What a caller may act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether this incarnation must stop touching storage.
    pub fn is_gone(&self) -> bool {
        self.kind == ErrorKind::Storage(StorageFault::Gone)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Self {
        Self::input(format!("not the expected JSON: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_texts_are_classified_through_any_wrapping() {
        let table = [
            ("Error: Durable Object reset because its code was updated.", StorageFault::Gone),
            ("caused by: Connection closed: this Durable Object instance is no longer active", StorageFault::Gone),
            ("Internal error in Durable Object storage caused object to be reset.", StorageFault::Gone),
            ("Durable Object's isolate exceeded its memory limit and was reset.", StorageFault::Gone),
            ("out of memory: SQLITE_NOMEM", StorageFault::NoMemory),
            ("string or blob too big: SQLITE_TOOBIG", StorageFault::TooBig),
            ("database or disk is full: SQLITE_FULL", StorageFault::Full),
            ("UNIQUE constraint failed: wk_msg.id: SQLITE_CONSTRAINT", StorageFault::Constraint),
            ("no such column: x at offset 7: SQLITE_ERROR", StorageFault::Other),
        ];
        for (text, fault) in table {
            assert_eq!(Error::storage(text).kind(), ErrorKind::Storage(fault), "{text}");
        }
    }

    #[test]
    fn only_the_platform_tells_of_memory() {
        let table = [
            ("Error: Durable Object's isolate exceeded its memory limit and was reset.", true),
            ("call failed: Worker exceeded its memory limit.", true),
            ("the container exceeded its memory limit and was terminated", false),
            ("Durable Object reset because its code was updated.", false),
        ];
        for (text, told) in table {
            assert_eq!(Error::tells_of_memory(text), told, "{text}");
        }
    }
}
