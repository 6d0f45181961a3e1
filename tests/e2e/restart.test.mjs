// The process dies the hard way and comes back on the same state (wire 22, 157; field P-06). What a turn that goes on does then
// is in recovery.test.mjs.

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { hasChunk, openRoom, isTranscript, textOf, textOfChunks } from "./client.mjs";
import { SLOW_TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve();
const ending = serve({ config: fileURLToPath(new URL("./worker/wrangler.toml", import.meta.url)) });
/** On an agent whose turns end with their object (decision 37). */
const endingTest = (name, body) => ending.test(name, body, { agent: "ending" });

served.test("conversations are there after a kill and a restart, to the byte", async ({ room, worker }) => {
  // wire 22, 40
  const rooms = [room, openRoom(worker), openRoom(worker)];
  const before = [];
  for (const [at, each] of rooms.entries()) {
    const socket = await each.connect();
    for (const text of ["stool", `echo room-${at}`, "reason"]) {
      await socket.done(socket.say(text, { history: await each.history() }).id);
    }
    before.push(await (await each.get()).text());
    await each.close();
  }
  await worker.restart();
  for (const [at, each] of rooms.entries()) assert.equal(await (await each.get()).text(), before[at]);
  const socket = await room.connect();
  const transcript = await socket.frame(isTranscript);
  assert.deepEqual(transcript.messages, JSON.parse(before[0]));
  assert.deepEqual(await socket.ask("p"), { type: "cf_agent_stream_resume_none", reason: "idle", probeId: "p" });
  const { id } = socket.say("text", { history: transcript.messages });
  assert.equal((await socket.done(id)).outcome, "completed");
});

endingTest("an answer cut by the death is offered, closed and kept as far as it came", async ({ room, provider, worker }) => {
  // wire 157, decision 37, field P-06 b
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id, message } = sender.say(`slow ${room.name}`);
  // One delta at a time: each is a chunk of its own, and a segment of the log holds at most ten (decision 41).
  for (let word = 0; word < 25; word += 1) {
    gate.open(1);
    await sender.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === `w${word} `));
  }
  const shown = textOfChunks(sender.chunks(id));
  await worker.kill();
  await sender.closed;
  await worker.restart();

  const back = await room.connect();
  const answer = await back.ask();
  assert.equal(answer.type, "cf_agent_stream_resuming");
  assert.equal(answer.id, id);
  back.ack(id);
  const end = await back.done(id);
  assert.equal(end.replay, true);
  assert.equal(end.outcome, "aborted");
  assert.deepEqual(end.messageIds, [message.id]);
  const replayed = textOfChunks(back.chunks(id, { replay: true }));
  assert.ok(replayed.length > 0 && shown.startsWith(replayed));

  const history = await room.history();
  assert.deepEqual(history.map((entry) => entry.role), ["user", "assistant"]);
  assert.equal(textOf(history[1]), replayed);
  assert.equal((await back.ask()).reason, "idle");

  // The conversation goes on, and the model is told what was said.
  const next = back.say(`echo on-${room.name}`, { history });
  assert.equal((await back.done(next.id)).outcome, "completed");
  const { request } = await provider.call(`echo on-${room.name}`);
  assert.equal(request.messages.at(-2).content, replayed);
});

endingTest("a death before the first chunk leaves the question and no empty answer", async ({ room, provider, worker }) => {
  // wire 157, decision 37, field P-06 c
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id, message } = sender.say(`late ${room.name}`);
  await gate.reached(1);
  await worker.kill();
  await worker.restart();
  const back = await room.connect();
  back.ack(id);
  const end = await back.done(id);
  assert.equal(end.outcome, "aborted");
  assert.deepEqual((await room.history()).map((entry) => entry.id), [message.id]);
  const next = back.say("slow", { message: { ...message, id: "second-question", parts: [{ type: "text", text: "text" }] }, history: [message] });
  assert.equal((await back.done(next.id)).outcome, "completed");
  gate.open();
});

served.test("a second death on the same rows loses nothing more", async ({ room, worker }) => {
  // wire 22
  const socket = await room.connect();
  await socket.done(socket.say("text").id);
  const before = await room.history();
  for (let round = 0; round < 2; round += 1) {
    await worker.kill();
    await worker.restart();
    assert.deepEqual(await room.history(), before);
  }
});

served.test("what was finished before the death is never shown as running", async ({ room, provider, worker }) => {
  // wire X7
  const gate = provider.gate(room.name);
  gate.open();
  const socket = await room.connect();
  const { id } = socket.say(`slow ${room.name}`);
  await socket.done(id);
  await worker.kill();
  await worker.restart();
  const back = await room.connect();
  assert.equal(back.frames[0].type, "cf_agent_chat_messages");
  assert.equal(textOf(back.frames[0].messages.at(-1)), SLOW_TEXT);
  back.ack(id);
  const end = await back.done(id);
  assert.equal(end.replay, true);
});
