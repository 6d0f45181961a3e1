//! How recovery ends: given up, declined, overtaken, and what hooks and events say of it (`recovery.md` §7.6).

use super::*;

// recovery 84, decision 35
#[test]
fn a_newer_message_waits_for_the_turn_before_it() {
    let limited = http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = recovering().model(script![limited, text("first"), text("second")]);
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
    let agent = agent().on_recovery(|info| RecoveryDecision { go_on: info.partial_text.is_empty(), ..RecoveryDecision::default() });
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

/// A conversation whose only turn was given up while nobody looked.
fn given_up() -> (World<Custom>, Client) {
    let world = World::new(agent()).model_fn(|request| match request.last_user().as_str() {
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
    let world = World::new(agent()).model_fn(|_| text_deltas(&["word "; 30]).gate("never"));
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
