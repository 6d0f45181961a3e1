//! Random lives of one object, each a function of its seed: people who ask, edit, stop, clear and lose their network, a stranger who
//! sends whatever comes to mind, providers that fail, a database that refuses, alarms that come late, twice or never, clocks that
//! jump, and death of every kind at any moment.
//!
//! A life is a list of actions, drawn first and then lived. Safety is checked all the time; then the trouble stops, and everything
//! must come to rest (recovery §6.8). Every life is lived twice and has to be the same. One that fails is shrunk: actions are left out
//! as long as it still fails.
//!
//! `WAKEFUL_SEEDS=n` lives as many, `WAKEFUL_SEED=n cargo test --test sim lives` lives that one and tells all of it.

use std::{
    cell::Cell,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
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
        Client, Db, Death, Dial, FaultAt, Gates, KillPoint, Reply, Snapshot, Sockets, World, cut, empty, http_error, one_read, raw,
        reasoning, refused, stall, text, text_deltas,
    },
};

use crate::{Pace, is_known, number, rows, words_of};

/// Lives in a plain `cargo test`.
const SEEDS: u64 = 120;
const ACTIONS: u64 = 14;
const TABS: [&str; 3] = ["S1", "S2", "S3"];
const GATES: [&str; 3] = ["left", "middle", "right"];
/// What a database may say.
const FAULTS: [&str; 5] = [
    "database or disk is full: SQLITE_FULL",
    "out of memory: SQLITE_NOMEM",
    "string or blob too big: SQLITE_TOOBIG",
    "disk I/O error: SQLITE_IOERR",
    "Error: Internal error in Durable Object storage caused object to be reset.",
];
/// Begins of transactions that fail in an outage: more than the platform tries an alarm.
const OUTAGE: usize = 9;

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

