//! Stored messages → what a model is asked (`providers.md` §11), with everything repaired that a provider would refuse.
//!
//! The result is legal by construction, whatever the parts are: a call is written together with its answer, an assistant message
//! says or calls something, and answers follow directly, in the order of the calls. The same message always gives the same
//! result, so that the beginning of a request stays byte for byte what the provider has cached.

use std::{io, mem, rc::Rc};

use serde_json::Value;

use super::repair::{INTERRUPTED, NOT_RUN, call_input, is_answered, meta};
use crate::{
    limits,
    model::{AssistantPart, Msg, ToolOutput, ToolResult, UserPart},
    wire::message::{Part, Role, UiMessage, part_type, state, str_field, tool_name},
};

/// Asks the model to go on where a provider would not take a request that ends in its own words (T55).
pub const CHECKPOINT: &str = "Continue exactly where you left off, without repeating.";

/// The messages of a path, oldest first.
pub fn history<'a>(path: impl IntoIterator<Item = &'a UiMessage>) -> Vec<Rc<Msg>> {
    path.into_iter().flat_map(one).map(Rc::new).collect()
}

/// The texts of the system messages of a path, for the end of the system prompt. A request knows no system messages.
pub fn system<'a>(path: impl IntoIterator<Item = &'a UiMessage>) -> String {
    let texts = path.into_iter().filter(|message| message.role == Role::System).map(UiMessage::text);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// One stored message: one user message, or an assistant message and its results for each step, or nothing.
pub fn one(message: &UiMessage) -> Vec<Msg> {
    match message.role {
        Role::System => Vec::new(),
        Role::User => user(message.parts.iter()).into_iter().collect(),
        Role::Assistant => {
            let mut steps = Steps::default();
            message.parts.iter().for_each(|part| steps.add(part));
            steps.end();
            steps.done
        }
    }
}

/// The history and the reply so far: what the next step of a turn, or a continuation, is asked.
///
/// `checkpoint` is for models that do not go on from their own words: where the request would end in an assistant message, a
/// user message asks for it. It is in the request only, never stored.
pub fn assemble(history: &[Rc<Msg>], reply: &UiMessage, checkpoint: bool) -> Vec<Rc<Msg>> {
    let mut messages = history.to_vec();
    messages.extend(one(reply).into_iter().map(Rc::new));
    if checkpoint && matches!(messages.last().map(Rc::as_ref), Some(Msg::Assistant(_))) {
        messages.push(Rc::new(Msg::User(vec![UserPart::Text(CHECKPOINT.into())])));
    }
    messages
}

fn user<'a>(parts: impl Iterator<Item = &'a Part>) -> Option<Msg> {
    let parts: Vec<UserPart> = parts.filter_map(user_part).collect();
    (!parts.is_empty()).then_some(Msg::User(parts))
}

fn user_part(part: &Part) -> Option<UserPart> {
    match part_type(part) {
        "text" => str_field(part, "text").filter(|text| !text.is_empty()).map(|text| UserPart::Text(text.into())),
        "file" => Some(UserPart::File {
            media_type: str_field(part, "mediaType").unwrap_or("application/octet-stream").into(),
            url: str_field(part, "url").filter(|url| !url.is_empty())?.into(),
            filename: str_field(part, "filename").map(Into::into),
        }),
        _ => None,
    }
}

/// The steps of an assistant message.
#[derive(Default)]
struct Steps {
    done: Vec<Msg>,
    content: Vec<AssistantPart>,
    results: Vec<ToolResult>,
}

impl Steps {
    fn add(&mut self, part: &Part) {
        let text = || str_field(part, "text").unwrap_or_default();
        let metadata = |key| meta(part, key).cloned();
        match part_type(part) {
            "step-start" => self.end(),
            "text" => {
                let meta = metadata("providerMetadata");
                if !text().is_empty() || meta.is_some() {
                    self.content.push(AssistantPart::Text { text: text().into(), meta });
                }
            }
            "reasoning" => {
                let meta = metadata("providerMetadata");
                if !text().trim().is_empty() || meta.is_some() {
                    self.content.push(AssistantPart::Reasoning { text: text().into(), meta });
                }
            }
            "steering-message" => {
                self.end();
                let parts = part.get("parts").and_then(Value::as_array).into_iter().flatten();
                self.done.extend(user(parts.filter_map(Value::as_object)));
            }
            _ => self.call(part),
        }
    }

