//! Recovery of the transcript: what counts as pending, what repair makes of any message, and random lives (`recovery.md` §2.15, §3, §6.8).

use super::*;
use wakeful::transcript::repair;

/// Whether the object is stable within so long, and how long that took.
fn stable(world: &World<Custom>, ms: u32) -> (bool, i64) {
    let (handle, began) = (world.handle(), world.clock().passed());
    let stable = world.block_on(async move { handle.wait_until_stable(Some(ms)).await }).unwrap();
    (stable, world.clock().passed() - began)
}

fn pending(world: &World<Custom>) -> bool {
    let handle = world.handle();
    world.block_on(async move { handle.has_pending_interaction().await }).unwrap()
}

// recovery 123: nothing to wait for, a page that does not answer, a continuation that is about to run.
#[test]
fn stable_is_when_nothing_runs_and_nobody_is_waited_for() {
    let world = World::new(agent()).model(script![text_deltas(&["word "; 25]).delay(100_000), text("the end")]);
    world.connect("S1").send("hi");
    world.settle();
    assert_eq!(stable(&world, 1_000), (false, 1_000), "a turn runs");
    world.restart(Sockets::Closed);
    assert!(stable(&world, 60_000).0, "a turn is recovered, and ends");
    assert!(world.said()[1].ends_with("the end"));
    assert_eq!(stable(&world, 1_000), (true, 0));
    let world = World::new(agent()).model(script![call("look", json!({})), text("A hill.")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    assert_eq!(stable(&world, 1_000), (false, 1_000), "a page is waited for");
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    assert!(stable(&world, 1_000).0);
    assert_eq!(world.said()[1], "assistant: [look output-available] A hill.");
    world.run();
    assert_at_rest(&world);
}

// recovery 123, W7, I16: the call of a server that died is nobody's.
#[test]
fn a_dead_server_tool_is_not_waited_for() {
    let (_, gates, tools) = gated(&["work"]);
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script![call("work", json!({})), text("unclear")]);
    world.connect("S1").send("work");
    world.run();
    assert!(!pending(&world));
    world.restart(Sockets::Closed);
    assert!(!pending(&world) && stable(&world, 60_000).0);
    assert_eq!(world.said()[1], "assistant: [work output-error] unclear");
    assert_at_rest(&world);
}

// recovery 124, tools D15: each state of a call, by who is to answer it.
#[test]
fn only_calls_of_pages_and_people_are_pending() {
    let (_, gates, tools) = gated(&["work", "pay"]);
    let tools = move |turn: &Turn| {
        let all = tools(turn);
        Tools::new()
            .with(all.get("work").unwrap().clone())
            .with(all.get("pay").unwrap().clone().needs_approval())
            .with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" })))
    };
    let half =
        json!({ "tool_calls": [{ "index": 0, "id": "c", "type": "function", "function": { "name": "look", "arguments": "{" } }] });
    for (reply, expected) in [
        (text("so ").gate("never"), false),
        (Reply::new().delta(half).gate("never"), false),
        (call("work", json!({})), false),
        (call("look", json!({})), true),
        (call("pay", json!({})), true),
        (calls([("work", json!({})), ("look", json!({}))]), true),
    ] {
        let world = World::new(agent().tools(tools.clone())).with_gates(&gates).model(script![reply.clone(), text("end")]);
        let tab = world.connect("S1");
        tab.send("go");
        world.settle();
        assert_eq!(pending(&world), expected, "{:?}", world.said());
        let Some(open) = tab.open_calls().into_iter().find(|_| world.jobs() == 0) else { continue };
        world.restart(Sockets::Kept);
        assert!(pending(&world), "also after a death");
        if parts(&world, 1).iter().any(|part| part["state"] == "approval-requested") {
            tab.deny(&open, "no");
        } else {
            tab.tool_result(&open, json!(1));
        }
        world.run();
        assert!(!pending(&world));
        assert_at_rest(&world);
    }
}

/// Repeatable draws.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    fn part(&mut self, n: usize) -> Value {
        if self.below(4) == 0 {
            return json!({ "type": self.of(&["text", "reasoning"]), "text": "so", "state": self.of(&["streaming", "done"]) });
        }
        let states = [
            "input-streaming",
            "input-available",
            "approval-requested",
            "approval-responded",
            "output-available",
            "output-error",
            "output-denied",
        ];
        let state = self.of(&states);
        let mut part = json!({ "type": "tool-a", "toolCallId": format!("c{n}"), "state": state });
        if self.below(2) == 0 {
            (part["type"], part["toolName"]) = (json!("dynamic-tool"), json!("a"));
        }
        let inputs =
            [json!({}), json!({ "a": 1 }), json!("{\"a\":1}"), json!("{\"a\":"), json!("a"), json!(null), json!([1]), json!(7)];
        if self.below(8) > 0 {
            part["input"] = self.of(&inputs);
        }
        if state == "output-available" {
            part["output"] = self.of(&[json!(null), json!(7), json!({ "a": 1 })]);
        }
        if state.starts_with("approval") {
            part["approval"] =
                self.of(&[json!({ "id": "p" }), json!({ "id": "p", "approved": true }), json!({ "id": "p", "approved": false })]);
        }
        part
    }
}