/// Something that happens, to the `n`-th tab where it is somebody's doing.
#[derive(Clone, Debug)]
enum Action {
    Ask(usize),
    Again(usize),
    Edit(usize),
    Resend(usize),
    Stop(usize),
    Clear(usize),
    Save(usize),
    Continue(usize),
    Probe(usize),
    /// The network goes, or comes back.
    Line(usize),
    /// What the stranger sends is drawn from this.
    Forge(u64),
    Rubbish(&'static str),
    Die(Death),
    DieAt(KillPoint, u32, Death),
    /// It dies, and the sockets stay as they do over a hibernation.
    Sleep,
    Clock(i64),
    Fault(FaultAt, &'static str),
    /// The database is away for a while.
    Outage,
    /// Nothing can be written until the next action.
    Full,
    Gate(&'static str),
    /// The next alarm comes so much later, or earlier.
    LateAlarm(i64),
    /// The alarm comes once more.
    Ring,
    Pass(i64),
}

/// An action, and how many things may happen after it before the next.
#[derive(Clone, Debug)]
struct Act {
    /// Its place in the life it was drawn for, which names what is said.
    n: u64,
    action: Action,
    steps: u64,
}

/// A life that can be lived.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    tabs: usize,
    overlap: MessageConcurrency,
    recovers: bool,
    slow_disk: bool,
    /// Whether nobody was there before.
    first: bool,
    acts: Vec<Act>,
}

impl Plan {
    fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let tabs = 1 + dice.below(3) as usize;
        let acts = (0..ACTIONS).map(|n| {
            let action = action(&mut dice, tabs);
            let steps = if dice.one_in(4) { 400 } else { dice.below(25) };
            Act { n, action, steps }
        });
        let acts = acts.collect();
        Self {
            seed,
            tabs,
            overlap: OVERLAPS[(seed % OVERLAPS.len() as u64) as usize],
            recovers: !seed.is_multiple_of(5),
            slow_disk: seed.is_multiple_of(3),
            first: seed.is_multiple_of(16),
            acts,
        }
    }

    /// The same life with some of its actions only.
    fn keeping(&self, keep: impl Fn(&Act) -> bool) -> Self {
        Self { acts: self.acts.iter().filter(|act| keep(act)).cloned().collect(), ..self.clone() }
    }

    /// How to live it again.
    fn command(&self) -> String {
        let all = self.acts.len() as u64 == ACTIONS;
        let list: Vec<String> = self.acts.iter().map(|act| act.n.to_string()).collect();
        let keep = if all { String::new() } else { format!("WAKEFUL_KEEP={} ", list.join(",")) };
        format!("WAKEFUL_SEED={} {keep}cargo test --profile seeds --test sim lives", self.seed)
    }

    /// The actions, a line each.
    fn script(&self) -> String {
        let Plan { tabs, overlap, recovers, slow_disk, first, .. } = self;
        let mut lines = vec![format!("{tabs} tabs, {overlap:?}, recovery {recovers}, slow disk {slow_disk}, no tables yet {first}")];
        lines.extend(self.acts.iter().map(|act| format!("{:>3} {:?}, then {} steps", act.n, act.action, act.steps)));
        lines.join("\n")
    }
}

fn action(dice: &mut Dice, tabs: usize) -> Action {
    let tab = dice.below(tabs as u64) as usize;
    match dice.below(34) {
        0..=7 => Action::Ask(tab),
        8 => Action::Again(tab),
        9 => Action::Edit(tab),
        10 => Action::Resend(tab),
        11 | 12 => Action::Stop(tab),
        13 => Action::Clear(tab),
        14 => Action::Save(tab),
        15 => Action::Continue(tab),
        16 => Action::Probe(tab),
        17..=19 => Action::Line(tab),
        20 | 21 => Action::Forge(dice.below(u64::MAX)),
        22 => Action::Rubbish(dice.of(&["", "{", "null", "{\"type\":1}", "[[[["])),
        23 => Action::Sleep,
        24 => Action::Die(dice.of(&Death::ALL)),
        25 | 26 => {
            // A panic in the middle of a step leaves sockets that nobody can tell what they missed: it happens between steps here.
            let death = dice.of(&[Death::Hard, Death::Memory, Death::Zombie]);
            Action::DieAt(dice.of(&KillPoint::ALL), 1 + dice.below(12) as u32, death)
        }
        27 => Action::Clock(dice.below(7_200_000) as i64 - 3_600_000),
        28 => {
            let at = match dice.below(4) {
                0 => FaultAt::Begin,
                1 => FaultAt::Commit,
                _ => FaultAt::Statement(1 + dice.below(40) as u32),
            };
            Action::Fault(at, dice.of(&FAULTS))
        }
        29 => Action::Gate(dice.of(&GATES)),
        30 => match dice.below(5) {
            0 => Action::LateAlarm(-1_000),
            1 => Action::Ring,
            2 => Action::Outage,
            3 => Action::Full,
            _ => Action::LateAlarm(dice.below(7_200_000) as i64),
        },
        _ => Action::Pass(dice.below(40_000) as i64),
    }
}

struct Life {
    world: World<Helper>,
    tabs: Vec<Client>,
    stranger: Client,
    watcher: rows::Watcher,
    calm: Rc<Cell<bool>>,
    loud: bool,
}

impl Life {
    fn new(plan: &Plan, watched: bool, loud: bool) -> Self {
        let calm = Rc::new(Cell::new(false));
        let (quiet, seed, mut asked) = (calm.clone(), plan.seed, BTreeMap::<String, u64>::new());
        let gates = Gates::new();
        let world = World::new(Helper { gates: gates.clone(), overlap: plan.overlap, recovers: plan.recovers })
            .with_gates(&gates)
            .seed(seed)
            .model_fn(move |request| {
                // What is answered depends on what is asked, so that leaving out a question leaves the other answers as they are.
                let question = request.last_user();
                let times = asked.entry(question.clone()).or_default();
                *times += 1;
                let mut hash = DefaultHasher::new();
                (seed, &question, *times).hash(&mut hash);
                if quiet.get() { text("calm") } else { reply(&mut Dice::new(hash.finish())) }
            });
        let world = if plan.slow_disk { world.slow_disk() } else { world };
        // Making the tables takes longer than most of a life: some do it, the others come after somebody who has.
        let world = if plan.first { world } else { world.with_db(&Db::with_tables()) };
        let tabs = TABS[..plan.tabs].iter().map(|label| world.connect(label)).collect();
        let stranger = world.dial(Dial::new("X").raw());
        let watcher = if watched { rows::Watcher::of(&world, false) } else { rows::Watcher::default() };
        Self { world, tabs, stranger, watcher, calm, loud }
    }

