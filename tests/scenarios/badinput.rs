//! Whatever comes in from outside, however broken: a defined answer, an event, and the conversation goes on.

use serde_json::{Value, json};
use wakeful::{
    limits,
    prelude::*,
    testkit::{Client, Reply, World, calls, cut, raw, refused, script, stall, text},
};

use crate::{
    assert_idle,
    custom::{Custom, Seen},
};

/// A world with everything a client can reach, and what its hooks saw.
fn open_world() -> (World<Custom>, Seen) {
    let callables = Callables::new().with("echo", |call| async move { Ok(Some(json!(call.args))) });
    let agent = Custom::new().config(|c| c.client_state = true).callables(callables);
    let seen = agent.seen.clone();
    (World::new(agent).model_fn(|_| text("fine")), seen)
}

fn chat(id: &Value, body: &Value) -> Value {
    json!({ "id": id, "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } })
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn failed(client: &Client, request: &str) -> String {
    let frames = client.responses(request);
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!((&frames[0]["done"], &frames[0]["error"], &frames[0]["outcome"]), (&json!(true), &json!(true), &json!("error")));
    frames[0]["body"].as_str().unwrap().to_owned()
}

/// The conversation is usable: a question is answered, every tab sees it, nothing is left.
fn still_works(world: &World<Custom>) {
    let tab = world.connect("after");
    let request = tab.send("still there?");
    world.run();
    assert_eq!(tab.terminals(&request)[0]["outcome"], "completed", "{}", world.story());
    assert_eq!(world.said().last().unwrap(), "assistant: fine");
    assert_idle(world);
}

// --- frames

// wire 41
#[test]
fn text_that_is_no_frame_is_the_applications() {
    let (world, seen) = open_world();
    let socket = world.socket("S1");
    world.run();
    seen.take();
    let rows = world.db().snapshot();
    let texts = [
        "",
        " ",
        "hello",
        "{",
        "}",
        "null",
        "true",
        "12",
        "\"text\"",
        "[]",
        "[{\"type\":\"rpc\"}]",
        "{}",
        "{\"type\":null}",
        "{\"type\":7}",
        "{\"type\":\"\"}",
        "{\"type\":\"cf_agent_unheard_of\"}",
        "{\"type\":\"cf_agent_chat_clear\"",
        "{\"type\":\"rpc\",\"id\":\"1\"}",
        "\u{0}\u{1}",
        "{\"type\":\"\\ud800\"}",
        "{'type':'cf_agent_chat_clear'}",
        "\u{feff}{\"type\":\"cf_agent_chat_clear\"}",
        "1e999",
        "{\"a\":1e999}",
    ];
    texts.iter().for_each(|text| socket.raw(*text));
    world.run();
    let expected: Vec<String> = texts.iter().map(|text| format!("text {text}")).collect();
    assert_eq!(seen.take(), expected);
    for bytes in [vec![], vec![0xff; 3], vec![b'{'; 100_000]] {
        socket.binary(bytes);
    }
    world.run();
    assert_eq!(seen.take().len(), 3);
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    assert_eq!(socket.frames().len(), 3, "only the connect sequence: {}", socket.story());
    assert!(socket.conn().is_some());
    still_works(&world);
}

/// One valid frame of every kind a client sends.
fn every_kind() -> Vec<Value> {
    vec![
        chat(
            &json!("R"),
            &json!(json!({ "messages": [user("u", "hi")], "trigger": "submit-message", "clientTools": [] }).to_string()),
        ),
        json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" }),
        json!({ "type": "cf_agent_stream_resume_ack", "id": "R" }),
        json!({ "type": "cf_agent_chat_request_cancel", "id": "R" }),
        json!({ "type": "cf_agent_chat_messages", "messages": [user("z", "forged")] }),
        json!({ "type": "cf_agent_tool_result", "toolCallId": "c", "toolName": "t", "output": 1, "autoContinue": true, "clientTools": [] }),
        json!({ "type": "cf_agent_tool_approval", "toolCallId": "c", "approved": true, "autoContinue": true }),
        json!({ "type": "cf_agent_state", "state": { "n": 1 } }),
        json!({ "type": "rpc", "id": "1", "method": "echo", "args": [1] }),
        json!({ "type": "cf_agent_chat_clear" }),
    ]
}

/// Values no field expects, or only some do.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1.5e300),
        json!(""),
        json!("x"),
        json!("y".repeat(300)),
        json!([]),
        json!([[1]]),
        json!({}),
        json!({ "type": "x" }),
    ]
}

/// The frame with each of its fields, at any depth, gone or of another type.
fn mutilated(frame: &Value) -> Vec<Value> {
    fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            let path = format!("{at}/{key}");
            paths(inner, &path, found);
            found.push(path);
        }
    }
    let mut found = Vec::new();
    paths(frame, "", &mut found);
    found.retain(|path| path != "/type");
    let mut all = Vec::new();
    for path in found {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let mut without = frame.clone();
        without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        all.push(without);
        all.extend(odd_values().into_iter().map(|odd| {
            let mut other = frame.clone();
            *other.pointer_mut(&path).unwrap() = odd;
            other
        }));
    }
    all
}

