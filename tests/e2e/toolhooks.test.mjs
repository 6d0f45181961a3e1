// Page tools and approvals as a person sees them: the unmodified hooks of both packages on the real worker (wire 104, 112,
// 114, 115, 126, 128, 129; tools T56, T62, T79, T81, T86, T87, T90, T92, T96).

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { isContinued, openRoom, toolParts } from "./client.mjs";
import { TOOLS, serveDesk } from "./desk.mjs";
import { essence, openTab, PACKAGES, screen } from "./hook.mjs";

const desk = serveDesk();

/** `tools` of the hook. It tells the model only of those that have an `execute`; what runs them is `onToolCall`. */
const tools = Object.fromEntries(
  TOOLS.map(({ name, description = name, parameters = { type: "object" } }) => [name, { description, parameters, execute() {} }]),
);

/** One test for each package: `body` gets the room and `open()`, which opens tabs that are closed afterwards. */
function hookTest(name, body, { todo } = {}) {
  for (const use of PACKAGES) {
    test(`${use}: ${name}`, { timeout: 45_000, todo }, async (t) => {
      const { worker, provider } = desk;
      const room = openRoom(worker, { agent: "desk" });
      const open = async (chat = {}, agent = {}) => {
        const tab = await openTab(room, worker, { use, agent: { agent: "Desk", ...agent }, chat: { tools, ...chat } });
        t.after(() => tab.close());
        return tab.ready();
      };
      await body({ room, worker, provider, open, text: (script) => `want ${script} ${room.name}` });
      await room.close();
    });
  }
}

const idle = (value) => value.status === "ready" && !value.isServerStreaming && !value.isToolContinuation;
const last = (value) => (value.messages.at(-1)?.role === "assistant" ? value.messages.at(-1) : { parts: [] });
const said = (value) => last(value).parts.map((part) => (part.type === "text" ? part.text : "")).join("");
const calls = (value) => toolParts(last(value)).map((part) => [part.type.replace(/^tool-/, ""), part.state]);
const finished = (value) => idle(value) && said(value).endsWith("that is all.");
const isOpen = (value) => idle(value) && calls(value).some(([, state]) => state === "input-available" || state === "approval-requested");
const approvals = (value) => toolParts(last(value)).filter((part) => part.state === "approval-requested").map((part) => part.approval.id);

/** What ran on the server since it was started. */
async function ran(room) {
  const socket = room.sockets.find((each) => each.isOpen) ?? (await room.connect());
  return (await socket.call("ran")).result;
}

/** A page that runs its tools at once: each call gives the number it had. */
function running(log = []) {
  const onToolCall = ({ toolCall, addToolOutput }) => {
    log.push(toolCall.toolName);
    addToolOutput({ toolCallId: toolCall.toolCallId, output: log.length });
  };
  return { log, onToolCall };
}

/** The tab is at rest, shows what is stored, and one answer to one question. */
async function assertSettled(tab, room, expected) {
  await tab.until(finished);
  const stored = (await room.history()).map(essence);
  await tab.until((value) => idle(value) && isDeepStrictEqual(value.messages.map(essence), stored), { limitMs: 2_000 }).catch(() => {});
  assert.deepEqual(tab.now.messages.map(essence), stored, "wire 170");
  assert.deepEqual(screen(tab.now).map(([role]) => role), ["user", "assistant"]);
  assert.equal(tab.now.error, undefined);
  assert.ok(idle(tab.now));
  if (expected !== undefined) assert.deepEqual(calls(tab.now), expected);
}

/** The states a tab went through from render `from`, without repetition. */
const statuses = (tab, from) => tab.seen.slice(from).map((value) => value.status).filter((status, at, all) => status !== all[at - 1]);

/** Once on screen, nothing of the message ever vanishes: neither a call nor words. */
function assertNothingVanished(tab, from, what) {
  const shown = tab.seen.slice(from).map((value) => value.messages.flatMap(toolParts).length);
  shown.forEach((count, at) => assert.ok(at === 0 || count >= shown[at - 1], `${what}: a call vanished: ${shown}`));
}

