//! A turn whose object died, or whose provider failed in a way that waiting may mend, goes on in the message it began.

use serde_json::{Value, json};
use wakeful::{
    limits,
    prelude::*,
    testkit::{Client, Gates, Sockets, Status, World, call, http_error, script, text, text_deltas},
};

use crate::{
    Helper, assert_idle,
    custom::{Custom, tool},
    world,
};

/// The object dies and comes back, and nobody but the alarm wakes it.
fn die<A: Agent>(world: &World<A>) {
    world.restart(Sockets::Closed);
    world.run();
}

fn outcomes(tab: &Client) -> Vec<String> {
    tab.turn_ends().into_iter().map(|end| end.outcome).collect()
}

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
        assert!(said[1].ends_with("and the rest") && said[1].matches('a').count() >= 18, "{said:?}");
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
    die(&world);
    let asked = world.provider_requests();
    let last = asked.last().unwrap();
    assert_eq!(last.roles(), ["system", "user", "assistant", "user"]);
    let said = world.said();
    assert!(!said.iter().any(|line| line.contains("Continue exactly")), "{said:?}");
    assert_eq!(said.len(), 2);
}

// recovery 15, D5; I13
#[test]
fn a_tool_that_was_running_is_not_run_again() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = Custom::new().tools(move |_| {
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
    let agent = Custom::new().tools(move |_| {
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

// recovery 43, 76; I10: five lives, then it is said that it did not work, to a client that comes an hour later too.
#[test]
fn a_turn_that_kills_its_object_every_time_is_given_up() {
    let world = World::new(Custom::new()).model_fn(|_| text_deltas(&["word "; 30]).gate("never"));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..12 {
        world.restart(Sockets::Closed);
        world.run_for(31_000);
    }
    world.run();
    assert_eq!(world.provider_requests().len(), 5);
    let exhausted = world.events_named("chat:recovery:exhausted");
    assert_eq!(exhausted.len(), 1);
    assert_eq!(exhausted[0].fields.get("reason"), Some(&json!("interrupted_attempts_exceeded")));
    assert_idle(&world);
    world.run_for(3_600_000);
    world.reconnect(&tab);
    world.run();
    let banner: Vec<Value> = tab.of_type("cf_agent_use_chat_response").into_iter().filter(|f| f["error"] == true).collect();
    assert_eq!(banner.len(), 1, "{}", tab.story());
    assert_eq!(banner[0]["body"], "The assistant was interrupted and could not recover. Please try again.");
    assert_eq!(world.said().len(), 2);
}

// recovery 67, 68: a provider that is overloaded is asked later, and that outlives the object.
#[test]
fn a_rate_limit_is_waited_for_across_a_death() {
    let limited = || http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = world().model(script![limited(), text("now")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    assert_eq!(world.events_named("chat:recovery:scheduled")[0].fields["delayMs"], 45_000);
    world.settle();
    assert!(tab.recovering(), "{}", tab.story());
    world.restart(Sockets::Kept);
    world.run_for(44_000);
    assert_eq!(world.provider_requests().len(), 1);
    world.run_for(2_000);
    assert_eq!((world.provider_requests().len(), world.said()), (2, vec!["user: hi".into(), "assistant: now".into()]));
    assert!(!tab.recovering());
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

// recovery 84, decision 35
#[test]
fn a_newer_message_waits_for_the_turn_before_it() {
    let limited = http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = world().model(script![limited, text("first"), text("second")]);
    let tab = world.connect("S1");
    tab.send("one");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    tab.send("two");
    world.run();
    assert_eq!(world.said(), ["user: one", "assistant: first", "user: two", "assistant: second"].map(String::from));
    assert_idle(&world);
}

// recovery 81, D23
#[test]
fn the_application_may_decline() {
    let agent =
        Custom::new().on_recovery(|info| RecoveryDecision { go_on: info.partial_text.is_empty(), ..RecoveryDecision::default() });
    let world = World::new(agent).model(script![text_deltas(&["a"; 25]).gate("never")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    assert_eq!(world.said().len(), 2, "what there was is kept");
    let banner: Vec<Value> = tab.of_type("cf_agent_use_chat_response").into_iter().filter(|f| f["error"] == true).collect();
    assert_eq!(banner[0]["body"], "Submission was interrupted and automatic continuation was declined.");
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

// recovery 64, D15; wire 153
#[test]
fn a_stalled_answer_goes_on_without_delay() {
    let agent = Custom::new().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
    let world = World::new(agent).model(script![text_deltas(&["a", "b", "c", "d", "e"]).gate("never"), text("and the rest")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_for(2_500);
    assert_eq!(world.said(), ["user: hi", "assistant: abcde and the rest"], "{}", world.story());
    assert_eq!(tab.said(), world.said());
    let stalled = world.events_named("chat:stream:stalled");
    assert_eq!((stalled.len(), world.events_named("chat:recovery:scheduled")[0].fields["delayMs"].clone()), (1, json!(0)));
    assert_eq!(tab.of_type("cf_agent_chat_recovering").iter().map(|f| f["recovering"].clone()).collect::<Vec<_>>(), [true, false]);
    assert_idle(&world);
}

// recovery 65, 66: it is tried ten times more, then it is said.
#[test]
fn an_answer_that_never_comes_is_given_up() {
    let agent = Custom::new().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
    let seen = agent.seen.clone();
    let world = World::new(agent).model_fn(|_| wakeful::testkit::stall());
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    assert_eq!(world.provider_requests().len(), 11);
    assert_eq!(world.events_named("chat:recovery:exhausted")[0].fields["reason"], "max_attempts_exceeded");
    assert!(seen.take().contains(&"exhausted max_attempts_exceeded".to_owned()));
    let banner = tab.of_type("cf_agent_use_chat_response").into_iter().filter(|f| f["error"] == true).count();
    assert_eq!((banner, tab.recovering()), (1, false), "{request}\n{}", tab.story());
    assert_idle(&world);
}

// recovery 24, D17: what waiting does not mend is said at once.
#[test]
fn an_error_that_waiting_does_not_mend_ends_the_turn() {
    let world = world().model(script![http_error(401, json!({ "error": { "message": "bad key" } }))]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    assert!(world.events().iter().all(|event| !event.name.starts_with("chat:recovery")));
    assert_idle(&world);
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
    let agent = Custom::new().on_recovery(|_| RecoveryDecision { persist: false, ..RecoveryDecision::default() });
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
    let agent = Custom::new()
        .on_recovery(|_| RecoveryDecision { persist: false, ..RecoveryDecision::default() })
        .tools(|_| Tools::new().with(tool("look", |_, _| async { Ok(json!("seen")) })));
    let world = World::new(agent).model(script![call("look", json!({})), text_deltas(&["a"; 25]).gate("never"), text("fresh")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    die(&world);
    assert!(world.said()[1].contains("[look output-available]"), "{:?}", world.said());
    assert_eq!(world.provider_requests().len(), 3);
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

// recovery 31, 33: who waits for a person costs nothing however often the object dies, and an allowed call runs once.
#[test]
fn a_parked_turn_is_not_taken_up() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let agent = Custom::new().tools(move |_| {
        let runs = runs.clone();
        Tools::new().with(
            tool("pay", move |_, _| {
                runs.add("pay");
                async { Ok(json!("paid")) }
            })
            .needs_approval(),
        )
    });
    let world = World::new(agent).model(script![call("pay", json!({})), text("Paid.")]);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    for _ in 0..10 {
        world.restart(Sockets::Kept);
        world.run_for(25_920_000);
        crate::assert_parked(&world);
    }
    assert!(world.events().iter().all(|event| !event.name.starts_with("chat:recovery")));
    tab.approve(&tab.open_calls()[0], true);
    world.run_until(|world| !world.events_named("tool:approval").is_empty());
    die(&world);
    assert_eq!(seen.take(), ["pay"]);
    assert_eq!(world.provider_requests().len(), 2);
    assert!(world.said()[1].ends_with("Paid."), "{:?}", world.said());
}

// recovery 35, D10: a call of the page goes on, a server's that was running does not.
#[test]
fn a_call_of_the_page_is_still_open_after_a_death() {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = Custom::new().tools(move |_| {
        let waits = waits.clone();
        Tools::new().with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" }))).with(tool("work", move |_, _| {
            let waits = waits.clone();
            async move {
                waits.wait("work").await;
                Ok(json!("worked"))
            }
        }))
    });
    let script = script![wakeful::testkit::calls([("look", json!({})), ("work", json!({}))]), text("Both.")];
    let world = World::new(agent).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("go");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!(world.said()[1], "assistant: [look input-available] [work output-error]");
    crate::assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] [work output-error] Both.");
    assert_eq!((world.provider_requests().len(), tab.said()), (2, world.said()));
    assert_idle(&world);
}

// recovery 16, 17: a tool that may be repeated is, with its key, three times at most.
#[test]
fn a_tool_that_may_run_again_does_with_its_key() {
    let seen = crate::custom::Seen::default();
    let gates = Gates::default();
    let (runs, waits) = (seen.clone(), gates.clone());
    let agent = Custom::new().tools(move |_| {
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

// recovery 47, 48, 53: deaths that are progress do not count as attempts, but as deaths.
#[test]
fn progress_resets_the_attempts() {
    let agent = Custom::new().config(|config| config.chat_recovery.max_interrupted_attempts = None);
    let world = World::new(agent).model_fn(|_| text_deltas(&["word "; 12]).gate("never"));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..50 {
        world.restart(Sockets::Closed);
        world.run_for(31_000);
    }
    let attempts = world.events_named("chat:recovery:attempt");
    assert_eq!((attempts.len(), world.provider_requests().len()), (50, 51));
    assert!(attempts.iter().all(|event| event.fields["attempt"] == 1), "{:?}", attempts.last());
}

// recovery 55
#[test]
fn the_application_may_have_a_budget_of_its_own() {
    let agent = Custom::new().keeps_recovering(|_| false);
    let seen = agent.seen.clone();
    let world = World::new(agent).model_fn(|_| text_deltas(&["word "; 12]).gate("never"));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..3 {
        world.restart(Sockets::Closed);
        world.run_for(31_000);
    }
    world.run();
    assert_eq!(world.provider_requests().len(), 2);
    assert!(seen.take().contains(&"exhausted recovery_aborted".to_owned()));
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

/// A conversation whose only turn was given up while nobody looked.
fn given_up() -> (World<Custom>, Client) {
    let world = World::new(Custom::new()).model_fn(|request| match request.last_user().as_str() {
        "hello" => text("hi there"),
        _ => text_deltas(&["word "; 30]).gate("never"),
    });
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..5 {
        world.restart(Sockets::Closed);
        world.run_for(31_000);
    }
    world.run();
    assert_eq!(world.events_named("chat:recovery:exhausted").len(), 1);
    (world, tab)
}

// wire 158, 159, 161; recovery 76
#[test]
fn a_turn_that_was_given_up_is_told_to_whoever_comes_until_one_ends_well() {
    const BANNER: &str = "The assistant was interrupted and could not recover. Please try again.";
    let (world, tab) = given_up();
    world.reconnect(&tab);
    let other = world.connect("S2");
    let third = world.connect("S3");
    world.run();
    for each in [&other, &third] {
        assert_eq!(each.status(), Status::Error(BANNER.into()), "{}", each.story());
    }
    other.send("hello");
    world.run();
    let late = world.connect("S4");
    world.run();
    assert_eq!((late.status(), late.said()), (Status::Ready, world.said()));
    assert_eq!(late.of_type("cf_agent_stream_resume_none").len(), 1, "{}", late.story());
    assert_idle(&world);
}

// wire 160: giving up is said before the flag goes down.
#[test]
fn giving_up_is_said_before_the_flag_goes_down() {
    let world = World::new(Custom::new()).model_fn(|_| text_deltas(&["word "; 30]).gate("never"));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..5 {
        world.restart(Sockets::Kept);
        world.run_for(31_000);
    }
    world.run();
    let frames = tab.frames();
    let error = frames.iter().position(|f| f["error"] == true).expect("a banner");
    let flag = frames.iter().rposition(|f| f["type"] == "cf_agent_chat_recovering").expect("the flag");
    assert!(error < flag && frames[flag]["recovering"] == false, "{}", tab.story());
    assert!(!tab.recovering());
}

// wire 163: a flag that is older than a quarter of an hour says nothing any more.
#[test]
fn an_old_flag_is_not_shown() {
    let world = world().model(script![text_deltas(&["a"; 25]).gate("never"), text("b").gate("never")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Closed);
    world.run_for(1_000);
    let early = world.connect("S2");
    assert!(early.recovering(), "{}", early.story());
    world.clock().skew(limits::RECOVERING_SHOWN_MS + 1);
    let late = world.socket("S3");
    assert!(late.of_type("cf_agent_chat_recovering").is_empty(), "{}", late.story());
}
