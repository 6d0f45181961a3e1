// The unmodified hooks of both packages, and `AgentClient`, on the real worker (wire 46, 47, 65, 74, 75, 95–100, 104,
// 136, 146, 170).

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { AgentClient } from "agents/client";
import { openRoom } from "./client.mjs";
import { essence, openTab, PACKAGES, screen } from "./hook.mjs";
import { SLOW_TEXT, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve();

/** One test for each package: `body` gets the room and `open()`, which opens tabs that are closed afterwards. */
function hookTest(name, body) {
  for (const use of PACKAGES) {
    test(`${use}: ${name}`, { timeout: 45_000 }, async (t) => {
      const { worker, provider } = served;
      const room = openRoom(worker);
      const open = async (options) => {
        const tab = await openTab(room, worker, { use, ...options });
        // Also when the test runs out of time: a tab left open would reconnect for ever.
        t.after(() => tab.close());
        return tab;
      };
      await body({ room, worker, provider, open });
    });
  }
}

const said = (value) => (value.messages.at(-1)?.role === "assistant" ? screen(value).at(-1)[1] : "");
const idle = (value) => value.status === "ready" && !value.isServerStreaming;

/** What is on screen is what is stored (wire 170); the hook may owe one more render, it draws at most every 50 ms. */
async function assertStored(tab, room) {
  const stored = (await room.history()).map(essence);
  const same = (value) => isDeepStrictEqual(value.messages.map(essence), stored);
  await tab.until(same, { limitMs: 2_000 }).catch(() => {});
  assert.deepEqual(tab.now.messages.map(essence), stored, "wire 170");
}

hookTest("a message is sent, streams and is stored as shown", async ({ room, provider, open }) => {
  // wire 170, §4.1, §4.2
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  assert.deepEqual(tab.now.messages, []);
  tab.now.sendMessage({ text: `text ${room.name}` });
  await tab.until((value) => value.status === "submitted");
  gate.open(1);
  await tab.until((value) => value.status === "streaming" && said(value) === "Hello");
  gate.open();
  await tab.until((value) => idle(value) && said(value) === TEXT);
  assert.equal(tab.now.error, undefined);
  await assertStored(tab, room);
  await tab.until(() => tab.turnsEnded.length === 1);
  assert.equal(tab.turnsEnded[0].outcome, "completed");
  assert.deepEqual(tab.turnsEnded[0].messageIds, [tab.now.messages[0].id]);
});

hookTest("reasoning, tools and text look the same on screen and in the store", async ({ room, open }) => {
  // wire 170, 104
  const called = [];
  const tab = await (await open({ chat: { onToolCall: ({ toolCall }) => void called.push(toolCall) } })).ready();
  for (const text of ["stool", "stool2", "badtool", "notool", "reason"]) {
    const before = tab.now.messages.length;
    tab.now.sendMessage({ text });
    await tab.until((value) => value.messages.length === before + 2 && idle(value) && said(value) !== "");
    assert.equal(tab.now.error, undefined, text);
    await assertStored(tab, room);
  }
  // wire 104: server tools are none of the page's business
  assert.deepEqual(called, []);
});

hookTest("an error in mid-stream is an error on screen, the partial stays", async ({ room, provider, open }) => {
  // wire 65
  const gate = provider.gate(room.name);
  gate.open();
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: `fail3 ${room.name}` });
  await tab.until((value) => value.status === "error");
  assert.match(tab.now.error.message, /mock broke/);
  assert.deepEqual(screen(tab.now), [["user", `fail3 ${room.name}`], ["assistant", "one two three "]]);
  await assertStored(tab, room);
  // The next message works and clears the error.
  tab.now.sendMessage({ text: "text" });
  await tab.until((value) => idle(value) && said(value) === TEXT);
  assert.equal(tab.now.error, undefined);
  assert.equal(tab.now.messages.length, 4);
});

