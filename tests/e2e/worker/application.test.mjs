// What an application chooses: routes, hooks, state, callables. Runs against the worker of this folder, which must be built
// (README.md).

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { openRoom } from "../client.mjs";
import { serve } from "../setup.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
if (!existsSync(at("./build/index.js"))) throw new Error("the worker of the hook tests is not built: see tests/e2e/worker/README.md");

const served = serve({ config: at("./wrangler.toml"), tolerate: /panicked at|RuntimeError: unreachable|a test asked for it/ });
const open = (name, body) => served.test(name, body, { agent: "open-state" });
const types = (socket) => socket.frames.map((frame) => frame.type);
const state = (value) => ({ type: "cf_agent_state", state: value });
const isState = (value) => (frame) => frame.type === "cf_agent_state" && JSON.stringify(frame.state) === JSON.stringify(value);
const cors = (response) => [...response.headers.keys()].filter((name) => name.startsWith("access-control-"));

// Routes

open("a binding is reachable under its kebab name only", async ({ worker, room }) => {
  // wire 9, 10
  const status = async (agent) => (await fetch(`${worker.url}/agents/${agent}/${room.name}/get-messages`)).status;
  for (const agent of ["chat-agent", "a-i-assistant", "v2-agent", "--foo", "foo-", "chat--agent", "chatagent", "chat-room"]) {
    assert.equal(await status(agent), 200, agent);
  }
  for (const agent of ["ChatAgent", "CHAT_ROOM", "ai-assistant", "foo", "chat_agent"]) assert.equal(await status(agent), 400, agent);
});

open("a prefix of several segments is a way in of its own", async ({ worker, room }) => {
  // wire 12
  assert.equal((await fetch(`${worker.url}/api/agents/open-state/${room.name}/get-messages`)).status, 200);
  assert.equal(await (await fetch(`${worker.url}/api/open-state/${room.name}/get-messages`)).text(), "not an agent");
});

open("CORS headers are on what is answered over HTTP, as configured", async ({ worker, room }) => {
  // wire 4–8
  const url = (prefix) => `${worker.url}/${prefix}/open-state/${room.name}/get-messages`;
  const preflight = await fetch(url("cors"), { method: "OPTIONS" });
  assert.equal(preflight.status, 200);
  assert.equal(await preflight.text(), "");
  assert.deepEqual(cors(preflight).length, 4);
  assert.equal((await fetch(url("cors"))).headers.get("access-control-allow-origin"), "*");
  const mapped = await fetch(url("map"));
  assert.deepEqual(cors(mapped), ["access-control-allow-origin"]);
  assert.equal(mapped.headers.get("access-control-allow-origin"), "https://a");
  const unknown = await fetch(`${worker.url}/cors/nope/x`, { method: "OPTIONS" });
  assert.equal(unknown.status, 400);
  assert.deepEqual(cors(unknown), []);
  assert.deepEqual(cors(await fetch(url("agents"), { method: "OPTIONS" })), []);
  const upgraded = openRoom({ port: worker.port }, { name: room.name, agent: `../cors/open-state` });
  const socket = await upgraded.connect();
  assert.deepEqual(Object.keys(socket.upgradeHeaders).filter((name) => name.startsWith("access-control-")), []);
  await upgraded.close();
});

open("only listed origins may ask", async ({ worker, room }) => {
  const ask = (origin) => fetch(`${worker.url}/listed/open-state/${room.name}/get-messages`, { headers: origin ? { origin } : {} });
  assert.equal((await ask("https://a")).headers.get("access-control-allow-origin"), "https://a");
  for (const origin of ["https://b", "https://a.b", "http://a", "null"]) assert.equal((await ask(origin)).status, 403, origin);
  const own = await ask();
  assert.equal(own.status, 200);
  assert.deepEqual(cors(own), []);
});

open("a hook may answer, pass or replace a request", async ({ worker, room }) => {
  // wire 14
  const url = (pass) => `${worker.url}/gated/open-state/${room.name}/echo?pass=${pass}`;
  const refused = await fetch(url("no"));
  assert.deepEqual([refused.status, await refused.text(), cors(refused).length], [401, "no", 4]);
  assert.equal((await (await fetch(url("yes"))).json()).headers["x-replaced"], undefined);
  assert.equal((await (await fetch(url("instead"))).json()).headers["x-replaced"], "1");
  const gated = openRoom({ port: worker.port }, { name: room.name, agent: "../gated/open-state" });
  await assert.rejects(gated.open(), (error) => error.status === 401 && error.headers["access-control-allow-origin"] === undefined);
  const passed = openRoom({ port: worker.port }, { name: room.name, agent: "../gated/open-state", query: { pass: "instead" } });
  await passed.connect();
  await passed.close();
});

