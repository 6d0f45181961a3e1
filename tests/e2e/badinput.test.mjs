// Input from outside that is broken, oversized, nested, repeated or endless: each has a defined answer, and the
// conversation stays usable (issue A "Bad input"; field invariant 6).

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { isResponse, textOf, user } from "./client.mjs";
import { serve } from "./setup.mjs";

const served = serve();
const MIB = 1_048_576;

/** The conversation still answers on this socket. */
async function assertUsable(socket, room) {
  const { id } = socket.say("text", { history: await room.history() });
  assert.equal((await socket.done(id)).outcome, "completed");
}

/** The request ended with an error for its sender. */
async function assertRefused(socket, id) {
  const end = await socket.done(id);
  assert.equal(end.error, true);
  assert.equal(end.outcome, "error");
  assert.ok(end.body.length > 0);
  return end;
}

served.test("a frame above the limit is refused under its id, and the socket stays", async ({ room }) => {
  // decision 41, field A-04
  const socket = await room.connect();
  const body = JSON.stringify({ messages: [user("x".repeat(17 * MIB))], trigger: "submit-message" });
  socket.send({ id: "huge", init: { method: "POST", body }, type: "cf_agent_use_chat_request" });
  const end = await assertRefused(socket, "huge");
  assert.match(end.body, /\d/, "the error names the limit");
  assert.deepEqual(await room.history(), []);
  await assertUsable(socket, room);
});

served.test("a huge frame of any other kind is ignored", async ({ room }) => {
  // decision 41
  const socket = await room.connect();
  const since = socket.mark();
  socket.send("x".repeat(17 * MIB));
  socket.send({ type: "x", filler: "y".repeat(17 * MIB) });
  socket.send(randomBytes(2 * MIB));
  await socket.settle();
  assert.deepEqual(socket.since(since).map((frame) => frame.type), ["rpc"]);
  await assertUsable(socket, room);
});

served.test("a user message above the limit is refused", async ({ room }) => {
  // decision 41, field S-08
  const socket = await room.connect();
  const message = user("echo small");
  message.parts.push({ type: "file", mediaType: "image/png", url: `data:image/png;base64,${"A".repeat(9 * MIB)}` });
  const { id } = socket.say("", { message });
  await assertRefused(socket, id);
  assert.deepEqual(await room.history(), []);
  await assertUsable(socket, room);
});

served.test("more messages than may be posted are refused", async ({ room }) => {
  // decision 41
  const socket = await room.connect();
  const messages = Array.from({ length: 20_001 }, (_, at) => ({ id: `m${at}`, role: "user", parts: [{ type: "text", text: "x" }] }));
  await assertRefused(socket, socket.post(messages));
  assert.deepEqual(await room.history(), []);
  await assertUsable(socket, room);
});

served.test("nesting without end is refused, in the frame and in the body", async ({ room }) => {
  // decision 41, field A-04
  const socket = await room.connect();
  const nested = (depth) => `${"[".repeat(depth)}1${"]".repeat(depth)}`;
  const body = `{"messages":[{"id":"n","role":"user","parts":[{"type":"data-n","data":${nested(10_000)}}]}]}`;
  socket.send({ id: "deep", init: { method: "POST", body }, type: "cf_agent_use_chat_request" });
  await assertRefused(socket, "deep");
  const since = socket.mark();
  socket.send(`{"type":"cf_agent_chat_clear","x":${nested(100_000)}}`);
  socket.send(nested(200_000));
  socket.send(`{"type":"rpc","id":"deep-rpc","method":"m","args":[${nested(5_000)}]}`);
  await socket.settle();
  assert.ok(socket.since(since).every((frame) => frame.type === "rpc"));
  assert.deepEqual(await room.history(), []);
  await assertUsable(socket, room);
});

served.test("nesting within the limit is kept", async ({ room }) => {
  // decision 41
  const socket = await room.connect();
  const message = user("echo deep");
  message.parts.push({ type: "data-n", data: JSON.parse(`${"[".repeat(100)}1${"]".repeat(100)}`) });
  const { id } = socket.say("", { message });
  assert.equal((await socket.done(id)).outcome, "completed");
  assert.deepEqual((await room.history())[0].parts, message.parts);
});

served.test("messages of a wrong shape are refused or left out, never stored half", async ({ room }) => {
  // wire 67, §5.3: legacy shapes are refused
  const socket = await room.connect();
  const good = { type: "text", text: "echo x" };
  const posts = [
    [null],
    ["text"],
    [7],
    [[]],
    [{}],
    [{ id: "a", role: "user" }],
    [{ id: "a", role: "user", parts: "echo x" }],
    [{ id: "a", role: "user", parts: [null] }],
    [{ id: "a", role: "user", parts: ["text"] }],
    [{ id: "a", role: "user", parts: [{ text: "no type" }] }],
    [{ id: 7, role: "user", parts: [good] }],
    [{ role: "user", parts: [good] }],
    [{ id: "", role: "user", parts: [good] }],
    [{ id: "a", role: "robot", parts: [good] }],
    [{ id: "a", parts: [good] }],
    [{ id: "a", role: "user", content: "legacy" }],
  ];
  for (const messages of posts) {
    const id = socket.post(messages);
    const end = await socket.done(id);
    assert.ok(["error", "completed"].includes(end.outcome), JSON.stringify(messages));
    for (const stored of await room.history()) {
      assert.equal(typeof stored.id, "string");
      assert.ok(["user", "assistant"].includes(stored.role));
      assert.ok(Array.isArray(stored.parts) && stored.parts.every((part) => typeof part.type === "string"));
    }
  }
  await assertUsable(socket, room);
});

