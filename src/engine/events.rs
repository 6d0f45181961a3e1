//! Observability: what happened, without message content.

use serde_json::{Map, Value};

/// One event: a name of the documents (`chat:turn:start`, `frame:ignored`, …) and its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name.
    pub name: &'static str,
    /// Its fields; ids, numbers and words, never content.
    pub fields: Map<String, Value>,
    /// Whether it is for the `on_event` hook only: a later event of the log says the same and more.
    pub quiet: bool,
}

impl Event {
    /// An event without fields.
    pub fn new(name: &'static str) -> Self {
        Self { name, fields: Map::new(), quiet: false }
    }

    /// Keeps the event out of the log.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Adds a field.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.into(), value.into());
        self
    }

    /// The event as one line of JSON.
    pub fn line(&self) -> String {
        let mut all = Map::new();
        all.insert("event".into(), self.name.into());
        all.extend(self.fields.clone());
        Value::Object(all).to_string()
    }
}
