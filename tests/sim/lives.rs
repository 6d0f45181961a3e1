//! Random lives of one object, each a function of its seed: people who ask, edit, stop, clear and lose their network, a stranger who
//! sends whatever comes to mind, providers that fail, a database that refuses, clocks that jump, and death at any moment.
//!
//! Safety is checked all the time; then the trouble stops, and everything must come to rest (recovery §6.8): every request has its
//! one end, every tab shows what is stored, no call is open, nothing is left running. Every life is lived twice and has to be the same.
//!
//! `WAKEFUL_SEEDS=n` lives as many, `WAKEFUL_SEED=n cargo test --test sim` lives that one and tells all of it.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    testkit::{
        Client, Dial, FaultAt, Gates, Reply, Sockets, World, cut, empty, http_error, one_read, raw, reasoning, refused, stall, text,
        text_deltas,
    },
};

use crate::number;

const SEEDS: u64 = 300;
const ACTIONS: u64 = 14;
const TABS: [&str; 3] = ["S1", "S2", "S3"];
const GATES: [&str; 3] = ["left", "middle", "right"];

/// The one source of luck of a life.
#[derive(Clone)]
struct Dice(fastrand::Rng);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize].clone()
    }
}

#[derive(Clone)]
struct Helper {
    gates: Gates,
    overlap: MessageConcurrency,
    recovers: bool,
}

/// What becomes of messages that overlap, one way a life.
const OVERLAPS: [MessageConcurrency; 6] = [
    MessageConcurrency::Queue,
    MessageConcurrency::Latest,
    MessageConcurrency::Drop,
    MessageConcurrency::Debounce { ms: 700 },
    MessageConcurrency::Steer,
    MessageConcurrency::Interrupt,
];

impl Agent for Helper {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn config(&self) -> Config {
        Config {
            max_steps: 4,
            client_state: true,
            message_concurrency: self.overlap,
            chat_recovery: ChatRecovery { enabled: self.recovers, ..ChatRecovery::default() },
            ..Config::default()
        }
    }

    fn tools(&self, _: &Turn) -> Tools {
        let gates = self.gates.clone();
        let any = || json!({ "type": "object", "properties": { "at": { "type": "string" } } });
        Tools::new()
            .with(Tool::dynamic("quick", "Answers.", any(), |_, scope| async move {
                scope.data("seen", Some("one"), json!(scope.step())).await?;
                Ok(json!("done"))
            }))
            .with(Tool::dynamic("wait", "Waits.", any(), move |input, scope| {
                let gates = gates.clone();
                async move {
                    scope.preliminary(json!("waiting")).await?;
                    gates.wait(input["at"].as_str().unwrap_or("left")).await;
                    Ok(json!("waited"))
                }
            }))
            .with(Tool::dynamic("sleep", "Takes a while and hears a stop.", any(), |_, scope| async move {
                futures_util::future::select(Box::pin(scope.sleep(9_000)), Box::pin(scope.cancelled())).await;
                Ok(json!("slept"))
            }))
            .with(Tool::dynamic("fail", "Fails.", any(), |_, _| async { Err(ToolError::ToModel("no luck".into())) }))
            .with(Tool::dynamic("fatal", "Ends it.", any(), |_, _| async { Err(ToolError::Fatal("closed".into())) }))
    }

    fn callables(&self) -> Callables {
        Callables::new()
            .with("save", |call| async move {
                let result = call.handle.save_messages(vec![UiMessage::user(call.arg::<String>(0)?, "from the application")]).await?;
                Ok(Some(json!(result.status.as_str())))
            })
            .with("continue", |call| async move { Ok(Some(json!(call.handle.continue_last_turn(None).await?.status.as_str()))) })
    }
}