served.test("two new messages under one id are one message", async ({ room }) => {
  // issue A: ids that repeat
  const socket = await room.connect();
  const first = user("echo one");
  const end = await socket.done(socket.post([first, { ...first, parts: [{ type: "text", text: "echo two" }] }]));
  assert.ok(end.outcome !== undefined);
  const stored = await room.history();
  assert.equal(stored.filter((message) => message.id === first.id).length, stored.length > 0 ? 1 : 0);
});

served.test("a user message under an assistant's id changes nothing", async ({ room }) => {
  // field A-03: a stored id with a changed role
  const socket = await room.connect();
  await socket.done(socket.say("echo one").id);
  const history = await room.history();
  const liar = { ...user("echo two"), id: history[1].id };
  const id = socket.post([history[0], liar]);
  await socket.done(id);
  assert.deepEqual((await room.history()).find((message) => message.id === history[1].id)?.role ?? "assistant", "assistant");
  await assertUsable(socket, room);
});

served.test("strange ids, roles of prototypes and lone surrogates do no harm", async ({ room }) => {
  // field invariant 6
  const socket = await room.connect();
  for (const id of ["__proto__", "constructor", "a'; DROP TABLE wk_msg; --", "\u0000", "🙂".repeat(50), "x".repeat(10_000)]) {
    const message = { ...user("echo ok"), id };
    const request = socket.post([message], { id: `r-${id.length}-${id.slice(0, 8)}` });
    const end = await socket.done(request);
    assert.ok(end.outcome !== undefined, id.slice(0, 20));
  }
  socket.send('{"id":"lone","init":{"method":"POST","body":"{\\"messages\\":[{\\"id\\":\\"s\\",\\"role\\":\\"user\\",\\"parts\\":[{\\"type\\":\\"text\\",\\"text\\":\\"echo \\\\ud800 x\\"}]}]}"},"type":"cf_agent_use_chat_request"}');
  await socket.done("lone");
  await assertUsable(socket, room);
});

served.test("a flood of frames is worked off", async ({ room }) => {
  // field C-08
  const socket = await room.connect();
  const since = socket.mark();
  const junk = ["x", "{}", '{"type":"x"}', '{"type":"cf_agent_state","state":1}', '{"type":"cf_agent_stream_resume_ack","id":"z"}', '{"type":"cf_agent_chat_request_cancel","id":"z"}'];
  for (let at = 0; at < 2_000; at += 1) socket.send(junk[at % junk.length]);
  await socket.settle();
  assert.ok(socket.since(since).filter(isResponse).every((frame) => frame.id === "z"));
  await assertUsable(socket, room);
});

served.test("a flood of frames during a turn does not disturb it", async ({ room, provider }) => {
  // field C-08
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const other = await room.connect();
  const { id } = socket.say(`slow ${room.name}`);
  for (let at = 0; at < 50; at += 1) {
    gate.open(1);
    for (const frame of ["{", Buffer.from([1, 2, 3]), '{"type":"cf_agent_tool_result","toolCallId":"no"}', '{"type":"cf_agent_state","state":{}}']) other.send(frame);
  }
  await Promise.all([socket.done(id), other.done(id)]);
  assert.match(textOf((await room.history()).at(-1)), /^w0 .*w49 $/);
});

served.test("many sockets come and go during a turn", async ({ room, provider }) => {
  // field C-04
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`slow ${room.name}`);
  for (let round = 0; round < 10; round += 1) {
    gate.open(5);
    const guest = await room.open();
    guest.probe();
    guest.ack(id);
    await guest.drop();
  }
  assert.equal((await socket.done(id)).outcome, "completed");
});

test("HTTP bodies and methods nobody expects are answered without a trace of the inside", async () => {
  // wire §1.7, field A-04
  const base = `${served.worker.url}/agents/chat-agent/http-junk`;
  for (const [path, method, body] of [
    ["", "POST", "{}"],
    ["/", "PUT", "x".repeat(MIB)],
    ["/get-messages/extra", "GET", undefined],
    ["/sub/unknown-class/a", "GET", undefined],
    ["/%00", "GET", undefined],
    [`/${"a".repeat(6_000)}`, "DELETE", undefined],
  ]) {
    const response = await fetch(base + path, { method, body });
    assert.ok([400, 404, 405].includes(response.status), `${method} ${path.slice(0, 30)}: ${response.status}`);
    assert.doesNotMatch(await response.text(), /\.rs:|\.mjs:|at .*\(/);
  }
});

test("a request that claims to be an upgrade but is not one is refused", async () => {
  // wire §1.8
  const response = await fetch(`${served.worker.url}/agents/chat-agent/half-upgrade`, { headers: { connection: "close" } });
  assert.ok([400, 404, 426].includes(response.status));
});
