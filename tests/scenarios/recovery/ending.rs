//! How recovery ends: given up, declined, overtaken, and what hooks and events say of it (`recovery.md` §7.6).

use super::*;

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

/// Brings a turn to its fifth death, each in a watched answer.
fn five_deaths(agent: Custom, words: usize) -> (World<Custom>, Client) {
    let world = World::new(agent).model_fn(move |request| match request.last_user().as_str() {
        "hello" => text("hi there"),
        _ => text_deltas(&vec!["word "; words]).gate("never"),
    });
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    for _ in 0..4 {
        world.restart(Sockets::Kept);
        world.run_for(31_000);
    }
    (world, tab)
}

// recovery 75, Q6, Q7: who is there is told once, and the application what it was.
#[test]
fn giving_up_is_told_once_to_tabs_events_and_the_application() {
    let told = Rc::new(RefCell::new(Vec::new()));
    let hears = told.clone();
    let agent = agent().exhausted_hook(move |turn| {
        hears.borrow_mut().push(turn);
        async {}
    });
    let (world, tab) = five_deaths(agent, 30);
    world.restart(Sockets::Kept);
    world.run();
    let (event, row) = (world.events_named("chat:recovery:exhausted"), world.db().query("SELECT * FROM wk_turn").pop().unwrap());
    let told = told.borrow();
    assert_eq!((told.len(), event.len(), banners(&tab)), (1, 1, vec![json!(BANNER)]));
    let expected = RecoveryExhausted {
        incident_id: row["id"].as_str().unwrap().into(),
        root_request_id: row["root_request_id"].as_str().unwrap().into(),
        request_id: row["request_id"].as_str().unwrap().into(),
        attempt: 1,
        max_attempts: 10,
        kind: RecoveryKind::Continue,
        stream_id: told[0].stream_id.clone(),
        created_at: wakeful::time::Millis(row["created_at"].as_i64().unwrap()),
        reason: RecoveryReason::InterruptedAttemptsExceeded,
        terminal_message: BANNER.into(),
        partial_text: told[0].partial_text.clone(),
        partial_parts: parts(&world, 1).iter().map(|part| part.as_object().unwrap().clone().into_iter().collect()).collect(),
    };
    assert_eq!(format!("{:?}", told[0]), format!("{expected:?}"));
    assert!(told[0].partial_text.starts_with("word word") && !told[0].stream_id.is_empty());
    assert_eq!(event[0].fields["incidentId"], *told[0].incident_id);
    assert!(!tab.recovering());
    assert_at_rest(&world);
}

// recovery 76, I20: an hour later, once; a newer turn takes it down.
#[test]
fn who_comes_an_hour_later_is_told_until_a_newer_turn() {
    let (world, tab) = five_deaths(agent(), 30);
    world.restart(Sockets::Closed);
    world.run();
    world.run_for(3_600_000);
    world.reconnect(&tab);
    world.run();
    assert_eq!(banners(&tab), [BANNER]);
    let frames = tab.frames();
    let [offered, told] = [
        frames.iter().rposition(|frame| frame["type"] == "cf_agent_stream_resuming"),
        frames.iter().position(|frame| frame["error"] == true),
    ];
    assert!(offered.is_some() && offered < told, "{}", tab.story());
    tab.send("hello");
    world.run();
    world.disconnect(&tab);
    world.reconnect(&tab);
    world.run();
    assert_eq!((banners(&tab), tab.status()), (vec![], Status::Ready), "not on the new socket\n{}", tab.story());
    assert_at_rest(&world);
}

