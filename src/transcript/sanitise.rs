//! What is taken out of a message before it is stored or sent, and how two copies of it are compared.

use std::fmt::Write;

use serde_json::Value;

use super::repair::meta;
use crate::wire::message::{Part, Role, UiMessage, part_type, str_field};

/// Metadata of user messages that only the server may set (wire §5.2).
const RESERVED: [&str; 3] = ["channel", "turnMetadata", "pageContext"];

/// Takes out what must not outlive its turn: ids of the provider's own records, which are gone by the next one and make it refuse
/// the request, and reasoning that is empty without them (wire §5.4). Whether anything changed.
pub fn sanitise(message: &mut UiMessage) -> bool {
    let mut changed = false;
    for part in &mut message.parts {
        for key in ["providerMetadata", "callProviderMetadata", "resultProviderMetadata"] {
            changed |= forget_records(part, key);
        }
    }
    let before = message.parts.len();
    message.parts.retain(|part| {
        let blank = str_field(part, "text").is_none_or(|text| text.trim().is_empty());
        part_type(part) != "reasoning" || !blank || meta(part, "providerMetadata").is_some()
    });
    changed || message.parts.len() != before
}

fn forget_records(part: &mut Part, key: &str) -> bool {
    let Some(Value::Object(namespaces)) = part.get_mut(key) else { return false };
    let Some(Value::Object(openai)) = namespaces.get_mut("openai") else { return false };
    let mut changed = false;
    for record in ["itemId", "reasoningEncryptedContent"] {
        changed |= openai.shift_remove(record).is_some();
    }
    if changed && openai.is_empty() {
        namespaces.shift_remove("openai");
        if namespaces.is_empty() {
            part.shift_remove(key);
        }
    }
    changed
}

/// Takes metadata out of a user message from outside that only the server may set. Whether anything changed.
pub fn strip_reserved(message: &mut UiMessage) -> bool {
    let Some(Value::Object(metadata)) = message.metadata.as_mut().filter(|_| message.role == Role::User) else { return false };
    let mut changed = false;
    for key in RESERVED {
        changed |= metadata.shift_remove(key).is_some();
    }
    if changed && metadata.is_empty() {
        message.metadata = None;
    }
    changed
}

/// The same for a message that is still a JSON value.
pub fn strip_reserved_value(message: &mut Value) {
    if let Some(Value::Object(metadata)) = message.get_mut("metadata") {
        metadata.retain(|key, _| !RESERVED.contains(&key.as_str()));
    }
}

/// A hash of what a message says, as 32 hex digits: equal for two copies whose JSON differs only in the order of keys and in how
/// a number is written. Metadata is not part of it, the server adds to that.
///
/// It tells an unchanged re-send from an edit. It resists accidents, not attackers: who forges a collision hides their own edit.
pub fn content_hash(message: &UiMessage) -> String {
    let mut hash = Hash::default();
    hash.text(message.role.as_str());
    for part in &message.parts {
        hash.object(part);
    }
    hash.hex()
}

/// A hash of a value, with the same promises as [`content_hash`].
pub fn value_hash(value: &Value) -> String {
    let mut hash = Hash::default();
    hash.value(value);
    hash.hex()
}

/// Two multiply-and-fold lanes over 8-byte words. Every value is written with a tag and its length, so that no two trees give
/// the same words.
struct Hash([u64; 2]);

impl Default for Hash {
    fn default() -> Self {
        Self([0x9ae1_6a3b_2f90_404f, 0xc949_d7c7_509e_6557])
    }
}

impl Hash {
    fn hex(&self) -> String {
        let mut hex = String::with_capacity(32);
        for lane in self.0 {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{lane:016x}");
        }
        hex
    }

