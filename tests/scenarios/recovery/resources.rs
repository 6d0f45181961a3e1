//! Recovery under faults of storage, alarms and clocks, and what it costs (`recovery.md` §7.9).

use super::*;

/// A conversation with a tool in the middle, whatever it is asked: words, the tool, words.
fn busy() -> World<Helper> {
    world().model_fn(|request| match request.roles().last() {
        Some(&"tool") => text_deltas(&["It ", "is ", "sunny."]),
        Some(&"user") if request.roles().len() > 2 => text("go on"),
        _ => text("Let me see.").call("weather", json!({ "city": "Oslo" })),
    })
}

/// Rows written while this runs.
fn written(world: &World<Custom>, run: impl FnOnce()) -> u64 {
    let before = world.meter().written;
    run();
    world.meter().written - before
}

// recovery 106; I23: an alarm that comes twice, early or late leads to what one in time leads to.
#[test]
fn alarms_may_come_twice_early_and_late() {
    let died = || {
        let (world, _tab) = begun(agent(), [text("the end")]);
        world.restart(Sockets::Closed);
        world
    };
    let waiting = || {
        let world = World::new(agent()).model(script![limited("45"), text("the end")]);
        world.connect("S1").send("hi");
        world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
        world.settle();
        world
    };
    let overdue = || {
        let world = World::new(agent().wait(ClientToolWait::Timeout(20_000))).model(script![call("look", json!({})), text("the end")]);
        let tab = page(&world, "S1");
        tab.send("look");
        world.settle();
        world
    };
    let running = || World::new(agent()).model(script![text_deltas(&["word "; 25]).delay(100_000).text("the end")]);
    let running = || {
        let world = running();
        world.connect("S1").send("hi");
        world.run_for(1_000);
        world
    };
    let owed = || {
        let gates = Gates::default();
        let (waits, once) = (gates.clone(), Cell::new(true));
        let agent = agent().on_response(move |_, _| {
            let (waits, hangs) = (waits.clone(), once.replace(false));
            async move {
                if hangs {
                    waits.wait("hook").await;
                }
            }
        });
        let world = World::new(agent).with_gates(&gates).model(script![text("the end")]);
        world.connect("S1").send("hi");
        world.run();
        world.restart(Sockets::Closed);
        world
    };
    let queued = || {
        let (world, tab) = begun(agent(), [text("the first"), text("the end")]);
        tab.send("and?");
        world.settle();
        world.restart(Sockets::Closed);
        world
    };
    let states: [&dyn Fn() -> World<Custom>; 6] = [&died, &waiting, &overdue, &running, &owed, &queued];
    for (n, state) in states.into_iter().enumerate() {
        let end = |disturb: &dyn Fn(&World<Custom>)| {
            let world = state();
            disturb(&world);
            world.run();
            assert_at_rest(&world);
            (world.said(), turns(&world), asked(&world), incidents(&world))
        };
        let in_time = end(&|_| {});
        assert!(in_time.0.last().is_some_and(|said| said.ends_with("the end")), "{n}: {in_time:?}");
        let due = |world: &World<Custom>| world.alarm_at().unwrap() - world.clock().now();
        let twice = end(&|world| {
            world.run_for(due(world));
            world.ring();
            world.ring();
        });
        let early = end(&|world| {
            world.run_for(due(world) - 1_000);
            world.ring();
        });
        let late = end(&|world| world.clock().skew(7_200_000));
        assert_eq!([twice, early, late], [in_time.clone(), in_time.clone(), in_time], "{n}");
    }
}

// recovery 107, W41; I23: the handler fails again and again, and there is always another alarm.
#[test]
fn a_handler_that_fails_seven_times_leaves_an_alarm() {
    let (world, _tab) = begun(agent(), [text("the end")]);
    world.restart(Sockets::Closed);
    for _ in 0..14 {
        // A step that fails is tried once more.
        world.db().fail(FaultAt::Commit, "disk I/O error: SQLITE_IOERR");
    }
    for n in 0..7 {
        world.run_for(31_000);
        assert!(world.alarm_at().is_some(), "{n}\n{}", world.story());
    }
    assert_eq!((world.db().pending_faults(), asked(&world)), (0, 1));
    world.run();
    assert!(world.said()[1].ends_with("the end"), "{:?}", world.said());
    assert_at_rest(&world);
}

