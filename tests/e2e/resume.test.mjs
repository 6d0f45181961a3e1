// Attaching to a stream that runs already, however late, however often (wire 79–93, 101, 102).

import assert from "node:assert/strict";
import { answers, hasChunk, isAnswer, isChunk, isDone, isResponse, isTranscript, textOf, textOfChunks } from "./client.mjs";
import { SLOW_TEXT, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve();

/** A conversation whose model has said `deltas` words of `slow` and waits for the gate. */
async function midStream(room, provider, deltas = 12) {
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id, message } = sender.say(`slow ${room.name}`);
  gate.open(deltas);
  await sender.frame(() => textOfChunks(sender.chunks(id)).includes(`w${deltas - 1} `));
  return { sender, id, message, gate };
}

const replayEnd = (id) => (frame) => isResponse(frame) && frame.id === id && frame.replayComplete === true;

/** Attaches a socket and returns where in its log the replay began. */
async function attach(socket, id) {
  const since = socket.mark();
  socket.ack(id);
  await socket.frame(replayEnd(id), { since });
  return since;
}

served.test("a probe of an idle conversation is answered at once", async ({ room }) => {
  // wire 79
  const socket = await room.connect();
  const took = [];
  for (const probeId of ["p-1", "p-2", "p-3", "p-4", "p-5"]) {
    const asked = performance.now();
    const answer = await socket.ask(probeId);
    took.push(performance.now() - asked);
    assert.deepEqual(answer, { type: "cf_agent_stream_resume_none", reason: "idle", probeId });
  }
  assert.ok(Math.min(...took) < 100, `answered after ${took} ms`);
});

served.test("a probe without an id is answered without one", async ({ room }) => {
  // wire 80
  const socket = await room.connect();
  assert.deepEqual(await socket.ask(null), { type: "cf_agent_stream_resume_none", reason: "idle" });
});

served.test("a connect in mid-stream is offered the stream and gets nothing of it before the ACK", async ({ room, provider }) => {
  // wire 81, 165, O6, field P-03
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  assert.deepEqual(late.frames.map((frame) => frame.type), [
    "cf_agent_stream_resuming",
    "cf_agent_identity",
    "cf_agent_mcp_servers",
  ]);
  assert.equal(late.frames[0].id, id);
  assert.equal(late.frames[0].probeId, undefined);
  gate.open(5);
  await sender.frame(() => textOfChunks(sender.chunks(id)).includes("w16 "));
  await late.settle();
  assert.ok(!late.frames.some(isResponse));
  assert.ok(!late.frames.some(isTranscript));
  gate.open();
  await sender.done(id);
});

served.test("a probe in mid-stream is answered although the stream was announced", async ({ room, provider }) => {
  // wire 82, field P-01
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  assert.deepEqual(await late.ask("p-2"), { type: "cf_agent_stream_resuming", id, probeId: "p-2" });
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
});

served.test("an ACK brings the whole prefix in one burst, then the rest as it comes", async ({ room, provider }) => {
  // wire 83, O1, O6, field P-01, P-03, P-06 a
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  const since = await attach(late, id);
  const burst = late.responses(id, since);
  assert.deepEqual(burst.at(-1), { type: "cf_agent_use_chat_response", id, body: "", done: false, replay: true, replayComplete: true });
  assert.ok(burst.every((frame) => frame.replay === true));
  assert.deepEqual(burst.slice(0, -1).map((frame) => frame.seq), burst.slice(0, -1).map((_, at) => at));
  // The same chunks under the same numbers as the sender saw.
  const live = sender.responses(id).filter(isChunk);
  assert.deepEqual(burst.slice(0, -1).map(({ seq, body }) => [seq, body]), live.slice(0, burst.length - 1).map(({ seq, body }) => [seq, body]));
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  const after = late.responses(id, since).slice(burst.length).filter(isChunk);
  assert.ok(after.every((frame) => frame.replay === undefined));
  assert.equal(after[0].seq, burst.length - 1);
  assert.equal(textOfChunks(late.chunks(id, { since })), SLOW_TEXT);
  assert.equal(textOf((await room.history()).at(-1)), SLOW_TEXT);
});