hookTest("a page runs its tool, and the same message goes on in both tabs", async ({ room, provider, open, text }) => {
  // wire 114, 115, 129, T56, §4.6
  const page = running();
  const [tab, other] = [await open(page), await open()];
  const from = tab.seen.length;
  const gate = provider.gate(room.name);
  tab.now.sendMessage({ text: text("look") });
  await tab.until((value) => value.isToolContinuation && value.status === "submitted");
  gate.open(1);
  await tab.until((value) => value.status === "streaming" && said(value).includes("It says: "));
  await other.until((value) => said(value) === "Let me see. It says: ");
  assert.equal(other.now.status, "ready");
  gate.open();
  for (const each of [tab, other]) await assertSettled(each, room, [["look", "output-available"]]);
  assert.equal(said(tab.now), "Let me see. It says: 1; that is all.");
  assert.deepEqual(page.log, ["look"]);
  const path = statuses(tab, from);
  assert.deepEqual(path.slice(path.indexOf("submitted")), ["submitted", "streaming", "ready", "submitted", "streaming", "ready"]);
  assertNothingVanished(other, 0, "observer");
  assert.equal(provider.of(text("look")).length, 2);
});

hookTest("two tools of one step are run and answered, the model goes on once", async ({ room, provider, open, text }) => {
  // wire 121, 128
  const page = running();
  const [tab, other] = [await open(page), await open()];
  tab.now.sendMessage({ text: text("look+point") });
  for (const each of [tab, other]) await assertSettled(each, room, [["look", "output-available"], ["point", "output-available"]]);
  assert.deepEqual(page.log, ["look", "point"]);
  assert.equal(said(other.now), "Let me see. It says: 1; 2; that is all.");
  assert.equal(provider.of(text("look+point")).length, 2);
});

hookTest("two tools that take their time, one after the other", async ({ room, provider, open, text }) => {
  // wire 120, 128, §4.8
  const waiting = [];
  const tab = await open({ onToolCall: (call) => void waiting.push(call) });
  tab.now.sendMessage({ text: text("look+point") });
  await tab.until(() => waiting.length === 2);
  const answer = ({ toolCall, addToolOutput }, output) => addToolOutput({ toolCallId: toolCall.toolCallId, output });
  answer(waiting[1], "second");
  await tab.until((value) => value.isToolContinuation && calls(value)[1][1] === "output-available");
  const watcher = await room.connect();
  assert.equal(provider.of(text("look+point")).length, 1);
  answer(waiting[0], "first");
  await watcher.frame(isContinued);
  await assertSettled(tab, room, [["look", "output-available"], ["point", "output-available"]]);
  assert.equal(said(tab.now), "Let me see. It says: first; second; that is all.");
  assert.equal(provider.of(text("look+point")).length, 2);
});

hookTest("both tabs run the tool: the model is asked once, both show the first answer", async ({ room, provider, open, text }) => {
  // T68, tools §8.4
  const called = [[], []];
  const [tab, other] = await Promise.all(called.map((calls) => open({ onToolCall: (call) => void calls.push(call) })));
  tab.now.sendMessage({ text: text("look") });
  await Promise.all([tab, other].map((each, at) => each.until(() => called[at].length === 1)));
  for (const [at, output] of ["one", "two"].entries()) {
    called[at][0].addToolOutput({ toolCallId: called[at][0].toolCall.toolCallId, output });
  }
  for (const each of [tab, other]) await assertSettled(each, room, [["look", "output-available"]]);
  assert.equal(provider.of(text("look")).length, 2);
});

