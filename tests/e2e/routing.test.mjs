// Which URL reaches which object, and what every other request is answered (wire 1–20).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { openRoom, Refused } from "./client.mjs";
import { serve } from "./setup.mjs";

const served = serve();
const at = (path, init) => fetch(`${served.worker.url}${path}`, init);

test("what lies outside the prefix is left to the application", async () => {
  // wire 1, 2
  for (const path of ["/agents/chat-agent", "/agents/chat-agent/", "/other/chat-agent/x", "/agents"]) {
    const response = await at(path);
    assert.equal(response.status, 404, path);
    await response.body?.cancel();
  }
});

test("an agent nobody registered is an invalid request", async () => {
  // wire 3, 9
  for (const agent of ["nope", "ChatAgent", "CHAT_AGENT", "chat_agent", "chatagent"]) {
    const response = await at(`/agents/${agent}/x/get-messages`);
    assert.equal(response.status, 400, agent);
    assert.equal(await response.text(), "Invalid request", agent);
  }
});

test("without allowed origins no CORS header is sent", async () => {
  // wire §1.3, decision 49
  const response = await at(`/agents/chat-agent/${randomUUID()}/get-messages`, { headers: { origin: "https://page.example" } });
  assert.equal(response.status, 200);
  assert.deepEqual([...response.headers.keys()].filter((key) => key.startsWith("access-control-")), []);
  await response.body?.cancel();
});

test("a name that no object may have is refused", async () => {
  // decision 46, field A-06
  for (const name of ["a".repeat(257), "%00", "a%0Ab", "%1f", "%7F"]) {
    const response = await at(`/agents/chat-agent/${name}/get-messages`);
    assert.equal(response.status, 400, name.slice(0, 20));
    assert.equal(await response.text(), "Invalid request", name.slice(0, 20));
  }
  for (const name of ["b".repeat(256), "%2F", "%C3%A9", "a.b~c", "'\"<>"]) {
    const response = await at(`/agents/chat-agent/${name}/get-messages`);
    assert.equal(response.status, 200, name.slice(0, 20));
    assert.deepEqual(await response.json(), []);
  }
});

test("a path the agent does not know is not implemented", async () => {
  // wire 16
  const response = await at(`/agents/chat-agent/${randomUUID()}/unknown`);
  assert.equal(response.status, 404);
  assert.equal(await response.text(), "Not implemented");
});

test("a new object has an empty history", async () => {
  // wire 17
  const response = await at(`/agents/chat-agent/${randomUUID()}/get-messages`);
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^application\/json/);
  assert.equal(response.headers.get("cache-control"), "no-store");
  assert.equal(await response.text(), "[]");
});

test("HEAD on the history answers without a body", async () => {
  // wire §1.6
  const response = await at(`/agents/chat-agent/${randomUUID()}/get-messages`, { method: "HEAD" });
  assert.equal(response.status, 200);
  assert.equal(await response.text(), "");
});

served.test("empty path segments do not matter", async ({ room, worker }) => {
  // wire 11
  const socket = await room.connect();
  await socket.done(socket.say("text").id);
  const twin = await fetch(`${worker.url}//agents///chat-agent//${room.name}//get-messages`);
  assert.deepEqual(await twin.json(), await room.history());
});

served.test(
  "the name is taken as it stands in the URL",
  async ({ room }) => {
    // wire 13
    const socket = await room.connect();
    const identity = await socket.frame("cf_agent_identity");
    assert.equal(identity.name, room.name);
    assert.equal(identity.agent, "chat-agent");
  },
  { name: `foo%20bar${randomUUID()}` },
);

served.test("names that differ in case or escape are different objects", async ({ room, worker }) => {
  // wire 13, field A-06
  const socket = await room.connect();
  await socket.done(socket.say("text").id);
  for (const name of [room.name.toUpperCase(), room.name.replaceAll("-", "%2D")]) {
    assert.deepEqual(await openRoom(worker, { name }).history(), [], name);
  }
});

served.test("headers that only the platform may set have no effect", async ({ room }) => {
  // wire 15
  const headers = {
    "x-agents-lifecycle-props": btoa(JSON.stringify({ name: "other" })),
    "x-cf-agents-subagent-url": `${room.path}/sub/child-agent/a`,
  };
  const plain = await (await room.get()).text();
  const forged = await room.get("/get-messages", { headers });
  assert.equal(forged.status, 200);
  assert.equal(await forged.text(), plain);
  const socket = await room.connect({ headers });
  assert.equal((await socket.frame("cf_agent_identity")).name, room.name);
});

served.test("the history after a turn holds the ids of the frames", async ({ room }) => {
  // wire 18
  const socket = await room.connect();
  const { id, message } = socket.say("text");
  await socket.done(id);
  const [start] = socket.chunks(id);
  assert.deepEqual((await room.history()).map(({ id, role }) => [id, role]), [
    [message.id, "user"],
    [start.messageId, "assistant"],
  ]);
});

served.test("the history during a turn answers at once, without the unfinished reply", async ({ room, provider }) => {
  // wire 19, X26
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id, message } = socket.say(`slow ${room.name}`);
  gate.open(3);
  await gate.reached(4);
  await socket.frame((frame) => frame.id === id);
  const took = [];
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const asked = performance.now();
    const history = await room.history();
    took.push(performance.now() - asked);
    assert.deepEqual(history.map(({ id, role }) => [id, role]), [[message.id, "user"]]);
  }
  // The best of five: a busy machine may be late, a handler that waits for the turn never comes.
  assert.ok(Math.min(...took) < 200, `answered after ${took} ms`);
  gate.open();
  await socket.done(id);
});

served.test("the router does not read the query", async ({ room, worker }) => {
  // wire 20
  const socket = await room.connect();
  await socket.done(socket.say("text").id);
  const response = await fetch(`${worker.url}${room.path}/get-messages?a=1&name=other&_pk=x&a=%00`);
  assert.deepEqual(await response.json(), await room.history());
});

served.test("any other method on the history changes nothing", async ({ room }) => {
  // wire §1.6
  for (const method of ["POST", "PUT", "DELETE"]) {
    const response = await room.get("/get-messages", { method, ...(method === "DELETE" ? {} : { body: "[]" }) });
    assert.ok([200, 405].includes(response.status), `${method}: ${response.status}`);
    await response.body?.cancel();
  }
  assert.deepEqual(await room.history(), []);
});

served.test("an upgrade for an unknown agent is refused", async ({ worker }) => {
  // wire 3
  await assert.rejects(openRoom(worker, { agent: "nope" }).open(), (error) => error instanceof Refused && error.status === 400);
});
