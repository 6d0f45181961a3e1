//! Recovery where something beside the plain answer matters: a call of a page next to one of the server, arguments that were cut off,
//! an application that throws away what there was, a tool whose effect is unclear, a turn that is old.

use super::*;

/// The call of `look` in pieces of so many bytes, and one of `check`, about which the agent is asked.
fn look_and_check(input: &Value, size: usize) -> Reply {
    let arguments = input.to_string();
    let delta = |function: Value| json!({ "tool_calls": [{ "index": 0, "id": "call_0", "type": "function", "function": function }] });
    let begun = Reply::new().delta(delta(json!({ "name": "look", "arguments": "" })));
    let pieces = arguments.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap());
    let called = pieces.fold(begun, |reply, piece| reply.delta(delta(json!({ "arguments": piece }))));
    let other = json!([{ "index": 1, "id": "call_1", "type": "function", "function": { "name": "check", "arguments": "{}" } }]);
    called.delta(json!({ "tool_calls": other })).finish("tool_calls")
}

/// An agent that never says whether `check` may run.
fn undecided(gates: &Gates) -> Custom {
    let gates = gates.clone();
    agent().tools(move |_| {
        let gates = gates.clone();
        let peek = Tool::client_dynamic("peek", "Peeks.", json!({ "type": "object" }));
        Tools::new().with(peek.needs_approval_when(|_, _| async { Ok(Approval::Allow) })).with(
            tool("check", |_, _| async { Ok(json!("checked")) }).needs_approval_when(move |_, _| {
                let gates = gates.clone();
                async move {
                    gates.wait("never").await;
                    Ok(Approval::Allow)
                }
            }),
        )
    })
}

// I10, I16, W1, recovery 35: a page's call is on disk as soon as it is shown, whatever its object is busy with when it dies.
#[test]
fn a_question_that_was_asked_is_whole_after_a_death() {
    let input = json!({ "where": "0123456789".repeat(6) });
    for size in [4, 1_000] {
        let gates = Gates::default();
        let world = World::new(undecided(&gates)).with_gates(&gates).model(script![look_and_check(&input, size), text("A hill.")]);
        let tab = page(&world, "S1");
        tab.send("look");
        world.settle();
        die(&world);
        world.reconnect(&tab);
        world.run();
        assert_parked(&world);
        let part = parts(&world, 1).into_iter().find(|part| part["toolCallId"] == "call_0").expect("the call");
        assert_eq!((&part["state"], &part["input"]), (&json!("input-available"), &input), "pieces of {size}");
        assert_eq!((asked(&world), tab.open_calls()), (1, vec!["call_0".to_owned()]));
        tab.tool_result("call_0", json!("a hill"));
        world.run();
        let said = "assistant: [look output-available] [check output-error] A hill.";
        assert_eq!((world.said()[1].as_str(), tab.said()), (said, world.said()));
        assert_at_rest(&world);
    }
}