// recovery 108; I2, K6: whichever statement of a recovery is refused, and the object with it, the conversation comes to the same end.
#[test]
fn any_statement_may_be_the_last_of_its_object() {
    for n in 1.. {
        let world = busy();
        let tab = world.connect("S1");
        tab.send("weather?");
        for _ in 0..20 {
            world.step();
        }
        world.restart(Sockets::Closed);
        world.db().fail(FaultAt::Statement(n), RESET);
        world.run();
        if world.db().pending_faults() > 0 {
            assert!(n > 40, "{n} statements");
            return;
        }
        world.reconnect(&tab);
        world.run();
        let said = world.said();
        assert!(said.len() == 2 && said[1].contains("[weather output-available]"), "{n}: {said:?}\n{}", world.story());
        assert_eq!((tab.said(), turns(&world)), (said, vec!["completed -".into()]), "{n}");
        // An event that was not told yet is lost with the object.
        assert_nothing_left(&world);
    }
}

// recovery 109, N8, decision 41; I12, I27: what a tool gave is not lost because it is large.
#[test]
fn five_megabytes_of_a_tool_are_the_same_after_a_death() {
    let large: String =
        (0..5_000_000 / 8).map(|n| format!("{n:07}ö").chars().take(7).chain(" ".chars()).collect::<String>()).collect();
    let output = large.clone();
    let seen = Seen::default();
    let runs = seen.clone();
    let agent = agent().tool("dump", move |_, _| {
        runs.add("dump");
        let output = output.clone();
        async { Ok(Value::String(output)) }
    });
    let world = World::new(agent).model(script![call("dump", json!({})), text("so ").gate("never"), text("That is a lot.")]);
    let tab = world.connect("S1");
    tab.send("dump");
    world.run();
    let sizes = world.db().query("SELECT max(length(CAST(body AS BLOB))) AS n FROM wk_seg");
    assert!(sizes[0]["n"].as_u64().unwrap() < 1_800_000, "{sizes:?}");
    for _ in 0..2 {
        die(&world);
        assert!(parts(&world, 1).iter().any(|part| part["output"] == large), "the whole output");
    }
    assert_eq!((seen.take().len(), asked(&world)), (1, 3));
    assert!(world.provider_requests()[2].texts().iter().any(|said| said.contains(&large[..64])));
    world.reconnect(&tab);
    world.run();
    assert_eq!(tab.said(), world.said());
    assert_at_rest(&world);
}

// recovery 110, decision 41; I1: eight megabytes are stored in parts or not at all.
#[test]
fn a_large_question_is_stored_whole_or_refused() {
    for (bytes, taken) in [(7_000_000, true), (8_500_000, false)] {
        let world = World::new(agent()).model(script![text("").gate("never"), text("answer")]);
        let tab = world.connect("S1");
        let request = tab.send(&"x".repeat(bytes));
        world.run();
        assert_eq!(rows(&world, "wk_msg"), u64::from(taken));
        if !taken {
            assert!(tab.terminals(&request)[0]["body"].as_str().unwrap().contains("limit"), "{}", tab.terminals(&request)[0]["body"]);
            assert_eq!((rows(&world, "wk_msg_part") + rows(&world, "wk_turn"), asked(&world)), (0, 0));
            continue;
        }
        die(&world);
        assert_eq!(parts(&world, 0)[0]["text"].as_str().unwrap().len(), bytes);
        assert_eq!((world.said()[1].as_str(), asked(&world)), ("assistant: answer", 2));
        assert_at_rest(&world);
    }
}

/// The statement by which a turn ends.
const CUTOVER: &str = "UPDATE wk_turn SET state = ?2, reason = ?3, ended_at";

