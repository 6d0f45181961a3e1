//! UI messages as clients know them (wire §3.1–3.2): four known fields, and everything else untouched.
//!
//! Parts stay JSON objects. Clients post back what they were sent, applications invent part types and providers add fields; a
//! closed type would lose them. Functions here read the few fields the server acts on.

use serde_json::{Map, Value};

use super::chunk::Writer;
use crate::error::{Error, Result};

/// A part of a message: a JSON object with a `type`.
pub type Part = Map<String, Value>;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }

    /// The role of this name.
    pub fn parse(text: &str) -> Option<Role> {
        match text {
            "system" => Some(Role::System),
            "user" => Some(Role::User),
            "assistant" => Some(Role::Assistant),
            _ => None,
        }
    }
}

/// One message. Read and written by hand: the derived code for unknown fields is several times the size.
#[derive(Clone, Debug, PartialEq)]
pub struct UiMessage {
    /// Unique in the conversation.
    pub id: String,
    /// Who says it.
    pub role: Role,
    /// Whatever the application attached.
    pub metadata: Option<Value>,
    /// What is said.
    pub parts: Vec<Part>,
    /// Fields this version does not know.
    pub extra: Map<String, Value>,
}

impl UiMessage {
    /// An empty message.
    pub fn new(id: impl Into<String>, role: Role) -> Self {
        Self { id: id.into(), role, metadata: None, parts: Vec::new(), extra: Map::new() }
    }

    /// A user message with one text.
    pub fn user(id: impl Into<String>, text: impl Into<String>) -> Self {
        let mut message = Self::new(id, Role::User);
        message.parts.push(text_part(text));
        message
    }

    /// Reads a stored message.
    ///
    /// # Errors
    /// The row does not hold a message.
    pub fn from_row(body: &str) -> Result<Self> {
        let value = serde_json::from_str(body).map_err(|e| Error::corrupt(format!("a stored message cannot be read: {e}")))?;
        Self::read(value).map_err(|e| Error::corrupt(format!("a stored message cannot be read: {e}")))
    }

    fn read(value: Value) -> std::result::Result<Self, &'static str> {
        let Value::Object(mut fields) = value else { return Err("not an object") };
        let Some(Value::String(id)) = fields.shift_remove("id") else { return Err("`id` is not a string") };
        let role = fields.shift_remove("role");
        let role = role.as_ref().and_then(Value::as_str).and_then(Role::parse).ok_or("`role` is not system, user or assistant")?;
        let Some(Value::Array(values)) = fields.shift_remove("parts") else { return Err("`parts` is not an array") };
        let mut parts = Vec::with_capacity(values.len());
        for value in values {
            let Value::Object(part) = value else { return Err("a part is not an object") };
            parts.push(part);
        }
        Ok(Self { id, role, metadata: fields.shift_remove("metadata"), parts, extra: fields })
    }

    /// The message as a JSON value.
    pub fn into_value(self) -> Value {
        let mut fields = Map::new();
        fields.insert("id".into(), Value::String(self.id));
        fields.insert("role".into(), self.role.as_str().into());
        if let Some(metadata) = self.metadata {
            fields.insert("metadata".into(), metadata);
        }
        fields.insert("parts".into(), Value::Array(self.parts.into_iter().map(Value::Object).collect()));
        fields.extend(self.extra);
        Value::Object(fields)
    }

    /// Checks and reads a message from outside.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn from_client(value: Value) -> Result<Self> {
        if value.get("parts").is_none() && value.get("content").is_some() {
            return Err(Error::input("messages with `content` instead of `parts` are from an older SDK and are not supported"));
        }
        let message = Self::read(value).map_err(|e| Error::input(format!("not a UI message: {e}")))?;
        if message.id.is_empty() || message.id.len() > crate::limits::ID {
            return Err(Error::input(format!("a message id must have 1 to {} bytes", crate::limits::ID)));
        }
        if message.parts.iter().any(|part| part_type(part).is_empty()) {
            return Err(Error::input("every part of a message needs a `type`"));
        }
        Ok(message)
    }

    /// The message as JSON text, as it is stored and sent.
    pub fn json(&self) -> String {
        let mut out = Writer::new();
        out.str("id", &self.id).str("role", self.role.as_str()).opt("metadata", self.metadata.as_ref());
        let parts: Vec<String> = self.parts.iter().map(|part| serde_json::to_string(part).unwrap_or_default()).collect();
        let mut list = String::new();
        super::array(&mut list, &parts);
        out.raw("parts", &list);
        for (key, value) in &self.extra {
            out.field(key, value);
        }
        out.end()
    }

    /// The text parts, joined.
    pub fn text(&self) -> String {
        self.parts.iter().filter(|p| part_type(p) == "text").filter_map(|p| str_field(p, "text")).collect()
    }
}

impl serde::Serialize for UiMessage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.clone().into_value().serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for UiMessage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::read(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A text part.
pub fn text_part(text: impl Into<String>) -> Part {
    let mut part = Part::new();
    part.insert("type".into(), "text".into());
    part.insert("text".into(), Value::String(text.into()));
    part
}

/// A string field of a part.
pub fn str_field<'a>(part: &'a Part, key: &str) -> Option<&'a str> {
    part.get(key).and_then(Value::as_str)
}

/// The `type` of a part; empty if it has none.
pub fn part_type(part: &Part) -> &str {
    str_field(part, "type").unwrap_or_default()
}

/// The tool of a tool part, static or dynamic.
pub fn tool_name(part: &Part) -> Option<&str> {
    let kind = part_type(part);
    if kind == "dynamic-tool" { str_field(part, "toolName") } else { kind.strip_prefix("tool-") }
}

/// The call id of a tool part, whether or not it names its tool.
pub fn call_id(part: &Part) -> Option<&str> {
    let kind = part_type(part);
    let is_tool = kind == "dynamic-tool" || kind.starts_with("tool-");
    str_field(part, "toolCallId").filter(|_| is_tool)
}

/// The state of a tool part.
pub fn state(part: &Part) -> Option<&str> {
    str_field(part, "state")
}

/// Whether nothing can change a tool part any more.
pub fn is_settled(part: &Part) -> bool {
    match state(part) {
        Some("output-error" | "output-denied") => true,
        Some("output-available") => part.get("preliminary") != Some(&Value::Bool(true)),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_and_parts_survive_in_order() {
        // wire 71
        let text = r#"{"id":"u1","role":"user","parts":[{"type":"text","text":"a","x":[1]},{"type":"zzz","deep":{"b":1,"a":2}}],"createdAt":"now"}"#;
        assert_eq!(UiMessage::from_row(text).unwrap().json(), text);
    }

    #[test]
    fn what_is_no_message_is_refused_with_a_reason() {
        let table = [
            (json!({"id":"a","role":"user"}), "`parts` is not an array"),
            (json!({"id":"a","role":"robot","parts":[]}), "`role` is not"),
            (json!({"id":7,"role":"user","parts":[]}), "`id` is not a string"),
            (json!({"id":"","role":"user","parts":[]}), "1 to 256 bytes"),
            (json!({"id":"a","role":"user","parts":["x"]}), "a part is not an object"),
            (json!({"id":"a","role":"user","parts":[{}]}), "needs a `type`"),
            (json!({"id":"a","role":"user","content":"v4"}), "older SDK"),
        ];
        for (value, reason) in table {
            let error = UiMessage::from_client(value.clone()).unwrap_err();
            assert!(error.message().contains(reason), "{value}: {error}");
        }
    }
}
