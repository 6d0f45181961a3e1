//! What a conversation costs: rows, transactions, wakes, and that none of it grows with what was said before.
//!
//! Rows are counted as the platform bills them: every inserted, changed or deleted row, every index entry of it, and the alarm each
//! time it is set or cleared.

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    store::Meter,
    testkit::{Client, Entry, Reply, Sockets, World, call, calls, one_read, script, text, text_deltas},
};

use crate::{Helper, assert_idle, custom::Custom};

/// What happened since an earlier look at the meter.
fn since(world: &World<Custom>, before: Meter) -> Meter {
    let now = world.meter();
    Meter { read: now.read - before.read, written: now.written - before.written }
}

/// Rows written by one turn.
fn cost_of_turn(world: &World<Custom>, tab: &Client, question: &str) -> u64 {
    let before = world.meter();
    tab.send(question);
    world.run();
    since(world, before).written
}

/// A world whose conversation holds `n` messages of `bytes` each.
fn filled(agent: Custom, n: usize, bytes: usize) -> World<Custom> {
    let world = World::new(agent).model_fn(|_| text("fine"));
    let filler = "x".repeat(bytes);
    for batch in (0..n).collect::<Vec<_>>().chunks(500) {
        let messages: Vec<UiMessage> = batch.iter().map(|i| UiMessage::user(format!("m{i}"), filler.clone())).collect();
        let handle = world.handle();
        world.block_on(async move { handle.add_messages(messages).await }).unwrap();
    }
    world
}

// I24
#[test]
fn a_plain_turn_writes_at_most_twenty_rows_and_two_for_each_flush() {
    for deltas in [0, 1, 5, 25, 100, 400] {
        let world = World::new(Custom::new()).model_fn(move |_| text_deltas(&vec!["word "; deltas]));
        let tab = world.connect("S1");
        // The first turn also creates single values, every sixteenth tidies up: both are plain turns.
        for n in 0..20 {
            let written = cost_of_turn(&world, &tab, "hi");
            let flushes = (deltas as u64 + 6) / 10;
            assert!(written <= 20 + 2 * flushes, "turn {n} with {deltas} deltas: {written} rows");
        }
        assert_idle(&world);
    }
}

// I24: three rows a tool call
#[test]
fn a_tool_call_costs_three_rows_and_its_flushes() {
    let cost = |n: usize| {
        let agent = Custom::new().tool("work", |_, _| async { Ok(json!("done")) });
        let script: Vec<Reply> = vec![if n == 0 { text("nothing") } else { calls((0..n).map(|_| ("work", json!({})))) }, text("done")];
        let world = World::new(agent).model(script);
        let tab = world.connect("S1");
        cost_of_turn(&world, &tab, "go")
    };
    let plain = cost(0);
    for n in [1, 2, 8] {
        // A flush before the tools start, one for each result, two rows each; three rows a call.
        let most = plain + 3 * n as u64 + 2 * (1 + n as u64);
        assert!(cost(n) <= most + 2 * n as u64, "{n} calls: {} rows, a plain turn {plain}", cost(n));
    }
}

