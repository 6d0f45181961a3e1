//! What rows must say: after every commit, and at rest (the invariants of recovery §6.7).

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use serde_json::{Value, json};
use wakeful::{
    Agent, Config,
    engine::{Engine, Identity},
    ids::Boot,
    testkit::{Db, World},
};

/// Rows of a kind of which there may be none after any commit.
const NEVER: &[(&str, &str)] = &[
    ("I7_two_open_attempts", "SELECT max(count(*) - 1, 0) FROM wk_attempt WHERE ended_at IS NULL"),
    (
        "I3_running_without_attempt",
        "SELECT count(*) FROM wk_turn t WHERE ended_at IS NULL AND state = 'running' \
         AND NOT EXISTS (SELECT 1 FROM wk_attempt a WHERE a.turn = t.id AND a.ended_at IS NULL)",
    ),
    (
        "I3_attempt_of_no_running_turn",
        "SELECT count(*) FROM wk_attempt a WHERE ended_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM wk_turn t WHERE t.id = a.turn AND t.state = 'running' AND t.ended_at IS NULL)",
    ),
    ("I3_waiting_for_no_time", "SELECT count(*) FROM wk_turn WHERE ended_at IS NULL AND state = 'waiting' AND next_at IS NULL"),
    (
        "I3_parked_for_nothing",
        "SELECT count(*) FROM wk_turn t WHERE ended_at IS NULL AND state = 'parked' \
         AND NOT EXISTS (SELECT 1 FROM wk_call c WHERE c.message_id = t.assistant_msg AND c.state <> 'settled')",
    ),
    ("I3_two_parked", "SELECT max(count(*) - 1, 0) FROM wk_turn WHERE ended_at IS NULL AND state = 'parked'"),
    (
        "I3_unknown_state",
        "SELECT count(*) FROM wk_turn WHERE (ended_at IS NULL) <> (state IN ('queued', 'running', 'waiting', 'parked'))",
    ),
    (
        "I5_two_messages_of_a_turn",
        "SELECT count(*) FROM (SELECT 1 FROM wk_msg WHERE role = 'assistant' AND turn IS NOT NULL GROUP BY turn HAVING count(*) > 1)",
    ),
    ("I2_body_of_no_message", "SELECT count(*) FROM wk_msg_part WHERE id NOT IN (SELECT id FROM wk_msg)"),
    ("I2_message_without_body", "SELECT count(*) FROM wk_msg WHERE id NOT IN (SELECT id FROM wk_msg_part)"),
    ("I2_message_without_parent", "SELECT count(*) FROM wk_msg WHERE parent IS NOT NULL AND parent NOT IN (SELECT id FROM wk_msg)"),
    ("I2_leaf_of_no_message", "SELECT count(*) FROM wk_meta WHERE k = 'leaf' AND v NOT IN (SELECT id FROM wk_msg)"),
    (
        "I4_log_of_nobody",
        "SELECT count(*) FROM wk_seg WHERE stream NOT IN (SELECT stream FROM wk_notice) \
         AND NOT EXISTS (SELECT 1 FROM wk_turn t WHERE t.ended_at IS NULL AND substr(stream, 1, length(t.id) + 1) = t.id || '.')",
    ),
    ("I13_once_started_twice", "SELECT count(*) FROM wk_call WHERE effect = 'once' AND claims > 1"),
    ("I13_started_too_often", "SELECT count(*) FROM wk_call WHERE claims > 3"),
    (
        "open_call_of_final_turn",
        "SELECT count(*) FROM wk_call c JOIN wk_turn t ON t.id = c.turn WHERE c.state = 'started' AND t.ended_at IS NOT NULL",
    ),
];

/// What is due, and when.
const DUE: &str = "SELECT (SELECT count(*) FROM wk_turn WHERE ended_at IS NULL AND state <> 'parked') \
    + (SELECT count(*) FROM wk_outbox) + (SELECT count(*) FROM wk_submission WHERE completed_at IS NULL AND status = 'pending') AS work, \
    (SELECT min(next_at) FROM wk_turn WHERE ended_at IS NULL AND state = 'waiting') AS attempt, \
    (SELECT min(deadline_at) FROM wk_call WHERE deadline_at IS NOT NULL) AS deadline";

const PROGRESS: &str = "SELECT id, root_request_id AS leg, progress_retired \
    + (SELECT count(*) FROM wk_seg s WHERE substr(s.stream, 1, length(t.id) + 1) = t.id || '.') AS n \
    FROM wk_turn t WHERE ended_at IS NULL AND state IN ('running', 'waiting')";

/// Looks at the rows of a world after each of its commits.
#[derive(Clone, Default)]
pub struct Watcher(Rc<Watched>);

#[derive(Default)]
struct Watched {
    broken: RefCell<Vec<String>>,
    progress: RefCell<BTreeMap<(String, String), i64>>,
    lost: Cell<u64>,
}

impl Watcher {
    /// `reload` also loads the engine after each of them: from rows, at any moment, and writing nothing (I28).
    pub fn of<A: Agent>(world: &World<A>, reload: bool) -> Self {
        let watcher = Self::default();
        let (this, clock) = (watcher.clone(), world.clock());
        let never: Vec<String> = NEVER.iter().map(|(name, rows)| format!("({rows}) AS {name}")).collect();
        let never = format!("SELECT {}", never.join(", "));
        world.db().watch(move |db| {
            this.look(db, &never, clock.now().0);
            if reload {
                this.reload(db);
            }
        });
        watcher
    }

