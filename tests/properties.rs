//! What must hold for every input of the pure modules, tried on arbitrary ones.

#![allow(clippy::indexing_slicing)]

use std::{collections::BTreeSet, rc::Rc};

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use wakeful::{
    engine::schema,
    model::{AssistantPart, FinishReason, Msg},
    transcript::{
        prompt,
        reducer::{Accumulator, fold},
        repair::{self, Close},
        sanitise,
    },
    wire::{
        chunk::Chunk,
        message::{Part, Role, UiMessage, call_id, is_settled, part_type, state},
    },
};

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        (-9i32..9).prop_map(|n| Value::from(f64::from(n) / 4.0)),
        "[a-z{\" ß😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-d]", inner), 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Few enough that chunks meet.
fn call() -> impl Strategy<Value = String> {
    select(vec!["c1", "c2", "c3"]).prop_map(String::from)
}

fn tool() -> impl Strategy<Value = String> {
    select(vec!["weather", "no such tool!", "x"]).prop_map(String::from)
}

fn meta() -> impl Strategy<Value = Option<Value>> {
    option::of(select(vec![json!({}), json!({"openai":{"itemId":"i"}}), json!({"anthropic":{"signature":"s"}})]))
}

fn chunk() -> impl Strategy<Value = Chunk> {
    let id = 1u32..4;
    let text = "[a-z {}\":ß😀]{0,5}";
    prop_oneof![
        (option::of(call()), option::of(json_value()))
            .prop_map(|(id, metadata)| Chunk::Start { message_id: id.map(Into::into), metadata }),
        Just(Chunk::StartStep),
        Just(Chunk::FinishStep),
        id.clone().prop_map(|id| Chunk::TextStart { id }),
        (id.clone(), text).prop_map(|(id, delta)| Chunk::TextDelta { id, delta }),
        (id.clone(), meta()).prop_map(|(id, meta)| Chunk::TextEnd { id, meta }),
        id.clone().prop_map(|id| Chunk::ReasoningStart { id }),
        (id.clone(), text).prop_map(|(id, delta)| Chunk::ReasoningDelta { id, delta }),
        (id.clone(), meta()).prop_map(|(id, meta)| Chunk::ReasoningEnd { id, meta }),
        (call(), tool()).prop_map(|(call, tool)| Chunk::ToolInputStart { call: call.into(), tool }),
        (call(), text).prop_map(|(call, delta)| Chunk::ToolInputDelta { call: call.into(), delta }),
        (call(), tool(), json_value(), meta()).prop_map(|(call, tool, input, meta)| Chunk::ToolInputAvailable {
            call: call.into(),
            tool,
            input,
            meta
        }),
        (call(), tool(), json_value(), any::<bool>()).prop_map(|(call, tool, input, dynamic)| Chunk::ToolInputError {
            call: call.into(),
            tool,
            input,
            error: "bad".into(),
            dynamic
        }),
        (call(), call()).prop_map(|(approval, call)| Chunk::ToolApprovalRequest { approval, call: call.into() }),
        (call(), json_value(), any::<bool>()).prop_map(|(call, output, preliminary)| Chunk::ToolOutputAvailable {
            call: call.into(),
            output,
            preliminary
        }),
        (call(), any::<bool>()).prop_map(|(call, dynamic)| Chunk::ToolOutputError { call: call.into(), error: "no".into(), dynamic }),
        call().prop_map(|call| Chunk::ToolOutputDenied { call: call.into() }),
        (id.clone(), option::of(tool())).prop_map(|(id, title)| Chunk::Source { id, url: "https://e.org".into(), title }),
        Just(Chunk::File { media_type: "image/png".into(), url: "data:".into() }),
        (option::of(call()), json_value(), any::<bool>()).prop_map(|(id, data, transient)| {
            let mut fields = Map::from_iter([("type".to_owned(), json!("data-x")), ("data".to_owned(), data)]);
            fields.extend(id.map(|id| ("id".to_owned(), id.into())));
            if transient {
                fields.insert("transient".into(), true.into());
            }
            Chunk::Data(fields)
        }),
        json_value().prop_map(Chunk::Metadata),
        option::of(json_value()).prop_map(|metadata| Chunk::Finish { reason: "stop".into(), metadata }),
    ]
}

fn log() -> impl Strategy<Value = Vec<Chunk>> {
    vec(chunk(), 0..32)
}