    fn call(&mut self, part: &Part) {
        let Some(name) = tool_name(part).and_then(callable_name) else { return };
        let Some(id) = str_field(part, "toolCallId").filter(|id| !id.is_empty()) else { return };
        // A provider answers its own calls inside its own message, which the neutral model has no place for.
        let foreign = part.get("providerExecuted") == Some(&Value::Bool(true));
        let repeated = self.results.iter().any(|result| result.call_id == id);
        let Some(output) = answer(part).filter(|_| !foreign && !repeated) else { return };
        self.content.push(AssistantPart::ToolCall {
            id: id.into(),
            name: name.clone(),
            input: call_input(part),
            meta: meta(part, "callProviderMetadata").cloned(),
        });
        self.results.push(ToolResult { call_id: id.into(), name, output });
    }

    fn end(&mut self) {
        let content = mem::take(&mut self.content);
        let results = mem::take(&mut self.results);
        // Thoughts without words or calls are no message: several providers refuse one.
        let speaks = content.iter().any(|part| match part {
            AssistantPart::Text { text, .. } => !text.is_empty(),
            AssistantPart::ToolCall { .. } => true,
            AssistantPart::Reasoning { .. } => false,
        });
        if speaks {
            self.done.push(Msg::Assistant(content));
        }
        if !results.is_empty() {
            self.done.push(Msg::Tool(results));
        }
    }
}

