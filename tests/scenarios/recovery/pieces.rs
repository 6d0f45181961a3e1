//! Recovery rules without a row of their own: ambiguous effects, rows that contradict each other, repair of the history, ages, work that
//! does not stop.

use super::*;

/// A world in which `pay`, changed by this, was running when its object died, after the model's first call of it.
fn died_paying(change: impl Fn(Tool) -> Tool + 'static, then: impl IntoIterator<Item = Reply>) -> (World<Custom>, Client, Seen) {
    let (seen, gates, tools) = gated(&["pay"]);
    let pay = move |turn: &Turn| Tools::new().with(change(tools(turn).get("pay").unwrap().clone()));
    let world = World::new(agent().tools(pay)).with_gates(&gates).model(script![call("pay", json!({ "eur": 5 }))]);
    for reply in then {
        world.answer(reply);
    }
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    world.restart(Sockets::Kept);
    world.open_gate("pay");
    world.run();
    (world, tab, seen)
}

// decision 12, §6.3 `ask`: what may have been done is not done again without a person; another call is another matter.
#[test]
fn an_irreversible_call_is_repeated_only_by_a_persons_word() {
    let (world, tab, seen) = died_paying(Tool::irreversible, [call("pay", json!({ "eur": 5 })), text("Paid.")]);
    assert_parked(&world);
    assert_eq!((seen.take().len(), world.said()[1].as_str()), (1, "assistant: [pay output-error] [pay approval-requested]"));
    tab.approve(&tab.open_calls()[0], true);
    world.run();
    assert_eq!((seen.take().len(), world.said()[1].as_str()), (1, "assistant: [pay output-error] [pay output-available] Paid."));
    assert_eq!(tab.said(), world.said());
    assert_at_rest(&world);
    let (world, _tab, seen) = died_paying(Tool::irreversible, [call("pay", json!({ "eur": 6 })), text("Paid.")]);
    assert_eq!((seen.take().len(), world.said()[1].as_str()), (2, "assistant: [pay output-error] [pay output-available] Paid."));
    assert_at_rest(&world);
}

// §6.3 `tell` and `fail`: the default leaves it to the model; or the turn ends, and says why.
#[test]
fn an_ambiguous_call_is_told_or_ends_the_turn() {
    let (world, _tab, seen) = died_paying(|tool| tool, [call("pay", json!({ "eur": 5 })), text("Paid.")]);
    assert_eq!((seen.take().len(), world.said()[1].as_str()), (2, "assistant: [pay output-error] [pay output-available] Paid."));
    assert_at_rest(&world);
    let (world, tab, seen) = died_paying(|tool| tool.on_ambiguous(Ambiguous::Fail), []);
    assert_eq!((seen.take().len(), asked(&world), world.said()[1].as_str()), (1, 1, "assistant: [pay output-error]"));
    assert!(turns(&world)[0].starts_with("failed "), "{:?}", turns(&world));
    assert_eq!((banners(&tab).len(), tab.said()), (1, world.said()), "{}", tab.story());
    assert!(banners(&tab)[0].as_str().unwrap().contains("nobody knows whether it took effect"), "{:?}", banners(&tab));
    assert_at_rest(&world);
}