/// Any part: of our own making, of other SDKs, of later versions, or nonsense.
fn part() -> impl Strategy<Value = Part> {
    let kinds = select(vec![
        "step-start",
        "text",
        "reasoning",
        "file",
        "source-url",
        "data-x",
        "tool-weather",
        "tool-weather",
        "tool-",
        "dynamic-tool",
        "steering-message",
        "of-tomorrow",
    ]);
    let states = select(vec![
        "streaming",
        "done",
        "input-streaming",
        "input-available",
        "approval-requested",
        "approval-responded",
        "output-available",
        "output-error",
        "output-denied",
        "of-tomorrow",
    ]);
    let approvals =
        select(vec![json!({"id":"p"}), json!({"id":"p","approved":true}), json!({"approved":false,"reason":"no"}), json!("odd")]);
    let fields = (
        option::weighted(0.9, states),
        option::weighted(0.9, call()),
        option::of(json_value()),
        option::of(json_value()),
        option::of(json_value()),
        option::of(approvals),
        option::of("[a-z ]{0,4}"),
        meta(),
        (option::weighted(0.1, any::<bool>()), option::weighted(0.1, any::<bool>())),
    );
    (kinds, fields).prop_map(|(kind, (state, call, input, raw, output, approval, text, meta, (preliminary, foreign)))| {
        let mut part = Map::new();
        let steered = (kind == "steering-message").then(|| json!([{"type":"text","text":"also"}, 1]));
        let rows = [
            ("type", Some(kind.into())),
            ("state", state.map(Into::into)),
            ("toolCallId", call.map(Into::into)),
            ("toolName", text.clone().map(Into::into)),
            ("input", input),
            ("rawInput", raw),
            ("output", output),
            ("approval", approval),
            ("text", text.map(Into::into)),
            ("providerMetadata", meta.clone()),
            ("callProviderMetadata", meta),
            ("preliminary", preliminary.map(Into::into)),
            ("providerExecuted", foreign.map(Into::into)),
            ("parts", steered),
        ];
        part.extend(rows.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        part
    })
}

fn message() -> impl Strategy<Value = UiMessage> {
    let roles = prop_oneof![1 => Just(Role::System), 2 => Just(Role::User), 5 => Just(Role::Assistant)];
    (roles, vec(part(), 0..9)).prop_map(|(role, parts)| {
        let mut message = UiMessage::new("m", role);
        message.parts = parts;
        message
    })
}

fn why() -> impl Strategy<Value = Close> {
    select(vec![Close::Aborted, Close::Interrupted, Close::Stopped(FinishReason::Length)])
}

fn applied(mut reply: Accumulator, log: &[Chunk]) -> Accumulator {
    log.iter().for_each(|chunk| reply.apply(chunk));
    reply
}

fn texts(message: &UiMessage, kind: &str) -> String {
    message.parts.iter().filter(|part| part_type(part) == kind).filter_map(|part| part.get("text")?.as_str()).collect()
}

/// What every provider demands of a conversation.
fn assert_legal(messages: &[Rc<Msg>]) -> Result<(), TestCaseError> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for message in messages {
        match message.as_ref() {
            Msg::Tool(results) => {
                let answered: Vec<_> = results.iter().map(|result| (result.call_id.as_str(), result.name.as_str())).collect();
                prop_assert!(!answered.is_empty());
                prop_assert_eq!(&answered, &open, "answers follow their calls, in order");
                open.clear();
            }
            other => {
                prop_assert!(open.is_empty(), "calls without an answer: {:?}", open);
                match other {
                    Msg::User(parts) => prop_assert!(!parts.is_empty()),
                    Msg::Assistant(parts) => {
                        let speaks = parts.iter().any(|part| match part {
                            AssistantPart::Text { text, .. } => !text.is_empty(),
                            AssistantPart::ToolCall { .. } => true,
                            AssistantPart::Reasoning { .. } => false,
                        });
                        prop_assert!(speaks, "an assistant message says nothing: {:?}", parts);
                        for part in parts {
                            if let AssistantPart::ToolCall { id, name, input, .. } = part {
                                prop_assert!(input.is_object() && !id.is_empty());
                                prop_assert!(
                                    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
                                );
                                open.push((id, name));
                            }
                        }
                        prop_assert_eq!(open.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len(), open.len());
                    }
                    Msg::Tool(_) => {}
                }
            }
        }
    }
    prop_assert!(open.is_empty(), "calls without an answer: {:?}", open);
    Ok(())
}