// field F-01, I23, I24
#[test]
fn an_idle_object_costs_nothing_and_never_wakes() {
    let agent = Custom::new().tool("work", |_, _| async { Ok(json!("done")) });
    let world = World::new(agent).model(script![call("work", json!({})), text("done")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.settle();
    assert_eq!((world.jobs(), world.alarm_at()), (0, None), "nothing is left the moment a turn ends\n{}", world.story());
    let (rows, steps, alarms, events) = (world.meter(), world.db().transactions(), world.alarms().len(), world.events().len());
    world.run_for(24 * 3_600_000);
    assert_eq!((world.meter(), world.db().transactions(), world.alarms().len(), world.events().len()), (rows, steps, alarms, events));
    assert_idle(&world);
}

// field F-02, I26
#[test]
fn a_wake_reads_a_handful_of_rows_and_writes_none_whatever_was_said() {
    let mut costs = Vec::new();
    for messages in [2, 600] {
        let world = filled(Custom::new(), messages, 10);
        let tab = world.socket("S1");
        world.run();
        for _ in 0..500 {
            world.restart(Sockets::Kept);
            tab.probe();
            world.run();
            costs.push(world.meter());
            assert_eq!(world.alarm_at(), None);
        }
        assert_eq!(tab.of_type("cf_agent_stream_resume_none").len(), 500);
    }
    assert!(costs.iter().all(|cost| *cost == costs[0]), "every wake costs the same");
    assert!(costs[0].read < 10 && costs[0].written == 0, "{:?}", costs[0]);
}

// field F-04, I24
#[test]
fn a_long_answer_is_kept_in_few_rows_and_replayed_from_as_few() {
    let agent = Custom::new().tool("work", |_, _| async { Ok(json!("done")) });
    let world = World::new(agent).model(script![calls((0..5).map(|_| ("work", json!({})))), text_deltas(&["word "; 1_000]).gate("g")]);
    let tab = world.connect("S1");
    let (before, transactions) = (world.meter(), world.db().transactions());
    let request = tab.send("go");
    world.run();
    let segments = world.db().count("wk_seg");
    assert!((95..=110).contains(&segments), "{segments} segments");
    let spent = world.db().transactions() - transactions;
    assert!(spent <= segments + 20, "{spent} transactions for {segments} segments: none where nothing is written");
    assert!(since(&world, before).written <= segments + 20 + 3 * 5);
    let before = world.meter();
    let late = world.connect("S2");
    assert_eq!(late.chunks(&request).len(), tab.chunks(&request).len());
    let read = since(&world, before).read;
    assert!(read <= segments + 20, "{read} rows read for a replay of {segments}");
    world.open_gate("g");
    world.run();
    assert_eq!(world.db().count("wk_seg"), 0);
    assert_idle(&world);
}

// decision 52, I8
#[test]
fn one_network_read_is_one_transaction_at_most() {
    let read: Vec<String> = (0..60).map(|i| format!("{i} ")).collect();
    let read: Vec<&str> = read.iter().map(String::as_str).collect();
    for coalesce in [true, false] {
        let agent = Custom::new().config(|c| c.coalesce_deltas = coalesce);
        let world = World::new(agent).model(script![text("first").gate("a"), one_read(&read).gate("b")]);
        let tab = world.connect("S1");
        tab.send("one");
        world.run();
        world.open_gate("a");
        world.run();
        let request = tab.send("two");
        let transactions = world.db().transactions();
        world.run();
        // The frame that asks. The plan of the turn writes nothing, nor does a read that makes one chunk; sixty are six segments' worth.
        assert_eq!(world.db().transactions() - transactions, if coalesce { 1 } else { 2 }, "coalesced: {coalesce}");
        let deltas = tab.chunks(&request).iter().filter(|c| c["type"] == "text-delta").count();
        assert_eq!(deltas, if coalesce { 1 } else { 60 });
        world.open_gate("b");
        world.run();
        assert_eq!(world.said()[3], format!("assistant: {}", read.concat()));
        assert_eq!(world.db().take_loose_writes(), Vec::<&str>::new());
        assert_idle(&world);
    }
}

// I2
#[test]
fn no_row_is_written_outside_a_transaction_wherever_a_block_ends() {
    for thoughts in 0..12 {
        let reply = (0..thoughts).fold(Reply::new(), |reply, _| reply.reasoning("hm ")).text("so ").reasoning("or ").text("not");
        let world = World::new(Custom::new()).model(script![reply]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        assert_eq!(world.db().take_loose_writes(), Vec::<&str>::new(), "{thoughts} deltas of reasoning");
        assert_idle(&world);
    }
}

// wire 59
#[test]
fn every_socket_gets_the_same_bytes() {
    let world = World::new(Custom::new()).model(script![text_deltas(&["a", "b", "c"])]);
    let tabs = ["S1", "S2", "S3"].map(|label| world.socket(label));
    let asker = world.connect("S0");
    let request = asker.send("hi");
    world.run();
    let texts = |client: &Client| -> Vec<String> {
        let log = client.log().into_iter().filter_map(|entry| match entry {
            Entry::Received(text) if text.contains(&request) => Some(text),
            _ => None,
        });
        log.collect()
    };
    assert_eq!(texts(&asker).len(), 10);
    for tab in &tabs {
        assert_eq!(texts(tab), texts(&asker));
    }
}

// field F-03
#[test]
fn a_question_costs_the_same_after_two_messages_and_after_four_hundred() {
    let mut costs = Vec::new();
    for messages in [2, 400] {
        let world = filled(Custom::new(), messages, 10);
        let tab = world.connect("S1");
        costs.push(cost_of_turn(&world, &tab, "hi"));
        // The whole history again, unchanged: it is answered anew, and of the messages only the new answer is written.
        let (before, stored) = (world.db().snapshot(), world.db().count("wk_msg"));
        let history: Vec<Value> = world.get_messages();
        let body = json!({ "messages": history[..history.len() - 1] }).to_string();
        let meter = world.meter();
        tab.frame(json!({ "id": "again", "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } }));
        world.run();
        costs.push(since(&world, meter).written);
        assert_eq!(world.db().count("wk_msg"), stored + 1);
        let changed = before.difference(&world.db().snapshot());
        assert_eq!(
            changed
                .iter()
                .filter(|line| line.contains("wk_msg ") || line.contains("wk_msg:"))
                .filter(|line| line.starts_with('-'))
                .count(),
            0
        );
        assert_idle(&world);
    }
    assert_eq!(costs[..2], costs[2..]);
}

/// Rows read and steps of SQLite by a connect and by a turn, after a wake.
fn cost_of_history(messages: usize) -> [(u64, u64); 2] {
    let agent = Custom::new().config(|c| c.hydration_budget = 100_000);
    let world = filled(agent, messages, 1_800);
    let spent = |run: &dyn Fn()| {
        world.restart(Sockets::Kept);
        let steps = world.db().steps();
        run();
        (world.meter().read, world.db().steps() - steps)
    };
    let socket = world.socket("S1");
    world.run();
    let connect = spent(&|| {
        let second = world.socket("S2");
        world.disconnect(&second);
    });
    let transcript = socket.of_type("cf_agent_chat_messages");
    let bytes = transcript[0].to_string().len();
    assert!((7_000_000..=8_400_000).contains(&bytes), "{bytes} bytes of transcript");
    // Without a transcript for anybody: what the turn itself reads.
    world.disconnect(&socket);
    world.run();
    let turn = spent(&|| {
        let handle = world.handle();
        let result = world.block_on(async move { handle.save_messages(vec![UiMessage::user("q", "hi")]).await });
        assert_eq!(result.unwrap().status.as_str(), "completed");
    });
    let sent = world.provider_requests()[0].body.to_string().len();
    assert!((90_000..=110_000).contains(&sent), "{sent} bytes for the model");
    [connect, turn]
}

// issue A: 5,000 stored messages; decision 19, decision 41, I26
#[test]
fn connecting_and_answering_cost_what_the_windows_hold_not_what_was_said() {
    let (window, twice) = (cost_of_history(5_000), cost_of_history(10_000));
    assert_eq!(window[0].0, twice[0].0, "rows read by a connect");
    assert_eq!(window[1].0, twice[1].0, "rows read by a turn");
    for (what, small, large) in [("connect", window[0].1, twice[0].1), ("turn", window[1].1, twice[1].1)] {
        assert!(large <= small + small / 50, "steps of SQLite for a {what}: {small} and {large}");
    }
    assert!(window[0].0 <= 2 * 4_700 + 20, "{} rows", window[0].0);
    assert!(window[1].0 <= 4 * 60 + 40, "{} rows", window[1].0);
}

// field F-05, I24, I23
#[test]
fn an_object_stays_awake_through_silence_and_pays_an_alarm_for_it() {
    let silent_model = || (Custom::new(), vec![text("").delay(180_000).text("at last")], 180_000);
    let slow_tool = || {
        let agent = Custom::new().tools(|_| {
            let slow = Tool::dynamic("slow", "Takes its time.", json!({ "type": "object" }), |_, scope| async move {
                scope.sleep(300_000).await;
                Ok(json!("at last"))
            });
            Tools::new().with(slow.timeout_ms(600_000))
        });
        (agent, vec![call("slow", json!({})), text("at last")], 300_000)
    };
    for (agent, script, ms) in [silent_model(), slow_tool()] {
        let world = World::new(agent).model(script);
        let tab = world.connect("S1");
        tab.send("hi");
        world.settle();
        // Nobody is connected: only the alarm keeps the object.
        world.disconnect(&tab);
        let (began, before) = (world.clock().now(), world.meter());
        world.run_for(ms - 1_000);
        let beats = world.alarms();
        assert!(beats.windows(2).all(|pair| pair[1] - pair[0] == 30_000), "{beats:?}");
        assert_eq!(beats.len() as i64, ms / 30_000);
        assert!(world.alarm_at().is_some_and(|at| at - began <= ms));
        assert_eq!(since(&world, before).written, beats.len() as u64 - 1, "nothing but the alarm is written in silence");
        world.run_for(1_000);
        world.settle();
        assert_eq!((world.jobs(), world.alarm_at()), (0, None));
        assert_eq!(world.said()[1].rsplit(' ').next(), Some("last"));
    }
}

// I24: at most a row a heartbeat
#[test]
fn a_talkative_answer_is_flushed_in_time_even_if_it_is_slow() {
    // One delta every six seconds: each waits at most five for its segment (I8).
    let slow = (0..10).fold(text("0 "), |reply, n| reply.delay(6_000).text(&format!("{n} ")));
    let world = World::new(Custom::new()).model(script![slow.gate("g")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.run_for(5_000);
    let stored: String =
        world.db().query("SELECT body FROM wk_seg ORDER BY seg").iter().map(|row| row["body"].as_str().unwrap().to_owned()).collect();
    assert_eq!(stored.matches("text-delta").count(), 11);
    world.open_gate("g");
    world.run();
    assert_idle(&world);
}

// providers §12
#[test]
fn the_tokens_of_all_model_calls_of_a_turn_are_added_up() {
    let world = World::new(Helper::default()).model(script![call("weather", json!({ "city": "Oslo" })), text("Sunny.")]);
    let tab = world.connect("S1");
    tab.send("weather?");
    world.run();
    let finished = world.events_named("chat:turn:finish");
    // Every scripted answer says that it read 11 and wrote 7.
    assert_eq!((&finished[0].fields["usage"]["input"], &finished[0].fields["usage"]["output"]), (&json!(22), &json!(14)));
    assert_eq!(finished[0].fields["modelCalls"], 2);
}
