//! Provider codecs against the bytes of real servers: every quirk of `providers.md`, each stream cut at every place.
//!
//! Streams and requests longer than a line are plain files under `golden/providers`; `BLESS=1 cargo test --test providers`
//! rewrites what is expected there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{fmt::Write as _, fs, path::PathBuf, rc::Rc};

use proptest::prelude::*;
use serde_json::{Value, json};
use wakeful::model::{
    AssistantPart, Finish, FinishReason, ModelError, ModelErrorClass, ModelEvent, ModelRef, ModelRequest, Msg, OverflowKind,
    Reasoning, ToolChoice, ToolOutput, ToolResult, ToolSpec, Usage, UserPart,
    codec::{self, End, Flow, Head, Target},
    profile::route,
};

// --- what a test says -------------------------------------------------------------------------------------------------------------

/// A request to `model` that offers `add`, `add_numbers` and `weather`.
fn request(model: &str) -> ModelRequest {
    let tool = |name: &str| ToolSpec { name: name.into(), description: String::new(), input_schema: json!({"type": "object"}) };
    ModelRequest {
        model: reference(model),
        messages: vec![Rc::new(Msg::User(vec![UserPart::Text("hi".into())]))],
        tools: Rc::new([tool("add"), tool("add_numbers"), tool("weather"), tool("f"), tool("g")]),
        ..ModelRequest::default()
    }
}

fn reference(model: &str) -> ModelRef {
    let model = ModelRef::from(model).api_key("test-key-0123456789");
    match model.provider.as_str() {
        "openai-compatible" | "azure-openai" => model.base_url("http://127.0.0.1:9911/v1"),
        _ => model,
    }
}

fn head(status: u16, content_type: &str) -> Head {
    Head { status, headers: vec![("content-type".into(), content_type.into())] }
}

fn stream_head() -> Head {
    head(200, "text/event-stream")
}

/// What came out, and how it ended.
#[derive(Debug, PartialEq)]
struct Outcome(Vec<ModelEvent>, Result<Finish, ModelError>);

/// Decodes these pieces; after [`Flow::Done`] the rest is never read.
fn decode(request: &ModelRequest, head: &Head, pieces: &mut dyn Iterator<Item = &[u8]>, end: End) -> Outcome {
    let route = route(&request.model).unwrap();
    let mut decoder = codec::decoder(request, &route, head.clone());
    let mut events = Vec::new();
    for piece in pieces {
        if decoder.push(piece, &mut events) == Flow::Done {
            break;
        }
    }
    let result = decoder.end(end, &mut events);
    Outcome(events, result)
}

const STRIDE: usize = 61;

/// Decodes bytes whole, byte by byte and cut at every boundary, with LF and with CRLF: the outcome must be the same.
fn decode_every_way(request: &ModelRequest, head: &Head, bytes: &[u8], end: End) -> Outcome {
    let whole = decode(request, head, &mut [bytes].into_iter(), end.clone());
    check_order(&whole.0);
    let crlf = String::from_utf8(bytes.to_vec()).map(|text| text.replace('\n', "\r\n").into_bytes());
    let is_stream = head.status == 200 && bytes.windows(5).any(|w| w == b"data:");
    let variants: Vec<Vec<u8>> = [Some(bytes.to_vec()), crlf.ok().filter(|_| is_stream)].into_iter().flatten().collect();
    for bytes in &variants {
        let single = decode(request, head, &mut bytes.chunks(1), end.clone());
        assert_eq!(single, whole, "byte by byte");
        // Pieces of 61 bytes behind a first one of 0 to 60: each boundary is a cut once.
        for first in 0..STRIDE.min(bytes.len() + 1) {
            let (front, back) = bytes.split_at(first);
            assert_eq!(
                decode(request, head, &mut [front].into_iter().chain(back.chunks(STRIDE)), end.clone()),
                whole,
                "cut from {first}"
            );
        }
    }
    whole
}

/// Blocks follow each other, deltas stand inside them, calls begin before they go on, usage comes once and last.
fn check_order(events: &[ModelEvent]) {
    let mut open = "";
    let mut begun = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            ModelEvent::TextStart | ModelEvent::ReasoningStart => {
                assert_eq!(open, "", "a block inside a block: {events:?}");
                open = if *event == ModelEvent::TextStart { "text" } else { "reasoning" };
            }
            ModelEvent::TextDelta(text) => assert!(open == "text" && !text.is_empty(), "{events:?}"),
            ModelEvent::ReasoningDelta(text) => assert!(open == "reasoning" && !text.is_empty(), "{events:?}"),
            ModelEvent::TextEnd { .. } => assert_eq!(std::mem::take(&mut open), "text", "{events:?}"),
            ModelEvent::ReasoningEnd { .. } => assert_eq!(std::mem::take(&mut open), "reasoning", "{events:?}"),
            ModelEvent::ToolInputStart { slot, name, .. } => {
                assert!(open.is_empty() && !begun.contains(slot) && !name.is_empty(), "{events:?}");
                begun.push(*slot);
            }
            ModelEvent::ToolInputDelta { slot, .. } => assert!(begun.contains(slot), "{events:?}"),
            ModelEvent::ToolCall { slot, input, .. } => assert!(begun.contains(slot) && input.is_object(), "{events:?}"),
            ModelEvent::ToolInputError { slot, .. } => assert!(begun.contains(slot), "{events:?}"),
            ModelEvent::Usage(_) => assert_eq!(at + 1, events.len(), "{events:?}"),
            ModelEvent::Meta { .. } | ModelEvent::Source { .. } | ModelEvent::File { .. } | ModelEvent::Warning(_) => {}
        }
    }
    assert_eq!(open, "", "a block stays open: {events:?}");
}

/// One line an event. Ends of blocks are shown only for their metadata: [`check_order`] has looked at them.
fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for event in &outcome.0 {
        lines.push(match event {
            ModelEvent::Meta { id, model } => format!("meta {} {}", id.as_deref().unwrap_or("-"), model.as_deref().unwrap_or("-")),
            ModelEvent::TextDelta(text) => format!("text {text:?}"),
            ModelEvent::ReasoningDelta(text) => format!("reasoning {text:?}"),
            ModelEvent::TextEnd { meta: Some(meta) } => format!("text meta {meta}"),
            ModelEvent::ReasoningEnd { meta: Some(meta) } => format!("reasoning meta {meta}"),
            ModelEvent::TextStart | ModelEvent::ReasoningStart | ModelEvent::TextEnd { .. } | ModelEvent::ReasoningEnd { .. } => {
                continue;
            }
            ModelEvent::ToolInputStart { slot, id, name } => format!("start {slot} {name} {id}"),
            ModelEvent::ToolInputDelta { slot, text } => format!("args {slot} {text}"),
            ModelEvent::ToolCall { slot, id, name, input, meta } => {
                let meta = meta.as_ref().map(|meta| format!(" meta {meta}")).unwrap_or_default();
                format!("call {slot} {name} {id} {input}{meta}")
            }
            ModelEvent::ToolInputError { slot, id, name, raw, .. } => format!("bad call {slot} {name} {id} {raw}"),
            ModelEvent::Source { url, title } => format!("source {url} {}", title.as_deref().unwrap_or("-")),
            ModelEvent::File { media_type, url } => format!("file {media_type} {url}"),
            ModelEvent::Warning(_) => "warning".to_owned(),
            ModelEvent::Usage(usage) => show_usage(usage),
        });
    }
    lines.push(match &outcome.1 {
        Ok(finish) => format!("finish {} ({})", finish.reason.as_str(), finish.raw),
        Err(error) => format!("error {:?} {}: {}", error.class, error.code.as_deref().unwrap_or("-"), error.message),
    });
    lines
}

fn show_usage(usage: &Usage) -> String {
    let mut text = "usage".to_owned();
    let fields = [
        ("in", usage.input),
        ("cached", usage.cached_read),
        ("written", usage.cache_write),
        ("out", usage.output),
        ("reasoning", usage.reasoning),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            write!(text, " {name}={value}").unwrap();
        }
    }
    text
}

fn data(value: Value) -> String {
    format!("data: {value}\n\n")
}