proptest! {
    #[test]
    fn a_reply_folded_in_two_pieces_is_the_reply(log in log(), cut in any::<prop::sample::Index>()) {
        let whole = applied(Accumulator::new("a"), &log).into_message();
        let cut = cut.index(log.len() + 1);
        let prefix = applied(Accumulator::new("a"), &log[..cut]);
        let seen = prefix.message();
        let again = applied(prefix.clone(), &log[cut..]);
        prop_assert_eq!(seen, prefix.into_message(), "looking changes nothing");
        prop_assert_eq!(again.message(), whole.clone());
        // What a restart reads from the stream log.
        let rows: Vec<String> = log.iter().map(Chunk::json).collect();
        prop_assert_eq!(fold(Accumulator::new("a"), rows.iter().map(String::as_str)).into_message(), whole);
    }

    #[test]
    fn no_delta_is_lost_and_no_call_is_doubled(log in log()) {
        // field P-03
        let reply = applied(Accumulator::new("a"), &log);
        let message = reply.message();
        let deltas = |of: fn(&Chunk) -> Option<&str>| log.iter().filter_map(of).collect::<String>();
        let said = deltas(|chunk| match chunk { Chunk::TextDelta { delta, .. } => Some(delta), _ => None });
        let thought = deltas(|chunk| match chunk { Chunk::ReasoningDelta { delta, .. } => Some(delta), _ => None });
        prop_assert_eq!(texts(&message, "text"), said);
        prop_assert_eq!(texts(&message, "reasoning"), thought);
        let calls: Vec<_> = message.parts.iter().filter_map(call_id).collect();
        prop_assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len());
        for part in message.parts.iter().filter(|part| call_id(part).is_some()) {
            // field T-03
            prop_assert!(state(part) == Some("input-streaming") || part.get("input").is_some_and(Value::is_object), "{:?}", part);
        }
        prop_assert_eq!(reply.is_empty(), !repair::is_worth_storing(&message));
        prop_assert!(!message.parts.iter().any(|part| part.get("transient") == Some(&Value::Bool(true))));
    }

    #[test]
    fn a_settled_call_never_changes_again(before in log(), after in log()) {
        let reply = applied(Accumulator::new("a"), &before);
        let settled: Vec<Part> = reply.message().parts.into_iter().filter(|part| call_id(part).is_some() && is_settled(part)).collect();
        let later = applied(reply, &after);
        for part in &settled {
            prop_assert_eq!(later.call(call_id(part).unwrap_or_default()), Some(part));
        }
    }

    #[test]
    fn an_extension_only_adds(before in message(), log in log()) {
        let mut before = before;
        before.role = Role::Assistant;
        let count = before.parts.len();
        let message = applied(Accumulator::extending(before.clone()), &log).into_message();
        prop_assert_eq!(&message.id, &before.id);
        prop_assert!(message.parts.len() >= count);
        let kinds = |message: &UiMessage| message.parts.iter().take(count).map(|part| part_type(part).to_owned()).collect::<Vec<_>>();
        prop_assert_eq!(kinds(&message), kinds(&before));
    }

    #[test]
    fn closing_closes_everything_once(message in message(), why in why()) {
        let mut closed = message.clone();
        let changed = repair::close(&mut closed, why);
        prop_assert_eq!(changed, closed != message);
        let once = closed.clone();
        prop_assert!(!repair::close(&mut closed, why));
        prop_assert_eq!(&closed, &once);
        if message.role != Role::Assistant {
            prop_assert!(!changed);
            return Ok(());
        }
        for part in &closed.parts {
            prop_assert!(!(matches!(part_type(part), "text" | "reasoning") && state(part) == Some("streaming")));
            if call_id(part).is_some() {
                prop_assert!(is_settled(part) || part.contains_key("output"), "{:?}", part);
                prop_assert!(part.get("input").is_some_and(Value::is_object));
            }
        }
        // I12: what is settled keeps its output.
        let outputs = |message: &UiMessage| -> Vec<Part> {
            message.parts.iter().filter(|part| call_id(part).is_some() && is_settled(part)).map(|part| {
                part.iter().filter(|(key, _)| *key != "input").map(|(key, value)| (key.clone(), value.clone())).collect()
            }).collect()
        };
        let after = outputs(&closed);
        prop_assert!(outputs(&message).iter().all(|part| after.contains(part)));
    }

    #[test]
    fn every_request_is_legal(path in vec(message(), 0..4), reply in message(), checkpoint in any::<bool>()) {
        // field T-10
        let history = prompt::history(&path);
        assert_legal(&history)?;
        let asked = prompt::assemble(&history, &reply, checkpoint);
        assert_legal(&asked)?;
        if checkpoint {
            prop_assert!(!matches!(asked.last().map(Rc::as_ref), Some(Msg::Assistant(_))));
        }
        // PV-51
        prop_assert_eq!(prompt::history(&path), history);
    }

    #[test]
    fn a_request_is_legal_in_every_moment_of_a_stream(log in log(), why in why()) {
        let mut reply = applied(Accumulator::new("a"), &log).into_message();
        assert_legal(&prompt::assemble(&[], &reply, true))?;
        repair::close(&mut reply, why);
        assert_legal(&prompt::assemble(&[], &reply, true))?;
    }

    #[test]
    fn sanitising_is_done_at_once_and_keeps_the_words(message in message()) {
        let mut clean = message.clone();
        let changed = sanitise::sanitise(&mut clean);
        prop_assert_eq!(changed, clean != message);
        prop_assert!(!sanitise::sanitise(&mut clean));
        prop_assert_eq!(texts(&clean, "text"), texts(&message, "text"));
        prop_assert!(!clean.json().contains("itemId"));
    }

    #[test]
    fn the_hash_does_not_see_the_order_of_keys(message in message()) {
        let mut turned = message.clone();
        for part in &mut turned.parts {
            *part = part.iter().rev().map(|(key, value)| (key.clone(), value.clone())).collect();
        }
        prop_assert_eq!(sanitise::content_hash(&turned), sanitise::content_hash(&message));
        turned.parts.push(Part::new());
        prop_assert_ne!(sanitise::content_hash(&turned), sanitise::content_hash(&message));
    }

    #[test]
    fn a_capped_output_fits_and_keeps_both_ends(text in "[a\u{1}\"ß😀]{0,400}", limit in 200usize..600) {
        let value = Value::from(text.as_str());
        match prompt::cap_output(&value, limit) {
            None => prop_assert!(value.to_string().len() <= limit),
            Some(capped) => {
                prop_assert!(value.to_string().len() > limit);
                prop_assert!(capped.to_string().len() <= limit, "{} > {limit}", capped);
                let kept = capped.as_str().unwrap_or_default();
                let (head, tail) = kept.split_once("\n\n[output too large").unwrap_or_default();
                let tail = tail.split_once("]\n\n").unwrap_or_default().1;
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
            }
        }
    }
}

