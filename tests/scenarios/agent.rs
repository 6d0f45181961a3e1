//! What an application can do with its conversation, and what its clients see of it: hooks, callables, state, turns of its own.

use serde_json::{Value, json};
use wakeful::{
    engine::input::TurnStatus,
    prelude::*,
    testkit::{Client, Dial, Gates, Sockets, World, call, calls, script, text, text_deltas},
};

use crate::{
    assert_idle,
    custom::{Custom, Seen, tool},
};

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|f| f["type"].as_str().unwrap()).collect()
}

fn user(id: &str, text: &str) -> UiMessage {
    UiMessage::user(id, text)
}

fn bodies(client: &Client, request: &str, kind: &str) -> Vec<Value> {
    client.chunks(request).into_iter().filter(|c| c["type"] == kind).collect()
}

/// Runs a call of the handle to its end.
fn ask<T: 'static, Fut: Future<Output = T> + 'static>(world: &World<Custom>, run: impl FnOnce(AgentHandle) -> Fut) -> T {
    let handle = world.handle();
    world.block_on(run(handle))
}

// --- HTTP

// wire 16, 17, 18, 20, 21, 22
#[test]
fn the_transcript_is_served_wherever_the_object_is_mounted() {
    let world = World::new(Custom::new()).model(script![text("hello")]);
    let fetch = |url: &str| world.http(HttpRequest { method: "GET".into(), url: url.into(), ..HttpRequest::default() });
    let none = fetch("https://host.test/chat/get-messages");
    assert_eq!((none.status, none.body.as_slice()), (200, b"[]".as_slice()));
    assert_eq!(none.headers[0], ("content-type".into(), "application/json".into()));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let stored = json!([
        { "id": "S1-u2", "role": "user", "parts": [{ "type": "text", "text": "hi" }] },
        { "id": tab.messages()[1]["id"], "role": "assistant", "parts": [{ "type": "step-start" }, { "type": "text", "text": "hello", "state": "done" }] },
    ]);
    let first = fetch("https://host.test/chat/get-messages");
    assert_eq!(serde_json::from_slice::<Value>(&first.body).unwrap(), stored);
    world.restart(Sockets::Kept);
    for url in ["https://host.test/get-messages", "https://host.test/a/b/c/get-messages?x=1&token=secret", &world.url("/get-messages")]
    {
        assert_eq!(fetch(url), first, "{url}");
    }
    let unknown = world.get("/unknown");
    assert_eq!((unknown.status, unknown.body.as_slice()), (404, b"Not implemented".as_slice()));
    let post = world.http(HttpRequest { method: "POST".into(), url: world.url("/get-messages"), ..HttpRequest::default() });
    assert_eq!(post.status, 405);
}

// wire 19
#[test]
fn the_transcript_is_served_at_once_while_an_answer_streams() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let before = world.clock().now();
    assert_eq!(world.said(), ["user: hi"]);
    assert_eq!(world.clock().now(), before);
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: so far"]);
}