// issue A, bad input; wire 66, 67; field, cross-cutting invariant 6
#[test]
fn a_field_of_a_wrong_type_spoils_nothing_but_its_own_frame() {
    let (world, seen) = open_world();
    let (socket, other) = (world.socket("S1"), world.connect("S2"));
    let mut sent = 0;
    for frame in every_kind() {
        for broken in mutilated(&frame) {
            let (before, events) = (socket.frames().len(), world.events().len());
            world.run();
            seen.take();
            socket.frame(broken.clone());
            world.run();
            sent += 1;
            let answers = socket.frames().split_off(before);
            let noticed = !answers.is_empty() || world.events().len() > events || !seen.take().is_empty();
            // A cancel of an unknown request is answered with nothing (wire 145).
            assert!(noticed || broken["type"] == "cf_agent_chat_request_cancel", "nobody noticed {broken}");
            if broken["type"] == "cf_agent_use_chat_request"
                && broken["id"].as_str().is_some_and(|id| !id.is_empty() && id.len() < 257)
            {
                let ends = answers.iter().filter(|f| f["done"] == true).count();
                let not_a_post = world.events().last().unwrap().fields.get("reason") == Some(&json!("not a POST"));
                assert_eq!(ends, usize::from(!not_a_post), "{broken}: {answers:?}");
            }
            assert!(socket.conn().is_some() && other.conn().is_some());
        }
    }
    assert!(sent > 200, "{sent} frames");
    assert!(!world.said().iter().any(|line| line.contains("forged")));
    // Its own frames broke the rules that are checked of the others.
    world.disconnect(&socket);
    still_works(&world);
}