fn json_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        json_value(),
        select(vec!["object", "ARRAY", "string", "integer", "number", "boolean", "null", "odd"])
            .prop_map(|kind| json!({"type": kind})),
        select(vec!["#", "#/$defs/a", "#/definitions/b", "#/$defs/none", "https://e.org"]).prop_map(|to| json!({"$ref": to})),
        (
            select(vec![
                "minimum",
                "maximum",
                "minLength",
                "maxLength",
                "minItems",
                "maxItems",
                "exclusiveMinimum",
                "required",
                "enum",
                "const",
                "nullable"
            ]),
            json_value()
        )
            .prop_map(|(key, value)| json!({key: value})),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let list = select(vec!["anyOf", "oneOf", "allOf", "prefixItems", "items"]);
        let named = select(vec!["properties", "$defs", "definitions", "patternProperties"]);
        let one = select(vec!["items", "additionalProperties", "not", "additionalItems"]);
        let field = prop_oneof![
            (list, vec(inner.clone(), 0..4)).prop_map(|(key, list)| (key, Value::from(list))),
            (named, vec(("[a-d]", inner.clone()), 0..4)).prop_map(|(key, fields)| (key, Value::Object(fields.into_iter().collect()))),
            (one, inner).prop_map(|(key, schema)| (key, schema)),
        ];
        vec(field, 0..4).prop_map(|fields| Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    })
}

/// The strictest schema that `value` fits.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Null => json!({"type":"null"}),
        Value::Bool(on) => json!({"type":"boolean","const":on}),
        Value::Number(n) => json!({"type": if n.is_f64() { "number" } else { "integer" }, "minimum": n, "maximum": n}),
        Value::String(text) => json!({"type":"string","minLength":text.chars().count(),"maxLength":text.chars().count(),"const":text}),
        Value::Array(items) => {
            json!({"type":"array","prefixItems":items.iter().map(schema_of).collect::<Vec<_>>(),"items":false,"minItems":items.len()})
        }
        Value::Object(fields) => {
            let properties: Map<_, _> = fields.iter().map(|(key, value)| (key.clone(), schema_of(value))).collect();
            json!({"type":"object","properties":properties,"required":fields.keys().collect::<Vec<_>>(),"additionalProperties":false})
        }
    }
}

/// Equality of JSON, where `1` and `1.0` are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b))),
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn no_schema_is_too_odd(schema in json_schema(), input in json_value()) {
        if let Err(message) = schema::validate(&schema, &input) {
            prop_assert!(!message.is_empty() && message.len() <= wakeful::limits::TOOL_ERROR);
        }
        let cleaned = schema::clean(schema);
        prop_assert_eq!(schema::clean(cleaned.clone()), cleaned.clone());
        let _ = schema::check_schema(&cleaned);
        let _ = schema::validate(&cleaned, &input);
    }

    #[test]
    fn a_schema_made_of_a_value_fits_that_value_alone(value in json_value(), other in json_value()) {
        let schema = schema_of(&value);
        prop_assert_eq!(schema::validate(&schema, &value), Ok(()));
        prop_assert_eq!(schema::validate(&schema, &other).is_ok(), same(&value, &other));
        let either = json!({"enum": [other, value]});
        prop_assert_eq!(schema::validate(&either, &value), Ok(()));
        let never = json!({"allOf": [schema, false]});
        prop_assert!(schema::validate(&never, &value).is_err());
    }
}
