// Sending a message and watching the answer come (wire 58–73, without the rows of a hook).

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { hasChunk, isChunk, isResponse, isTranscript, textOf, textOfChunks, user } from "./client.mjs";
import { TEXT, TEXT_DELTAS } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve({ vars: { INSTRUCTIONS: "Answer like a pirate." } });

served.test("the sender sees the chunks, the transcript, the end, and nothing after", async ({ room, provider }) => {
  // wire 58, 60, 61, O3
  const gate = provider.gate(room.name);
  gate.open();
  const socket = await room.connect();
  const since = socket.mark();
  const { id, message } = socket.say(`text ${room.name}`);
  const end = await socket.done(id);
  await socket.settle();

  const frames = socket.since(since).slice(0, -1);
  assert.deepEqual(frames.at(-1), end);
  assert.deepEqual(end, {
    type: "cf_agent_use_chat_response",
    id,
    body: "",
    done: true,
    outcome: "completed",
    messageIds: [message.id],
  });
  assert.equal(frames.at(-2).type, "cf_agent_chat_messages");
  assert.equal(frames.at(-2).connect, undefined);
  assert.ok(frames.slice(0, -2).every((frame) => isChunk(frame) && frame.id === id));

  const chunks = socket.chunks(id);
  assert.deepEqual(
    chunks.map((chunk) => chunk.type).filter((type, at, all) => type !== all[at - 1]),
    ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"],
  );
  assert.equal(textOfChunks(chunks), TEXT);
  assert.equal(chunks.at(-1).finishReason, "stop");

  const history = await room.history();
  assert.deepEqual(history, frames.at(-2).messages);
  assert.equal(history.length, 2);
  assert.equal(history[1].id, chunks[0].messageId);
  assert.equal(history[1].role, "assistant");
  assert.deepEqual(history[1].parts, [{ type: "step-start" }, { type: "text", text: TEXT, state: "done" }]);
});

served.test("deltas of one read may be joined, none is lost", async ({ room }) => {
  // decision 52, field invariant 3
  const socket = await room.connect();
  const { id } = socket.say("flood 500");
  await socket.done(id);
  const chunks = socket.chunks(id);
  const expected = Array.from({ length: 500 }, (_, at) => `t${at} `).join("");
  assert.equal(textOfChunks(chunks), expected);
  assert.equal(textOf((await room.history()).at(-1)), expected);
});

served.test("each delta is shown when it comes, not when the answer ends", async ({ room, provider }) => {
  // decision 52: no delta waits for a later read
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`text ${room.name}`);
  let shown = "";
  for (const delta of TEXT_DELTAS) {
    gate.open(1);
    shown += delta;
    await socket.frame(() => textOfChunks(socket.chunks(id)) === shown);
  }
  await socket.done(id);
});

served.test("another tab sees the question first, then the same chunks, transcript and end", async ({ room }) => {
  // wire 59, O4
  const sender = await room.connect();
  const other = await room.connect();
  const since = other.mark();
  const { id, message } = sender.say("text");
  await Promise.all([sender.done(id), other.done(id)]);
  const frames = other.since(since);
  assert.equal(frames[0].type, "cf_agent_chat_messages");
  assert.deepEqual(frames[0].messages.map((entry) => entry.id), [message.id]);
  assert.equal(frames[0].connect, undefined);
  assert.deepEqual(other.responses(id), sender.responses(id));
  assert.deepEqual(frames.at(-2), sender.frames.findLast(isTranscript));
});

served.test("the model gets the conversation so far", async ({ room, provider }) => {
  // field C-01, providers §5
  const socket = await room.connect();
  const first = socket.say(`echo one-${room.name}`);
  await socket.done(first.id);
  const history = await room.history();
  const second = socket.say(`echo two-${room.name}`, { history });
  await socket.done(second.id);
  const { request } = await provider.call(`echo two-${room.name}`);
  const spoken = request.messages.filter((message) => message.role !== "system");
  assert.deepEqual(spoken.map((message) => [message.role, message.content]), [
    ["user", `echo one-${room.name}`],
    ["assistant", `one-${room.name}`],
    ["user", `echo two-${room.name}`],
  ]);
  assert.equal(request.stream, true);
});

served.test("reasoning is shown and stored as a part of its own", async ({ room }) => {
  // wire §3.3, §3.6
  const socket = await room.connect();
  const { id } = socket.say("reason");
  await socket.done(id);
  const types = socket.chunks(id).map((chunk) => chunk.type);
  assert.ok(types.indexOf("reasoning-end") < types.indexOf("text-start"));
  const parts = (await room.history()).at(-1).parts;
  assert.deepEqual(parts.map((part) => [part.type, part.text]), [
    ["step-start", undefined],
    ["reasoning", "Let me think."],
    ["text", "Thought."],
  ]);
});

