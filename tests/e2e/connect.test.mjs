// What a socket gets when it opens, and what it survives (wire 32–45).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { isTranscript, textOf } from "./client.mjs";
import { serve } from "./setup.mjs";

const served = serve();
const types = (socket) => socket.frames.map((frame) => frame.type);

served.test("an idle connect gets transcript, identity and MCP servers, in this order", async ({ room }) => {
  // wire 32, 31, 169
  const socket = await room.connect();
  assert.deepEqual(types(socket), ["cf_agent_chat_messages", "cf_agent_identity", "cf_agent_mcp_servers"]);
  const [transcript, identity, mcp] = socket.frames;
  assert.deepEqual(transcript, { type: "cf_agent_chat_messages", messages: [], connect: true });
  assert.deepEqual(identity, { type: "cf_agent_identity", name: room.name, agent: "chat-agent" });
  assert.deepEqual(mcp, { type: "cf_agent_mcp_servers", mcp: { prompts: [], resources: [], servers: {}, tools: [] } });
});

served.test("a later connect gets the stored transcript", async ({ room }) => {
  // wire 31, 172
  const first = await room.connect();
  const { id } = first.say("text");
  await first.done(id);
  const second = await room.connect();
  const transcript = await second.frame(isTranscript);
  assert.equal(transcript.connect, true);
  assert.deepEqual(transcript.messages, await room.history());
});

served.test("a socket without an id is accepted", async ({ room }) => {
  // wire 35
  for (const pk of ["", undefined]) {
    const socket = await room.connect({ pk });
    const { id } = socket.say("text");
    assert.equal((await socket.done(id)).outcome, "completed");
  }
});

served.test("frames that are no protocol are swallowed", async ({ room }) => {
  // wire 41, 171, field C-08
  const socket = await room.connect();
  const since = socket.mark();
  const strange = ["hello", "", '{"type":"x"}', "[]", "null", "1", '"text"', "{", '{"type":1}', '{"type":null}', "{}", Buffer.from([0, 1, 2, 255])];
  for (const frame of strange) socket.send(frame);
  await socket.settle();
  assert.deepEqual(socket.since(since).filter((frame) => frame.type !== "rpc"), []);
  assert.ok(socket.isOpen);
  const { id } = socket.say("text");
  assert.equal((await socket.done(id)).outcome, "completed");
});

served.test("known types with broken fields are swallowed", async ({ room }) => {
  // wire §2.0 rule 3, 135
  const socket = await room.connect();
  const since = socket.mark();
  const broken = [
    { type: "cf_agent_stream_resume_ack" },
    { type: "cf_agent_stream_resume_ack", id: 7 },
    { type: "cf_agent_chat_request_cancel" },
    { type: "cf_agent_chat_request_cancel", id: null },
    { type: "cf_agent_tool_result" },
    { type: "cf_agent_tool_result", toolCallId: {}, output: 1 },
    { type: "cf_agent_tool_approval", toolCallId: "x" },
    { type: "cf_agent_tool_approval", approved: "yes" },
    { type: "cf_agent_chat_messages" },
    { type: "cf_agent_chat_messages", messages: "all" },
    { type: "rpc" },
    { type: "cf_agent_use_chat_request" },
    { type: "cf_agent_use_chat_request", id: 5, init: { method: "POST", body: "{}" } },
    { type: "cf_agent_identity", name: "me", agent: "you" },
    { type: "cf_agent_use_chat_response", id: "x", body: "", done: true },
  ];
  for (const frame of broken) socket.send(frame);
  await socket.settle();
  assert.deepEqual(socket.since(since).filter((frame) => frame.type !== "rpc"), []);
  assert.deepEqual(await room.history(), []);
});

served.test("state is closed to clients unless it was opened", async ({ room }) => {
  // wire 38, decision 20, decision 42, field A-01
  const socket = await room.connect();
  const other = await room.connect();
  const since = other.mark();
  socket.send({ type: "cf_agent_state", state: { n: 1 } });
  assert.deepEqual(await socket.frame("cf_agent_state_error"), { type: "cf_agent_state_error", error: "Connection is readonly" });
  await other.settle();
  assert.deepEqual(other.since(since).filter((frame) => frame.type !== "rpc"), []);
  const later = await room.connect();
  assert.ok(!types(later).includes("cf_agent_state"));
});

served.test("a state of megabytes is refused and the socket stays", async ({ room }) => {
  // field S-01
  const socket = await room.connect();
  socket.send({ type: "cf_agent_state", state: { text: "x".repeat(2_500_000) } });
  await socket.frame("cf_agent_state_error");
  await socket.settle();
  assert.ok(socket.isOpen);
});

served.test("two sockets may share an id, and closing one does not disturb the other", async ({ room, provider }) => {
  // wire 43, X25, decision 45
  const pk = randomUUID();
  const gate = provider.gate(room.name);
  const first = await room.connect({ pk });
  const second = await room.connect({ pk });
  const { id } = second.say(`slow ${room.name}`);
  gate.open(2);
  await first.frame((frame) => frame.id === id);
  await first.drop();
  const answer = await second.ask();
  assert.equal(answer.type, "cf_agent_stream_resuming");
  second.ack(id);
  await second.frame((frame) => frame.replayComplete === true);
  gate.open();
  assert.equal((await second.done(id)).outcome, "completed");
  const stored = (await room.history()).at(-1);
  assert.match(textOf(stored), /^w0 .*w49 $/);
});

served.test("a close is answered with the same code", async ({ room }) => {
  // wire 44
  for (const code of [1000, 3001, 4005]) {
    const socket = await room.connect();
    assert.equal((await socket.close(code)).code, code);
  }
});

served.test("a transport that is not offered is refused for good", async ({ room }) => {
  // wire 45
  const socket = await room.open({ search: { __agents_transport: "capnweb" } });
  assert.deepEqual(await socket.closed, { code: 4400, reason: "unsupported transport" });
  const normal = await room.connect({ search: { __agents_transport: "websocket" } });
  assert.ok(normal.isOpen);
});
