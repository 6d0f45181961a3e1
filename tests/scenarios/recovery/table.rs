//! Recovery by the decision table: what a death at each place of an answer leads to (`recovery.md` §7.2).

use super::*;

// recovery 12, 91, 92, D3; wire 155, 156; I5
#[test]
fn an_answer_goes_on_in_the_message_it_began() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let world = world().model(script![text_deltas(&["a"; 25]).gate("never"), text("and the rest")]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        let before = tab.messages()[1]["id"].clone();
        world.restart(sockets);
        if sockets == Sockets::Closed {
            world.reconnect(&tab);
        }
        world.run();
        let said = world.said();
        assert_eq!((said.len(), tab.said()), (2, said.clone()), "{sockets:?}\n{}", tab.story());
        // Twenty chunks were flushed, three of which open the message, its step and its text.
        assert_eq!(said[1], format!("assistant: {} and the rest", "a".repeat(17)));
        assert_eq!(fields(&world, "chat:recovery:scheduled", "recoveryKind"), ["continue"]);
        assert_eq!(tab.messages()[1]["id"], before, "the same message");
        assert!(!tab.recovering());
        assert_eq!(outcomes(&tab).last().map(String::as_str), Some("completed"), "{:?}\n{}", outcomes(&tab), tab.story());
        assert_idle(&world);
    }
}

