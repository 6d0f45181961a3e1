//! The database refuses a commit, at every commit of a conversation: nothing half-done stays, and the conversation goes on.

use serde_json::json;
use wakeful::testkit::{Client, FaultAt, Sockets, World, script, text, text_deltas};

use crate::{Helper, world};

fn play(world: &World<Helper>) -> Client {
    world.answer(script![
        text("Let me see.").call("weather", json!({ "city": "Oslo" })),
        text_deltas(&["It ", "is ", "sunny."]),
        text("spare"),
        text("spare")
    ]);
    let tab = world.connect("S1");
    tab.send("weather?");
    tab
}

/// Steps the world until so many transactions were committed. False if it came to rest before.
fn run_to_commit(world: &World<Helper>, n: u64) -> bool {
    while world.db().transactions() < n {
        if !world.step() {
            return false;
        }
    }
    true
}

/// What is wrong after one commit failed with `text` and a later question was asked.
fn after_a_refused_commit(n: u64, text: &str, dies: bool) -> Option<Vec<String>> {
    let world = world();
    let tab = play(&world);
    if !run_to_commit(&world, n) {
        return None;
    }
    world.db().fail(FaultAt::Commit, text);
    world.run();
    if world.db().pending_faults() > 0 {
        // The conversation had come to rest: the fault would only meet the questions of this test.
        return None;
    }
    if dies {
        world.restart(Sockets::Closed);
        world.reconnect(&tab);
        world.run();
    }
    // Another page, loaded after the trouble: what it sees is what is stored.
    let later = world.connect("S2");
    later.send("and now?");
    world.run();
    let mut broken: Vec<String> = later.violations(true);
    let said = world.said();
    if !said.last().is_some_and(|last| last.starts_with("assistant: ")) {
        broken.push(format!("the conversation does not go on: {said:?}"));
    }
    if later.said() != said {
        broken.push(format!("the later tab shows {:?}, stored is {said:?}", later.said()));
    }
    if (world.jobs(), world.alarm_at()) != (0, None) {
        broken.push(format!("{} jobs and the alarm {:?} are left", world.jobs(), world.alarm_at()));
    }
    if !broken.is_empty() {
        broken.push(world.story());
    }
    Some(broken)
}

// recovery §6.8 K6, §6.6 "Commit failure"
#[test]
fn a_refused_commit_harms_one_turn_at_most() {
    for (text, dies) in [
        ("database or disk is full: SQLITE_FULL", false),
        ("string or blob too big: SQLITE_TOOBIG", false),
        ("Error: Durable Object reset because its code was updated.", true),
    ] {
        let mut tried = 0;
        for n in 1.. {
            let Some(broken) = after_a_refused_commit(n, text, dies) else { break };
            assert!(broken.is_empty(), "{text} at the commit after {n}\n{}", broken.join("\n"));
            tried = n;
        }
        assert!(tried > 5, "{tried} commits tried");
    }
}
