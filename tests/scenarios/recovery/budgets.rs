//! Bounds of recovery: deaths, work, time, and the application's own word (`recovery.md` §7.4).

use super::*;

// recovery 43, 76; I10: five lives, then it is said that it did not work, to a client that comes an hour later too.
#[test]
fn a_turn_that_kills_its_object_every_time_is_given_up() {
    let world = World::new(agent()).model_fn(|_| text_deltas(&["word "; 30]).gate("never"));
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

// recovery 47, 48, 53: deaths that are progress do not count as attempts, but as deaths.
#[test]
fn progress_resets_the_attempts() {
    let agent = agent().config(|config| config.chat_recovery.max_interrupted_attempts = None);
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
    let agent = agent().keeps_recovering(|_| false);
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

// recovery 55, I28: whether it is asked is read from rows: the object may die while the turn waits for a provider.
#[test]
fn the_application_is_asked_also_where_the_object_died_in_the_wait() {
    for dies in [false, true] {
        let world = World::new(agent().keeps_recovering(|_| false)).model_fn(|_| limited("45"));
        let tab = world.connect("S1");
        tab.send("hi");
        world.run_until(|world| world.events_named("chat:recovery:scheduled").len() == 2);
        world.settle();
        if dies {
            world.restart(Sockets::Kept);
        }
        world.run();
        assert_eq!((reasons(&world), asked(&world)), (vec![json!("recovery_aborted")], 2), "dies: {dies}");
        assert_eq!((turns(&world), banners(&tab)), (vec!["failed recovery_aborted".into()], vec![json!(BANNER)]));
        assert_at_rest(&world);
    }
}

/// The counters of the only turn.
fn counters(world: &World<Custom>) -> Map<String, Value> {
    world.db().query("SELECT since_progress, interrupted, transient FROM wk_turn").pop().unwrap()
}

/// A world whose answers never end, each after so many words, with one message, that is in its first answer.
fn endless(agent: Custom, words: usize) -> (World<Custom>, Client) {
    let world = World::new(agent).model_fn(move |_| text_deltas(&vec!["word "; words]).gate("never"));
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    (world, tab)
}

// recovery 44, I11, W2: memory runs out in each attempt before it has written anything, and it was counted all the same.
#[test]
fn attempts_that_die_of_memory_before_their_first_commit_are_counted() {
    let (world, _tab) = endless(agent(), 12);
    for _ in 0..10 {
        // What was written is read again, in a transaction behind the one that counts.
        world.db().fail(FaultAt::Matching("seq_to, body FROM wk_seg".into()), MEMORY);
        world.restart(Sockets::Closed);
        world.run_for(31_000);
    }
    world.run();
    assert_eq!((asked(&world), turns(&world)), (1, vec!["failed recovery_error".into()]));
    assert!(incidents(&world).iter().filter(|name| *name == "attempt").count() <= 5, "{:?}", incidents(&world));
    assert_at_rest_but_for_the_log(&world);
}

// recovery 44, I11, W2: the same where memory takes everything along that is not on disk yet: the count is, before the model is asked.
#[test]
fn attempts_that_die_with_all_that_was_pending_are_counted() {
    let world = World::new(agent()).slow_disk().model_fn(|_| text("").gate("never"));
    world.connect("S1").send("hi");
    world.run();
    for n in 1..=5 {
        assert_eq!((asked(&world), counters(&world)["interrupted"].as_i64()), (n, Some(n as i64 - 1)));
        world.die(Death::Memory);
        world.run_for(31_000);
    }
    world.run();
    assert_eq!((asked(&world), reasons(&world)), (5, vec![json!("interrupted_attempts_exceeded")]));
    assert_at_rest(&world);
}

// I11, I25, I26: also a turn that gets no other attempt is counted before it is read, and is brought to rest unread in the end.
#[test]
fn a_turn_whose_end_cannot_be_read_ends_all_the_same() {
    let one_life = agent().config(|config| config.chat_recovery.max_interrupted_attempts = Some(1));
    let young = agent().config(|config| config.chat_recovery.max_turn_age_ms = Some(10_000));
    for agent in [one_life, young] {
        let (world, tab) = endless(agent, 12);
        for _ in 0..10 {
            world.db().fail(FaultAt::Matching("seq_to, body FROM wk_seg".into()), RESET);
            world.restart(Sockets::Closed);
            world.run_for(31_000);
        }
        world.run();
        assert_eq!((asked(&world), turns(&world)), (1, vec!["failed recovery_error".into()]));
        world.reconnect(&tab);
        tab.send("and now?");
        world.run_until(|world| asked(world) == 2);
        world.open_gate("never");
        world.run();
        assert_eq!(turns(&world)[1], "completed -");
    }
}

/// As [`assert_at_rest`], for a turn that was sealed unread.
#[track_caller]
fn assert_at_rest_but_for_the_log(world: &World<Custom>) {
    let faults = world.db().pending_faults();
    assert_at_rest(world);
    assert!(faults > 0, "the end did not need what could not be read");
}

// recovery 45, W2: alarms that have nothing to do with a death take nothing back.
#[test]
fn alarms_between_deaths_do_not_reset_the_count() {
    let (world, _tab) = endless(agent(), 30);
    die_often(&world, 12, 95_000);
    assert!(world.alarms().len() > 12);
    assert_eq!((asked(&world), reasons(&world)), (5, vec![json!("interrupted_attempts_exceeded")]));
    assert_at_rest(&world);
}

// recovery 46: nothing dies and nothing is written. The row's ten times 31 s are longer than the time bound, which comes first in
// §2.8: with more patience it is the attempts that bind.
#[test]
fn ten_attempts_without_a_word_are_enough() {
    for (patience, reason) in [(300_000, "no_progress_timeout"), (3_600_000, "max_attempts_exceeded")] {
        let agent = agent().config(|config| {
            config.chat_stream_stall_timeout_ms = Some(31_000);
            config.chat_recovery.no_progress_timeout_ms = patience;
        });
        let world = World::new(agent).model_fn(|_| silence());
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        assert_eq!((asked(&world), reasons(&world), banners(&tab)), (11, vec![json!(reason)], vec![json!(BANNER)]));
        assert_at_rest(&world);
    }
}

// recovery 47: a deployment wakes the object eight times in twenty seconds, which is one attempt.
#[test]
fn a_burst_of_deaths_is_one_attempt() {
    let (world, _tab) = endless(agent().config(|config| config.chat_recovery.max_interrupted_attempts = None), 0);
    for _ in 0..8 {
        world.restart(Sockets::Closed);
        world.socket("S2");
        world.run_for(2_500);
    }
    assert!(fields(&world, "chat:recovery:attempt", "attempt").iter().all(|attempt| attempt == 1), "{:?}", world.events());
    assert_eq!(json!(counters(&world)), json!({ "since_progress": 0, "interrupted": 8, "transient": 0 }));
}

// recovery 48: four deployments, each after a few words.
#[test]
fn four_deployments_of_a_turn_that_gets_on_are_four_first_attempts() {
    let (world, _tab) = endless(agent(), 30);
    die_often(&world, 4, 31_000);
    assert_eq!(fields(&world, "chat:recovery:attempt", "attempt"), [1, 1, 1, 1]);
    assert_eq!((asked(&world), turns(&world)), (5, vec!["running -".into()]));
    world.open_gate("never");
    world.run();
    assert_eq!(turns(&world), ["completed -"]);
    assert_at_rest(&world);
}

// recovery 49, N2: six minutes without progress, but one attempt.
#[test]
fn a_late_alarm_is_no_reason_to_give_up() {
    let (world, _tab) = endless(agent(), 0);
    die(&world);
    world.clock().skew(360_000);
    die(&world);
    assert_eq!((reasons(&world), asked(&world)), (vec![], 3));
}

// recovery 50: two attempts since, and six minutes.
#[test]
fn two_attempts_without_progress_in_six_minutes_are_enough() {
    let (world, _tab) = endless(agent(), 0);
    die_often(&world, 2, 31_000);
    world.clock().skew(360_000);
    die(&world);
    assert_eq!((reasons(&world), asked(&world)), (vec![json!("no_progress_timeout")], 3));
    assert_at_rest(&world);
}

// recovery 51, W1: it writes and writes.
#[test]
fn work_without_an_end_is_bounded() {
    let agent = agent().config(|config| {
        config.chat_recovery.max_recovery_work = Some(3);
        config.chat_recovery.max_interrupted_attempts = None;
    });
    let (world, _tab) = endless(agent, 25);
    die_often(&world, 12, 31_000);
    assert_eq!((reasons(&world), asked(&world)), (vec![json!("work_budget_exceeded")], 3));
    assert_at_rest(&world);
}

// recovery 52, N1: the budget does not forget what is more than an hour ago.
#[test]
fn attempts_of_seventy_minutes_are_counted_too() {
    // Two steps of 36 minutes: a step may take an hour.
    let agent = agent().tool("look", |_, _| async { Ok(json!("seen")) });
    let world =
        World::new(agent).model_fn(|_| (0..36).fold(text("so "), |reply, _| reply.delay(60_000).text("on ")).call("look", json!({})));
    let tab = world.connect("S1");
    tab.send("hi");
    for _ in 0..10 {
        world.run_for(70 * 60_000);
        world.restart(Sockets::Closed);
    }
    world.run();
    assert_eq!((reasons(&world), asked(&world)), (vec![json!("interrupted_attempts_exceeded")], 10));
    assert_at_rest(&world);
}

// recovery 53: without a bound of deaths the others still bind.
#[test]
fn without_a_bound_of_deaths_the_others_still_bind() {
    let agent = agent().config(|config| config.chat_recovery.max_interrupted_attempts = None);
    let (world, _tab) = endless(agent, 0);
    die_often(&world, 50, 31_000);
    assert_eq!((reasons(&world), asked(&world)), (vec![json!("max_attempts_exceeded")], 11));
    assert_at_rest(&world);
}

// recovery 54: two retries are three interrupted attempts.
#[test]
fn the_third_death_ends_it_where_that_is_the_bound() {
    let agent = agent().config(|config| config.chat_recovery.max_interrupted_attempts = Some(3));
    let (world, _tab) = endless(agent, 30);
    die_often(&world, 5, 31_000);
    assert_eq!((reasons(&world), asked(&world)), (vec![json!("interrupted_attempts_exceeded")], 3));
    assert_at_rest(&world);
}

// recovery 55: the application is asked from the second time on, and not where a bound has spoken.
#[test]
fn the_application_is_asked_where_nothing_else_decides() {
    let asks = Rc::new(RefCell::new(Vec::new()));
    let heard = asks.clone();
    let (world, _tab) = endless(
        agent().keeps_recovering(move |info| {
            heard.borrow_mut().push(info.work);
            true
        }),
        30,
    );
    die_often(&world, 6, 31_000);
    assert_eq!((asks.borrow().len(), reasons(&world)), (3, vec![json!("interrupted_attempts_exceeded")]));
    assert!(asks.borrow().is_sorted() && asks.borrow()[0] > 0, "{asks:?}");
    assert_at_rest(&world);
}

// recovery 56, I30: an application that fails or hangs has said yes.
#[test]
fn an_application_that_does_not_answer_says_yes() {
    for hangs in [false, true] {
        let agent = agent()
            .keep_hook(move |_| async move { if hangs { std::future::pending().await } else { Err(Error::application("no idea")) } });
        let (world, _tab) = endless(agent, 30);
        die_often(&world, 2, 31_000);
        let began = world.clock().passed();
        world.run_until(|world| asked(world) == 3);
        assert!(world.clock().passed() - began <= 10_000);
        let reason = if hangs { "should_keep_recovering took more than 10000 ms (Config::hook_deadline_ms)" } else { "no idea" };
        assert_eq!(fields(&world, "hook:failed", "reason"), [reason]);
    }
}

// recovery 57: the reasons in their order, each where the one before it is lifted.
#[test]
fn several_reasons_at_once_are_told_by_their_order() {
    let none = |_: &mut ChatRecovery| {};
    let deathless = |bounds: &mut ChatRecovery| bounds.max_interrupted_attempts = None;
    let tireless = |bounds: &mut ChatRecovery| (bounds.max_interrupted_attempts, bounds.max_recovery_work) = (None, None);
    type Change<'a> = &'a dyn Fn(&mut ChatRecovery);
    let rows: [(Change, &str); 3] =
        [(&none, "interrupted_attempts_exceeded"), (&deathless, "work_budget_exceeded"), (&tireless, "no_progress_timeout")];
    for (lift, reason) in rows {
        let agent = agent().config(|config| {
            let bounds = &mut config.chat_recovery;
            (bounds.max_interrupted_attempts, bounds.max_recovery_work) = (Some(4), Some(1));
            (bounds.no_progress_timeout_ms, bounds.max_attempts) = (60_000, 2);
            lift(bounds);
        });
        let calls = Cell::new(0);
        let world = World::new(agent).model_fn(move |_| {
            calls.set(calls.get() + 1);
            // Words once after the first death, then none: work, deaths, attempts and time are all spent in the end.
            text_deltas(&vec!["word "; if calls.get() == 2 { 25 } else { 0 }]).gate("never")
        });
        let tab = world.connect("S1");
        tab.send("hi");
        world.run();
        world.restart(Sockets::Closed);
        world.run_for(31_000);
        // The work is seen by the next evaluation, and is to be spent only with the rest.
        world.db().query("UPDATE wk_turn SET interrupted = 3, since_progress = 5, last_progress_at = 0");
        if reason == "no_progress_timeout" {
            world.db().query("UPDATE wk_turn SET progress_seen = 1000");
        }
        die(&world);
        assert_eq!(reasons(&world), [reason]);
        assert_at_rest(&world);
    }
}

// recovery 59, I9: tabs that come and are shown everything again are no progress.
#[test]
fn replays_are_no_progress() {
    let (world, _tab) = endless(agent(), 12);
    world.restart(Sockets::Closed);
    world.answer(Script::function(|_| text("").gate("never")));
    world.run_for(31_000);
    for n in 0..20 {
        let tab = world.connect(&format!("T{n}"));
        world.disconnect(&tab);
    }
    die_often(&world, 2, 31_000);
    assert_eq!(fields(&world, "chat:recovery:attempt", "attempt"), [1, 2, 3]);
}

// recovery 60, I25, W36: what cannot be read three times is brought to rest unread, and nobody behind it waits longer.
#[test]
fn a_turn_that_cannot_be_read_is_given_up_and_others_go_on() {
    let (world, tab) = begun(agent(), []);
    tab.send("two");
    world.run();
    for _ in 0..limits::RECOVERY_CLAIMS {
        world.db().fail(FaultAt::Matching("seq_to, body FROM wk_seg".into()), "disk I/O error: SQLITE_IOERR");
    }
    world.answer(text("second"));
    world.restart(Sockets::Kept);
    world.run_for(120_000);
    assert_eq!(world.db().pending_faults(), 0);
    assert_eq!((turns(&world), asked(&world)), (vec!["failed recovery_error".into(), "completed -".into()], 2));
    assert_eq!((reasons(&world), banners(&tab)), (vec![json!("recovery_error")], vec![json!(BANNER)]));
    assert_eq!(world.said().last().map(String::as_str), Some("assistant: second"));
    assert_at_rest(&world);
}

// recovery 61, N2: the clock jumps ahead between two lives.
#[test]
fn a_clock_that_jumps_ahead_ends_nothing() {
    let (world, _tab) = begun(agent(), [text("the end")]);
    world.restart(Sockets::Closed);
    world.clock().skew(7_200_000);
    world.run();
    assert_eq!((reasons(&world), turns(&world)), (vec![], vec!["completed -".into()]));
    assert_at_rest(&world);
}

// recovery 62, N13: the clock steps back while a wait is stored. It is due at once, and the attempts count.
#[test]
fn a_clock_that_steps_back_freezes_nothing() {
    let world = World::new(agent()).model(script![limited("45"), text("now")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    world.settle();
    world.restart(Sockets::Closed);
    world.clock().skew(-3_600_000);
    world.connect("S2");
    world.run_for(1_000);
    assert_eq!((world.said(), asked(&world)), (vec!["user: hi".into(), "assistant: now".into()], 2));
    world.run();
    assert_at_rest(&world);
    let (world, _tab) = endless(agent(), 0);
    for _ in 0..2 {
        world.restart(Sockets::Closed);
        world.clock().skew(-3_600_000);
        world.socket("S2");
        world.run_for(1_000);
    }
    assert_eq!(fields(&world, "chat:recovery:attempt", "attempt"), [1, 2], "a step back is no burst");
}

// decision 11, recovery N3, Q1: where deaths are counted by the step, a long turn survives any number of them, one step at a time.
#[test]
fn deaths_may_be_counted_by_the_step() {
    for (scope, ends) in [(InterruptedScope::Turn, "failed interrupted_attempts_exceeded"), (InterruptedScope::Step, "completed -")] {
        let agent = agent().tool("look", |_, _| async { Ok(json!("seen")) }).config(|config| {
            config.chat_recovery.interrupted_scope = scope;
            config.max_steps = 20;
        });
        // Each life finishes one step and stands still in the next, nine times.
        let steps = Cell::new(0);
        let world = World::new(agent).model_fn(move |_| {
            steps.set(steps.get() + 1);
            match steps.get() {
                18.. => text("done"),
                n if n % 2 == 1 => call("look", json!({ "n": n })),
                _ => text("w").gate("never"),
            }
        });
        world.connect("S1").send("go");
        world.run();
        for _ in 0..9 {
            die(&world);
        }
        assert_eq!(turns(&world), [ends], "{scope:?}");
        assert_at_rest(&world);
    }
}