/// A chunk with this delta.
fn delta(delta: Value) -> String {
    data(json!({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn text(text: &str) -> String {
    delta(json!({ "content": text }))
}

fn calls(entries: Value) -> String {
    delta(json!({ "tool_calls": entries }))
}

fn finish(word: &str) -> String {
    data(json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": word}]}))
}

const DONE: &str = "data: [DONE]\n\n";

/// Decodes a stream of these parts every way and compares; the first line is always the answer's id.
#[track_caller]
fn expect(model: &str, parts: &[String], end: End, expected: &[&str]) -> Outcome {
    let outcome = decode_every_way(&request(model), &stream_head(), parts.concat().as_bytes(), end);
    let lines: Vec<String> = lines(&outcome).into_iter().filter(|line| line != "meta c1 -").collect();
    assert_eq!(lines, expected);
    outcome
}

const ANY: &str = "openai-compatible/m";

// --- streams ----------------------------------------------------------------------------------------------------------------------

// PV-01
#[test]
fn text_usage_and_terminator() {
    let usage = data(json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": {"reasoning_tokens": 0}}}));
    expect(
        ANY,
        &[text("Let"), text(" me"), text(" look."), finish("stop"), usage, DONE.into()],
        End::Eof,
        &["text \"Let\"", "text \" me\"", "text \" look.\"", "usage in=20 cached=16 out=9 reasoning=0", "finish stop (stop)"],
    );
}

// PV-02
#[test]
fn characters_cut_inside_their_bytes_stay_whole() {
    let outcome = expect(ANY, &[text("a😀é"), finish("stop"), DONE.into()], End::Eof, &["text \"a😀é\"", "finish stop (stop)"]);
    assert!(!outcome.0.iter().any(|event| matches!(event, ModelEvent::Warning(_))));
}

#[test]
fn halves_of_characters_and_broken_bytes_do_not_stop_a_stream() {
    let lone = r#"data: {"choices":[{"delta":{"content":"a\ud83d b\\ud83d \ud83d\ude00"}}]}"#.to_owned() + "\n\n";
    let outcome = decode_every_way(&request(ANY), &stream_head(), (text("x") + &lone + &finish("stop") + DONE).as_bytes(), End::Eof);
    assert_eq!(lines(&outcome)[2], "text \"a\u{FFFD} b\\\\ud83d 😀\"");
    let mut broken = text("x").into_bytes();
    broken.extend(b"data: {\"choices\":[{\"delta\":{\"content\":\"\xC3\x28\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\xFF\"}}]}\n\n");
    broken.extend((finish("stop") + DONE).as_bytes());
    let outcome = decode_every_way(&request(ANY), &stream_head(), &broken, End::Eof);
    // Said once, not for each event.
    assert_eq!(lines(&outcome)[1..], ["text \"x\"", "warning", "text \"\u{FFFD}(\"", "text \"\u{FFFD}\"", "finish stop (stop)"]);
}

// PV-03, PV-06
#[test]
fn an_end_without_blank_line_or_terminator_is_an_end() {
    let last = finish("stop").trim_end().to_owned();
    expect(ANY, &[text("a"), last], End::Eof, &["text \"a\"", "finish stop (stop)"]);
    expect(ANY, &[text("a"), finish("stop")], End::Eof, &["text \"a\"", "finish stop (stop)"]);
}

// PV-04
#[test]
fn nothing_is_read_behind_the_terminator() {
    for terminator in ["data: [DONE]\n\n", "data:[done]\n\n", "data:  [DONE] \n\n"] {
        let parts = [text("a"), finish("stop"), terminator.into(), "data: {broken\n\n".into(), text("never")];
        expect(ANY, &parts, End::Eof, &["text \"a\"", "finish stop (stop)"]);
        let request = request(ANY);
        let mut decoder = codec::decoder(&request, &route(&request.model).unwrap(), stream_head());
        assert_eq!(decoder.push(parts.concat().as_bytes(), &mut Vec::new()), Flow::Done);
    }
}

// PV-05, PV-07, PV-08, PV-09, PV-10; field Q-08 (the pump measures the silence, comments are no events)
#[test]
fn how_the_bytes_end_decides_only_together_with_a_finish_reason() {
    let silence = || ": keep-alive\n\n".repeat(3);
    let table = [
        (vec![text("a")], End::Eof, "error Transient truncated: the answer ended before it was complete"),
        (
            vec![text("a")],
            End::ReadError("Error: aborted".into()),
            "error Transient truncated: the answer ended before it was complete",
        ),
        (vec![text("a")], End::ReadError("reset".into()), "error Transient network: the connection to the model provider broke"),
        (vec![text("a"), silence()], End::Stalled { ms: 120_000 }, "error Transient timeout: the model said nothing for 120 seconds"),
        (vec![silence()], End::Stalled { ms: 300_000 }, "error Transient timeout: the model said nothing for 300 seconds"),
        (vec![text("a")], End::Stalled { ms: 3_600_000 }, "error Transient timeout: the answer was not complete after 3600 seconds"),
        (vec![], End::Stalled { ms: 300_000 }, "error Transient timeout: the model said nothing for 300 seconds"),
        (vec![], End::ReadError("reset".into()), "error Transient network: the connection to the model provider broke"),
        (vec![text("a")], End::Aborted, "error Aborted -: stopped"),
        (vec![text("a"), finish("stop")], End::Aborted, "error Aborted -: stopped"),
        (vec![text("a"), finish("stop")], End::ReadError("reset".into()), "finish stop (stop)"),
        (vec![text("a"), finish("stop")], End::Stalled { ms: 1 }, "finish stop (stop)"),
        (
            vec![calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"a"}}])), finish("tool_calls")],
            End::ReadError("reset".into()),
            "error Transient network: the connection to the model provider broke",
        ),
        (vec![DONE.into()], End::Eof, "error Transient empty-answer: the model gave an empty answer"),
        (vec![finish("stop"), DONE.into()], End::Eof, "finish stop (stop)"),
        (vec![text("a"), DONE.into()], End::Eof, "finish stop ()"),
        (vec![calls(json!([{"index": 0, "id": "a", "function": {"name": "f"}}])), DONE.into()], End::Eof, "finish tool-calls ()"),
    ];
    for (parts, end, last) in table {
        let outcome = decode_every_way(&request(ANY), &stream_head(), parts.concat().as_bytes(), end.clone());
        assert_eq!(lines(&outcome).last().unwrap(), last, "{parts:?} {end:?}");
        let never_again = matches!(&outcome.1, Err(error) if error.no_retry);
        assert_eq!(never_again, last.contains("timeout"), "{end:?}");
        if parts.first() == Some(&text("a")) {
            assert!(outcome.0.contains(&ModelEvent::TextDelta("a".into())), "shown text is kept");
        }
        // A call that a broken answer began is never complete.
        let complete = outcome.0.iter().any(|event| matches!(event, ModelEvent::ToolCall { .. }));
        assert!(!complete || outcome.1.is_ok());
    }
}

// PV-11
#[test]
fn arguments_of_parallel_calls_interleave() {
    let piece = |index: u32, text: &str| calls(json!([{"index": index, "function": {"arguments": text}}]));
    expect(
        ANY,
        &[
            calls(json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
                {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}])),
            piece(0, "{\"x\""),
            piece(1, "{\"y\""),
            piece(0, ":1}"),
            piece(1, ":2}"),
            finish("tool_calls"),
            DONE.into(),
        ],
        End::Eof,
        &[
            "start 0 f a",
            "start 1 g b",
            "args 0 {\"x\"",
            "args 1 {\"y\"",
            "args 0 :1}",
            "args 1 :2}",
            "call 0 f a {\"x\":1}",
            "call 1 g b {\"y\":2}",
            "finish tool-calls (tool_calls)",
        ],
    );
}

/// The calls of a stream of these `tool_calls` arrays.
fn called(model: &str, deltas: &[Value]) -> Vec<String> {
    let mut parts: Vec<String> = deltas.iter().map(|entries| calls(entries.clone())).collect();
    parts.extend([finish("tool_calls"), DONE.into()]);
    let outcome = decode_every_way(&request(model), &stream_head(), parts.concat().as_bytes(), End::Eof);
    lines(&outcome)
        .into_iter()
        .filter(|line| line.starts_with("call") || line.starts_with("bad") || line.starts_with("error"))
        .collect()
}

