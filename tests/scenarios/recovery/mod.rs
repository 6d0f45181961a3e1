//! A turn whose object died, or whose provider failed in a way that waiting may mend, goes on in the message it began.
//!
//! One file for each group of the acceptance scenarios of `recovery.md` §7; every row is cited by a test (`tests/tidy.rs` sees to it).

mod acceptance;
mod aside;
mod budgets;
mod clients;
mod ending;
mod parking;
mod pieces;
mod resources;
mod stall;
mod submissions;
mod table;
mod transcript;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use serde_json::{Map, Value, json};
use wakeful::{
    InterruptedScope,
    engine::events::Event,
    limits,
    prelude::*,
    testkit::{
        Client, Death, Dial, Exchange, FaultAt, Gates, Reply, Script, Sockets, Status, World, call, calls, http_error, raw, script,
        stall as silence, text, text_deltas,
    },
    wire::message::Part,
};

use crate::{
    Helper, assert_idle, assert_parked,
    custom::{Custom, Seen, tool},
    page_tools::{page, parts, rows, texts},
    world,
};

/// What the platform says when it replaces an object, and when one took too much memory.
const RESET: &str = "Error: Durable Object reset because its code was updated.";
const MEMORY: &str = "Error: Durable Object's isolate exceeded its memory limit and was reset.";
/// What clients are shown of a turn that is given up, and of one that the application let rest.
const BANNER: &str = "The assistant was interrupted and could not recover. Please try again.";
const DECLINED: &str = "Submission was interrupted and automatic continuation was declined.";
/// What the model reads of a call that was cut off.
const INTERRUPTED: &str = "The tool call was interrupted before a result was recorded.";

/// A [`Custom`] whose turns go on after a death.
fn agent() -> Custom {
    Custom::new().config(|config| config.chat_recovery.enabled = true)
}

/// The object dies and comes back, and nobody but the alarm wakes it.
fn die<A: Agent>(world: &World<A>) {
    world.restart(Sockets::Closed);
    world.run();
}

/// Dies so often, each time well after the last.
fn die_often<A: Agent>(world: &World<A>, times: usize, ms: i64) {
    for _ in 0..times {
        world.restart(Sockets::Closed);
        world.run_for(ms);
    }
}

fn outcomes(tab: &Client) -> Vec<String> {
    tab.turn_ends().into_iter().map(|end| end.outcome).collect()
}

/// How often the model was asked.
fn asked<A: Agent>(world: &World<A>) -> usize {
    world.provider_requests().len()
}

/// A provider that is asked too often, and says for how long.
fn limited(seconds: &str) -> Reply {
    http_error(429, json!({ "error": { "message": "slow down" } })).header("retry-after", seconds)
}

/// A world with one message whose answer stands after 25 words, as the default agent gives it; `then` is answered next.
fn begun(agent: Custom, then: impl IntoIterator<Item = Reply>) -> (World<Custom>, Client) {
    let world = World::new(agent).model(script![text_deltas(&["word "; 25]).gate("never")]);
    for reply in then {
        world.answer(reply);
    }
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    (world, tab)
}

/// The tools of these names. Each writes down that it was called, then waits at the gate of its name.
fn gated(names: &'static [&'static str]) -> (Seen, Gates, impl Fn(&Turn) -> Tools + Clone + 'static) {
    let (seen, gates) = (Seen::default(), Gates::default());
    let (runs, waits) = (seen.clone(), gates.clone());
    let tools = move |_: &Turn| {
        let one = |name: &'static str| {
            let (runs, waits) = (runs.clone(), waits.clone());
            tool(name, move |_, scope: TurnScope| {
                runs.add(format!("{name} {}", scope.idempotency_key()));
                let waits = waits.clone();
                async move {
                    waits.wait(name).await;
                    Ok(json!(format!("{name} done")))
                }
            })
        };
        names.iter().fold(Tools::new(), |tools, name| tools.with(one(name)))
    };
    (seen, gates, tools)
}

/// The events of recovery, without their common beginning.
fn incidents<A: Agent>(world: &World<A>) -> Vec<String> {
    let names = world.events().into_iter().filter_map(|event| Some(event.name.strip_prefix("chat:recovery:")?.to_owned()));
    names.collect()
}

/// One field of every event of this name.
fn fields<A: Agent>(world: &World<A>, name: &str, field: &str) -> Vec<Value> {
    world.events_named(name).iter().map(|event| event.fields.get(field).cloned().unwrap_or_default()).collect()
}

fn reasons<A: Agent>(world: &World<A>) -> Vec<Value> {
    fields(world, "chat:recovery:exhausted", "reason")
}

/// The error frames a tab got.
fn banners(tab: &Client) -> Vec<Value> {
    let frames = tab.of_type("cf_agent_use_chat_response").into_iter().filter(|frame| frame["error"] == true);
    frames.map(|frame| frame["body"].clone()).collect()
}

/// State and reason of every turn, in order.
fn turns<A: Agent>(world: &World<A>) -> Vec<String> {
    texts(world, "SELECT state || ' ' || coalesce(reason, '-') FROM wk_turn ORDER BY seq")
}

/// Asserts that nothing is under way, that no row of work is left, and that events told each interruption in order (I3, I4, I8, I14, I23).
#[track_caller]
fn assert_at_rest<A: Agent>(world: &World<A>) {
    assert_nothing_left(world);
    assert_told(&world.events());
}

/// Asserts that nothing is under way and that no row of work is left.
#[track_caller]
fn assert_nothing_left<A: Agent>(world: &World<A>) {
    assert_idle(world);
    assert_eq!(rows(world, "wk_attempt"), 0);
    assert_eq!(rows(world, "wk_outbox"), 0);
    assert_eq!(rows(world, "wk_turn WHERE ended_at IS NULL AND state <> 'parked'"), 0);
    assert_eq!(rows(world, "wk_call WHERE state <> 'settled' AND site = 'server' AND state <> 'awaiting_approval'"), 0);
    assert_eq!(rows(world, "wk_seg WHERE stream NOT IN (SELECT stream FROM wk_notice)"), 0);
}

/// Asserts that every incident was told as `recovery.md` §2.13 says.
#[track_caller]
fn assert_told(events: &[Event]) {
    let mut told: std::collections::BTreeMap<String, Vec<&str>> = std::collections::BTreeMap::new();
    for event in events {
        let Some(name) = event.name.strip_prefix("chat:recovery:") else { continue };
        told.entry(event.fields["incidentId"].as_str().unwrap().to_owned()).or_default().push(name);
    }
    for (incident, names) in told {
        // A turn that parked and went on may be interrupted again: a new leg, a new incident.
        let ends = ["completed", "skipped", "failed", "exhausted"];
        for told in names.split_inclusive(|name| ends.contains(name)) {
            let letters: String = told.iter().map(|name| &name[..1]).collect();
            let middle = letters.strip_prefix('d').and_then(|rest| rest.strip_suffix(['c', 's', 'f', 'e']));
            // An attempt whose object dies before the application has spoken is never told as scheduled.
            let fits = middle.is_some_and(|middle| {
                middle.starts_with('a') && middle.chars().all(|c| matches!(c, 'a' | 's')) && !middle.contains("ss")
            });
            assert!(fits, "{incident} was told as {told:?}");
        }
    }
}
