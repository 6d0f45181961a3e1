//! One conversation each: a chat, two tabs, a tool, an error, a stop, a clear, a tab that comes later.

use serde_json::{Value, json};
use wakeful::{
    testkit::{Client, Exchange, Gates, Status, World, call, gate, http_error, one_read, reasoning, script, text, text_deltas},
    wire::message::UiMessage,
};

use crate::{Helper, assert_idle, world};

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|f| f["type"].as_str().unwrap()).collect()
}

fn chunk_types(client: &Client, request: &str) -> Vec<String> {
    client.chunks(request).iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect()
}

// wire 58, 59, 60, 61, 170
#[test]
fn a_chat_is_seen_the_same_in_two_tabs() {
    let world = world().model(script![text_deltas(&["He", "llo"])]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    world.run();
    assert_eq!(types(&one.take_frames())[0], "cf_agent_chat_messages");
    two.take_frames();

    let request = one.send("hi");
    world.run();
    assert_eq!(one.said(), ["user: hi", "assistant: Hello"]);
    assert_eq!(two.said(), one.said());
    assert_eq!(world.said(), one.said());
    assert_eq!(one.status(), Status::Ready);
    let expected = ["start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!(chunk_types(&one, &request), expected);
    assert_eq!(chunk_types(&two, &request), expected);
    let frames = one.take_frames();
    assert_eq!(types(&frames)[8..], ["cf_agent_chat_messages", "cf_agent_use_chat_response"]);
    let terminal = &frames[9];
    assert_eq!((&terminal["done"], &terminal["outcome"]), (&json!(true), &json!("completed")));
    assert_eq!(terminal["messageIds"], json!([one.messages()[0]["id"]]));
    assert_eq!(types(&two.take_frames())[0], "cf_agent_chat_messages", "what was asked comes before the answer");
    assert_eq!(one.chunks(&request)[0]["messageId"], world.get_messages()[1]["id"]);
    assert_idle(&world);
}

#[test]
fn a_server_tool_runs_in_a_loop() {
    let world = world().model(script![
        reasoning("Which city?").call("weather", json!({ "city": "Oslo" })).call("weather", json!({ "city": "Rome" })),
        text("Sunny in both.")
    ]);
    let tab = world.connect("S1");
    tab.send("weather?");
    world.run();
    assert_eq!(tab.said()[1], "assistant: (Which city?) [weather output-available] [weather output-available] Sunny in both.");
    let requests = world.provider_requests();
    assert_eq!(requests[1].roles(), ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(requests[0].tools(), ["weather"]);
    assert_eq!(requests[1].texts()[3..], ["Sunny in Oslo", "Sunny in Rome"]);
    assert_idle(&world);
}

// wire 63, 64
#[test]
fn errors_end_the_turn_and_the_conversation_goes_on() {
    let world = world().model(script![
        http_error(400, json!({ "error": { "message": "no such thing", "type": "invalid_request_error" } })),
        text_deltas(&["a", "b", "c"]).in_stream_error("invalid_request_error", "broken"),
        text("fine")
    ]);
    let tab = world.connect("S1");
    let first = tab.send("one");
    world.run();
    assert!(matches!(tab.status(), Status::Error(_)));
    assert_eq!(world.said(), ["user: one"]);
    let terminals = tab.terminals(&first);
    assert_eq!(terminals.len(), 1);
    assert_eq!((&terminals[0]["error"], &terminals[0]["outcome"]), (&json!(true), &json!("error")));
    let second = tab.send("two");
    world.run();
    assert_eq!(world.said()[2], "assistant: abc");
    assert_eq!(tab.terminals(&second).len(), 1);
    tab.send("three");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: fine");
    assert_idle(&world);
}

// wire 142
#[test]
fn any_tab_stops_an_answer_and_the_provider_is_let_go() {
    let world = world().model(script![text("so far").gate("never").text("no")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let request = one.send("hi");
    world.run();
    assert_eq!(one.said()[1], "assistant: so far");
    assert_eq!(world.exchanges(), [Exchange::Open]);
    two.cancel(&request);
    world.run();
    assert_eq!(world.exchanges(), [Exchange::Dropped]);
    assert_eq!(one.turn_ends()[0].outcome, "aborted");
    assert_eq!((world.said(), one.status()), (vec!["user: hi".to_owned(), "assistant: so far".to_owned()], Status::Ready));
    assert_idle(&world);
}

// wire 147, 148
#[test]
fn clearing_ends_everything_everywhere() {
    let world = world().model(script![text("so far").gate("never").text("no")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let running = one.send("hi");
    world.run();
    let queued = two.send("and");
    world.run();
    one.clear();
    world.run();
    assert_eq!((one.messages(), two.messages(), world.get_messages()), (vec![], vec![], vec![]));
    assert_eq!(two.terminals(&running)[0]["outcome"], "aborted");
    assert_eq!(two.terminals(&queued)[0]["outcome"], "skipped");
    assert_eq!(one.of_type("cf_agent_chat_clear").len(), 0);
    assert_idle(&world);
}

// wire 4.3, 165
#[test]
fn a_tab_that_comes_in_mid_answer_gets_all_of_it_once() {
    let world = world().model(script![text_deltas(&["a", "b"]).gate("g").text("c")]);
    let one = world.connect("S1");
    let request = one.send("hi");
    world.run();
    let two = world.connect("S2");
    world.run();
    assert_eq!(two.said(), ["user: hi", "assistant: ab"]);
    assert_eq!(two.status(), Status::Streaming);
    world.open_gate("g");
    world.run();
    assert_eq!(two.said(), ["user: hi", "assistant: abc"]);
    assert_eq!(two.terminals(&request).len(), 1);
    assert_idle(&world);
}

#[test]
fn a_tab_that_lost_its_socket_comes_back_into_the_answer() {
    let world = world().model(script![text("one ").gate("g").text("two")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.disconnect(&tab);
    assert!(matches!(tab.status(), Status::Error(_)));
    world.reconnect(&tab);
    world.run();
    assert_eq!((tab.said()[1].as_str(), tab.status()), ("assistant: one ", Status::Streaming));
    world.open_gate("g");
    world.run();
    assert_eq!((tab.said()[1].as_str(), tab.status()), ("assistant: one two", Status::Ready));
    assert_idle(&world);
}

// decision 52
#[test]
fn what_arrives_in_one_read_costs_one_frame_and_no_transaction_of_its_own() {
    let deltas: Vec<String> = (0..200).map(|i| format!("{i} ")).collect();
    let deltas: Vec<&str> = deltas.iter().map(String::as_str).collect();
    let world = world().model(script![one_read(&deltas)]);
    let tab = world.connect("S1");
    world.run();
    let before = world.db().transactions();
    let request = tab.send("count");
    world.run();
    let deltas = chunk_types(&tab, &request).into_iter().filter(|t| t == "text-delta").count();
    assert_eq!(deltas, 1);
    let spent = world.db().transactions() - before;
    assert!(spent <= 8, "{spent} transactions for one answer");
    assert_idle(&world);
}

#[test]
fn a_tool_that_takes_its_time_keeps_the_object_awake_and_nothing_else() {
    let gates = Gates::new();
    let world = World::new(Helper { gates: Some(gates.clone()), ..Helper::default() })
        .with_gates(&gates)
        .model(script![call("weather", json!({ "city": "Oslo" })), text("Sunny.")]);
    let tab = world.connect("S1");
    tab.send("weather?");
    world.run();
    assert_eq!(gates.waiting(), ["tool"]);
    assert!(world.alarm_at().is_some(), "a heartbeat while a turn runs");
    gates.open("tool");
    world.run();
    assert_eq!(tab.said()[1], "assistant: [weather output-available] Sunny.");
    assert_idle(&world);
}

// wire 138
#[test]
fn questions_asked_meanwhile_are_answered_in_turn() {
    let world = world().model(script![gate("g").text("first"), text("second")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("1");
    world.run();
    two.send("2");
    world.run();
    world.open_gate("g");
    world.run();
    let said = world.said();
    assert_eq!(said.iter().filter(|s| s.starts_with("user")).count(), 2);
    assert!(said.last().unwrap().starts_with("assistant: "), "{said:?}");
    assert_idle(&world);
}

#[test]
fn an_application_starts_a_turn_of_its_own() {
    let world = world().model(script![text("Good morning.")]);
    let tab = world.connect("S1");
    let handle = world.handle();
    let result = world.block_on(async move { handle.save_messages(vec![UiMessage::user("m1", "daily report")]).await }).unwrap();
    world.run();
    assert_eq!(result.status.as_str(), "completed");
    assert_eq!(tab.said(), ["user: daily report", "assistant: Good morning."]);
    assert!(!tab.watches());
    assert_idle(&world);
}

#[test]
fn a_provider_that_falls_silent_is_given_up_after_its_time() {
    // decision 39: 120 s between two events with content; decision 34: then the turn goes on
    let world = world().model(script![text("so far").stall(), text("and on")]);
    let tab = world.connect("S1");
    let began = world.clock().now();
    let request = tab.send("hi");
    world.run();
    let waited = world.clock().now() - began;
    assert!((120_000..150_000).contains(&waited), "{waited} ms");
    assert_eq!(tab.terminals(&request)[0]["outcome"], "recovering");
    assert_eq!((world.said(), tab.said()), (vec!["user: hi".into(), "assistant: so far and on".into()], world.said()));
    assert_eq!(world.exchanges()[0], Exchange::Dropped);
    assert_idle(&world);
}

#[test]
fn bytes_cut_anywhere_give_the_same_answer() {
    let whole = |reply: wakeful::testkit::Reply| {
        let world = world().model(script![reply, text("Sunny.")]);
        let tab = world.connect("S1");
        tab.send("Ääh?");
        world.run();
        assert_idle(&world);
        tab.said()
    };
    let reply = || text("Grüße, ").text("世界").call("weather", json!({ "city": "Þórshöfn" }));
    let expected = whole(reply());
    for n in [1, 2, 3, 7, 64] {
        assert_eq!(whole(reply().cut_every(n)), expected, "reads of {n} bytes");
    }
}

// wire 67
#[test]
fn a_bare_socket_learns_that_its_request_was_no_request() {
    let world = world();
    let socket = world.socket("raw");
    socket.frame(json!({ "type": "cf_agent_use_chat_request", "id": "R", "init": { "method": "POST", "body": "{" } }));
    world.run();
    assert_eq!(socket.terminals("R").len(), 1);
    assert_eq!(socket.terminals("R")[0]["error"], true);
    assert_eq!(world.get_messages(), Vec::<Value>::new());
    socket.raw("not json");
    socket.binary([1, 2, 3]);
    world.run();
    assert!(socket.conn().is_some());
    assert_idle(&world);
}

// recovery I24
#[test]
fn a_plain_turn_writes_few_rows() {
    let world = world().model(script![text_deltas(&["a"; 5]), text_deltas(&["b"; 45])]);
    let tab = world.connect("S1");
    let rows = |question: &str| {
        let before = world.meter().written;
        tab.send(question);
        world.run();
        world.meter().written - before
    };
    let (short, long) = (rows("short"), rows("long"));
    // 48 chunks are at most 5 segments, each written and deleted once.
    assert!(short <= 20 + 2 && long <= 20 + 2 * 5, "{short} and {long} rows written");
    let idle = world.meter();
    world.run_for(3_600_000);
    assert_eq!(world.meter().written, idle.written, "an idle hour writes nothing");
    assert_idle(&world);
}