// PV-12, PV-13, PV-14, PV-16; field Q-01, Q-02, Q-04, Q-11, Q-12, T-03
#[test]
fn calls_are_put_together_whatever_is_missing() {
    let entry = |index: Value, id: Value, name: Value, args: Value| {
        let mut entry = json!({"type": "function", "function": {}});
        let fields = [("index", index), ("id", id)];
        fields.into_iter().filter(|(_, v)| !v.is_null()).for_each(|(k, v)| entry[k] = v);
        let fields = [("name", name), ("arguments", args)];
        fields.into_iter().filter(|(_, v)| !v.is_null()).for_each(|(k, v)| entry["function"][k] = v);
        entry
    };
    let n = || Value::Null;
    let whole = |id: &str, name: &str, args: &str| entry(n(), json!(id), json!(name), json!(args));
    let at = |index: u64, id: &str, name: &str, args: &str| entry(json!(index), json!(id), json!(name), json!(args));
    let table: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "no index, two ids (Q-01)",
            vec![json!([whole("a", "f", "{\"x\":1}")]), json!([whole("b", "g", "{}")])],
            vec!["call 0 f a {\"x\":1}", "call 1 g b {}"],
        ),
        (
            "no index, pieces without id continue",
            vec![
                json!([whole("a", "f", "{\"x\"")]),
                json!([entry(n(), n(), n(), json!(":1}"))]),
                json!([whole("b", "g", "")]),
                json!([entry(n(), n(), n(), json!("{}"))]),
            ],
            vec!["call 0 f a {\"x\":1}", "call 1 g b {}"],
        ),
        (
            "all index 0, two ids (Q-02)",
            vec![json!([at(0, "a", "f", "{\"x\":1}")]), json!([at(0, "b", "f", "{\"x\":2}")])],
            vec!["call 0 f a {\"x\":1}", "call 1 f b {\"x\":2}"],
        ),
        (
            "all index 0, pieces follow the newer",
            vec![
                json!([at(0, "a", "f", "{\"x\":1}")]),
                json!([at(0, "b", "g", "")]),
                json!([entry(json!(0), n(), n(), json!("{\"y\""))]),
                json!([entry(json!(0), n(), n(), json!(":2}"))]),
            ],
            vec!["call 0 f a {\"x\":1}", "call 1 g b {\"y\":2}"],
        ),
        (
            "all index 0, no ids",
            vec![json!([at(0, "", "f", "{\"x\":1}")]), json!([at(0, "", "f", "{\"x\":2}")])],
            vec!["call 0 f  {\"x\":1}", "call 1 f  {\"x\":2}"],
        ),
        (
            "nothing but names and arguments",
            vec![json!([entry(n(), n(), json!("f"), json!("{\"x\":1}"))]), json!([entry(n(), n(), json!("g"), json!("{}"))])],
            vec!["call 0 f  {\"x\":1}", "call 1 g  {}"],
        ),
        ("a huge index", vec![json!([at(4_000_000_000, "a", "f", "{}")])], vec!["call 0 f a {}"]),
        (
            "an index as text",
            vec![json!([entry(json!("3"), json!("a"), json!("f"), json!("{"))]), json!([at(3, "", "", "}")])],
            vec!["call 0 f a {}"],
        ),
        (
            "the id decides against the index",
            vec![json!([at(0, "a", "f", "{\"x\"")]), json!([entry(json!(1), json!("a"), n(), json!(":1}"))])],
            vec!["call 0 f a {\"x\":1}"],
        ),
        (
            "one id for two calls (PV-16)",
            vec![json!([at(0, "a", "f", "{\"x\":1}")]), json!([at(1, "a", "g", "{\"y\":2}")])],
            vec!["call 0 f a {\"x\":1}", "call 1 g a {\"y\":2}"],
        ),
        ("id null (Q-11)", vec![json!([entry(json!(0), Value::Null, json!("f"), json!("{}"))])], vec!["call 0 f  {}"]),
        ("id as a number", vec![json!([entry(json!(0), json!(7), json!("f"), json!("{}"))])], vec!["call 0 f 7 {}"]),
        (
            "the name in each delta (Q-12)",
            vec![
                json!([at(0, "a", "add", "")]),
                json!([at(0, "a", "add", "{\"a\"")]),
                json!([at(0, "a", "add", ":")]),
                json!([at(0, "a", "add", "1")]),
                json!([at(0, "a", "add", "}")]),
            ],
            vec!["call 0 add a {\"a\":1}"],
        ),
        (
            "the name in pieces (Q-12)",
            vec![json!([at(0, "a", "ad", "")]), json!([at(0, "", "d", "")]), json!([at(0, "", "", "{}")])],
            vec!["call 0 add a {}"],
        ),
        (
            "a name that is the beginning of another's",
            vec![json!([at(0, "a", "add", "")]), json!([at(0, "", "_numbers", "")]), json!([at(0, "", "", "{}")])],
            vec!["call 0 add_numbers a {}"],
        ),
        ("blank names begin nothing", vec![json!([at(0, "a", " ", "{}")])], vec![]),
        (
            "the finalizer of Workers AI",
            vec![json!([at(0, "a", "f", "{}")]), json!([{"index": 0, "id": null, "function": {"name": null, "arguments": ""}}])],
            vec!["call 0 f a {}"],
        ),
        ("a finalizer alone", vec![json!([{"index": 0, "id": null, "function": {"name": null, "arguments": ""}}])], vec![]),
        ("entries that are no calls", vec![json!([null, 5, "x", [], {}])], vec![]),
        ("a piece of nothing", vec![json!([entry(n(), n(), n(), json!("{}"))])], vec![]),
        // PV-13, T-03
        ("arguments empty", vec![json!([at(0, "a", "f", "")])], vec!["call 0 f a {}"]),
        ("arguments absent", vec![json!([entry(json!(0), json!("a"), json!("f"), n())])], vec!["call 0 f a {}"]),
        (
            "arguments null",
            vec![json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": null}}])],
            vec!["call 0 f a {}"],
        ),
        ("arguments null as text", vec![json!([at(0, "a", "f", "null")])], vec!["call 0 f a {}"]),
        ("arguments blank", vec![json!([at(0, "a", "f", " \n")])], vec!["call 0 f a {}"]),
        (
            "arguments an object",
            vec![json!([entry(json!(0), json!("a"), json!("f"), json!({"x": {"y": [1]}}))])],
            vec!["call 0 f a {\"x\":{\"y\":[1]}}"],
        ),
        ("arguments a string in a string", vec![json!([at(0, "a", "f", "\"{\\\"a\\\":1}\"")])], vec!["call 0 f a {\"a\":1}"]),
        ("arguments a list", vec![json!([at(0, "a", "f", "[1]")])], vec!["bad call 0 f a [1]"]),
        ("arguments a native list", vec![json!([entry(json!(0), json!("a"), json!("f"), json!([1]))])], vec!["bad call 0 f a [1]"]),
        ("arguments a number", vec![json!([at(0, "a", "f", "5")])], vec!["bad call 0 f a 5"]),
        ("arguments with NUL behind them", vec![json!([at(0, "a", "f", "{}\u{0} ")])], vec!["call 0 f a {}"]),
        (
            "arguments twice",
            vec![json!([at(0, "a", "f", "{\"a\":1}")]), json!([at(0, "a", "", "{\"a\":1}")])],
            vec!["call 0 f a {\"a\":1}"],
        ),
        ("two different objects", vec![json!([at(0, "a", "f", "{\"a\":1}{\"a\":2}")])], vec!["bad call 0 f a {\"a\":1}{\"a\":2}"]),
        // PV-14, Q-04
        ("arguments cut", vec![json!([at(0, "a", "f", "{\"path\":\"/a/b")])], vec!["bad call 0 f a {\"path\":\"/a/b"]),
        ("arguments too deep", vec![json!([at(0, "a", "f", &format!("{}{}", "[".repeat(500), "]".repeat(500)))])], vec![]),
    ];
    for (name, deltas, expected) in table {
        let mut found = called(ANY, &deltas);
        if name == "arguments too deep" {
            assert!(found.pop().unwrap().starts_with("bad call 0 f a [[["));
        }
        assert_eq!(found, expected, "{name}");
    }
}

// PV-15; field Q-03, Q-04, decision 40
#[test]
fn a_finish_reason_is_named_and_tells_whether_calls_run() {
    let call = || calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]));
    let table = [
        ("stop", FinishReason::Stop, true),
        ("tool_calls", FinishReason::ToolCalls, true),
        ("function_call", FinishReason::ToolCalls, true),
        ("made_up", FinishReason::Other, true),
        ("length", FinishReason::Length, false),
        ("model_length", FinishReason::Length, false),
        ("content_filter", FinishReason::ContentFilter, false),
        ("sensitive", FinishReason::ContentFilter, false),
        ("error", FinishReason::Error, false),
    ];
    for (word, reason, runs) in table {
        let outcome = expect(
            ANY,
            &[call(), finish(word), DONE.into()],
            End::Eof,
            &["start 0 f a", "args 0 {}", "call 0 f a {}", &format!("finish {} ({word})", reason.as_str())],
        );
        assert_eq!(outcome.1.unwrap().reason.runs_calls(), runs, "{word}");
    }
    for word in ["insufficient_system_resource", "network_error"] {
        let outcome = decode_every_way(&request(ANY), &stream_head(), (text("a") + &finish(word) + DONE).as_bytes(), End::Eof);
        assert_eq!(outcome.1.unwrap_err().class, ModelErrorClass::Transient, "{word}");
    }
}

// providers §13.2 rows 4 and 29
#[test]
fn a_full_context_window_is_length_with_text_and_overflow_without() {
    let word = "model_context_window_exceeded";
    expect("zai/m", &[text("a"), finish(word)], End::Eof, &["text \"a\"", "finish length (model_context_window_exceeded)"]);
    let outcome = decode_every_way(&request("zai/m"), &stream_head(), finish(word).as_bytes(), End::Eof);
    assert_eq!(outcome.1.unwrap_err().class, ModelErrorClass::Overflow(OverflowKind::Input));
}

