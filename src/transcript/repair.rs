//! Decides how an assistant message ends when its turn does not go on: which calls are settled, and with which words.
//!
//! Pure and idempotent. A message closed here can be sent to any provider: no open call, every input an object.

use serde_json::{Map, Value};

use super::reducer::end_block;
use crate::{
    model::FinishReason,
    wire::message::{Part, Role, UiMessage, call_id, is_settled, part_type, state, str_field},
};

/// What the model reads of a call that was cut off (`recovery.md` §3.2).
pub const INTERRUPTED: &str = "The tool call was interrupted before a result was recorded.";
/// What it reads of a call that was allowed and never ran.
pub const NOT_RUN: &str = "The tool call was approved but did not run before the next turn started.";
/// What it reads of a call the user stopped (`turns-and-tools.md` §14).
pub const ABORTED: &str = "aborted";

/// Why a message is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Somebody stopped the turn.
    Aborted,
    /// The object died, or the conversation moved on.
    Interrupted,
    /// The model stopped in a way that forbids to run its calls (decision 40).
    Stopped(FinishReason),
}

/// Closes everything that is open. Whether anything changed.
pub fn close(message: &mut UiMessage, why: Close) -> bool {
    if message.role != Role::Assistant {
        return false;
    }
    let before = message.parts.len();
    // Half an argument list is no call: nothing ran, and nobody can tell what was meant.
    message.parts.retain(|part| call_id(part).is_none() || is_answered(part) || state(part) != Some("input-streaming"));
    let mut changed = message.parts.len() != before;
    for part in &mut message.parts {
        changed |= match call_id(part) {
            None => end_block(part),
            Some(_) => {
                let open = !is_answered(part);
                normalise_input(part) | (open && settle(part, why))
            }
        };
    }
    changed
}

/// Closes what an interruption left open, but for the calls somebody goes on with, which stay word for word. Comes back with those it
/// closed, as they were with their inputs put right, and with how many inputs it put right (`recovery.md` §3.2).
///
/// Unlike a stop, an interruption keeps a call whose arguments were still coming in: the model is told that it did not run.
pub fn close_interrupted(message: &mut UiMessage, goes_on: impl Fn(&str) -> bool) -> (Vec<Part>, usize) {
    let (mut orphans, mut normalised) = (Vec::new(), 0);
    if message.role != Role::Assistant {
        return (orphans, normalised);
    }
    for part in &mut message.parts {
        let Some(call) = call_id(part) else {
            end_block(part);
            continue;
        };
        let open = !is_answered(part);
        if open && goes_on(call) {
            continue;
        }
        normalised += usize::from(normalise_input(part));
        if open {
            orphans.push(part.clone());
            settle(part, Close::Interrupted);
        }
    }
    (orphans, normalised)
}

/// Whether a stored message holds a call that no provider would take as it is.
pub fn is_broken(message: &UiMessage) -> bool {
    let broken = |part: &Part| call_id(part).is_some() && (!is_answered(part) || !matches!(part.get("input"), Some(Value::Object(_))));
    message.role == Role::Assistant && message.parts.iter().any(broken)
}

/// Whether an assistant message holds anything that anyone would see. One that does not is never stored (wire 62, field P-10).
pub fn is_worth_storing(message: &UiMessage) -> bool {
    message.role != Role::Assistant || message.parts.iter().any(|part| is_content(part, str_field(part, "text").unwrap_or_default()))
}

/// Whether a part is more than a boundary or an empty block. The text is given, because that of a block that is still open
/// stands beside its part.
pub(super) fn is_content(part: &Part, text: &str) -> bool {
    match part_type(part) {
        "step-start" => false,
        "text" => !text.is_empty(),
        "reasoning" => !text.trim().is_empty() || meta(part, "providerMetadata").is_some(),
        _ => true,
    }
}

/// Provider metadata, if there is any in it.
pub(super) fn meta<'a>(part: &'a Part, key: &str) -> Option<&'a Value> {
    part.get(key).filter(|meta| meta.as_object().is_some_and(|meta| !meta.is_empty()))
}