// T14
#[test]
fn an_http_route_of_the_application_starts_a_turn() {
    let agent = Custom::new().on_request(|handle, request| async move {
        let text = String::from_utf8(request.body).ok()?;
        let result = handle.save_messages(vec![user("m1", &text)]).await;
        Some(match result {
            Ok(result) => HttpResponse::json(200, result.message.unwrap_or_default().to_string()),
            Err(error) => HttpResponse::text(409, error.to_string()),
        })
    });
    let world = World::new(agent).model(script![text("done")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let post = || HttpRequest { method: "POST".into(), url: world.url("/report"), body: b"report".to_vec(), ..HttpRequest::default() };
    let answer = world.http(post());
    world.run();
    assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap(), world.get_messages()[1]);
    assert_eq!((one.said(), two.said()), (world.said(), vec!["user: report".to_owned(), "assistant: done".to_owned()]));
    // The same id again is no second message.
    assert_eq!(world.http(post()).status, 409);
    assert_idle(&world);
}

// --- connect, identity, state

// wire 31, 32, 40
#[test]
fn a_new_socket_learns_who_is_there_and_what_is_said() {
    let world = World::new(Custom::new());
    let first = world.socket("S1");
    let transcript = json!({ "type": "cf_agent_chat_messages", "messages": [], "connect": true });
    let servers = json!({ "mcp": { "prompts": [], "resources": [], "servers": {}, "tools": [] }, "type": "cf_agent_mcp_servers" });
    let identity = json!({ "name": "room-1", "agent": "chat-agent", "type": "cf_agent_identity" });
    assert_eq!(first.frames(), [transcript.clone(), identity, servers.clone()]);
    ask(&world, |h| async move { h.set_state(json!({ "n": 1 })).await }).unwrap();
    let identity = json!({ "name": "room-1", "agent": "chat-agent", "type": "cf_agent_identity", "stateFollows": true });
    let state = json!({ "state": { "n": 1 }, "type": "cf_agent_state" });
    for _ in 0..2 {
        assert_eq!(world.socket("S2").frames(), [transcript.clone(), identity.clone(), state.clone(), servers.clone()]);
        world.restart(Sockets::Closed);
    }
}

// wire 33
#[test]
fn identity_can_be_kept_back() {
    let world = World::new(Custom::new().config(|c| c.send_identity = false));
    ask(&world, |h| async move { h.set_state(json!(7)).await }).unwrap();
    let frames = world.socket("S1").frames();
    assert_eq!(types(&frames), ["cf_agent_chat_messages", "cf_agent_state", "cf_agent_mcp_servers"]);
}

// wire 34
#[test]
fn a_connection_without_protocol_gets_chat_and_nothing_else() {
    let world = World::new(Custom::new()).model(script![text("hello")]);
    let quiet = world.dial(Dial::new("Q").raw().query("quiet"));
    let tab = world.connect("S1");
    ask(&world, |h| async move { h.set_state(json!(7)).await }).unwrap();
    let request = tab.send("hi");
    world.run();
    assert_eq!(tab.state(), Some(json!(7)));
    let frames = quiet.frames();
    assert!(
        types(&frames).iter().all(|t| ["cf_agent_chat_messages", "cf_agent_use_chat_response"].contains(t)),
        "{:?}",
        types(&frames)
    );
    assert_eq!(quiet.terminals(&request).len(), 1);
}

// wire 36, 37
#[test]
fn shared_state_reaches_everybody_but_its_writer() {
    let agent = Custom::new().config(|c| c.client_state = true);
    let seen = agent.seen.clone();
    let world = World::new(agent);
    let (one, two) = (world.socket("S1"), world.socket("S2"));
    world.run();
    seen.take();
    one.set_state(json!({ "n": 1 }));
    world.run();
    assert_eq!(one.of_type("cf_agent_state"), Vec::<Value>::new());
    assert_eq!(two.of_type("cf_agent_state"), [json!({ "state": { "n": 1 }, "type": "cf_agent_state" })]);
    ask(&world, |h| async move { h.set_state(json!({ "n": 2 })).await }).unwrap();
    world.run();
    for client in [&one, &two] {
        assert_eq!(client.of_type("cf_agent_state").last().unwrap()["state"], json!({ "n": 2 }));
    }
    assert_eq!(seen.take(), [r#"state {"n":1} by conn-1"#, r#"state {"n":2} by the agent"#]);
    assert_eq!(ask(&world, |h| async move { h.state().await }).unwrap(), Some(json!({ "n": 2 })));
}

// wire 38, 39, field A-01, decision 20
#[test]
fn a_state_that_may_not_be_written_stays_as_it_was() {
    let refuse = |state: &Value| if state["bad"] == true { Err(Error::input("the secret reason")) } else { Ok(()) };
    let open = Custom::new().config(|c| c.client_state = true).validate(refuse);
    for (agent, query, state, error) in [
        (Custom::new(), "", json!(1), "Connection is readonly"),
        (open.clone(), "readonly", json!(1), "Connection is readonly"),
        (open, "", json!({ "bad": true }), "State update rejected"),
    ] {
        let world = World::new(agent);
        let watcher = world.socket("S2");
        let socket = world.dial(Dial::new("S1").raw().query(query));
        world.run();
        if query == "readonly" {
            // The flag outlives a hibernation.
            world.hibernate();
        }
        socket.set_state(state);
        world.run();
        assert_eq!(socket.of_type("cf_agent_state_error"), [json!({ "error": error, "type": "cf_agent_state_error" })]);
        assert_eq!(watcher.of_type("cf_agent_state"), Vec::<Value>::new());
        assert_eq!(ask(&world, |h| async move { h.state().await }).unwrap(), None);
        assert!(socket.conn().is_some());
    }
}

// field S-01
#[test]
fn a_state_that_no_row_can_hold_is_an_error_and_the_old_one_stays() {
    let world = World::new(Custom::new().config(|c| c.client_state = true));
    let (one, two) = (world.socket("S1"), world.socket("S2"));
    one.set_state(json!("small"));
    one.set_state(json!("x".repeat(2_500_000)));
    world.run();
    let errors = one.of_type("cf_agent_state_error");
    assert_eq!(errors.len(), 1);
    assert!(errors[0]["error"].as_str().unwrap().contains("limits::STATE"), "{}", errors[0]);
    let refused = ask(&world, |h| async move { h.set_state(json!("€".repeat(900_000))).await });
    assert!(refused.unwrap_err().message().contains("2700002 bytes"));
    assert_eq!(two.of_type("cf_agent_state").len(), 1);
    assert_eq!(ask(&world, |h| async move { h.state().await }).unwrap(), Some(json!("small")));
    assert!(one.conn().is_some() && two.conn().is_some());
}

// wire 41, 55
#[test]
fn what_is_no_frame_of_the_protocol_goes_to_the_application() {
    let agent = Custom::new().on_message(|handle, conn, message| async move {
        if message == Message::Text("ping".into()) {
            handle.send(&conn, "pong").await.unwrap();
            handle.broadcast("someone asked").await.unwrap();
            handle.send_binary(&conn, &[7]);
        }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent);
    let (socket, other) = (world.socket("S1"), world.socket("S2"));
    world.run();
    seen.take();
    let before = socket.frames().len();
    let texts = [
        "hello",
        r#"{"type":"x"}"#,
        "[]",
        "null",
        r#"{"type":"rpc","id":1,"method":"m","args":[]}"#,
        r#"{"type":"rpc","id":"1","method":"m","args":{}}"#,
    ];
    texts.iter().for_each(|text| socket.raw(*text));
    socket.binary([1, 2]);
    world.run();
    let mut expected: Vec<String> = texts.iter().map(|text| format!("text {text}")).collect();
    expected.push("binary [1, 2]".into());
    assert_eq!(seen.take(), expected);
    assert_eq!(socket.frames().len(), before, "{}", socket.story());
    socket.raw("ping");
    world.run();
    let log = socket.story();
    assert!(log.ends_with("S1 ← pong\nS1 ← someone asked\nS1 ← 1 bytes"), "{log}");
    assert!(other.story().ends_with("S2 ← someone asked"));
}

// wire 42 (the object's part: it refuses), decision 44
#[test]
fn a_connection_whose_tags_cannot_be_kept_is_refused() {
    let tags = |request: &ConnRequest| match request.label.as_str() {
        "nine" => Ok((0..9).map(|n| n.to_string()).collect()),
        "ten" => Ok((0..10).map(|n| n.to_string()).collect()),
        "long" => Ok(vec!["é".repeat(257)]),
        "fits" => Ok(vec!["é".repeat(256)]),
        "empty" => Ok(vec![String::new()]),
        "throws" => Err(Error::application("who are you?")),
        _ => Ok(Vec::new()),
    };
    let world = World::new(Custom::new().tags(tags));
    for (label, refused) in [
        ("none", None),
        ("nine", None),
        ("fits", None),
        ("ten", Some("10 tags")),
        ("long", Some("256 characters")),
        ("empty", Some("1 to 256")),
        ("throws", Some("who are you?")),
    ] {
        let client = world.socket(label);
        assert_eq!(client.conn().is_some(), refused.is_none(), "{label}");
        if let Some(reason) = refused {
            assert!(client.frames()[0]["error"].as_str().unwrap().contains(reason), "{label}: {:?}", client.frames());
        }
    }
    assert_eq!(world.sockets().len(), 3);
}

// wire 43, decision 45
#[test]
fn two_sockets_with_one_label_live_side_by_side() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far"), text("again")]);
    let (one, two) = (world.connect("S1"), world.connect("S1"));
    let request = one.send("hi");
    world.run();
    assert_eq!(two.said(), ["user: hi", "assistant: so"]);
    world.disconnect(&one);
    world.open_gate("g");
    world.run();
    assert_eq!(two.terminals(&request).len(), 1);
    two.send("and?");
    world.run();
    assert_eq!(two.said().last().unwrap(), "assistant: again");
    world.reconnect(&one);
    world.run();
    assert_idle(&world);
}

// wire 44 (the object's part)
#[test]
fn the_application_learns_of_every_socket_that_comes_and_goes() {
    let agent = Custom::new();
    let seen = agent.seen.clone();
    let world = World::new(agent);
    let socket = world.socket("S1");
    let other = world.socket("S2");
    socket.close(1000, "bye");
    world.run();
    world.disconnect(&other);
    world.run();
    assert_eq!(seen.take(), ["connect conn-1", "connect conn-2", "close conn-1 1000 bye", "close conn-2 1006 "]);
    let third = world.socket("S3");
    let conn = third.conn().unwrap();
    ask(&world, |h| async move { h.close(&conn, 4001, "not you").await }).unwrap();
    world.run();
    assert!(third.story().ends_with("S3 closed 4001 not you"));
    assert_eq!(world.sockets(), []);
}

// decision 42
#[test]
fn a_readonly_connection_sees_everything_and_changes_nothing() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far")]);
    let guest = world.dial(Dial::new("G").query("readonly"));
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    guest.take_frames();
    let rows = world.db().snapshot();
    guest.cancel(&request);
    guest.frame(json!({ "type": "cf_agent_chat_clear" }));
    guest.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": "x", "output": 1 }));
    guest.frame(json!({ "type": "cf_agent_tool_approval", "toolCallId": "x", "approved": true }));
    world.run();
    let frames = guest.take_frames();
    assert_eq!(
        frames,
        [
            json!({ "type": "cf_agent_chat_messages", "messages": [{ "id": "S1-u2", "role": "user", "parts": [{ "type": "text", "text": "hi" }] }] })
        ]
    );
    let refused = guest.send("me too");
    world.run();
    let expected = json!({ "id": refused, "type": "cf_agent_use_chat_response", "body": "Connection is readonly", "done": true, "error": true, "outcome": "error" });
    assert_eq!(guest.take_frames(), [expected]);
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: so far"]);
    assert_eq!(guest.terminals(&request).len(), 1);
    assert_eq!(world.events_named("frame:ignored").len(), 4);
}

// --- callables

fn callables(gates: &Gates) -> Callables {
    let slow = gates.clone();
    Callables::new()
        .with("add", |call| async move { Ok(Some(json!(call.arg::<i64>(0)? + call.arg::<i64>(1)?))) })
        .with("nothing", |_| async { Ok(None) })
        .with("null", |_| async { Ok(Some(Value::Null)) })
        .with("throws", |_| async { Err(Error::application("x")) })
        .with("count", |call| async move {
            call.send(json!(1));
            call.send(json!({ "n": 2 }));
            Ok(Some(json!("end")))
        })
        .with("stumbles", |call| async move {
            call.send(json!(1));
            Err(Error::application("tripped"))
        })
        .with("slow", move |call| {
            let gates = slow.clone();
            async move {
                let name: String = call.arg(0)?;
                gates.wait(&name).await;
                Ok(Some(json!(name)))
            }
        })
        .with("set", |call| async move {
            call.handle.set_state(json!(1)).await?;
            Ok(None)
        })
}

// wire 48, 49, 50, 51, 52, 53, 54
#[test]
fn methods_answer_their_caller_and_nobody_else() {
    let gates = Gates::new();
    let world = World::new(Custom::new().callables(callables(&gates)));
    let (socket, other) = (world.socket("S1"), world.socket("S2"));
    let done = |result: Value| json!({ "done": true, "result": result, "success": true, "type": "rpc" });
    let piece = |result: Value| json!({ "done": false, "result": result, "success": true, "type": "rpc" });
    let error = |text: &str| json!({ "error": text, "success": false, "type": "rpc" });
    let table = [
        ("add", json!([1, 2]), vec![done(json!(3))]),
        ("nothing", json!([]), vec![json!({ "done": true, "success": true, "type": "rpc" })]),
        ("null", json!([]), vec![done(Value::Null)]),
        ("missing", json!([]), vec![error("Method missing does not exist")]),
        ("setState", json!([1]), vec![error("Method setState is not callable")]),
        ("throws", json!([]), vec![error("x")]),
        ("count", json!([]), vec![piece(json!(1)), piece(json!({ "n": 2 })), done(json!("end"))]),
        ("stumbles", json!([]), vec![piece(json!(1)), error("tripped")]),
    ];
    for (method, args, mut expected) in table {
        let id = socket.rpc(method, args);
        world.run();
        expected.iter_mut().for_each(|frame| frame["id"] = json!(id));
        assert_eq!(socket.replies(&id), expected, "{method}");
    }
    let id = socket.rpc("add", json!(["one"]));
    world.run();
    assert!(socket.replies(&id)[0]["error"].as_str().unwrap().starts_with("argument 0: "), "{:?}", socket.replies(&id));
    assert_eq!(other.of_type("rpc"), Vec::<Value>::new());
    assert_idle(&world);
}

// wire 56
#[test]
fn slow_methods_overtake_each_other_and_one_whose_caller_left_harms_nobody() {
    let gates = Gates::new();
    let world = World::new(Custom::new().callables(callables(&gates))).with_gates(&gates);
    let (socket, other) = (world.socket("S1"), world.socket("S2"));
    let (a, b, c) = (socket.rpc("slow", json!(["a"])), socket.rpc("slow", json!(["b"])), other.rpc("slow", json!(["c"])));
    world.run();
    ["b", "c"].iter().for_each(|gate| world.open_gate(gate));
    world.disconnect(&other);
    world.run();
    assert_eq!(socket.of_type("rpc"), [json!({ "done": true, "id": b, "result": "b", "success": true, "type": "rpc" })]);
    world.open_gate("a");
    world.run();
    assert_eq!(socket.replies(&a)[0]["result"], "a");
    assert_eq!(other.replies(&c), Vec::<Value>::new());
    assert_eq!(world.jobs(), 0);
}

// wire 57, field A-01
#[test]
fn a_method_called_over_a_readonly_connection_cannot_change_anything() {
    let world = World::new(Custom::new().callables(callables(&Gates::new())));
    let socket = world.dial(Dial::new("S1").raw().query("readonly"));
    world.run();
    world.hibernate();
    let id = socket.rpc("set", json!([]));
    let sum = socket.rpc("add", json!([2, 2]));
    world.run();
    assert_eq!(socket.replies(&id), [json!({ "error": "Connection is readonly", "id": id, "success": false, "type": "rpc" })]);
    assert_eq!(socket.replies(&sum)[0]["result"], 4);
    assert_eq!(ask(&world, |h| async move { h.state().await }).unwrap(), None);
}

// field, cross-cutting invariant 6
#[test]
fn a_flood_of_calls_is_refused_beyond_a_bound_and_the_bound_is_given_back() {
    let gates = Gates::new();
    let world = World::new(Custom::new().callables(callables(&gates))).with_gates(&gates);
    let socket = world.socket("S1");
    let ids: Vec<String> = (0..257).map(|_| socket.rpc("slow", json!(["a"]))).collect();
    world.run();
    assert_eq!(socket.of_type("rpc").len(), 1);
    assert!(socket.replies(&ids[256])[0]["error"].as_str().unwrap().contains("256 calls are unanswered"));
    world.open_gate("a");
    world.run();
    assert_eq!(socket.of_type("rpc").len(), 257);
    let id = socket.rpc("add", json!([1, 1]));
    world.run();
    assert_eq!(socket.replies(&id)[0]["result"], 2);
}

// --- what a turn shows besides its answer

// wire 76
#[test]
fn metadata_of_a_reply_is_shown_at_once_and_stored() {
    let agent = Custom::new()
        .before_turn(|_| async {
            Ok(TurnPlan { message_metadata: Some(json!({ "model": "best", "cost": { "in": 1 } })), ..TurnPlan::default() })
        })
        .tool("look", |_, scope| async move {
            scope.metadata(json!({ "cost": { "out": 2 }, "looked": true })).await?;
            Ok(json!("seen"))
        });
    let world = World::new(agent).model(script![call("look", json!({})), text("there")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    assert_eq!(tab.chunks(&request)[0]["messageMetadata"], json!({ "model": "best", "cost": { "in": 1 } }));
    assert_eq!(
        bodies(&tab, &request, "message-metadata"),
        [json!({ "type": "message-metadata", "messageMetadata": { "cost": { "out": 2 }, "looked": true } })]
    );
    let merged = json!({ "model": "best", "cost": { "in": 1, "out": 2 }, "looked": true });
    assert_eq!(world.get_messages()[1]["metadata"], merged);
    assert_eq!(tab.messages()[1]["metadata"], merged);
    assert_idle(&world);
}

// wire 77, 78
#[test]
fn data_parts_are_stored_once_an_id_and_passing_ones_not_at_all() {
    let agent = Custom::new().tool("work", |_, scope| async move {
        scope.data("step", Some("a"), json!(1)).await?;
        scope.progress("percent", json!(50)).await?;
        scope.data("step", Some("a"), json!(2)).await?;
        scope.data("note", None, json!("x")).await?;
        Ok(Value::Null)
    });
    let gates = Gates::new();
    let world = World::new(agent).with_gates(&gates).model(script![call("work", json!({})), text("so").gate("g").text(" far")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let passing = json!({ "type": "data-percent", "data": 50, "transient": true });
    assert_eq!(bodies(&tab, &request, "data-percent"), std::slice::from_ref(&passing));
    // Transient chunks are replayed to whoever comes later, in their place.
    let late = world.connect("S2");
    assert_eq!(bodies(&late, &request, "data-percent"), [passing]);
    gates.open("g");
    world.run();
    let parts = world.get_messages()[1]["parts"].clone();
    let data: Vec<&Value> = parts.as_array().unwrap().iter().filter(|p| p["type"].as_str().unwrap().starts_with("data-")).collect();
    assert_eq!(data, [&json!({ "type": "data-step", "id": "a", "data": 2 }), &json!({ "type": "data-note", "data": "x" })]);
    assert_idle(&world);
}

// wire 106
#[test]
fn an_early_result_is_shown_and_the_last_one_is_stored() {
    let agent = Custom::new().tool("search", |_, scope| async move {
        scope.preliminary(json!("1 found")).await?;
        scope.preliminary(json!("2 found")).await?;
        Ok(json!("3 found"))
    });
    let world = World::new(agent).model(script![call("search", json!({})), text("done")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let shown: Vec<(Value, bool)> =
        bodies(&tab, &request, "tool-output-available").into_iter().map(|c| (c["output"].clone(), c["preliminary"] == true)).collect();
    assert_eq!(shown, [(json!("1 found"), true), (json!("2 found"), true), (json!("3 found"), false)]);
    let part = &world.get_messages()[1]["parts"][1];
    assert_eq!((&part["state"], &part["output"], part.get("preliminary")), (&json!("output-available"), &json!("3 found"), None));
    assert_eq!(world.provider_requests()[1].texts().last().unwrap(), "3 found");
    assert_idle(&world);
}

#[test]
fn a_tool_that_ended_can_show_nothing_more() {
    let kept: std::rc::Rc<std::cell::RefCell<Option<TurnScope>>> = std::rc::Rc::default();
    let keep = kept.clone();
    let agent = Custom::new().tool("work", move |_, scope| {
        *keep.borrow_mut() = Some(scope);
        async { Ok(Value::Null) }
    });
    let world = World::new(agent).model(script![call("work", json!({})), text("done")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let rows = world.db().snapshot();
    let scope = kept.borrow_mut().take().unwrap();
    let late = world.block_on(async move {
        (scope.data("x", None, json!(1)).await, scope.preliminary(json!(1)).await, scope.metadata(json!({})).await)
    });
    assert!(late.0.is_err() && late.1.is_err() && late.2.is_err());
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    assert_idle(&world);
}

// --- turns of the application

/// What an application does when a client tells it to, so that it can wait for a turn while the world goes on.
fn remote() -> Custom {
    let result = |result: wakeful::engine::input::TurnResult| {
        Ok(Some(
            json!({ "request": result.request_id, "status": result.status.as_str(), "error": result.error, "message": result.message, "continuation": result.continuation }),
        ))
    };
    let callables = Callables::new()
        .with("save", move |call| async move {
            let texts: Vec<String> = call.arg(0)?;
            let messages = texts.iter().map(|text| user(text, text)).collect();
            result(call.handle.save_messages_with(messages, json!({ "by": "schedule" })).await?)
        })
        .with("continue", move |call| async move { result(call.handle.continue_last_turn(Some(json!({ "why": "more" }))).await?) });
    Custom::new().callables(callables)
}

// wire 151, 152, T14
#[test]
fn a_turn_of_the_application_is_shown_to_every_tab_and_can_be_joined() {
    let world = World::new(remote()).model(script![text("Good ").gate("g").text("morning.")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.take_frames();
    two.take_frames();
    let call = one.rpc("save", json!([["report"]]));
    world.run();
    let frames = one.take_frames();
    let request = frames[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(types(&frames)[..2], ["cf_agent_chat_messages", "cf_agent_use_chat_response"]);
    let probe = two.probe();
    world.run();
    assert!(two.take_frames().contains(&json!({ "type": "cf_agent_stream_resuming", "id": request, "probeId": probe })));
    world.open_gate("g");
    world.run();
    assert_eq!(two.said(), ["user: report", "assistant: Good morning."]);
    let terminal = json!({ "id": request, "type": "cf_agent_use_chat_response", "body": "", "done": true, "outcome": "completed", "messageIds": ["report"] });
    for tab in [&one, &two] {
        assert_eq!(tab.terminals(&request), std::slice::from_ref(&terminal));
    }
    let message = &world.get_messages()[1];
    assert_eq!(message["metadata"], json!({ "by": "schedule" }));
    let result = &one.replies(&call)[0]["result"];
    assert_eq!(
        *result,
        json!({ "request": request, "status": "completed", "error": null, "message": message, "continuation": false })
    );
    assert_idle(&world);
}

// T12, T15
#[test]
fn saving_nothing_is_skipped_and_so_is_a_turn_that_a_clear_takes_away() {
    let world = World::new(remote()).model(script![text("so").gate("g").text(" far")]);
    let tab = world.connect("S1");
    let nothing = tab.rpc("save", json!([[]]));
    world.run();
    let skipped =
        |request: &str| json!({ "request": request, "status": "skipped", "error": null, "message": null, "continuation": false });
    assert_eq!(tab.replies(&nothing)[0]["result"], skipped(""));
    assert_eq!(world.provider_requests().len(), 0);
    let taken = tab.rpc("save", json!([["report"]]));
    world.run();
    ask(&world, |h| async move { h.clear_messages().await }).unwrap();
    world.open_gate("g");
    world.run();
    let result = &tab.replies(&taken)[0]["result"];
    assert_eq!(*result, skipped(result["request"].as_str().unwrap()));
    assert_eq!(world.said(), Vec::<String>::new());
    assert_idle(&world);
}

// T13, T55, decision 6, decision 32
#[test]
fn the_last_answer_goes_on_in_the_same_message() {
    let world = World::new(remote()).model(script![text("One"), text(", two")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let call = one.rpc("continue", json!([]));
    world.run();
    assert_eq!(one.replies(&call)[0]["result"]["status"], "skipped", "nothing is there that could go on");
    one.send("count");
    world.run();
    let before = world.get_messages()[1].clone();
    let call = one.rpc("continue", json!([]));
    world.run();
    let after = world.get_messages();
    assert_eq!((after.len(), &after[1]["id"]), (2, &before["id"]));
    assert_eq!(world.said(), ["user: count", "assistant: One , two"]);
    assert_eq!((one.said(), two.said()), (world.said(), world.said()));
    let result = &one.replies(&call)[0]["result"];
    assert_eq!((&result["status"], &result["continuation"]), (&json!("completed"), &json!(true)));
    let request = result["request"].as_str().unwrap();
    assert_eq!(two.chunks(request)[0], json!({ "type": "start" }));
    assert!(two.responses(request).iter().all(|frame| frame["continuation"] == true));
    let asked = &world.provider_requests()[1];
    assert_eq!(asked.roles(), ["system", "user", "assistant", "user"]);
    assert!(asked.last_user().to_lowercase().contains("continue"), "{}", asked.last_user());
    assert_idle(&world);
}

// tools §3.4, T09
#[test]
fn messages_are_added_and_changed_without_a_turn() {
    let world = World::new(Custom::new());
    let tab = world.connect("S1");
    let add = |messages: Vec<UiMessage>| ask(&world, |h| async move { h.add_messages(messages).await });
    let upsert = |messages: Vec<UiMessage>| ask(&world, |h| async move { h.upsert_messages(messages).await });
    add(vec![user("a", "one"), user("b", "two")]).unwrap();
    add(vec![user("a", "changed"), user("c", "three")]).unwrap();
    upsert(vec![user("b", "TWO"), user("d", "four")]).unwrap();
    world.run();
    assert_eq!(world.said(), ["user: one", "user: TWO", "user: three", "user: four"]);
    assert_eq!(tab.said(), world.said());
    assert!(add(vec![user("e", "x"), user("e", "y")]).unwrap_err().message().contains("given twice"));
    assert!(add(vec![user("", "x")]).is_err());
    assert_eq!(ask(&world, |h| async move { h.messages().await }).unwrap().len(), 4);
    assert_eq!(world.provider_requests().len(), 0);
    assert_idle(&world);
}

#[test]
fn no_message_takes_the_id_of_the_answer_that_is_being_written() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let id = tab.messages()[1]["id"].as_str().unwrap().to_owned();
    let taken = id.clone();
    let added = ask(&world, |h| async move { h.add_messages(vec![user(&taken, "mine")]).await });
    let saved = ask(&world, |h| async move { h.save_messages(vec![user(&id, "mine")]).await });
    for refused in [added.unwrap_err(), saved.unwrap_err()] {
        assert!(refused.message().contains("belongs to the answer"), "{refused}");
    }
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: so far"]);
    assert_idle(&world);
}

// T05, wire §2.14
#[test]
fn the_application_clears_the_conversation_for_every_tab() {
    let world = World::new(Custom::new()).model(script![text("hello"), text("afresh")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("hi");
    world.run();
    ask(&world, |h| async move { h.clear_messages().await }).unwrap();
    world.run();
    for tab in [&one, &two] {
        assert_eq!(tab.of_type("cf_agent_chat_clear").len(), 1);
        assert_eq!(tab.messages(), Vec::<Value>::new());
    }
    one.send("again");
    world.run();
    assert_eq!(two.said(), ["user: again", "assistant: afresh"]);
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user"]);
    assert_idle(&world);
}

// T09
#[test]
fn what_a_tool_adds_is_kept_and_not_seen_by_its_own_turn() {
    let agent = Custom::new().tool("note", |_, scope| async move {
        scope.add_messages(vec![user("n1", "a note")]).await?;
        Ok(json!("noted"))
    });
    let world = World::new(agent).model(script![call("note", json!({})), text("done"), call("note", json!({})), text("done again")]);
    let tab = world.connect("S1");
    tab.send("note it");
    world.run();
    assert!(!world.provider_requests()[1].texts().contains(&"a note".to_owned()));
    assert_eq!(world.said().iter().filter(|line| *line == "user: a note").count(), 1);
    tab.send("again");
    world.run();
    assert_eq!(world.said().iter().filter(|line| *line == "user: a note").count(), 1);
    assert_idle(&world);
}

// wire 142 by the application
#[test]
fn the_application_stops_one_request_or_all() {
    let world = World::new(Custom::new()).model(script![text("so").gate("never"), text("second").gate("never"), text("third")]);
    let tab = world.connect("S1");
    let others = [world.connect("S2"), world.connect("S3")];
    let (first, second, third) = (tab.send("1"), others[0].send("2"), others[1].send("3"));
    world.run();
    let id = first.clone();
    ask(&world, |h| async move { h.abort_request(&id).await }).unwrap();
    world.run();
    assert_eq!(tab.terminals(&first)[0]["outcome"], "aborted");
    assert_eq!(tab.chunks(&second).last().unwrap()["delta"], "second");
    ask(&world, |h| async move { h.abort_all_requests().await }).unwrap();
    world.run();
    assert_eq!((&tab.terminals(&second)[0]["outcome"], &tab.terminals(&third)[0]["outcome"]), (&json!("aborted"), &json!("aborted")));
    assert_eq!(world.answers_left(), 1);
    assert_idle(&world);
}

#[test]
fn a_tool_can_stop_its_own_turn() {
    let agent = Custom::new().tool("stop", |_, scope| async move {
        scope.abort_self().await?;
        Ok(json!("stopped"))
    });
    let world = World::new(agent).model(script![call("stop", json!({}))]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    assert_eq!(tab.terminals(&request)[0]["outcome"], "aborted");
    assert_eq!(world.said()[1], "assistant: [stop output-available]");
    assert_idle(&world);
}

// T07, T106, tools §2.2, tools D1
#[test]
fn code_inside_a_turn_cannot_wait_for_another_and_the_hook_after_it_can() {
    let kept: std::rc::Rc<std::cell::RefCell<Option<AgentHandle>>> = std::rc::Rc::default();
    let (from_tool, after) = (kept.clone(), std::rc::Rc::new(std::cell::Cell::new(false)));
    let agent = Custom::new()
        .tool("nest", move |_, _| {
            let handle = from_tool.borrow().clone().unwrap();
            async move {
                handle.save_messages(vec![user("n", "nested")]).await?;
                Ok(Value::Null)
            }
        })
        .on_response(move |handle, _| {
            let first = !after.replace(true);
            async move {
                if first {
                    handle.save_messages(vec![user("f", "follow-up")]).await.unwrap();
                }
            }
        });
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![call("nest", json!({})), text("done"), text("followed")]);
    let tab = world.connect("S1");
    *kept.borrow_mut() = Some(world.handle());
    tab.send("hi");
    world.run();
    let refused = "turn admission (programmatic) refused: this code already runs inside a turn of the same agent; use submit mode or addMessages";
    assert!(world.get_messages()[1]["parts"][1]["errorText"].as_str().unwrap().contains(refused));
    assert_eq!(world.said()[1..], ["assistant: [nest output-error] done", "user: follow-up", "assistant: followed"]);
    assert_eq!(seen.take().iter().filter(|line| line.starts_with("response")).count(), 2);
    kept.borrow_mut().take();
    assert_idle(&world);
}

// --- hooks

// T108, tools §16.3, I22
#[test]
fn the_hook_after_a_turn_runs_once_for_each_and_in_their_order() {
    let gates = Gates::new();
    let wait = gates.clone();
    let agent = Custom::new().on_response(move |_, response| {
        let gates = wait.clone();
        async move {
            if response.status == TurnStatus::Completed {
                gates.wait("hook").await;
            }
        }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![
        text("one"),
        text("two").in_stream_error("invalid_request_error", "broken"),
        text("three").gate("never"),
    ]);
    let tab = world.connect("S1");
    let ids: Vec<String> = ["1", "2", "3"].iter().map(|t| tab.send(t)).collect();
    world.run();
    // A hook that takes its time delays other hooks, not other turns.
    assert_eq!(tab.chunks(&ids[2]).last().unwrap()["delta"], "three");
    let queued = tab.send("never run");
    tab.cancel(&queued);
    tab.cancel(&ids[2]);
    world.run();
    let responses = |seen: &Seen| seen.take().into_iter().filter(|line| line.starts_with("response")).collect::<Vec<_>>();
    assert_eq!(responses(&seen), [format!("response {} completed \"one\"", ids[0])]);
    world.open_gate("hook");
    world.run();
    let later = responses(&seen);
    assert_eq!(later.len(), 2, "{later:?}");
    assert!(later[0].starts_with(&format!("response {} error \"two\" error \"", ids[1])), "{later:?}");
    assert_eq!(later[1], format!("response {} aborted \"three\"", ids[2]));
    assert_eq!(world.db().count("wk_outbox"), 0);
    assert_idle(&world);
}

// T107, tools §16.3, I22, recovery §6.6
#[test]
fn a_hook_that_died_with_the_object_runs_again_and_is_told_so() {
    let gates = Gates::new();
    let wait = gates.clone();
    let agent = Custom::new().on_response(move |_, _| {
        let gates = wait.clone();
        async move { gates.wait("hook").await }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![text("one")]);
    let tab = world.connect("S1");
    let id = tab.send("hi");
    world.run();
    assert!(seen.take().contains(&format!("response {id} completed \"one\"")));
    world.restart(Sockets::Kept);
    assert!(world.alarm_at().is_some(), "what is owed wakes the object by itself (I23)");
    world.run_for(60_000);
    assert_eq!(seen.take(), [format!("response {id} completed \"one\" recovered")]);
    world.open_gate("hook");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    world.get_messages();
    world.run();
    assert_eq!(seen.take(), Vec::<String>::new());
    assert_idle(&world);
}

// recovery §6.6
#[test]
fn a_hook_that_kills_the_object_each_time_is_given_up() {
    let gates = Gates::new();
    let wait = gates.clone();
    let agent = Custom::new().on_response(move |_, _| {
        let gates = wait.clone();
        async move { gates.wait("hook").await }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![text("one"), text("two")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..10 {
        world.restart(Sockets::Kept);
        world.run_for(60_000);
    }
    assert_eq!(seen.take().iter().filter(|line| line.starts_with("response")).count(), 4, "first and three more times");
    assert_eq!(world.events_named("hook:given_up").len(), 1);
    world.open_gate("hook");
    tab.send("and");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: two");
    assert_idle(&world);
}

// decision 44, I30
#[test]
fn a_hook_that_never_ends_is_given_up_after_its_time() {
    let never = || std::future::pending::<Result<TurnPlan>>();
    let world = World::new(Custom::new().before_turn(move |turn| {
        let slow = turn.body.is_some();
        async move { if slow { never().await } else { Ok(TurnPlan::default()) } }
    }))
    .model(script![text("hello")]);
    let tab = world.connect("S1");
    tab.set_body(json!({ "slow": true }));
    let began = world.clock().now();
    let request = tab.send("hi");
    world.run();
    assert_eq!(world.clock().now() - began, 30_000);
    let terminal = &tab.terminals(&request)[0];
    assert_eq!((&terminal["outcome"], &terminal["error"]), (&json!("error"), &json!(true)));
    assert!(terminal["body"].as_str().unwrap().contains("before_turn took more than 30000 ms"), "{terminal}");
    assert_eq!(world.provider_requests().len(), 0);
    tab.set_body(json!({}));
    tab.send("again");
    world.run();
    assert_eq!(world.said(), ["user: hi", "user: again", "assistant: hello"]);
    assert_idle(&world);
}

// decision 44
#[test]
fn a_hook_after_a_turn_that_never_ends_lets_the_next_one_run_after_its_time() {
    let world = World::new(Custom::new().on_response(|_, _| std::future::pending::<()>())).model(script![text("one")]);
    let tab = world.connect("S1");
    tab.send("hi");
    let began = world.clock().now();
    world.run();
    assert_eq!(world.clock().now() - began, 900_000);
    assert_eq!(world.events_named("hook:timeout").len(), 1);
    assert_eq!(world.db().count("wk_outbox"), 0);
    assert_idle(&world);
}

// decision 44, I30
#[test]
fn hooks_of_connections_are_given_up_after_their_time() {
    let agent = Custom::new().config(|c| c.hook_deadline_ms = 4_000).on_message(|_, _, _| std::future::pending::<()>());
    let world = World::new(agent);
    let socket = world.socket("S1");
    socket.raw("hello");
    let began = world.clock().now();
    world.run();
    assert_eq!(world.clock().now() - began, 4_000);
    let event = &world.events_named("hook:timeout")[0];
    assert_eq!((&event.fields["hook"], &event.fields["connection"]), (&json!("on_message"), &json!("conn-1")));
    assert_idle(&world);
}

// tools §16.2: `before_turn` fails the turn
#[test]
fn a_hook_can_end_a_turn_before_it_costs_anything() {
    let world = World::new(Custom::new().before_turn(|turn| async move {
        match turn.body {
            Some(body) if body["zero"] == true => Ok(TurnPlan { max_steps: Some(0), ..TurnPlan::default() }),
            Some(_) => Err(Error::refused("out of credit")),
            None => Ok(TurnPlan::default()),
        }
    }))
    .model(script![text("hello")]);
    let tab = world.connect("S1");
    for (body, text) in [(json!({ "poor": 1 }), "out of credit"), (json!({ "zero": true }), "max_steps = 0")] {
        tab.set_body(body);
        let request = tab.send("hi");
        world.run();
        assert!(tab.terminals(&request)[0]["body"].as_str().unwrap().contains(text), "{:?}", tab.terminals(&request));
    }
    assert_eq!(world.provider_requests().len(), 0);
    tab.set_body(json!({}));
    tab.send("hi");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: hello");
    assert_idle(&world);
}

// tools §6.1 rows 6, 7; T51
#[test]
fn a_plan_changes_model_prompt_and_tools_of_one_turn() {
    let agent = Custom::new()
        .tools(|_| {
            Tools::new().with(tool("a", |_, _| async { Ok(json!("a ran")) })).with(tool("b", |_, _| async { Ok(json!("b ran")) }))
        })
        .before_turn(|_| async {
            Ok(TurnPlan {
                model: Some(ModelRef::from("openai-compatible/other").base_url("https://other.test/v1").api_key("key2")),
                instructions: Some("Rhyme.".into()),
                tools: Tools::new().with(tool("c", |_, _| async { Ok(json!("c ran")) })),
                active_tools: Some(vec!["a".into(), "c".into()]),
                temperature: Some(0.5),
                max_output_tokens: Some(77),
                ..TurnPlan::default()
            })
        });
    let world = World::new(agent).model(script![calls([("c", json!({})), ("b", json!({}))]), text("done")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let request = &world.provider_requests()[0];
    assert_eq!(
        (request.body["model"].as_str(), request.texts()[0].as_str(), request.tools()),
        (Some("other"), "Rhyme.", vec!["a", "c"])
    );
    assert_eq!(request.header("authorization"), Some("Bearer key2"));
    assert_eq!(request.body["temperature"], 0.5);
    // A hidden tool is an unknown one.
    let parts = &world.get_messages()[1]["parts"];
    assert_eq!(
        (&parts[1]["output"], &parts[2]["type"], &parts[2]["state"]),
        (&json!("c ran"), &json!("dynamic-tool"), &json!("output-error"))
    );
    assert_idle(&world);
}

#[test]
fn the_hook_for_chunks_sees_what_clients_see() {
    let agent = Custom::new().seeing_chunks();
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![text("hello")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let chunks: Vec<Value> =
        seen.take().iter().filter_map(|line| line.strip_prefix("chunk ").map(|json| serde_json::from_str(json).unwrap())).collect();
    assert_eq!(chunks, tab.chunks(&request));
    assert_eq!(chunks.len(), 7);
}

// wire 69
#[test]
fn a_custom_body_reaches_its_turn_and_is_gone_with_the_next() {
    let agent = Custom::new();
    let (seen, bodies) = (agent.seen.clone(), agent.seen.clone());
    let agent = agent.before_turn(move |turn| {
        bodies.add(format!("{} {}", turn.trigger, turn.body.map_or("none".into(), |body| body.to_string())));
        async { Ok(TurnPlan::default()) }
    });
    let world = World::new(agent).model_fn(|_| text("ok"));
    let tab = world.connect("S1");
    world.run();
    seen.take();
    let turns = |seen: &Seen| {
        seen.take().into_iter().filter(|line| line.starts_with("ws-chat") || line.starts_with("programmatic")).collect::<Vec<_>>()
    };
    tab.set_body(json!({ "tone": ["warm"] }));
    tab.send("1");
    world.run();
    ask(&world, |h| async move { h.save_messages(vec![user("m1", "p")]).await }).unwrap();
    assert_eq!(turns(&seen), [r#"ws-chat {"tone":["warm"]}"#, r#"programmatic {"tone":["warm"]}"#]);
    world.restart(Sockets::Kept);
    ask(&world, |h| async move { h.save_messages(vec![user("m2", "p")]).await }).unwrap();
    tab.set_body(json!({}));
    tab.send("2");
    world.run();
    ask(&world, |h| async move { h.save_messages(vec![user("m3", "p")]).await }).unwrap();
    assert_eq!(turns(&seen), [r#"programmatic {"tone":["warm"]}"#, "ws-chat none", "programmatic none"]);
    world.run();
    assert_idle(&world);
}

// tools §6.4, T60
#[test]
fn a_tool_set_that_no_provider_would_take_ends_the_turn_with_the_reason() {
    let agent = Custom::new().tools(|_| Tools::new().with(tool("bad name!", |_, _| async { Ok(Value::Null) })));
    let world = World::new(agent);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    assert!(tab.terminals(&request)[0]["body"].as_str().unwrap().contains("bad name!"), "{:?}", tab.terminals(&request));
    assert_idle(&world);
}

// T10, tools §3.4
#[test]
fn messages_are_added_where_the_application_says() {
    let world = World::new(Custom::new()).model(script![text("One."), text("Three.")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    tab.send("First.");
    world.run();
    let first = world.get_messages()[0]["id"].as_str().unwrap().to_owned();
    let add = |place: Place, id: &'static str| {
        let handle = world.handle();
        world.block_on(async move { handle.add_messages_at(place, vec![UiMessage::user(id, id)]).await })
    };
    let refused = add(Place::After("nobody".into()), "lost").unwrap_err();
    assert_eq!(refused.message(), "there is no message nobody to add one after");
    assert_eq!(world.said(), ["user: First.", "assistant: One."]);
    add(Place::After(first), "aside").unwrap();
    assert_eq!(world.said(), ["user: First.", "user: aside"]);
    add(Place::Root, "anew").unwrap();
    assert_eq!(world.said(), ["user: anew"]);
    add(Place::End, "and").unwrap();
    world.run();
    tab.send("Go on.");
    world.run();
    assert_eq!(world.said(), ["user: anew", "user: and", "user: Go on.", "assistant: Three."]);
    assert_eq!((tab.said(), world.db().count("wk_msg")), (other.said(), 7));
    assert_idle(&world);
}

// T16: a signal that was given before, and one that is given on the way
#[test]
fn a_turn_of_the_application_can_be_called_off() {
    let signals = [Cancel::new(), Cancel::new()];
    let given = signals.clone();
    let save = Callables::new().with("save", move |call| {
        let signal = call.arg::<usize>(0).map(|n| given[n].clone());
        async move {
            let result = call.handle.save_messages_until(vec![UiMessage::user("p1", "From the server.")], &signal?).await?;
            Ok(Some(json!([result.status.as_str(), result.request_id.is_empty()])))
        }
    });
    let world = World::new(Custom::new().callables(save)).model(script![text_deltas(&["word "; 4]).gate("held").text("never")]);
    let tab = world.connect("S1");
    signals[0].trip();
    let early = tab.rpc("save", json!([0]));
    world.run();
    assert_eq!(tab.replies(&early)[0]["result"], json!(["aborted", true]));
    assert_eq!((world.said().len(), world.provider_requests().len()), (0, 0));
    let late = tab.rpc("save", json!([1]));
    world.run();
    assert!(tab.replies(&late).is_empty());
    signals[1].trip();
    world.run();
    assert_eq!(tab.replies(&late)[0]["result"], json!(["aborted", false]));
    assert_eq!(world.said(), ["user: From the server.", "assistant: word word word word "]);
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}