// PV-17; field Q-05
#[test]
fn chunks_without_choices_are_skipped() {
    expect(
        "azure-openai/m",
        &[
            data(
                json!({"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0}]}),
            ),
            data(json!({"id": "c1", "choices": null})),
            data(json!({"id": "c1", "object": "chat.completion.chunk"})),
            text("a"),
            data(json!({"choices": [{"index": 0, "delta": null, "finish_reason": ""}]})),
            finish("stop"),
            data(json!({"choices": []})),
            DONE.into(),
        ],
        End::Eof,
        &["text \"a\"", "finish stop (stop)"],
    );
}

// PV-18; field Q-05, providers §12
#[test]
fn the_last_usage_counts() {
    let with = |usage: Value| {
        data(json!({"id": "c1", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}], "usage": usage}))
    };
    let tail = |usage: Value| data(json!({"id": "c1", "choices": [], "usage": usage}));
    let table = [
        (json!({"prompt_tokens": 7, "completion_tokens": 3}), "usage in=7 out=3"),
        (json!({"prompt_tokens": "7", "completion_tokens": 3.0}), "usage in=7 out=3"),
        (json!({"prompt_tokens": -7, "completion_tokens": 3}), "usage out=3"),
        (json!({"prompt_tokens": 1e12, "completion_tokens": 3}), "usage out=3"),
        (json!({"prompt_tokens": 7, "completion_tokens": 3, "prompt_cache_hit_tokens": 5}), "usage in=7 cached=5 out=3"),
        (json!({"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 5}), "usage in=7 cached=5 out=3"),
        (
            json!({"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}}),
            "usage in=7 cached=1 written=2 out=3",
        ),
        // Reasoning counted beside the output.
        (
            json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 5}}),
            "usage in=7 out=8 reasoning=5",
        ),
        (
            json!({"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 21, "completion_tokens_details": {"reasoning_tokens": 5}}),
            "usage in=7 out=14 reasoning=5",
        ),
        (
            json!({"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16, "completion_tokens_details": {"reasoning_tokens": 5}}),
            "usage in=7 out=9 reasoning=5",
        ),
        // Nothing in it: what was known before stays.
        (json!({}), "usage in=1 out=2"),
        (json!(null), "usage in=1 out=2"),
        (json!([1]), "usage in=1 out=2"),
    ];
    for (usage, expected) in table {
        let outcome = decode_every_way(
            &request(ANY),
            &stream_head(),
            [
                with(json!({"prompt_tokens": 1, "completion_tokens": 1})),
                with(json!({"prompt_tokens": 1, "completion_tokens": 2})),
                finish("stop"),
                tail(usage.clone()),
                DONE.into(),
            ]
            .concat()
            .as_bytes(),
            End::Eof,
        );
        let usages: Vec<String> = lines(&outcome).into_iter().filter(|line| line.starts_with("usage")).collect();
        assert_eq!(usages, [expected], "{usage}");
    }
    let elsewhere = [
        data(json!({"choices": [], "x_groq": {"id": "r", "usage": {"prompt_tokens": 4, "completion_tokens": 2}}})),
        data(
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 4, "completion_tokens": 2}}]}),
        ),
    ];
    for part in elsewhere {
        let outcome = decode_every_way(&request(ANY), &stream_head(), [text("a"), finish("stop"), part].concat().as_bytes(), End::Eof);
        assert!(lines(&outcome).contains(&"usage in=4 out=2".to_owned()));
    }
}

// PV-19; field Q-06, providers appendix A
#[test]
fn errors_inside_a_stream_are_classified_and_keep_their_words() {
    use ModelErrorClass::*;
    let keep = "The number of tokens to keep from the initial prompt is greater than the context length";
    let table: Vec<(&str, String, ModelErrorClass, &str)> = vec![
        (ANY, data(json!({"error": {"message": "overloaded", "type": "server_error", "code": 503}})), Overloaded, "overloaded"),
        (ANY, data(json!({"error": "it broke"})), Transient, "it broke"),
        (ANY, format!("event: error\n{}", data(json!({"message": "bad day"}))), Transient, "bad day"),
        (ANY, "event: error\ndata: words only\n\n".into(), Transient, "words only"),
        ("vllm/m", data(json!({"object": "error", "message": "no", "type": "BadRequestError", "code": 400})), InvalidRequest, "no"),
        (
            "vllm/m",
            data(json!({"error": {"object": "error", "message": "no", "type": "BadRequestError", "code": 400}})),
            InvalidRequest,
            "no",
        ),
        (
            "openrouter/m",
            data(
                json!({"id": "g", "error": {"code": 502, "message": "Provider disconnected", "metadata": {"provider_name": "P"}}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
            ),
            Transient,
            "Provider disconnected",
        ),
        (
            "lmstudio/m",
            format!("event: error\n{}", data(json!({"error": {"message": keep}, "message": keep}))),
            Overflow(OverflowKind::Input),
            keep,
        ),
        (
            "zai/m",
            data(json!({"error": {"code": "1261", "message": "Prompt exceeds max length"}})),
            Overflow(OverflowKind::Input),
            "Prompt exceeds max length",
        ),
        (
            "gemini/m",
            data(json!([{"error": {"code": 503, "message": "The model is overloaded", "status": "UNAVAILABLE"}}])),
            Overloaded,
            "The model is overloaded",
        ),
        (
            ANY,
            data(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
            Overloaded,
            "Overloaded",
        ),
        (
            ANY,
            data(json!({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}})),
            RateLimit,
            "slow",
        ),
        (
            "minimax/m",
            data(json!({"choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}})),
            Quota,
            "insufficient balance",
        ),
        (
            "workers-ai/@cf/m",
            data(json!({"success": false, "errors": [{"code": 3040, "message": "no capacity"}]})),
            Overloaded,
            "no capacity",
        ),
    ];
    for (model, part, class, message) in table {
        for before in [vec![], vec![text("a"), text("b"), text("c")]] {
            let stream = [before.clone(), vec![part.clone(), text("never"), DONE.into()]].concat().concat();
            let outcome = decode_every_way(&request(model), &stream_head(), stream.as_bytes(), End::Eof);
            let error = outcome.1.clone().unwrap_err();
            assert_eq!((error.class, error.message.as_str()), (class, message), "{part}");
            let shown = outcome.0.iter().filter(|event| matches!(event, ModelEvent::TextDelta(_))).count();
            assert_eq!(shown, before.len(), "{part}");
        }
    }
    // What only has the name of an error is none.
    for nothing in [json!(null), json!(""), json!({}), json!(false)] {
        let part =
            data(json!({"id": "c1", "error": nothing, "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}));
        expect(ANY, &[part, finish("stop")], End::Eof, &["text \"a\"", "finish stop (stop)"]);
    }
}

// PV-20; field Q-13
#[test]
fn a_completion_in_one_piece_gives_the_events_of_a_stream() {
    let completion = json!({
        "id": "c1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "reasoning_content": "Plan", "content": "Let me look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3}
    });
    let expected = [
        "meta c1 m",
        "reasoning \"Plan\"",
        "text \"Let me look.\"",
        "start 0 f a",
        "args 0 {\"x\":1}",
        "start 1 f a",
        "args 1 {\"x\":1}",
        "call 0 f a {\"x\":1}",
        "call 1 f a {\"x\":1}",
        "usage in=2 out=3",
        "finish tool-calls (tool_calls)",
    ];
    let envelope = json!({"success": true, "errors": [], "messages": [], "result": completion});
    for body in [
        completion.to_string(),
        format!("\n\n  {completion}\n"),
        serde_json::to_string_pretty(&completion).unwrap(),
        envelope.to_string(),
    ] {
        for content_type in ["application/json", "text/event-stream", ""] {
            let outcome = decode_every_way(&request(ANY), &head(200, content_type), body.as_bytes(), End::Eof);
            assert_eq!(lines(&outcome), expected);
        }
    }
    // Cut in the middle, it is no answer.
    let half = &completion.to_string()[..200];
    let outcome = decode_every_way(&request(ANY), &head(200, "application/json"), half.as_bytes(), End::ReadError("reset".into()));
    assert_eq!(outcome.1.unwrap_err().class, ModelErrorClass::Transient);
}

// PV-21; field Q-13
#[test]
fn pages_nothing_and_nonsense_are_no_answers() {
    let table: Vec<(u16, &str, &str, ModelErrorClass, &str)> = vec![
        (200, "text/html", "<!doctype html><html><body>Welcome</body></html>", ModelErrorClass::Protocol, "web page: <!doctype html>"),
        (200, "application/json", "<html></html>", ModelErrorClass::Protocol, "web page"),
        (200, "text/event-stream", "", ModelErrorClass::Protocol, "empty answer"),
        (200, "text/event-stream", " \n\n", ModelErrorClass::Protocol, "empty answer"),
        (204, "", "", ModelErrorClass::Protocol, "empty answer"),
        (200, "text/plain", "Hello, I am a parked domain", ModelErrorClass::Protocol, "no events: Hello, I am"),
        (200, "application/json", "{\"ok\":true}", ModelErrorClass::Protocol, "no completion: {\"ok\":true}"),
        (200, "application/json", "{\"choices\":[", ModelErrorClass::Protocol, "not valid JSON"),
        (200, "application/json", "[]", ModelErrorClass::Protocol, "no completion"),
        (200, "application/json", "{\"error\":{\"message\":\"m\",\"code\":\"invalid_api_key\"}}", ModelErrorClass::Auth, "m"),
        (200, "application/json", "{\"detail\":\"Not Found\"}", ModelErrorClass::Transient, "Not Found"),
        (502, "text/html", "<html><title>Bad Gateway</title></html>", ModelErrorClass::Transient, "Bad Gateway"),
        (404, "text/plain", "", ModelErrorClass::NotFound, "404"),
        (401, "application/json", "{\"error\":{\"message\":\"bad key\"}}", ModelErrorClass::Auth, "bad key"),
        // An error status is an error whatever follows.
        (500, "text/event-stream", "data: {\"error\":\"x\"}\n\n", ModelErrorClass::Transient, "x"),
    ];
    for (status, content_type, body, class, part) in table {
        let outcome = decode_every_way(&request(ANY), &head(status, content_type), body.as_bytes(), End::Eof);
        let error = outcome.1.unwrap_err();
        assert_eq!(error.class, class, "{status} {body}: {}", error.message);
        assert!(error.message.contains(part), "{body}: {}", error.message);
        assert!(outcome.0.is_empty(), "{body}");
    }
    // A page of megabytes is not read to its end.
    let request = request(ANY);
    let mut decoder = codec::decoder(&request, &route(&request.model).unwrap(), head(500, "text/html"));
    let page = vec![b'x'; 1024 * 1024];
    assert_eq!(decoder.push(&page, &mut Vec::new()), Flow::Done);
}

// field Q-07, providers §10.1
#[test]
fn noise_between_events_is_ignored() {
    expect(
        ANY,
        &[
            "\u{FEFF}: PROCESSING\n\n".into(),
            "data:\n\ndata: \n\n".into(),
            text("a"),
            "event: ping\ndata: {}\n\ndata: : PROCESSING\n\nid: 7\nretry: 10\n\n".into(),
            "event: ping\ndata: {\"type\":\"ping\"}\n\n".into(),
            text("b"),
            finish("stop"),
            DONE.into(),
        ],
        End::Eof,
        &["text \"a\"", "text \"b\"", "finish stop (stop)"],
    );
    // DashScope: names, ids, no space.
    expect(
        "dashscope/m",
        &[
            "id:1\nevent:result\n:HTTP_STATUS/200\ndata:{\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".into(),
            finish("stop"),
        ],
        End::Eof,
        &["text \"a\"", "finish stop (stop)"],
    );
}

// field Q-07, providers §10.1 rule 7
#[test]
fn data_that_is_no_json_is_forgiven_once() {
    let bad = || "data: {\"choices\":[{\"delta\"\n\n".to_owned();
    expect(
        ANY,
        &[text("a"), bad(), text("b"), bad(), finish("stop"), DONE.into()],
        End::Eof,
        &["text \"a\"", "warning", "text \"b\"", "warning", "finish stop (stop)"],
    );
    let lost =
        |parts: Vec<String>| decode_every_way(&request(ANY), &stream_head(), parts.concat().as_bytes(), End::Eof).1.unwrap_err().class;
    assert_eq!(lost(vec![text("a"), bad(), bad(), finish("stop")]), ModelErrorClass::Protocol);
    let call = calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]));
    assert_eq!(lost(vec![call, bad(), finish("stop")]), ModelErrorClass::Protocol);
    // The last event may be half of one: the answer was cut there.
    assert_eq!(lost(vec![text("a"), "data: {\"choices\":[{\"del".into()]), ModelErrorClass::Transient);
    // Two events in one.
    let two = text("a").trim_end().to_owned() + finish("stop").strip_prefix("data: ").unwrap();
    expect(ANY, &[two], End::Eof, &["text \"a\"", "finish stop (stop)"]);
}

// providers §10.5; field Q-09, Q-14
#[test]
fn reasoning_is_a_part_of_its_own() {
    let think = |value: Value| delta(value);
    expect(
        "deepseek/m",
        &[
            think(json!({"reasoning_content": "Pl", "content": null})),
            think(json!({"reasoning_content": "an", "reasoning": "an"})),
            think(json!({"content": "Hi", "reasoning_content": ""})),
            finish("stop"),
        ],
        End::Eof,
        &["reasoning \"Pl\"", "reasoning \"an\"", "text \"Hi\"", "finish stop (stop)"],
    );
    expect(
        "mistral/m",
        &[
            think(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Plan"}]}]})),
            think(json!({"content": [{"type": "text", "text": "Hi"}, {"type": "reference", "reference_ids": [1]}]})),
            finish("stop"),
        ],
        End::Eof,
        &["reasoning \"Plan\"", "text \"Hi\"", "finish stop (stop)"],
    );
    expect(
        "gemini/m",
        &[think(json!({"content": "Plan", "extra_content": {"google": {"thought": true}}})), text("Hi"), finish("stop")],
        End::Eof,
        &["reasoning \"Plan\"", "text \"Hi\"", "finish stop (stop)"],
    );
    // Q-14: tags only where the server's row says so.
    let tags = || [text("<thi"), text("nk>plan</thi"), text("nk>answer"), finish("stop")];
    expect("lmstudio/m", &tags(), End::Eof, &["reasoning \"plan\"", "text \"answer\"", "finish stop (stop)"]);
    expect(ANY, &tags(), End::Eof, &["text \"<thi\"", "text \"nk>plan</thi\"", "text \"nk>answer\"", "finish stop (stop)"]);
    // OpenRouter: the structured form is kept whole for the next request.
    expect(
        "openrouter/m",
        &[
            think(
                json!({"reasoning": "Pl", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Pl", "format": "x"}]}),
            ),
            think(
                json!({"reasoning": "an", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "an", "signature": "S"}]}),
            ),
            text("Hi"),
            think(json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "E"}]})),
            finish("stop"),
        ],
        End::Eof,
        &[
            "reasoning \"Pl\"",
            "reasoning \"an\"",
            "reasoning meta {\"openrouter\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"index\":0,\"text\":\"Plan\",\"format\":\"x\",\"signature\":\"S\"}]}}",
            "text \"Hi\"",
            "reasoning meta {\"openrouter\":{\"reasoning_details\":[{\"type\":\"reasoning.encrypted\",\"index\":1,\"data\":\"E\"}]}}",
            "finish stop (stop)",
        ],
    );
}

#[test]
fn refusals_sources_and_pictures_come_through() {
    expect(
        ANY,
        &[delta(json!({"refusal": "No."})), finish("stop"), DONE.into()],
        End::Eof,
        &["text \"No.\"", "finish content-filter (stop)"],
    );
    expect(
        "openrouter/m",
        &[
            text("a"),
            delta(
                json!({"annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.example", "title": "X"}}, {"type": "other"}]}),
            ),
            delta(json!({"images": [{"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}}]})),
            text("b"),
            finish("stop"),
        ],
        End::Eof,
        &[
            "text \"a\"",
            "source https://x.example X",
            "file image/webp data:image/webp;base64,AAAA",
            "text \"b\"",
            "finish stop (stop)",
        ],
    );
}

// field Q-10
#[test]
fn fields_nobody_knows_come_back_with_the_call() {
    let stream = [
        calls(json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}])),
        calls(json!([{"index": 0, "extra_content": {"google": {"thought_signature": "S"}}, "noise": null}])),
        finish("tool_calls"),
    ];
    let outcome = expect(
        "gemini/m",
        &stream,
        End::Eof,
        &[
            "start 0 f a",
            "args 0 {}",
            "call 0 f a {} meta {\"google\":{\"extra_content\":{\"google\":{\"thought_signature\":\"S\"}}}}",
            "finish tool-calls (tool_calls)",
        ],
    );
    let part = outcome.0.iter().find_map(|event| match event.clone() {
        ModelEvent::ToolCall { id, name, input, meta, .. } => Some(AssistantPart::ToolCall { id, name, input, meta }),
        _ => None,
    });
    let history = vec![Msg::Assistant(vec![part.unwrap()])];
    let call = |model: &str| body(model, history.clone())["messages"][0]["tool_calls"][0].clone();
    assert_eq!(call("gemini/m")["extra_content"]["google"]["thought_signature"], "S");
    // PV-43
    assert_eq!(call(ANY).get("extra_content"), None);
}

// PV-34, PV-35, PV-36 and the streams of appendix A
#[test]
fn recorded_streams_give_their_golden_events() {
    let table = [
        ("chat", ANY),
        ("workers-ai-hybrid", "workers-ai/@cf/openai/gpt-oss-120b"),
        ("workers-ai-native", "workers-ai/@hf/nousresearch/hermes-2-pro-mistral-7b"),
        ("workers-ai-no-finish", "workers-ai/@cf/google/gemma-3-12b-it"),
        ("workers-ai-cut", "workers-ai/@cf/qwen/qwq-32b"),
        ("workers-ai-claude", "workers-ai/anthropic/claude-sonnet-4"),
        ("openrouter-comments", "openrouter/m"),
        ("ollama-parallel-calls", "ollama/m"),
    ];
    for (name, model) in table {
        let bytes = fs::read(golden(&format!("{name}.sse"))).unwrap();
        let outcome = decode_every_way(&request(model), &stream_head(), &bytes, End::Eof);
        compare(&format!("{name}.events"), &(lines(&outcome).join("\n") + "\n"));
    }
}

// providers §4.4, §4.5
#[test]
fn other_forms_of_workers_ai_answers() {
    let native = json!({"response": "Hi", "usage": {"prompt_tokens": 2, "completion_tokens": 1}, "tool_calls": [
        {"name": "f", "arguments": {"x": 1}}, {"name": "f", "arguments": {"x": 1}}]});
    let calls_of = |model: &str, body: &Value| {
        lines(&decode_every_way(&request(model), &head(200, "application/json"), body.to_string().as_bytes(), End::Eof))
    };
    let expected = [
        "text \"Hi\"",
        "start 0 f ",
        "args 0 {\"x\":1}",
        "start 1 f ",
        "args 1 {\"x\":1}",
        "call 0 f  {\"x\":1}",
        "call 1 f  {\"x\":1}",
        "usage in=2 out=1",
        "finish tool-calls ()",
    ];
    let without_warning = |lines: Vec<String>| lines.into_iter().filter(|line| line != "warning").collect::<Vec<_>>();
    assert_eq!(without_warning(calls_of("workers-ai/@hf/m", &native)), expected);
    assert_eq!(without_warning(calls_of("workers-ai/@hf/m", &json!({"success": true, "result": native}))), expected);
    // Both forms merged: the completion counts.
    let merged = json!({"response": "Hi", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]});
    assert_eq!(calls_of("workers-ai/@cf/m", &merged), ["text \"Hi\"", "finish stop (stop)"]);
    // Anthropic's form in one piece.
    let message = json!({"type": "message", "id": "msg", "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
        "content": [{"type": "thinking", "thinking": "Plan", "signature": "S"}, {"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]});
    assert_eq!(
        calls_of("workers-ai/anthropic/claude", &message),
        [
            "meta msg m",
            "reasoning \"Plan\"",
            "reasoning meta {\"anthropic\":{\"signature\":\"S\"}}",
            "text \"Hi\"",
            "start 0 f a",
            "args 0 {\"x\":1}",
            "call 0 f a {\"x\":1}",
            "usage in=1 out=2",
            "finish tool-calls (tool_use)"
        ]
    );
    // A gateway's error with status 200.
    let error = decode_every_way(
        &request("workers-ai/@cf/m"),
        &head(200, "application/json"),
        json!({"success": false, "error": [{"code": 2001, "message": "configure it"}], "name": "AiGatewayError"})
            .to_string()
            .as_bytes(),
        End::Eof,
    )
    .1
    .unwrap_err();
    assert_eq!(error.message, "configure it");
    // The model's name without what the family appends.
    let chunk = data(
        json!({"id": "c", "model": "@cf/google/gemma-3-12b-it-external", "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}),
    );
    let outcome = decode_every_way(&request("workers-ai/@cf/google/gemma-3-12b-it"), &stream_head(), chunk.as_bytes(), End::Eof);
    assert_eq!(lines(&outcome)[0], "meta c @cf/google/gemma-3-12b-it");
}

#[test]
fn a_forced_call_that_leaks_as_text_is_a_call() {
    let run = |choice: ToolChoice, pieces: &[&str]| {
        let mut request = request("workers-ai/@cf/openai/gpt-oss-20b");
        request.tool_choice = choice;
        let stream: String = pieces.iter().map(|piece| text(piece)).collect::<String>() + &finish("stop") + DONE;
        lines(&decode_every_way(&request, &stream_head(), stream.as_bytes(), End::Eof))[1..].to_vec()
    };
    let leak = ["{\"name\":\"wea", "ther\",\"arguments\":{\"city\":\"Brno\"}}"];
    let call =
        ["warning", "start 0 weather ", "args 0 {\"city\":\"Brno\"}", "call 0 weather  {\"city\":\"Brno\"}", "finish stop (stop)"];
    assert_eq!(run(ToolChoice::Required, &leak), call);
    // Not forced, or not exactly that: text.
    assert_eq!(run(ToolChoice::Auto, &leak).len(), 3);
    assert_eq!(
        run(ToolChoice::Required, &["{\"name\":\"nobody\",\"arguments\":{}}"])[0],
        "text \"{\\\"name\\\":\\\"nobody\\\",\\\"arguments\\\":{}}\""
    );
    assert_eq!(run(ToolChoice::Required, &["{\"a\":1} is an object"])[0], "text \"{\\\"a\\\":1} is an object\"");
    assert_eq!(run(ToolChoice::Required, &["Plain", " text"])[..2], ["text \"Plain\"", "text \" text\""]);
}

#[test]
fn text_mislabelled_as_reasoning_is_text_when_reasoning_is_off() {
    let stream = delta(json!({"reasoning_content": "Hi"})) + &finish("stop");
    let mut request = request("workers-ai/@cf/nvidia/nemotron-3");
    assert_eq!(lines(&decode_every_way(&request, &stream_head(), stream.as_bytes(), End::Eof))[1], "reasoning \"Hi\"");
    request.reasoning = Reasoning::Off;
    assert_eq!(lines(&decode_every_way(&request, &stream_head(), stream.as_bytes(), End::Eof))[1], "text \"Hi\"");
}

#[test]
fn sizes_are_limited() {
    let request = request(ANY);
    let many: String =
        (0..129).map(|n| calls(json!([{"index": n, "id": format!("c{n}"), "function": {"name": "f", "arguments": "{}"}}]))).collect();
    let error = decode(&request, &stream_head(), &mut [many.as_bytes()].into_iter(), End::Eof).1.unwrap_err();
    assert_eq!(error.class, ModelErrorClass::Protocol);
    assert!(error.message.contains("128"));
    let megabyte = text(&"x".repeat(1024 * 1024));
    let outcome = decode(&request, &stream_head(), &mut (0..17).map(|_| megabyte.as_bytes()), End::Eof);
    assert_eq!(outcome.1.unwrap_err().class, ModelErrorClass::Protocol);
    assert_eq!(outcome.0.iter().filter(|event| matches!(event, ModelEvent::TextDelta(_))).count(), 16);
    let endless = vec![b'x'; 9 * 1024 * 1024];
    let outcome = decode(&request, &stream_head(), &mut [&b"data: "[..], &endless].into_iter(), End::Eof);
    assert_eq!(outcome.1.unwrap_err().class, ModelErrorClass::Protocol);
}

// --- properties -------------------------------------------------------------------------------------------------------------------

/// Pieces from which streams are made that get far into the machine.
fn fragment() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        text("a"),
        text("<think>"),
        text("</think>"),
        text("{\"name\":\"f\",\"arguments\":{}}"),
        delta(json!({"reasoning_content": "r"})),
        delta(json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "d"}]})),
        delta(json!({"refusal": "no"})),
        delta(json!({"content": [{"type": "text", "text": "p"}]})),
        calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}])),
        calls(json!([{"index": 0, "function": {"arguments": "}"}}])),
        calls(json!([{"id": "b", "function": {"name": "add", "arguments": {"x": 1}}}])),
        calls(json!([{"function": {"name": "g", "arguments": "{}"}}])),
        data(json!({"response": "n", "tool_calls": [{"name": "f", "arguments": {}}]})),
        data(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "t"}})),
        data(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}})),
        data(json!({"choices": [], "usage": {"prompt_tokens": 1}})),
        data(json!({"error": {"message": "e"}})),
        data(json!(null)),
        finish("stop"),
        finish("tool_calls"),
        "data: {broken\n\n".to_owned(),
        ": comment\r\r".to_owned(),
        "event: error\n".to_owned(),
        "data: {\"a\":\n".to_owned(),
        "\u{FEFF}".to_owned(),
        "{\"choices\":[]}".to_owned(),
        DONE.to_owned(),
    ]);
    prop_oneof![8 => piece, 1 => any::<String>()]
}