// I3, I16, I28: rows say impossible things; each turn comes to an end and the conversation goes on.
#[test]
fn rows_that_contradict_each_other_come_to_rest() {
    let attempt = "INSERT INTO wk_attempt (turn, n, boot, request_id, stream, kind, started_at)";
    let copy = |id: &str, state: &str| {
        let columns = "root_request_id, request_id, kind, trigger, user_msg, assistant_msg, attempt, created_at, generation";
        format!("INSERT INTO wk_turn (id, seq, state, {columns}) SELECT '{id}', seq + 1, '{state}', {columns} FROM wk_turn LIMIT 1")
    };
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("an attempt of nobody", vec!["DELETE FROM wk_attempt".into(), format!("{attempt} VALUES ('nobody', 1, 'b', 'r', 's', 'answer', 0)")]),
        ("an attempt of a waiting turn", vec!["UPDATE wk_turn SET state = 'waiting', next_at = 0".into()]),
        ("an attempt of a parked turn", vec!["UPDATE wk_turn SET state = 'parked'".into()]),
        ("an attempt of a queued turn", vec!["UPDATE wk_turn SET state = 'queued'".into()]),
        ("an attempt of a final turn", vec!["UPDATE wk_turn SET state = 'completed', ended_at = 1".into()]),
        ("a running turn without an attempt", vec!["DELETE FROM wk_attempt".into()]),
        ("a state that nobody knows", vec!["UPDATE wk_turn SET state = 'dreaming'".into()]),
        ("two waiting turns", vec!["UPDATE wk_turn SET state = 'waiting', next_at = 0".into(), copy("other", "waiting")]),
        ("two parked turns", vec!["DELETE FROM wk_attempt".into(), "UPDATE wk_turn SET state = 'parked'".into(), copy("other", "parked")]),
        ("a parked turn without a message", vec!["DELETE FROM wk_attempt".into(), "UPDATE wk_turn SET state = 'parked', assistant_msg = NULL".into()]),
        ("a wait without an end", vec!["DELETE FROM wk_attempt".into(), format!("UPDATE wk_turn SET state = 'waiting', next_at = {}", i64::MAX)]),
        ("a question that is gone", vec!["UPDATE wk_turn SET user_msg = 'gone'".into()]),
        ("no question", vec!["UPDATE wk_turn SET user_msg = NULL".into()]),
        ("counters that are negative", vec!["UPDATE wk_turn SET interrupted = -1, since_progress = -1, progress_seen = -9, claims = -1".into()]),
        ("a log that is no log", vec!["UPDATE wk_seg SET body = 'nonsense'".into()]),
        ("a call of nobody", vec!["UPDATE wk_turn SET assistant_msg = 'm'".into(), "INSERT INTO wk_call (message_id, call_id, turn, step, ordinal, name, site, effect, state, created_at) VALUES ('m', 'c', 't', 1, 0, 'pay', 'server', 'once', 'started', 0)".into()]),
        ("an owed hook that says nothing", vec!["INSERT INTO wk_outbox (id, kind, payload, due_at) VALUES ('x', 'exhausted', '{}', 0)".into()]),
    ];
    for (name, statements) in cases {
        let first = Cell::new(true);
        let world = World::new(agent()).model_fn(move |_| match first.replace(false) {
            true => text_deltas(&["word "; 25]).gate("never"),
            false => text("fine"),
        });
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        for statement in &statements {
            world.db().query(statement);
        }
        world.restart(Sockets::Closed);
        world.reconnect(&tab);
        world.run_for(120_000);
        tab.send("and now?");
        world.run();
        assert_eq!(world.said().last().map(String::as_str), Some("assistant: fine"), "{name}: {:?}\n{}", world.said(), world.story());
        assert_eq!(
            (rows(&world, "wk_turn WHERE ended_at IS NULL"), rows(&world, "wk_attempt")),
            (0, 0),
            "{name}: {:?}",
            turns(&world)
        );
        assert_eq!((rows(&world, "wk_outbox"), world.jobs(), world.alarm_at()), (0, 0, None), "{name}");
    }
}

/// The text in the place of a question that nobody answered.
fn question(part: &Part) -> Option<Part> {
    let prompt = part.get("input")?.get("prompt")?.clone();
    Some(Part::from_iter([("type".into(), "text".into()), ("text".into(), prompt)]))
}

