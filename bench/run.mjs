// Measures wakeful against the relay in one run on this machine and prints ratios (`npm run bench`). Timings depend on the
// machine, so nothing here fails a build: the table says which targets were met.
//
// Everything stays on the loopback and is bounded in count and time. State is kept in memory where the system offers it,
// because the disk below a developer's machine says nothing about the platform's; WAKEFUL_BENCH_STATE names another place.

import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { startWorker } from "../tests/e2e/worker.mjs";
import { connect, timeConnect } from "./client.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

const BURST = { events: 1_000, warmUps: 5, runs: 21 };
const CROWD = { conversations: 40, everyMs: 5, events: 400, rounds: 3 };
/** Message bodies of 8 KiB: the wire window (newest 8 MiB) holds about a thousand of them. */
const HISTORY = { long: 5_000, window: 1_000, bytes: 8_192, perRequest: 1_000, runs: 15 };
const RESTARTS = 5;
const DEATHS = 3;
/** A turn has an alarm at most 30 s ahead. */
const OVERDUE_MS = 31_000;
const TICK_US = 10_000;

if (!existsSync("/proc/self/stat")) {
  console.error("The bench reads processor time and memory from /proc: run it on Linux.");
  process.exit(1);
}

const load = fork(at("./load.mjs"));
const [{ url }] = await once(load, "message");
const vars = { MODEL: "openai-compatible/mock-1", MODEL_BASE_URL: url };
const stateBelow = process.env.WAKEFUL_BENCH_STATE ?? (existsSync("/dev/shm") ? "/dev/shm" : tmpdir());
const start = {
  wakeful: () => startWorker({ vars, stateBelow }),
  relay: () => startWorker({ vars, stateBelow, config: at("./relay.toml") }),
};
const rows = [];

note(`state below ${stateBelow}`);
try {
  note(`one conversation, ${BURST.events} events as fast as they come`);
  await burst();
  note(`${CROWD.conversations} conversations at once, an event every ${CROWD.everyMs} ms`);
  await crowd();
  note(`connecting to ${HISTORY.long} stored messages`);
  await longHistory();
  note("from a restart to the first frame");
  await restarts();
  note("from a restart to the first new word of an interrupted answer, nobody connected");
  await unattended();
} finally {
  load.disconnect();
}
printTable();

/** (a) Wall time an event. The two take turns, so that a busy machine is busy for both. */
async function burst() {
  const workers = { wakeful: await start.wakeful(), relay: await start.relay() };
  const took = { wakeful: [], relay: [] };
  try {
    for (let run = 0; run < BURST.warmUps + BURST.runs; run += 1) {
      for (const [name, worker] of Object.entries(workers)) {
        const conversation = await connect(worker);
        await conversation.ask("burst 10");
        const { total } = await conversation.ask(`burst ${BURST.events}`);
        if (run >= BURST.warmUps) took[name].push((total * 1_000) / BURST.events);
        conversation.close();
      }
    }
  } finally {
    await stopAll(workers);
  }
  report("(a) wall time an event", "µs", median(took.wakeful), median(took.relay), 1.0);
}

/** (b) Processor time an event, first delta, and memory, in processes that did nothing else. */
async function crowd() {
  const measured = {};
  for (const [name, begin] of Object.entries(start)) {
    const worker = await begin();
    try {
      const conversations = await Promise.all(Array.from({ length: CROWD.conversations }, () => connect(worker)));
      await Promise.all(conversations.map((conversation) => conversation.ask("burst 10")));
      const before = { ticks: ticksOf(worker.pid), rss: rssOf(worker.pid) };
      let peak = before.rss;
      const watch = setInterval(() => (peak = Math.max(peak, rssOf(worker.pid))), 100);
      const firstDeltas = [];
      for (let round = 0; round < CROWD.rounds; round += 1) {
        const answers = await Promise.all(conversations.map((each) => each.ask(`tick ${CROWD.everyMs} ${CROWD.events}`)));
        firstDeltas.push(...answers.map((answer) => answer.firstDelta));
      }
      clearInterval(watch);
      const events = CROWD.conversations * CROWD.events * CROWD.rounds;
      measured[name] = {
        processor: ((ticksOf(worker.pid) - before.ticks) * TICK_US) / events,
        firstDelta: percentile(firstDeltas, 0.95),
        grown: Math.max(peak, rssOf(worker.pid)) - before.rss,
      };
      for (const conversation of conversations) conversation.close();
    } finally {
      await worker.stop();
    }
  }
  const { wakeful, relay } = measured;
  report("(b) processor time an event", "µs", wakeful.processor, relay.processor, 1.5);
  report("(b) first delta, 95th percentile", "ms", wakeful.firstDelta, relay.firstDelta, 1.5);
  report("(b) memory grown", "MB", wakeful.grown / 1e6, relay.grown / 1e6, 1.0);
}