fn any_end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Eof, End::ReadError("x".into()), End::Aborted, End::Stalled { ms: 5 }])
}

fn any_model() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        ANY,
        "lmstudio/m",
        "openrouter/m",
        "workers-ai/@cf/openai/gpt-oss-20b",
        "workers-ai/@cf/nvidia/nemotron-3",
    ])
}

/// The bytes cut at these places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for place in places {
        pieces.push(&bytes[from..place]);
        from = place;
    }
    pieces.push(&bytes[from..]);
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn streams_of_any_pieces_mean_the_same_however_they_are_cut(
        parts in prop::collection::vec(fragment(), 0..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        model in any_model(),
        off in any::<bool>(),
        forced in any::<bool>(),
        end in any_end(),
    ) {
        let mut request = request(model);
        request.reasoning = if off { Reasoning::Off } else { Reasoning::Default };
        request.tool_choice = if forced { ToolChoice::Required } else { ToolChoice::Auto };
        let bytes = parts.concat().into_bytes();
        let whole = decode(&request, &stream_head(), &mut [&bytes[..]].into_iter(), end.clone());
        check_order(&whole.0);
        prop_assert_eq!(&decode(&request, &stream_head(), &mut cut(&bytes, &cuts).into_iter(), end.clone()), &whole);
        prop_assert_eq!(&decode(&request, &stream_head(), &mut bytes.chunks(1), end), &whole);
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        status in prop::sample::select(vec![0u16, 200, 204, 301, 400, 413, 429, 500, 999]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        end in any_end(),
    ) {
        let request = request(ANY);
        let whole = decode(&request, &head(status, ""), &mut [&bytes[..]].into_iter(), end.clone());
        check_order(&whole.0);
        prop_assert_eq!(decode(&request, &head(status, ""), &mut cut(&bytes, &cuts).into_iter(), end), whole);
    }

    /// The short way of the common event and the long way give the same.
    #[test]
    fn both_ways_of_reading_an_event_agree(
        content in prop::option::of(any::<String>()),
        reasoning in prop::option::of(any::<String>()),
        other in prop::option::of(any::<String>()),
        args in prop::option::of("[{}\":a-z0-9]{0,12}"),
        tokens in prop::option::of(0u32..1000),
    ) {
        let mut delta = json!({"content": content, "reasoning_content": reasoning, "reasoning": other});
        if let Some(args) = &args {
            delta["tool_calls"] = json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": args}}]);
        }
        let mut chunk = json!({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null});
        if let Some(tokens) = tokens {
            chunk["usage"] = json!({"prompt_tokens": tokens});
        }
        let mut odd = chunk.clone();
        odd["success"] = json!(true);
        let run = |chunk: Value| {
            let stream = [text("x"), data(chunk), finish("stop"), DONE.into()].concat();
            decode(&request(ANY), &stream_head(), &mut [stream.as_bytes()].into_iter(), End::Eof)
        };
        prop_assert_eq!(run(chunk), run(odd));
    }
}

// --- requests ---------------------------------------------------------------------------------------------------------------------

fn body(model: &str, messages: Vec<Msg>) -> Value {
    let mut request = request(model);
    request.tools = Rc::new([]);
    request.messages = messages.into_iter().map(Rc::new).collect();
    encoded(&request)
}

fn encoded(request: &ModelRequest) -> Value {
    let wire = codec::encode(request, &route(&request.model).unwrap()).unwrap();
    serde_json::from_str(&wire.body).unwrap()
}

fn user(text: &str) -> Msg {
    Msg::User(vec![UserPart::Text(text.into())])
}

fn said(text: &str) -> AssistantPart {
    AssistantPart::Text { text: text.into(), meta: None }
}

fn thought(text: &str, meta: Option<Value>) -> AssistantPart {
    AssistantPart::Reasoning { text: text.into(), meta }
}

fn call(id: &str, name: &str, input: Value) -> AssistantPart {
    AssistantPart::ToolCall { id: id.into(), name: name.into(), input, meta: None }
}

fn result(id: &str, output: ToolOutput) -> ToolResult {
    ToolResult { call_id: id.into(), name: "f".into(), output }
}

/// A conversation with everything in it.
fn everything() -> Vec<Msg> {
    let file = |media: &str, url: &str, name: Option<&str>| UserPart::File {
        media_type: media.into(),
        url: url.into(),
        filename: name.map(Into::into),
    };
    vec![
        Msg::User(vec![
            UserPart::Text("What is this?".into()),
            file("image/png", "data:image/png;base64,AAAA", Some("a.png")),
            file("image/jpeg", "https://x.example/b.jpg", None),
            file("audio/wav", "data:audio/wav;base64,BBBB", None),
            file("application/pdf", "data:application/pdf;base64,CCCC", Some("c.pdf")),
            file("text/plain", "data:text/plain;base64,aGVsbG8=", Some("d.txt")),
            file("application/zip", "data:application/zip;base64,DDDD", Some("e.zip")),
        ]),
        Msg::Assistant(vec![
            thought(
                "Let me see",
                Some(
                    json!({"openrouter": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Let me see", "signature": "S"}]}}),
                ),
            ),
            said("I will look."),
            call("call_1", "f", json!({"b": 1, "a": [true, null, "ü\n\"q\""]})),
            AssistantPart::ToolCall {
                id: "call_2".into(),
                name: "g".into(),
                input: json!({}),
                meta: Some(json!({"google": {"extra_content": {"s": 1}}, "openaiCompatible": {"x": 2}})),
            },
            call("call_3", "f", json!({})),
            call("call_4", "f", json!({})),
        ]),
        Msg::Tool(vec![
            result("call_1", ToolOutput::Text("a cat".into())),
            result("call_2", ToolOutput::Json(json!({"z": 1, "a": 2}))),
            result("call_3", ToolOutput::Error("it \"broke\"".into())),
            result("call_4", ToolOutput::Denied(None)),
        ]),
        Msg::Assistant(vec![call("call_5", "f", json!({}))]),
        Msg::Tool(vec![result("call_5", ToolOutput::Denied(Some("Not now.".into())))]),
        Msg::Assistant(vec![said("A "), said("cat.")]),
        user("Thanks"),
        Msg::User(vec![UserPart::Text("And".into()), UserPart::Text("this?".into())]),
    ]
}

fn full_request(model: &str) -> ModelRequest {
    ModelRequest {
        model: reference(model),
        system: "Be kind.".into(),
        messages: everything().into_iter().map(Rc::new).collect(),
        tools: Rc::new([
            ToolSpec {
                name: "f".into(),
                description: "Does f.".into(),
                input_schema: json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
                    "a": {"type": ["string", "null"], "default": null, "enum": ["x", null]}, "nested": {"type": "object", "properties": {"b": {"type": "integer"}}}},
                    "required": ["a"]}),
            },
            ToolSpec { name: "g".into(), description: String::new(), input_schema: json!(true) },
        ]),
        tool_choice: ToolChoice::Required,
        max_output: Some(500),
        temperature: Some(0.5),
        top_p: Some(1.0),
        reasoning: Reasoning::Effort("minimal".into()),
        session_key: "conversation-1".into(),
    }
}

