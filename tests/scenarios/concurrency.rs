//! A message sent while another is answered: it waits, gives way, is dropped, or ends what runs (`turns-and-tools.md` §5).

use serde_json::{Value, json};
use wakeful::{
    MessageConcurrency as Strategy,
    prelude::*,
    testkit::{Client, Sockets, World, call, gate, script, text},
};

use crate::{
    assert_idle,
    custom::{Custom, tool},
};

fn world(strategy: Strategy) -> World<Custom> {
    World::new(Custom::new().config(|c| c.message_concurrency = strategy))
}

fn outcome(client: &Client, request: &str) -> Value {
    client.terminals(request).first().map_or(Value::Null, |t| t["outcome"].clone())
}

fn users(world: &World<Custom>, nth_request: usize) -> Vec<String> {
    let requests = world.provider_requests();
    let messages = requests[nth_request].messages().iter().filter(|m| m["role"] == "user");
    messages.map(|m| m["content"].as_str().unwrap().to_owned()).collect()
}

// wire 138
#[test]
fn queued_messages_are_all_answered_in_order() {
    let world = world(Strategy::Queue).model(script![text("a").gate("g"), text("b"), text("c")]);
    for (tab, question) in [("S1", "A"), ("S2", "B"), ("S3", "C")] {
        world.connect(tab).send(question);
        world.run();
    }
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: B", "assistant: b", "user: C", "assistant: c"]);
    assert_idle(&world);
}

// T31, T32, T110, wire 139
#[test]
fn only_the_newest_of_overlapping_messages_is_answered_and_its_answer_sees_all() {
    for strategy in [Strategy::Latest, Strategy::Merge] {
        let world = world(strategy).model(script![text("a").gate("g"), text("d")]);
        let (tab, other) = (world.connect("S1"), world.connect("S2"));
        let requests: Vec<String> = ["A", "B", "C", "D"]
            .iter()
            .map(|question| {
                let request = tab.send(question);
                world.run();
                request
            })
            .collect();
        for waiting in &requests[1..] {
            assert_eq!(outcome(&tab, waiting), Value::Null, "they learn it when they reach the front");
        }
        world.open_gate("g");
        world.run();
        let outcomes: Vec<Value> = requests.iter().map(|r| outcome(&tab, r)).collect();
        assert_eq!(outcomes, ["completed", "skipped", "skipped", "completed"]);
        assert!(other.terminals(&requests[1]).is_empty(), "only the sender is told");
        assert_eq!(tab.terminals(&requests[1])[0]["messageIds"].as_array().map(Vec::len), Some(1));
        assert_eq!(world.said(), ["user: A", "assistant: a", "user: B", "user: C", "user: D", "assistant: d"]);
        assert_eq!(users(&world, 1), ["A", "B", "C", "D"]);
        assert_eq!(world.events_named("chat:turn:finish").iter().filter(|e| e.fields["status"] == "skipped").count(), 2);
        assert_idle(&world);
    }
}

