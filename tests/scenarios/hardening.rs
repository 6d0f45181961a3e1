//! What is too large, too deep, too many, or comes at the worst moment harms nobody but whoever sent it; an answer stands behind its
//! question, and an owed hook runs in its turn.

use std::{cell::Cell, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    ids::ConnId,
    limits,
    prelude::*,
    testkit::{Client, Dial, FaultAt, Gates, Reply, Sockets, World, call, script, text, text_deltas},
};

use crate::{
    assert_idle,
    custom::{Custom, Seen, tool},
};

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn post(request: &str, messages: &[Value]) -> Value {
    let body = json!({ "messages": messages }).to_string();
    json!({ "id": request, "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } })
}

/// Lists in lists, so many.
fn deep(levels: usize) -> Value {
    (1..levels).fold(json!([]), |inner, _| json!([inner]))
}

fn outcome(client: &Client, request: &str) -> Value {
    let ends = client.terminals(request);
    assert_eq!(ends.len(), 1, "{request}: {ends:?}\n{}", client.story());
    ends[0]["outcome"].clone()
}

/// The text of the one frame that refused a request.
fn refusal(client: &Client, request: &str) -> String {
    let frames = client.responses(request);
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!((&frames[0]["done"], &frames[0]["error"], &frames[0]["outcome"]), (&json!(true), &json!(true), &json!("error")));
    frames[0]["body"].as_str().unwrap().to_owned()
}

/// The same conversation goes on, in this life of the object and in the next, and no step of it failed.
fn goes_on(world: &World<Custom>, tab: &Client) {
    for life in 0..2 {
        if life > 0 {
            world.restart(Sockets::Kept);
        }
        world.answer(text("fine"));
        let request = tab.send("still there?");
        world.run();
        assert_eq!(outcome(tab, &request), "completed", "life {life}\n{}", world.story());
        assert_eq!(world.said().last().unwrap(), "assistant: fine");
    }
    assert_eq!(world.events_named("storage:failed"), []);
    assert_idle(world);
}

/// Runs a call of the handle to its end.
fn ask<T: 'static, Fut: Future<Output = T> + 'static>(world: &World<Custom>, run: impl FnOnce(AgentHandle) -> Fut) -> T {
    let handle = world.handle();
    world.block_on(run(handle))
}

fn responses(seen: &Seen) -> Vec<String> {
    seen.take().into_iter().filter(|line| line.starts_with("response")).collect()
}

// --- the place of an answer

// T09, tools §3.4, I6
#[test]
fn what_a_tool_adds_stands_behind_the_answer_of_its_turn() {
    let agent = Custom::new().tool("note", |_, scope| async move {
        scope.add_messages(vec![UiMessage::user("n1", "a note")]).await?;
        scope.add_messages(vec![UiMessage::user("n2", "a second note")]).await?;
        Ok(json!("noted"))
    });
    let world = World::new(agent).model(script![call("note", json!({})), text("done"), text("well")]);
    let (tab, other) = (world.connect("S1"), world.connect("S2"));
    tab.send("note it");
    world.run();
    let said = ["user: note it", "assistant: [note output-available] done", "user: a note", "user: a second note"];
    assert_eq!((world.said(), tab.said(), other.said()), (said.map(str::to_owned).to_vec(), world.said(), world.said()));
    tab.send("and?");
    world.run();
    let texts = world.provider_requests()[2].texts();
    let heard: Vec<&String> = texts[2..].iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(heard, ["noted", "done", "a note", "a second note", "and?"]);
    assert_eq!(world.said()[4..], ["user: and?", "assistant: well"]);
    goes_on(&world, &tab);
}

// tools §3.4, wire 138
#[test]
fn what_is_added_and_asked_while_an_answer_streams_stands_behind_it() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far"), text("two")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("hi");
    world.run();
    ask(&world, |h| async move { h.add_messages(vec![UiMessage::user("n1", "a note")]).await }).unwrap();
    two.send("and?");
    world.run();
    ask(&world, |h| async move { h.add_messages(vec![UiMessage::user("n2", "a late note")]).await }).unwrap();
    world.open_gate("g");
    world.run();
    assert_eq!(world.said()[..4], ["user: hi", "assistant: so far", "user: a note", "user: and?"]);
    assert_eq!(world.provider_requests()[1].texts()[1..5], ["hi", "so far", "a note", "and?"].map(str::to_owned));
    let mut rest = world.said().split_off(4);
    rest.sort();
    assert_eq!(rest, ["assistant: two", "user: a late note"], "both are kept");
    goes_on(&world, &one);
}

// wire 130, 138
#[test]
fn a_regenerated_answer_stands_before_the_question_that_waited_for_it() {
    let world = World::new(Custom::new()).model(script![text("first"), text("second").gate("g"), text("B")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("uA");
    world.run();
    one.regenerate();
    world.run();
    two.send("uB");
    world.run();
    world.open_gate("g");
    world.run();
    let said = ["user: uA", "assistant: second", "user: uB", "assistant: B"];
    assert_eq!(world.said(), said);
    assert_eq!((one.said(), two.said()), (world.said(), world.said()));
    assert_eq!(world.provider_requests()[2].texts()[1..], ["uA", "second", "uB"].map(str::to_owned));
    goes_on(&world, &two);
}

// wire 157, decision 37, recovery D3
#[test]
fn an_interrupted_answer_stands_before_what_was_added_meanwhile() {
    for (regenerated, recovers) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new(if recovers { Custom::new() } else { Custom::ending() });
        let tab = world.connect("S1");
        if regenerated {
            world.answer(text("old"));
            tab.send("hi");
            world.run();
        }
        world.answer(text_deltas(&["a"; 25]).gate("never"));
        if recovers {
            world.answer(text("and on"));
        }
        let request = if regenerated { tab.regenerate() } else { tab.send("hi") };
        world.run();
        ask(&world, |h| async move { h.add_messages(vec![UiMessage::user("n1", "a note")]).await }).unwrap();
        world.restart(Sockets::Kept);
        world.run();
        assert_eq!(outcome(&tab, &request), if recovers { "recovering" } else { "aborted" });
        let said = world.said();
        assert_eq!((said.len(), &*said[0], &*said[2]), (3, "user: hi", "user: a note"), "{said:?}");
        assert!(said[1].starts_with("assistant: aaaa"), "{said:?}");
        assert_eq!(said[1].ends_with("a and on"), recovers, "{said:?}");
        goes_on(&world, &tab);
    }
}

// wire 132, field A-03
#[test]
fn an_edit_among_new_messages_changes_nothing_that_is_stored() {
    let world = World::new(Custom::new()).model(script![text("one"), text("two"), text("three")]);
    let (tab, forger) = (world.connect("S1"), world.socket("S2"));
    tab.send("1");
    world.run();
    tab.send("2");
    world.run();
    let first = world.get_messages()[0]["id"].as_str().unwrap().to_owned();
    forger.frame(post("R", &[user("new", "3"), user(&first, "forged")]));
    world.run();
    assert_eq!(world.said(), ["user: 1", "assistant: one", "user: 2", "assistant: two", "user: 3", "assistant: three"]);
    assert_eq!(world.provider_requests()[2].texts()[1..], ["1", "one", "2", "two", "3"].map(str::to_owned));
    let ignored = world.events_named("chat:message:ignored");
    assert_eq!(ignored.iter().map(|e| e.fields["messageId"].clone()).collect::<Vec<_>>(), [json!(first)]);
    goes_on(&world, &tab);
}

// --- too many

// wire 67, limits::TURN_IDS
#[test]
fn ids_of_one_request_count_once_and_too_many_refuse_only_that_request() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far"), text("two")]);
    let (tab, greedy) = (world.connect("S1"), world.socket("S2"));
    let request = tab.send("hi");
    world.run();
    let id = |n: usize| format!("{n:0>256}");
    let many: Vec<Value> = (0..300).map(|n| user(&id(n), "x")).collect();
    greedy.frame(post("many", &many));
    world.run();
    assert!(refusal(&greedy, "many").contains("limits::TURN_IDS"));
    assert_eq!(world.get_messages().len(), 1, "nothing of it is stored");
    greedy.frame(post("same", &vec![user(&id(0), "x"); 8_000]));
    world.run();
    world.open_gate("g");
    world.run();
    assert_eq!((outcome(&tab, &request), outcome(&greedy, "same")), (json!("completed"), json!("completed")));
    assert_eq!(greedy.terminals("same")[0]["messageIds"], json!([id(0)]));
    assert_eq!(world.said(), ["user: hi", "assistant: so far", "user: x", "assistant: two"]);
    goes_on(&world, &tab);
}

// I27, I26, field A-04
#[test]
fn a_flood_of_long_ids_disturbs_neither_the_running_answer_nor_a_restart() {
    for dies in [false, true] {
        let world = World::new(Custom::new())
            .model_fn(|r| if r.last_user() == "hi" { text_deltas(&["a"; 25]).gate("g") } else { text("fine") });
        let (tab, flood) = (world.connect("S1"), world.socket("S2"));
        let request = tab.send("hi");
        world.run();
        for n in 0..40 {
            let ids: Vec<Value> = (0..240).map(|m| user(&format!("{n:0>128}{m:0>128}"), "x")).collect();
            flood.frame(post(&format!("distinct-{n}"), &ids[..if n < 2 { 240 } else { 1 }]));
            flood.frame(post(&format!("repeated-{n}"), &vec![user(&"i".repeat(256), "x"); 240]));
        }
        world.run();
        if dies {
            world.restart(Sockets::Kept);
        }
        world.open_gate("g");
        world.run();
        assert_eq!(outcome(&tab, &request), if dies { "recovering" } else { "completed" });
        assert!(!dies || world.said()[1].ends_with("a fine"), "{:?}", world.said());
        assert_eq!(world.get("/get-messages").status, 200);
        world.disconnect(&flood);
        goes_on(&world, &tab);
    }
}

// wire 69, I26
#[test]
fn what_waits_with_a_queued_turn_reaches_it_also_over_a_restart() {
    for dies in [false, true] {
        let agent = Custom::new();
        let seen = agent.seen.clone();
        let saw = seen.clone();
        let callables = Callables::new().with("save", |call| async move {
            let result = call.handle.save_messages_with(vec![UiMessage::user("s", "report")], json!({ "by": "schedule" })).await?;
            Ok(Some(json!(result.status.as_str())))
        });
        let agent = agent.callables(callables).before_turn(move |turn| {
            saw.add(format!("body {}", json!(turn.body)));
            async { Ok(TurnPlan::default()) }
        });
        let world = World::new(agent).model(script![text("a").gate("g"), text("b"), text("c"), text("d")]);
        if dies {
            world.answer(text("e"));
        }
        let tabs = [world.connect("S1"), world.connect("S2"), world.connect("S3")];
        for (n, tab) in tabs.iter().enumerate() {
            tab.set_body(json!({ "note": n }));
            tab.send(&n.to_string());
            world.run();
        }
        tabs[0].rpc("save", json!([]));
        world.run();
        if dies {
            world.restart(Sockets::Kept);
        }
        world.open_gate("g");
        world.run();
        let bodies: Vec<String> = seen.take().into_iter().filter(|line| line.starts_with("body")).collect();
        let expected: &[u8] = if dies { &[0, 0, 1, 2, 2] } else { &[0, 1, 2, 2] };
        assert_eq!(bodies, expected.iter().map(|n| format!("body {}", json!({ "note": n }))).collect::<Vec<_>>());
        assert_eq!(world.get_messages().last().unwrap()["metadata"], json!({ "by": "schedule" }));
        assert_idle(&world);
    }
}

// --- too deep

// decision 41, tools §6.3, I14
#[test]
fn arguments_nested_too_deep_are_told_to_the_model_and_kept_as_text() {
    let levels = [limits::VALUE_DEPTH, 100, 122, 123, 125, 126, 127, 5_000].into_iter().map(|levels| ("t", levels));
    for (tool, levels) in levels.chain([("nope", 100), ("nope", 125)]) {
        let arguments = format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let agent = Custom::new().tool("t", |_, scope| async move {
            scope.data("ran", None, json!(true)).await?;
            Ok(json!(1))
        });
        let world = World::new(agent).model(script![Reply::new().call_raw("c1", tool, &arguments), text("ok")]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        assert_eq!(outcome(&tab, &request), "completed", "{levels} levels");
        let part = world.get_messages()[1]["parts"].as_array().unwrap().iter().find(|p| p["toolCallId"] == "c1").unwrap().clone();
        assert_eq!(part["state"], "output-error", "{levels} levels: {part}");
        assert_eq!(part["rawInput"], json!(arguments), "{levels} levels");
        let told = world.provider_requests()[1].messages().last().unwrap().clone();
        assert_eq!(told["role"], "tool", "{levels} levels");
        assert!(told["content"].as_str().unwrap().contains(part["errorText"].as_str().unwrap()), "{told}");
        goes_on(&world, &tab);
    }
}

// decision 41: as deep as may be
#[test]
fn values_nested_as_deep_as_allowed_go_through_unchanged() {
    let agent = Custom::new().tool("echo", |input, _| async move { Ok(input["a"].clone()) });
    let input = json!({ "a": deep(limits::VALUE_DEPTH - 1) });
    let world = World::new(agent).model(script![call("echo", input.clone()), text("ok")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let part = &world.get_messages()[1]["parts"][1];
    assert_eq!((&part["state"], &part["input"], &part["output"]), (&json!("output-available"), &input, &input["a"]));
    goes_on(&world, &tab);
}

// decision 41, I22, recovery §6.6
#[test]
fn an_output_nested_too_deep_is_kept_as_text_and_its_owed_hook_survives() {
    for levels in [limits::VALUE_DEPTH + 1, 126] {
        let gates = Gates::new();
        let wait = gates.clone();
        let agent = Custom::new().tool("fetch", move |_, _| async move { Ok(deep(levels)) }).on_response(move |_, _| {
            let gates = wait.clone();
            async move { gates.wait("hook").await }
        });
        let seen = agent.seen.clone();
        let world = World::new(agent).with_gates(&gates).model(script![call("fetch", json!({})), text("ok")]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        world.restart(Sockets::Kept);
        world.open_gate("hook");
        world.run();
        let lines = responses(&seen);
        assert_eq!(lines.last().unwrap(), &format!("response {request} completed \"ok\" recovered"), "{lines:?}");
        let part = &world.get_messages()[1]["parts"][1];
        assert_eq!((&part["state"], &part["output"]), (&json!("output-available"), &json!(deep(levels).to_string())));
        assert_eq!(world.provider_requests()[1].texts().last().unwrap(), &deep(levels).to_string());
        goes_on(&world, &tab);
    }
}

// decision 41, wire 76, 77, 106
#[test]
fn what_code_gives_nested_too_deep_is_its_own_error_and_harms_no_turn() {
    let agent = Custom::new().tool("t", |_, scope| async move {
        let refused = [
            scope.data("x", None, deep(126)).await,
            scope.progress("x", deep(126)).await,
            scope.preliminary(deep(126)).await,
            scope.metadata(json!({ "deep": deep(126) })).await,
        ];
        Ok(json!(refused.map(|r| r.is_err())))
    });
    let world = World::new(agent).model(script![call("t", json!({})), text("so").gate("g").text(" far")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let data = json!({ "id": "m", "role": "user", "parts": [{ "type": "data-x", "data": deep(126) }] });
    let message = || vec![UiMessage::from_client(data.clone()).unwrap()];
    let (saved, added, changed, shallow) = (message(), message(), message(), vec![UiMessage::user("s", "x")]);
    let refused = [
        ask(&world, |h| async move { h.save_messages(saved).await.map(drop) }),
        ask(&world, |h| async move { h.add_messages(added).await }),
        ask(&world, |h| async move { h.upsert_messages(changed).await }),
        ask(&world, |h| async move { h.save_messages_with(shallow, json!({ "deep": deep(126) })).await.map(drop) }),
        ask(&world, |h| async move { h.continue_last_turn(Some(json!({ "deep": deep(126) }))).await.map(drop) }),
    ];
    for (n, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err(&format!("call {n}"));
        assert!(error.message().contains("limits::VALUE_DEPTH"), "call {n}: {error}");
    }
    world.open_gate("g");
    world.run();
    assert_eq!(outcome(&tab, &request), "completed");
    assert_eq!(world.said(), ["user: hi", "assistant: [t output-available] so far"]);
    assert_eq!(world.get_messages()[1]["parts"][1]["output"], json!([true, true, true, true]));
    goes_on(&world, &tab);
}

// decision 41, wire 67, 69
#[test]
fn a_custom_body_nested_too_deep_refuses_its_request_and_one_that_is_not_arrives() {
    let agent = Custom::new();
    let (seen, saw) = (agent.seen.clone(), agent.seen.clone());
    let agent = agent.before_turn(move |turn| {
        saw.add(format!("body {}", json!(turn.body)));
        async { Ok(TurnPlan::default()) }
    });
    let world = World::new(agent);
    let (tab, socket) = (world.connect("S1"), world.socket("S2"));
    let with = |request: &str, levels: usize| {
        let body = format!(r#"{{"messages":[{}],"deep":{}}}"#, user("u1", "hi"), deep(levels));
        json!({ "id": request, "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } })
    };
    for levels in [limits::VALUE_DEPTH + 1, 110, 125, 127] {
        let request = format!("R{levels}");
        socket.frame(with(&request, levels));
        world.run();
        let reason = refusal(&socket, &request);
        assert!(reason.contains("limits::VALUE_DEPTH") || reason.contains("not a JSON object"), "{levels} levels: {reason}");
        assert_eq!(world.get_messages(), Vec::<Value>::new());
    }
    seen.take();
    world.answer(text("hello"));
    socket.frame(with("R", limits::VALUE_DEPTH));
    world.run();
    assert_eq!(outcome(&socket, "R"), "completed");
    let body = format!("body {}", json!({ "deep": deep(limits::VALUE_DEPTH) }));
    assert!(seen.take().contains(&body), "it came whole");
    goes_on(&world, &tab);
}

// --- too large

// I27, field S-02
#[test]
fn metadata_and_bodies_that_no_row_holds_are_their_callers_error() {
    let world = World::new(Custom::new()).model(script![text("so").gate("g").text(" far"), text("two")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    let save = |bytes: usize| {
        let metadata = json!({ "k": "v".repeat(bytes) });
        ask(&world, |h| async move { h.save_messages_with(vec![UiMessage::user("m", "x")], metadata).await.map(drop) })
    };
    let go_on = |bytes: usize| {
        let body = json!({ "k": "v".repeat(bytes) });
        ask(&world, |h| async move { h.continue_last_turn(Some(body)).await.map(drop) })
    };
    for bytes in [limits::TURN_METADATA, 2_100_000] {
        assert!(save(bytes).unwrap_err().message().contains(&limits::TURN_METADATA.to_string()));
    }
    for bytes in [limits::LAST_BODY, 2_100_000] {
        assert!(go_on(bytes).unwrap_err().message().contains(&limits::LAST_BODY.to_string()));
    }
    world.open_gate("g");
    world.run();
    assert_eq!((outcome(&tab, &request), world.said()), (json!("completed"), vec!["user: hi".into(), "assistant: so far".into()]));
    save(limits::TURN_METADATA - 10).unwrap();
    world.run();
    assert_eq!(world.get_messages()[3]["metadata"]["k"].as_str().unwrap().len(), limits::TURN_METADATA - 10);
    goes_on(&world, &tab);
}

// --- hooks after turns

/// An agent whose response hooks wait at the gate `hook`, and the most of them that ran at a time.
fn waiting_hooks(gates: &Gates) -> (Custom, Rc<Cell<u32>>) {
    struct Inside(Rc<Cell<u32>>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let (gates, running, most) = (gates.clone(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let counted = most.clone();
    let agent = Custom::new().on_response(move |_, _| {
        let (gates, running, most) = (gates.clone(), running.clone(), counted.clone());
        async move {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            let _inside = Inside(running);
            gates.wait("hook").await;
        }
    });
    (agent, most)
}

// tools §16.3, I22, wire 147
#[test]
fn a_hook_that_returns_after_a_clear_takes_no_later_one_with_it() {
    let gates = Gates::new();
    let (agent, most) = waiting_hooks(&gates);
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![text("one"), text("two")]);
    let tab = world.connect("S1");
    let first = tab.send("hi");
    world.run();
    tab.clear();
    world.run();
    let second = tab.send("again");
    world.run();
    world.open_gate("hook");
    world.run();
    assert_eq!(responses(&seen), [format!("response {first} completed \"one\""), format!("response {second} completed \"two\"")]);
    assert_eq!((most.get(), world.db().count("wk_outbox")), (1, 0));
    goes_on(&world, &tab);
}

// tools §16.3, I22, recovery §6.6
#[test]
fn a_step_that_fails_while_a_hook_runs_starts_no_second_one() {
    let gates = Gates::new();
    let (agent, most) = waiting_hooks(&gates);
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![text("one"), text("two")]);
    let tab = world.connect("S1");
    let first = tab.send("hi");
    world.run();
    world.db().fail(FaultAt::Commit, "disk I/O error");
    let failed = tab.send("again");
    world.run();
    assert_eq!((outcome(&tab, &failed), world.events_named("storage:failed").len()), (json!("error"), 1));
    let second = tab.send("and?");
    world.run();
    assert_eq!(outcome(&tab, &second), "completed", "a hook that takes its time delays no turn");
    world.open_gate("hook");
    world.run();
    assert_eq!(most.get(), 1, "one hook at a time");
    let lines = responses(&seen);
    assert_eq!(lines.first().unwrap(), &format!("response {first} completed \"one\""));
    assert_eq!(lines.last().unwrap(), &format!("response {second} completed \"two\""));
    assert_eq!(lines.iter().filter(|line| line.contains(&second)).count(), 1, "{lines:?}");
    assert_eq!(world.db().count("wk_outbox"), 0);
    assert_idle(&world);
}

// T109, tools §16.3, I10
#[test]
fn hooks_that_start_turns_for_each_other_come_to_an_end() {
    let agent = Custom::new();
    let (seen, saw) = (agent.seen.clone(), agent.seen.clone());
    let count = Rc::new(Cell::new(0));
    let agent = agent.on_response(move |handle, _| {
        count.set(count.get() + 1);
        let (id, saw) = (format!("h{}", count.get()), saw.clone());
        async move {
            if let Err(error) = handle.save_messages(vec![UiMessage::user(id, "go on")]).await {
                saw.add(format!("cut {error}"));
            }
        }
    });
    let world = World::new(agent).model_fn(|_| text("ok"));
    let tab = world.connect("S1");
    let length = 1 + limits::HOOK_CHAIN as usize;
    for chains in 1..=2 {
        // What somebody asks for begins a chain of its own.
        tab.send("hi");
        world.run();
        assert_eq!(world.provider_requests().len(), chains * length);
        assert_eq!(world.events_named("hook:chain_cut").len(), chains);
    }
    let cut: Vec<String> = seen.take().into_iter().filter(|line| line.starts_with("cut")).collect();
    assert!(cut.len() == 2 && cut[0].contains("limits::HOOK_CHAIN"), "{cut:?}");
    assert_idle(&world);
}

/// An agent whose tool changes the shared state, and which has every change of it answered.
#[derive(Clone)]
struct Reacting {
    seen: Seen,
    pause: bool,
}

impl Agent for Reacting {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn tools(&self, _: &Turn) -> Tools {
        let pause = self.pause;
        Tools::new().with(tool("count", move |_, scope| async move {
            if pause {
                scope.sleep(10).await;
            }
            scope.set_state(json!(1)).await?;
            Ok(json!("counted"))
        }))
    }

    async fn on_state_changed(&self, handle: &AgentHandle, _: &Value, _: Option<&ConnId>) {
        let result = handle.save_messages(vec![UiMessage::user("s", "the state changed")]).await;
        self.seen.add(result.map_or_else(|e| e.to_string(), |turn| turn.status.as_str().to_owned()));
    }
}

// tools §2.2: a hook set off by a tool is not inside the turn of the tool
#[test]
fn a_state_hook_set_off_by_a_tool_may_wait_for_a_turn() {
    for pause in [false, true] {
        let seen = Seen::default();
        let world = World::new(Reacting { seen: seen.clone(), pause }).model(script![call("count", json!({})), text("a"), text("b")]);
        world.connect("S1").send("hi");
        world.run();
        assert_eq!(seen.take(), ["completed"], "pause: {pause}");
        assert_eq!(world.said(), ["user: hi", "assistant: [count output-available] a", "user: the state changed", "assistant: b"]);
        assert_idle(&world);
    }
}

// --- bad moments

// recovery §6.6, I23, I3
#[test]
fn a_dead_turn_comes_to_rest_even_if_the_first_steps_of_the_next_life_fail() {
    let world = World::new(Custom::new()).model(script![text_deltas(&["a"; 20]).gate("never"), text("and on")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    world.db().fail(FaultAt::Begin, "disk I/O error");
    world.db().fail(FaultAt::Begin, "disk I/O error");
    world.run();
    assert_eq!(world.db().pending_faults(), 0);
    assert_eq!((outcome(&tab, &request), world.db().count("wk_attempt")), (json!("recovering"), 0));
    assert_eq!(world.events_named("storage:failed").len(), 2);
    assert!(world.said()[1].ends_with("a and on"), "{:?}", world.said());
    world.answer(text("fine"));
    tab.send("still there?");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: fine");
    assert_idle(&world);
}

// decision 42, I20
#[test]
fn a_readonly_connection_acknowledges_a_notice_for_nobody_else() {
    let world = World::new(Custom::ending()).model(script![text_deltas(&["a"; 25]).gate("never")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    world.restart(Sockets::Closed);
    world.run();
    let reader = world.dial(Dial::new("RO").raw().query("readonly"));
    world.run();
    assert_eq!(world.db().count("wk_notice"), 1);
    reader.ack(&request);
    world.run();
    assert_eq!(reader.terminals(&request).last().unwrap()["outcome"], "aborted", "it is told all the same");
    assert_eq!(world.db().count("wk_notice"), 1);
    world.reconnect(&tab);
    world.run();
    let ends: Vec<String> = tab.turn_ends().into_iter().filter(|end| end.request == request).map(|end| end.outcome).collect();
    assert_eq!(ends, ["aborted"]);
    assert_eq!(world.db().count("wk_notice"), 0, "whoever asked took it");
    goes_on(&world, &tab);
}
