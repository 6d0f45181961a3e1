// The deployable as a newcomer starts it: nothing configured, the built-in demo model answers (decision 23, decision 49).

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openRoom, textOf, textOfChunks } from "./client.mjs";
import { startWorker } from "./worker.mjs";

let worker;
before(async () => (worker = await startWorker()));
after(() => worker?.stop());

/** Asks one question in a conversation of its own. */
async function ask(text) {
  const room = openRoom(worker);
  const socket = await room.connect();
  const { id } = socket.say(text);
  const end = await socket.done(id);
  assert.equal(end.outcome, "completed", end.body);
  const reply = (await room.history())[1];
  await room.close();
  return { reply, chunks: socket.chunks(id) };
}

const tool = (reply, name) => reply.parts.find((part) => part.type === `tool-${name}`);

test("it says what it is", async () => {
  const { reply, chunks } = await ask("What can you do?");
  assert.match(textOf(reply), /demo/i);
  assert.ok(chunks.filter((chunk) => chunk.type === "text-delta").length > 1, "it streams");
});

test("it looks at the clock with a server tool", async () => {
  const { reply } = await ask("What time is it?");
  assert.equal(tool(reply, "current_time").state, "output-available");
  assert.ok(textOf(reply).length > 0);
});

test("it calculates with a server tool", async () => {
  const { reply } = await ask("Calculate 12 * (7 + 1)");
  assert.match(JSON.stringify(tool(reply, "calculate").output), /\b96\b/);
  assert.match(textOf(reply), /\b96\b/);
});

test("it thinks before it speaks when asked to", async () => {
  const { reply } = await ask("Think about rain");
  const types = reply.parts.map((part) => part.type);
  assert.ok(types.includes("reasoning"));
  assert.ok(types.indexOf("reasoning") < types.indexOf("text"));
});

test("it talks slowly, can be watched and stopped", async () => {
  // wire 142
  const room = openRoom(worker);
  const socket = await room.connect();
  const { id } = socket.say("Talk slowly for 30 seconds");
  await socket.frame(() => socket.chunks(id).filter((chunk) => chunk.type === "text-delta").length >= 2);
  socket.cancel(id);
  assert.equal((await socket.done(id)).outcome, "aborted");
  assert.equal(textOf((await room.history())[1]), textOfChunks(socket.chunks(id)));
  await room.close();
});