/// Whether a call has its final answer. Transcripts from elsewhere may hold one without the state that says so.
pub(super) fn is_answered(part: &Part) -> bool {
    let has_output = part.contains_key("output") || part.contains_key("result");
    is_settled(part) || (has_output && part.get("preliminary") != Some(&Value::Bool(true)))
}

/// A tool input as providers accept it: the object, the object inside a string, or an empty one (field T-03).
pub fn object_input(input: Option<&Value>) -> Value {
    match input {
        Some(object @ Value::Object(_)) => object.clone(),
        Some(Value::String(text)) if text.trim_start().starts_with('{') => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) if !crate::wire::is_too_deep(&object) => object,
            _ => Value::Object(Map::new()),
        },
        _ => Value::Object(Map::new()),
    }
}

/// The input of a call; older SDKs keep that of a failed call under another name.
pub(super) fn call_input(part: &Part) -> Value {
    object_input(part.get("input").or_else(|| part.get("rawInput")))
}

fn normalise_input(part: &mut Part) -> bool {
    if matches!(part.get("input"), Some(Value::Object(_))) {
        return false;
    }
    let input = call_input(part);
    part.insert("input".into(), input);
    true
}

fn settle(part: &mut Part, why: Close) -> bool {
    let verdict = part.get("approval").and_then(|approval| approval.get("approved")).and_then(Value::as_bool);
    let responded = state(part) == Some("approval-responded");
    if responded && verdict == Some(false) {
        part.insert("state".into(), "output-denied".into());
        return true;
    }
    let text = match why {
        Close::Aborted => ABORTED.to_owned(),
        Close::Interrupted if responded => NOT_RUN.to_owned(),
        Close::Interrupted => INTERRUPTED.to_owned(),
        Close::Stopped(reason) => not_executed(reason),
    };
    // What is left is a preliminary result, which never was one, and the text of an input that is read by now.
    for stale in ["output", "preliminary", "rawInput"] {
        part.shift_remove(stale);
    }
    part.insert("state".into(), "output-error".into());
    part.insert("errorText".into(), text.into());
    true
}