hookTest("a server tool is none of the page's business, round after round", async ({ room, provider, open, text }) => {
  // wire 104, field T-12
  const page = running();
  const [tab, other] = [await open(page), await open()];
  tab.now.sendMessage({ text: text("work/look+work/point") });
  const expected = ["work", "look", "work", "point"].map((name) => [name, "output-available"]);
  for (const each of [tab, other]) await assertSettled(each, room, expected);
  assert.deepEqual(page.log, ["look", "point"]);
  assert.equal(provider.of(text("work/look+work/point")).length, 4);
});

hookTest("a tool that fails is shown as failed and the model is left in peace", async ({ room, provider, open, text }) => {
  // wire 122, T66
  const onToolCall = ({ toolCall, addToolOutput }) =>
    addToolOutput({ toolCallId: toolCall.toolCallId, state: "output-error", errorText: "no camera" });
  const tab = await open({ onToolCall });
  tab.now.sendMessage({ text: text("look") });
  await tab.until((value) => idle(value) && calls(value)[0]?.[1] === "output-error");
  assert.equal(last(tab.now).parts.find((part) => part.toolCallId).errorText, "no camera");
  assert.equal(tab.now.error, undefined);
  assert.deepEqual((await room.history()).map(essence), tab.now.messages.map(essence));
  assert.equal(provider.of(text("look")).length, 1);
});

hookTest("a page loaded anew shows the open call, and a component answers it", async ({ room, provider, open, text }) => {
  // wire 126, T62
  const tab = await open();
  tab.now.sendMessage({ text: text('ask{"q":"Sure?"}') });
  await tab.until(isOpen);
  await tab.close();
  const again = await open();
  await again.until(isOpen);
  const { toolCallId, input } = toolParts(last(again.now))[0];
  assert.deepEqual(input, { q: "Sure?" });
  again.now.addToolOutput({ toolCallId, output: "sure" });
  await assertSettled(again, room, [["ask", "output-available"]]);
  assert.equal(provider.of(text('ask{"q":"Sure?"}')).length, 2);
});

hookTest("a call outlives the process: the tab comes back by itself and answers", async ({ room, provider, open, worker, text }) => {
  // wire 126, T62, E
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("ask") });
  await Promise.all([tab, other].map((each) => each.until(isOpen)));
  const back = [tab, other].map((each) => each.link.nextSocket());
  await worker.restart();
  await Promise.all(back);
  await tab.until((value) => value.identified && isOpen(value));
  tab.now.addToolOutput({ toolCallId: toolParts(last(tab.now))[0].toolCallId, output: "yes" });
  for (const each of [tab, other]) await assertSettled(each, room, [["ask", "output-available"]]);
  assert.equal(provider.of(text("ask")).length, 2);
});

hookTest("an answer given without a network arrives when it is back", async ({ room, provider, open, text }) => {
  // wire 99, 116
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("ask") });
  await Promise.all([tab, other].map((each) => each.until(isOpen)));
  const lost = new Promise((resolve) => tab.agent.addEventListener("close", resolve, { once: true }));
  tab.link.cut({ stayDown: true });
  await lost;
  tab.now.addToolOutput({ toolCallId: toolParts(last(tab.now))[0].toolCallId, output: "yes" });
  tab.link.restore();
  for (const each of [other, tab]) await assertSettled(each, room, [["ask", "output-available"]]);
  assert.equal(provider.of(text("ask")).length, 2);
});

hookTest("a network lost in a continuation heals by itself", async ({ room, provider, open, text }) => {
  // wire 95, 118, 119
  const gate = provider.gate(room.name);
  const [tab, other] = [await open(running()), await open()];
  gate.open(1);
  tab.now.sendMessage({ text: text("look") });
  await tab.until((value) => value.status === "streaming" && said(value).includes("It says: "));
  const back = tab.link.nextSocket();
  tab.link.cut();
  await back;
  gate.open();
  for (const each of [other, tab]) await assertSettled(each, room, [["look", "output-available"]]);
  assert.equal(provider.of(text("look")).length, 2);
});

