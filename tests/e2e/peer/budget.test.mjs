// The bounds of recovery against the original's own: both judge the same 100,000 drawn inputs. Ours wrote the hashes of its answers
// into golden/recovery/budget.txt (`cargo test --lib budget`); the original's functions are taken out of the installed package here.
// Where the two are meant to differ, `judge` says how and why, and nowhere else.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { EMPTY, differences, drawing, functions, hash, hashed, hashes, hex, ours, oursOf } from "./original.mjs";

const NOW = 1_700_000_000_000;
const BURST_MS = 30_000;
const BLOCK = 1_000;
const ANSWERS = ["--lib", "budget::tests::the_answers"];

const golden = hashes("budget.txt");
let peer;

before(() => {
  peer = functions("agents/chat", ["evaluateChatRecoveryIncident", "chatRecoveryBackoffSeconds", "resolveChatRecoveryConfig"]);
});

function input(draw) {
  const bounds = {
    maxAttempts: draw(1, 2, 3, 10),
    noProgressTimeoutMs: draw(0, 10_000, 300_000, 300_000),
    maxRecoveryWork: draw(Infinity, 0, 3, 3),
    maxInterruptedAttempts: draw(Infinity, 1, 3, 5, 5),
  };
  const first = draw(true, false, false, false, false, false, false, false);
  const attempt = draw(0, 0, 1, 1, 2, 3, 8, 9, 10) + 1;
  const interruptedAttempts = draw(0, 0, 1, 1, 2, 3, 4, 5);
  const transientRetries = draw(0, 0, 0, 1, 2, 3, 9, 10);
  const seen = draw(0, 5, 20);
  const workBaseline = Math.max(0, seen - draw(0, 0, 1, 2, 3, 4));
  const lastAttemptAt = NOW - draw(-3_600_000, -1, 0, 1, 29_999, 30_000, 60_000, 300_001);
  const earlier = draw(undefined, 0, 0, 0, 1, 9_999, 270_001, 300_000, -5_000);
  const lastProgressAt = earlier === undefined ? undefined : lastAttemptAt - earlier;
  const progress = Math.max(0, seen + draw(-1, 0, 0, 0, 0, 1, 4));
  const boots = draw(1, 1, 0, 2, "stalled", "transient");
  const parked = draw(true, false, false, false, false);
  const keep = draw(true, true, false);
  const existing = { attempt, interruptedAttempts, transientRetries, progress: seen, workBaseline, lastAttemptAt, lastProgressAt };
  return { bounds, existing: first ? null : existing, progress, boots, parked, keep };
}

/** What the original says to an input, as a line like that of budget.rs. */
async function judge({ bounds, existing, progress, boots, parked, keep }) {
  const died = typeof boots === "number";
  const seen = existing && { ...existing, attemptsInFlight: [] };
  for (let boot = 0; died && seen && boot < boots; boot += 1) seen.attemptsInFlight.push({ isolate: `dead${boot}`, token: `${boot}` });
  // recovery §6.4, N13: a clock that stepped back makes no burst. Here every negative difference is one until the clock caught up.
  // recovery 66, I10: a stall or a provider error is an attempt that ran, and no wake of a deployment: never part of a burst.
  if (seen && (NOW < seen.lastAttemptAt || !died)) seen.lastAttemptAt = NOW - BURST_MS;
  // recovery N1: there the record is dropped after an hour without an evaluation, before this function sees it. Ours never is, so both
  // are given one of any age.
  let asked;
  const evaluate = async (config) => {
    asked = false;
    const shouldKeepRecovering = () => {
      asked = true;
      return keep;
    };
    const result = await peer.evaluateChatRecoveryIncident({
      identity: { requestId: "r", latestUserMessageId: "u", recoveryKind: "continue" },
      trigger: died ? { kind: "interrupted", attempt: { isolate: "mine", token: "t" } } : { kind: "stalled" },
      config: { ...config, shouldKeepRecovering },
      existing: seen ?? undefined,
      currentProgress: progress,
      awaitingClientInteraction: parked,
      now: NOW,
    });
    assert.equal(result.exhausted, result.incident.status === "exhausted");
    return result;
  };
  let { incident, exhausted } = await evaluate(bounds);
  // recovery N2: the time bound needs two attempts since the last progress. A second one shows in the number of this one, or in an
  // evaluation later than the progress.
  const two = incident.attempt >= 3 || existing?.lastAttemptAt > existing?.lastProgressAt;
  if (incident.reason === "no_progress_timeout" && !two) {
    ({ incident, exhausted } = await evaluate({ ...bounds, noProgressTimeoutMs: Infinity }));
  }
  // There the caller counts the retry after a transient error, once it is to happen; ours counts it in the same function.
  const retries = (incident.transientRetries ?? 0) + (boots === "transient" && !exhausted ? 1 : 0);
  return (
    `${incident.reason ?? "go"} asked:${asked} attempt:${incident.attempt} interrupted:${incident.interruptedAttempts ?? 0} ` +
    `transient:${retries} progress:${incident.workBaseline}-${incident.progress} ` +
    `at:${NOW - incident.lastProgressAt}/${NOW - incident.lastAttemptAt}`
  );
}