open("headers of the inside do not come in from outside", async ({ room }) => {
  // wire 15
  const headers = { "x-agents-lifecycle-props": "e30=", "X-CF-Agents-Subagent-Url": "http://x/", "x-mine": "1" };
  const seen = await (await room.get("/echo", { method: "POST", body: "abc", headers })).json();
  assert.equal(seen.body, 3);
  assert.equal(seen.headers["x-mine"], "1");
  assert.deepEqual(Object.keys(seen.headers).filter((name) => name in { "x-agents-lifecycle-props": 1, "x-cf-agents-subagent-url": 1 }), []);
});

open("an application may route by itself", async ({ worker }) => {
  // wire 21
  assert.equal((await fetch(`${worker.url}/chat/get-messages`)).status, 200);
  assert.equal(await (await fetch(`${worker.url}/chat`)).text(), "Not implemented");
});

// Connections

open("state follows the identity once there is one", async ({ room }) => {
  // wire 31, 32
  const first = await room.connect();
  assert.deepEqual(types(first), ["cf_agent_chat_messages", "cf_agent_identity", "cf_agent_mcp_servers"]);
  await first.call("assign", [{ n: 1 }]);
  const second = await room.connect();
  assert.deepEqual(types(second), ["cf_agent_chat_messages", "cf_agent_identity", "cf_agent_state", "cf_agent_mcp_servers"]);
  assert.deepEqual(second.frames[1], { type: "cf_agent_identity", name: room.name, agent: "open-state", stateFollows: true });
});

served.test(
  "without identity the rest is sent",
  async ({ room }) => {
    // wire 33
    const socket = await room.connect();
    await socket.call("assign", [1]);
    const later = await room.connect();
    assert.deepEqual(types(later), ["cf_agent_chat_messages", "cf_agent_state", "cf_agent_mcp_servers"]);
  },
  { agent: "anonymous" },
);

open("a connection without protocol frames gets the chat alone", async ({ room }) => {
  // wire 34
  const quiet = await room.open({ search: { quiet: 1 } });
  await quiet.settle();
  const socket = await room.connect();
  await socket.call("assign", [{ n: 1 }]);
  const { id } = quiet.say("text");
  await quiet.done(id);
  assert.deepEqual(quiet.frames.filter((frame) => /identity|state|mcp/.test(frame.type)), []);
});

open("a set-up that fails says so without detail and closes", async ({ room }) => {
  // wire 42
  for (const search of [{ fail: 1 }, { tags: "a,,b" }, { tags: "x".repeat(257) }, { tags: "1,2,3,4,5,6,7,8,9,10" }]) {
    const socket = await room.open({ search });
    assert.deepEqual(await socket.closed, { code: 1011, reason: "Uncaught exception during session setup" });
    const texts = socket.log.map((entry) => entry.text);
    assert.equal(texts.length, 1);
    assert.equal(typeof JSON.parse(texts[0]).error, "string");
    assert.doesNotMatch(texts[0], /secret/);
    room.sockets.length = 0;
  }
  await room.connect({ search: { tags: "1,2,3,4,5,6,7,8,9" } });
});

open("the application may close a socket for good", async ({ room }) => {
  // wire 46 (server side)
  const socket = await room.connect();
  socket.send({ type: "rpc", id: "c", method: "close", args: [4001, "go"] });
  assert.deepEqual(await socket.closed, { code: 4001, reason: "go" });
});

// State

open("a client's state reaches the others and not itself", async ({ room }) => {
  // wire 36, 37
  const [one, two] = [await room.connect(), await room.connect()];
  one.send(state({ n: 1 }));
  await two.frame(isState({ n: 1 }));
  await one.settle();
  assert.deepEqual(one.frames.filter((frame) => frame.type === "cf_agent_state"), []);
  await one.call("assign", [{ n: 2 }]);
  await Promise.all([one.frame(isState({ n: 2 })), two.frame(isState({ n: 2 }))]);
});

open("state that may not be set is refused to its sender alone", async ({ room }) => {
  // wire 38, 39
  const [writer, reader] = [await room.connect(), await room.connect({ search: { readonly: 1 } })];
  await writer.call("assign", [{ n: 1 }]);
  reader.send(state({ n: 2 }));
  assert.equal((await reader.frame("cf_agent_state_error")).error, "Connection is readonly");
  writer.send(state({ bad: true }));
  assert.equal((await writer.frame("cf_agent_state_error")).error, "State update rejected");
  assert.deepEqual((await writer.call("getState")).result, { n: 1 });
});