// PV-40, PV-41, PV-42, PV-43, PV-50, PV-51; providers §4.4, §5, §9
#[test]
fn requests_are_written_as_each_server_wants_them() {
    let table = [
        ("conservative", ANY),
        ("openai-reasoning", "openai/gpt-5"),
        ("openai-chat", "openai-chat/gpt-4o"),
        ("openrouter", "openrouter/anthropic/claude"),
        ("mistral", "mistral/mistral-large"),
        ("deepseek", "deepseek/deepseek-chat"),
        ("gemini", "gemini/gemini-2.5-pro"),
        ("workers-ai", "workers-ai/@cf/zai-org/glm-4.7-flash"),
        ("workers-ai-native", "workers-ai/@hf/nousresearch/hermes-2-pro-mistral-7b"),
        ("workers-ai-catalogue", "workers-ai/anthropic/claude-sonnet-4"),
    ];
    for (name, model) in table {
        let mut request = full_request(model);
        if name == "workers-ai" {
            request.model = request
                .model
                .options(json!({"gateway": {"id": "default", "skipCache": true}, "top_k": 3}))
                .header("CF-AIG-Zdr", "true");
            request.tools = request.tools.iter().take(1).cloned().collect();
        }
        let route = route(&request.model).unwrap();
        let wire = codec::encode(&request, &route).unwrap();
        // PV-51
        assert_eq!(codec::encode(&request, &route).unwrap(), wire, "{name}");
        let mut text = match &wire.target {
            Target::Url(url) => format!("POST {url}\n"),
            Target::AiBinding { model, options } => format!("run {model}\n{options}\n"),
        };
        for (name, value) in &wire.headers {
            writeln!(text, "{name}: {value}").unwrap();
        }
        let body: Value = serde_json::from_str(&wire.body).unwrap();
        check_pairs(&body, name);
        write!(text, "\n{}\n", serde_json::to_string_pretty(&body).unwrap()).unwrap();
        compare(&format!("request-{name}.txt"), &text);
    }
}