// recovery 63
test("the bounds of recovery are judged as the original judges them", async () => {
  const draw = drawing();
  const blocks = Object.keys(golden).length - 1;
  assert.ok(blocks >= 100, `${blocks} blocks`);
  const verdicts = {};
  for (let block = 0; block < blocks; block += 1) {
    const inputs = Array.from({ length: BLOCK }, () => input(draw));
    const answers = [];
    for (const each of inputs) answers.push(await judge(each));
    for (const [verdict] of answers.map((answer) => answer.split(" "))) verdicts[verdict] = (verdicts[verdict] ?? 0) + 1;
    if (hash(answers) === golden[block]) continue;
    const own = ours(ANSWERS, (file) => ({ BUDGET_ANSWERS: file })).slice(block * BLOCK);
    const at = answers.findIndex((answer, index) => answer !== own[index]);
    assert.notEqual(at, -1, `block ${block} agrees, and its hash is an old one: BLESS=1 cargo test --lib budget`);
    assert.fail(`input ${block * BLOCK + at}: ${JSON.stringify(inputs[at])}\n    ours: ${own[at]}\noriginal: ${answers[at]}`);
  }
  assert.equal(Object.keys(verdicts).length, 6, `${JSON.stringify(verdicts)}: something never happened`);
});

test("the waits between attempts are those of the original", () => {
  const waits = [];
  for (let retries = 1; retries <= 12; retries += 1) {
    for (const asked of [undefined, 0, 1, 29, 31, 45, 60, 61, 600]) waits.push(`${peer.chatRecoveryBackoffSeconds(retries, asked)}`);
  }
  assert.equal(hash(waits), golden.backoff);
});

const DIFFERENCES = {
  "recovery N13": "A clock that stepped back makes no burst. In the original everything is one until the clock has caught up.",
  "recovery 66, I10": "A stall or a provider error is an attempt that ran. In the original it may be part of a burst of wakes.",
  "recovery N2": "The time bound needs two attempts since the last progress. In the original one is enough, an outage counts as its time.",
};
const REASONS = [
  undefined,
  "interrupted_attempts_exceeded",
  "work_budget_exceeded",
  "no_progress_timeout",
  "max_attempts_exceeded",
];