hookTest("a new message overtakes an open call", async ({ room, open, text }) => {
  // T79, D12
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("ask") });
  await tab.until(isOpen);
  tab.now.sendMessage({ text: "echo never mind" });
  for (const each of [tab, other]) {
    await each.until((value) => idle(value) && said(value) === "never mind" && value.messages.length === 4);
    await each.until((value) => toolParts(value.messages[1])[0].state === "output-error");
  }
  const stored = (await room.history()).map(essence);
  for (const each of [tab, other]) assert.deepEqual(each.now.messages.map(essence), stored);
});

hookTest("a page that does not answer in time is told, and the model goes on", async ({ room, provider, open, text }) => {
  // T81
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("blink") });
  for (const each of [tab, other]) await assertSettled(each, room, [["blink", "output-error"]]);
  assert.equal(toolParts(last(tab.now))[0].errorText, "client tool timed out");
  assert.equal(provider.of(text("blink")).length, 2);
});

hookTest("an allowed call runs, and its part and the answer are in the same message", async ({ room, provider, open, text }) => {
  // wire 108, 112, T86, §4.7
  const [tab, other] = [await open(), await open()];
  const gate = provider.gate(room.name);
  tab.now.sendMessage({ text: text('pay{"eur":5}') });
  await Promise.all([tab, other].map((each) => each.until(isOpen)));
  const from = [tab, other].map((each) => each.seen.length);
  tab.now.addToolApprovalResponse({ id: approvals(tab.now)[0], approved: true });
  await tab.until((value) => value.isToolContinuation && value.status === "submitted");
  gate.open(1);
  await tab.until((value) => value.status === "streaming" && said(value).includes("It says: "));
  assert.deepEqual(calls(tab.now), [["pay", "output-available"]], "joined at once");
  gate.open();
  for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-available"]]);
  assert.deepEqual(statuses(tab, from[0]).slice(-3), ["submitted", "streaming", "ready"]);
  assert.deepEqual(statuses(other, from[1]), ["ready"]);
  for (const [at, each] of [tab, other].entries()) assertNothingVanished(each, from[at], "approval");
  assert.deepEqual((await ran(room)).map(([name]) => name), ["pay"]);
  assert.equal(provider.of(text('pay{"eur":5}')).length, 2);
});

hookTest("a denied call never runs, both tabs show the refusal and the answer to it", async ({ room, provider, open, text }) => {
  // wire 109, T87, T88
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("pay") });
  await other.until(isOpen);
  // The tab that only watches decides.
  other.now.addToolApprovalResponse({ id: approvals(other.now)[0], approved: false, reason: "stays in the page" });
  for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-denied"]]);
  assert.deepEqual(await ran(room), []);
  assert.equal(provider.of(text("pay")).length, 2);
});

hookTest("two tabs decide on two calls at once", async ({ room, provider, open, text }) => {
  // T90
  const [tab, other] = [await open(), await open()];
  const gate = provider.gate(room.name);
  tab.now.sendMessage({ text: text('pay{"eur":1}+pay{"eur":2}') });
  await Promise.all([tab, other].map((each) => each.until((value) => approvals(value).length === 2 && idle(value))));
  const [first, second] = approvals(tab.now);
  gate.open(1);
  tab.now.addToolApprovalResponse({ id: first, approved: true });
  other.now.addToolApprovalResponse({ id: second, approved: false });
  await Promise.all([tab, other].map((each) => each.until((value) => said(value).includes("It says: "))));
  gate.open();
  for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-available"], ["pay", "output-denied"]]);
  assert.deepEqual((await ran(room)).map(([, input]) => input.eur), [1]);
  assert.equal(provider.of(text('pay{"eur":1}+pay{"eur":2}')).length, 2);
});