// recovery 111; I27: what the database refuses for good ends the turn, and nothing is tried again.
#[test]
fn a_full_database_at_the_end_fails_the_turn_with_a_message() {
    for text in ["database or disk is full: SQLITE_FULL", "string or blob too big: SQLITE_TOOBIG", "SQLITE_CONSTRAINT: no"] {
        let world = World::new(agent()).model(script![text_deltas(&["word "; 25])]);
        let tab = world.connect("S1");
        world.db().fail(FaultAt::Matching(CUTOVER.into()), text);
        tab.send("hi");
        world.run();
        assert_eq!((turns(&world), asked(&world)), (vec!["failed recovery_error".into()], 1), "{text}");
        assert_eq!((reasons(&world), banners(&tab)), (vec![json!("recovery_error")], vec![json!(BANNER)]));
        assert!(world.said()[1].starts_with("assistant: word word"), "{:?}", world.said());
        assert_eq!(tab.said().len(), 2);
        world.answer(wakeful::testkit::text("fine"));
        tab.send("and now?");
        world.run();
        assert_eq!(world.said().last().map(String::as_str), Some("assistant: fine"));
        assert_at_rest(&world);
    }
}

// recovery 111: as long as it is full, no model is asked and nothing spins.
#[test]
fn a_database_that_stays_full_is_left_alone() {
    let (world, _tab) = begun(agent(), []);
    world.restart(Sockets::Closed);
    for _ in 0..500 {
        world.db().fail(FaultAt::Matching("UPDATE wk_turn".into()), "database or disk is full: SQLITE_FULL");
    }
    world.run_for(120_000);
    assert!(world.db().pending_faults() > 300, "nothing spins");
    assert_eq!((turns(&world), asked(&world)), (vec!["running -".into()], 1));
}

// recovery 111, §1.5: what is stored can be read while nothing can be written, whoever asks; and everything goes on when there is room.
#[test]
fn a_conversation_that_cannot_be_stored_can_be_read() {
    let (world, tab) = begun(agent(), [text("the end")]);
    let shown = world.said();
    world.restart(Sockets::Closed);
    world.db().refuse_writes("database or disk is full: SQLITE_FULL");
    world.run_for(60_000);
    world.reconnect(&tab);
    world.run_for(1_000);
    assert_eq!(tab.said()[..1], shown[..1], "{}", tab.story());
    assert_eq!((world.get_messages().len(), world.connect("S2").said().len()), (1, 1));
    let id = tab.send("more");
    world.run_for(1_000);
    let told = "This conversation can be read, but nothing can be stored at the moment. Try again later.";
    assert_eq!(tab.terminals(&id).iter().map(|end| end["body"].clone()).collect::<Vec<_>>(), [json!(told)]);
    tab.clear();
    world.run_for(1_000);
    assert_eq!(tab.said()[..1], shown[..1], "who cleared its own screen gets it back");
    assert_eq!((world.get_messages().len(), turns(&world), asked(&world)), (1, vec!["running -".into()], 1));
    world.db().heal();
    world.ring();
    world.run();
    assert!(world.said()[1].ends_with("the end"), "{}", world.story());
    assert_at_rest(&world);
}

// I1, recovery 110: an input that could not even be begun is not lost, and is done once.
#[test]
fn an_input_whose_transaction_could_not_begin_is_done_once() {
    for text in ["disk I/O error: SQLITE_IOERR", "database or disk is full: SQLITE_FULL", "out of memory: SQLITE_NOMEM"] {
        let world = World::new(agent()).model_fn(|_| wakeful::testkit::text("fine"));
        let tab = world.connect("S1");
        world.db().fail(FaultAt::Begin, text);
        tab.send("hi");
        world.run();
        assert_eq!((world.said(), world.db().pending_faults()), (vec!["user: hi".into(), "assistant: fine".into()], 0), "{text}");
        assert_eq!(tab.said(), world.said());
        world.db().fail(FaultAt::Begin, text);
        let handle = world.handle();
        let saved = world.block_on(async move { handle.save_messages(vec![UiMessage::user("a", "app")]).await });
        assert!(saved.is_ok(), "{text}: {saved:?}");
        assert_eq!((world.said().len(), asked(&world)), (4, 2));
        assert_at_rest(&world);
    }
}