served.test("an empty answer ends once and stores no reply", async ({ room }) => {
  // wire 62
  const socket = await room.connect();
  const { id, message } = socket.say("none");
  const end = await socket.done(id);
  assert.equal(end.outcome, "completed");
  assert.deepEqual(end.messageIds, [message.id]);
  assert.deepEqual((await room.history()).map((entry) => entry.role), ["user"]);
});

served.test("a refusal before the first chunk is one frame, the same for every tab", async ({ room }) => {
  // wire 63, field P-10 run 1, decision 43
  const sender = await room.connect();
  const other = await room.connect();
  const { id, message } = sender.say("fail0");
  const [end, seen] = await Promise.all([sender.done(id), other.done(id)]);
  assert.deepEqual(seen, end);
  assert.deepEqual({ ...end, body: "" }, {
    type: "cf_agent_use_chat_response",
    id,
    body: "",
    done: true,
    error: true,
    outcome: "error",
    messageIds: [message.id],
  });
  assert.match(end.body, /mock says no/);
  assert.doesNotMatch(end.body, /https?:|\bat .*:\d+|\{"/);
  await sender.settle();
  assert.equal(sender.responses(id).length, 1);
  assert.deepEqual((await room.history()).map((entry) => entry.id), [message.id]);
});

served.test("an error in mid-stream keeps what was shown", async ({ room, provider }) => {
  // wire 64, field P-10 run 2, field Q-06, PV-19
  const gate = provider.gate(room.name);
  gate.open();
  const sender = await room.connect();
  const other = await room.connect();
  const { id, message } = sender.say(`fail3 ${room.name}`);
  const [end, seen] = await Promise.all([sender.done(id), other.done(id)]);
  assert.deepEqual(seen, end);
  assert.equal(end.error, true);
  assert.equal(end.outcome, "error");
  assert.deepEqual(end.messageIds, [message.id]);
  assert.match(end.body, /mock broke/);
  assert.equal(textOfChunks(sender.chunks(id)), "one two three ");
  const history = await room.history();
  assert.equal(history.length, 2);
  assert.equal(textOf(history[1]), "one two three ");
  assert.equal(history[1].parts.at(-1).state, "done");
  assert.deepEqual(sender.frames.findLast(isTranscript).messages, history);
  // The partial is context for the next message.
  const next = sender.say("text", { history });
  assert.equal((await sender.done(next.id)).outcome, "completed");
});

served.test("a request that is no POST is no request", async ({ room, provider }) => {
  // wire 66
  const socket = await room.connect();
  const since = socket.mark();
  for (const method of ["PUT", "GET", "post", "", undefined]) {
    const body = JSON.stringify({ messages: [user(`put ${room.name}`)] });
    socket.send({ id: "put-1", init: { method, body }, type: "cf_agent_use_chat_request" });
  }
  await socket.settle();
  assert.equal(socket.since(since).length, 1);
  assert.deepEqual(await room.history(), []);
  assert.equal(provider.of(`put ${room.name}`).length, 0);
});

served.test("a body that is no transcript is refused to the sender alone", async ({ room }) => {
  // wire 67, decision 14, tools §4.1
  const sender = await room.connect();
  const other = await room.connect();
  const since = other.mark();
  const bodies = [undefined, "", "{", "null", "[]", '"x"', "{}", '{"messages":{}}', '{"messages":"x"}', '{"messages":null}', 7, null, { messages: [] }];
  for (const [at, body] of bodies.entries()) {
    const id = `bad-${at}`;
    sender.send({ id, init: { method: "POST", body }, type: "cf_agent_use_chat_request" });
    const end = await sender.done(id);
    assert.equal(end.error, true, `${JSON.stringify(body)}`);
    assert.equal(end.outcome, "error");
    assert.ok(end.body.length > 0);
  }
  await other.settle();
  assert.deepEqual(other.since(since).filter((frame) => frame.type !== "rpc"), []);
  assert.deepEqual(await room.history(), []);
});

served.test("an id that is running already is dropped without a sound", async ({ room, provider }) => {
  // wire 70, decision 15
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`slow ${room.name}`);
  gate.open(3);
  await socket.frame(hasChunk(id, "text-delta"));
  socket.say(`echo never-${room.name}`, { id });
  await socket.settle();
  gate.open();
  assert.equal((await socket.done(id)).outcome, "completed");
  await socket.settle();
  assert.equal(socket.responses(id).filter((frame) => frame.done).length, 1);
  assert.equal(provider.of(`echo never-${room.name}`).length, 0);
  assert.deepEqual((await room.history()).map((entry) => entry.role), ["user", "assistant"]);
});

served.test("the id of a finished turn may be used again", async ({ room }) => {
  // wire §4.16
  const socket = await room.connect();
  const first = socket.say("echo one");
  await socket.done(first.id);
  const since = socket.mark();
  const second = socket.say("echo two", { id: first.id, history: await room.history() });
  const end = await socket.done(first.id, { since });
  assert.equal(end.outcome, "completed");
  assert.deepEqual(end.messageIds, [second.message.id]);
  assert.equal((await room.history()).length, 4);
});

served.test("parts and fields nobody knows come back unchanged", async ({ room }) => {
  // wire 71
  const socket = await room.connect();
  const message = user("echo hi", {
    metadata: { mine: { deep: [1, null, "x"] } },
    unknownField: { kept: true, zero: 0, none: null },
  });
  message.parts.push({ type: "x-unknown", payload: { a: [1, 2, { b: null }] }, text: "not text" });
  message.parts.push({ type: "data-thing", id: "d1", data: { n: 1.5, big: 12345678901234 }, extra: "kept" });
  message.parts[0].annotations = [{ kept: "yes" }];
  const { id } = socket.say("", { message });
  await socket.done(id);
  const [stored] = await room.history();
  assert.deepEqual(stored.parts, message.parts);
  assert.deepEqual(stored.unknownField, message.unknownField);
  assert.deepEqual(stored.metadata.mine, message.metadata.mine);
});

served.test("a file of a mebibyte comes back byte for byte and reaches the model", async ({ room, provider }) => {
  // wire 72, field S-08
  const socket = await room.connect();
  const url = `data:image/png;base64,${randomBytes(1_048_576).toString("base64")}`;
  const message = user(`echo picture-${room.name}`);
  message.parts.push({ type: "file", mediaType: "image/png", filename: "dot.png", url });
  const { id } = socket.say("", { message });
  assert.equal((await socket.done(id)).outcome, "completed");
  const [stored] = await room.history();
  assert.deepEqual(stored.parts, message.parts);
  const { request } = await provider.call(`echo picture-${room.name}`);
  assert.deepEqual(request.messages.at(-1).content.find((part) => part.type === "image_url").image_url.url, url);
});

served.test("a message of megabytes is stored and served whole", async ({ room }) => {
  // wire 73, field S-02, decision 41
  const socket = await room.connect();
  const text = `text ${"Grüße 漢字 🙂 ".repeat(150_000)}`;
  const message = user(text);
  message.parts.push({ type: "text", text: "🙂".repeat(300_000) });
  assert.ok(Buffer.byteLength(JSON.stringify(message)) > 4_000_000);
  const { id } = socket.say("", { message });
  await socket.done(id);
  const [stored] = await room.history();
  assert.deepEqual(stored.parts, message.parts);
  const later = await room.connect();
  assert.deepEqual((await later.frame(isTranscript)).messages[0].parts, message.parts);
});

served.test("a huge delta is shown and stored whole", async ({ room }) => {
  // field S-04
  const socket = await room.connect();
  const { id } = socket.say("big 1500000");
  await socket.done(id);
  assert.equal(textOfChunks(socket.chunks(id)).length, 1_500_000);
  assert.equal(textOf((await room.history()).at(-1)).length, 1_500_000);
});

served.test("the instructions of the configuration lead each request", async ({ room, provider }) => {
  // issue A 7: INSTRUCTIONS is the system prompt
  const socket = await room.connect();
  for (const word of ["one", "two"]) {
    const { id } = socket.say(`echo ${word}-${room.name}`, { history: await room.history() });
    await socket.done(id);
    const { request } = await provider.call(`echo ${word}-${room.name}`);
    const system = request.messages.filter((message) => message.role === "system");
    assert.equal(system.length, 1);
    assert.match(system[0].content, /Answer like a pirate\./);
    assert.equal(request.messages[0], system[0]);
  }
});

served.test("two tabs that send at once are answered one after the other", async ({ room }) => {
  // field C-01, O9, wire 164, 166
  const [one, two] = [await room.connect(), await room.connect()];
  const a = one.say("flood 50");
  const b = two.say("flood 50");
  await Promise.all([one, two].flatMap((socket) => [socket.done(a.id), socket.done(b.id)]));
  for (const socket of [one, two]) {
    const order = socket.frames.filter((frame) => isResponse(frame)).map((frame) => frame.id);
    assert.equal(order.filter((id, at) => id !== order[at - 1]).length, 2);
  }
  assert.equal((await room.history()).length, 4);
});
