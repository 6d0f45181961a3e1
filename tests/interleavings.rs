//! Any interleaving of answers, decisions, duplicates, late answers, new messages, cancels, clears, lost networks and deaths, over up
//! to three tabs. When it is over: every call has exactly one outcome, which its message shows; no tool ran twice or unasked; a
//! continuation had something new to say; every request has its end; every tab shows what is stored, without a spinner.
//!
//! A short run belongs to `cargo test`; `npm test` lives 10,000 seeds in an optimised build. A failing one is printed, and
//! `WAKEFUL_SEED=n cargo test --test interleavings` lives it alone and tells all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests say so by panicking

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use wakeful::{
    engine::events::Event,
    limits,
    prelude::*,
    testkit::{Client, Reply, Sockets, Status, World, http_error, text, text_deltas},
};

/// Lives in a plain `cargo test`.
const SEEDS: u64 = 150;
const ACTIONS: u64 = 16;

/// The one source of luck of a life.
struct Dice(fastrand::Rng);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        if list.is_empty() { None } else { Some(list[self.below(list.len() as u64) as usize].clone()) }
    }
}

/// What tools and hooks saw, over all incarnations.
#[derive(Default)]
struct Seen {
    /// Under which tool and keys a call ran here, each time it did.
    ran: RefCell<BTreeMap<String, Vec<(&'static str, String)>>>,
    /// Whether the turn that runs is a continuation, and its first model call is still to come.
    continues: Cell<bool>,
    /// What continuations were asked that had nothing new in it.
    idle_continuations: RefCell<Vec<String>>,
    /// Calls whose results a model was given.
    told: RefCell<BTreeSet<String>>,
}

#[derive(Clone)]
struct Helper {
    seen: Rc<Seen>,
    config: Config,
    /// Whether it keeps what an interrupted answer held.
    keeps: bool,
}

impl Helper {
    fn server(&self, name: &'static str, ms: u32) -> Tool {
        let seen = self.seen.clone();
        Tool::dynamic(name, "Works.", json!({ "type": "object" }), move |_, scope| {
            seen.ran.borrow_mut().entry(scope.call_id().to_owned()).or_default().push((name, scope.idempotency_key().to_owned()));
            async move {
                if ms > 0 {
                    scope.sleep(ms).await;
                }
                Ok(json!(format!("{} done", scope.call_id())))
            }
        })
    }
}

impl Agent for Helper {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn config(&self) -> Config {
        self.config.clone()
    }

    fn tools(&self, _: &Turn) -> Tools {
        let maybe = |input: Value, _| async move {
            Ok(match input["n"].as_u64() {
                Some(0) => Approval::Allow,
                Some(1) => Approval::Deny("never".into()),
                _ => Approval::Ask,
            })
        };
        let later = |_: Value, scope: TurnScope| async move {
            scope.sleep(1_500).await;
            Ok(Approval::Allow)
        };
        Tools::new()
            .with(self.server("book", 3_000).keyed())
            .with(self.server("weigh", 0).needs_approval_when(later))
            .with(self.server("work", 0))
            .with(self.server("slow", 3_000))
            .with(self.server("pay", 0).needs_approval())
            .with(self.server("maybe", 1_000).needs_approval_when(maybe))
            .with(Tool::client_dynamic("peek", "Looks.", json!({ "type": "object" })).needs_approval())
    }

    async fn on_chat_recovery(&self, _: &AgentHandle, _: &RecoveryInfo) -> Result<RecoveryDecision> {
        Ok(RecoveryDecision { persist: self.keeps, ..RecoveryDecision::default() })
    }