// recovery 77; I2, I3, I14, W42: whatever the step at which the object dies, the turn ends as one.
#[test]
fn giving_up_is_whole_whenever_the_object_dies() {
    let begin = || {
        let (_, gates, tools) = gated(&["work"]);
        let agent = agent().tools(tools).config(|config| config.chat_recovery.max_interrupted_attempts = Some(1));
        let world = World::new(agent).with_gates(&gates).model(script![text_deltas(&["word "; 25]).call("work", json!({}))]);
        let handle = world.handle();
        let options = SubmitOptions { submission_id: Some("A".into()), ..SubmitOptions::default() };
        world.block_on(async move { handle.submit_messages(vec![UiMessage::user("m1", "work")], options).await }).unwrap();
        world.run();
        let tab = world.connect("S1");
        world.restart(Sockets::Kept);
        // Something has to wake it: a tab that asks.
        tab.probe();
        (world, tab)
    };
    for at in 0..15 {
        let (world, tab) = begin();
        for _ in 0..at {
            world.step();
        }
        die(&world);
        world.reconnect(&tab);
        world.run();
        assert_eq!(turns(&world), ["failed interrupted_attempts_exceeded"], "{at}");
        assert_eq!(texts(&world, "SELECT status FROM wk_submission"), ["error"], "{at}");
        assert_eq!((rows(&world, "wk_notice"), reasons(&world).len()), (1, 1), "{at}");
        assert!(world.said()[1].ends_with("[work output-error]"), "{at}: {:?}", world.said());
        assert_eq!((tab.status(), tab.said()), (Status::Error(BANNER.into()), world.said()), "{at}\n{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 75, 78; I30, N5: owed until it returned, with the same id; who watches does not wait for it.
#[test]
fn on_exhausted_is_called_again_after_a_death_and_holds_up_nobody() {
    let ids = Rc::new(RefCell::new(Vec::new()));
    let heard = ids.clone();
    let agent = agent().exhausted_hook(move |turn| {
        heard.borrow_mut().push(turn.incident_id);
        std::future::pending()
    });
    let (world, tab) = five_deaths(agent, 30);
    world.restart(Sockets::Kept);
    world.run_for(31_000);
    world.restart(Sockets::Kept);
    world.run_for(31_000);
    assert_eq!((ids.borrow().len(), banners(&tab)), (2, vec![json!(BANNER)]));
    assert_eq!(ids.borrow()[0], ids.borrow()[1]);
    tab.send("hello");
    world.run_for(1_000);
    assert_eq!(world.said().last().map(String::as_str), Some("assistant: hi there"), "a hook that hangs holds up no turn");
    world.run();
    assert_eq!(ids.borrow().len(), 2, "a hook that took its time is not called again");
    assert_at_rest(&world);
}

// recovery 79: an application that fails is no silence.
#[test]
fn an_application_that_fails_ends_the_turn_and_says_so() {
    let agent = agent().recovery_hook(|_, _| async { Err(Error::application("no database")) });
    let (world, tab) = begun(agent, []);
    world.restart(Sockets::Kept);
    world.run();
    let failed = world.events_named("chat:recovery:failed");
    assert_eq!(
        (failed.len(), &failed[0].fields["reason"], &failed[0].fields["error"]),
        (1, &json!("recovery_error"), &json!("no database"))
    );
    assert_eq!((turns(&world), banners(&tab), asked(&world)), (vec!["failed recovery_error".into()], vec![json!(BANNER)], 1));
    assert_eq!((tab.said(), reasons(&world)), (world.said(), vec![]));
    assert_at_rest(&world);
}

// recovery 80, I30, N4
#[test]
fn an_application_that_hangs_has_ten_seconds() {
    let (world, tab) = begun(agent().recovery_hook(|_, _| std::future::pending()), [text("the end")]);
    world.restart(Sockets::Kept);
    world.run_for(40_001);
    assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
    assert_eq!(fields(&world, "hook:failed", "hook"), ["on_chat_recovery"]);
    assert_eq!(tab.said(), world.said());
    assert_at_rest(&world);
}

// recovery 81, D23, I29: the application lets a turn of twenty minutes ago rest.
#[test]
fn an_old_turn_is_declined_by_its_age() {
    let agent = agent().recovery_hook(|handle, info| async move {
        Ok(RecoveryDecision { go_on: handle.now().since(info.created_at) < 900_000, ..RecoveryDecision::default() })
    });
    let world = World::new(agent).model(script![text_deltas(&["word "; 25]).gate("never")]);
    let handle = world.handle();
    let options = SubmitOptions { submission_id: Some("A".into()), ..SubmitOptions::default() };
    world.block_on(async move { handle.submit_messages(vec![UiMessage::user("m1", "hi")], options).await }).unwrap();
    world.run();
    let tab = world.connect("S1");
    world.clock().skew(1_200_000);
    world.restart(Sockets::Kept);
    world.run();
    let submission = world.db().query("SELECT status, error FROM wk_submission");
    assert_eq!(json!(submission), json!([{ "status": "error", "error": DECLINED }]));
    assert_eq!((turns(&world), banners(&tab), asked(&world)), (vec!["failed continue_disabled".into()], vec![json!(DECLINED)], 1));
    assert!(world.said()[1].starts_with("assistant: word word"), "{:?}", world.said());
    assert_eq!(incidents(&world), ["detected", "attempt", "skipped"]);
    assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["continue_disabled"]);
    assert_at_rest(&world);
}

// recovery 82: the last value that was kept is given back.
#[test]
fn the_last_stash_is_given_back() {
    let data = Rc::new(RefCell::new(Vec::new()));
    let heard = data.clone();
    let gates = Gates::default();
    let inner = gates.clone();
    let agent = agent()
        .tool("work", move |_, scope: TurnScope| {
            let gates = inner.clone();
            async move {
                for n in 1..=3 {
                    scope.stash(json!({ "done": n })).await.map_err(|e| ToolError::from(e.message()))?;
                }
                gates.wait("work").await;
                Ok(Value::Null)
            }
        })
        .on_recovery(move |info| {
            heard.borrow_mut().push(info.recovery_data.clone());
            RecoveryDecision::default()
        });
    let world = World::new(agent).with_gates(&gates).model(script![call("work", json!({})), text("Done.")]);
    let tab = world.connect("S1");
    tab.send("work");
    world.run();
    die(&world);
    assert_eq!(*data.borrow(), [Some(json!({ "done": 3 }))]);
    assert_eq!(texts(&world, "SELECT stash FROM wk_turn WHERE stash IS NOT NULL"), Vec::<String>::new(), "it goes with its turn");
    assert_at_rest(&world);
}

// recovery 83: everything the application may want to know, with and without a stream.
#[test]
fn the_application_is_told_everything_about_an_interrupted_turn() {
    for words in [0, 25] {
        let infos = Rc::new(RefCell::new(Vec::new()));
        let heard = infos.clone();
        let agent = agent().on_recovery(move |info| {
            heard.borrow_mut().push(info.clone());
            RecoveryDecision::default()
        });
        let world = World::new(agent).model(script![text_deltas(&vec!["word "; words]).gate("never"), text("the end")]);
        let tab = page(&world, "S1");
        tab.set_body(json!({ "clientTools": [{ "name": "look" }], "mood": "good" }));
        let root = tab.send("hi");
        world.run();
        let created = wakeful::time::Millis(world.db().query("SELECT created_at AS at FROM wk_turn")[0]["at"].as_i64().unwrap());
        let incident = texts(&world, "SELECT id FROM wk_turn").pop().unwrap();
        world.restart(Sockets::Kept);
        world.run_until(|_| !infos.borrow().is_empty());
        let request = texts(&world, "SELECT request_id FROM wk_turn").pop().unwrap();
        let infos = infos.borrow();
        // What was flushed: of the first twenty chunks three open the message, its step and its text.
        let partial = "word ".repeat(if words == 0 { 0 } else { 17 });
        let expected = RecoveryInfo {
            incident_id: incident.clone(),
            root_request_id: root,
            request_id: request,
            attempt: 1,
            max_attempts: 10,
            kind: if words == 0 { RecoveryKind::Retry } else { RecoveryKind::Continue },
            stream_id: if words == 0 { String::new() } else { format!("{incident}.1") },
            partial_text: partial,
            partial_parts: infos[0].partial_parts.clone(),
            recovery_data: None,
            body: Some(json!({ "mood": "good" })),
            client_tools: infos[0].client_tools.clone(),
            created_at: created,
            age_ms: world.clock().now().since(created),
            work: 0,
        };
        assert_eq!(format!("{:?}", infos[0]), format!("{expected:?}"));
        let tools: Vec<&str> = infos[0].client_tools.iter().map(|tool| &*tool.spec.name).collect();
        assert_eq!(tools, ["look"]);
        let said = json!([{ "type": "step-start" }, { "type": "text", "text": infos[0].partial_text, "state": "done" }]);
        assert_eq!(json!(infos[0].partial_parts), if words == 0 { json!([]) } else { said });
    }
}

// recovery 84, D21, decision 35: what it answered was edited away; the newer branch is answered.
#[test]
fn a_turn_whose_question_was_edited_is_skipped() {
    let world = World::new(agent()).model(script![text("so ").cut(), text("better answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    world.settle();
    tab.edit(tab.messages()[0]["id"].as_str().unwrap(), "better question");
    world.run();
    assert_eq!(world.said(), ["user: better question", "assistant: better answer"]);
    assert_eq!(turns(&world), ["skipped conversation_changed", "completed -"]);
    assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["conversation_changed"]);
    assert_eq!((tab.said(), asked(&world)), (world.said(), 2), "{}", tab.story());
    assert_at_rest(&world);
}

// recovery 84: also where it was edited while the application is asked about the interrupted answer.
#[test]
fn a_turn_whose_question_was_edited_while_it_is_taken_up_is_skipped() {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = agent().recovery_hook(move |_, _| {
        let waits = waits.clone();
        async move {
            waits.wait("hook").await;
            Ok(RecoveryDecision::default())
        }
    });
    let world = World::new(agent).with_gates(&gates).model(script![text_deltas(&["word "; 25]).gate("never"), text("better answer")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    tab.edit(tab.messages()[0]["id"].as_str().unwrap(), "better question");
    world.run();
    world.open_gate("hook");
    world.run();
    assert_eq!(world.said(), ["user: better question", "assistant: better answer"]);
    assert_eq!(fields(&world, "chat:recovery:skipped", "reason"), ["conversation_changed"]);
    assert_eq!((tab.said(), asked(&world)), (world.said(), 2), "{}", tab.story());
    assert_at_rest(&world);
}

// recovery 85: what is told of an incident, and in which order, by what came of it.
#[test]
fn every_incident_is_told_in_order() {
    let told = |world: &World<Custom>| incidents(world).join(" ");
    let stalls = |agent: Custom| agent.config(|config| config.chat_stream_stall_timeout_ms = Some(2_000));
    let world = World::new(stalls(agent())).model(script![silence(), text("so ").stall(), text("on ").cut(), text("end")]);
    world.connect("S1").send("hi");
    world.run();
    assert_eq!(told(&world), "detected attempt scheduled attempt scheduled attempt scheduled completed");
    let (world, _tab) = begun(agent(), [http_error(401, json!({ "error": { "message": "bad key" } }))]);
    die(&world);
    assert_eq!(told(&world), "detected attempt scheduled failed");
    let (world, _tab) = begun(agent(), [text("").gate("g")]);
    die(&world);
    let handle = world.handle();
    world.block_on(async move { handle.abort_all_requests().await }).unwrap();
    world.run();
    assert_eq!(told(&world), "detected attempt scheduled skipped");
    let (world, _tab) = five_deaths(agent(), 3);
    die(&world);
    assert_eq!(told(&world), format!("detected {}attempt exhausted", "attempt scheduled ".repeat(4)));
    let all = world.events();
    let mut ids = all.iter().filter(|event| event.name.starts_with("chat:recovery:")).map(|event| event.fields["incidentId"].clone());
    let first = ids.next();
    assert!(ids.all(|id| Some(id) == first));
}

// recovery W42; I14: a call that might have run again is closed with the turn that is given up.
#[test]
fn a_call_that_may_run_again_is_closed_with_its_turn() {
    let gates = Gates::new();
    let waits = gates.clone();
    let agent = agent().config(|config| config.chat_recovery.max_interrupted_attempts = Some(2)).tools(move |_| {
        let waits = waits.clone();
        let look = tool("look", move |_, _| {
            let waits = waits.clone();
            async move {
                waits.wait("look").await;
                Ok(json!("seen"))
            }
        });
        Tools::new().with(look.keyed())
    });
    let world = World::new(agent).with_gates(&gates).model(script![call("look", json!({}))]);
    world.connect("S1").send("look");
    world.run();
    for _ in 0..2 {
        die(&world);
    }
    assert_eq!(turns(&world), ["failed interrupted_attempts_exceeded"]);
    assert_eq!(parts(&world, 1)[1]["errorText"], INTERRUPTED);
    assert_at_rest(&world);
}

/// The ends of legs that events told: status, reason, model calls.
fn ends(world: &World<Custom>) -> Vec<Value> {
    let fields = "requestId trigger admission continuation status reason durationMs modelCalls finishReason usage rowsWritten";
    let told = world.events_named("chat:turn:finish").into_iter().map(|event| {
        assert_eq!(event.fields.keys().cloned().collect::<Vec<_>>().join(" "), fields);
        let known = [&event.fields["durationMs"], &event.fields["usage"], &event.fields["rowsWritten"]];
        assert!(known.iter().all(|field| field.is_null() == event.fields["modelCalls"].is_null()), "{:?}", event.fields);
        json!([event.fields["status"], event.fields["reason"], event.fields["modelCalls"]])
    });
    told.collect()
}

// recovery §2.13: an end is told with the same fields, whatever it came by.
#[test]
fn every_end_of_a_leg_is_told_with_the_same_fields() {
    let lost = agent().config(|config| config.chat_recovery.enabled = false);
    let declines = agent().on_recovery(|_| RecoveryDecision { go_on: false, ..RecoveryDecision::default() });
    let merging = agent().config(|config| config.message_concurrency = MessageConcurrency::Merge);
    let fatal = http_error(400, json!({ "error": { "message": "no such model" } }));
    let silent = agent().config(|config| {
        config.chat_stream_stall_timeout_ms = Some(2_000);
        config.chat_recovery.max_attempts = 1;
    });
    type Life = Box<dyn Fn(&World<Custom>, &Client, &str)>;
    let slow = || text("so ").gate("g");
    let cases: Vec<(Custom, Vec<Reply>, Life, Value)> = vec![
        (agent(), vec![text("fine")], Box::new(|_, _, _| {}), json!([["completed", null, 1]])),
        (agent(), vec![fatal], Box::new(|_, _, _| {}), json!([["error", null, 1]])),
        (agent(), vec![slow()], Box::new(|_, tab, request| tab.cancel(request)), json!([["aborted", null, 1]])),
        (
            agent(),
            vec![slow()],
            Box::new(|world, tab, _| {
                tab.send("and?");
                world.run();
                tab.clear();
            }),
            json!([["aborted", "history_cleared", 1], ["stale", "history_cleared", null]]),
        ),
        (
            agent(),
            vec![slow()],
            Box::new(|world, tab, _| {
                let queued = tab.send("and?");
                world.run();
                tab.cancel(&queued);
                world.run();
                world.open_gate("g");
            }),
            json!([["completed", null, 1], ["aborted", "cancelled before its slot", null]]),
        ),
        (
            merging,
            vec![slow(), text("both")],
            Box::new(|world, tab, _| {
                ["b", "c"].iter().for_each(|text| drop(tab.send(text)));
                world.run();
                world.open_gate("g");
            }),
            json!([["completed", null, 1], ["skipped", "superseded", null], ["completed", null, 1]]),
        ),
        (lost, vec![slow()], Box::new(|world, _, _| die(world)), json!([["aborted", "interrupted", null]])),
        (declines, vec![slow()], Box::new(|world, _, _| die(world)), json!([["error", "continue_disabled", null]])),
        (silent, vec![silence(), silence()], Box::new(|_, _, _| {}), json!([["error", "max_attempts_exceeded", 1]])),
    ];
    for (agent, script, live, expected) in cases {
        let world = World::new(agent).model(script);
        let tab = world.connect("S1");
        let request = tab.send("a");
        world.run_for(100);
        live(&world, &tab, &request);
        world.run();
        assert_eq!(json!(ends(&world)), expected, "{}", world.story());
    }
}