// §3.2 rules 4 and 5, §3.3: the call that a newer message left behind becomes what the application makes of it: stored, shown, sent.
#[test]
fn the_application_says_what_stands_for_a_call_that_nobody_answered() {
    for hook in [true, false] {
        let agent = if hook { agent().repairs(question) } else { agent() };
        let world = World::new(agent).model(script![call("ask", json!({ "prompt": "Which city?" })), text("Oslo, then.")]);
        let tab = page(&world, "S1");
        tab.send("weather?");
        world.run();
        tab.send("Oslo");
        world.run();
        let shown = if hook { "assistant: Which city?" } else { "assistant: [ask output-error]" };
        assert_eq!(world.said(), ["user: weather?", shown, "user: Oslo", "assistant: Oslo, then."]);
        assert_eq!(tab.said(), world.said(), "{}", tab.story());
        let sent = world.provider_requests().pop().unwrap();
        let roles =
            if hook { vec!["system", "user", "assistant", "user"] } else { vec!["system", "user", "assistant", "tool", "user"] };
        assert_eq!(sent.roles(), roles);
        assert_at_rest(&world);
    }
}

// §3.1, §3.2 rule 8: an unsettled call anywhere in the history is settled before a provider sees it, once, and nothing else changes.
#[test]
fn the_whole_history_is_put_right_before_it_is_sent() {
    for hook in [true, false] {
        let agent = if hook { agent().repairs(question) } else { agent() };
        let world = World::new(agent).model_fn(|_| text("fine"));
        let old: UiMessage = serde_json::from_value(json!({ "id": "old", "role": "assistant", "parts": [
            { "type": "tool-ask", "toolCallId": "c1", "state": "input-available", "input": { "prompt": "Which city?" } },
            { "type": "tool-look", "toolCallId": "c2", "state": "output-available", "input": "{\"a\":1}", "output": 7 },
        ] }))
        .unwrap();
        let handle = world.handle();
        let messages = vec![UiMessage::user("u0", "weather?"), old];
        world.block_on(async move { handle.add_messages(messages).await }).unwrap();
        let tab = world.connect("S1");
        tab.send("Oslo");
        world.run();
        let first = if hook {
            json!({ "type": "text", "text": "Which city?" })
        } else {
            json!({ "type": "tool-ask", "toolCallId": "c1", "state": "output-error", "input": { "prompt": "Which city?" }, "errorText": INTERRUPTED })
        };
        let second = json!({ "type": "tool-look", "toolCallId": "c2", "state": "output-available", "input": { "a": 1 }, "output": 7 });
        assert_eq!(parts(&world, 1), [first, second]);
        assert_eq!(tab.said(), world.said(), "{}", tab.story());
        let repaired: Vec<Value> =
            ["removedToolCalls", "normalizedInputs"].map(|field| fields(&world, "chat:transcript:repaired", field)[0].clone()).into();
        assert_eq!(repaired, [1, 1]);
        // The next turn finds nothing to do.
        let cost = world.meter().written;
        tab.send("thanks");
        world.run();
        assert!(world.meter().written - cost <= 20);
        assert_eq!(world.events_named("chat:transcript:repaired").len(), 1);
        assert_at_rest(&world);
    }
}

// §3.2 rule 5: what no provider would take is not put in the place of anything.
#[test]
fn an_open_call_is_no_repair_of_an_open_call() {
    let world = World::new(agent().repairs(|part| Some(part.clone()))).model(script![call("ask", json!({})), text("fine")]);
    let tab = page(&world, "S1");
    tab.send("weather?");
    world.run();
    tab.send("Oslo");
    world.run();
    assert_eq!(world.said()[1], "assistant: [ask output-error]");
    assert_eq!(fields(&world, "hook:failed", "hook"), ["repair_interrupted_tool_part"]);
    assert_at_rest(&world);
}