    /// What was wrong so far.
    pub fn broken(&self) -> Vec<String> {
        self.0.broken.borrow().clone()
    }

    fn say(&self, what: String) {
        let mut broken = self.0.broken.borrow_mut();
        if broken.len() < 20 {
            broken.push(what);
        }
    }

    fn reload(&self, db: &Db) {
        let before = (db.snapshot(), db.alarm());
        if let Err(error) = Engine::load(db, Boot::from(String::from("reload")), Identity::default(), Config::default()) {
            self.say(format!("the engine cannot be loaded from these rows: {error}"));
        }
        if (db.snapshot(), db.alarm()) != before {
            self.say("loading the engine changed its rows".into());
        }
    }

    fn look(&self, db: &Db, never: &str, now: i64) {
        for (name, n) in db.query(never).into_iter().flatten().filter(|(_, n)| n.as_i64().is_some_and(|n| n > 0)) {
            self.say(format!("{name}: {n}"));
        }
        // I23: if anything is due there is an alarm, and not later than that.
        let due = db.query(DUE).remove(0);
        let alarm = db.alarm().map(|at| at.0);
        let beat = due["work"].as_i64().filter(|n| *n > 0).map(|_| now + wakeful::limits::HEARTBEAT_MS);
        let wanted = beat.into_iter().chain(due["attempt"].as_i64()).chain(due["deadline"].as_i64()).min();
        if let Some(wanted) = wanted.filter(|wanted| alarm.is_none_or(|at| at > *wanted)) {
            self.say(format!("I23: the alarm is set to {alarm:?}, due is {wanted} ({due:?}), now is {now}"));
        }
        let mut progress = self.0.progress.borrow_mut();
        if self.0.lost.replace(db.lost_commits()) != db.lost_commits() {
            // What is remembered of commits that a crash took back says nothing.
            progress.clear();
        }
        for row in db.query(PROGRESS) {
            let key = (row["id"].to_string(), row["leg"].to_string());
            let n = row["n"].as_i64().unwrap_or_default();
            let before = progress.insert(key, n).unwrap_or(0);
            if n < before {
                self.say(format!("I9: the progress of a turn went back from {before} to {n}"));
            }
        }
        if db.largest_value() >= 1_800_000 {
            self.say(format!("I27: a value of {} bytes was bound", db.largest_value()));
        }
    }
}

/// Rows of a kind of which there may be none at rest.
const AT_REST: &[(&str, &str)] = &[
    ("turns that are not final", "SELECT request_id AS id FROM wk_turn WHERE ended_at IS NULL"),
    ("submissions that are not final", "SELECT id FROM wk_submission WHERE completed_at IS NULL"),
    ("attempts", "SELECT turn AS id FROM wk_attempt"),
    ("open calls", "SELECT call_id AS id FROM wk_call WHERE state <> 'settled'"),
    ("calls of no message or turn", "SELECT call_id AS id FROM wk_call WHERE turn NOT IN (SELECT id FROM wk_turn)"),
    ("logs", "SELECT stream AS id FROM wk_seg"),
    ("owed hooks", "SELECT id FROM wk_outbox"),
];

/// What must hold when nothing is under way and nobody is asked anything, and does not.
pub fn at_rest<A: Agent>(world: &World<A>) -> Vec<String> {
    let mut broken = world.complaints();
    if (world.jobs(), world.alarm_at()) != (0, None) {
        broken.push(format!("{} jobs and the alarm {:?} are left", world.jobs(), world.alarm_at()));
    }
    for (what, rows) in AT_REST {
        let found = world.db().query(rows);
        if !found.is_empty() {
            broken.push(format!("{what} are left: {found:?}"));
        }
    }
    let messages = world.get_messages();
    let stored = json!(messages).to_string();
    for open in ["\"state\":\"streaming\"", "\"input-streaming\"", "\"input-available\"", "\"preliminary\":true"] {
        if stored.contains(open) {
            broken.push(format!("stored is something unfinished: {open}"));
        }
    }
    if messages.iter().any(|m| m["role"] == "assistant" && m.to_string().contains("forged")) {
        broken.push("a forged answer is stored".into());
    }
    broken.extend(outcomes(world, &messages));
    broken
}

/// What became of a call is what its message says (I12).
fn outcomes<A: Agent>(world: &World<A>, messages: &[Value]) -> Vec<String> {
    let rows = world.db().query("SELECT message_id, call_id, outcome FROM wk_call");
    let mut broken = Vec::new();
    for message in messages {
        for part in message["parts"].as_array().into_iter().flatten() {
            let Some(row) = rows.iter().find(|row| row["call_id"] == part["toolCallId"] && row["message_id"] == message["id"]) else {
                continue;
            };
            let expected = match row["outcome"].as_str() {
                Some("output") => "output-available",
                Some("error") => "output-error",
                Some("denied") => "output-denied",
                _ => continue,
            };
            if part["state"] != expected {
                broken.push(format!("{}: the message says {}, its row {}", part["toolCallId"], part["state"], row["outcome"]));
            }
        }
    }
    broken
}