// recovery 125: ten thousand messages: twice is once, what is settled is settled, order and ids stay, the counters are right.
#[test]
fn repair_settles_any_message_once() {
    let mut draw = Draw(7);
    for _ in 0..10_000 {
        let parts: Vec<Value> = (0..1 + draw.below(6)).map(|n| draw.part(n)).collect();
        let before: UiMessage = serde_json::from_value(json!({ "id": "m", "role": "assistant", "parts": parts })).unwrap();
        let exempt = draw.of(&["", "c0", "c3"]);
        let mut after = before.clone();
        let (orphans, normalised) = repair::close_interrupted(&mut after, |call| call == exempt);
        let (mut closed, mut inputs) = (Vec::new(), 0);
        for (before, after) in before.parts.iter().zip(&after.parts) {
            assert_eq!((before.get("type"), before.get("toolCallId")), (after.get("type"), after.get("toolCallId")));
            let Some(call) = after.get("toolCallId") else {
                assert_eq!(after["state"], "done");
                continue;
            };
            let is_settled = |part: &Part| part["state"].as_str().unwrap().starts_with("output-");
            assert!(after["input"].is_object() && (is_settled(after) || *call == exempt), "{after:?}");
            inputs += usize::from(!before.get("input").is_some_and(Value::is_object));
            if !is_settled(before) && *call != exempt {
                closed.push(call.clone());
            } else {
                assert_eq!((before["state"].clone(), before.get("output")), (after["state"].clone(), after.get("output")));
            }
        }
        assert_eq!(after.parts.len(), before.parts.len());
        let found: Vec<Value> = orphans.iter().map(|part| part["toolCallId"].clone()).collect();
        assert_eq!((found, normalised), (closed, inputs), "{before:?}");
        let again = after.clone();
        assert_eq!(repair::close_interrupted(&mut after, |call| call == exempt), (vec![], 0));
        assert_eq!(after.json(), again.json());
        assert_eq!(
            repair::is_broken(&after),
            after
                .parts
                .iter()
                .any(|part| part.get("toolCallId") == Some(&json!(exempt)) && !part["state"].as_str().unwrap().starts_with("output-"))
        );
    }
}

// recovery 126: the examples of §3.3.
#[test]
fn the_examples_of_repair_hold() {
    let interrupted = |part: Value| {
        let mut part = part;
        (part["state"], part["errorText"]) = (json!("output-error"), json!(INTERRUPTED));
        part
    };
    let charge = json!({ "type": "tool-charge", "toolCallId": "c1", "state": "input-available", "input": { "eur": 5 } });
    let search = |input: Value, state: &str| json!({ "type": "tool-search", "toolCallId": "c2", "state": state, "input": input });
    let settled = |input: Value| json!({ "type": "dynamic-tool", "toolName": "x", "toolCallId": "c3", "state": "output-available", "input": input, "output": 7 });
    let denied = |state: &str| json!({ "type": "tool-rm", "toolCallId": "c4", "state": state, "input": {}, "approval": { "id": "a1", "approved": false, "reason": "no" } });
    let requested =
        json!({ "type": "tool-rm", "toolCallId": "c5", "state": "approval-requested", "input": {}, "approval": { "id": "a1" } });
    let null = json!({ "type": "tool-rm", "toolCallId": "c6", "state": "output-available", "input": {}, "output": null });
    for (before, after, counters, ids) in [
        (charge.clone(), interrupted(charge.clone()), (1, 0), vec!["c1"]),
        (search(json!("{\"q\":\"bri"), "input-streaming"), interrupted(search(json!({}), "input-streaming")), (1, 1), vec!["c2"]),
        (settled(json!("{\"a\":1}")), settled(json!({ "a": 1 })), (0, 1), vec![]),
        (denied("approval-responded"), denied("output-denied"), (1, 0), vec!["c4"]),
        (requested.clone(), interrupted(requested), (1, 0), vec!["c5"]),
        (null.clone(), null, (0, 0), vec![]),
    ] {
        let mut message: UiMessage = serde_json::from_value(json!({ "id": "m", "role": "assistant", "parts": [before] })).unwrap();
        let (orphans, normalised) = repair::close_interrupted(&mut message, |_| false);
        let found: Vec<&str> = orphans.iter().map(|part| part["toolCallId"].as_str().unwrap()).collect();
        assert_eq!((json!(message.parts), (orphans.len(), normalised), found), (json!([after]), counters, ids));
    }
}