    fn act(&self, act: &Act) {
        let Act { n, action, steps } = act;
        if self.loud {
            println!("{n}: {action:?}, then {steps} steps");
        }
        let world = &self.world;
        world.db().make_room();
        let tab = |i: &usize| &self.tabs[*i];
        match action {
            Action::Ask(i) => drop(tab(i).send(&format!("question {n}"))),
            Action::Again(i) => drop(tab(i).regenerate()),
            Action::Edit(i) => {
                let messages = tab(i).messages();
                match messages.iter().filter(|m| m["role"] == "user").filter_map(|m| m["id"].as_str()).next_back() {
                    Some(id) => drop(tab(i).edit(id, &format!("better question {n}"))),
                    None => drop(tab(i).send("nothing to edit")),
                }
            }
            Action::Resend(i) => drop(tab(i).resend()),
            Action::Stop(i) => tab(i).stop(),
            Action::Clear(i) => tab(i).clear(),
            Action::Save(i) => drop(tab(i).rpc("save", json!([format!("app{n}")]))),
            Action::Continue(i) => drop(tab(i).rpc("continue", json!([]))),
            Action::Probe(i) => drop(tab(i).probe()),
            Action::Line(i) if tab(i).conn().is_some() => world.disconnect(tab(i)),
            Action::Line(i) => world.reconnect(tab(i)),
            Action::Forge(luck) => self.stranger.frame(forgery(&mut Dice::new(*luck), *n, &self.tabs[0].messages())),
            Action::Rubbish(text) => self.stranger.raw(*text),
            Action::Die(death) => world.die(*death),
            Action::DieAt(point, nth, death) => world.die_at(*point, *nth, *death),
            Action::Sleep => world.restart(Sockets::Kept),
            Action::Clock(ms) => world.clock().skew(*ms),
            Action::Fault(at, text) => world.db().fail(at.clone(), *text),
            Action::Outage => (0..OUTAGE).for_each(|_| world.db().fail(FaultAt::Begin, FAULTS[3])),
            Action::Full => world.db().refuse_writes(FAULTS[0]),
            Action::Gate(gate) => world.gates().pass(gate, 1),
            Action::LateAlarm(ms) => world.shift_alarm(*ms),
            Action::Ring => world.ring(),
            Action::Pass(ms) => world.run_for(*ms),
        }
        for _ in 0..*steps {
            if !world.step() {
                break;
            }
        }
    }

    /// What must hold at any moment, and does not.
    fn unsafe_now(&self) -> Vec<String> {
        self.tabs.iter().flat_map(|tab| tab.violations(false)).chain(self.watcher.broken()).collect()
    }

    /// The trouble stops, and somebody asks one more question: its id.
    fn come_to_rest(&self) -> String {
        let world = &self.world;
        self.calm.set(true);
        world.spare();
        world.db().heal();
        world.shift_alarm(0);
        GATES.iter().for_each(|gate| world.open_gate(gate));
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
        world.bury();
        last
    }

    /// What is wrong once the trouble has stopped.
    fn settle(&self) -> Vec<String> {
        let last = self.come_to_rest();
        let world = &self.world;
        let mut broken = self.unsafe_now();
        broken.extend(rows::at_rest(world));
        if world.said().last().map(String::as_str) != Some("assistant: calm") {
            broken.push(format!("{last}, the last question, has no answer: {:?}", world.said()));
        }
        broken
    }

    /// All it leaves: rows, and what everybody saw.
    fn left(&self) -> (Snapshot, String) {
        let frames = self.tabs.iter().chain([&self.stranger]).map(Client::story).collect();
        (self.world.db().snapshot(), frames)
    }
}

/// What a life comes to: what is wrong, and all it left.
struct Lived {
    broken: Vec<String>,
    left: (Snapshot, String),
}

/// One more thing that must be true of a life.
type Oracle<'a> = &'a dyn Fn(&Life) -> Vec<String>;

fn nothing_more(_: &Life) -> Vec<String> {
    Vec::new()
}

fn live(plan: &Plan, more: Oracle<'_>, loud: bool) -> Lived {
    let life = Life::new(plan, true, loud);
    plan.acts.iter().for_each(|act| life.act(act));
    // Frames and the watcher's findings are kept: what was wrong at any moment is still there at the end.
    let mut broken = life.settle();
    broken.extend(more(&life));
    broken.retain(|line| !is_known("", line));
    if !broken.is_empty() {
        broken.push(format!("-- what happened last\n{}", life.world.story()));
        if loud {
            broken.extend(life.tabs.iter().map(|tab| format!("-- {}\n{}", tab.label(), tab.story())));
        }
    }
    Lived { broken, left: life.left() }
}

/// What the same life leaves where nobody looks.
fn live_again(plan: &Plan) -> (Snapshot, String) {
    let life = Life::new(plan, false, false);
    plan.acts.iter().for_each(|act| life.act(act));
    life.come_to_rest();
    life.left()
}

/// What is wrong with a life that is lived twice.
fn judged(plan: &Plan, more: Oracle<'_>, loud: bool) -> Vec<String> {
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (live(plan, more, loud), live_again(plan))));
    match twice {
        Err(panic) => vec![words_of(panic.as_ref())],
        Ok((one, _)) if !one.broken.is_empty() => one.broken,
        Ok((one, two)) if one.left != two => {
            let different = one.left.0.difference(&two.0);
            let frame = one.left.1.lines().zip(two.1.lines()).find(|(one, two)| one != two);
            vec![format!("two lives of one seed differ in {different:?} and {frame:?}")]
        }
        Ok(_) => Vec::new(),
    }
}