/// The error text of a call that the model did not finish properly (`turns-and-tools.md` §6.2).
pub fn not_executed(reason: FinishReason) -> String {
    format!("not executed: the model stopped early ({})", reason.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assistant(parts: Value) -> UiMessage {
        serde_json::from_value(json!({"id":"a","role":"assistant","parts":parts})).unwrap()
    }

    #[test]
    fn what_is_open_is_closed_with_the_reason() {
        let open = || json!({"type":"tool-charge","toolCallId":"c1","state":"input-available","input":{"eur":5}});
        let settled =
            |text: &str| json!([{"type":"tool-charge","toolCallId":"c1","state":"output-error","input":{"eur":5},"errorText":text}]);
        let table = [
            // I14
            (Close::Interrupted, json!([open()]), settled(INTERRUPTED)),
            (Close::Aborted, json!([open()]), settled("aborted")),
            // T48, decision 40
            (Close::Stopped(FinishReason::Length), json!([open()]), settled("not executed: the model stopped early (length)")),
            // field T-09, decision 36
            (Close::Aborted, json!([{"type":"tool-t","toolCallId":"c2","state":"input-streaming","rawInput":"{\"pa"}]), json!([])),
            // recovery §3.3: settled parts keep their output; a stringified input is put right.
            (
                Close::Interrupted,
                json!([{"type":"dynamic-tool","toolName":"x","toolCallId":"c3","state":"output-available","input":"{\"a\":1}","output":7}]),
                json!([{"type":"dynamic-tool","toolName":"x","toolCallId":"c3","state":"output-available","input":{"a":1},"output":7}]),
            ),
            (
                Close::Interrupted,
                json!([{"type":"tool-rm","toolCallId":"c4",
                    "state":"approval-responded","input":{},"approval":{"id":"p","approved":false,"reason":"no"}}]),
                json!([{"type":"tool-rm","toolCallId":"c4",
                    "state":"output-denied","input":{},"approval":{"id":"p","approved":false,"reason":"no"}}]),
            ),
            (
                Close::Interrupted,
                json!([{"type":"tool-rm","toolCallId":"c4",
                    "state":"approval-responded","input":{},"approval":{"id":"p","approved":true}}]),
                json!([{"type":"tool-rm","toolCallId":"c4",
                    "state":"output-error","input":{},"approval":{"id":"p","approved":true},"errorText":NOT_RUN}]),
            ),
            (
                Close::Aborted,
                json!([{"type":"tool-rm","toolCallId":"c4","state":"approval-requested","input":{},"approval":{"id":"p"}}]),
                json!([{"type":"tool-rm","toolCallId":"c4",
                    "state":"output-error","input":{},"approval":{"id":"p"},"errorText":"aborted"}]),
            ),
            (
                Close::Aborted,
                json!([{"type":"tool-t","toolCallId":"c5","state":"output-available","input":{},"output":1,"preliminary":true}]),
                json!([{"type":"tool-t","toolCallId":"c5","state":"output-error","input":{},"errorText":"aborted"}]),
            ),
            (
                Close::Aborted,
                json!([{"type":"text","text":"ha","state":"streaming"}]),
                json!([{"type":"text","text":"ha","state":"done"}]),
            ),
            (
                Close::Aborted,
                json!([{"type":"tool-t","state":"input-available"}]),
                json!([{"type":"tool-t","state":"input-available"}]),
            ),
            // An error of an older SDK: its input is kept where it can be read.
            (
                Close::Aborted,
                json!([{"type":"tool-t","toolCallId":"c6","state":"output-error","rawInput":{"a":1},"errorText":"e"}]),
                json!([{"type":"tool-t","toolCallId":"c6","state":"output-error","rawInput":{"a":1},"errorText":"e","input":{"a":1}}]),
            ),
        ];
        for (why, before, after) in table {
            let mut message = assistant(before.clone());
            let changed = close(&mut message, why);
            assert_eq!(serde_json::to_value(&message.parts).unwrap(), after, "{why:?} {before}");
            assert_eq!(changed, before != after, "{why:?} {before}");
            assert!(!close(&mut message, why), "twice is once: {before}");
        }
    }

    #[test]
    fn a_null_output_is_an_answer() {
        let mut message = assistant(json!([{"type":"tool-t","toolCallId":"c","state":"output-available","input":{},"output":null}]));
        assert!(!close(&mut message, Close::Interrupted));
    }

    #[test]
    fn what_somebody_can_still_answer_stays_open() {
        // recovery D10
        let mut message = assistant(json!([
            {"type":"tool-page","toolCallId":"mine","state":"input-available","input":{}},
            {"type":"tool-server","toolCallId":"lost","state":"input-available","input":{}},
        ]));
        assert_eq!(close_interrupted(&mut message, |call| call == "mine").0.len(), 1);
        let states: Vec<_> = message.parts.iter().map(|part| state(part).unwrap()).collect();
        assert_eq!(states, ["input-available", "output-error"]);
    }

    #[test]
    fn user_messages_are_left_alone() {
        let mut message = UiMessage::user("u", "hi");
        message.parts.first_mut().unwrap().insert("state".into(), "streaming".into());
        assert!(!close(&mut message, Close::Aborted));
    }

    #[test]
    fn an_assistant_without_content_is_not_stored() {
        // wire 62, wire 63, field P-06c, field P-10
        let table = [
            (json!([]), false),
            (
                json!([{"type":"step-start"},{"type":"text","text":"","state":"done"},{"type":"reasoning","text":" ","state":"done"}]),
                false,
            ),
            (json!([{"type":"step-start"},{"type":"text","text":"x","state":"done"}]), true),
            (json!([{"type":"reasoning","text":"","providerMetadata":{"a":{"redacted":"x"}}}]), true),
            (json!([{"type":"data-x","data":1}]), true),
        ];
        for (parts, expected) in table {
            assert_eq!(is_worth_storing(&assistant(parts.clone())), expected, "{parts}");
        }
        assert!(is_worth_storing(&UiMessage::new("u", Role::User)));
    }
}
