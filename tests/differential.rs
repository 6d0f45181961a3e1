//! What the pure parts of recovery answer to inputs that the original is given as well (`tests/e2e/peer/repair.test.mjs` and
//! `budget.test.mjs`), and what must hold for them whatever the original does. Hashes of the answers are in `tests/golden/recovery`:
//! `BLESS=1` accepts a change, `ANSWERS=file` writes the answers of the block `ANSWERS_OF` there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use serde_json::{Map, Value, json};
use wakeful::{
    engine::budget::{ChatRecovery, Counters, Reason, Trigger, Verdict, evaluate},
    time::Millis,
    transcript::{reducer::Accumulator, repair},
    wire::message::{Part, Role, UiMessage, call_id, is_settled, part_type, state, tool_name},
};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/recovery").join(name)
}

/// FNV-1a, step by step.
struct Hash(u32);

impl Hash {
    fn new() -> Self {
        Hash(0x811c_9dc5)
    }

    fn word(&mut self, word: u32) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0193);
    }
}

/// Repeatable draws; the original is given the same.
struct Draw(u32);

impl Draw {
    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // The low bits of such a generator have short periods.
        values[(self.0 >> 16) as usize % values.len()].clone()
    }
}

/// Compares the hashes of blocks with those that are written down.
fn settle(name: &str, hashes: &[u32]) {
    let found: String = hashes.iter().enumerate().map(|(block, hash)| format!("{block} {hash:08x}\n")).collect();
    if env::var_os("BLESS").is_some() {
        fs::write(golden(name), &found).unwrap();
    }
    let expected = fs::read_to_string(golden(name)).unwrap_or_default();
    assert!(expected == found, "answers changed; BLESS=1 accepts that, and `npm run e2e:peer` says whether they still agree");
}

/// Where the answers of this block are wanted, if they are.
fn wanted(block: usize) -> Option<PathBuf> {
    env::var("ANSWERS_OF").is_ok_and(|of| of == block.to_string()).then(|| env::var_os("ANSWERS").map(PathBuf::from))?
}

fn parts() -> Value {
    serde_json::from_str(&fs::read_to_string(golden("parts.json")).unwrap()).unwrap()
}

/// Fields of parts with the values they may have: each a list of one, or empty for none.
fn fields() -> Vec<(String, Vec<Option<Value>>)> {
    let file = parts();
    let values = |values: &Value| values.as_array().unwrap().iter().map(|value| value.get(0).cloned()).collect();
    file["fields"].as_object().unwrap().iter().map(|(name, all)| (name.clone(), values(all))).collect()
}

struct Transcript {
    messages: Vec<UiMessage>,
    /// Whether a page answers its calls and the questions about calls.
    waits: bool,
}

fn transcript(draw: &mut Draw, fields: &[(String, Vec<Option<Value>>)]) -> Transcript {
    let count = draw.of(&[1, 2, 3, 4]);
    // Only the original asks whether the turn goes on with an answer: in ours it is always that of the last message.
    draw.of(&[true, false]);
    let waits = draw.of(&[true, false]);
    let messages = (0..count).map(|at| {
        let role = draw.of(&[Role::Assistant, Role::Assistant, Role::Assistant, Role::Assistant, Role::User, Role::System]);
        let mut message = UiMessage::new(format!("m{at}"), role);
        for _ in 0..draw.of(&[0, 1, 2, 3, 4, 5]) {
            let part: Map<String, Value> = fields.iter().filter_map(|(name, values)| Some((name.clone(), draw.of(values)?))).collect();
            message.parts.push(part);
        }
        message
    });
    Transcript { messages: messages.collect(), waits }
}

/// Whether a call has its answer.
fn is_answered(part: &Part) -> bool {
    let has_output = part.contains_key("output") || part.contains_key("result");
    is_settled(part) || (has_output && part.get("preliminary") != Some(&Value::Bool(true)))
}

impl Transcript {
    /// The calls that are still to be run or answered: none but those of the answer that goes on, the last message.
    fn going(&self) -> BTreeSet<String> {
        let is_going = |part: &&Part| match state(part) {
            _ if is_answered(part) => false,
            Some("approval-responded") => true,
            Some("approval-requested") => self.waits,
            Some("input-available") => self.waits && tool_name(part) == Some("page"),
            _ => false,
        };
        let last = self.messages.last().into_iter().flat_map(|message| &message.parts);
        last.filter(is_going).filter_map(call_id).map(Into::into).collect()
    }