/// Leaves out actions as long as what is left still fails.
fn shrunk(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut plan = plan.clone();
    let mut size = plan.acts.len();
    while size > 0 {
        let mut from = 0;
        let mut less = false;
        while from < plan.acts.len() {
            let without: Vec<u64> = plan.acts.iter().skip(from).take(size).map(|act| act.n).collect();
            let shorter = plan.keeping(|act| !without.contains(&act.n));
            if fails(&shorter) {
                plan = shorter;
                less = true;
            } else {
                from += size;
            }
        }
        // What could not be left out before may be now.
        size = if less && size == 1 { 1 } else { size / 2 };
    }
    plan
}

/// What fails about a life, by its first words, so that shrinking does not end at something else.
fn kind(broken: &[String]) -> Option<String> {
    let line = broken.first()?.lines().next().unwrap_or_default();
    Some(line.chars().filter(|c| !c.is_ascii_digit()).take(30).collect())
}

/// A life that fails, as short as it can be told.
fn report(plan: &Plan, broken: &[String]) -> String {
    let fails = |plan: &Plan| kind(&judged(plan, &nothing_more, false)) == kind(broken);
    let short = shrunk(plan, fails);
    let broken = judged(&short, &nothing_more, false);
    format!("{}\n{}\n{}", short.command(), short.script(), broken.join("\n"))
}

// recovery 128; I1, I3, I6, I7, I8, I10, I14, I19, I20, I22, I23; field, cross-cutting invariants 1–6; wire 164–172; architecture §6
#[test]
fn any_life_comes_to_rest_and_everybody_sees_the_same() {
    if let Some(seed) = number("WAKEFUL_SEED") {
        let keep: Option<Vec<u64>> =
            std::env::var("WAKEFUL_KEEP").ok().map(|list| list.split(',').map(|n| n.parse().expect("numbers")).collect());
        let plan = Plan::drawn(seed).keeping(|act| keep.as_ref().is_none_or(|keep| keep.contains(&act.n)));
        let broken = judged(&plan, &nothing_more, true);
        assert!(broken.is_empty(), "{}\n{}\n{}", plan.command(), plan.script(), broken.join("\n"));
        return;
    }
    let from = number("WAKEFUL_FROM").unwrap_or(0);
    let to = from + number("WAKEFUL_SEEDS").unwrap_or(SEEDS);
    let (next, pace) = (AtomicU64::new(from), Pace::new());
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
                    let plan = Plan::drawn(seed);
                    let broken = judged(&plan, &nothing_more, false);
                    pace.count();
                    if !broken.is_empty() {
                        // The first few are worth the time it takes to shrink them.
                        let few = failed.lock().unwrap().len() < 5;
                        let why = if few { report(&plan, &broken) } else { broken[0].lines().next().unwrap_or_default().into() };
                        println!("WAKEFUL_SEED={seed} fails\n{}", why.lines().take(24).collect::<Vec<_>>().join("\n"));
                        failed.lock().unwrap().push((seed, why));
                    }
                    if pace.is_time_to_tell() {
                        println!("random lives: {}, {} failed", pace.said(), failed.lock().unwrap().len());
                    }
                }
            });
        }
    });
    println!("random lives: {}", pace.said());
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    if let Some((_, why)) = failed.first() {
        panic!("{} of {} seeds fail: {seeds:?}\n{why}", failed.len(), to - from);
    }
}

// recovery §6.8: shrink by deleting events
#[test]
fn a_life_that_fails_is_shrunk_to_what_it_takes() {
    let silent = |life: &Life| {
        let asked = life.world.said().iter().any(|line| line.contains("question 3"));
        if asked { vec!["somebody asked the third question".to_owned()] } else { Vec::new() }
    };
    let fails = |plan: &Plan| !judged(plan, &silent, false).is_empty();
    let asks = |plan: &Plan| matches!(plan.acts[3].action, Action::Ask(_));
    let plan = (0..).map(Plan::drawn).find(|plan| asks(plan) && fails(plan)).expect("some life in which it is asked");
    let short = shrunk(&plan, fails);
    assert!(matches!(short.acts.as_slice(), [Act { n: 3, action: Action::Ask(_), .. }]), "{}", short.script());
    assert!(short.command().contains(&format!("WAKEFUL_SEED={} WAKEFUL_KEEP=3 ", plan.seed)), "{}", short.command());
    // The printed command lives the same life.
    let again = Plan::drawn(plan.seed).keeping(|act| act.n == 3);
    assert_eq!(again.script(), short.script());
    assert!(fails(&again));
}
