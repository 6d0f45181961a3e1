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