    /// Repairs as the engine does. The ids of the calls it closed, and how many inputs it put right.
    fn repair(&mut self) -> (Vec<String>, usize) {
        let going = self.going();
        let (mut ids, mut inputs) = (Vec::new(), 0);
        let last = self.messages.len() - 1;
        for (at, message) in self.messages.iter_mut().enumerate() {
            if at == last || repair::is_broken(message) {
                let (closed, changed) = repair::close_interrupted(message, |call| at == last && going.contains(call));
                ids.extend(closed.iter().filter_map(call_id).map(String::from));
                inputs += changed;
            }
        }
        (ids, inputs)
    }
}

// recovery 125
#[test]
fn a_repaired_transcript_is_whole_and_stays_so() {
    let (mut draw, fields) = (Draw(125), fields());
    let is_object = |part: &Part| part.get("input").is_some_and(Value::is_object);
    let but_input = |part: &Part| -> Part {
        part.iter().filter(|(key, _)| *key != "input").map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    for _ in 0..10_000 {
        let mut transcript = transcript(&mut draw, &fields);
        let (before, going) = (transcript.messages.clone(), transcript.going());
        let (ids, inputs) = transcript.repair();
        let after = transcript.messages.clone();
        assert_eq!(transcript.repair(), (vec![], 0), "twice is once: {before:?}");
        assert_eq!(transcript.messages, after, "{before:?}");

        let (mut closed, mut changed) = (Vec::new(), 0);
        assert_eq!(before.len(), after.len());
        for (at, (old, new)) in before.iter().zip(&after).enumerate() {
            assert_eq!((&old.id, old.role, old.parts.len()), (&new.id, new.role, new.parts.len()));
            let is_last = at == before.len() - 1;
            for (old, new) in old.parts.iter().zip(&new.parts).filter(|_| old.role == Role::Assistant) {
                assert_eq!((part_type(old), call_id(old)), (part_type(new), call_id(new)));
                let Some(call) = call_id(old) else {
                    let mut ended = old.clone();
                    if state(old) == Some("streaming") && ["text", "reasoning"].contains(&part_type(old)) {
                        ended.insert("state".into(), "done".into());
                    }
                    assert!(new == &ended || (new == old && !is_last), "{old:?} {new:?}");
                    continue;
                };
                if is_last && !is_answered(old) && going.contains(call) {
                    assert_eq!(old, new, "what goes on stays word for word");
                    continue;
                }
                assert!(is_answered(new) && is_object(new), "{old:?} {new:?}");
                changed += usize::from(!is_object(old));
                if is_answered(old) {
                    assert_eq!(but_input(old), but_input(new), "an answer stays as it is");
                } else {
                    closed.push(call.to_owned());
                }
            }
            assert!(old.role == Role::Assistant || old == new, "{old:?} {new:?}");
        }
        assert_eq!((ids, inputs), (closed, changed), "{before:?}");
    }
}

// recovery 126
#[test]
fn the_examples_of_the_specification_are_repaired_byte_by_byte() {
    let file = parts();
    let examples = file["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 8);
    for example in examples {
        let whole = |part: &Value| format!(r#"{{"id":"a","role":"assistant","parts":[{}]}}"#, part.as_str().unwrap());
        let mut message = UiMessage::from_row(&whole(&example["before"])).unwrap();
        let (closed, inputs) = repair::close_interrupted(&mut message, |_| example["last"] == true);
        assert_eq!(closed.len(), example["removed"], "{example}");
        assert_eq!(inputs, example["normalised"], "{example}");
        assert_eq!(json!(closed.iter().map(call_id).collect::<Vec<_>>()), example["ids"], "{example}");
        if let (Some(Value::Object(other)), [call]) = (example.get("hook"), &*closed) {
            let mut reply = Accumulator::extending(message);
            reply.replace(call_id(call).unwrap(), other);
            message = reply.into_message();
        }
        assert_eq!(message.json(), whole(&example["after"]));
    }
}

#[test]
fn the_repairs_that_are_compared_with_the_original_are_these() {
    let (mut draw, fields) = (Draw(0), fields());
    let mut hashes = Vec::new();
    for block in 0..20 {
        let mut answers = String::new();
        for _ in 0..1_000 {
            let mut transcript = transcript(&mut draw, &fields);
            let (ids, inputs) = transcript.repair();
            let messages: Vec<String> = transcript.messages.iter().map(UiMessage::json).collect();
            answers.push_str(&format!("[{}] repaired:{} inputs:{inputs} ids:{}\n", messages.join(","), ids.len(), ids.join(",")));
        }
        if let Some(file) = wanted(block) {
            fs::write(file, &answers).unwrap();
        }
        let mut hash = Hash::new();
        answers.bytes().for_each(|byte| hash.word(byte.into()));
        hashes.push(hash.0);
    }
    settle("repair.txt", &hashes);
}

/// One turn before its next attempt, at a threshold or one off it.
struct Case {
    before: Counters,
    progress: i64,
    trigger: Trigger,
    parked: bool,
}

/// Every case around the thresholds of these bounds, in an order that the test against the original shares.
fn cases(bounds: &ChatRecovery, mut each: impl FnMut(&Case)) {
    const NONE: u32 = 1_000_000;
    let attempts = Some(bounds.max_attempts).filter(|most| *most != u32::MAX).unwrap_or(NONE).max(1);
    let deaths = bounds.max_interrupted_attempts.unwrap_or(NONE).max(1);
    let work = bounds.max_recovery_work.map_or(i64::from(NONE), |most| i64::try_from(most).unwrap());
    let idle = Some(bounds.no_progress_timeout_ms).filter(|ms| *ms != u32::MAX).map_or(i64::from(NONE) * 1_000, i64::from);
    let died = |boots| Trigger::Interrupted { boots };
    for trigger in [died(0), died(1), died(2), Trigger::Stalled, Trigger::Transient] {
        for parked in [false, true] {
            each(&Case { before: Counters::default(), progress: 7, trigger, parked });
            for made in [-1, 0, 1] {
                for gap in [-1, 29_999, 30_000, 30_001] {
                    for idle in [idle - 1, idle, idle + 1] {
                        for since_progress in [attempts.saturating_sub(2), attempts - 1, attempts] {
                            for interrupted in [deaths.saturating_sub(2), deaths - 1] {
                                for transient in [attempts - 1, attempts] {
                                    for work in [(work - 1).max(0), work] {
                                        let before = Counters {
                                            since_progress,
                                            interrupted,
                                            transient,
                                            progress_seen: 7 + work,
                                            work_base: 7,
                                            last_progress_at: Some(NOW + -idle),
                                            last_attempt_at: Some(NOW + -gap),
                                        };
                                        each(&Case { before, progress: 7 + work + made, trigger, parked });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

const NOW: Millis = Millis(1_700_000_000_000);
const REASONS: [Reason; 4] =
    [Reason::InterruptedAttemptsExceeded, Reason::WorkBudgetExceeded, Reason::NoProgressTimeout, Reason::MaxAttemptsExceeded];

/// The answer to a case, as numbers.
fn verdict(case: &Case, bounds: &ChatRecovery) -> [i64; 8] {
    let (reason, asks, after) = match evaluate(&case.before, case.progress, case.trigger, case.parked, NOW, bounds) {
        Verdict::Go { counters, ask } => (0, ask, counters),
        Verdict::Seal { reason, counters } => (1 + REASONS.iter().position(|each| *each == reason).unwrap(), false, counters),
    };
    let ago = |at: Option<Millis>| NOW.0 - at.unwrap().0;
    [
        i64::try_from(reason).unwrap(),
        asks.into(),
        after.attempt().into(),
        after.interrupted.into(),
        after.transient.into(),
        after.progress_seen - after.work_base,
        ago(after.last_progress_at),
        ago(after.last_attempt_at),
    ]
}

#[test]
fn the_verdicts_around_the_thresholds_are_these() {
    let mut hashes = Vec::new();
    for max_attempts in [0, 1, 10, u32::MAX] {
        for no_progress_timeout_ms in [0, 1, 300_000, u32::MAX] {
            for max_recovery_work in [Some(0), Some(1), Some(10_000), None] {
                for max_interrupted_attempts in [Some(0), Some(1), Some(5), None] {
                    let bounds = ChatRecovery {
                        max_attempts,
                        no_progress_timeout_ms,
                        max_recovery_work,
                        max_interrupted_attempts,
                        ..ChatRecovery::default()
                    };
                    let mut answers = wanted(hashes.len()).map(|file| (file, String::new()));
                    let mut hash = Hash::new();
                    cases(&bounds, |case| {
                        let verdict = verdict(case, &bounds);
                        // The low half tells negative times from positive ones as well.
                        verdict.iter().for_each(|number| hash.word(*number as u32));
                        if let Some((_, lines)) = &mut answers {
                            lines.push_str(&format!("{}\n", verdict.map(|number| number.to_string()).join(" ")));
                        }
                    });
                    if let Some((file, lines)) = answers {
                        fs::write(file, lines).unwrap();
                    }
                    hashes.push(hash.0);
                }
            }
        }
    }
    settle("thresholds.txt", &hashes);
}
