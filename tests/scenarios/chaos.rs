//! Random conversations: people who type, stop, edit, clear and lose their network, providers that fail, an object that dies, in an
//! order drawn from a seed. When the trouble stops, everything must come to rest and everybody must see the same.
//!
//! A failing seed is run alone with `WAKEFUL_SEED=n cargo test --test scenarios chaos`.

use serde_json::json;
use wakeful::testkit::{
    Client, Reply, Sockets, World, cut, empty, http_error, in_stream_error, one_read, raw, reasoning, refused, text, text_deltas,
};

use crate::{Helper, world};

const SEEDS: u64 = 40;
const ACTIONS: usize = 25;

/// What a provider does: mostly its job.
fn reply(rng: &mut Dice, after_tools: bool) -> Reply {
    match rng.below(14) {
        0 => http_error(400, json!({ "error": { "message": "no", "type": "invalid_request_error" } })),
        1 => http_error(503, "<html>busy</html>"),
        2 => text("half").cut(),
        3 => in_stream_error("server_error", "broken"),
        4 => empty(),
        5 => cut(),
        6 => refused("connection refused"),
        7 => raw("data: {\"choices\":[{\"delta\":{\"content\":\"odd\"}}]}\n\ndata: nonsense\n\n"),
        8 => one_read(&["many ", "in ", "one"]),
        9 => text_deltas(&["slow "; 13]).delay(700).text("end"),
        10 | 11 if !after_tools => reasoning("hm").call("weather", json!({ "city": "Oslo" })).call("weather", json!({ "city": 7 })),
        _ => text("fine").text(" thanks").cut_every(50),
    }
}

/// The one source of luck of a run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn act(world: &World<Helper>, tabs: &[Client], dice: &mut Dice, log: &mut Vec<String>) {
    let tab = &tabs[dice.below(tabs.len() as u64) as usize];
    let name = tab.label();
    let done = match dice.below(16) {
        0..=4 => format!("{name} asks as {}", tab.send("question")),
        5 => format!("{name} asks again as {}", tab.regenerate()),
        6 => match tab.messages().iter().rfind(|m| m["role"] == "user").and_then(|m| m["id"].as_str().map(str::to_owned)) {
            Some(id) => format!("{name} edits {id} as {}", tab.edit(&id, "better question")),
            None => return,
        },
        7 | 8 => {
            tab.stop();
            format!("{name} stops")
        }
        9 => {
            tab.clear();
            format!("{name} clears")
        }
        10 | 11 if tab.conn().is_some() => {
            world.disconnect(tab);
            format!("{name} is gone")
        }
        10..=12 => {
            if tab.conn().is_some() {
                return;
            }
            world.reconnect(tab);
            format!("{name} is back")
        }
        13 => {
            world.restart(Sockets::Kept);
            "death, sockets kept".into()
        }
        14 => {
            world.restart(Sockets::Closed);
            "death, sockets closed".into()
        }
        _ => {
            let ms = dice.below(40_000) as i64;
            world.run_for(ms);
            format!("{ms} ms pass")
        }
    };
    log.push(done);
    for _ in 0..dice.below(20) {
        world.step();
    }
}

fn run(seed: u64) -> Vec<String> {
    let mut provider = Dice(seed ^ 0xABCD);
    let calm = std::rc::Rc::new(std::cell::Cell::new(false));
    let quiet = calm.clone();
    let world = world().seed(seed).model_fn(move |request| {
        let after_tools = request.roles().last() == Some(&"tool");
        if quiet.get() { text("calm") } else { reply(&mut provider, after_tools) }
    });
    let tabs = [world.connect("S1"), world.connect("S2")];
    let mut dice = Dice(seed);
    let mut log = Vec::new();
    for _ in 0..ACTIONS {
        act(&world, &tabs, &mut dice, &mut log);
    }
    // Safety first, then liveness (recovery §6.8): the trouble stops, and everything must come to rest.
    calm.set(true);
    for tab in tabs.iter().filter(|tab| tab.conn().is_none()) {
        world.reconnect(tab);
    }
    tabs[0].send("a question that is answered");
    world.run();
    // A tab that missed the end of a stream it watched learns from an idle probe that there is none (wire §2.15). No probe is idle
    // while an error is on record, so a good answer comes first.
    for tab in &tabs {
        world.disconnect(tab);
        world.reconnect(tab);
    }
    world.run();
    let last = tabs[0].send("last question");
    world.run();
    let mut broken = world.complaints();
    if world.said().last().map(String::as_str) != Some("assistant: calm") {
        broken.push(format!("the last question {last} has no answer: {:?}", world.said()));
    }
    if (world.jobs(), world.alarm_at()) != (0, None) {
        broken.push(format!("{} jobs and the alarm {:?} are left", world.jobs(), world.alarm_at()));
    }
    if !broken.is_empty() {
        broken.push(log.join("\n"));
        broken.push(world.story());
        if std::env::var("WAKEFUL_SEED").is_ok() {
            broken.extend(tabs.iter().map(Client::story));
        }
    }
    broken
}

#[test]
fn any_conversation_comes_to_rest_and_everybody_sees_the_same() {
    let seeds = match std::env::var("WAKEFUL_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).expect("WAKEFUL_SEED is a number"),
        Err(_) => 0..SEEDS,
    };
    let mut failed = Vec::new();
    for seed in seeds {
        let broken = run(seed);
        if !broken.is_empty() {
            failed.push(format!("WAKEFUL_SEED={seed}\n{}", broken.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{} seeds fail; the first:\n{}", failed.len(), failed[0]);
}