hookTest("a refusal before the first chunk leaves no empty bubble", async ({ room, open }) => {
  // wire 63, field P-10
  const tab = await (await open()).ready();
  const other = await (await open()).ready();
  tab.now.sendMessage({ text: "fail0" });
  await tab.until((value) => value.status === "error");
  assert.match(tab.now.error.message, /mock says no/);
  assert.deepEqual(screen(tab.now), [["user", "fail0"]]);
  await other.until((value) => value.messages.length === 1);
  await other.until(() => other.turnsEnded.length === 1);
  assert.ok(idle(other.now));
  assert.deepEqual(screen(other.now), [["user", "fail0"]]);
});

hookTest("another tab watches the answer come and stays ready", async ({ room, provider, open }) => {
  // wire 74
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  const other = await (await open()).ready();
  const from = other.seen.length;
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(10);
  await other.until((value) => value.isServerStreaming && said(value).includes("w9 "));
  gate.open();
  await Promise.all([tab, other].map((each) => each.until((value) => idle(value) && said(value) === SLOW_TEXT)));
  assert.ok(other.seen.slice(from).every((value) => value.status === "ready"));
  assert.deepEqual(other.now.messages.map(essence), tab.now.messages.map(essence));
  await assertStored(other, room);
});

hookTest("a message sent right after the end is never taken off the screen", async ({ room, open }) => {
  // wire 75, X2
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: "echo one" });
  await tab.until((value) => idle(value) && said(value) === "one");
  const from = tab.seen.length;
  tab.now.sendMessage({ text: "echo two" });
  await tab.until((value) => idle(value) && said(value) === "two");
  const present = tab.seen.slice(from).map((value) => value.messages.some((message) => message.parts[0]?.text === "echo two"));
  assert.ok(present.slice(present.indexOf(true)).every(Boolean), "the message vanished and came back");
  await assertStored(tab, room);
});

hookTest("a lost network in mid-answer heals by itself", async ({ room, provider, open }) => {
  // wire 95, 47, §4.4
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  const [before] = tab.link.sockets();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(10);
  await tab.until((value) => said(value).includes("w9 "));
  const cutAt = performance.now();
  const back = tab.link.nextSocket();
  tab.link.cut();
  await tab.until((value) => value.status === "error");
  const after = await back;
  // wire 47: not before three seconds, and under the same id
  assert.ok(performance.now() - cutAt >= 2_900);
  const pk = (path) => new URL(path, "http://tab").searchParams.get("_pk");
  assert.ok(pk(before));
  assert.equal(pk(after), pk(before));
  gate.open(5);
  await tab.until((value) => value.status === "streaming" && said(value).includes("w14 "));
  gate.open();
  await tab.until((value) => idle(value) && said(value) === SLOW_TEXT);
  assert.equal(tab.now.error, undefined);
  assert.equal(tab.now.messages.length, 2);
  await assertStored(tab, room);
});

hookTest("a lost network while a tool's input streams leaves one tool part", async ({ room, provider, open }) => {
  // wire 96, X3, O5
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: `inputs ${room.name}` });
  gate.open(2);
  await tab.until((value) => value.messages.at(-1)?.parts.some((part) => part.state === "input-streaming"));
  const back = tab.link.nextSocket();
  tab.link.cut();
  await back;
  await tab.until((value) => value.status === "streaming");
  gate.open();
  await tab.until((value) => idle(value) && said(value).endsWith("Two."));
  await tab.until((value) => value.messages.at(-1).parts.filter((part) => part.type === "tool-calculate").length === 1);
  await assertStored(tab, room);
});

hookTest("a page loaded in mid-answer attaches and can stop it", async ({ room, provider, open }) => {
  // wire 97, §4.3, 142
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(12);
  await tab.until((value) => said(value).includes("w11 "));
  const late = await open();
  await late.until((value) => value.status === "streaming" && said(value).includes("w11 "));
  gate.open(3);
  await late.until((value) => said(value).includes("w14 "));
  const call = await provider.call(`slow ${room.name}`);
  late.now.stop();
  await Promise.all([tab, late].map((each) => each.until(idle)));
  await call.closed;
  assert.ok(call.aborted);
  await tab.until(() => tab.turnsEnded.length === 1);
  assert.equal(tab.turnsEnded[0].outcome, "aborted");
  await assertStored(tab, room);
  await assertStored(late, room);
});

