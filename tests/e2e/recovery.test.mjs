// A turn goes on after the process died the hard way, in the message it began.

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
const INTERRUPTED = "The tool call was interrupted before a result was recorded.";
/** Of 25 deltas these are on disk: a segment holds ten chunks, and the first three open message, step and text. */
const KEPT = SLOW_DELTAS.slice(0, 17).join("");

/** A message whose answer stands still after 25 words. */
async function begun({ room, provider }) {
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id, message } = socket.say(`slow ${room.name}`);
  for (const delta of SLOW_DELTAS.slice(0, 25)) {
    gate.open(1);
    await socket.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === delta));
  }
  const chunks = socket.chunks(id);
  return { socket, id, message, answer: chunks[0].messageId, shown: textOfChunks(chunks) };
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
  const { shown, message, answer } = await begun(context);
  await worker.restart();
  const { request } = await provider.call(CONTINUE, 1, HEARTBEAT_MS);
  const told = request.messages.at(-2);
  assert.equal(told.role, "assistant");
  assert.ok(told.content.startsWith(KEPT) && shown.startsWith(told.content), told.content);
  const history = await settled(room, worker, (entries) => textOf(entries.at(-1)).endsWith(TEXT));
  assert.deepEqual(history.map((entry) => entry.role), ["user", "assistant"]);
  assert.equal(history[0].id, message.id);
  assert.deepEqual([history[1].id, textOf(history[1])], [answer, told.content + TEXT]);
});

test("a death before the first word: the question is answered anew", async (context) => {
  // recovery 2, 11, D1: nobody is there, so it is the alarm that has it answered.
  const { room, provider, worker } = context;
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { message } = socket.say(`late ${room.name}`);
  await gate.reached(1);
  await worker.kill();
  gate.open();
  await worker.restart();
  await provider.call(`late ${room.name}`, 2, HEARTBEAT_MS);
  const history = await settled(room, worker, (entries) => entries.length === 2);
  assert.deepEqual([history[0].id, textOf(history[1])], [message.id, TEXT]);
  assert.equal(provider.of(`late ${room.name}`).length, 2);
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
  // A newer turn takes its place: who comes after that is not told any more.
  gate.open();
  await late.done(late.say(`echo ${room.name}`, { history: await room.history() }).id);
  const later = await room.connect();
  assert.equal((await later.ask()).reason, "idle");
});

test("a call whose arguments were coming in is closed, and the model is told", async ({ room, provider, worker }) => {
  // recovery 14, D4
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`typing ${room.name}`);
  for (let n = 1; n <= 14; n += 1) {
    gate.open(1);
    await socket.frame(() => socket.chunks(id).filter((chunk) => chunk.type === "tool-input-delta").length === n);
  }
  await worker.restart();
  const { request } = await provider.call(`typing ${room.name}`, 2, HEARTBEAT_MS);
  const [called, result] = request.messages.slice(-2);
  assert.deepEqual([called.tool_calls[0].function.arguments, JSON.parse(result.content)], ["{}", { error: INTERRUPTED }]);
  const history = await settled(room, worker, (entries) => textOf(entries.at(-1)).endsWith(TEXT));
  const call = history[1].parts.find((part) => part.toolCallId === "call_in");
  assert.deepEqual([call.state, call.input, call.errorText], ["output-error", {}, INTERRUPTED]);
});

test("a rate limit is waited for across a death; who comes meanwhile is told, and may stop it", async ({ room, provider, worker }) => {
  // recovery 7, 67, 87
  // Longer than a call is tried again within its step.
  const seconds = 12;
  const text = `status 429 ${seconds} ${room.name}`;
  const socket = await room.connect();
  const { id } = socket.say(text);
  await provider.call(text);
  const began = performance.now();
  await socket.frame((frame) => frame.type === "cf_agent_chat_recovering" && frame.recovering);
  await worker.restart();
  const late = await room.connect();
  const flag = await late.frame("cf_agent_chat_recovering");
  assert.deepEqual([flag.recovering, flag.id, provider.of(text).length], [true, id, 1]);
  await provider.call(text, 2, HEARTBEAT_MS);
  assert.ok(performance.now() - began > (seconds - 1) * 1_000, "it was asked too early");
  // The second attempt is refused like the first, and waited for like it; its asker stops that.
  const since = late.mark();
  await late.frame((frame) => isResponse(frame) && frame.done && frame.outcome === "recovering");
  late.cancel(id);
  await late.frame((frame) => isResponse(frame) && frame.done && frame.outcome === "aborted", { since });
  await late.frame((frame) => frame.type === "cf_agent_chat_recovering" && !frame.recovering, { since });
  assert.equal((await late.ask()).reason, "idle");
  assert.equal(provider.of(text).length, 2);
});

test("who connects before the next attempt gets what there is, and then the rest in the same message", async (context) => {
  // recovery 94, decision 36
  const { room, provider, worker } = context;
  const { id, answer, shown } = await begun(context);
  const asked = provider.of(CONTINUE).length;
  await worker.restart();
  const back = await room.connect();
  const { messages } = await back.frame((frame) => frame.type === "cf_agent_chat_messages" && frame.messages.length === 2);
  const [, partial] = messages;
  assert.ok(partial.id === answer && textOf(partial).startsWith(KEPT) && shown.startsWith(textOf(partial)), JSON.stringify(partial));
  await back.frame((frame) => frame.type === "cf_agent_chat_recovering" && frame.recovering);
  const end = await back.frame((frame) => isResponse(frame) && frame.done && frame.outcome === "completed");
  assert.notEqual(end.id, id);
  // Nothing of the dead stream is played again.
  assert.deepEqual(back.frames.filter((frame) => isResponse(frame) && frame.id === id && !frame.done), []);
  const history = await room.history();
  assert.deepEqual([history.length, history[1].id, textOf(history[1])], [2, answer, textOf(partial) + TEXT]);
  assert.equal(provider.of(CONTINUE).length, asked + 1);
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
      const flags = tab.seen.map((value) => Boolean(value.isRecovering));
      assert.deepEqual(flags.filter((flag, at) => flag !== flags[at - 1]), [false, true, false]);
      assert.deepEqual(tab.turnsEnded.map((turn) => turn.outcome), ["completed"]);
      const stored = (await room.history()).map((entry) => [entry.id, textOf(entry)]);
      assert.equal(stored.length, 2);
      assert.deepEqual(tab.now.messages.map((entry) => [entry.id, textOf(entry)]), stored);
      tab.now.sendMessage({ text: "echo on" });
      await tab.until((value) => value.status === "ready" && said(value).at(-1) === "on");
    } finally {
      await tab.close();
    }
  });
}