for (const first of ["the question", "the page's call"]) {
  // Where the page answers first, its hook makes a bubble of its own for what follows, and an outcome of the allowed call among the
  // chunks has no call there.
  const mixed = async ({ room, provider, open, text }) => {
    // T96, X29
    const waiting = [];
    const [tab, other] = [await open({ onToolCall: (call) => void waiting.push(call) }), await open()];
    const gate = provider.gate(room.name);
    tab.now.sendMessage({ text: text("pay+look") });
    await tab.until((value) => approvals(value).length === 1 && waiting.length === 1);
    const [{ toolCall, addToolOutput }] = waiting;
    const steps = [
      () => tab.now.addToolApprovalResponse({ id: approvals(tab.now)[0], approved: true }),
      () => addToolOutput({ toolCallId: toolCall.toolCallId, output: 1 }),
    ];
    if (first !== "the question") steps.reverse();
    steps[0]();
    await tab.until((value) => value.isToolContinuation && value.status === "submitted");
    await other.until((value) => calls(value).some(([, state]) => ["approval-responded", "output-available"].includes(state)));
    assert.equal(provider.of(text("pay+look")).length, 1);
    gate.open(1);
    steps[1]();
    await Promise.all([tab, other].map((each) => each.until((value) => said(value).includes("It says: ") || value.status === "error")));
    gate.open();
    assert.equal(tab.now.error, undefined);
    for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-available"], ["look", "output-available"]]);
    assert.equal((await ran(room)).length, 1);
    assert.equal(provider.of(text("pay+look")).length, 2);
  };
  hookTest(`a question and a call of the page in one step, ${first} is answered first`, mixed);
}

hookTest("a question outlives the process: the tab comes back and decides", async ({ room, provider, open, worker, text }) => {
  // T92, E
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text("pay") });
  await Promise.all([tab, other].map((each) => each.until(isOpen)));
  const back = [tab, other].map((each) => each.link.nextSocket());
  await worker.restart();
  await Promise.all(back);
  await tab.until((value) => value.identified && isOpen(value));
  assert.equal(tab.now.error, undefined);
  tab.now.addToolApprovalResponse({ id: approvals(tab.now)[0], approved: true });
  for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-available"]]);
  assert.equal((await ran(room)).length, 1);
  assert.equal(provider.of(text("pay")).length, 2);
});

hookTest("the process dies while an allowed call runs: both tabs show that, and the answer goes on", async ({ room, provider, open, worker, text }) => {
  // T93, E
  const [tab, other] = [await open(), await open()];
  tab.now.sendMessage({ text: text('pay{"key":"bank"}') });
  await tab.until(isOpen);
  tab.now.addToolApprovalResponse({ id: approvals(tab.now)[0], approved: true });
  while ((await ran(room)).length === 0);
  const back = [tab, other].map((each) => each.link.nextSocket());
  await worker.restart();
  await Promise.all(back);
  for (const each of [tab, other]) await assertSettled(each, room, [["pay", "output-error"]]);
  assert.equal(provider.of(text('pay{"key":"bank"}')).length, 2);
  assert.deepEqual(await ran(room), []);
  tab.now.sendMessage({ text: "echo on" });
  for (const each of [tab, other]) await each.until((value) => idle(value) && said(value) === "on" && value.messages.length === 4);
  assert.equal(tab.now.error, undefined);
  const stored = (await room.history()).map(essence);
  for (const each of [tab, other]) assert.deepEqual(each.now.messages.map(essence), stored);
});

hookTest("who may only read decides nothing, and sees so", async ({ room, provider, open, text }) => {
  // T95, decision 42
  const [tab, guest] = [await open(), await open({}, { query: { readonly: "1" } })];
  tab.now.sendMessage({ text: text("pay") });
  await guest.until(isOpen);
  guest.now.addToolApprovalResponse({ id: approvals(guest.now)[0], approved: true });
  await guest.until((value) => !isOpen(value));
  await guest.until(isOpen);
  assert.deepEqual(await ran(room), []);
  tab.now.addToolApprovalResponse({ id: approvals(tab.now)[0], approved: true });
  for (const each of [tab, guest]) await assertSettled(each, room, [["pay", "output-available"]]);
  assert.equal((await ran(room)).length, 1);
  assert.equal(provider.of(text("pay")).length, 2);
});
