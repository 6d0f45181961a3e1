//! Taking up a stream that is already running: who is offered what, what a replay holds, and who gets live frames meanwhile.

use serde_json::{Value, json};
use wakeful::testkit::{Client, Dial, Reply, Status, World, gate, script, text, text_deltas};

use crate::{Helper, assert_idle, world};

fn resuming(id: &str, probe: Option<&str>) -> Value {
    let mut frame = json!({ "type": "cf_agent_stream_resuming", "id": id });
    if let Some(probe) = probe {
        frame["probeId"] = probe.into();
    }
    frame
}

/// A tab that asked, and an answer that stopped at the gate `g` after 25 deltas: two segments on disk, the rest in memory.
fn mid_stream(world: &World<Helper>) -> (Client, String) {
    world.answer(script![text_deltas(&["a "; 25]).gate("g").text("b ").gate("h").text("c")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    (tab, request)
}

/// The frames that arrived, split at the end of the replay.
fn replay_and_rest(frames: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let end = frames.iter().position(|f| f["replayComplete"] == true).expect("the end of the replay");
    (frames[..=end].to_vec(), frames[end + 1..].to_vec())
}

fn seqs(frames: &[Value]) -> Vec<i64> {
    frames.iter().filter_map(|f| f["seq"].as_i64()).collect()
}

fn shown(frames: &[Value]) -> String {
    let chunks = frames.iter().filter_map(|f| serde_json::from_str::<Value>(f["body"].as_str()?).ok());
    chunks.filter_map(|c| c["delta"].as_str().map(str::to_owned)).collect()
}

// wire 79, 80
#[test]
fn a_probe_that_finds_nothing_says_so() {
    let world = world();
    let socket = world.socket("S1");
    socket.take_frames();
    let probe = socket.probe();
    socket.frame(json!({ "type": "cf_agent_stream_resume_request" }));
    world.run();
    let none = json!({ "type": "cf_agent_stream_resume_none", "reason": "idle" });
    assert_eq!(socket.take_frames(), [json!({ "type": "cf_agent_stream_resume_none", "reason": "idle", "probeId": probe }), none]);
    assert_eq!(world.clock().passed(), 0);
}

// T145, wire 81, 82, 83, field P-01, P-03
#[test]
fn a_socket_that_comes_in_mid_answer_gets_all_of_it_in_order() {
    let world = world();
    let (tab, request) = mid_stream(&world);
    let late = world.socket("S2");
    let first = late.take_frames();
    assert_eq!(first[0], resuming(&request, None));
    assert!(first.iter().all(|f| f["type"] != "cf_agent_chat_messages"), "no transcript before the stream is taken up");
    let probe = late.probe();
    world.run();
    assert_eq!(late.take_frames(), [resuming(&request, Some(&probe))], "an explicit question is always answered");
    world.open_gate("g");
    world.run();
    assert_eq!(late.take_frames(), Vec::<Value>::new(), "nothing live between offer and ACK (O6)");
    late.ack(&request);
    world.run();
    let (replay, rest) = replay_and_rest(&late.take_frames());
    assert!(replay.iter().all(|f| f["replay"] == true && f["done"] == false));
    assert_eq!((seqs(&replay), rest), ((0..29).collect(), vec![]));
    world.open_gate("h");
    world.run();
    let live = late.take_frames();
    assert_eq!(seqs(&live), (29..33).collect::<Vec<_>>(), "live frames go on at the next number");
    assert!(live.iter().all(|f| f.get("replay").is_none()));
    let text = format!("{}{}", shown(&replay), shown(&live));
    assert_eq!(text, world.get_messages()[1]["parts"][1]["text"].as_str().unwrap());
    assert_eq!((late.terminals(&request).len(), tab.terminals(&request).len()), (1, 1));
    assert_idle(&world);
}

// wire 84, field P-03
#[test]
fn an_ack_may_take_its_time() {
    let slow = (0..40).fold(text_deltas(&["x "; 60]).delay(500), |reply, _| reply.text("y ").delay(20));
    let world = world().model(script![slow]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run_for(100);
    let late = world.socket("S2");
    world.run_for(900);
    late.ack(&request);
    world.run();
    let frames: Vec<Value> = late.responses(&request);
    let (replay, live) = replay_and_rest(&frames);
    assert!(!seqs(&live).is_empty() && seqs(&replay).len() > 60);
    let all = [seqs(&replay), seqs(&live)].concat();
    assert_eq!(all, (0..all.len() as i64).collect::<Vec<_>>(), "no gap, no overlap");
    assert_eq!(shown(&frames), world.get_messages()[1]["parts"][1]["text"].as_str().unwrap());
    assert_idle(&world);
}

// wire 85, field P-01
#[test]
fn each_ack_gets_a_complete_replay() {
    let world = world();
    let (_tab, request) = mid_stream(&world);
    let late = world.socket("S2");
    late.take_frames();
    late.ack(&request);
    late.ack(&request);
    world.run();
    let (first, rest) = replay_and_rest(&late.take_frames());
    assert_eq!(first, rest);
    assert_eq!(seqs(&first), (0..28).collect::<Vec<_>>());
    world.open_gate("g");
    world.open_gate("h");
    world.run();
    assert_idle(&world);
}

// wire 86, 102
#[test]
fn several_sockets_resume_at_once_and_one_that_dies_spoils_nothing() {
    let world = world();
    let (_tab, request) = mid_stream(&world);
    let late = ["S2", "S3", "S4"].map(|label| world.socket(label));
    late.iter().for_each(|socket| drop(socket.take_frames()));
    late.iter().for_each(|socket| socket.ack(&request));
    // One dies in the middle of its replay.
    world.run_until(|_| late[0].frames().len() > 12);
    world.disconnect(&late[0]);
    world.run();
    for socket in &late[1..] {
        let (replay, rest) = replay_and_rest(&socket.take_frames());
        assert_eq!((seqs(&replay), rest), ((0..28).collect(), vec![]));
    }
    world.reconnect(&late[0]);
    world.run();
    late[0].take_frames();
    late[0].ack(&request);
    world.run();
    assert_eq!(seqs(&late[0].take_frames()), (0..28).collect::<Vec<_>>());
    world.open_gate("g");
    world.open_gate("h");
    world.run();
    assert_idle(&world);
}

// wire 87, 100
#[test]
fn a_socket_that_never_takes_the_stream_up_still_gets_its_end() {
    let world = world();
    let (_tab, request) = mid_stream(&world);
    let socket = world.socket("S2");
    let aside = world.dial(Dial::new("S3").without_resume());
    world.run();
    let log = aside.story();
    assert!(!log.contains("stream_resume_ack") && !log.contains("stream_resume_request"), "{log}");
    socket.take_frames();
    world.open_gate("g");
    world.open_gate("h");
    world.run();
    let frames = socket.take_frames();
    let kinds: Vec<&str> = frames.iter().map(|f| f["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["cf_agent_chat_messages", "cf_agent_use_chat_response"]);
    assert_eq!(
        frames[1],
        json!({ "id": request, "type": "cf_agent_use_chat_response", "body": "", "done": true, "outcome": "completed", "messageIds": ["S1-u2"] })
    );
    assert_eq!(aside.said(), world.said());
    assert_idle(&world);
}

// wire 88, 89, 90
#[test]
fn an_ack_that_comes_too_late_or_for_something_else_ends_nothing_that_runs() {
    let world = world();
    let (_tab, request) = mid_stream(&world);
    let socket = world.socket("S2");
    socket.take_frames();
    socket.ack("another");
    world.run();
    assert_eq!(socket.take_frames(), Vec::<Value>::new(), "any frame for it would end something on the client");
    world.open_gate("g");
    world.open_gate("h");
    world.run();
    socket.take_frames();
    socket.ack(&request);
    socket.ack("unknown");
    world.run();
    let late = json!({ "id": request, "type": "cf_agent_use_chat_response", "body": "", "done": true, "replay": true, "outcome": "completed", "messageIds": ["S1-u2"] });
    let unknown = json!({ "id": "unknown", "type": "cf_agent_use_chat_response", "body": "", "done": true, "replay": true });
    assert_eq!(socket.take_frames(), [late, unknown]);
}

// wire 91, 92, field P-02, I20
#[test]
fn before_the_first_chunk_a_stream_is_promised_and_offered_when_it_begins() {
    let world = world().model(script![Reply::new().head_delay(3_000).text("one ").gate("g").text("two")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run_for(500);
    let late = world.socket("S2");
    let first = late.take_frames();
    assert_eq!(first[0], json!({ "type": "cf_agent_stream_pending", "id": request }));
    assert_eq!(first[1], json!({ "type": "cf_agent_chat_messages", "messages": world.get_messages(), "connect": true }));
    let probe = late.probe();
    world.run_for(100);
    assert_eq!(late.take_frames(), [json!({ "type": "cf_agent_stream_pending", "id": request, "probeId": probe })]);
    // A hook that comes in now shows the answer from its first word.
    let hook = world.connect("S3");
    world.run_for(3_000);
    assert_eq!(late.take_frames(), [resuming(&request, None)]);
    assert_eq!((hook.status(), hook.said()[1].as_str()), (Status::Streaming, "assistant: one "));
    late.ack(&request);
    world.run();
    assert_eq!(shown(&late.take_frames()), "one ");
    world.open_gate("g");
    world.run();
    assert_eq!(hook.said(), ["user: hi", "assistant: one two"]);
    assert_idle(&world);
}

// wire 93
#[test]
fn who_waits_for_a_stream_that_never_comes_is_let_go() {
    let world = world().model(script![gate("g").text("no")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let late = world.socket("S2");
    late.take_frames();
    tab.cancel(&request);
    world.run();
    let frames = late.take_frames();
    assert_eq!(frames.last().unwrap(), &json!({ "type": "cf_agent_stream_resume_none" }));
    assert_eq!(late.terminals(&request)[0]["outcome"], "aborted");
    assert_idle(&world);
}

// field P-02: a turn that ends without a stream does not release while a successor is queued
#[test]
fn who_waits_goes_on_waiting_while_another_turn_is_to_come() {
    let world = world().model(script![gate("g").text("no"), text("yes").gate("h")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    let first = tab.send("1");
    world.run();
    let second = other.send("2");
    world.run();
    let late = world.socket("S3");
    assert_eq!(late.take_frames()[0], json!({ "type": "cf_agent_stream_pending", "id": second }));
    tab.cancel(&first);
    world.run();
    let frames = late.take_frames();
    assert!(frames.contains(&resuming(&second, None)), "{frames:?}");
    assert!(frames.iter().all(|f| f["type"] != "cf_agent_stream_resume_none"));
    late.ack(&second);
    world.open_gate("h");
    world.run();
    assert_eq!(late.terminals(&second).len(), 1);
    assert_idle(&world);
}

// wire 98, 99
#[test]
fn a_tab_that_was_away_sees_what_ended_and_what_it_typed_meanwhile_runs_once() {
    let world = world().model(script![text("one"), text("two")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    world.disconnect(&tab);
    other.send("hi");
    world.run();
    let typed = tab.send("from a tunnel");
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    world.reconnect(&tab);
    world.run();
    assert_eq!(tab.status(), Status::Ready);
    assert_eq!(tab.terminals(&typed).len(), 1);
    assert_eq!(world.said(), ["user: hi", "assistant: one", "user: from a tunnel", "assistant: two"]);
    assert_eq!(world.provider_requests().len(), 2);
    assert_idle(&world);
}
