// The plug (`PLUG`): routes that end the object in the middle of its work, in a real workerd, where ending is what it really is.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { hasChunk, openRoom, textOf } from "./client.mjs";
import { startWorker } from "./worker.mjs";

const KINDS = ["abort", "panic", "hang"];
const SECONDS = 5;
const WHOLE = `${Array.from({ length: SECONDS }, (_, n) => `Sentence ${n + 1} of ${SECONDS}. `).join("")}Done, and nothing is missing.`;
/** Shorter than the time to the next alarm: whoever waits for that one fails. */
const LIMIT_MS = 15_000;

const workers = {};
before(async () => {
  workers.off = await startWorker();
  workers.on = await startWorker({
    vars: { PLUG: "on", AUTH_TOKEN: "t0k3n" },
    tolerate: /panicked at|RuntimeError: unreachable|the plug was pulled/,
  });
});
after(async () => {
  await workers.off?.stop();
  await workers.on?.stop();
});

const openOn = () => openRoom(workers.on, { query: { token: "t0k3n" } });
const pull = (room, kind, method = "POST") => room.get(`/plug/${kind}`, { method });

test("without the plug its paths are like any other", async () => {
  const room = openRoom(workers.off);
  const socket = await room.connect();
  for (const kind of [...KINDS, "other"]) {
    for (const method of ["POST", "GET"]) {
      const answer = await pull(room, kind, method);
      assert.deepEqual([answer.status, await answer.text()], [404, "Not implemented"], `${method} ${kind}`);
    }
  }
  assert.equal((await room.get("/anything")).status, 404);
  assert.ok(!socket.frames.some((frame) => frame.type === "wakeful_plug"));
  await room.close();
});

test("with it there are three kinds, for POST alone, and only for who may connect", async () => {
  const room = openOn();
  const socket = await room.connect();
  await socket.frame("wakeful_plug");
  for (const kind of KINDS) assert.equal((await pull(room, kind, "GET")).status, 405);
  assert.equal((await pull(room, "other")).status, 404);
  const stranger = openRoom(workers.on, { name: room.name });
  for (const kind of KINDS) assert.equal((await pull(stranger, kind)).status, 401);
  // The frame of the plug is none of the protocol: only a page that knows it looks at it.
  await socket.drop();
});

for (const kind of KINDS) {
  test(`${kind}: the answer is heard, and the conversation carries on where it was`, { timeout: 60_000 }, async () => {
    const room = openOn();
    const socket = await room.connect();
    const { id } = socket.say(`Talk slowly for ${SECONDS} seconds`);
    await socket.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === "2 "));
    const bystander = openOn();
    const other = await bystander.connect();
    const { id: calculation } = other.say("Calculate 6 * 7");
    await other.done(calculation);
    assert.equal((await pull(room, kind)).status, 202);
    // A panic closes what it can, so that clients come back at once and learn what they missed.
    if (kind !== "hang") assert.equal((await socket.closed).code, kind === "abort" ? 1006 : 1012);
    // The instance is shared: what ends one object must leave the others able to answer.
    assert.match(textOf((await bystander.history())[1]), /42/);
    const back = kind === "hang" ? socket : await room.connect();
    await back.frame((frame) => frame.type === "cf_agent_chat_recovering" && frame.recovering === false, LIMIT_MS);
    const history = await room.history();
    assert.deepEqual(history.map((entry) => entry.role), ["user", "assistant"]);
    assert.equal(history[1].parts.map((part) => part.text ?? "").join(""), WHOLE);
    await Promise.all([...room.sockets, ...bystander.sockets].map((each) => each.drop()));
  });
}