// T34, wire 140
#[test]
fn a_dropped_message_leaves_no_trace_but_at_its_sender() {
    let world = world(Strategy::Drop).model(script![text("a").gate("g"), text("c")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    tab.send("A");
    world.run();
    other.take_frames();
    tab.take_frames();
    let dropped = tab.send("B");
    world.run();
    assert_eq!(other.take_frames(), Vec::<Value>::new());
    let frames = tab.take_frames();
    assert_eq!(frames[0]["type"], "cf_agent_chat_messages");
    assert_eq!((&frames[0]["connect"], frames[0]["messages"].as_array().map(Vec::len)), (&Value::Null, Some(1)));
    assert_eq!((&frames[1]["id"], &frames[1]["outcome"]), (&json!(dropped), &json!("skipped")));
    world.open_gate("g");
    world.run();
    tab.send("C");
    world.run();
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: C", "assistant: c"]);
    assert_idle(&world);
}

// T39
#[test]
fn regenerations_and_turns_of_the_application_are_never_dropped() {
    let world = world(Strategy::Drop).model(script![text("a"), text("b").gate("g"), text("a2"), text("d")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    tab.send("A");
    world.run();
    tab.send("B");
    world.run();
    let again = other.regenerate();
    let handle = world.handle();
    world.open_gate("g");
    let saved = world.block_on(async move { handle.save_messages(vec![wakeful::wire::message::UiMessage::user("m", "D")]).await });
    world.run();
    assert_eq!(outcome(&other, &again), "completed");
    assert_eq!(saved.unwrap().status.as_str(), "completed");
    assert_idle(&world);
}

// T06
#[test]
fn after_a_clear_nothing_overlaps() {
    let world = world(Strategy::Drop).model(script![text("a").gate("never"), text("c")]);
    let tab = world.connect("S1");
    tab.send("A");
    world.run();
    tab.clear();
    world.run();
    let request = tab.send("C");
    world.run();
    assert_eq!(outcome(&tab, &request), "completed");
    assert_eq!(world.said(), ["user: C", "assistant: c"]);
    assert_idle(&world);
}

// T35, T36, wire 141
#[test]
fn a_debounced_message_waits_for_a_newer_one() {
    let world = world(Strategy::Debounce { ms: 300 }).model(script![text("a").gate("g"), text("c")]);
    let tab = world.connect("S1");
    let first = world.clock().now();
    tab.send("A");
    world.run();
    assert_eq!(world.clock().now(), first, "the first message of an idle object waits for nothing");
    let b = tab.send("B");
    world.run_for(200);
    let c = tab.send("C");
    let sent = world.clock().now();
    world.run_for(50);
    world.open_gate("g");
    world.settle();
    assert_eq!(world.provider_requests().len(), 1, "it holds the slot while it waits");
    world.run();
    assert_eq!((outcome(&tab, &b), outcome(&tab, &c)), (json!("skipped"), json!("completed")));
    assert!(world.clock().now() - sent >= 300);
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: B", "user: C", "assistant: c"]);
    assert_idle(&world);
}

// T37
#[test]
fn a_clear_ends_the_wait_at_once() {
    let world = world(Strategy::Debounce { ms: 10_000 }).model(script![text("a").gate("g")]);
    let tab = world.connect("S1");
    tab.send("A");
    world.run();
    let waiting = tab.send("B");
    world.open_gate("g");
    world.settle();
    let began = world.clock().now();
    tab.clear();
    world.settle();
    assert_eq!(outcome(&tab, &waiting), "skipped");
    assert_eq!(world.clock().now(), began);
    world.run();
    assert_idle(&world);
}

// T38
#[test]
fn the_usual_debounce_is_three_quarters_of_a_second_and_none_is_legal() {
    assert_eq!(Strategy::debounce(), Strategy::Debounce { ms: 750 });
    let world = world(Strategy::Debounce { ms: 0 }).model(script![text("a").gate("g"), text("b")]);
    let tab = world.connect("S1");
    tab.send("A");
    world.run();
    let request = tab.send("B");
    world.open_gate("g");
    world.run();
    assert_eq!(outcome(&tab, &request), "completed");
    assert_idle(&world);
}

// T40, wire 94
#[test]
fn a_parked_socket_waits_for_the_successor_of_a_message_that_gave_way() {
    let world = world(Strategy::Latest).model(script![text("a").gate("g"), gate("h").text("c")]);
    let tab = world.connect("S1");
    tab.send("A");
    world.run();
    tab.send("B");
    let c = tab.send("C");
    world.run();
    let late = world.socket("S2");
    world.open_gate("g");
    world.run();
    late.take_frames();
    late.probe();
    world.run();
    assert_eq!(late.frames().last().map(|f| (f["type"].clone(), f["id"].clone())), Some((json!("cf_agent_stream_pending"), json!(c))));
    world.open_gate("h");
    world.run();
    let kinds: Vec<Value> = late.frames().iter().map(|f| f["type"].clone()).collect();
    assert!(kinds.contains(&json!("cf_agent_stream_resuming")), "{kinds:?}");
    assert!(!kinds.contains(&json!("cf_agent_stream_resume_none")), "{kinds:?}");
}

// tools §5.5
#[test]
fn a_steering_message_ends_the_turn_at_its_next_step_and_is_answered_on_top() {
    let agent = Custom::new()
        .config(|c| c.message_concurrency = Strategy::Steer)
        .tools(|_| Tools::new().with(tool("work", |_, _| async { Ok(json!("done")) })));
    let world = World::new(agent).model(script![call("work", json!({})).gate("g"), text("b and c")]);
    let tab = world.connect("S1");
    let a = tab.send("A");
    world.run();
    let b = tab.send("B");
    let c = tab.send("C");
    world.run();
    world.open_gate("g");
    world.run();
    assert_eq!((outcome(&tab, &a), outcome(&tab, &b), outcome(&tab, &c)), (json!("completed"), json!("skipped"), json!("completed")));
    assert_eq!(world.provider_requests().len(), 2, "the batch of tools finished, no further model call was made");
    assert_eq!(world.said()[1], "assistant: [work output-available]");
    assert_eq!(world.said()[2..], ["user: B", "user: C", "assistant: b and c"]);
    assert_idle(&world);
}

// tools §5.5
#[test]
fn an_interrupting_message_ends_the_turn_with_what_it_has() {
    let world = world(Strategy::Interrupt).model(script![text("half").gate("never"), text("b")]);
    let tab = world.connect("S1");
    let a = tab.send("A");
    world.run();
    let b = tab.send("B");
    world.run();
    assert_eq!((outcome(&tab, &a), outcome(&tab, &b)), (json!("aborted"), json!("completed")));
    assert_eq!(world.said(), ["user: A", "assistant: half", "user: B", "assistant: b"]);
    assert_idle(&world);
}

// tools §5.4, recovery I6, decision 35
#[test]
fn what_waits_waits_on_after_a_restart() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let world = world(Strategy::Debounce { ms: 300 }).model(script![text("a").gate("g"), text("again"), text("c")]);
        let tab = world.connect("S1");
        tab.send("A");
        world.run();
        tab.send("B");
        tab.send("C");
        world.settle();
        world.restart(sockets);
        world.run_for(60_000);
        world.run();
        assert_eq!(world.said(), ["user: A", "assistant: again", "user: B", "user: C", "assistant: c"], "{}", world.story());
        assert_eq!(world.provider_requests().len(), 3, "B gave way");
        assert_eq!((world.jobs(), world.alarm_at()), (0, None));
    }
}

// T33, tools D6, decision 51
#[test]
fn waiting_messages_can_become_one() {
    let world = world(Strategy::MergeCollapse).model(script![text("a").gate("g"), text("d")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    tab.send("A");
    world.run();
    let file = json!({ "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==" });
    let mut requests = vec![tab.send("B")];
    world.run();
    requests.push(other.send_message(json!({ "id": "c", "role": "user", "parts": [file, { "type": "text", "text": "C" }] })));
    world.run();
    requests.push(tab.send("D"));
    world.run();
    assert_eq!(tab.said()[2..], other.said()[2..], "everybody sees what became of them");
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: B\n\nC\n\nD", "assistant: d"]);
    let joined = &world.get_messages()[2];
    assert_eq!(joined["id"].as_str(), tab.terminals(&requests[2])[0]["messageIds"][0].as_str(), "the id of the newest");
    assert_eq!(joined["parts"][0]["type"], "file");
    let outcomes = [outcome(&tab, &requests[0]), outcome(&other, &requests[1]), outcome(&tab, &requests[2])];
    assert_eq!(outcomes, ["skipped", "skipped", "completed"]);
    assert_eq!(world.provider_requests().len(), 2);
    assert_eq!((tab.said(), other.said()), (world.said(), world.said()));
    assert_idle(&world);
}

// T144: the sender alone gets no transcript with what it sent
#[test]
fn everybody_sees_a_turn_and_only_the_others_are_told_its_question() {
    let world = world(Strategy::Queue).model(script![text("Hello.")]);
    let tabs = [world.connect("S1"), world.connect("S2"), world.connect("S3")];
    tabs.iter().for_each(|tab| drop(tab.take_frames()));
    let request = tabs[0].send("Hi.");
    world.run();
    for (n, tab) in tabs.iter().enumerate() {
        let frames = tab.take_frames();
        let transcripts = frames.iter().filter(|f| f["type"] == "cf_agent_chat_messages").count();
        assert_eq!(transcripts, if n == 0 { 1 } else { 2 });
        assert_eq!(tab.chunks(&request).len(), tabs[0].chunks(&request).len());
        assert_eq!(tab.said(), world.said());
    }
    assert_idle(&world);
}