    fn word(&mut self, word: u64) {
        const PRIMES: [u64; 2] = [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f];
        for (lane, prime) in self.0.iter_mut().zip(PRIMES) {
            let mixed = (*lane ^ word).wrapping_mul(prime);
            *lane = (mixed ^ (mixed >> 32)).wrapping_add(prime);
        }
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            self.word(chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.word(1),
            Value::Bool(on) => self.word(2 + u64::from(*on)),
            Value::Number(number) => {
                self.word(4);
                // A browser has only doubles: what it cannot tell apart comes back as the same.
                self.word(number.as_f64().unwrap_or_default().to_bits());
            }
            Value::String(text) => {
                self.word(5);
                self.text(text);
            }
            Value::Array(items) => {
                self.word(6);
                self.word(items.len() as u64);
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(fields) => self.object(fields),
        }
    }

    fn object(&mut self, fields: &Part) {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        self.word(7);
        self.word(sorted.len() as u64);
        for (key, value) in sorted {
            self.text(key);
            self.value(value);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(value: Value) -> UiMessage {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn records_of_the_provider_are_forgotten() {
        // wire 137
        let table = [
            (
                json!([{"type":"text","text":"x","providerMetadata":{"openai":{"itemId":"msg_1"}}}]),
                json!([{"type":"text","text":"x"}]),
            ),
            (
                json!([{"type":"text","text":"x","providerMetadata":{"openai":{"itemId":"msg_1","phase":"p"},"a":{}}}]),
                json!([{"type":"text","text":"x","providerMetadata":{"openai":{"phase":"p"},"a":{}}}]),
            ),
            (
                json!([{"type":"tool-t","toolCallId":"c","callProviderMetadata":{"openai":{"itemId":"fc_1"}},
                    "resultProviderMetadata":{"openai":{"itemId":"x"}}}]),
                json!([{"type":"tool-t","toolCallId":"c"}]),
            ),
            (
                json!([{"type":"reasoning","text":"","providerMetadata":{"openai":{"itemId":"rs_1","reasoningEncryptedContent":null}}},
                    {"type":"step-start"}]),
                json!([{"type":"step-start"}]),
            ),
            (
                json!([{"type":"reasoning","text":" ","providerMetadata":{"anthropic":{"redactedData":"r"}}}]),
                json!([{"type":"reasoning","text":" ","providerMetadata":{"anthropic":{"redactedData":"r"}}}]),
            ),
            (json!([{"type":"reasoning","text":"why","state":"done"}]), json!([{"type":"reasoning","text":"why","state":"done"}])),
            (json!([{"type":"reasoning"},{"type":"zzz","providerMetadata":"odd"}]), json!([{"type":"zzz","providerMetadata":"odd"}])),
        ];
        for (before, after) in table {
            let mut message = message(json!({"id":"a","role":"assistant","parts":before}));
            let changed = sanitise(&mut message);
            assert_eq!(serde_json::to_value(&message.parts).unwrap(), after, "{before}");
            assert_eq!(changed, before != after, "{before}");
            assert!(!sanitise(&mut message), "twice is once: {before}");
        }
    }

    #[test]
    fn a_client_cannot_set_reserved_metadata() {
        let mut forged = message(json!({"id":"u","role":"user","parts":[],"metadata":{"channel":"x","mine":1,"pageContext":[]}}));
        assert!(strip_reserved(&mut forged));
        assert_eq!(forged.metadata, Some(json!({"mine":1})));
        assert!(!strip_reserved(&mut forged));
        let mut forged = message(json!({"id":"u","role":"user","parts":[],"metadata":{"turnMetadata":1}}));
        assert!(strip_reserved(&mut forged));
        assert_eq!(forged.metadata, None);
        let mut ours = message(json!({"id":"a","role":"assistant","parts":[],"metadata":{"channel":"x"}}));
        assert!(!strip_reserved(&mut ours));
    }

    #[test]
    fn the_hash_sees_content_and_nothing_else() {
        let hash = |value: Value| content_hash(&message(value));
        let base = hash(json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello world","n":{"a":1,"b":2.5}}]}));
        assert_eq!(base.len(), 32);
        let same = [
            json!({"id":"v","role":"user","parts":[{"n":{"b":2.5,"a":1.0},"text":"hello world","type":"text"}]}),
            json!({"id":"u","role":"user","metadata":{"channel":"web"},"parts":[{"type":"text","text":"hello world","n":{"a":1,"b":2.5}}]}),
        ];
        let other = [
            json!({"id":"u","role":"assistant","parts":[{"type":"text","text":"hello world","n":{"a":1,"b":2.5}}]}),
            json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello worle","n":{"a":1,"b":2.5}}]}),
            json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello world\u{0}","n":{"a":1,"b":2.5}}]}),
            json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello world","n":{"a":2,"b":2.5}}]}),
            json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello world","n":{"a":[],"b":2.5}}]}),
            json!({"id":"u","role":"user","parts":[{"type":"text","text":"hello world","n":{"a":1,"b":2.5}},{"type":"x"}]}),
            json!({"id":"u","role":"user","parts":[]}),
        ];
        for value in same {
            assert_eq!(hash(value.clone()), base, "{value}");
        }
        for value in other {
            assert_ne!(hash(value.clone()), base, "{value}");
        }
    }

    #[test]
    fn the_hash_is_stored_and_must_not_change_between_versions() {
        assert_eq!(content_hash(&UiMessage::user("u", "Grüße")), "1d1720fe02939715a6d8fe389467e9d4");
    }
}
