// Calls of methods as far as the deployable has any (wire 50, 55, 56); the rest is proven with agents that declare some.

import assert from "node:assert/strict";
import { serve } from "./setup.mjs";

const served = serve();

served.test("a method that does not exist is named in the error", async ({ room }) => {
  // wire 50
  const socket = await room.connect();
  const other = await room.connect();
  const since = other.mark();
  assert.deepEqual(await socket.call("m", [1, { a: 2 }], "call-1"), {
    type: "rpc",
    id: "call-1",
    success: false,
    error: "Method m does not exist",
  });
  await other.settle();
  // wire 48: only the caller is answered
  assert.equal(other.since(since).filter((frame) => frame.id === "call-1").length, 0);
});

served.test("internal methods are out of reach", async ({ room }) => {
  // wire §2.5: an allow-list
  const socket = await room.connect();
  for (const method of ["constructor", "fetch", "alarm", "webSocketMessage", "onRequest", "toString", "__proto__", ""]) {
    const reply = await socket.call(method);
    assert.equal(reply.success, false, method);
    assert.match(reply.error, /^Method .* (does not exist|is not callable)$/, method);
  }
});

served.test("a call with broken fields is not answered", async ({ room }) => {
  // wire 55
  const socket = await room.connect();
  const since = socket.mark();
  const calls = [
    { type: "rpc", id: "x", method: "m", args: {} },
    { type: "rpc", id: "x", method: "m" },
    { type: "rpc", id: 5, method: "m", args: [] },
    { type: "rpc", method: "m", args: [] },
    { type: "rpc", id: "x", method: 5, args: [] },
    { type: "rpc", id: "x", args: [] },
  ];
  for (const call of calls) socket.send(call);
  await socket.settle();
  assert.equal(socket.since(since).length, 1, "only the settling call is answered");
});

served.test("calls at once are answered under their own ids", async ({ room }) => {
  // wire 56
  const socket = await room.connect();
  const ids = Array.from({ length: 20 }, (_, at) => `c${at}`);
  const replies = await Promise.all(ids.map((id) => socket.call(`method${id}`, [], id)));
  assert.deepEqual(replies.map((reply) => [reply.id, reply.error]), ids.map((id) => [id, `Method method${id} does not exist`]));
});

served.test("a call is answered while a turn runs", async ({ room, provider }) => {
  // wire O8
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`late ${room.name}`);
  await gate.reached(1);
  assert.equal((await socket.call("m")).success, false);
  gate.open();
  assert.equal((await socket.done(id)).outcome, "completed");
});
