// Queueing, stopping and clearing (wire 138, 142–150).

import assert from "node:assert/strict";
import { hasChunk, isAnswer, isChunk, isResponse, isTranscript, textOf, textOfChunks } from "./client.mjs";
import { SLOW_TEXT, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve();

async function running(room, provider, deltas = 6) {
  const gate = provider.gate(room.name);
  const one = await room.connect();
  const two = await room.connect();
  const { id, message } = one.say(`slow ${room.name}`);
  gate.open(deltas);
  await Promise.all([one, two].map((socket) => socket.frame(() => textOfChunks(socket.chunks(id)).includes(`w${deltas - 1} `))));
  return { one, two, id, message, gate };
}

served.test("a message behind a running turn waits for it", async ({ room, provider }) => {
  // wire 138, O9, tools §4.4
  const { one, two, id, message, gate } = await running(room, provider);
  const second = two.say(`echo second-${room.name}`, { history: [message] });
  const third = one.say(`echo third-${room.name}`, { history: [message] });
  await two.settle();
  await one.settle();
  assert.equal(provider.of(`echo second-${room.name}`).length, 0);
  // What is queued is in the transcript already, behind everything else.
  assert.deepEqual((await room.history()).map((entry) => entry.id), [message.id, second.message.id, third.message.id]);
  gate.open();
  await Promise.all([one, two].flatMap((socket) => [id, second.id, third.id].map((each) => socket.done(each))));
  for (const socket of [one, two]) {
    const order = socket.frames.filter(isResponse).map((frame) => frame.id);
    assert.deepEqual(order.filter((each, at) => each !== order[at - 1]), [id, second.id, third.id]);
  }
  const history = await room.history();
  assert.deepEqual(history.map((entry) => textOf(entry)), [
    `slow ${room.name}`, SLOW_TEXT,
    `echo second-${room.name}`, `second-${room.name}`,
    `echo third-${room.name}`, `third-${room.name}`,
  ]);
  // The queued turn was answered with what came before it, not with what came after.
  const { request } = await provider.call(`echo second-${room.name}`);
  assert.equal(request.messages.at(-1).content, `echo second-${room.name}`);
  assert.equal(request.messages.at(-2).content, SLOW_TEXT);
});

for (const who of ["one", "two"]) {
  served.test(`a cancel from ${who === "one" ? "the sender" : "another tab"} keeps the partial and ends the model call`, async ({ room, provider }) => {
    // wire 142, §4.10
    const tabs = await running(room, provider);
    const { one, two, id, message } = tabs;
    const call = await provider.call(`slow ${room.name}`);
    tabs[who].cancel(id);
    const ends = await Promise.all([one.done(id), two.done(id)]);
    for (const end of ends) {
      assert.equal(end.outcome, "aborted");
      assert.equal(end.error, undefined);
      assert.deepEqual(end.messageIds, [message.id]);
    }
    await call.closed;
    assert.ok(call.aborted, "the worker hung up on the model");
    const history = await room.history();
    assert.equal(history.length, 2);
    assert.equal(textOf(history[1]), textOfChunks(one.chunks(id)));
    assert.equal(history[1].parts.at(-1).state, "done");
    for (const socket of [one, two]) assert.deepEqual(socket.frames.findLast(isTranscript).messages, history);
    // The conversation goes on from the partial.
    const next = one.say("text", { history });
    assert.equal((await one.done(next.id)).outcome, "completed");
  });
}

served.test("a cancel before the first chunk leaves no reply", async ({ room, provider }) => {
  // wire 143
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id, message } = socket.say(`late ${room.name}`);
  const call = await provider.call(`late ${room.name}`);
  socket.cancel(id);
  const end = await socket.done(id);
  assert.equal(end.outcome, "aborted");
  await call.closed;
  assert.ok(call.aborted);
  gate.open();
  assert.deepEqual((await room.history()).map((entry) => entry.id), [message.id]);
});

served.test("a cancel sent in one breath with its request stops it", async ({ room, provider }) => {
  // wire 143
  const socket = await room.connect();
  const { id } = socket.say(`never ${room.name}`);
  socket.cancel(id);
  assert.equal((await socket.done(id)).outcome, "aborted");
  await Promise.all(provider.of(`never ${room.name}`).map((call) => call.closed));
  assert.deepEqual((await room.history()).map((entry) => entry.role), ["user"]);
});