served.test(
  "state is closed to clients unless opened",
  async ({ room }) => {
    // decision 20, 42
    const socket = await room.connect();
    socket.send(state({ n: 1 }));
    assert.equal((await socket.frame("cf_agent_state_error")).error, "Connection is readonly");
    assert.equal((await socket.call("getState")).result, undefined);
  },
  { agent: "closed-state" },
);

open("state survives the end of the process, and a panic", async ({ room, worker }) => {
  // wire 40, field D-02
  const socket = await room.connect();
  await socket.call("assign", [{ n: 1 }]);
  socket.send({ type: "rpc", id: "p", method: "panic", args: [] });
  assert.equal((await socket.closed).code, 1012);
  const back = await room.connect();
  assert.deepEqual((await back.call("getState")).result, { n: 1 });
  room.sockets.length = 0;
  await worker.restart();
  const later = await room.connect();
  assert.deepEqual((await later.frame("cf_agent_state")).state, { n: 1 });
});

// Calls

open("a call is answered to its caller with a value, with none, or with an error", async ({ room }) => {
  // wire 48–52
  const [socket, other] = [await room.connect(), await room.connect()];
  const since = other.mark();
  assert.deepEqual(await socket.call("add", [1, 2], "a"), { type: "rpc", id: "a", success: true, done: true, result: 3 });
  assert.deepEqual(await socket.call("nothing", [], "b"), { type: "rpc", id: "b", success: true, done: true });
  assert.deepEqual(await socket.call("fails", ["x"], "c"), { type: "rpc", id: "c", success: false, error: "x" });
  assert.equal((await socket.call("m")).error, "Method m does not exist");
  assert.equal((await socket.call("setState", [1])).error, "Method setState is not callable");
  await other.settle();
  assert.equal(other.since(since).filter((frame) => ["a", "b", "c"].includes(frame.id)).length, 0);
});

open("a stream of pieces ends with a value or an error", async ({ room }) => {
  // wire 53, 54
  const socket = await room.connect();
  const last = await socket.call("count", [2], "s");
  assert.deepEqual(last, { type: "rpc", id: "s", success: true, done: true, result: "counted" });
  const broken = await socket.call("breaks", [2], "t");
  assert.deepEqual(broken, { type: "rpc", id: "t", success: false, error: "broken off" });
  await socket.settle();
  const pieces = (id) => socket.frames.filter((frame) => frame.id === id).slice(0, -1);
  for (const id of ["s", "t"]) {
    const expected = [0, 1].map((chunk) => ({ type: "rpc", id, success: true, done: false, result: { chunk } }));
    assert.deepEqual(pieces(id), expected);
  }
});

open("calls overtake each other", async ({ room }) => {
  // wire 56
  const [socket, other] = [await room.connect(), await room.connect()];
  const slow = socket.call("wait", ["k"]);
  assert.equal((await socket.call("add", [1, 1])).result, 2);
  assert.equal((await other.call("release", ["k"])).result, true);
  assert.equal((await slow).result, "k");
});

open("a read-only connection may ask but not change", async ({ room }) => {
  // wire 57
  const [writer, reader] = [await room.connect(), await room.connect({ search: { readonly: 1 } })];
  await writer.call("assign", [{ n: 1 }]);
  assert.equal((await reader.call("assign", [{ n: 2 }])).error, "Connection is readonly");
  assert.deepEqual((await reader.call("getState")).result, { n: 1 });
});

open("what is no protocol is the application's", async ({ room }) => {
  // wire 41, 55
  const socket = await room.connect();
  const strange = ["hello", '{"type":"x"}', "[]", "null", '{"type":"rpc","id":1,"method":"add","args":[]}', '{"type":"rpc","id":"1","method":"add","args":{}}'];
  for (const text of strange) socket.send(text);
  socket.send(Buffer.from([1, 2, 255]));
  const seen = (await socket.call("seen")).result;
  assert.deepEqual(seen, ["connect", ...strange.map((text) => ({ text })), { binary: 3 }]);
});

// Turns by the application

open("messages and turns of the application are in every tab", async ({ room }) => {
  const socket = await room.connect();
  await socket.call("greet", ["m1"]);
  const asked = (await socket.call("ask", ["u1", "text"])).result;
  assert.equal(asked.status, "completed");
  assert.deepEqual((await room.history()).map(({ id, role }) => [id, role]), [["m1", "assistant"], ["u1", "user"], [asked.message.id, "assistant"]]);
});