// recovery 127, T-X34: a provider repeats its ids; a late result changes the call it is for and no other.
#[test]
fn the_same_call_id_in_two_messages_is_two_calls() {
    let world = World::new(agent()).model(script![call("look", json!({ "n": 1 })), call("look", json!({ "n": 2 })), text("Two.")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    let first = tab.open_calls().pop().unwrap();
    tab.send("look again");
    world.run();
    die(&world);
    world.reconnect(&tab);
    world.run();
    let second = tab.open_calls().pop().unwrap();
    let before = parts(&world, 1);
    tab.frame(
        json!({ "type": "cf_agent_tool_result", "toolCallId": first, "toolName": "look", "output": "late", "autoContinue": true }),
    );
    world.run();
    assert_eq!((parts(&world, 1), asked(&world)), (before.clone(), 2), "what the model has read stays as it is");
    tab.tool_result(&second, json!("in time"));
    world.run();
    assert_eq!(parts(&world, 1), before);
    assert_eq!(world.said()[3], "assistant: [look output-available] Two.");
    assert!(parts(&world, 3).iter().any(|part| part["output"] == "in time"));
    assert_at_rest(&world);
}

/// One random life: a phase of trouble, then calm. What is wrong at its end.
fn live(seed: u64) {
    let calm = Rc::new(Cell::new(false));
    let (quiet, dice) = (calm.clone(), RefCell::new(Draw(seed ^ 0xABCD)));
    let world = recovering().seed(seed).model_fn(move |request| {
        if quiet.get() {
            return text("calm");
        }
        let mut dice = dice.borrow_mut();
        match dice.below(12) {
            0 => limited("20"),
            1 => text("half ").cut(),
            2 => text_deltas(&["slow "; 13]).delay(3_000).text("end"),
            3 => text("so ").broken(RESET),
            4 => http_error(400, json!({ "error": { "message": "no" } })),
            5 => empty(),
            6 | 7 if request.roles().last() != Some(&"tool") => text("I look. ").call("weather", json!({ "city": "Oslo" })),
            _ => text_deltas(&["fine "; 25]),
        }
    });
    let tabs = [world.connect("S1"), world.connect("S2")];
    let mut draw = Draw(seed);
    for _ in 0..25 {
        let tab = &tabs[draw.below(2)];
        match draw.below(10) {
            0..=2 if tab.conn().is_some() => drop(tab.send("question")),
            3 if tab.conn().is_some() => tab.stop(),
            4 if tab.conn().is_some() => world.disconnect(tab),
            4 | 5 if tab.conn().is_none() => world.reconnect(tab),
            6 => world.restart(Sockets::Kept),
            7 => world.restart(Sockets::Closed),
            8 => {
                let texts = [RESET, MEMORY, "disk I/O error: SQLITE_IOERR", "out of memory: SQLITE_NOMEM"];
                world.db().fail(FaultAt::Statement(1 + draw.below(60) as u32), draw.of(&texts));
            }
            _ => world.run_for(draw.below(40_000) as i64),
        }
        for _ in 0..draw.below(20) {
            world.step();
        }
    }
    calm.set(true);
    world.db().forgive();
    world.run();
    for tab in &tabs {
        world.disconnect(tab);
        world.reconnect(tab);
    }
    world.run();
    tabs[0].send("last question");
    world.run();
    for tab in &tabs {
        world.disconnect(tab);
        world.reconnect(tab);
    }
    world.run();
    assert_eq!(world.said().last().map(String::as_str), Some("assistant: calm"), "{seed}: {:?}", world.said());
    assert_at_rest(&world);
    let models = asked(&world);
    assert!(models < 25 * 30, "{models} model calls (I10)");
}

// recovery 128, I10; §6.8: chaos, then calm: everything comes to rest, and everybody sees what is stored.
#[test]
fn any_life_comes_to_rest() {
    for seed in 0..60 {
        live(seed);
    }
}
