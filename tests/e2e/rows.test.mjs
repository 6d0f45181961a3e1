// What an object reads and writes on the real runtime, seen from between the object and its database (recovery 113, 115).

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isResponse, openRoom, textOf } from "./client.mjs";
import { read } from "./kill/world.mjs";
import { TEXT, TEXT_DELTAS } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const MIB = 1024 * 1024;
const served = serve({
  config: fileURLToPath(new URL("./worker/wrangler.toml", import.meta.url)),
  tolerate: /panicked at|RuntimeError: unreachable|a test asked for it/,
});
const test = (name, body, options) => served.test(name, body, { agent: "tapped", ...options });

/** Adds messages of `bytes` of text each, a few at a time. */
async function fill(room, messages, bytes) {
  const part = 6;
  for (let from = 0; from < messages; from += part) {
    const answer = await room.get(`/fill?from=${from}&messages=${Math.min(part, messages - from)}&bytes=${bytes}`);
    assert.equal(answer.status, 200, await answer.text());
  }
}

/** Every row of a room's object, as the files have it. */
async function rows(room, worker) {
  const id = await (await fetch(`${worker.url}/id/${room.name}?class=Tapped`)).text();
  return read(join(worker.state, "do/worker-Tapped", `${id}.sqlite`));
}

/** The statements of a room's incarnation. */
async function statements(room) {
  return (await room.get("/statements")).json();
}

/** What this incarnation has written. */
async function written(room) {
  return (await statements(room)).ran.filter(({ text }) => text.startsWith("INSERT"));
}

test(
  "a conversation of 60 MB whose answer is cut is loaded without a single body, and answered",
  async ({ room, provider, worker }) => {
    // recovery 113
    const [messages, bytes] = [60, 1_000_000];
    await fill(room, messages, bytes);
    const gate = provider.gate(room.name);
    const sender = await room.connect();
    const { message } = sender.say(`late ${room.name}`);
    await gate.reached(1);
    await worker.kill();
    await sender.closed;
    await worker.restart();

    // How long the first answer takes says something about this machine only: it is told and not judged.
    const asked = performance.now();
    const first = await (await room.get()).text();
    console.log(`first answer after ${Math.round(performance.now() - asked)} ms, ${(first.length / MIB).toFixed(1)} MiB`);
    const shown = Math.floor((8 * MIB) / bytes);
    const newest = Array.from({ length: shown }, (_, at) => `m${messages - shown + at}`);
    assert.deepEqual(JSON.parse(first).map((entry) => entry.id), [...newest, message.id]);
    assert.ok(first.length <= 8 * MIB + 1_024, `${first.length} bytes`);

    // The load ends with the attempt that takes the turn up. Only `wk_msg` leads to the bodies of messages, and `wk_seg` holds the log's.
    await gate.reached(2);
    const { ran, memory } = await statements(room);
    const end = ran.findIndex(({ text }) => text.startsWith("INSERT INTO wk_attempt"));
    assert.ok(end > 0, "the turn was not taken up");
    assert.deepEqual(ran.slice(0, end).filter(({ text }) => /wk_msg|body.* FROM wk_seg/.test(text)), []);
    const cost = ran.slice(0, end).reduce((sum, { rowsRead }) => sum + rowsRead, 0);
    assert.ok(cost < messages, `the load read ${cost} rows, as many as there are messages`);
    assert.ok(memory < 128 * MIB, `${memory} bytes of memory, the platform allows 128 MiB`);
    console.log(`${end} statements and ${cost} rows until the turn was taken up, ${Math.round(memory / MIB)} MiB of memory at most`);

    const back = await room.connect();
    gate.open();
    const { outcome, messageIds } = await back.frame((frame) => isResponse(frame) && frame.done && frame.outcome !== "recovering");
    assert.deepEqual([outcome, messageIds], ["completed", [message.id]]);
    const history = await room.history();
    assert.deepEqual(history.map((entry) => entry.id), [...newest, message.id, history.at(-1).id]);
    assert.deepEqual([history.at(-1).role, textOf(history.at(-1))], ["assistant", TEXT]);
    assert.equal(provider.of(`late ${room.name}`).length, 2);
  },
  { limitMs: 60_000 },
);

for (const after of ["INSERT INTO wk_msg (", "INSERT INTO wk_msg_part", "INSERT INTO wk_turn", "INSERT INTO wk_attempt"]) {
  test(`a trap right after "${after}" stores nothing of the message`, async ({ room, provider, worker }) => {
    // recovery 115
    await fill(room, 2, 10);
    const neighbour = openRoom(worker, { agent: "tapped" });
    const other = await neighbour.connect();
    await other.done(other.say("echo before").id);
    const socket = await room.connect();
    const history = await room.history();
    const before = await rows(room, worker);
    const others = await neighbour.history();
    assert.notDeepEqual(await written(room), []);

    await room.get(`/trap?after=${encodeURIComponent(after)}`);
    const { id, message } = socket.say(`echo ${room.name}`);
    assert.equal((await socket.closed).code, 1012);
    const back = await room.connect();
    // Another incarnation answers, which has written nothing yet: the one that has is gone.
    assert.deepEqual(await written(room), []);
    assert.deepEqual(await rows(room, worker), before);
    assert.deepEqual(await room.history(), history);
    assert.deepEqual(provider.of(`echo ${room.name}`), []);

    // The same message is taken as if it came for the first time, and nobody else noticed anything.
    back.post([message], { id });
    assert.equal((await back.done(id)).outcome, "completed");
    const now = await room.history();
    assert.deepEqual(now.slice(0, 3), [...history, message]);
    assert.deepEqual(now.slice(3).map((entry) => [entry.role, textOf(entry)]), [["assistant", room.name]]);
    assert.equal(provider.of(`echo ${room.name}`).length, 1);
    assert.deepEqual(await neighbour.history(), others);
    assert.equal((await other.done(other.say("echo after", { history: others }).id)).outcome, "completed");
    await neighbour.close();
  });
}

test("a trap in the transaction that ends an answer stores nothing of it, and it is given once", async ({ room, provider, worker }) => {
  // recovery 115
  await fill(room, 2, 10);
  const history = await room.history();
  const socket = await room.connect();
  const gate = provider.gate(room.name);
  await room.get(`/trap?after=${encodeURIComponent("UPDATE wk_turn SET state = ?2, reason = ?3, ended_at")}`);
  const { message } = socket.say(`text ${room.name}`);
  gate.open(TEXT_DELTAS.length);
  assert.equal((await socket.closed).code, 1012);
  // Whoever comes back wakes the object, which asks again.
  const back = await room.connect();
  await gate.reached(TEXT_DELTAS.length + 1);
  assert.deepEqual(await room.history(), [...history, message]);
  const { wk_msg, wk_turn } = await rows(room, worker);
  assert.deepEqual([wk_msg.length, wk_turn.map((turn) => [turn.state, turn.ended_at])], [3, [["running", null]]]);

  gate.open();
  const { messageIds } = await back.frame((frame) => isResponse(frame) && frame.outcome === "completed");
  assert.deepEqual(messageIds, [message.id]);
  const now = await room.history();
  assert.deepEqual(now.slice(0, 3), [...history, message]);
  assert.deepEqual(now.slice(3).map((entry) => [entry.role, textOf(entry)]), [["assistant", TEXT]]);
  assert.equal(provider.of(`text ${room.name}`).length, 2);
});
