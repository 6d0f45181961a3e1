//! Recovery of what was accepted: stored messages, queued turns, stops and clears (`recovery.md` §7.1).

use super::*;

// recovery 2, D1; I6
#[test]
fn a_message_that_was_stored_is_answered_without_any_client() {
    let world = world().model(script![text("one").gate("never"), text("answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_until(|world| !world.provider_requests().is_empty());
    die(&world);
    assert_eq!(world.said(), ["user: hi", "assistant: answer"]);
    assert_eq!(world.provider_requests().len(), 2);
    assert_idle(&world);
}

// recovery 7, D22; wire 162
#[test]
fn a_turn_that_waits_can_be_stopped() {
    let limited = http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = world().model(script![limited]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    tab.cancel(&request);
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    assert!(!tab.recovering());
    assert_idle(&world);
}

// recovery 6: stopped, and dead before that reached the provider.
#[test]
fn what_was_stopped_stays_stopped() {
    let world = world().model(script![text_deltas(&["a"; 25]).gate("never")]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    tab.cancel(&request);
    world.step();
    die(&world);
    assert_eq!(world.provider_requests().len(), 1);
    assert_idle(&world);
}

// recovery 8: cleared while it waits for its next attempt
#[test]
fn a_cleared_conversation_is_not_recovered() {
    let limited = http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = world().model(script![limited]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    tab.clear();
    world.settle();
    die(&world);
    assert_eq!((world.said(), world.provider_requests().len()), (vec![], 1));
    assert_idle(&world);
}

// recovery 1; I1: what was never stored is not there, and its tab can send it again.
#[test]
fn a_message_that_was_not_stored_is_sent_again() {
    for refused in [false, true] {
        let world = World::new(agent()).model(script![text("answer")]);
        let tab = world.socket("S1");
        tab.send("hi");
        if refused {
            world.db().fail(FaultAt::Commit, RESET);
            world.step();
            assert_eq!(world.db().pending_faults(), 0);
        }
        world.restart(Sockets::Closed);
        assert_eq!(world.said(), Vec::<String>::new());
        world.reconnect(&tab);
        world.run();
        if refused {
            // The other one had not left its tab.
            tab.resend();
            world.run();
        }
        assert_eq!((world.said(), asked(&world)), (vec!["user: hi".into(), "assistant: answer".into()], 1));
        assert_eq!(world.connect("S2").said(), world.said());
        assert_at_rest(&world);
    }
}

// recovery 2, D1; I6: one call, since the first attempt died before it came to any.
#[test]
fn a_death_between_the_commit_and_the_model_call_costs_nothing() {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = agent().before_turn(move |_| {
        let waits = waits.clone();
        async move {
            waits.wait("plan").await;
            Ok(TurnPlan::default())
        }
    });
    let world = World::new(agent).with_gates(&gates).model(script![text("answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!((rows(&world, "wk_attempt"), asked(&world)), (1, 0));
    world.restart(Sockets::Closed);
    world.open_gate("plan");
    world.run();
    assert_eq!((world.said(), asked(&world)), (vec!["user: hi".into(), "assistant: answer".into()], 1));
    assert_eq!(fields(&world, "chat:recovery:scheduled", "recoveryKind"), ["retry"]);
    assert_at_rest(&world);
}

// recovery 3: a tab that came back sends the same frame again.
#[test]
fn the_same_request_twice_is_one_turn() {
    let (world, tab) = begun(agent(), [text("answer")]);
    let request = tab.take_frames().iter().rev().find_map(|frame| frame["id"].as_str().map(str::to_owned)).unwrap();
    let message = json!({ "id": tab.messages()[0]["id"], "role": "user", "parts": [{ "type": "text", "text": "hi" }] });
    let body = json!({ "messages": [message] }).to_string();
    let again = json!({ "id": request, "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } });
    tab.frame(again);
    world.run();
    die(&world);
    world.reconnect(&tab);
    world.run();
    let said = world.said();
    assert!(said.len() == 2 && said[1].ends_with("answer"), "{said:?}");
    assert_eq!((rows(&world, "wk_turn"), asked(&world)), (1, 2));
    assert_at_rest(&world);
}

// recovery 4, 5; I3: the running turn first, then those behind it, each once; deaths are not counted for who did not run.
#[test]
fn queued_turns_wait_through_ten_deaths() {
    let agent = agent().config(|config| config.chat_recovery.max_interrupted_attempts = None);
    let world = World::new(agent).model(Script::function(|request| match &*request.last_user() {
        "two" | "three" => text("done"),
        _ => text_deltas(&["word "; 12]).gate("g"),
    }));
    let tab = world.connect("S1");
    for question in ["one", "two", "three"] {
        tab.send(question);
        world.run();
    }
    die_often(&world, 10, 31_000);
    let queued = world.db().query("SELECT interrupted, attempt FROM wk_turn WHERE state = 'queued'");
    assert_eq!(json!(queued), json!([{ "interrupted": 0, "attempt": 0 }, { "interrupted": 0, "attempt": 0 }]));
    world.open_gate("g");
    world.run();
    let said = world.said();
    let lines: Vec<&str> = said.iter().map(String::as_str).collect();
    assert!(matches!(lines[..], ["user: one", _, "user: two", "assistant: done", "user: three", "assistant: done"]), "{lines:?}");
    assert_eq!((turns(&world), asked(&world)), (vec!["completed -".into(); 3], 13));
    assert_at_rest(&world);
}

// recovery 7, D22: by the id it was asked for under, and by that of its present attempt.
#[test]
fn a_waiting_turn_is_stopped_by_either_of_its_ids() {
    for (current, by_frame) in [(false, false), (true, false), (false, true), (true, true)] {
        let (world, _tab) = begun(agent(), [limited("45")]);
        world.restart(Sockets::Closed);
        world.run_until(|world| fields(world, "chat:recovery:scheduled", "delayMs").contains(&json!(45_000)));
        let id = texts(&world, if current { "SELECT request_id FROM wk_turn" } else { "SELECT root_request_id FROM wk_turn" });
        if by_frame {
            world.connect("S2").cancel(&id[0]);
        } else {
            let handle = world.handle();
            world.block_on(async move { handle.abort_request(&id[0]).await }).unwrap();
        }
        world.run_for(120_000);
        assert_eq!((turns(&world), asked(&world)), (vec!["aborted user_cancelled".into()], 2), "{current} {by_frame}");
        assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["user_cancelled"]);
        assert!(world.said()[1].starts_with("assistant: word "), "what there was is kept: {:?}", world.said());
        assert_at_rest(&world);
    }
}

// recovery 6, 7: stopped, and dead at whatever moment of that.
#[test]
fn stopping_outlives_a_death_at_any_step() {
    for at in 0..12 {
        let (world, tab) = begun(agent(), [text(" more")]);
        tab.stop();
        let arrived = (0..at).filter(|_| world.step()).count() > 0;
        die(&world);
        world.reconnect(&tab);
        world.run();
        let state = if arrived { "aborted -" } else { "completed -" };
        assert_eq!((turns(&world), asked(&world)), (vec![state.into()], if arrived { 1 } else { 2 }), "{at}");
        assert_at_rest(&world);
    }
}

// recovery 8, D24: nothing of a cleared conversation comes back, whenever the object dies.
#[test]
fn a_clear_outlives_a_death_at_any_step() {
    for at in 0..12 {
        let (world, tab) = begun(agent(), [text(" more")]);
        tab.clear();
        let arrived = (0..at).filter(|_| world.step()).count() > 0;
        die(&world);
        world.reconnect(&tab);
        world.run();
        if !arrived {
            tab.clear();
            world.run();
        }
        assert_eq!((world.said(), tab.said()), (vec![], vec![]), "{at}");
        assert!(!arrived || asked(&world) == 1, "{at}");
        assert_eq!(rows(&world, "wk_seg") + rows(&world, "wk_turn") + rows(&world, "wk_call") + rows(&world, "wk_notice"), 0, "{at}");
        assert_at_rest(&world);
    }
}

// recovery 9: who comes when too many wait is told so, and nothing of it is written.
#[test]
fn a_full_queue_refuses_the_next_message_whole() {
    let (world, tab) = begun(agent(), []);
    for n in 0..limits::QUEUED_TURNS {
        tab.send(&format!("m{n}"));
    }
    world.run();
    let before = world.db().snapshot();
    let late = world.connect("S2");
    let request = late.send("one too many");
    world.run();
    assert_eq!(late.terminals(&request)[0]["body"], "64 messages are waiting already: let them be answered first");
    assert_eq!(before.difference(&world.db().snapshot()), Vec::<String>::new());
}

// recovery 10, W26: nobody has to watch.
#[test]
fn a_turn_goes_on_when_its_tab_is_closed() {
    let world = world().model(script![text_deltas(&["word "; 3]).gate("g").text("end")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    tab.close(1001, "going away");
    world.run();
    world.open_gate("g");
    world.run();
    let late = world.connect("S2");
    assert_eq!((late.said(), asked(&world)), (vec!["user: hi".into(), "assistant: word word word end".into()], 1));
    assert_at_rest(&world);
}