served.test("a queued request that is cancelled never reaches the model", async ({ room, provider }) => {
  // wire 144, field C-03
  const { one, two, id, message, gate } = await running(room, provider);
  const queued = two.say(`echo never-${room.name}`, { history: [message] });
  await two.settle();
  one.cancel(queued.id);
  await one.settle();
  gate.open();
  assert.equal((await one.done(id)).outcome, "completed");
  for (const socket of [one, two]) assert.equal((await socket.done(queued.id)).outcome, "aborted");
  assert.equal(provider.of(`echo never-${room.name}`).length, 0);
  assert.equal(textOf((await room.history())[1]), SLOW_TEXT);
});

served.test("a cancel of an unknown or finished request is nothing", async ({ room }) => {
  // wire 145, field P-09
  const socket = await room.connect();
  const { id } = socket.say("text");
  await socket.done(id);
  const since = socket.mark();
  for (const each of [id, "unknown", ""]) socket.cancel(each);
  await socket.settle();
  assert.deepEqual(socket.since(since).map((frame) => frame.type), ["rpc"]);
});

served.test("cancelling twice ends it once", async ({ room, provider }) => {
  // wire 164
  const { one, two, id, gate } = await running(room, provider);
  one.cancel(id);
  two.cancel(id);
  one.cancel(id);
  await Promise.all([one.done(id), two.done(id)]);
  await one.settle();
  gate.open();
  assert.equal(one.responses(id).filter((frame) => frame.done).length, 1);
});

served.test("a clear empties the conversation for everybody else", async ({ room }) => {
  // wire 147
  const one = await room.connect();
  await one.done(one.say("text").id);
  const two = await room.connect();
  const [here, there] = [one.mark(), two.mark()];
  one.clear();
  assert.deepEqual(await two.frame("cf_agent_chat_clear", { since: there }), { type: "cf_agent_chat_clear" });
  await one.settle();
  assert.deepEqual(one.since(here).map((frame) => frame.type), ["rpc"]);
  assert.deepEqual(await room.history(), []);
});

served.test("a clear in mid-stream aborts what runs and skips what waits", async ({ room, provider }) => {
  // wire 148, §4.11
  const { one, two, id, message, gate } = await running(room, provider);
  const call = await provider.call(`slow ${room.name}`);
  const queued = two.say(`echo never-${room.name}`, { history: [message] });
  await two.settle();
  const since = two.mark();
  one.clear();
  await two.frame("cf_agent_chat_clear", { since });
  for (const socket of [one, two]) {
    assert.equal((await socket.done(id)).outcome, "aborted");
    assert.equal((await socket.done(queued.id)).outcome, "skipped");
  }
  await call.closed;
  assert.ok(call.aborted);
  gate.open();
  await two.settle();
  assert.ok(!two.since(since).some(isTranscript), "no transcript after a clear");
  assert.ok(!two.since(since).some(isChunk), "no chunk after a clear");
  assert.equal(provider.of(`echo never-${room.name}`).length, 0);
  assert.deepEqual(await room.history(), []);
});

served.test("a clear releases who waited for the stream", async ({ room, provider }) => {
  // wire 149
  const gate = provider.gate(room.name);
  const one = await room.connect();
  one.say(`late ${room.name}`);
  await gate.reached(1);
  const two = await room.connect();
  assert.equal((await two.ask()).type, "cf_agent_stream_pending");
  const since = two.mark();
  one.clear();
  await two.frame("cf_agent_chat_clear", { since });
  assert.deepEqual(two.since(since).filter(isAnswer), [{ type: "cf_agent_stream_resume_none" }]);
  gate.open();
});

served.test("after a clear the conversation starts anew", async ({ room, provider }) => {
  // wire 150
  const { one, id } = await running(room, provider);
  one.clear();
  await one.done(id);
  assert.deepEqual(await one.ask("p"), { type: "cf_agent_stream_resume_none", reason: "idle", probeId: "p" });
  const fresh = one.say(`text ${room.name}-new`);
  assert.equal((await one.done(fresh.id)).outcome, "completed");
  assert.deepEqual((await room.history()).map(textOf), [`text ${room.name}-new`, TEXT]);
  const { request } = await provider.call(`text ${room.name}-new`);
  assert.equal(request.messages.filter((message) => message.role === "user").length, 1);
});

served.test("a connection that goes away does not stop the turn", async ({ room, provider }) => {
  // field C-04
  const { one, two, id, gate } = await running(room, provider);
  await one.drop();
  gate.open();
  assert.equal((await two.done(id)).outcome, "completed");
  assert.ok(two.frames.some(hasChunk(id, "finish")));
  assert.equal(textOf((await room.history()).at(-1)), SLOW_TEXT);
});