// wire 67, T18, decision 14
#[test]
fn a_body_that_is_no_transcript_is_refused_with_a_reason_and_stores_nothing() {
    let (world, _) = open_world();
    let (socket, other) = (world.socket("S1"), world.socket("S2"));
    let long = "i".repeat(257);
    let table: Vec<(Value, &str)> = vec![
        (Value::Null, "no body"),
        (json!(7), "no body"),
        (json!({ "messages": [] }), "no body"),
        (json!(""), "not a JSON object"),
        (json!("{"), "not a JSON object"),
        (json!("[]"), "not a JSON object"),
        (json!("{}"), "no `messages`"),
        (json!(r#"{"messages":{}}"#), "not an array"),
        (json!(r#"{"messages":"x"}"#), "not an array"),
        (json!(r#"{"messages":[1]}"#), "message 0"),
        (json!(r#"{"messages":[null]}"#), "message 0"),
        (json!(r#"{"messages":[{"id":"a","role":"user","parts":[]},{"role":"user","parts":[]}]}"#), "message 1"),
        (json!(r#"{"messages":[{"id":7,"role":"user","parts":[]}]}"#), "message 0"),
        (json!(r#"{"messages":[{"id":"","role":"user","parts":[]}]}"#), "256 bytes"),
        (json!(json!({ "messages": [{ "id": long, "role": "user", "parts": [] }] }).to_string()), "256 bytes"),
        (json!(r#"{"messages":[{"id":"a","role":"robot","parts":[]}]}"#), "message 0"),
        (json!(r#"{"messages":[{"id":"a","role":"user"}]}"#), "message a"),
        (json!(r#"{"messages":[{"id":"a","role":"user","parts":{}}]}"#), "message a"),
        (json!(r#"{"messages":[{"id":"a","role":"user","parts":["x"]}]}"#), "message a"),
        (json!(r#"{"messages":[{"id":"a","role":"user","parts":[{}]}]}"#), "message a"),
        (json!(r#"{"messages":[{"id":"a","role":"user","content":"old"}]}"#), "older SDK"),
        (json!(format!(r#"{{"messages":[{}]}}"#, vec!["{}"; limits::POSTED_MESSAGES + 1].join(","))), "limits::POSTED_MESSAGES"),
        (json!(json!({ "messages": [user("a", "hi")], "note": "x".repeat(limits::LAST_BODY) }).to_string()), "limits::LAST_BODY"),
    ];
    world.run();
    let rows = world.db().snapshot();
    other.take_frames();
    for (n, (body, reason)) in table.iter().enumerate() {
        let id = format!("R{n}");
        socket.frame(chat(&json!(id), body));
        world.run();
        let said = failed(&socket, &id);
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(world.events().last().unwrap().name, "chat:request:failed");
    }
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    assert_eq!(other.take_frames(), Vec::<Value>::new(), "only the sender is told");
    still_works(&world);
}

// T150, decision 41, field A-04
#[test]
fn an_oversized_frame_is_refused_if_its_id_can_be_read_and_ignored_otherwise() {
    let (world, _) = open_world();
    let (socket, other) = (world.socket("S1"), world.socket("S2"));
    world.run();
    let rows = world.db().snapshot();
    let filler = "x".repeat(limits::FRAME_IN);
    socket.raw(format!(r#"{{"id":"R","type":"cf_agent_use_chat_request","init":{{"method":"POST","body":"{filler}"}}}}"#));
    world.run();
    assert!(failed(&socket, "R").contains("limits::FRAME_IN"));
    let before = socket.frames().len();
    socket.raw(format!(r#"{{"type":"cf_agent_state","state":"{filler}"}}"#));
    socket.raw(filler + "x");
    world.run();
    assert_eq!((socket.frames().len(), world.events_named("frame:ignored").len()), (before, 2));
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    assert!(socket.conn().is_some() && other.conn().is_some());
    still_works(&world);
}

// decision 41, field A-04
#[test]
fn what_is_nested_too_deep_is_refused_and_overflows_nothing() {
    const DEEP: usize = 200_000;
    let (world, _) = open_world();
    let socket = world.socket("S1");
    let nests = [
        format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP)),
        "[".repeat(DEEP),
        "{\"a\":".repeat(DEEP),
    ];
    for (n, deep) in nests.iter().enumerate() {
        socket.raw(deep.clone());
        for shape in [
            r#"{"type":"cf_agent_state","state":NEST}"#,
            r#"{"type":"rpc","id":"1","method":"echo","args":[NEST]}"#,
            r#"{"type":"cf_agent_tool_result","toolCallId":"c","output":NEST}"#,
            r#"{"type":NEST}"#,
            r#"{"type":"cf_agent_chat_clear_not","x":NEST}"#,
            r#"{"id":NEST,"type":"cf_agent_use_chat_request"}"#,
        ] {
            socket.raw(shape.replace("NEST", deep));
        }
        for (m, body) in [
            r#"NEST"#,
            r#"{"messages":NEST}"#,
            r#"{"messages":[NEST]}"#,
            r#"{"messages":[{"id":"a","role":"user","parts":[{"type":"data-x","data":NEST}]}]}"#,
            r#"{"messages":[{"id":"a","role":"user","parts":[],"metadata":NEST}]}"#,
            r#"{"messages":[],"custom":NEST}"#,
        ]
        .iter()
        .enumerate()
        {
            let id = format!("R{n}.{m}");
            socket.frame(chat(&json!(id), &json!(body.replace("NEST", deep))));
            world.run();
            assert!(!failed(&socket, &id).is_empty(), "{body}");
        }
    }
    world.run();
    assert_eq!(world.get_messages(), Vec::<Value>::new());
    still_works(&world);
}

// decision 41: what is nested as deep as may be is kept
#[test]
fn what_is_nested_as_deep_as_allowed_is_kept() {
    let (world, _) = open_world();
    let socket = world.socket("S1");
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let message = format!(r#"{{"id":"a","role":"user","parts":[{{"type":"data-x","data":{deep}}},{{"type":"text","text":"hi"}}]}}"#);
    socket.frame(chat(&json!("R"), &json!(format!(r#"{{"messages":[{message}]}}"#))));
    world.run();
    assert_eq!(socket.terminals("R")[0]["outcome"], "completed");
    assert_eq!(world.get_messages()[0].to_string(), message);
    still_works(&world);
}

// issue A, bad input: ids that repeat or lie
#[test]
fn ids_that_lie_end_nothing_they_do_not_own() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far"), text("fine")]);
    let (tab, liar) = (world.connect("S1"), world.socket("S2"));
    let request = tab.send("hi");
    world.run();
    let reply = tab.messages()[1]["id"].clone();
    // The id of the running request, of its reply, of its question: none of it is the liar's.
    liar.frame(chat(&json!(request), &json!(json!({ "messages": [user("x", "mine")] }).to_string())));
    liar.frame(json!({ "type": "cf_agent_stream_resume_ack", "id": "other" }));
    liar.frame(json!({ "type": "cf_agent_chat_request_cancel", "id": reply }));
    liar.frame(json!({ "type": "cf_agent_chat_request_cancel", "id": "S1-u2" }));
    liar.frame(chat(
        &json!("L1"),
        &json!(
            json!({ "messages": [{ "id": reply, "role": "user", "parts": [{ "type": "text", "text": "I am the answer" }] }] })
                .to_string()
        ),
    ));
    world.run();
    world.open_gate("g");
    world.run();
    assert_eq!(tab.terminals(&request)[0]["outcome"], "completed");
    assert_eq!(world.get_messages()[1]["id"], reply);
    assert_eq!(world.said(), ["user: hi", "assistant: so far"]);
    assert!(failed(&liar, "L1").contains("belongs to the answer that is being written"));
    still_works(&world);
}

// issue A, bad input: a flood
#[test]
fn ten_thousand_frames_of_every_kind_at_once_harm_nobody() {
    let (world, _) = open_world();
    let (socket, tab) = (world.socket("S1"), world.connect("S2"));
    let mut kinds = every_kind();
    // A clear in the flood would take its own questions away.
    kinds.retain(|kind| kind["type"] != "cf_agent_chat_clear");
    for n in 0..10_000 {
        let mut frame = kinds[n % kinds.len()].clone();
        if frame["type"] == "cf_agent_use_chat_request" {
            frame["id"] = json!(format!("R{n}"));
            frame["init"]["body"] = json!(json!({ "messages": [user(&format!("u{n}"), "x")] }).to_string());
        }
        match n % 11 {
            10 => socket.binary([1; 10]),
            9 => socket.raw("not a frame"),
            _ => socket.frame(frame),
        }
    }
    world.run();
    let ends = socket.of_type("cf_agent_use_chat_response").into_iter().filter(|f| f["done"] == true && f["replay"] != true).count();
    let asked = (0..10_000).filter(|n| n % 11 < 9 && n % kinds.len() == 0).count();
    assert_eq!(ends, asked, "every request has one end");
    assert!(socket.conn().is_some() && tab.conn().is_some());
    assert_eq!((world.jobs(), world.alarm_at()), (0, None));
    still_works(&world);
}

// --- providers

/// A text that may be shown to anybody.
fn is_a_sentence(text: &str) -> bool {
    let forbidden = ["<html", "<!DOCTYPE", "https://", "at src/", "panicked", "secret"];
    (10..=600).contains(&text.len())
        && text.chars().next().is_some_and(char::is_uppercase)
        && !forbidden.iter().any(|word| text.contains(word))
}

fn event(json: &str) -> Vec<u8> {
    format!("data: {json}\n\n").into_bytes()
}

// issue A, bad input: providers; decision 43
#[test]
fn a_provider_may_answer_anything() {
    let html = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    let delta = r#"{"choices":[{"index":0,"delta":{"content":"so far"}}]}"#;
    let bad = |reply: Reply| Some(reply);
    let table: Vec<(&str, Option<Reply>, &str, &str)> = vec![
        ("HTML", bad(raw(html).header("content-type", "text/html")), "error", ""),
        ("HTML with a status", bad(raw(html).status(404).header("content-type", "text/html")), "error", ""),
        ("HTML that says it is a stream", bad(raw(html)), "error", ""),
        ("an empty body", bad(cut()), "error", ""),
        ("half an event", bad(raw("data: {\"choices\":[{\"delta\":{\"con")), "error", ""),
        ("half an event after a whole one", bad(raw([event(delta), b"data: {\"choi".to_vec()].concat())), "recovering", "so far fine"),
        ("an end without a reason", bad(text("so far").cut()), "recovering", "so far fine"),
        (
            "a broken connection",
            bad(text("so far").broken("reset by peer https://model.test/v1?key=secret")),
            "recovering",
            "so far fine",
        ),
        ("no connection", bad(refused("connection refused")), "error", ""),
        ("an error in the stream", bad(text("so far").in_stream_error("invalid_request_error", "broken")), "error", "so far"),
        (
            "an error instead of a stream",
            bad(raw(r#"{"error":{"message":"no model of this name","type":"invalid_request_error"}}"#)
                .header("content-type", "application/json")),
            "error",
            "",
        ),
        ("a status without a body", bad(raw("").status(401)), "error", ""),
        ("a redirect", bad(raw("").status(302).header("location", "https://elsewhere.test")), "error", ""),
        ("no content", bad(raw("").status(204)), "error", ""),
        ("text", bad(raw("I am not JSON").header("content-type", "text/plain")), "error", ""),
        ("numbers", bad(raw([event("1"), event("[]"), event("null"), event("\"x\"")].concat())), "error", ""),
        (
            "events of wrong types",
            bad(raw([
                event(r#"{"choices":7}"#),
                event(r#"{"choices":[1,null]}"#),
                event(r#"{"choices":[{"delta":"x"}]}"#),
                event(r#"{"choices":[{"delta":{"content":{"a":1},"tool_calls":"x"}}]}"#),
            ]
            .concat())),
            "error",
            "",
        ),
        (
            "bytes that are no text",
            bad(raw(
                [b"data: {\"choices\":[{\"delta\":{\"content\":\"".to_vec(), vec![0xff, 0xfe, 0xc3], b"\"}}]}\n\n".to_vec()].concat()
            )),
            "recovering",
            "*",
        ),
        ("zeros", bad(raw(vec![0; 10_000])), "error", ""),
        ("silence", bad(stall()), "error", ""),
        ("silence in mid-sentence", bad(text("so far").stall()), "recovering", "so far fine"),
        ("an event without end", bad(raw(format!("data: {}", "x".repeat(limits::SSE_EVENT + 10)))), "error", ""),
        ("more calls than anybody needs", bad(calls((0..200).map(|_| ("nope", json!({}))))), "*", "*"),
    ];
    for (name, reply, outcome, partial) in table {
        let reply = reply.unwrap();
        let world = World::new(Custom::new()).model_fn(move |request| {
            if request.last_user() == "hi" && request.roles().len() == 2 { reply.clone() } else { text("fine") }
        });
        let (tab, other) = (world.connect("S1"), world.connect("S2"));
        let request = tab.send("hi");
        world.run();
        let ends = tab.terminals(&request);
        assert_eq!(ends.len(), 1, "{name}");
        assert_eq!(other.terminals(&request), ends, "{name}");
        if outcome != "*" {
            assert_eq!(ends[0]["outcome"], outcome, "{name}: {}", ends[0]);
        }
        if ends[0]["outcome"] == "error" {
            let shown = ends[0]["body"].as_str().unwrap();
            assert!(is_a_sentence(shown), "{name}: {shown}");
            assert_eq!(world.events_named("chat:request:failed").len(), 1, "{name}");
        }
        let said = world.said();
        match partial {
            "*" => {}
            "" => assert_eq!(said, ["user: hi"], "{name}"),
            text => assert_eq!(said, ["user: hi".to_owned(), format!("assistant: {text}")], "{name}"),
        }
        tab.send("again");
        world.run();
        assert_eq!(world.said().last().unwrap(), "assistant: fine", "{name}");
        assert_idle(&world);
    }
}

// decision 39
#[test]
fn a_provider_that_babbles_without_saying_anything_is_given_up() {
    // Comments keep the connection busy and say nothing.
    let mut reply = Reply::new();
    for _ in 0..40 {
        reply = reply.raw(": ping\n\n").delay(10_000);
    }
    let world = World::new(Custom::new()).model(script![reply.stall(), text("fine")]);
    let tab = world.connect("S1");
    let began = world.clock().now();
    let request = tab.send("hi");
    world.run();
    assert_eq!(tab.terminals(&request)[0]["outcome"], "error");
    let waited = world.clock().now() - began;
    assert!((300_000..=310_000).contains(&waited), "{waited} ms");
    tab.send("again");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: fine");
    assert_idle(&world);
}

// issue A, bad input: an upgrade with anything in its address
#[test]
fn an_odd_address_connects_or_is_refused_and_harms_nobody() {
    let (world, _) = open_world();
    for query in ["", "_pk=", "%", "_pk=%ff%00", "a=b&a=c&&&=", "__agents_transport=capnweb"] {
        let client = world.dial(wakeful::testkit::Dial::new("x").raw().query(query));
        world.run();
        assert!(client.conn().is_some(), "{query}");
    }
    still_works(&world);
}