hookTest("a turn that ended while the network was away is there when it returns", async ({ room, provider, open }) => {
  // wire 98
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  const watcher = await room.connect();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(10);
  await tab.until((value) => said(value).includes("w9 "));
  tab.link.cut({ stayDown: true });
  await tab.until((value) => value.status === "error");
  gate.open();
  await watcher.frame((frame) => frame.done === true && frame.outcome === "completed");
  tab.link.restore();
  await tab.until((value) => idle(value) && said(value) === SLOW_TEXT);
  assert.equal(tab.now.error, undefined);
  assert.equal(tab.now.messages.length, 2);
  await assertStored(tab, room);
  await room.close();
});

hookTest("a message sent without a network is kept and answered once", async ({ room, provider, open }) => {
  // wire 99, X13
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: "echo first" });
  await tab.until((value) => idle(value) && said(value) === "first");
  const lost = new Promise((resolve) => tab.agent.addEventListener("close", resolve, { once: true }));
  tab.link.cut({ stayDown: true });
  await lost;
  const from = tab.seen.length;
  tab.now.sendMessage({ text: `echo offline-${room.name}` });
  await tab.until((value) => value.messages.length === 3);
  tab.link.restore();
  await tab.until((value) => idle(value) && said(value) === `offline-${room.name}`);
  const present = tab.seen.slice(from).map((value) => value.messages.some((message) => message.parts[0]?.text === `echo offline-${room.name}`));
  assert.ok(present.slice(present.indexOf(true)).every(Boolean), "the message vanished and came back");
  assert.equal(provider.of(`echo offline-${room.name}`).length, 1);
  assert.equal(tab.now.messages.length, 4);
  await assertStored(tab, room);
});

hookTest("a tab that does not resume still sees the answer", async ({ room, provider, open }) => {
  // wire 100, X15
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(10);
  await tab.until((value) => said(value).includes("w9 "));
  const quiet = await open({ chat: { resume: false } });
  await quiet.ready();
  gate.open();
  await quiet.until((value) => said(value) === SLOW_TEXT);
  assert.ok(idle(quiet.now));
  await quiet.until(() => quiet.turnsEnded.length === 1);
  await assertStored(quiet, room);
});

hookTest("an empty send extends the last answer without doubling it", async ({ room, open }) => {
  // wire 136, X4
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: "echo one" });
  await tab.until((value) => idle(value) && said(value) === "one");
  tab.now.sendMessage();
  await tab.until((value) => value.status !== "ready");
  await tab.until((value) => idle(value) && said(value) !== "one");
  assert.equal(tab.now.messages.length, 2);
  await assertStored(tab, room);
});

hookTest("stop is immediate, and what comes late is not shown", async ({ room, provider, open }) => {
  // wire 146
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  const other = await (await open()).ready();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(8);
  await tab.until((value) => said(value).includes("w7 "));
  tab.now.stop();
  await tab.until((value) => value.status === "ready");
  gate.open();
  await other.until(() => other.turnsEnded.length === 1);
  await tab.until(() => tab.turnsEnded.length === 1);
  assert.equal(tab.turnsEnded[0].outcome, "aborted");
  assert.ok(!said(tab.now).includes("w49"));
  await assertStored(tab, room);
  await assertStored(other, room);
});

hookTest("regenerate and edit show what is stored, in both tabs", async ({ room, open }) => {
  // wire 130, 132, 170
  const tab = await (await open()).ready();
  const other = await (await open()).ready();
  for (const text of ["echo one", "echo two"]) {
    const before = tab.now.messages.length;
    tab.now.sendMessage({ text });
    await tab.until((value) => idle(value) && value.messages.length === before + 2 && said(value) === text.slice(5));
  }
  const oldId = tab.now.messages[3].id;
  tab.now.regenerate();
  await tab.until((value) => idle(value) && value.messages.length === 4 && value.messages[3].id !== oldId && said(value) === "two");
  await assertStored(tab, room);
  const first = tab.now.messages[0];
  tab.now.sendMessage({ text: "echo uno", messageId: first.id });
  await tab.until((value) => idle(value) && value.messages.length === 2 && said(value) === "uno");
  assert.equal(tab.now.messages[0].id, first.id);
  await assertStored(tab, room);
  await other.until((value) => idle(value) && value.messages.length === 2 && said(value) === "uno");
  await assertStored(other, room);
});