/// The answer of a call; `None` if the call is not sent at all.
fn answer(part: &Part) -> Option<ToolOutput> {
    let approval = |key| part.get("approval").and_then(|approval| approval.get(key));
    let denied = || ToolOutput::Denied(approval("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()).map(Into::into));
    Some(match state(part) {
        Some("output-error") => {
            ToolOutput::Error(str_field(part, "errorText").filter(|text| !text.is_empty()).unwrap_or(INTERRUPTED).into())
        }
        Some("output-denied") => denied(),
        _ if is_answered(part) => match part.get("output").or_else(|| part.get("result")) {
            Some(Value::String(text)) => ToolOutput::Text(text.clone()),
            other => ToolOutput::Json(other.cloned().unwrap_or_default()),
        },
        // Half a call says nothing. A question nobody answered is gone once the conversation moved on; before that no request is built.
        Some("input-streaming" | "approval-requested") => return None,
        Some("approval-responded") if approval("approved") == Some(&Value::Bool(false)) => denied(),
        Some("approval-responded") => ToolOutput::Error(NOT_RUN.into()),
        _ => ToolOutput::Error(INTERRUPTED.into()),
    })
}

/// A name every provider accepts. A model may have called something that is none; refused once, it would be refused for ever.
fn callable_name(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = name.chars().take(limits::TOOL_NAME).map(|c| if fits(c) { c } else { '_' }).collect();
    (!name.is_empty()).then_some(name)
}

/// An output above `limit` bytes of JSON as its head and tail with a mark between them (`compaction.md` §5.5); `None` if it fits.
///
/// Head and tail are a sixteenth and a sixty-fourth of the limit: 512 and 128 KiB of the 8 MiB of decision 41, small enough to
/// fit however many escapes their JSON needs.
pub fn cap_output(value: &Value, limit: usize) -> Option<Value> {
    let size = json_size(value);
    if size <= limit {
        return None;
    }
    let json;
    let text = match value {
        Value::String(text) => text.as_str(),
        other => {
            json = other.to_string();
            json.as_str()
        }
    };
    let head = text.get(..text.floor_char_boundary(limit / 16)).unwrap_or_default();
    let tail = text.get(text.ceil_char_boundary(text.len().saturating_sub(limit / 64))..).unwrap_or_default();
    let left_out = text.len().saturating_sub(head.len() + tail.len());
    let mark = format!("\n\n[output too large: {size} bytes, limit {limit}; {left_out} bytes left out here]\n\n");
    Some(Value::String([head, mark.as_str(), tail].concat()))
}

/// The length of `value` as JSON text, without making the text.
fn json_size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither the counter nor a `Value` can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(role: &str, parts: Value) -> UiMessage {
        serde_json::from_value(json!({"id":"m","role":role,"parts":parts})).unwrap()
    }

    fn assistant(parts: Value) -> Vec<Msg> {
        one(&message("assistant", parts))
    }

    fn text(text: &str) -> AssistantPart {
        AssistantPart::Text { text: text.into(), meta: None }
    }

    fn call(id: &str, input: Value) -> AssistantPart {
        AssistantPart::ToolCall { id: id.into(), name: "t".into(), input, meta: None }
    }

    fn result(id: &str, output: ToolOutput) -> ToolResult {
        ToolResult { call_id: id.into(), name: "t".into(), output }
    }

    #[test]
    fn steps_become_assistant_and_tool_messages_in_turn() {
        // PV-50, T41, T42
        let got = assistant(json!([
            {"type":"step-start"},
            {"type":"reasoning","id":"1","text":"hm","state":"done","providerMetadata":{"anthropic":{"signature":"s"}}},
            {"type":"text","text":"Let me look.","state":"done"},
            {"type":"tool-t","toolCallId":"c1","state":"output-available","input":{"q":1},"output":"text",
             "callProviderMetadata":{"google":{"thoughtSignature":"g"}}},
            {"type":"dynamic-tool","toolName":"t","toolCallId":"c2","state":"output-available","input":{},"output":{"n":2}},
            {"type":"source-url","sourceId":"source-1","url":"https://e.org"},
            {"type":"data-x","data":1},
            {"type":"step-start"},
            {"type":"text","text":"Done.","state":"done"},
        ]));
        let expected = [
            Msg::Assistant(vec![
                AssistantPart::Reasoning { text: "hm".into(), meta: Some(json!({"anthropic":{"signature":"s"}})) },
                text("Let me look."),
                AssistantPart::ToolCall {
                    id: "c1".into(),
                    name: "t".into(),
                    input: json!({"q":1}),
                    meta: Some(json!({"google":{"thoughtSignature":"g"}})),
                },
                call("c2", json!({})),
            ]),
            Msg::Tool(vec![result("c1", ToolOutput::Text("text".into())), result("c2", ToolOutput::Json(json!({"n":2})))]),
            Msg::Assistant(vec![text("Done.")]),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn every_state_of_a_call() {
        let table = [
            (json!({"state":"output-available","input":{},"output":null}), Some((json!({}), ToolOutput::Json(json!(null))))),
            // field T-03: rows written before inputs were put right
            (json!({"state":"output-available","input":"{\"a\":1}","output":7}), Some((json!({"a":1}), ToolOutput::Json(json!(7))))),
            (json!({"state":"output-available","input":[1],"output":7}), Some((json!({}), ToolOutput::Json(json!(7))))),
            (
                json!({"state":"output-error","rawInput":{"a":1},"errorText":"bad"}),
                Some((json!({"a":1}), ToolOutput::Error("bad".into()))),
            ),
            (json!({"state":"output-error","rawInput":"{\"a","errorText":"bad"}), Some((json!({}), ToolOutput::Error("bad".into())))),
            (json!({"state":"output-error"}), Some((json!({}), ToolOutput::Error(INTERRUPTED.into())))),
            // field T-04, T87, T88
            (
                json!({"state":"output-denied","input":{},"approval":{"id":"p","approved":false,"reason":"no"}}),
                Some((json!({}), ToolOutput::Denied(Some("no".into())))),
            ),
            (json!({"state":"output-denied","input":{}}), Some((json!({}), ToolOutput::Denied(None)))),
            (
                json!({"state":"approval-responded","input":{},"approval":{"id":"p","approved":false}}),
                Some((json!({}), ToolOutput::Denied(None))),
            ),
            (
                json!({"state":"approval-responded","input":{},"approval":{"id":"p","approved":true}}),
                Some((json!({}), ToolOutput::Error(NOT_RUN.into()))),
            ),
            // field T-10
            (json!({"state":"input-available","input":{}}), Some((json!({}), ToolOutput::Error(INTERRUPTED.into())))),
            (
                json!({"state":"output-available","input":{},"output":1,"preliminary":true}),
                Some((json!({}), ToolOutput::Error(INTERRUPTED.into()))),
            ),
            (json!({"state":"what","input":{}}), Some((json!({}), ToolOutput::Error(INTERRUPTED.into())))),
            (json!({"input":{},"result":"old"}), Some((json!({}), ToolOutput::Text("old".into())))),
            (json!({"state":"input-streaming","input":{"a":1}}), None),
            (json!({"state":"approval-requested","input":{},"approval":{"id":"p"}}), None),
            (json!({"state":"output-available","input":{},"output":1,"providerExecuted":true}), None),
        ];
        for (fields, expected) in table {
            let mut part = fields.clone();
            part.as_object_mut().unwrap().extend([("type".to_owned(), json!("tool-t")), ("toolCallId".to_owned(), json!("c"))]);
            let expected = match expected {
                Some((input, output)) => vec![Msg::Assistant(vec![call("c", input)]), Msg::Tool(vec![result("c", output)])],
                None => vec![],
            };
            assert_eq!(assistant(json!([part])), expected, "{fields}");
        }
    }

    #[test]
    fn what_says_nothing_vanishes() {
        // field T-10, P-10
        for parts in [
            json!([]),
            json!([{"type":"step-start"},{"type":"step-start"}]),
            json!([{"type":"text","text":"","state":"done"},{"type":"reasoning","text":"only thoughts","state":"done"}]),
            json!([{"type":"tool-t","state":"output-available","input":{},"output":1}]),
            json!([{"type":"tool-","toolCallId":"c","state":"output-available","input":{},"output":1}]),
        ] {
            assert_eq!(assistant(parts.clone()), [], "{parts}");
        }
        assert_eq!(one(&message("user", json!([{"type":"data-x","data":1},{"type":"text","text":""}]))), []);
        assert_eq!(one(&message("system", json!([{"type":"text","text":"Be kind."}]))), []);
    }

    #[test]
    fn a_call_is_answered_once_and_by_a_name_providers_accept() {
        let got = assistant(json!([
            {"type":"dynamic-tool","toolName":"get weather!","toolCallId":"c","state":"output-error","input":{},"errorText":"no such tool"},
            {"type":"dynamic-tool","toolName":"again","toolCallId":"c","state":"output-available","input":{},"output":1},
        ]));
        let [Msg::Assistant(calls), Msg::Tool(results)] = got.as_slice() else { panic!("{got:?}") };
        assert_eq!(calls.len(), 1);
        assert_eq!(results.len(), 1);
        assert_eq!(results.first().unwrap().name, "get_weather_");
    }

    #[test]
    fn user_parts_and_steering_messages() {
        // wire 72
        let file = json!({"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA==","filename":"a.png"});
        let expected = UserPart::File {
            media_type: "image/png".into(),
            url: "data:image/png;base64,AA==".into(),
            filename: Some("a.png".into()),
        };
        let got = one(&message("user", json!([{"type":"text","text":"What is it?"}, file, {"type":"zzz"}])));
        assert_eq!(got, [Msg::User(vec![UserPart::Text("What is it?".into()), expected.clone()])]);
        let got = assistant(json!([
            {"type":"text","text":"One."},
            {"type":"steering-message","id":"s","parts":[{"type":"text","text":"Two?"}, file]},
            {"type":"text","text":"Three."},
        ]));
        let expected = [
            Msg::Assistant(vec![text("One.")]),
            Msg::User(vec![UserPart::Text("Two?".into()), expected]),
            Msg::Assistant(vec![text("Three.")]),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn a_request_that_would_end_in_words_of_the_model_asks_it_to_go_on() {
        // T13, T55
        let history = history([&UiMessage::user("u", "hi"), &UiMessage::user("u2", "there")]);
        assert_eq!(history.len(), 2, "user messages stay apart; a profile may merge them");
        let half = message("assistant", json!([{"type":"step-start"},{"type":"text","text":"Once upon"}]));
        let asked = assemble(&history, &half, true);
        assert_eq!(asked.last().unwrap().as_ref(), &Msg::User(vec![UserPart::Text(CHECKPOINT.into())]));
        assert_eq!(asked.len(), 4);
        assert!(Rc::ptr_eq(asked.first().unwrap(), history.first().unwrap()), "the history is shared, not copied");
        assert_eq!(assemble(&history, &half, false).len(), 3);
        let called =
            message("assistant", json!([{"type":"tool-t","toolCallId":"c","state":"output-available","input":{},"output":1}]));
        assert!(matches!(assemble(&history, &called, true).last().unwrap().as_ref(), Msg::Tool(_)));
        assert_eq!(assemble(&history, &UiMessage::new("a", Role::Assistant), true), history);
    }

    #[test]
    fn system_messages_go_to_the_system_prompt() {
        let path =
            [message("system", json!([{"type":"text","text":"Be "},{"type":"text","text":"kind."}])), UiMessage::user("u", "hi")];
        assert_eq!(system(&path), "Be kind.");
        assert_eq!(history(&path).len(), 1);
    }

    #[test]
    fn an_output_above_the_limit_keeps_its_head_and_tail() {
        // decision 41
        assert_eq!(cap_output(&json!("x".repeat(998)), 1000), None);
        let long = json!("ä€😀".repeat(400));
        let Some(Value::String(capped)) = cap_output(&long, 1000) else { panic!("not capped") };
        assert!(capped.starts_with("ä€😀") && capped.ends_with('😀'), "{capped}");
        assert!(capped.contains("[output too large: 3602 bytes, limit 1000; "), "{capped}");
        let hostile = json!({"k": "\u{1}".repeat(20_000)});
        let capped = cap_output(&hostile, 10_000).unwrap();
        assert!(json_size(&capped) <= 10_000);
        assert!(capped.as_str().unwrap().starts_with("{\"k\":"));
        for limit in 0..80 {
            cap_output(&long, limit);
        }
    }
}