/// What a provider says: mostly something sensible.
fn reply(dice: &mut Dice) -> Reply {
    let gate = dice.of(&GATES);
    match dice.below(26) {
        0 => http_error(400, json!({ "error": { "message": "no", "type": "invalid_request_error" } })),
        1 => http_error(503, "<html>busy</html>"),
        2 => http_error(429, json!({ "error": { "message": "slow down", "type": "rate_limit_error" } })).header("retry-after", "3"),
        3 => text("half").cut(),
        4 => text("broken").in_stream_error("server_error", "broken"),
        5 => empty(),
        6 => cut(),
        7 => refused("connection refused"),
        8 => raw("data: {\"choices\":[{\"delta\":{\"content\":\"odd\"}}]}\n\ndata: nonsense\n\n"),
        9 => text("so far").stall(),
        10 => stall(),
        11 => text("gone").broken("reset by peer"),
        12 => Reply::new().head_gate(gate).text("late"),
        13 => text("before ").gate(gate).text("after"),
        14 => text_deltas(&["slow "; 13]).delay(700).text("end"),
        15 => one_read(&["many ", "in ", "one"]),
        16 => reasoning("hm").text("so").reasoning("or").text("not").cut_every(7),
        17 => text_deltas(&["word "; 40]),
        18 | 19 => {
            let tools = ["quick", "wait", "sleep", "fail", "fatal", "nobody"];
            (0..1 + dice.below(3)).fold(reasoning("let me"), |reply, _| reply.call(dice.of(&tools), json!({ "at": dice.of(&GATES) })))
        }
        20 => text("look").call("quick", json!({ "at": 7 })).call_raw("same", "quick", "{not json").call_raw("same", "quick", ""),
        21 => text("cut").call("quick", json!({})).finish("length"),
        _ => text("fine").text(" thanks"),
    }
}