/// Each call is answered exactly once, right behind its message, and ids are filled and unique.
fn check_pairs(body: &Value, name: &str) {
    let mut open: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap().to_owned();
            assert!(message["content"].is_string(), "{name}");
            let at = open.iter().position(|o| *o == id).unwrap_or_else(|| panic!("{name}: a result without a call: {id}"));
            open.remove(at);
            continue;
        }
        assert!(open.is_empty(), "{name}: calls without results: {open:?}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(!id.is_empty() && !seen.contains(&id), "{name}: id {id:?}");
            let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object(), "{name}");
            seen.push(id.clone());
            open.push(id);
        }
    }
    assert!(open.is_empty(), "{name}: calls without results: {open:?}");
}

#[test]
fn whatever_the_history_the_request_is_one_that_servers_accept() {
    let odd = vec![
        Msg::Tool(vec![result("nobody", ToolOutput::Text("orphan".into()))]),
        user(""),
        user("hi"),
        Msg::Assistant(vec![said("")]),
        Msg::Assistant(vec![
            call("a", "f", json!([1])),
            call("a", "f", json!(null)),
            call("", "no good name!", json!({})),
            call("open", "f", json!({})),
        ]),
        Msg::Tool(vec![result("a", ToolOutput::Text("first".into())), result("stranger", ToolOutput::Text("x".into()))]),
        Msg::Tool(vec![result("a", ToolOutput::Text("second".into())), result("a", ToolOutput::Text("third".into()))]),
        user("again"),
        Msg::Tool(vec![result("open", ToolOutput::Text("late".into()))]),
        Msg::Assistant(vec![call("a", "f", json!({}))]),
    ];
    for model in [ANY, "openai/gpt-4o", "mistral/m", "workers-ai/@cf/meta/llama-4"] {
        let body = body(model, odd.clone());
        check_pairs(&body, model);
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages[0]["content"], "hi", "empty messages vanish");
        let results: Vec<&str> = messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
        let missing = "{\"error\":\"the tool did not return a result\"}";
        assert_eq!(results, ["first", "second", missing, missing, missing], "{model}");
        assert_eq!(messages[1]["tool_calls"][2]["function"]["name"], "no_good_name_");
        assert_eq!(messages[1]["content"].is_null(), !model.starts_with("workers-ai"), "{model}");
    }
}

// PV-16: an id used in an earlier step and again now
#[test]
fn a_repeated_call_id_is_told_apart_in_the_request() {
    let turn = |text: &str| {
        vec![Msg::Assistant(vec![call("same", "f", json!({}))]), Msg::Tool(vec![result("same", ToolOutput::Text(text.into()))])]
    };
    let body = body(ANY, [turn("one"), turn("two")].concat());
    check_pairs(&body, "same id");
    assert_eq!(body["messages"][0]["tool_calls"][0]["id"], "same");
    assert_eq!(body["messages"][3]["content"], "two");
}

// PV-40, PV-41
#[test]
fn mistral_gets_ids_of_nine_characters_and_a_message_between() {
    let history = || {
        vec![
            user("x"),
            Msg::Assistant(vec![call("call_long_1", "f", json!({})), call("abcDEF123", "f", json!({}))]),
            Msg::Tool(vec![result("call_long_1", ToolOutput::Text("1".into())), result("abcDEF123", ToolOutput::Text("2".into()))]),
            user("y"),
        ]
    };
    let first = body("mistral/m", history());
    assert_eq!(body("mistral/m", history()), first);
    let roles: Vec<&str> = first["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
    let ids: Vec<&str> = first["messages"][1]["tool_calls"].as_array().unwrap().iter().filter_map(|c| c["id"].as_str()).collect();
    assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())), "{ids:?}");
    assert_eq!(ids[1], "abcDEF123", "an id that is fine stays");
    // An id that the rewritten one would collide with is reserved, wherever it stands.
    let mut longer = history();
    longer.push(Msg::Assistant(vec![call(ids[0], "f", json!({}))]));
    let second = body("mistral/m", longer);
    check_pairs(&second, "collision");
    assert_eq!(second["messages"][6]["tool_calls"][0]["id"], ids[0]);
}