served.test("chunks that came between offer and ACK are part of the prefix", async ({ room, provider }) => {
  // wire 84, field P-03
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  gate.open(20);
  await sender.frame(() => textOfChunks(sender.chunks(id)).includes("w31 "));
  const since = await attach(late, id);
  assert.ok(textOfChunks(late.chunks(id, { since, replay: true })).endsWith("w31 "));
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  assert.equal(textOfChunks(late.chunks(id, { since })), SLOW_TEXT);
});

served.test("each ACK brings a complete replay", async ({ room, provider }) => {
  // wire 85, field P-01
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  late.ack(id);
  late.ack(id);
  await late.settle();
  const bursts = late.responses(id);
  assert.equal(bursts.filter((frame) => frame.replayComplete).length, 2);
  const middle = bursts.findIndex((frame) => frame.replayComplete) + 1;
  assert.deepEqual(bursts.slice(middle), bursts.slice(0, middle));
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
});

served.test("an ACK nobody asked for is served, also to the sender", async ({ room, provider }) => {
  // wire §4.16
  const { sender, id, gate } = await midStream(room, provider);
  const since = await attach(sender, id);
  gate.open();
  await sender.done(id);
  assert.equal(textOfChunks(sender.chunks(id, { since })), SLOW_TEXT);
});

served.test("sockets that resume at once each get a prefix of their own", async ({ room, provider }) => {
  // wire 86
  const { sender, id, gate } = await midStream(room, provider);
  const late = await Promise.all([room.connect(), room.connect(), room.connect()]);
  await Promise.all(late.map((socket) => attach(socket, id)));
  gate.open();
  await Promise.all([sender, ...late].map((socket) => socket.done(id)));
  for (const socket of late) {
    assert.equal(textOfChunks(socket.chunks(id)), SLOW_TEXT);
    assert.equal(socket.responses(id).filter((frame) => frame.replayComplete).length, 1);
  }
});

served.test("who never acknowledged still gets the transcript and the end", async ({ room, provider }) => {
  // wire 87, X15
  const { sender, id, message, gate } = await midStream(room, provider);
  const late = await room.connect();
  gate.open();
  const [, end] = await Promise.all([sender.done(id), late.done(id)]);
  assert.equal(end.outcome, "completed");
  assert.deepEqual(end.messageIds, [message.id]);
  assert.deepEqual(late.responses(id), [end]);
  assert.equal(textOf((await late.frame(isTranscript)).messages.at(-1)), SLOW_TEXT);
});

served.test("an ACK after the end gets an end", async ({ room }) => {
  // wire 88, field S-03
  const socket = await room.connect();
  const { id, message } = socket.say("text");
  await socket.done(id);
  const late = await room.connect();
  for (const client of [late, socket]) {
    const since = client.mark();
    client.ack(id);
    const end = await client.done(id, { since });
    assert.equal(end.replay, true);
    assert.equal(end.outcome, "completed");
    assert.deepEqual(end.messageIds, [message.id]);
  }
});

served.test("an ACK for another id in mid-stream is not answered", async ({ room, provider }) => {
  // wire 89
  const { sender, id, gate } = await midStream(room, provider);
  const since = sender.mark();
  sender.ack("other");
  await sender.settle();
  assert.ok(!sender.since(since).some(isResponse));
  gate.open();
  await sender.done(id);
});

served.test("an ACK for an unknown id in an idle conversation is closed", async ({ room }) => {
  // wire 90
  const socket = await room.connect();
  socket.ack("never-seen");
  const end = await socket.done("never-seen");
  assert.equal(end.replay, true);
  assert.equal(end.body, "");
});

served.test("a probe before the model said anything waits for the stream", async ({ room, provider }) => {
  // wire 91, X1, field P-02
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id } = sender.say(`late ${room.name}`);
  await gate.reached(1);
  const late = await room.connect();
  assert.deepEqual(await late.ask("p-3"), { type: "cf_agent_stream_pending", id, probeId: "p-3" });
  // The head and one delta: the stream has begun, and waits.
  gate.open(2);
  const offer = await late.frame("cf_agent_stream_resuming");
  assert.deepEqual(offer, { type: "cf_agent_stream_resuming", id });
  await attach(late, id);
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  assert.equal(textOfChunks(late.chunks(id)), TEXT);
  assert.equal(textOf((await room.history()).at(-1)), TEXT);
});