/** (c) A connect must not depend on what lies behind the wire window. */
async function longHistory() {
  const worker = await start.wakeful();
  try {
    const names = { long: randomUUID(), window: randomUUID() };
    for (const [which, name] of Object.entries(names)) await fill(worker, name, HISTORY[which]);
    const took = { long: [], window: [] };
    let bytes = {};
    for (let run = 0; run < HISTORY.runs + 2; run += 1) {
      for (const [which, name] of Object.entries(names)) {
        const connected = await timeConnect(worker, name);
        bytes[which] = connected.bytes;
        if (run >= 2) took[which].push(connected.took);
      }
    }
    note(`  transcripts of ${bytes.long} and ${bytes.window} bytes`);
    report(`(c) connect, ${HISTORY.long} messages to a full window`, "ms", median(took.long), median(took.window), 1.5);
  } finally {
    await worker.stop();
  }
}

async function fill(worker, name, count) {
  const conversation = await connect(worker, name);
  for (let done = 0; done < count; done += HISTORY.perRequest) {
    const messages = Array.from({ length: Math.min(HISTORY.perRequest, count - done) - 1 }, (_, n) => ({
      id: `m${done + n}`,
      role: "user",
      parts: [{ type: "text", text: "x".repeat(HISTORY.bytes) }],
    }));
    await conversation.ask("burst 1", messages);
  }
  conversation.close();
}

/** (d) The process is killed; from the moment the new one listens to the first frame of a stored conversation. */
async function restarts() {
  const measured = {};
  for (const [name, begin] of Object.entries(start)) {
    const worker = await begin();
    const took = [];
    try {
      const conversation = await connect(worker);
      await conversation.ask("burst 100");
      for (let run = 0; run < RESTARTS; run += 1) {
        await worker.restart();
        const began = performance.now();
        const again = await connect(worker, conversation.name);
        took.push(performance.now() - began);
        again.close();
      }
    } finally {
      await worker.stop();
    }
    measured[name] = median(took);
  }
  report("(d) restart to first frame", "ms", measured.wakeful, measured.relay);
}

/**
 * (e) The process is killed in mid-answer and stays away until the alarm of the turn is overdue; then it starts, and nobody connects.
 * From the moment it listens to the first new word of the model.
 */
async function unattended() {
  const took = [];
  const worker = await start.wakeful();
  try {
    for (let run = 0; run < DEATHS; run += 1) {
      const conversation = await connect(worker);
      const answer = conversation.ask("tick 50 2000").catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      await worker.kill();
      await answer;
      await new Promise((resolve) => setTimeout(resolve, OVERDUE_MS));
      const carriedOn = once(load, "message");
      await worker.restart();
      const began = performance.now();
      await carriedOn;
      took.push(performance.now() - began);
    }
  } finally {
    await worker.stop();
  }
  rows.push({ what: "(e) restart to first new delta, unattended", unit: "ms", wakeful: median(took), relay: NaN, ratio: NaN });
}

function report(what, unit, wakeful, relay, target) {
  rows.push({ what, unit, wakeful, relay, ratio: wakeful / relay, target });
}

function printTable() {
  const header = ["", "wakeful", "relay", "ratio", "target", ""];
  const lines = rows.map(({ what, unit, wakeful, relay, ratio, target }) => [
    what,
    `${wakeful.toFixed(1)} ${unit}`,
    Number.isNaN(relay) ? "–" : `${relay.toFixed(1)} ${unit}`,
    Number.isNaN(ratio) ? "–" : ratio.toFixed(2),
    target === undefined ? "–" : `≤ ${target.toFixed(1)}`,
    target === undefined ? "" : ratio <= target ? "met" : "missed",
  ]);
  const widths = header.map((_, column) => Math.max(...[header, ...lines].map((line) => line[column].length)));
  const show = (line) => line.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column]))).join("  ");
  console.log(`\n${[header, ...lines].map(show).join("\n")}`);
  console.log("\nIn (c) the column `relay` is wakeful itself with a history that just fills the wire window.");
}

async function stopAll(workers) {
  for (const worker of Object.values(workers)) await worker.stop();
}

function note(text) {
  console.log(text);
}

function median(values) {
  return percentile(values, 0.5);
}

/** Processor time of the process so far, in clock ticks of 10 ms. */
function ticksOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name of the process may hold blanks; the numbers begin behind its closing parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

function rssOf(pid) {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1_024;
}

function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