// PV-42, PV-43; field Q-09
#[test]
fn reasoning_goes_back_only_to_who_wants_it_and_to_whom_it_belongs() {
    let history = |meta: Option<Value>| {
        vec![
            user("x"),
            Msg::Assistant(vec![thought("Exact\n text ", meta), said("Hm."), call("a", "f", json!({}))]),
            Msg::Tool(vec![result("a", ToolOutput::Text("1".into()))]),
            Msg::Assistant(vec![thought("Final", None), said("Done.")]),
            user("y"),
        ]
    };
    let replayed = |model: &str, meta: Option<Value>| {
        let body = body(model, history(meta));
        (body["messages"][1].get("reasoning_content").cloned(), body["messages"][3].get("reasoning_content").cloned())
    };
    assert_eq!(replayed("deepseek/m", None), (Some(json!("Exact\n text ")), None));
    assert_eq!(replayed("deepseek/m", Some(json!({"anthropic": {"signature": "S"}}))), (Some(json!("")), None));
    assert_eq!(replayed("moonshot/m", None), (Some(json!("Exact\n text ")), Some(json!("Final"))));
    assert_eq!(replayed("moonshot/m", Some(json!({"openai": {"itemId": "i"}}))), (None, Some(json!("Final"))));
    for model in [ANY, "openai/gpt-5", "groq/m", "ollama/m"] {
        assert_eq!(replayed(model, None), (None, None), "{model}");
    }
    let text = body("deepseek/m", history(None))["messages"][1]["content"].clone();
    assert_eq!(text, "Hm.", "never in the content");
    // Parts of one array that were stored in two blocks are one again.
    let split = vec![Msg::Assistant(vec![
        thought("Pl", Some(json!({"openrouter": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Pl"}]}}))),
        thought(
            "an",
            Some(
                json!({"openrouter": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "an"}, {"type": "reasoning.encrypted", "data": "E"}]}}),
            ),
        ),
        said("x"),
    ])];
    assert_eq!(
        body("openrouter/m", split)["messages"][0]["reasoning_details"],
        json!([{"type": "reasoning.text", "index": 0, "text": "Plan"}, {"type": "reasoning.encrypted", "data": "E"}])
    );
}

#[test]
fn reasoning_is_switched_as_each_server_wants_it() {
    let off = Reasoning::Off;
    let high = Reasoning::Effort("xhigh".into());
    let table = [
        (ANY, &off, json!({})),
        (ANY, &high, json!({})),
        ("openai/gpt-5", &off, json!({"reasoning_effort": "minimal"})),
        ("openai/gpt-5.1", &off, json!({"reasoning_effort": "none"})),
        ("openai/o3", &off, json!({"reasoning_effort": "low"})),
        ("openai/o3", &high, json!({"reasoning_effort": "xhigh"})),
        ("openai/gpt-4o", &high, json!({})),
        ("openrouter/m", &off, json!({"reasoning": {"enabled": false}})),
        ("openrouter/m", &high, json!({"reasoning": {"effort": "xhigh"}})),
        ("deepseek/m", &off, json!({"thinking": {"type": "disabled"}})),
        ("dashscope/m", &high, json!({"enable_thinking": true})),
        ("workers-ai/@cf/qwen/qwq-32b", &off, json!({"chat_template_kwargs": {"enable_thinking": false}})),
        ("workers-ai/@cf/qwen/qwq-32b", &high, json!({"reasoning_effort": "high"})),
        ("workers-ai/@cf/openai/gpt-oss-20b", &off, json!({})),
        ("workers-ai/@cf/mistralai/m", &high, json!({})),
    ];
    for (model, reasoning, expected) in table {
        let mut request = request(model);
        let plain = encoded(&request);
        request.reasoning = reasoning.clone();
        let mut extra = encoded(&request);
        extra.as_object_mut().unwrap().retain(|name, _| plain.get(name).is_none());
        assert_eq!(extra, expected, "{model} {reasoning:?}");
    }
}

#[test]
fn options_of_the_application_win_and_null_leaves_out() {
    let mut request = full_request(ANY);
    request.model = request.model.options(json!({"temperature": 0.9, "stream_options": null, "seed": 7, "messages": null}));
    let body = encoded(&request);
    assert_eq!((&body["temperature"], &body["seed"], body.get("stream_options")), (&json!(0.9), &json!(7), None));
    assert_eq!(body.get("messages"), None);
    let text = codec::encode(&request, &route(&request.model).unwrap()).unwrap().body;
    assert_eq!(text.matches("\"temperature\"").count(), 1, "no member twice");
}

#[test]
fn addresses_and_headers_are_put_together() {
    let wire = |model: ModelRef| {
        let mut request = request(ANY);
        request.model = model;
        codec::encode(&request, &route(&request.model).unwrap())
    };
    let table = [
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("https://h/openai/v1?api-version=1", "https://h/openai/v1/chat/completions?api-version=1"),
    ];
    for (base, url) in table {
        let wire = wire(ModelRef::from(ANY).base_url(base)).unwrap();
        assert_eq!(wire.target, Target::Url(url.into()));
        assert_eq!(wire.headers, [("content-type".to_owned(), "application/json".to_owned())], "no key, no header");
    }
    let with_key = wire(ModelRef::from(ANY).base_url("http://h/v1").api_key(" k\n").header("X-Extra", "1")).unwrap();
    assert_eq!(with_key.headers[1..], [("authorization".to_owned(), "Bearer k".to_owned()), ("x-extra".to_owned(), "1".to_owned())]);
    let own = wire(ModelRef::from(ANY).base_url("http://h/v1").api_key("k").header("Authorization", "Basic x")).unwrap();
    assert_eq!(own.headers[1..], [("authorization".to_owned(), "Basic x".to_owned())]);
    let azure = wire(ModelRef::from("azure-openai/m").base_url("https://r.openai.azure.com/openai/v1").api_key("k")).unwrap();
    assert_eq!(azure.headers[1], ("api-key".to_owned(), "k".to_owned()));
    let bad = wire(ModelRef::from(ANY).base_url("http://h/v1").header("x-bad", "a\u{1}secret")).unwrap_err();
    assert_eq!(bad.class, ModelErrorClass::InvalidRequest);
    assert!(bad.message.contains("x-bad") && !bad.message.contains("secret"));
}

// providers §3
#[test]
fn a_request_above_the_cap_is_never_sent() {
    let big = Msg::User(vec![UserPart::File {
        media_type: "image/png".into(),
        url: format!("data:image/png;base64,{}", "A".repeat(21 * 1024 * 1024)),
        filename: None,
    }]);
    let mut request = request(ANY);
    request.messages = vec![Rc::new(big)];
    let error = codec::encode(&request, &route(&request.model).unwrap()).unwrap_err();
    assert_eq!(error.class, ModelErrorClass::Overflow(OverflowKind::Bytes));
    assert!(error.message.contains("20971520"), "{}", error.message);
    request.model = reference("workers-ai/@cf/m");
    assert!(codec::encode(&request, &route(&request.model).unwrap()).is_ok(), "25 MB fit there");
    request.messages = Vec::new();
    assert_eq!(codec::encode(&request, &route(&request.model).unwrap()).unwrap_err().class, ModelErrorClass::InvalidRequest);
}

// PV-38: what the binding gets is JSON text with plain nested objects
#[test]
fn the_binding_gets_plain_nested_objects() {
    let request = full_request("workers-ai/@cf/meta/llama-4");
    let wire = codec::encode(&request, &route(&request.model).unwrap()).unwrap();
    let body: Value = serde_json::from_str(&wire.body).unwrap();
    assert_eq!(body["tools"][0]["function"]["parameters"]["properties"]["nested"]["properties"]["b"]["type"], "integer");
    assert_eq!(body.get("model"), None);
    let Target::AiBinding { options, .. } = wire.target else { panic!("not the binding") };
    let options: Value = serde_json::from_str(&options).unwrap();
    assert_eq!(options["returnRawResponse"], true);
    let affinity = options["extraHeaders"]["x-session-affinity"].as_str().unwrap();
    assert!(affinity.len() == 16 && !affinity.contains("conversation"));
}

// PV-51: a turn only appends
#[test]
fn each_step_of_a_turn_begins_with_the_bytes_of_the_one_before() {
    for model in [ANY, "mistral/m", "deepseek/m", "workers-ai/@cf/meta/llama-4"] {
        let mut request = full_request(model);
        let text = |request: &ModelRequest| codec::encode(request, &route(&request.model).unwrap()).unwrap().body;
        let messages = |body: &str| body.split_once("],\"stream\"").unwrap().0.to_owned();
        let first = messages(&text(&request));
        request.messages.push(Rc::new(Msg::Assistant(vec![call("next", "f", json!({}))])));
        request.messages.push(Rc::new(Msg::Tool(vec![result("next", ToolOutput::Text("x".into()))])));
        assert!(messages(&text(&request)).starts_with(&first), "{model}");
    }
}

// --- goldens ----------------------------------------------------------------------------------------------------------------------

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "providers", name].iter().collect()
}

#[track_caller]
fn compare(name: &str, found: &str) {
    let path = golden(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}; BLESS=1 writes it"));
    assert!(expected == found, "{name} differs; BLESS=1 accepts this:\n{found}");
}
