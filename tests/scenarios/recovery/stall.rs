//! Recovery of turns whose provider stalls or fails (`recovery.md` §7.5).

use super::*;

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

/// The waits that were scheduled.
fn waits(world: &World<Custom>) -> Vec<Value> {
    fields(world, "chat:recovery:scheduled", "delayMs")
}

// recovery 65, D15, D2: silence before the first word is no reason to leave the question unanswered.
#[test]
fn a_stall_before_any_content_is_a_retry() {
    let agent = agent().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
    let world = World::new(agent).model(script![silence(), text("answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!((world.said(), tab.said(), asked(&world)), (vec!["user: hi".into(), "assistant: answer".into()], world.said(), 2));
    assert_eq!(fields(&world, "chat:recovery:scheduled", "recoveryKind"), ["retry"]);
    assert_eq!(incidents(&world), ["detected", "attempt", "scheduled", "completed"]);
    assert_eq!(outcomes(&tab), ["completed"], "one end of the turn for the hook (recovery §2.14)\n{}", tab.story());
    assert_at_rest(&world);
}

// recovery 66, 75: the eleventh silence is the last; who watched is told once.
#[test]
fn a_provider_that_is_silent_for_good_is_given_up() {
    let agent = agent().config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
    let seen = agent.seen.clone();
    let world = World::new(agent).model_fn(|_| silence());
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!((asked(&world), waits(&world)), (11, vec![json!(0); 10]));
    assert_eq!((reasons(&world), banners(&tab)), (vec![json!("max_attempts_exceeded")], vec![json!(BANNER)]));
    assert_eq!(seen.take().iter().filter(|line| *line == "exhausted max_attempts_exceeded").count(), 1);
    assert_eq!((tab.recovering(), turns(&world)), (false, vec!["failed max_attempts_exceeded".into()]));
    assert_at_rest(&world);
}

// recovery 67, D16: what the provider asks for is kept to, up to a minute.
#[test]
fn a_provider_may_ask_for_a_minute_at_most() {
    let world = World::new(agent()).model(script![limited("600"), text("now")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_for(59_000);
    assert_eq!((asked(&world), waits(&world)), (1, vec![json!(60_000)]));
    world.run_for(2_000);
    assert_eq!(world.said(), ["user: hi", "assistant: now"]);
    assert_eq!(tab.said(), world.said());
    assert_at_rest(&world);
}

// recovery 68, decision 34: an answer that breaks off five times is waited for a second, two, four, eight and sixteen.
#[test]
fn waits_double() {
    let world = World::new(agent()).model(script![
        text("a ").cut(),
        text("b ").cut(),
        text("c ").cut(),
        text("d ").cut(),
        text("e ").cut(),
        text("f")
    ]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!(waits(&world), [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert_eq!(world.said(), ["user: hi", "assistant: a  b  c  d  e  f"]);
    assert_eq!((tab.said(), asked(&world)), (world.said(), 6));
    assert_at_rest(&world);
}

// recovery 69, D18: what fails after a stop fails for nobody.
#[test]
fn an_error_after_a_stop_is_a_stop() {
    let world = World::new(agent()).model(script![text("so ").gate("g").cut()]);
    let tab = world.connect("S1");
    let request = tab.send("hi");
    world.run();
    tab.cancel(&request);
    world.open_gate("g");
    world.run();
    assert_eq!((turns(&world), incidents(&world), asked(&world)), (vec!["aborted -".into()], vec![], 1));
    assert_eq!(tab.terminals(&request).len(), 1);
    assert_at_rest(&world);
}

// recovery 69: stop and error in the same moment, in whichever order they arrive: stopped, and never asked again.
#[test]
fn a_stop_and_an_error_in_the_same_moment_are_a_stop() {
    let mut ways = std::collections::BTreeMap::new();
    for seed in 0..24 {
        let world = World::new(agent()).seed(seed).model(script![text("so ").gate("g").cut()]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        tab.cancel(&request);
        world.gates().open("g");
        world.run();
        assert_eq!((asked(&world), tab.said(), tab.status()), (1, world.said(), Status::Ready), "{seed}\n{}", world.story());
        assert_eq!(banners(&tab), Vec::<Value>::new(), "{seed}");
        assert_at_rest(&world);
        *ways.entry((turns(&world), incidents(&world))).or_insert(0) += 1;
    }
    let [stopped_first, failed_first] =
        [(vec!["aborted -"], vec![]), (vec!["aborted user_cancelled"], vec!["detected", "attempt", "scheduled", "skipped"])].map(
            |(turns, incidents)| (turns.into_iter().map(String::from).collect(), incidents.into_iter().map(String::from).collect()),
        );
    assert_eq!(ways.keys().collect::<Vec<&(Vec<String>, Vec<String>)>>(), [&stopped_first, &failed_first]);
}

// recovery 70, D19: an object that is reset says so through whatever it calls. Nothing is planned then and there; the next life goes on.
#[test]
fn a_reset_that_comes_up_as_an_error_of_the_provider_is_a_death() {
    // Also where the application takes everything for something that passes.
    for agent in [agent(), agent().classifies(ErrorClass::Transient)] {
        let world = World::new(agent).model(script![text_deltas(&["word "; 25]).broken(RESET), text("the ").gate("g").text("end")]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        // A death was counted, and no error of a provider.
        let counted = world.db().query("SELECT interrupted, transient FROM wk_turn");
        assert_eq!(json!(counted), json!([{ "interrupted": 1, "transient": 0 }]));
        world.open_gate("g");
        world.run();
        assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
        assert_eq!((tab.said(), asked(&world)), (world.said(), 2));
        assert_eq!(
            (incidents(&world), waits(&world)),
            (["detected", "attempt", "scheduled", "completed"].map(String::from).into(), vec![json!(0)])
        );
        assert!(world.events_named("chat:request:failed").is_empty());
        assert_at_rest(&world);
    }
}

// recovery 74: a line that is no JSON, then the end: the classifier's path, and nothing half is stored as whole.
#[test]
fn a_malformed_line_leaves_nothing_half_done() {
    let (seen, gates, tools) = gated(&["pay"]);
    let half = json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "id": "call_0", "type": "function",
        "function": { "name": "pay", "arguments": "{\"eur\":" } }] } }] });
    let broken = raw(format!("data: {half}\n\ndata: {{\"choices\":[\n\n"));
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script![text("I pay. ").cut(), broken]);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    // Another try would bring the same.
    assert_eq!((asked(&world), waits(&world)), (2, vec![json!(1_000)]));
    assert!(turns(&world)[0].starts_with("failed The answer could not be understood."), "{:?}", turns(&world));
    assert_eq!(world.said()[1], "assistant: I pay. ");
    assert_eq!((seen.take(), tab.said(), banners(&tab).len()), (vec![], world.said(), 1));
    assert_at_rest(&world);
}