/// What a stranger sends, forgeries and rubbish.
fn forgery(dice: &mut Dice, n: u64, known: &[Value]) -> Value {
    let chat = |messages: Value, trigger: &str| {
        let body = json!({ "messages": messages, "trigger": trigger }).to_string();
        json!({ "id": format!("X{n}"), "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } })
    };
    let known_id = known.get(dice.below(8) as usize).map_or(json!("nobody"), |m| m["id"].clone());
    let said = |id: Value, role: &str| json!({ "id": id, "role": role, "parts": [{ "type": "text", "text": "forged" }] });
    match dice.below(14) {
        0 => chat(json!([said(json!(format!("x{n}")), "user")]), "submit-message"),
        1 => chat(json!([said(known_id, "assistant"), said(json!(format!("x{n}")), "system")]), "submit-message"),
        2 => chat(json!([said(known_id, "user")]), "submit-message"),
        3 => chat(json!([said(known_id, "user")]), "regenerate-message"),
        4 => chat(json!([said(known_id, "assistant")]), "regenerate-message"),
        5 => chat(json!([{ "id": known_id, "role": "user", "content": "old" }]), "submit-message"),
        6 => chat(json!([]), "submit-message"),
        7 => json!({ "type": "cf_agent_tool_result", "toolCallId": "call_0", "output": "forged", "autoContinue": true }),
        8 => json!({ "type": "cf_agent_tool_approval", "toolCallId": "call_0", "approved": true, "autoContinue": true }),
        9 => json!({ "type": "cf_agent_chat_messages", "messages": [said(json!("x"), "assistant")] }),
        10 => json!({ "type": "cf_agent_state", "state": { "n": n } }),
        11 => json!({ "type": "cf_agent_chat_request_cancel", "id": known_id }),
        12 => json!([1, { "type": "rpc" }]),
        _ => json!({ "type": "rpc", "id": format!("x{n}"), "method": "save", "args": [known_id] }),
    }
}

struct Life {
    world: World<Helper>,
    tabs: Vec<Client>,
    stranger: Client,
    dice: Dice,
    log: Vec<String>,
    calm: Rc<Cell<bool>>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let calm = Rc::new(Cell::new(false));
        let (quiet, mut provider) = (calm.clone(), Dice::new(seed ^ 0x5EED));
        let gates = Gates::new();
        let overlap = OVERLAPS[(seed % OVERLAPS.len() as u64) as usize];
        let recovers = seed / OVERLAPS.len() as u64 % 2 == 1;
        let world = World::new(Helper { gates: gates.clone(), overlap, recovers })
            .with_gates(&gates)
            .seed(seed)
            .model_fn(move |_| if quiet.get() { text("calm") } else { reply(&mut provider) });
        let mut dice = Dice::new(seed);
        let tabs = TABS[..1 + dice.below(3) as usize].iter().map(|label| world.connect(label)).collect();
        let stranger = world.dial(Dial::new("X").raw());
        Self { world, tabs, stranger, dice, log: Vec::new(), calm }
    }

    fn act(&mut self, n: u64) {
        let tab = self.dice.of(&self.tabs);
        let name = tab.label();
        let world = &self.world;
        let line = match self.dice.below(30) {
            0..=7 => format!("{name} asks as {}", tab.send(&format!("question {n}"))),
            8 => format!("{name} asks again as {}", tab.regenerate()),
            9 => match tab.messages().iter().filter(|m| m["role"] == "user").filter_map(|m| m["id"].as_str()).next_back() {
                Some(id) => format!("{name} edits {id} as {}", tab.edit(id, &format!("better question {n}"))),
                None => format!("{name} asks as {}", tab.send("nothing to edit")),
            },
            10 => format!("{name} sends what it shows as {}", tab.resend()),
            11 | 12 => {
                tab.stop();
                format!("{name} stops")
            }
            13 => {
                tab.clear();
                format!("{name} clears")
            }
            14 => format!("{name} calls save as {}", tab.rpc("save", json!([format!("app{n}")]))),
            15 => format!("{name} calls continue as {}", tab.rpc("continue", json!([]))),
            16 => format!("{name} probes as {}", tab.probe()),
            17..=19 if tab.conn().is_some() => {
                world.disconnect(&tab);
                format!("{name} is gone")
            }
            17..=19 => {
                world.reconnect(&tab);
                format!("{name} is back")
            }
            20 | 21 => {
                let frame = forgery(&mut self.dice, n, &self.tabs[0].messages());
                self.stranger.frame(frame.clone());
                format!("the stranger sends {frame}")
            }
            22 => {
                self.stranger.raw(self.dice.of(&["", "{", "null", "{\"type\":1}", "[[[["]));
                "the stranger sends rubbish".into()
            }
            23 | 24 => {
                let sockets = self.dice.of(&[Sockets::Kept, Sockets::Closed]);
                world.restart(sockets);
                format!("death, sockets {sockets:?}")
            }
            25 => {
                let ms = self.dice.below(7_200_000) as i64 - 3_600_000;
                world.clock().skew(ms);
                format!("the clock jumps by {ms} ms")
            }
            26 => {
                let at = match self.dice.below(3) {
                    0 => FaultAt::Begin,
                    1 => FaultAt::Commit,
                    _ => FaultAt::Statement(1 + self.dice.below(12) as u32),
                };
                let line = format!("a fault waits: {at:?}");
                world.db().fail(at, "database or disk is full: SQLITE_FULL");
                line
            }
            27 => {
                let gate = self.dice.of(&GATES);
                world.gates().pass(gate, 1);
                format!("the gate {gate} lets one through")
            }
            _ => {
                let ms = self.dice.below(40_000) as i64;
                world.run_for(ms);
                format!("{ms} ms pass")
            }
        };
        if std::env::var("WAKEFUL_SEED").is_ok() {
            println!("{n}: {line}");
        }
        self.log.push(line);
        let steps = if self.dice.one_in(4) { 400 } else { self.dice.below(25) };
        for _ in 0..steps {
            if !self.world.step() {
                break;
            }
        }
    }

    /// The trouble stops; what is wrong then.
    fn settle(&mut self) -> Vec<String> {
        let world = &self.world;
        self.calm.set(true);
        GATES.iter().for_each(|gate| world.open_gate(gate));
        while world.db().pending_faults() > 0 {
            let handle = world.handle();
            // Whether it is refused is the fault's to decide.
            let _ = world.block_on(async move { handle.set_state(json!("calm")).await });
        }
        world.run();
        // Whoever missed something learns of it when it comes back (wire §4.14); that a stream it watched is over, from a probe that
        // finds nothing (wire §2.15).
        for _ in 0..2 {
            for client in self.tabs.iter().chain([&self.stranger]) {
                world.disconnect(client);
                world.reconnect(client);
            }
            world.run();
        }
        let last = self.tabs[0].send("last question");
        world.run();
        let mut broken = crate::rows::at_rest(world);
        if world.zombie_frames() > 0 {
            broken.push(format!("{} frames of a dead incarnation", world.zombie_frames()));
        }
        if world.said().last().map(String::as_str) != Some("assistant: calm") {
            broken.push(format!("{last}, the last question, has no answer: {:?}", world.said()));
        }
        broken
    }
}

/// What a life comes to: what is wrong, and all it left.
fn live(seed: u64) -> (Vec<String>, wakeful::testkit::Snapshot, String) {
    let mut life = Life::new(seed);
    for n in 0..ACTIONS {
        life.act(n);
        let unsafe_now: Vec<String> = life.tabs.iter().flat_map(|tab| tab.violations(false)).collect();
        if !unsafe_now.is_empty() {
            return (told(&life, unsafe_now), life.world.db().snapshot(), String::new());
        }
    }
    let broken = life.settle();
    let frames: String = life.tabs.iter().chain([&life.stranger]).map(Client::story).collect();
    let broken = if broken.is_empty() { broken } else { told(&life, broken) };
    (broken, life.world.db().snapshot(), frames)
}

/// What is wrong, with the story of how it came to it.
fn told(life: &Life, mut broken: Vec<String>) -> Vec<String> {
    broken.push(format!("-- what was done\n{}", life.log.join("\n")));
    broken.push(format!("-- what happened last\n{}", life.world.story()));
    if std::env::var("WAKEFUL_SEED").is_ok() {
        broken.extend(life.tabs.iter().map(|tab| format!("-- {}\n{}", tab.label(), tab.story())));
    }
    broken
}

fn try_seed(seed: u64) -> Result<(), String> {
    let twice = std::panic::catch_unwind(|| (live(seed), live(seed)));
    let ((broken, rows, frames), (_, rows_again, frames_again)) = twice.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without a text".into())
    })?;
    if !broken.is_empty() {
        return Err(broken.join("\n"));
    }
    let different = rows.difference(&rows_again);
    if !different.is_empty() || frames != frames_again {
        let frame = frames.lines().zip(frames_again.lines()).find(|(one, two)| one != two);
        return Err(format!("two lives of one seed differ in {different:?} and {frame:?}"));
    }
    Ok(())
}

// I1, I3, I6, I7, I8, I14, I19, I20, I22, I23; field, cross-cutting invariants 1–6; wire 164–172; architecture §6
#[test]
fn any_life_comes_to_rest_and_everybody_sees_the_same() {
    let (from, to) = match (number("WAKEFUL_SEED"), number("WAKEFUL_SEEDS")) {
        (Some(seed), _) => (seed, seed + 1),
        (None, seeds) => (0, seeds.unwrap_or(SEEDS)),
    };
    let next = AtomicU64::new(from);
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    if let Err(why) = try_seed(seed) {
                        failed.lock().unwrap().push((seed, why));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    if let Some((seed, why)) = failed.first() {
        panic!("{} of {} seeds fail: {seeds:?}\nWAKEFUL_SEED={seed}\n{why}", failed.len(), to - from);
    }
}