hookTest("clear empties every tab", async ({ room, provider, open }) => {
  // wire 147, 148
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  const other = await (await open()).ready();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(5);
  await other.until((value) => said(value).includes("w4 "));
  tab.now.clearHistory();
  await Promise.all([tab, other].map((each) => each.until((value) => value.messages.length === 0 && idle(value))));
  gate.open();
  assert.deepEqual(await room.history(), []);
  tab.now.sendMessage({ text: "echo fresh" });
  await Promise.all([tab, other].map((each) => each.until((value) => idle(value) && said(value) === "fresh")));
  await assertStored(tab, room);
  await assertStored(other, room);
});

hookTest("a second message sent while the first is answered is answered next", async ({ room, provider, open }) => {
  // wire 138
  const gate = provider.gate(room.name);
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: `slow ${room.name}` });
  gate.open(5);
  await tab.until((value) => said(value).includes("w4 "));
  const watcher = await room.connect();
  watcher.say("echo second", { history: tab.now.messages.filter((message) => message.role === "user") });
  gate.open();
  await tab.until((value) => idle(value) && value.messages.length === 4 && said(value) === "second");
  await assertStored(tab, room);
});

hookTest("a close for good is reported and not retried", async ({ room, open }) => {
  // wire 46
  const tab = await (await open()).ready();
  const accepted = tab.link.accepted;
  tab.link.closeSockets(4001);
  await tab.until((value) => value.connectionError !== null && value.connectionError !== undefined);
  assert.equal(tab.link.sockets().length, 0);
  assert.equal(tab.link.accepted, accepted);
});

hookTest("a reload shows the stored conversation", async ({ room, open }) => {
  // wire 18, §4.1
  const tab = await (await open()).ready();
  tab.now.sendMessage({ text: "stool" });
  await tab.until((value) => idle(value) && said(value).includes("The tool said"));
  const shown = tab.now.messages.map(essence);
  await tab.close();
  const again = await (await open()).ready();
  await again.until((value) => value.messages.length === 2);
  assert.deepEqual(again.now.messages.map(essence), shown);
});

/** An `AgentClient` on a conversation of its own, closed after the test. */
function connectClient(t, options) {
  const client = new AgentClient({
    agent: "ChatAgent",
    name: openRoom(served.worker).name,
    host: `127.0.0.1:${served.worker.port}`,
    ...options,
  });
  t.after(() => client.close());
  return client;
}

test("AgentClient connects, learns who it talks to, and gets errors of calls", { timeout: 30_000 }, async (t) => {
  // wire 32, 50, decision 42
  let refuse;
  const refused = new Promise((resolve) => (refuse = resolve));
  const name = openRoom(served.worker).name;
  const client = connectClient(t, { name, onStateUpdateError: refuse });
  await client.ready;
  assert.equal(client.agent, "chat-agent");
  assert.equal(client.name, name);
  await assert.rejects(client.call("nothing", [1]), /Method nothing does not exist/);
  client.setState({ a: 1 });
  assert.equal(await refused, "Connection is readonly");
});

test("AgentClient asking for a transport that is not offered is told so and stays away", { timeout: 30_000 }, async (t) => {
  // wire 45
  let fail;
  const failed = new Promise((resolve) => (fail = resolve));
  const client = connectClient(t, { query: { __agents_transport: "capnweb" }, onConnectionError: fail });
  const error = await failed;
  assert.equal(error.code, 4400);
  assert.equal(client.readyState, WebSocket.CLOSED);
});