// I16: so is a call of the page that the agent allows while it is busy with another one.
#[test]
fn a_call_that_the_agent_allows_is_whole_after_a_death() {
    let gates = Gates::default();
    // A segment is full before the arguments are complete.
    let begun = text_deltas(&["I ", "will ", "look ", "there."]).call("peek", json!({ "at": "door" })).call("check", json!({}));
    let script = script![begun, text("A door.")];
    let world = World::new(undecided(&gates)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("peek");
    world.settle();
    die(&world);
    world.reconnect(&tab);
    world.run();
    assert_parked(&world);
    assert_eq!(world.said()[1], "assistant: I will look there. [peek input-available] [check output-error]");
    tab.tool_result("call_0", json!("a door"));
    world.run();
    let said = "assistant: I will look there. [peek output-available] [check output-error] A door.";
    assert_eq!((world.said()[1].as_str(), asked(&world)), (said, 2));
    assert_at_rest(&world);
}

// I16, I20: so is the question to a person, while another call of its step is still being looked at.
#[test]
fn an_approval_that_was_asked_for_can_be_given_after_a_death() {
    let (seen, gates, tools) = gated(&["pay"]);
    gates.open("pay");
    let checks = undecided(&gates);
    let both = move |turn: &Turn| {
        let check = Agent::tools(&checks, turn).get("check").unwrap().clone();
        Tools::new().with(tools(turn).get("pay").unwrap().clone().needs_approval()).with(check)
    };
    let script = script![calls([("pay", json!({ "eur": 5 })), ("check", json!({}))]), text("Paid.")];
    let world = World::new(agent().tools(both)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("pay");
    world.settle();
    die(&world);
    let late = world.connect("S2");
    world.run();
    assert_parked(&world);
    assert_eq!(world.said()[1], "assistant: [pay approval-requested] [check output-error]");
    late.approve("call_0", true);
    world.run();
    assert_eq!((seen.take().len(), world.said()[1].as_str()), (1, "assistant: [pay output-available] [check output-error] Paid."));
    world.reconnect(&tab);
    world.run();
    assert_eq!((late.said(), tab.said()), (world.said(), world.said()));
    assert_at_rest(&world);
}

// recovery 16, 35, D10; I14: what may run again does, with its key, also where a page is asked beside it: once that has answered.
#[test]
fn a_keyed_call_beside_one_of_the_page_runs_again() {
    for goes_on in [true, false] {
        let (seen, gates, tools) = gated(&["book"]);
        let keyed = move |turn: &Turn| Tools::new().with(tools(turn).get("book").unwrap().clone().keyed());
        let script = script![calls([("look", json!({})), ("book", json!({}))]), text("Both.")];
        let world = World::new(agent().tools(keyed)).with_gates(&gates).model(script);
        let tab = page(&world, "S1");
        tab.send("go");
        world.run();
        for _ in 0..3 {
            world.restart(Sockets::Kept);
            world.run();
            assert_parked(&world);
        }
        world.open_gate("book");
        let result = json!({ "type": "cf_agent_tool_result", "toolCallId": "call_0", "toolName": "look", "output": "a hill" });
        let mut result = result.as_object().unwrap().clone();
        result.extend(goes_on.then(|| ("autoContinue".into(), json!(true))));
        tab.frame(Value::Object(result));
        world.run();
        let keys = seen.take();
        assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}\n{}", world.story());
        assert_eq!(world.said()[1], "assistant: [look output-available] [book output-available] Both.");
        assert_eq!((asked(&world), tab.said()), (2, world.said()), "{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 16; I13: whoever runs it: a request that extends the message is another turn, and the call has the key it always had.
#[test]
fn a_call_that_runs_again_in_another_turn_keeps_its_key() {
    let (seen, gates, tools) = gated(&["book"]);
    let keyed = move |turn: &Turn| Tools::new().with(tools(turn).get("book").unwrap().clone().keyed());
    let script = script![calls([("look", json!({})), ("book", json!({}))]), text("One of two.")];
    let world = World::new(agent().tools(keyed)).with_gates(&gates).model(script);
    let tab = page(&world, "S1");
    tab.send("go");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    world.open_gate("book");
    tab.resend();
    world.run();
    let keys = seen.take();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}\n{}", world.story());
    assert_eq!(world.said()[1], "assistant: [look output-error] [book output-available] One of two.");
    assert_eq!((tab.said(), asked(&world), rows(&world, "wk_turn")), (world.said(), 2, 2), "{}", tab.story());
    assert_at_rest(&world);
}

// decision 47; I13: where the conversation goes on without it, the model reads that it was interrupted, not that it never ran.
#[test]
fn a_call_that_would_have_run_again_is_told_as_interrupted() {
    let (seen, gates, tools) = gated(&["book"]);
    let keyed = move |turn: &Turn| Tools::new().with(tools(turn).get("book").unwrap().clone().keyed().on_ambiguous(Ambiguous::Ask));
    let both = || calls([("look", json!({})), ("book", json!({}))]);
    let world = World::new(agent().tools(keyed)).with_gates(&gates).model(script![both(), text("New.")]);
    let tab = page(&world, "S1");
    tab.send("go");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    tab.send("never mind");
    world.run();
    let told = parts(&world, 1).into_iter().find(|part| part["toolCallId"] == "call_1").unwrap();
    assert_eq!((&told["state"], &told["errorText"]), (&json!("output-error"), &json!(INTERRUPTED)));
    assert_eq!((seen.take().len(), asked(&world), tab.said()), (1, 2, world.said()));
    assert_at_rest(&world);
}

// recovery 27, I12, I13: what a tool may have done is not forgotten either: it runs again with its key, and is told.
#[test]
fn a_keyed_call_is_kept_where_the_application_drops_the_rest() {
    let (seen, gates, tools) = gated(&["charge"]);
    let keyed = move |turn: &Turn| Tools::new().with(tools(turn).get("charge").unwrap().clone().keyed());
    let agent = agent().tools(keyed).on_recovery(|_| RecoveryDecision { persist: false, ..RecoveryDecision::default() });
    let world = World::new(agent).with_gates(&gates).model(script![call("charge", json!({})), text("Charged.")]);
    world.connect("S1").send("charge");
    world.run();
    die(&world);
    world.open_gate("charge");
    world.run();
    let keys = seen.take();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    assert_eq!((world.said()[1].as_str(), asked(&world)), ("assistant: [charge output-available] Charged.", 2));
    assert_at_rest(&world);
}

// recovery 26: what was stored before stays; what came since is dropped, and does not come back at the end.
#[test]
fn what_is_dropped_of_a_stored_message_stays_away() {
    let times = Cell::new(0);
    let agent = agent().on_recovery(move |_| {
        times.set(times.get() + 1);
        RecoveryDecision { persist: times.get() == 1, ..RecoveryDecision::default() }
    });
    let words = |word: &str| text_deltas(&vec![word; 25]).gate("never");
    let world = World::new(agent).model(script![words("a"), words("b"), text("end")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..2 {
        world.restart(Sockets::Kept);
        world.run();
    }
    assert_eq!(world.said()[1], format!("assistant: {} end", "a".repeat(17)));
    assert_eq!((tab.said(), asked(&world)), (world.said(), 3), "{}", tab.story());
    assert_at_rest(&world);
}

// decision 34, recovery 68: the leg has output, though the attempt that fails has none.
#[test]
fn a_provider_that_is_away_for_a_while_ends_no_answer_that_had_begun() {
    let away = || http_error(502, json!({ "error": { "message": "bad gateway" } }));
    for dies in [false, true] {
        let begin = text_deltas(&["word "; 25]);
        let begin = if dies { begin.gate("never") } else { begin.cut() };
        let world = World::new(agent()).model(script![begin, away(), away(), away(), text("the end")]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        if dies {
            world.restart(Sockets::Kept);
            world.run();
        }
        assert!(world.said()[1].ends_with("the end"), "{dies}: {:?}", world.said());
        assert_eq!((turns(&world), tab.said(), banners(&tab)), (vec!["completed -".into()], world.said(), vec![]), "{dies}");
        assert_at_rest(&world);
    }
}

// decision 12, I13: that nobody knows how a call ended is on disk, and so is known after another death at whatever step.
#[test]
fn an_unclear_call_ends_its_turn_also_after_another_death() {
    for at in 0..12 {
        let (seen, gates, tools) = gated(&["wire"]);
        let fails = move |turn: &Turn| Tools::new().with(tools(turn).get("wire").unwrap().clone().on_ambiguous(Ambiguous::Fail));
        let world = World::new(agent().tools(fails)).with_gates(&gates).model(script![call("wire", json!({})), text("Again?")]);
        let tab = world.connect("S1");
        tab.send("wire");
        world.run();
        world.restart(Sockets::Kept);
        for _ in 0..at {
            world.tick();
        }
        world.restart(Sockets::Kept);
        world.run();
        let told = "failed The tool `wire` was interrupted, and nobody knows whether it took effect.";
        assert_eq!((turns(&world), asked(&world), seen.take().len()), (vec![told.into()], 1, 1), "{at}\n{}", world.story());
        assert_eq!(tab.said(), world.said());
        assert_nothing_left(&world);
    }
}

// decision 12: the same call again is one for a person, whatever the application put in the place of the one that was interrupted.
#[test]
fn an_irreversible_call_is_asked_about_whatever_stands_in_its_place() {
    let text_instead = |_: &Part| Some(json!({ "type": "text", "text": "(unclear)" }).as_object().unwrap().clone());
    let other_error = |part: &Part| {
        let mut part = part.clone();
        part.insert("state".into(), json!("output-error"));
        part.insert("errorText".into(), json!("who knows"));
        Some(part)
    };
    let repairs: [fn(&Part) -> Option<Part>; 3] = [|_| None, text_instead, other_error];
    for (n, repair) in repairs.into_iter().enumerate() {
        let (seen, gates, tools) = gated(&["wire"]);
        let asks = move |turn: &Turn| Tools::new().with(tools(turn).get("wire").unwrap().clone().irreversible());
        let wire = || call("wire", json!({ "eur": 5 }));
        let world = World::new(agent().tools(asks).repairs(repair)).with_gates(&gates).model(script![wire(), wire(), text("Done.")]);
        let tab = world.connect("S1");
        tab.send("wire");
        world.run();
        world.restart(Sockets::Kept);
        world.run();
        assert_eq!(seen.take().len(), 1, "{n}: {:?}", world.said());
        assert!(world.said()[1].ends_with("[wire approval-requested]"), "{n}: {:?}", world.said());
        assert_parked(&world);
        assert_eq!(tab.said(), world.said(), "{n}");
    }
}

// I29, W39: an alarm that comes late does not let an old turn go on by itself.
#[test]
fn a_waiting_turn_that_grew_old_rests() {
    for (late, reason) in [(0, "completed -"), (7_200_000, "failed max_turn_age_exceeded")] {
        let agent = agent().config(|config| config.chat_recovery.max_turn_age_ms = Some(3_600_000));
        let world = World::new(agent).model(script![text("so ").cut(), text("on")]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
        world.settle();
        world.clock().skew(late);
        world.run();
        assert_eq!((turns(&world), asked(&world)), (vec![reason.into()], if late == 0 { 2 } else { 1 }));
        assert_eq!((tab.said(), banners(&tab).len()), (world.said(), usize::from(late > 0)), "{}", tab.story());
        assert_at_rest(&world);
    }
}

// I15, I29: nobody is in a hurry where a page is asked.
#[test]
fn age_does_not_end_a_turn_that_a_page_is_asked_about() {
    let gates = Gates::default();
    let agent = undecided(&gates).config(|config| config.chat_recovery.max_turn_age_ms = Some(3_600_000));
    let world = World::new(agent).with_gates(&gates).model(script![look_and_check(&json!({}), 9), text("A hill.")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.settle();
    world.restart(Sockets::Kept);
    world.clock().skew(7_200_000);
    world.run();
    assert_parked(&world);
    tab.tool_result("call_0", json!("a hill"));
    world.run();
    assert_eq!((world.said()[1].as_str(), asked(&world)), ("assistant: [look output-available] [check output-error] A hill.", 2));
    assert_at_rest(&world);
}

// decision 39: a limit of nothing is none.
#[test]
fn a_stall_limit_of_zero_is_off() {
    let world = World::new(agent().config(|config| config.chat_stream_stall_timeout_ms = Some(0)));
    world.answer(text("fi").delay(1_000).text("ne"));
    world.connect("S1").send("hi");
    world.run();
    assert_eq!((world.said(), asked(&world)), (vec!["user: hi".into(), "assistant: fine".into()], 1));
    assert_at_rest(&world);
}
