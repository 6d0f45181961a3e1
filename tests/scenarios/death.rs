//! The object dies at every moment of a conversation, and nobody loses anything that was stored or shown as stored.

use serde_json::json;
use wakeful::{
    prelude::*,
    testkit::{Client, Sockets, World, script, text, text_deltas},
};

use crate::{Helper, assert_idle, custom::Custom, ending, world};

// wire 157, decision 37, I8
#[test]
fn a_dead_answer_ends_aborted_and_its_beginning_is_kept() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let world = ending().model(script![text_deltas(&["a"; 25]).gate("never")]);
        let tab = world.connect("S1");
        let request = tab.send("hi");
        world.run();
        world.restart(sockets);
        if sockets == Sockets::Closed {
            world.reconnect(&tab);
        }
        world.run();
        let letters = |said: Vec<String>| said[1].matches('a').count() - "assistant".matches('a').count();
        let (shown, stored) = (letters(tab.said()), letters(world.said()));
        assert!(stored >= 16 && shown >= stored && shown - stored <= 9, "{sockets:?}: {stored} of 25 deltas stored, {shown} shown");
        let outcomes: Vec<String> = tab.turn_ends().into_iter().filter(|e| e.request == request).map(|e| e.outcome).collect();
        assert_eq!(outcomes, ["aborted"], "{sockets:?}\n{}", tab.story());
        world.answer(text("again"));
        tab.send("more");
        world.run();
        assert_eq!(world.said().last().unwrap(), "assistant: again");
        assert_idle(&world);
    }
}

// recovery §6.8, zombie; I7
#[test]
fn a_superseded_incarnation_writes_nothing_and_shows_nothing() {
    let world = world().model(script![text("one ").gate("g").text("two").text(" three"), text("anew"), text("again")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.supersede(Sockets::Kept);
    world.open_gate("g");
    world.run();
    let rows = world.db().snapshot();
    world.run_for(600_000);
    assert_eq!(rows.difference(&world.db().snapshot()), Vec::<String>::new());
    assert_eq!(world.jobs(), 0, "a superseded incarnation comes to its end\n{}", world.story());
    assert!(!tab.story().contains("three"), "{}", tab.story());
    tab.send("again");
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: anew", "user: again", "assistant: again"]);
    assert_idle(&world);
}

/// Two tabs, a tool, a second question; the same every time.
fn play(world: &World<Helper>) -> (Client, Client) {
    world.answer(script![
        text("Let me see.").call("weather", json!({ "city": "Oslo" })),
        text_deltas(&["It ", "is ", "sunny."]),
        text("You are welcome."),
        text("spare"),
        text("spare"),
    ]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("weather?");
    (one, two)
}

fn steps_of_a_quiet_run() -> usize {
    let world = world();
    play(&world);
    let mut steps = 0;
    while world.step() {
        steps += 1;
    }
    world.run();
    assert_eq!(world.said().len(), 2);
    steps
}

// recovery §6.8: every crash point of one script
#[test]
fn dying_at_any_step_leaves_a_conversation_that_goes_on() {
    let steps = steps_of_a_quiet_run();
    assert!(steps > 20, "{steps} steps");
    let mut broken = Vec::new();
    for sockets in [Sockets::Kept, Sockets::Closed] {
        for n in 0..=steps {
            let world = world();
            let (one, two) = play(&world);
            for _ in 0..n {
                world.step();
            }
            world.restart(sockets);
            if sockets == Sockets::Closed {
                world.reconnect(&one);
                world.reconnect(&two);
            }
            world.run();
            two.send("thanks");
            world.run();
            let said = world.said();
            let mut found = world.complaints();
            if said.first().map(String::as_str) != Some("user: weather?") {
                found.push(format!("the question is gone: {said:?}"));
            }
            if !said.last().is_some_and(|last| last.starts_with("assistant: ")) {
                found.push(format!("the conversation does not go on: {said:?}"));
            }
            if (world.jobs(), world.alarm_at()) != (0, None) {
                found.push(format!("{} jobs and the alarm {:?} are left", world.jobs(), world.alarm_at()));
            }
            broken.extend(found.into_iter().map(|what| format!("death at step {n} of {steps}, sockets {sockets:?}: {what}")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

// architecture §6: engine output is a function of rows, input, time, generator
#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed: u64| {
        let world = world().seed(seed);
        let (one, two) = play(&world);
        two.send("me too");
        world.run();
        assert_idle(&world);
        (world.db().snapshot(), one.story(), two.story())
    };
    for seed in 0..20 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.0.difference(&second.0), Vec::<String>::new(), "WAKEFUL_SEED={seed}");
        assert_eq!((first.1, first.2), (second.1, second.2), "WAKEFUL_SEED={seed}");
    }
}

// An object that the platform was to end and did not: what still ran in it is heard of no more, and the next event goes on from rows.
#[test]
fn an_object_that_could_not_be_ended_is_not_deaf() {
    type Event = fn(&World<Custom>, &Client);
    let events: [Event; 4] = [
        |world, _| world.ring(),
        |_, tab| drop(tab.probe()),
        |_, tab| tab.close(1000, ""),
        |world, _| drop(world.http(HttpRequest { method: "GET".into(), url: world.url("/get-messages"), ..HttpRequest::default() })),
    ];
    for (n, event) in events.into_iter().enumerate() {
        let world = World::new(Custom::new()).model(script![text_deltas(&["word "; 25]).gate("old").text("OLD"), text("the end")]);
        let tab = world.connect("S1");
        tab.send("hi");
        world.settle();
        world.refuse_aborts();
        world.handle().abort_object("enough");
        world.open_gate("old");
        world.settle();
        assert_eq!(world.exchanges().len(), 1, "nothing goes on by itself");
        event(&world, &tab);
        world.settle();
        let said = world.said();
        assert!(said[1].ends_with("the end") && !said[1].contains("OLD"), "{n}: {said:?}\n{}", world.story());
        assert_eq!((tab.story().contains("OLD"), world.exchanges().len()), (false, 2), "{n}");
        assert_idle(&world);
    }
}