// recovery 112, decision 38, W32: a page of the history that takes too much memory is read in half; a second time ends the turn.
#[test]
fn too_little_memory_is_one_smaller_page_and_then_the_end() {
    for (faults, end) in [(1, "completed -"), (2, "failed out_of_memory")] {
        let agent = agent().config(|config| config.hydration_budget = 4_000);
        let world = World::new(agent).model_fn(|_| text("fine"));
        let tab = world.connect("S1");
        for n in 0..6 {
            tab.send(&format!("{n} {}", "x".repeat(500)));
            world.run();
        }
        let before = world.provider_requests().pop().unwrap().messages().len();
        world.restart(Sockets::Kept);
        for _ in 0..faults {
            // Behind the transcript for the sender, in the step that reads the history for the model.
            world.db().fail(FaultAt::Matching("WITH RECURSIVE".into()), "out of memory: SQLITE_NOMEM");
        }
        tab.send("last");
        world.run();
        let last = turns(&world).into_iter().find(|turn| turn != "completed -").unwrap_or("completed -".into());
        assert_eq!((last.as_str(), world.db().pending_faults()), (end, 0), "{}", world.story());
        if faults == 1 {
            let after = world.provider_requests().pop().unwrap().messages().len();
            assert!(after < before, "{after} messages, {before} before");
        } else {
            assert_eq!((reasons(&world), banners(&tab)), (vec![json!("out_of_memory")], vec![json!(BANNER)]));
        }
        assert!(!world.connect("S2").said().is_empty());
        assert_at_rest(&world);
    }
}

// decision 38: an object or a worker that was called ran out of memory, and this one lives to hear it: one smaller attempt, then the end.
#[test]
fn a_call_that_ran_out_of_memory_is_made_once_more_with_less() {
    let failures: [fn() -> Reply; 2] =
        [|| wakeful::testkit::refused("Worker exceeded its memory limit."), || text_deltas(&["word "; 25]).broken(MEMORY)];
    for (n, fail) in failures.into_iter().enumerate() {
        for (times, end) in [(1, "completed -"), (2, "failed out_of_memory")] {
            let world = World::new(agent().config(|config| config.hydration_budget = 4_000));
            let asked = Cell::new(0);
            let world = world.model_fn(move |_| match asked.replace(asked.get() + 1) {
                at if (6..6 + times).contains(&at) => fail(),
                _ => text("fine"),
            });
            let tab = world.connect("S1");
            for n in 0..6 {
                tab.send(&format!("{n} {}", "x".repeat(500)));
                world.run();
            }
            tab.send("last");
            world.run();
            let sent: Vec<usize> = world.provider_requests()[6..].iter().map(|request| request.messages().len()).collect();
            assert!(sent.len() == 2 && sent[1] < sent[0], "{n}: {sent:?} messages");
            assert_eq!(turns(&world)[6], end, "{n}\n{}", world.story());
            let given_up = usize::from(times == 2);
            assert_eq!((reasons(&world), banners(&tab)), (vec![json!("out_of_memory"); given_up], vec![json!(BANNER); given_up]));
            assert_eq!(
                (tab.said(), fields(&world, "chat:recovery:scheduled", "delayMs")),
                (world.said(), vec![json!(0)]),
                "{n}\n{}",
                tab.story()
            );
            assert_at_rest(&world);
        }
    }
}

// decision 38: the same of a tool that calls another object; what it says of other memory is for the model.
#[test]
fn a_tool_that_ran_out_of_memory_is_an_interruption_with_less() {
    let cases = [
        (MEMORY, 1, true, "[dive output-available] fine", "completed -"),
        (MEMORY, 1, false, "[dive output-error] fine", "completed -"),
        (MEMORY, 2, true, "[dive output-error]", "failed out_of_memory"),
        ("the container exceeded its memory limit", 1, true, "[dive output-error] fine", "completed -"),
    ];
    for (error, times, pure, said, end) in cases {
        let left = Cell::new(times);
        let dive = tool("dive", move |_, _| {
            let fails = left.replace(left.get() - 1) > 0;
            async move { if fails { Err(ToolError::ToModel(error.into())) } else { Ok(json!("deep")) } }
        });
        let dive = if pure { dive.pure() } else { dive };
        let agent = agent().tools(move |_| Tools::new().with(dive.clone()));
        let world = World::new(agent).model(script![call("dive", json!({})), text("fine")]);
        let tab = world.connect("S1");
        tab.send("dive");
        world.run();
        assert_eq!(
            (world.said()[1].as_str(), turns(&world)),
            (format!("assistant: {said}").as_str(), vec![end.into()]),
            "{error} {times}"
        );
        assert_eq!(tab.said(), world.said(), "{}", tab.story());
        assert_at_rest(&world);
    }
}