    async fn before_turn(&self, turn: &Turn) -> Result<TurnPlan> {
        self.seen.continues.set(turn.trigger == "auto-continuation");
        Ok(TurnPlan::default())
    }
}

const OVERLAPS: [MessageConcurrency; 7] = [
    MessageConcurrency::Queue,
    MessageConcurrency::Queue,
    MessageConcurrency::Latest,
    MessageConcurrency::Drop,
    MessageConcurrency::Debounce { ms: 700 },
    MessageConcurrency::Steer,
    MessageConcurrency::Interrupt,
];
const TOOLS: [&str; 10] = ["look", "ask", "hurry", "work", "slow", "pay", "maybe", "peek", "book", "weigh"];

fn reply(dice: &mut Dice, after_tools: bool) -> Reply {
    match dice.below(if after_tools { 16 } else { 9 }) {
        0..=4 => (0..1 + dice.below(3)).fold(text("Let me see."), |reply, _| {
            let name = dice.of(&TOOLS).unwrap();
            // Ids of its own: after a clear they would be given twice, and what a model was told could not be told apart.
            reply.call_raw(&format!("c{:x}", dice.0.u64(..)), name, &json!({ "n": dice.below(4) }).to_string())
        }),
        5 => text_deltas(&["slow "; 12]).delay(900).text("end"),
        6 => http_error(400, json!({ "error": { "message": "no", "type": "invalid_request_error" } })),
        _ => text("fine"),
    }
}

/// The calls a tab was ever shown.
fn shown_calls(world: &World<Helper>) -> Vec<String> {
    let rows = world.db().query("SELECT call_id FROM wk_call ORDER BY created_at, call_id");
    rows.iter().filter_map(|row| row["call_id"].as_str()).map(str::to_owned).collect()
}

fn result_frame(call: &str, dice: &mut Dice) -> Value {
    let more = dice.below(4) > 0;
    match dice.below(5) {
        0 => json!({ "type": "cf_agent_tool_approval", "toolCallId": call, "approved": dice.below(2) == 0, "autoContinue": more }),
        1 => {
            json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": "", "state": "output-error", "errorText": "e", "autoContinue": more })
        }
        _ => {
            json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": "x", "output": dice.below(3), "autoContinue": more, "ack": true })
        }
    }
}

/// Answers a call as the stock hook does.
fn answer(tab: &Client, call: &str, dice: &mut Dice) {
    let messages = tab.messages();
    let part = messages.iter().filter_map(|m| m["parts"].as_array()).flatten().rfind(|p| p["toolCallId"] == call).cloned();
    match part {
        Some(part) if part["state"] == "approval-requested" => match dice.below(3) {
            0 => tab.deny(call, "no"),
            _ => tab.approve(call, true),
        },
        _ if dice.below(5) == 0 => tab.tool_error(call, "the page failed"),
        _ => tab.tool_result(call, json!(format!("by {}", tab.label()))),
    }
}

fn act(world: &World<Helper>, tabs: &[Client], dice: &mut Dice, log: &mut Vec<String>) {
    let tab = dice.of(tabs).unwrap();
    let name = tab.label();
    let done = match dice.below(24) {
        0..=3 => format!("{name} asks as {}", tab.send("question")),
        4..=10 => match dice.of(&tab.open_calls()) {
            Some(call) => {
                answer(&tab, &call, dice);
                format!("{name} answers {call}")
            }
            None => format!("{name} asks as {}", tab.send("question")),
        },
        11 | 12 => {
            let call = dice.of(&shown_calls(world)).unwrap_or_else(|| "nobodys".into());
            let frame = result_frame(&call, dice);
            tab.frame(frame.clone());
            format!("{name} sends {frame}")
        }
        13 => {
            tab.stop();
            format!("{name} stops")
        }
        14 => {
            let ids = world.db().query("SELECT request_id FROM wk_turn UNION SELECT request_id FROM wk_continuation");
            let Some(id) = dice.of(&ids).and_then(|row| row["request_id"].as_str().map(str::to_owned)) else { return };
            tab.cancel(&id);
            format!("{name} cancels {id}")
        }
        15 if dice.below(2) == 0 => {
            tab.clear();
            format!("{name} clears")
        }
        15 => format!("{name} asks again as {}", tab.regenerate()),
        16 | 17 if tab.conn().is_some() => {
            world.disconnect(&tab);
            format!("{name} is gone")
        }
        16 | 17 => {
            world.reconnect(&tab);
            format!("{name} is back")
        }
        18 => {
            world.restart(Sockets::Kept);
            "death, sockets kept".into()
        }
        19 => {
            world.restart(Sockets::Closed);
            "death, sockets closed".into()
        }
        20 => format!("{name} probes {}", tab.probe()),
        21 => format!("{name} sends its screen as {}", tab.resend()),
        _ => {
            let ms = dice.below(4_000) as i64;
            world.run_for(ms);
            format!("{ms} ms pass")
        }
    };
    log.push(done);
    match dice.below(3) {
        0 => {}
        1 => world.settle(),
        _ => {
            for _ in 0..dice.below(24) {
                world.step();
            }
        }
    }
}

/// Lives a life. What is wrong with it.
fn live(seed: u64, tell: bool) -> Vec<String> {
    let mut dice = Dice(fastrand::Rng::with_seed(seed));
    let config = Config {
        message_concurrency: dice.of(&OVERLAPS).unwrap(),
        continue_on_client_error: dice.below(2) == 0,
        approval_wait_ms: (dice.below(4) == 0).then_some(2_500),
        max_steps: 3,
        chat_recovery: ChatRecovery { enabled: dice.below(2) == 0, ..ChatRecovery::default() },
        ..Config::default()
    };
    let keeps = dice.below(3) > 0;
    let seen = Rc::new(Seen::default());
    let calm = Rc::new(Cell::new(false));
    let (watched, quiet, mut luck) = (seen.clone(), calm.clone(), Dice(fastrand::Rng::with_seed(seed ^ 0xABCD)));
    let world = World::new(Helper { seen: seen.clone(), config, keeps }).seed(seed).model_fn(move |request| {
        let results: BTreeSet<String> =
            request.messages().iter().filter_map(|m| m["tool_call_id"].as_str()).map(str::to_owned).collect();
        if watched.continues.replace(false) && results.is_subset(&watched.told.borrow()) {
            watched.idle_continuations.borrow_mut().push(request.body.to_string());
        }
        watched.told.borrow_mut().extend(results);
        let after_tools = request.roles().last() == Some(&"tool");
        if quiet.get() { text("calm") } else { reply(&mut luck, after_tools) }
    });
    let tabs: Vec<Client> = ["S1", "S2", "S3"].iter().map(|label| world.connect(label)).collect();
    let tools = json!([{ "name": "look" }, { "name": "ask" }, { "name": "hurry", "timeoutMs": 2_000 }]);
    tabs.iter().for_each(|tab| tab.set_body(json!({ "clientTools": tools })));
    let mut log = Vec::new();
    for _ in 0..ACTIONS {
        act(&world, &tabs, &mut dice, &mut log);
    }

    // The trouble stops: what waits for a person is answered, and everything must come to rest.
    calm.set(true);
    for tab in tabs.iter().filter(|tab| tab.conn().is_none()) {
        world.reconnect(tab);
    }
    world.run();
    for _ in 0..4 {
        for call in tabs[0].open_calls() {
            answer(&tabs[0], &call, &mut dice);
        }
        world.run();
    }
    let mut broken = outcomes(&world, &seen, false);
    let held = world.db().count("wk_continuation") > 0;
    for tab in tabs.iter().filter(|_| !held) {
        if matches!(tab.status(), Status::Submitted | Status::Streaming) {
            broken.push(format!("{} waits for something that never comes: {:?}", tab.label(), tab.status()));
        }
    }
    tabs[0].send("a question that is answered");
    world.run();
    // A tab that missed the end of a stream learns from an idle probe that there is none (wire §2.15).
    for tab in &tabs {
        world.disconnect(tab);
        world.reconnect(tab);
    }
    world.run();
    tabs[0].send("last question");
    world.run();
    broken.extend(outcomes(&world, &seen, true));
    broken.extend(world.complaints());
    for tab in &tabs {
        if matches!(tab.status(), Status::Submitted | Status::Streaming) {
            broken.push(format!("{} shows a spinner: {:?}", tab.label(), tab.status()));
        }
    }
    if world.said().last().map(String::as_str) != Some("assistant: calm") {
        broken.push(format!("the last question has no answer: {:?}", world.said()));
    }
    if (world.jobs(), world.alarm_at()) != (0, None) {
        broken.push(format!("{} jobs and the alarm {:?} are left", world.jobs(), world.alarm_at()));
    }
    if !broken.is_empty() {
        broken.push(log.join("\n"));
        if tell {
            broken.extend(world.events().iter().map(Event::line));
            broken.push(world.story());
            broken.extend(tabs.iter().map(Client::story));
        }
    }
    broken
}

/// What is wrong with the calls; `settled` if none may be open any more.
fn outcomes(world: &World<Helper>, seen: &Seen, settled: bool) -> Vec<String> {
    let mut broken = Vec::new();
    let rows = world.db().query("SELECT call_id, name, site, state, outcome, approval_id, approved FROM wk_call");
    let row = |call: &str| rows.iter().find(|row| row["call_id"] == call);
    for (call, runs) in seen.ran.borrow().iter() {
        let most = if runs[0].0 == "book" { limits::TOOL_CLAIMS as usize } else { 1 };
        if runs.len() > most || runs.iter().any(|run| *run != runs[0]) {
            broken.push(format!("{call} ran as {runs:?}, and may {most} times"));
        }
        let gated = |row: &&serde_json::Map<String, Value>| row["approval_id"].is_string() || row["name"] == "pay";
        if row(call).filter(gated).is_some_and(|row| row["approved"] != 1) {
            broken.push(format!("{call} ran although nobody allowed it"));
        }
    }
    let accepted = |e: &&Event| e.name == "tool:result" && e.fields["verdict"] == "accepted";
    let mut first = BTreeSet::new();
    for event in world.events().iter().filter(accepted) {
        if !first.insert(event.fields["callId"].to_string()) {
            broken.push(format!("two results of {} were accepted", event.fields["callId"]));
        }
    }
    for part in world.get_messages().iter().filter_map(|m| m["parts"].as_array()).flatten() {
        let Some(call) = part["toolCallId"].as_str() else { continue };
        // A call that was refused before it was one, or cut off before its tool started, has no row.
        let Some(row) = row(call) else { continue };
        let (state, expected) = (part["state"].as_str().unwrap_or_default(), row["outcome"].as_str());
        let fits = match expected {
            Some("output") => state == "output-available",
            Some("error") => state == "output-error",
            Some("denied") => state == "output-denied",
            _ => matches!(state, "input-available" | "approval-requested" | "approval-responded"),
        };
        if !fits || (settled && row["state"] != "settled") {
            broken.push(format!("{call}: the message says {state}, its row {} {expected:?}", row["state"]));
        }
    }
    let open = world.db().query("SELECT call_id FROM wk_call WHERE state <> 'settled'");
    if settled && !open.is_empty() {
        broken.push(format!("open calls are left: {open:?}"));
    }
    let live = world.db().query("SELECT id, state FROM wk_turn WHERE ended_at IS NULL");
    if live.iter().any(|turn| settled || turn["state"] != "parked") {
        broken.push(format!("turns are left: {live:?}"));
    }
    let waits_for_nothing = "SELECT id FROM wk_turn t WHERE state = 'parked' AND NOT EXISTS \
        (SELECT 1 FROM wk_call c WHERE c.message_id = t.assistant_msg AND c.state <> 'settled')";
    if !world.db().query(waits_for_nothing).is_empty() {
        broken.push("a parked turn waits for nothing".into());
    }
    if settled && world.db().count("wk_continuation") > 0 {
        broken.push("a continuation is still wished for".into());
    }
    broken.extend(seen.idle_continuations.borrow().iter().map(|body| format!("a continuation had nothing new: {body}")));
    broken
}

#[test]
fn any_interleaving_of_answers_comes_to_rest_with_one_outcome_a_call() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let (seeds, alone) = match number("WAKEFUL_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..number("WAKEFUL_SEEDS").unwrap_or(SEEDS), false),
    };
    let next = AtomicU64::new(seeds.start);
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || failed.lock().unwrap().len() > 20 {
                        return;
                    }
                    let broken = std::panic::catch_unwind(|| live(seed, alone)).unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".into());
                        vec![text]
                    });
                    if !broken.is_empty() {
                        failed.lock().unwrap().push((seed, broken.join("\n")));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    let list: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    if let Some((seed, why)) = failed.first() {
        panic!("{} of {} seeds fail: {list:?}\nWAKEFUL_SEED={seed}\n{why}", failed.len(), seeds.end - seeds.start);
    }
}