/** Every case around the thresholds of these bounds, in the order of `tests/differential.rs`. */
function cases(bounds) {
  const finite = (value) => (value === Infinity ? 1_000_000 : value);
  const attempts = finite(bounds.maxAttempts);
  const deaths = finite(bounds.maxInterruptedAttempts);
  const work = finite(bounds.maxRecoveryWork);
  const late = bounds.noProgressTimeoutMs === Infinity ? 1_000_000_000 : bounds.noProgressTimeoutMs;
  const least = (value) => Math.max(0, value);
  const all = [];
  for (const trigger of [0, 1, 2, "stalled", "transient"]) {
    for (const parked of [false, true]) {
      all.push({ trigger, parked, existing: null, progress: 7 });
      for (const made of [-1, 0, 1]) {
        for (const gap of [-1, 29_999, 30_000, 30_001]) {
          for (const idle of [late - 1, late, late + 1]) {
            for (const since of [least(attempts - 2), attempts - 1, attempts]) {
              for (const interruptedAttempts of [least(deaths - 2), deaths - 1]) {
                for (const transientRetries of [attempts - 1, attempts]) {
                  for (const worked of [least(work - 1), work]) {
                    const existing = {
                      attempt: since + 1,
                      interruptedAttempts,
                      transientRetries,
                      progress: 7 + worked,
                      workBaseline: 7,
                      lastProgressAt: NOW - idle,
                      lastAttemptAt: NOW - gap,
                      attemptsInFlight: [{ isolate: "a" }, { isolate: "b" }].slice(0, Number(trigger) || 0),
                    };
                    all.push({ trigger, parked, existing, progress: 7 + worked + made });
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return all;
}

/** The original's verdict on a case, as the numbers of `tests/differential.rs`, with the differences that are meant. */
async function verdict({ trigger, parked, existing, progress }, bounds, met) {
  const died = typeof trigger === "number";
  let asked;
  const ask = async (existing, bounds, keep = true) => {
    asked = false;
    const shouldKeepRecovering = () => {
      asked = true;
      return keep;
    };
    const { incident } = await peer.evaluateChatRecoveryIncident({
      identity: { requestId: "r", latestUserMessageId: "u", recoveryKind: "continue" },
      trigger: died ? { kind: "interrupted", attempt: { isolate: "mine", token: "t" } } : { kind: "stalled" },
      config: { ...bounds, shouldKeepRecovering },
      existing: existing ?? undefined,
      currentProgress: progress,
      awaitingClientInteraction: parked,
      now: NOW,
    });
    return incident;
  };
  const numbers = (incident) => [
    REASONS.indexOf(incident.reason),
    Number(asked),
    incident.attempt,
    incident.interruptedAttempts ?? 0,
    // There the caller counts the retry after a transient error, once it is to happen.
    (incident.transientRetries ?? 0) + Number(trigger === "transient" && !incident.reason),
    incident.progress - incident.workBaseline,
    NOW - incident.lastProgressAt,
    NOW - incident.lastAttemptAt,
  ];
  let seen = existing;
  let incident = await ask(seen, bounds);
  let found = numbers(incident);
  const differ = async (name, other, otherBounds = bounds) => {
    seen = other;
    incident = await ask(other, otherBounds);
    const numbered = numbers(incident);
    if (numbered.some((number, at) => number !== found[at])) met.happened(name);
    found = numbered;
  };
  const apart = () => ({ ...seen, lastAttemptAt: NOW - BURST_MS });
  if (seen && NOW < seen.lastAttemptAt) await differ("recovery N13", apart());
  if (seen && !died && NOW - seen.lastAttemptAt < BURST_MS) await differ("recovery 66, I10", apart());
  let held = bounds;
  if (incident.reason === "no_progress_timeout" && incident.attempt < 3 && existing.lastAttemptAt <= existing.lastProgressAt) {
    held = { ...bounds, noProgressTimeoutMs: Infinity };
    await differ("recovery N2", seen, held);
  }
  if (found[1]) {
    const refused = numbers(await ask(seen, held, false));
    assert.deepEqual([refused[0], ...refused.slice(2, 4)], [-1, ...found.slice(2, 4)], "a no of the application seals, and changes nothing else");
  }
  return found;
}

// recovery §6.8, 3
test("around every threshold the verdict is that of the original", async () => {
  const met = differences(DIFFERENCES);
  const known = hashes("thresholds.txt");
  const verdicts = {};
  let block = 0;
  let count = 0;
  for (const maxAttempts of [0, 1, undefined, Infinity]) {
    for (const noProgressTimeoutMs of [0, 1, undefined, Infinity]) {
      for (const maxRecoveryWork of [0, 1, undefined, Infinity]) {
        for (const maxInterruptedAttempts of [0, 1, undefined, Infinity]) {
          const bounds = peer.resolveChatRecoveryConfig({
            maxAttempts,
            noProgressTimeoutMs,
            maxRecoveryWork,
            maxInterruptedAttempts,
          });
          const all = cases(bounds);
          const answers = [];
          for (const each of all) answers.push(await verdict(each, bounds, met));
          for (const [reason] of answers) verdicts[REASONS[reason] ?? "go"] = (verdicts[REASONS[reason] ?? "go"] ?? 0) + 1;
          count += all.length;
          if (hex(answers.flat().reduce(hashed, EMPTY)) !== known[block]) {
            const own = oursOf("the_verdicts", block);
            const at = answers.findIndex((answer, index) => answer.join(" ") !== own[index]);
            assert.notEqual(at, -1, `block ${block} agrees, and its hash is an old one: BLESS=1 cargo test --test differential`);
            assert.fail(
              `${JSON.stringify({ maxAttempts, noProgressTimeoutMs, maxRecoveryWork, maxInterruptedAttempts })} ` +
                `${JSON.stringify(all[at])}\n    ours: ${own[at]}\noriginal: ${answers[at].join(" ")}`,
            );
          }
          block += 1;
        }
      }
    }
  }
  assert.equal(block, Object.keys(known).length);
  console.log(`${count} cases: ${JSON.stringify(verdicts)}; differences: ${JSON.stringify(met.counts)}`);
  met.allHappened();
  assert.equal(Object.keys(verdicts).length, REASONS.length, "some verdict never came");
});
