//! Recovery of turns whose provider stalls or fails (`recovery.md` §7.5).

use super::*;

// recovery 67, 68: a provider that is overloaded is asked later, and that outlives the object.
#[test]
fn a_rate_limit_is_waited_for_across_a_death() {
    let limited = || http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", "45");
    let world = recovering().model(script![limited(), text("now")]);
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

// recovery 64, D15; wire 153
#[test]
fn a_stalled_answer_goes_on_without_delay() {
    let agent = agent().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
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
    let agent = agent().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
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
