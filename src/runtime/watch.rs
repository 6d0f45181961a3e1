//! How long a provider may be silent.

use crate::{
    limits,
    model::{ModelError, ModelErrorClass},
    time::Millis,
};

/// How long the provider may still be silent (decision 39).
pub(super) struct Watch {
    pub(super) began: Millis,
    pub(super) content: Option<Millis>,
    /// The application's own limit.
    pub(super) stall: Option<u32>,
}

impl Watch {
    /// Milliseconds left, or the limit that was reached.
    pub(super) fn left(&self, now: Millis) -> Result<u32, u32> {
        let (since, limit) = match self.content {
            Some(at) => (at, limits::NEXT_EVENT_MS),
            None => (self.began, limits::FIRST_EVENT_MS),
        };
        let limit = self.stall.map_or(limit, |stall| stall.min(limit));
        let quiet = i64::from(limit) - now.since(since);
        let whole = i64::from(limits::STEP_MS) - now.since(self.began);
        match u32::try_from(quiet.min(whole)) {
            Ok(ms) if ms > 0 => Ok(ms),
            _ if whole <= 0 => Err(limits::STEP_MS),
            _ => Err(limit),
        }
    }
}

pub(super) fn stalled(ms: u32) -> ModelError {
    let mut error = ModelError::new(ModelErrorClass::Transient, format!("the provider did not answer within {} s", ms / 1000));
    error.no_retry = true;
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watch_counts_from_the_last_content_and_from_the_beginning() {
        // decision 39
        let table = [
            ("nothing yet", 0, None, 1_000, Ok(299_000)),
            ("first event overdue", 0, None, 300_000, Err(limits::FIRST_EVENT_MS)),
            ("between events", 0, Some(10_000), 60_000, Ok(70_000)),
            ("next event overdue", 0, Some(10_000), 130_000, Err(limits::NEXT_EVENT_MS)),
            ("step overdue in full flow", 0, Some(3_599_999), 3_600_000, Err(limits::STEP_MS)),
            ("the clock stepped back", 50_000, Some(60_000), 10_000, Ok(120_000)),
        ];
        for (name, began, content, now, left) in table {
            let watch = Watch { stall: None, began: Millis(began), content: content.map(Millis) };
            assert_eq!(watch.left(Millis(now)), left, "{name}");
        }
    }
}
