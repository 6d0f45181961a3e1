// A turn goes on after the process died the hard way, in the message it began (recovery 2, 12, 43, 75, 76, 92).

import assert from "node:assert/strict";
import { hasChunk, isResponse, openRoom, textOf, textOfChunks } from "./client.mjs";
import { openTab } from "./hook.mjs";
import { SLOW_DELTAS, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve();
const test = (name, body) => served.test(name, body, { limitMs: 60_000 });
/** An alarm stands at most 30 s ahead while a turn runs; nothing else wakes an object that nobody visits. */
const HEARTBEAT_MS = 40_000;
const CONTINUE = "Continue exactly where you left off, without repeating.";

/** A message whose answer stands still after 25 words. */
async function begun({ room, provider }) {
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id, message } = socket.say(`slow ${room.name}`);
  for (const delta of SLOW_DELTAS.slice(0, 25)) {
    gate.open(1);
    await socket.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === delta));
  }
  return { socket, id, message, shown: textOfChunks(socket.chunks(id)) };
}

/** The history once it fits; asked again when the provider was asked again or a socket says that a turn ended. */
async function settled(room, worker, fits) {
  const socket = await openRoom(worker, { name: room.name }).connect();
  for (;;) {
    const history = await room.history();
    if (fits(history)) return history;
    await socket.frame((frame) => isResponse(frame) && frame.done === true);
  }
}

test("an answer goes on although nobody is there", async (context) => {
  // recovery 12, D3
  const { room, provider, worker } = context;
  const { shown, message } = await begun(context);
  await worker.restart();
  const { request } = await provider.call(CONTINUE, 1, HEARTBEAT_MS);
  const told = request.messages.at(-2);
  assert.equal(told.role, "assistant");
  assert.ok(told.content.length > 0 && shown.startsWith(told.content), told.content);
  const history = await settled(room, worker, (entries) => textOf(entries.at(-1)).endsWith(TEXT));
  assert.deepEqual(history.map((entry) => entry.role), ["user", "assistant"]);
  assert.equal(history[0].id, message.id);
  assert.equal(textOf(history[1]), told.content + TEXT);
});

test("a death before the first word: the question is answered anew", async (context) => {
  // recovery 2, 11, D1
  const { room, provider, worker } = context;
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { message } = socket.say(`late ${room.name}`);
  await gate.reached(1);
  await worker.kill();
  gate.open();
  await worker.restart();
  await room.history();
  await provider.call(`late ${room.name}`, 2);
  const history = await settled(room, worker, (entries) => entries.length === 2);
  assert.deepEqual([history[0].id, textOf(history[1])], [message.id, TEXT]);
});

test("the fifth death ends it, and who comes later is told", async (context) => {
  // recovery 43, 76; I10
  const { room, provider, worker } = context;
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  socket.say(`late ${room.name}`);
  for (let life = 1; life <= 5; life += 1) {
    await provider.call(`late ${room.name}`, life);
    await gate.reached(life);
    await worker.restart();
    await room.history();
  }
  const late = await room.connect();
  const { id } = await late.ask();
  late.ack(id);
  const end = await late.frame((frame) => isResponse(frame) && frame.error === true);
  assert.equal(end.body, "The assistant was interrupted and could not recover. Please try again.");
  assert.equal(provider.of(`late ${room.name}`).length, 5);
  gate.open();
});

for (const use of ["ai-chat", "think"]) {
  test(`${use}: a tab sees the answer go on in the same message`, async ({ room, provider, worker }) => {
    // recovery 92, wire 155
    const gate = provider.gate(room.name);
    const tab = await openTab(room, worker, { use });
    const said = (value) => value.messages.filter((entry) => entry.role === "assistant").map(textOf);
    try {
      await tab.until((value) => value.identified);
      tab.now.sendMessage({ text: `slow ${room.name}` });
      // One delta at a time: each is a chunk of its own, and a segment of the log holds at most ten (decision 41).
      for (const delta of SLOW_DELTAS.slice(0, 25)) {
        gate.open(1);
        await tab.until((value) => said(value)[0]?.endsWith(delta));
      }
      const back = tab.link.nextSocket();
      await worker.restart();
      await back;
      await tab.until((value) => value.status === "ready" && !value.isRecovering && said(value)[0]?.endsWith(TEXT));
      assert.equal(tab.now.messages.length, 2);
      assert.deepEqual(tab.now.messages.map(textOf), (await room.history()).map(textOf));
      tab.now.sendMessage({ text: "echo on" });
      await tab.until((value) => value.status === "ready" && said(value).at(-1) === "on");
    } finally {
      await tab.close();
    }
  });
}
