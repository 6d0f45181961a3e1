// The bounds of recovery against the original's own: both judge the same 100,000 drawn inputs. Ours wrote the hashes of its answers
// into golden/recovery/budget.txt (`cargo test --lib budget`); the original's functions are taken out of the installed package here.
// Where the two are meant to differ, `judge` says how and why, and nowhere else.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const NOW = 1_700_000_000_000;
const BURST_MS = 30_000;
const BLOCK = 1_000;

const golden = Object.fromEntries(
  readFileSync(join(ROOT, "tests/golden/recovery/budget.txt"), "utf8").trim().split("\n").map((line) => line.split(" ")),
);
let peer;

before(() => {
  peer = functions(fileURLToPath(import.meta.resolve("agents/chat")), ["evaluateChatRecoveryIncident", "chatRecoveryBackoffSeconds"]);
});

/** These functions of a file, with the functions of it that they call. They use nothing else of it. */
function functions(file, wanted) {
  const text = readFileSync(file, "utf8");
  const found = new Map();
  const take = (name) => {
    const source = text.match(new RegExp(`^(?:async )?function ${name}\\([^]*?^}`, "m"))?.[0];
    if (!source || found.has(name)) return source !== undefined;
    found.set(name, source);
    for (const [, called] of source.matchAll(/\b(\w+)\(/g)) take(called);
    return true;
  };
  for (const name of wanted) assert.ok(take(name), `${file} has no function ${name} any more`);
  return new Function(`"use strict"; ${[...found.values()].join("\n")}\nreturn { ${wanted.join(", ")} };`)();
}

/** The draws of budget.rs: the same state gives the same inputs there. */
function drawing() {
  let state = 0;
  return (...values) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return values[(state >>> 16) % values.length];
  };
}

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

/** FNV-1a of lines. */
function hash(lines) {
  let value = 0x811c9dc5;
  for (const byte of Buffer.from(lines.map((line) => `${line}\n`).join(""))) value = Math.imul(value ^ byte, 0x01000193);
  return (value >>> 0).toString(16).padStart(8, "0");
}

/** Ours, one by one. Only asked for where a hash differs. */
function ours() {
  const folder = mkdtempSync(join(tmpdir(), "budget-"));
  try {
    const file = join(folder, "answers");
    const { stderr } = spawnSync("cargo", ["test", "--lib", "budget::tests::the_answers"], {
      cwd: ROOT,
      env: { ...process.env, BLESS: undefined, BUDGET_ANSWERS: file },
      encoding: "utf8",
    });
    try {
      return readFileSync(file, "utf8").split("\n");
    } catch {
      throw new Error(`our answers cannot be had:\n${stderr}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
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
    const own = ours().slice(block * BLOCK);
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