// recovery 12, 28: the model sees its own words and the request to go on, and nobody else does.
#[test]
fn the_model_is_asked_to_go_on_from_its_own_words() {
    let world = world().model(script![text_deltas(&["Oslo "; 20]).gate("never"), text("is sunny")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    let last = world.provider_requests().pop().unwrap();
    assert_eq!(last.roles(), ["system", "user", "assistant", "user"]);
    assert!(last.last_user().starts_with("Continue exactly"), "{:?}", last.texts());
    let told = tab.frames().iter().chain(&world.get_messages()).filter(|shown| shown.to_string().contains("Continue exactly")).count();
    assert_eq!((told, world.said().len()), (0, 2), "{}", tab.story());
}

// recovery 15, D5; I13
#[test]
fn a_tool_that_was_running_is_not_run_again() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = agent().tools(move |_| {
        let (runs, waits) = (runs.clone(), waits.clone());
        Tools::new().with(tool("pay", move |_, _| {
            runs.add("pay");
            let waits = waits.clone();
            async move {
                waits.wait("pay").await;
                Ok(json!("paid"))
            }
        }))
    });
    let world = World::new(agent).with_gates(&gates).model(script![call("pay", json!({})), text("unclear")]);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    die(&world);
    assert_eq!(seen.take(), ["pay"]);
    let messages = world.get_messages();
    let part = &messages[1]["parts"][1];
    assert_eq!(
        (&part["state"], &part["errorText"]),
        (&json!("output-error"), &json!("The tool call was interrupted before a result was recorded."))
    );
    assert_eq!(world.said().last().map(|line| line.ends_with("unclear")), Some(true));
    assert_eq!(world.events_named("chat:transcript:repaired").len(), 1);
    assert_idle(&world);
}

// recovery 18, 19, D6, D7: what a tool did is not done again.
#[test]
fn finished_steps_are_not_repeated() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let agent = agent().tools(move |_| {
        let runs = runs.clone();
        Tools::new().with(tool("look", move |input, _| {
            runs.add(format!("look {input}"));
            async { Ok(json!("seen")) }
        }))
    });
    let world = World::new(agent).model(script![
        call("look", json!({ "n": 1 })),
        call("look", json!({ "n": 2 })),
        text_deltas(&["w"; 3]).gate("never"),
        text("done"),
    ]);
    let tab = world.connect("S1");
    tab.send("go");
    world.run();
    die(&world);
    assert_eq!(seen.take(), [r#"look {"n":1}"#, r#"look {"n":2}"#]);
    assert_eq!(world.provider_requests().len(), 4);
    let last = world.provider_requests().pop().unwrap();
    assert_eq!(last.roles().iter().filter(|role| **role == "tool").count(), 2, "{:?}", last.roles());
    assert_eq!(world.said().len(), 2);
    assert_idle(&world);
}

// recovery 24, D17: what waiting does not mend is said at once.
#[test]
fn an_error_that_waiting_does_not_mend_ends_the_turn() {
    // A key that is refused, and a status that nobody knows.
    for status in [401, 418] {
        let world = world().model(script![http_error(status, json!({ "error": { "message": "odd" } }))]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        assert_eq!((tab.terminals(&request).len(), banners(&tab).len(), asked(&world)), (1, 1, 1), "{status}");
        assert_eq!(incidents(&world), Vec::<String>::new());
        assert_idle(&world);
    }
}

// recovery 25, D1: the answer that is to be replaced stays until there is a new one.
#[test]
fn a_regeneration_goes_on_as_one() {
    let world = world().model(script![text("old"), text("n").gate("never"), text("new")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    tab.regenerate();
    world.run_until(|world| world.provider_requests().len() == 2);
    die(&world);
    assert_eq!(world.said(), ["user: hi", "assistant: new"]);
    assert_idle(&world);
}

// recovery 26: the application does not want the beginning.
#[test]
fn what_is_not_to_be_kept_is_begun_anew() {
    let agent = agent().on_recovery(|_| RecoveryDecision { persist: false, ..RecoveryDecision::default() });
    let world = World::new(agent).model(script![text_deltas(&["a"; 25]).gate("never"), text("fresh")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: fresh"]);
    assert_eq!(tab.said(), world.said(), "{}", tab.story());
    assert_idle(&world);
}

// recovery 27, I12: what a tool did is kept in any case.
#[test]
fn what_a_tool_did_is_kept_in_any_case() {
    let (seen, gates, tools) = gated(&["look"]);
    gates.open("look");
    let agent = agent().on_recovery(|_| RecoveryDecision { persist: false, ..RecoveryDecision::default() }).tools(tools);
    let script = script![call("look", json!({})), text_deltas(&["a"; 25]).gate("never"), text("more")];
    let world = World::new(agent).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    die(&world);
    let said = world.said();
    assert!(said[1].starts_with("assistant: [look output-available] aaa") && said[1].ends_with("a more"), "{said:?}");
    assert_eq!((seen.take().len(), asked(&world)), (1, 3));
    assert_idle(&world);
}

// recovery 16, 17: a tool that may be repeated is, with its key, three times at most.
#[test]
fn a_tool_that_may_run_again_does_with_its_key() {
    let seen = crate::custom::Seen::default();
    let gates = Gates::default();
    let (runs, waits) = (seen.clone(), gates.clone());
    let agent = agent().tools(move |_| {
        let (runs, waits) = (runs.clone(), waits.clone());
        Tools::new().with(
            tool("pay", move |_, scope: TurnScope| {
                runs.add(scope.idempotency_key().to_owned());
                let waits = waits.clone();
                async move {
                    waits.wait("pay").await;
                    Ok(json!("paid"))
                }
            })
            .keyed(),
        )
    });
    let world = World::new(agent).with_gates(&gates).model(script![call("pay", json!({})), text("Done.")]);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    die(&world);
    let keys = seen.take();
    assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{keys:?}");
    world.open_gate("pay");
    world.run();
    assert_eq!(world.said()[1], "assistant: [pay output-available] Done.");
    assert_idle(&world);
}

// recovery 11, 21, 43, I2, I3, I5, I13: whatever the moment, the conversation comes to the same end.
#[test]
fn dying_at_any_step_ends_in_the_same_conversation() {
    let play = |world: &World<Helper>| {
        world.answer(wakeful::testkit::Script::function(|request| match request.roles().last() {
            Some(&"tool") => text_deltas(&["It ", "is ", "sunny."]),
            Some(&"user") if request.roles().len() > 2 => text("go on"),
            _ => text("Let me see.").call("weather", json!({ "city": "Oslo" })),
        }));
        let tab = world.connect("S1");
        tab.send("weather?");
        tab
    };
    let steps = {
        let world = world();
        play(&world);
        std::iter::from_fn(|| world.step().then_some(())).count()
    };
    for at in 0..=steps {
        for sockets in [Sockets::Kept, Sockets::Closed] {
            let world = world();
            let tab = play(&world);
            for _ in 0..at {
                world.step();
            }
            world.restart(sockets);
            if sockets == Sockets::Closed {
                world.reconnect(&tab);
            }
            world.run();
            let said = world.said();
            assert!(said.len() == 2 && said[0] == "user: weather?", "{at} {sockets:?}: {said:?}\n{}", world.story());
            assert!(said[1].contains("[weather output-available]"), "{at} {sockets:?}: {said:?}");
            tab.send("thanks");
            world.run();
            assert_eq!(tab.said(), world.said(), "{at} {sockets:?}\n{}", tab.story());
            assert!(!tab.recovering(), "{at}");
            assert_idle(&world);
        }
    }
}

/// Whether the last request of the model ends with the call `name` and the result that it was interrupted.
#[track_caller]
fn assert_told_interrupted(world: &World<Custom>, name: &str) {
    let last = world.provider_requests().pop().unwrap();
    let messages = last.messages();
    let place = messages.iter().rposition(|message| message["role"] == "tool").expect("a result");
    let called = messages[..place].iter().rev().find_map(|message| message["tool_calls"].as_array());
    assert!(called.is_some_and(|calls| calls.iter().any(|call| call["function"]["name"] == name)), "{:#}", last.body);
    assert!(messages[place]["content"].as_str().unwrap().contains(INTERRUPTED), "{:#}", last.body);
}

// recovery 11, D2, W16: a stream that was opened and holds nothing is no content.
#[test]
fn an_answer_without_content_is_begun_anew() {
    let world = World::new(agent()).model(script![text("").gate("never"), text("answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    die(&world);
    assert_eq!((world.said(), asked(&world)), (vec!["user: hi".into(), "assistant: answer".into()], 2));
    assert_eq!(fields(&world, "chat:recovery:scheduled", "recoveryKind"), ["retry"]);
    assert_eq!(incidents(&world), ["detected", "attempt", "scheduled", "completed"]);
    assert_at_rest(&world);
}

// recovery 13, D3
#[test]
fn thoughts_are_kept_and_gone_on_from() {
    let thinking = (0..25).fold(Reply::new(), |reply, _| reply.reasoning("hm "));
    let world = World::new(agent()).model(script![thinking.gate("never"), text("so be it")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    die(&world);
    let kinds: Vec<Value> = parts(&world, 1).iter().map(|part| json!([part["type"], part["state"]])).collect();
    let [step, thought, next] = [json!(["step-start", null]), json!(["reasoning", "done"]), json!(["text", "done"])];
    let without: Vec<Value> = kinds.into_iter().filter(|kind| *kind != step).collect();
    assert_eq!(without, [thought, next], "{:?}", parts(&world, 1));
    assert_eq!(fields(&world, "chat:recovery:scheduled", "recoveryKind"), ["continue"]);
    assert_at_rest(&world);
}

// recovery 14, D4: half an argument list is a call that did not run, and the model is told so.
#[test]
fn a_call_whose_arguments_were_coming_in_is_closed_empty() {
    let (seen, gates, tools) = gated(&["search"]);
    let half = json!({ "tool_calls": [{ "index": 0, "id": "call_0", "type": "function",
        "function": { "name": "search", "arguments": "{\"q\":\"bri" } }] });
    let begins = (0..12).fold(text("I look. "), |reply, _| reply.text("so ")).delta(half).delay(6_000).gate("never");
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script![begins, text("Not found.")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_for(20_000);
    die(&world);
    let call = parts(&world, 1).into_iter().find(|part| part["toolCallId"] == "call_0").expect("the call is kept");
    assert_eq!((&call["state"], &call["input"], &call["errorText"]), (&json!("output-error"), &json!({}), &json!(INTERRUPTED)));
    assert_told_interrupted(&world, "search");
    assert_eq!(seen.take(), Vec::<String>::new(), "it never ran");
    let repaired = &world.events_named("chat:transcript:repaired")[0].fields;
    assert_eq!((&repaired["removedToolCalls"], &repaired["normalizedInputs"]), (&json!(1), &json!(1)));
    assert_at_rest(&world);
}

// recovery 15, D5, I13: what the model and the log are told of a tool that was running.
#[test]
fn the_model_is_told_that_a_running_tool_was_interrupted() {
    let (seen, gates, tools) = gated(&["pay"]);
    let script = script![call("pay", json!({ "eur": 5 })), text("unclear")];
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    die(&world);
    assert_eq!(seen.take().len(), 1);
    assert_told_interrupted(&world, "pay");
    let repaired = Value::Object(world.events_named("chat:transcript:repaired")[0].fields.clone().into_iter().collect());
    let request = repaired["requestId"].clone();
    let told = json!({ "requestId": request, "removedToolCalls": 1, "normalizedInputs": 0, "toolCallIds": ["call_0"] });
    assert_eq!(repaired, told);
    assert_at_rest(&world);
}

// recovery 16: the endpoint sees one key twice, and the model the result.
// recovery 17: what may always run again does so three times, then it is an error.
#[test]
fn tools_that_may_run_again_do_so_three_times_at_most() {
    for (deaths, starts, said) in [(1, 2, "output-available"), (4, 3, "output-error")] {
        let (seen, gates, tools) = gated(&["look"]);
        let pure = move |turn: &Turn| Tools::new().with(tools(turn).get("look").unwrap().clone().pure());
        let script = script![call("look", json!({})), text("Done.")];
        let world = World::new(agent().tools(pure)).with_gates(&gates).model(script);
        let tab = world.connect("S1");
        tab.send("look");
        world.run();
        die_often(&world, deaths, 31_000);
        world.open_gate("look");
        world.run();
        let keys = seen.take();
        assert_eq!(keys.len(), starts, "{deaths} deaths: {keys:?}\n{}", world.story());
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(world.said()[1], format!("assistant: [look {said}] Done."));
        assert_at_rest(&world);
    }
}

// recovery 18, D6; I12: a result that is on disk is used, whatever the moment.
#[test]
fn a_result_on_disk_is_not_asked_for_again() {
    let (seen, gates, tools) = gated(&["look"]);
    gates.open("look");
    let waits = gates.clone();
    let agent = agent().tools(tools).before_step(move |step| {
        let waits = waits.clone();
        async move {
            if step == 2 {
                waits.wait("second step").await;
            }
        }
    });
    let world = World::new(agent).with_gates(&gates).model(script![call("look", json!({})), text("Seen.")]);
    let tab = world.connect("S1");
    tab.send("look");
    world.run();
    assert_eq!(asked(&world), 1);
    die(&world);
    assert_eq!((seen.take().len(), asked(&world)), (1, 2));
    assert_eq!(world.said()[1], "assistant: [look output-available] Seen.");
    assert_eq!(world.provider_requests()[1].roles().iter().filter(|role| **role == "tool").count(), 1);
    assert_at_rest(&world);
}

// recovery 19, D7: of five steps the three that are done stay done.
#[test]
fn three_of_five_steps_are_not_repeated() {
    let (seen, gates, tools) = gated(&["look"]);
    gates.open("look");
    let script = script![
        call("look", json!({ "n": 1 })),
        call("look", json!({ "n": 2 })),
        call("look", json!({ "n": 3 })),
        text("").gate("never"),
        call("look", json!({ "n": 4 })),
        text("Done."),
    ];
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("look");
    world.run();
    die(&world);
    let found = "[look output-available]";
    assert_eq!(world.said()[1], format!("assistant: {found} {found} {found} {found} Done."));
    assert_eq!((seen.take().len(), asked(&world)), (4, 6));
    assert_at_rest(&world);
}

// recovery 20; I12, I13
#[test]
fn of_three_tools_the_two_that_ended_keep_their_results() {
    let (seen, gates, tools) = gated(&["a", "b", "c"]);
    gates.open("a");
    gates.open("b");
    let script = script![calls([("a", json!({})), ("b", json!({})), ("c", json!({}))]), text("Two of three.")];
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("go");
    world.run();
    die(&world);
    assert_eq!(world.said()[1], "assistant: [a output-available] [b output-available] [c output-error] Two of three.");
    assert_eq!((seen.take().len(), asked(&world)), (3, 2));
    assert_at_rest(&world);
}

// recovery 21, D12, N12: a log that ends as an answer does lacks nothing but its cutover.
#[test]
fn a_complete_log_is_an_answer() {
    let agent = agent();
    let seen = agent.seen.clone();
    let (world, tab) = begun(agent, []);
    let last = world.db().query("SELECT stream, max(seg) AS seg, max(seq_to) AS seq FROM wk_seg").pop().unwrap();
    let (stream, seg, seq) = (last["stream"].as_str().unwrap(), last["seg"].as_i64().unwrap() + 1, last["seq"].as_i64().unwrap());
    // This release writes the end of an answer and its cutover in one transaction; another may not.
    let end = [json!({ "type": "finish-step" }), json!({ "type": "finish" })].map(|chunk| chunk.to_string()).join("\n");
    world.db().query(&format!("INSERT INTO wk_seg VALUES ('{stream}', {seg}, {}, {}, '{end}')", seq + 1, seq + 2));
    die(&world);
    world.reconnect(&tab);
    world.run();
    assert_eq!((turns(&world), asked(&world)), (vec!["completed -".into()], 1));
    assert_eq!(world.said(), ["user: hi".to_owned(), format!("assistant: {}", "word ".repeat(17))]);
    assert_eq!(tab.said(), world.said());
    assert_eq!(incidents(&world), ["detected", "attempt", "completed"]);
    assert_eq!(seen.take().iter().filter(|line| line.starts_with("response ")).count(), 1);
    assert_at_rest(&world);
}

// recovery 22, 23, D13; I22: a hook that did not return, or whose return was not written down, is called again.
#[test]
fn an_owed_response_hook_is_called_again() {
    for acknowledged in [true, false] {
        let gates = Gates::default();
        let waits = gates.clone();
        let agent = agent().on_response(move |_, _| {
            let waits = waits.clone();
            async move { waits.wait("hook").await }
        });
        let seen = agent.seen.clone();
        let world = World::new(agent).with_gates(&gates).model(script![text("answer")]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        if !acknowledged {
            world.db().fail(FaultAt::Commit, RESET);
            world.gates().pass("hook", 1);
            world.settle();
            assert_eq!(world.db().pending_faults(), 0);
        }
        world.restart(Sockets::Kept);
        world.open_gate("hook");
        world.run();
        let lines: Vec<String> = seen.take().into_iter().filter(|line| line.starts_with("response ")).collect();
        let line = format!("response {request} completed \"answer\"");
        assert_eq!(lines, [line.clone(), format!("{line} recovered")], "{acknowledged}");
        assert_eq!((asked(&world), tab.said()), (1, world.said()));
        assert_at_rest(&world);
    }
}

// recovery 25, D1: a sibling under the same question; the answer before it is untouched.
#[test]
fn a_regeneration_leaves_the_old_answer_alone() {
    let world = World::new(agent()).model(script![text("old"), text("").gate("never"), text("new")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    let old = world.db().query("SELECT id, parent, hash FROM wk_msg WHERE role = 'assistant'").pop().unwrap();
    tab.regenerate();
    world.run();
    die(&world);
    assert_eq!(world.said(), ["user: hi", "assistant: new"]);
    let answers = world.db().query("SELECT id, parent, hash FROM wk_msg WHERE role = 'assistant'");
    assert_eq!(answers.len(), 2);
    assert!(answers.contains(&old) && answers.iter().all(|answer| answer["parent"] == old["parent"]), "{answers:?}");
    assert_at_rest(&world);
}

// recovery 29: rows of the release before this one.
#[test]
fn rows_of_an_older_schema_are_recovered() {
    let (world, _tab) = begun(agent(), [text("the end")]);
    let db = world.db();
    for column in ["claims", "stash"] {
        db.query(&format!("ALTER TABLE wk_turn DROP COLUMN {column}"));
    }
    let newest: i64 = texts(&world, "SELECT v FROM wk_meta WHERE k = 'schema'")[0].parse().unwrap();
    db.query(&format!("UPDATE wk_meta SET v = '{}' WHERE k = 'schema'", newest - 1));
    die(&world);
    assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
    assert_eq!(
        (turns(&world), texts(&world, "SELECT v FROM wk_meta WHERE k = 'schema'")),
        (vec!["completed -".into()], vec![newest.to_string()])
    );
    assert_at_rest(&world);
}

// recovery 30: an older release serves what it can read and touches nothing; the newer one goes on.
#[test]
fn rows_of_a_newer_schema_are_served_and_left_alone() {
    let (world, _tab) = begun(agent(), [text("the end")]);
    let newest = texts(&world, "SELECT v FROM wk_meta WHERE k = 'schema'").pop().unwrap();
    world.db().query("UPDATE wk_meta SET v = '999' WHERE k = 'schema'");
    let before = world.db().snapshot();
    world.restart(Sockets::Closed);
    world.run_for(60_000);
    let tab = world.connect("S2");
    assert_eq!(tab.said(), ["user: hi"]);
    let request = tab.send("and?");
    world.run_for(1_000);
    let refused = "This conversation was written by a newer release. It can be read; deploy the newer release again to go on.";
    assert_eq!(tab.terminals(&request)[0]["body"], refused);
    assert_eq!(before.difference(&world.db().snapshot()), Vec::<String>::new());
    assert!(world.alarm_at().is_some(), "what is due is not forgotten");
    assert_eq!(asked(&world), 1);
    world.db().query(&format!("UPDATE wk_meta SET v = '{newest}' WHERE k = 'schema'"));
    die(&world);
    assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
    assert_eq!(asked(&world), 2);
}

// recovery D4, wire X34: a provider that numbers its calls gives the id of a call that was cut off to the next one.
#[test]
fn the_id_of_a_call_that_was_cut_off_is_not_given_again() {
    let half = || {
        raw(concat!(
            "data: {\"choices\":[{\"delta\":{\"content\":\"Let me look.\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_0\",\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"q\\\":\"}}]}}]}\n\n",
        ))
    };
    let agent = agent().tool("look", |input, _| async move { Ok(input["q"].clone()) });
    let world = World::new(agent).model(script![half().stall(), call("look", json!({ "q": "bread" })), text("Found.")]);
    world.connect("S1").send("look");
    world.run_for(6_000);
    die(&world);
    let parts = parts(&world, 1);
    let calls: Vec<_> = parts.iter().filter(|part| part.get("toolCallId").is_some()).collect();
    assert_eq!((calls.len(), &calls[0]["errorText"], &calls[1]["output"]), (2, &json!(INTERRUPTED), &json!("bread")), "{parts:?}");
    assert_ne!(calls[0]["toolCallId"], calls[1]["toolCallId"]);
    assert_at_rest(&world);
}
