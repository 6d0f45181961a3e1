//! Recovery of turns that wait for pages and people, which cost nothing meanwhile (`recovery.md` §7.3).

use super::*;

// recovery 31, 33: who waits for a person costs nothing however often the object dies, and an allowed call runs once.
#[test]
fn a_parked_turn_is_not_taken_up() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let agent = agent().tools(move |_| {
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
    let agent = agent().tools(move |_| {
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

/// A world whose agent has the tool `pay`, which needs a person, and its tab after the model called it. The model has one word for
/// whatever comes of that.
fn asked_for_approval(then: &'static str) -> (World<Custom>, Client, Seen) {
    let (seen, gates, tools) = gated(&["pay"]);
    gates.open("pay");
    let pay = move |turn: &Turn| Tools::new().with(tools(turn).get("pay").unwrap().clone().needs_approval());
    let world = World::new(agent().tools(pay)).with_gates(&gates).model_fn(move |request| match request.roles().len() {
        2 => call("pay", json!({})),
        _ => text(then),
    });
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    (world, tab, seen)
}

/// A world whose model called the page's `look` so often at once, and its tab.
fn looked(times: usize, then: impl IntoIterator<Item = Reply>) -> (World<Custom>, Client) {
    let world = World::new(agent()).model(script![calls((0..times).map(|n| ("look", json!({ "n": n }))))]);
    for reply in then {
        world.answer(reply);
    }
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    (world, tab)
}

// recovery 31; I15, I23: ten deaths in three days, and nothing is counted, set or asked.
#[test]
fn a_page_may_answer_after_three_days_and_ten_deaths() {
    let (world, tab) = looked(1, [text("A hill.")]);
    let before = world.db().snapshot();
    for _ in 0..10 {
        world.restart(Sockets::Kept);
        world.run_for(25_920_000);
    }
    assert_parked(&world);
    assert_eq!((before.difference(&world.db().snapshot()), incidents(&world)), (vec![], vec![]));
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    assert_eq!((world.said()[1].as_str(), asked(&world)), ("assistant: [look output-available] A hill.", 2));
    assert_eq!((tab.said(), turns(&world)), (world.said(), vec!["completed -".into()]));
    assert_at_rest(&world);
}

// recovery 32, D8, D11: the question outlives its object, and so does the answer at whatever step the object dies.
#[test]
fn an_approval_is_acted_on_once_whenever_the_object_dies() {
    for at in 0..20 {
        let (world, tab, seen) = asked_for_approval("Paid.");
        world.restart(Sockets::Kept);
        world.run();
        assert_parked(&world);
        tab.approve(&tab.open_calls()[0], true);
        for _ in 0..at {
            world.step();
        }
        world.restart(Sockets::Kept);
        world.run();
        // The tool had started or not; it is never started twice, and never asked about twice (I13).
        assert_eq!(seen.take().len(), 1, "{at}\n{}", world.story());
        assert_eq!(world.events_named("tool:approval").len(), 1, "{at}");
        assert_eq!(world.events_named("continuation:fired").len(), 1, "{at}");
        let (said, asked) = (world.said()[1].clone(), asked(&world));
        // The model is asked again where it was being asked; where it had spoken, it has the same word for going on.
        let spoke = said.strip_prefix("assistant: [pay output-available] ").unwrap_or_else(|| panic!("{at}: {said}"));
        assert!(matches!((spoke, asked), ("Paid.", 2 | 3) | ("Paid. Paid.", 3)), "{at}: {said:?}, {asked} calls\n{}", world.story());
        assert_eq!(tab.said(), world.said(), "{at}\n{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 34: the model reads of the denial, and the tool never runs.
#[test]
fn a_denial_outlives_a_death_at_any_step() {
    for at in 0..12 {
        let (world, tab, seen) = asked_for_approval("Not paid.");
        tab.deny(&tab.open_calls()[0], "too much");
        for _ in 0..at {
            world.step();
        }
        world.restart(Sockets::Kept);
        world.run();
        assert_eq!(seen.take(), Vec::<String>::new(), "{at}");
        assert!(world.said()[1].starts_with("assistant: [pay output-denied] Not paid."), "{at}: {:?}", world.said());
        let told = world.provider_requests()[1].texts().join("|");
        assert!(told.contains("too much"), "{told}");
        assert_eq!(tab.said(), world.said(), "{at}\n{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 36, I18: two answers, a death, the third: one continuation that reads all three.
#[test]
fn a_batch_is_complete_with_its_last_answer_also_after_a_death() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let (world, tab) = looked(3, [text("All three.")]);
        let open = tab.open_calls();
        tab.tool_result(&open[0], json!("one"));
        tab.tool_result(&open[1], json!("two"));
        world.run();
        world.restart(sockets);
        if sockets == Sockets::Closed {
            world.reconnect(&tab);
        }
        world.run();
        assert_parked(&world);
        tab.tool_result(&open[2], json!("three"));
        world.run();
        let found = "[look output-available]";
        assert_eq!((world.said()[1].clone(), asked(&world)), (format!("assistant: {found} {found} {found} All three."), 2));
        assert_eq!(world.events_named("continuation:fired").len(), 1);
        let results: Vec<String> = world.provider_requests()[1]
            .messages()
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(results, ["one", "two", "three"]);
        assert_eq!(tab.said(), world.said(), "{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 37: two tabs give the same answer, before and after a death.
#[test]
fn the_same_answer_twice_is_one_continuation() {
    let (world, tab) = looked(2, [text("Both.")]);
    let other = page(&world, "S2");
    let open = tab.open_calls();
    tab.tool_result(&open[0], json!("one"));
    other.tool_result(&open[0], json!("another"));
    world.run();
    world.restart(Sockets::Kept);
    other.tool_result(&open[0], json!("yet another"));
    tab.tool_result(&open[1], json!("two"));
    other.tool_result(&open[1], json!("two"));
    world.run();
    let outputs: Vec<Value> = parts(&world, 1).iter().filter_map(|part| part.get("output").cloned()).collect();
    assert_eq!((outputs, asked(&world)), (vec![json!("one"), json!("two")], 2));
    assert_eq!((tab.said(), other.said()), (world.said(), world.said()));
    assert_at_rest(&world);
}

// recovery 38, decision 47: the person moved on, with a death before and after that.
#[test]
fn a_new_message_supersedes_a_parked_turn_across_deaths() {
    let (world, tab) = looked(1, [text("").gate("never"), text("New.")]);
    world.restart(Sockets::Kept);
    world.run();
    tab.send("never mind");
    world.run();
    die(&world);
    assert_eq!(world.said(), ["user: look", "assistant: [look output-error]", "user: never mind", "assistant: New."]);
    assert_eq!(turns(&world).iter().filter(|turn| *turn == "completed superseded").count(), 1);
    let last = world.provider_requests().pop().unwrap();
    assert_eq!(last.roles(), ["system", "user", "assistant", "tool", "user"]);
    assert_at_rest(&world);
}

// recovery 41, decision 30: a submission is answered with its leg; what a page says later goes on with the conversation.
#[test]
fn a_parked_submission_is_completed_whatever_dies() {
    let world = World::new(agent().tools(|_| Tools::new().with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" })))));
    let world = world.model(script![call("look", json!({})), text("A hill.")]);
    let handle = world.handle();
    let options = SubmitOptions { submission_id: Some("A".into()), ..SubmitOptions::default() };
    world.block_on(async move { handle.submit_messages(vec![UiMessage::user("m1", "look")], options).await }).unwrap();
    world.run();
    die(&world);
    assert_eq!(texts(&world, "SELECT status FROM wk_submission"), ["completed"]);
    assert_parked(&world);
    let tab = world.connect("S1");
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] A hill.");
    assert_eq!((texts(&world, "SELECT status FROM wk_submission"), asked(&world)), (vec!["completed".into()], 2));
    assert_at_rest(&world);
}

// recovery 42, I15: what a turn spent before it waited for a page is not held against it afterwards.
#[test]
fn a_turn_that_goes_on_after_a_page_has_its_budget_anew() {
    let world = World::new(agent()).model_fn({
        let calls = Cell::new(0);
        move |_| {
            calls.set(calls.get() + 1);
            match calls.get() {
                1..=4 => text("").gate("never"),
                5 => call("look", json!({})),
                6..=9 => text("so ").gate("never"),
                _ => text("done"),
            }
        }
    });
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    die_often(&world, 4, 31_000);
    world.reconnect(&tab);
    world.run();
    assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    die_often(&world, 4, 31_000);
    world.run();
    assert_eq!((turns(&world), asked(&world), reasons(&world)), (vec!["completed -".into()], 10, vec![]));
    assert_at_rest(&world);
}

// recovery 35, D8, D10; I16: the call of a page parks the turn as soon as it is taken up, and events say why.
#[test]
fn a_turn_that_waits_for_a_page_is_taken_up_only_to_park() {
    let (seen, gates, tools) = gated(&["work"]);
    let both = move |turn: &Turn| tools(turn).with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" })));
    let script = script![calls([("look", json!({})), ("work", json!({}))]), text("Both.")];
    let world = World::new(agent().tools(both)).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("go");
    world.run();
    die(&world);
    assert_parked(&world);
    assert_eq!((seen.take().len(), asked(&world)), (1, 1));
    assert_eq!(incidents(&world).last().map(String::as_str), Some("skipped"));
    assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["awaiting_client_interaction"]);
}

/// The built-in model, which makes its calls one after the other, for a page with the tool that asks a person.
#[derive(Clone)]
struct Asker {
    stall_ms: Option<u32>,
    max_age_ms: Option<u32>,
}

impl Agent for Asker {
    fn model(&self, _: &Turn) -> ModelRef {
        "demo".into()
    }

    fn config(&self) -> Config {
        // Whatever a turn writes after its first interruption is too much, where bounds bind.
        let chat_recovery = ChatRecovery { max_recovery_work: Some(0), max_turn_age_ms: self.max_age_ms, ..ChatRecovery::default() };
        Config { chat_stream_stall_timeout_ms: self.stall_ms, chat_recovery, ..Config::default() }
    }

    fn tools(&self, _: &Turn) -> Tools {
        Tools::new().with(Tool::client_dynamic("ask_person", "Asks", json!({ "type": "object" })))
    }
}

/// A world whose model said nothing more in the middle of its second call, when the page had its first, and its tab.
fn silent_behind_a_call(stall_ms: Option<u32>) -> (World<Asker>, Client) {
    let world = World::new(Asker { stall_ms, max_age_ms: None });
    let tab = world.connect("S1");
    tab.send("ask me two questions");
    silence_at_the_second_call(&world, &tab);
    (world, tab)
}

fn silence_at_the_second_call(world: &World<Asker>, tab: &Client) {
    let begun = |frame: &&Value| frame["body"].as_str().is_some_and(|chunk| chunk.contains("tool-input-start"));
    world.run_until(|_| tab.of_type("cf_agent_use_chat_response").iter().filter(begun).count() == 2);
    world.handle().silence_model();
}

// recovery D8–D10, D15, D16; I15, I16: a model that falls silent behind a call takes it from no page: the turn waits, as after a death.
// What was still being asked is closed.
#[test]
fn a_call_of_the_page_outlives_the_silence_of_its_model() {
    let died = {
        let (world, _tab) = silent_behind_a_call(None);
        world.run_for(limits::SEGMENT_MS);
        world.restart(Sockets::Kept);
        world
    };
    let waits = [(silent_behind_a_call(Some(2_000)), 0), (silent_behind_a_call(None), 1_000)];
    let said = "assistant: I will do these side by side. [ask_person input-available] [ask_person output-error]";
    died.run();
    assert_eq!((died.said()[1].as_str(), incidents(&died)), (said, ["detected", "attempt", "skipped"].map(String::from).into()));
    for ((world, tab), wait) in waits {
        world.run();
        assert_parked(&world);
        assert_eq!((world.said()[1].as_str(), tab.said()), (said, world.said()), "{}", tab.story());
        assert_eq!(
            (incidents(&world), fields(&world, "chat:recovery:scheduled", "delayMs")),
            (["detected", "attempt", "scheduled", "skipped"].map(String::from).into(), vec![json!(wait)])
        );
        let calls = "SELECT name || ' ' || site || ' ' || state FROM wk_call";
        assert_eq!((texts(&world, calls), texts(&died, calls)), (vec!["ask_person client waiting".into()], texts(&world, calls)));
        assert_eq!((tab.open_calls().len(), tab.recovering(), tab.status()), (1, false, Status::Ready), "{}", tab.story());
        tab.tool_result(&tab.open_calls()[0], json!("Ann"));
        world.run();
        assert!(world.said()[1].starts_with(&said.replace("input-available", "output-available")), "{:?}", world.said());
        assert_eq!(tab.said(), world.said());
    }
}

// I15: what waits for a page costs nothing and no bound ends it, also where its model falls silent for the second time.
#[test]
fn no_bound_ends_a_turn_whose_model_falls_silent_behind_a_call() {
    let world = World::new(Asker { stall_ms: Some(2_000), max_age_ms: None });
    let tab = world.connect("S1");
    tab.send("ask me two questions");
    world.run_until(|_| !tab.of_type("cf_agent_use_chat_response").is_empty());
    world.handle().silence_model();
    world.run_until(|world| world.events_named("chat:recovery:scheduled").len() == 1);
    silence_at_the_second_call(&world, &tab);
    world.run();
    assert_parked(&world);
    assert_eq!((world.events_named("chat:stream:stalled").len(), tab.open_calls().len()), (2, 1), "{}", world.story());
    assert_eq!(incidents(&world).last().map(String::as_str), Some("skipped"));
}

// recovery D16, decision 35: a page that answers before the next attempt is due has answered, and nothing is waited for any more.
#[test]
fn a_page_may_answer_while_its_turn_waits_for_a_provider() {
    let (world, tab) = silent_behind_a_call(None);
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    let handle = world.handle();
    assert!(world.block_on(async move { handle.has_pending_interaction().await }).unwrap(), "recovery 124: it is still asked");
    tab.tool_result(&tab.open_calls()[0], json!("Ann"));
    world.run();
    let said = "assistant: I will do these side by side. [ask_person output-available] [ask_person output-error]";
    assert!(world.said()[1].starts_with(said), "{:?}", world.said());
    assert_eq!(incidents(&world)[..3], ["detected", "attempt", "scheduled"]);
    assert!(world.events_named("continuation:held").is_empty(), "it goes on by itself");
    assert_eq!(tab.said(), world.said(), "{}", tab.story());
}

// I15, I29: nobody is in a hurry where a page is asked: not when its model falls silent, not when the next attempt is due.
#[test]
fn age_ends_no_turn_whose_model_falls_silent_behind_a_call() {
    for late in [0, 7_200_000] {
        let world = World::new(Asker { stall_ms: None, max_age_ms: Some(if late == 0 { 1_000 } else { 3_600_000 }) });
        let tab = world.connect("S1");
        tab.send("ask me two questions");
        silence_at_the_second_call(&world, &tab);
        world.run_until(|world| !incidents(world).is_empty());
        world.clock().skew(late);
        world.run();
        assert_parked(&world);
        assert_eq!((tab.open_calls().len(), incidents(&world).last().map(String::as_str)), (1, Some("skipped")), "{late}");
        assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["awaiting_client_interaction"], "{late}");
    }
}