served.test("a connect before the model said anything gets PENDING and the question", async ({ room, provider }) => {
  // wire 92
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id, message } = sender.say(`late ${room.name}`);
  await gate.reached(1);
  const late = await room.connect();
  assert.deepEqual(late.frames.map((frame) => frame.type), [
    "cf_agent_stream_pending",
    "cf_agent_chat_messages",
    "cf_agent_identity",
    "cf_agent_mcp_servers",
  ]);
  assert.deepEqual(late.frames[0], { type: "cf_agent_stream_pending", id });
  assert.equal(late.frames[1].connect, true);
  assert.deepEqual(late.frames[1].messages.map((entry) => entry.id), [message.id]);
  gate.open();
  await sender.done(id);
  await late.done(id).catch(() => {});
});

served.test("a turn that settles without a stream releases who waited for it", async ({ room, provider }) => {
  // wire 93, field P-02
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id } = sender.say(`late ${room.name}`);
  await gate.reached(1);
  const late = await room.connect();
  await late.ask("p-4");
  const since = late.mark();
  sender.cancel(id);
  assert.deepEqual(await late.frame("cf_agent_stream_resume_none", { since }), { type: "cf_agent_stream_resume_none" });
  assert.equal((await sender.done(id)).outcome, "aborted");
  assert.equal((await late.ask()).reason, "idle");
  gate.open();
});

served.test("a dropped socket that comes back finds the whole text", async ({ room, provider }) => {
  // wire §4.4
  const { sender, id, gate } = await midStream(room, provider);
  await sender.drop();
  gate.open(10);
  const back = await room.connect();
  const answer = await back.ask();
  assert.equal(answer.type, "cf_agent_stream_resuming");
  await attach(back, answer.id);
  gate.open();
  assert.equal((await back.done(id)).outcome, "completed");
  assert.equal(textOfChunks(back.chunks(id)), SLOW_TEXT);
});

served.test("a chunk too big to be kept is shown live and left out of the replay", async ({ room, provider }) => {
  // wire 101, decision 41, field S-04, P-12
  const gate = provider.gate(room.name);
  const sender = await room.connect();
  const { id } = sender.say(`bigmid ${room.name}`);
  gate.open(2);
  await sender.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === " after"));
  const big = sender.responses(id).filter((frame) => isChunk(frame) && frame.body.length > 1_900_000);
  assert.equal(big.length, 1);
  assert.equal(big[0].seq, undefined);

  const late = await room.connect();
  const since = await attach(late, id);
  const replayed = late.responses(id, since).filter(isChunk);
  assert.ok(replayed.every((frame) => frame.body.length < 1_900_000));
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  const stored = textOf((await room.history()).at(-1));
  assert.equal(stored, `before ${"x".repeat(1_900_000)} after`);
  assert.deepEqual((await late.frame(isTranscript)).messages.at(-1).parts.at(-1).text, stored);
});

served.test("a socket that dies in its replay leaves the stream untouched", async ({ room, provider }) => {
  // wire 102, field C-04
  const { sender, id, gate } = await midStream(room, provider, 40);
  const dying = await room.connect();
  dying.ack(id);
  await dying.drop();
  const late = await room.connect();
  const since = await attach(late, id);
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  assert.equal(textOfChunks(late.chunks(id, { since })), SLOW_TEXT);
  assert.equal(textOfChunks(sender.chunks(id)), SLOW_TEXT);
});

served.test("the answers to a storm of probes match the questions", async ({ room, provider }) => {
  // wire 168
  const { sender, id, gate } = await midStream(room, provider);
  const late = await room.connect();
  const asked = Array.from({ length: 25 }, () => late.probe());
  const got = await Promise.all(asked.map((probeId) => late.frame(answers(probeId))));
  assert.ok(got.every((answer) => answer.type === "cf_agent_stream_resuming" && answer.id === id));
  await attach(late, id);
  gate.open();
  await Promise.all([sender.done(id), late.done(id)]);
  assert.equal(late.frames.filter(isAnswer).length, 26);
});

served.test("no frame of a finished request follows its end", async ({ room, provider }) => {
  // wire X8, 164
  const { sender, id, gate } = await midStream(room, provider);
  gate.open();
  await sender.done(id);
  const since = sender.mark();
  assert.equal((await sender.ask()).type, "cf_agent_stream_resume_none");
  sender.cancel(id);
  await sender.settle();
  assert.ok(!sender.since(since).some((frame) => isResponse(frame) || isDone(id)(frame)));
});
