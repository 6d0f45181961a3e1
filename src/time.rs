//! Time as the engine sees it: an argument.

use std::ops::{Add, Sub};

/// Milliseconds since the Unix epoch, or a span of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i64);

impl Millis {
    /// The span from `earlier` to `self`; zero if the clock stepped back (`recovery.md` §6.4).
    pub fn since(self, earlier: Millis) -> i64 {
        (self.0 - earlier.0).max(0)
    }
}

impl Add<i64> for Millis {
    type Output = Millis;
    fn add(self, ms: i64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }
}

impl Sub<Millis> for Millis {
    type Output = i64;
    fn sub(self, other: Millis) -> i64 {
        self.0 - other.0
    }
}