// recovery 116, W-zombie; I7: the incarnation that was replaced stops at its next write, and nothing of it is shown or stored.
#[test]
fn a_replaced_incarnation_writes_and_shows_nothing() {
    let old = text_deltas(&["old "; 25]).gate("old").text("OLD").text(" OLD");
    let world = World::new(agent()).model(script![old, text("new ").gate("new").text("end")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.supersede(Sockets::Kept);
    world.run_for(31_000);
    assert_eq!(asked(&world), 2);
    world.open_gate("old");
    world.run();
    world.open_gate("new");
    world.run();
    assert_eq!(world.exchanges(), [Exchange::Dropped, Exchange::Read]);
    assert!(world.said()[1].ends_with("new end") && !world.said()[1].contains("OLD"), "{:?}", world.said());
    assert_eq!((tab.said(), tab.story().contains("OLD")), (world.said(), false));
    assert_at_rest(&world);
}

// recovery 117, W28: more turns than are kept, every tenth interrupted, leave their messages and nothing to do.
#[test]
fn any_number_of_turns_leaves_nothing_to_do() {
    // What is read of the conversation, and what is shown of it, is not the point here.
    let agent = agent().config(|config| config.hydration_budget = 1_000);
    let world = World::new(agent).model_fn(|request| match request.last_user().as_str() {
        "live" => text("fine"),
        _ => text_deltas(&["word "; 12]).gate("never"),
    });
    let tab = world.dial(Dial::new("S1").raw().query("quiet"));
    for n in 0..300 {
        let text = if n % 10 == 0 { "die" } else { "live" };
        let message = json!({ "id": format!("q{n}"), "role": "user", "parts": [{ "type": "text", "text": text }] });
        let body = json!({ "messages": [message] }).to_string();
        let init = json!({ "method": "POST", "body": body });
        tab.frame(json!({ "id": format!("r{n}"), "type": "cf_agent_use_chat_request", "init": init }));
        world.settle();
        if n % 10 == 0 {
            world.restart(Sockets::Kept);
            world.run();
            world.gates().pass("never", 1);
            world.run();
        }
    }
    assert_eq!(
        (rows(&world, "wk_attempt"), rows(&world, "wk_seg"), rows(&world, "wk_outbox"), rows(&world, "wk_notice")),
        (0, 0, 0, 0)
    );
    assert!(rows(&world, "wk_turn") < 220, "{} turns are kept", rows(&world, "wk_turn"));
    assert_at_rest(&world);
}

// recovery 118, W27; I15, I23, I24: a day of rest after a recovery costs nothing, parked or not.
#[test]
fn a_day_of_rest_costs_nothing() {
    let idle = begun(agent(), [text("the end")]).0;
    die(&idle);
    let parked = World::new(agent()).model(script![text("").gate("never"), call("look", json!({}))]);
    let tab = page(&parked, "S1");
    tab.send("look");
    parked.run();
    die(&parked);
    assert_parked(&parked);
    for world in [idle, parked] {
        let (rows, meter, alarms, events) = (world.db().snapshot(), world.meter(), world.alarms().len(), world.events().len());
        world.run_for(86_400_000);
        assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
        assert_eq!((world.meter(), world.alarms().len(), world.events().len()), (meter, alarms, events));
    }
}

// recovery 119; I24: twenty rows, two for a flush, one for an alarm; a recovery adds twelve.
#[test]
fn two_thousand_chunks_cost_two_rows_for_ten_of_them() {
    for dies in [false, true] {
        let world = World::new(agent()).model(script![text_deltas(&["w"; 2_000]).gate("g"), text("!")]);
        let tab = world.socket("S1");
        let mut rows = written(&world, || {
            tab.send("hi");
            world.run();
        });
        if dies {
            world.restart(Sockets::Kept);
            rows += written(&world, || world.run());
        } else {
            rows += written(&world, || {
                world.open_gate("g");
                world.run();
            });
        }
        assert!(rows <= 20 + 2 * 202 + if dies { 12 } else { 0 }, "{rows} rows, dies: {dies}");
        assert_at_rest(&world);
    }
}

// I24: what recovering costs, by what was interrupted: twelve rows more than the same turn undisturbed.
#[test]
fn a_recovery_costs_twelve_rows_at_most() {
    let tools = || gated(&["look"]).2;
    let cases: [(&str, Vec<Reply>, Vec<Reply>); 3] = [
        ("nothing said", vec![text("answer")], vec![text("").gate("never"), text("answer")]),
        ("in mid-answer", vec![text_deltas(&["w"; 40])], vec![text_deltas(&["w"; 20]).gate("never"), text_deltas(&["w"; 20])]),
        (
            "a tool",
            vec![call("nope", json!({})), text("answer")],
            vec![call("nope", json!({})), text("").gate("never"), text("answer")],
        ),
    ];
    for (name, undisturbed, interrupted) in cases {
        let run = |script: Vec<Reply>, dies: bool| {
            let world = World::new(agent().tools(tools())).model(script);
            let tab = world.socket("S1");
            let mut rows = written(&world, || {
                tab.send("hi");
                world.run();
            });
            if dies {
                world.restart(Sockets::Kept);
                rows += written(&world, || world.run());
            }
            assert_at_rest(&world);
            rows
        };
        let (quiet, recovered) = (run(undisturbed, false), run(interrupted, true));
        assert!(recovered <= quiet + 12, "{name}: {recovered} rows, undisturbed {quiet}");
    }
}

// I26: what an attempt costs does not grow with those before it, and what they left is put together in their order.
#[test]
fn the_thirtieth_attempt_reads_no_more_than_the_second() {
    let agent = agent().config(|config| {
        config.chat_stream_stall_timeout_ms = Some(2_000);
        config.chat_recovery = ChatRecovery { max_attempts: 100, no_progress_timeout_ms: u32::MAX, ..ChatRecovery::default() };
    });
    let script = (1..=30).map(|n| if n % 10 == 0 { text(&format!("{n} ")).stall() } else { silence() });
    let world = World::new(agent).model(script.chain([text("end")]).collect::<Vec<_>>());
    world.connect("S1").send("hi");
    let (mut costs, mut before) = (Vec::new(), 0);
    for n in 1..=30 {
        world.run_until(|world| asked(world) == n + 1);
        let now = world.db().steps();
        costs.push(now - std::mem::replace(&mut before, now));
    }
    world.run();
    assert_eq!(world.said()[1], "assistant: 10  20  30  end");
    // The first ten have nothing to carry along, the next ten the same.
    assert!(costs[28] == costs[11] && costs[8] == costs[1], "{costs:?}");
    assert_at_rest(&world);
}

// recovery 121, I25, I26: one turn of twenty cannot be read; the others are answered, and nothing waits longer than for its end.
#[test]
fn one_poisoned_turn_of_twenty_holds_up_nobody() {
    let (world, tab) = begun(agent(), []);
    for n in 1..20 {
        tab.send(&format!("q{n}"));
    }
    world.run();
    for _ in 0..limits::RECOVERY_CLAIMS {
        world.db().fail(FaultAt::Matching("seq_to, body FROM wk_seg".into()), "disk I/O error: SQLITE_IOERR");
    }
    world.answer(Script::function(|request| text(&format!("to {}", request.last_user()))));
    world.restart(Sockets::Kept);
    let began = world.clock().passed();
    world.run();
    assert!(world.clock().passed() - began <= 31_000, "the alarm, and no wait behind it");
    let ended = turns(&world);
    assert_eq!((ended[0].as_str(), ended[1..].iter().filter(|turn| *turn == "completed -").count()), ("failed recovery_error", 19));
    assert_eq!(world.said().last().map(String::as_str), Some("assistant: to q19"));
    assert_at_rest(&world);
}