// §2.12: what is kept with a turn is bounded, goes with it, and is the last that was kept.
#[test]
fn a_stash_is_small_and_belongs_to_its_turn() {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let kept: Rc<RefCell<Option<TurnScope>>> = Rc::default();
    let (heard, keeps) = (answers.clone(), kept.clone());
    let agent = agent().tool("work", move |_, scope: TurnScope| {
        let (heard, keeps) = (heard.clone(), keeps.clone());
        async move {
            for value in [json!("x".repeat(limits::STASH)), json!({ "ok": true })] {
                let answer = scope.stash(value).await.map_err(|error| error.message().to_owned());
                heard.borrow_mut().push(answer);
            }
            *keeps.borrow_mut() = Some(scope);
            Ok(Value::Null)
        }
    });
    let world = World::new(agent).model(script![call("work", json!({})), text("").gate("g")]);
    world.connect("S1").send("work");
    world.run();
    assert_eq!(texts(&world, "SELECT stash FROM wk_turn"), [r#"{"ok":true}"#]);
    world.open_gate("g");
    world.run();
    let scope = kept.borrow_mut().take().unwrap();
    let late = world.block_on(async move { scope.stash(json!(1)).await });
    assert_eq!(late.unwrap_err().message(), "the turn of this value has ended");
    let answers = answers.borrow();
    assert!(answers[0].as_ref().unwrap_err().contains("limits::STASH") && answers[1] == Ok(()), "{answers:?}");
    assert_eq!(rows(&world, "wk_turn WHERE stash IS NOT NULL"), 0);
    assert_at_rest(&world);
}

// I29, W39: a turn of last week does not begin to type by itself. One that waited for a page is as old as its answer.
#[test]
fn a_turn_above_its_age_is_let_rest() {
    let aged = || agent().config(|config| config.chat_recovery.max_turn_age_ms = Some(3_600_000));
    let (world, tab) = begun(aged(), []);
    world.clock().skew(3_600_001);
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!((turns(&world), asked(&world), banners(&tab)), (vec!["failed max_turn_age_exceeded".into()], 1, vec![json!(DECLINED)]));
    assert!(world.said()[1].starts_with("assistant: word word"), "{:?}", world.said());
    assert_eq!((incidents(&world), tab.said()), (["detected", "attempt", "skipped"].map(String::from).into(), world.said()));
    assert_at_rest(&world);
    let world = World::new(aged()).model(script![call("look", json!({})), text_deltas(&["word "; 25]).gate("never"), text("the end")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    world.run_for(604_800_000);
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    die(&world);
    assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
    assert_at_rest(&world);
}

/// A world whose tool runs and hears no stop, in an object that a refused commit made begin anew.
fn deaf(max_attempts: u32) -> (World<Custom>, Client) {
    let (_, gates, tools) = gated(&["work"]);
    let patient = move |turn: &Turn| Tools::new().with(tools(turn).get("work").unwrap().clone().timeout_ms(600_000));
    let agent = agent().tools(patient).config(|config| config.chat_recovery.max_attempts = max_attempts);
    let world = World::new(agent).with_gates(&gates).model(script![call("work", json!({})), text("Done.")]);
    let tab = world.connect("S1");
    tab.send("work");
    world.run();
    world.db().fail(FaultAt::Commit, "disk I/O error: SQLITE_IOERR");
    world.run_for(31_000);
    assert_eq!(world.db().pending_faults(), 0);
    (world, tab)
}

// decision 38, `stable_timeout`: an attempt waits for what an earlier one in this incarnation left running, and is tried again; then it is
// given up.
#[test]
fn work_that_does_not_stop_is_waited_for_and_then_given_up() {
    let (world, tab) = deaf(3);
    world.run_for(60_000);
    assert_eq!((reasons(&world), banners(&tab), asked(&world)), (vec![json!("stable_timeout")], vec![json!(BANNER)], 1));
    assert_eq!(fields(&world, "chat:recovery:attempt", "attempt"), [1, 2, 3, 4]);
    assert_eq!(turns(&world), ["failed stable_timeout"]);
    world.open_gate("work");
    world.run();
    assert_eq!((world.said()[1].as_str(), tab.said()), ("assistant: [work output-error]", world.said()));
    assert_at_rest(&world);
    let (world, tab) = deaf(10);
    world.run_for(20_000);
    world.open_gate("work");
    world.run();
    assert_eq!((world.said()[1].as_str(), tab.said()), ("assistant: [work output-error] Done.", world.said()));
    assert_at_rest(&world);
}
