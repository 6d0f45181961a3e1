// Calls that a person has to allow, on raw sockets (wire 107–111, 113; tools §10). The real hook: toolhooks.test.mjs.

import assert from "node:assert/strict";
import { hasChunk, isAnswer, isChunk, isContinued, isUpdate, textOf, toolParts } from "./client.mjs";
import { assertAtRest, open, parked, resultsOf, serveDesk, states } from "./desk.mjs";

const desk = serveDesk({
  scripts: {
    /** The input of a gated call streams under the gate. */
    async slowpay(call) {
      if (call.results.length > 0) return call.finish();
      const tool = (delta) => call.chunk({ tool_calls: [{ index: 0, ...delta }] });
      await tool({ id: `call_${call.argument}`, type: "function", function: { name: "pay", arguments: "" } });
      for (const text of ['{"eu', 'r":', "5}"]) {
        await call.gate();
        await tool({ function: { arguments: text } });
      }
      await call.gate();
      return call.finish("tool_calls");
    },
  },
});
const RESUMING = "cf_agent_stream_resuming";
const ran = async (socket) => (await socket.call("ran")).result;
const SAID = (...outputs) => `Let me see. It says: ${outputs.map((output) => `${output}; `).join("")}that is all.`;

/** Resolves once `count` server tools were started. */
async function started(socket, count) {
  while ((await ran(socket)).length < count) await socket.settle();
}

desk.test("a gated call is asked for after its input, and nothing runs", async (context) => {
  // wire 107, T86
  const { socket, text, id, reply, ids } = await parked(context, 'pay{"eur":5}');
  const chunks = socket.chunks(id);
  const from = chunks.findIndex((chunk) => chunk.type === "tool-input-available");
  assert.deepEqual(chunks.slice(from).map((chunk) => chunk.type), ["tool-input-available", "tool-approval-request", "finish-step", "finish"]);
  const [part] = toolParts(reply);
  assert.deepEqual([part.state, part.input], ["approval-requested", { eur: 5 }]);
  assert.equal(part.approval.id, chunks[from + 1].approvalId);
  assert.equal(chunks[from + 1].toolCallId, ids[0]);
  assert.deepEqual(await ran(socket), []);
  const late = await context.room.connect();
  assert.deepEqual(late.frames[0].messages.at(-1), reply);
  await assertAtRest(late, context.provider, text, 1);
});

desk.test("nobody is asked before the input is complete", async ({ room, provider }) => {
  // wire 113: no input comes after the question, so no question is put twice
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`slowpay ${room.name}`);
  for (const piece of ['{"eu', 'r":', "5}"]) {
    gate.open(1);
    await socket.frame(hasChunk(id, "tool-input-delta", (chunk) => chunk.inputTextDelta === piece));
    assert.ok(!socket.chunks(id).some((chunk) => chunk.type === "tool-approval-request"));
  }
  gate.open();
  await socket.done(id);
  const types = socket.chunks(id).map((chunk) => chunk.type).filter((type) => type.startsWith("tool-") && type !== "tool-input-delta");
  assert.deepEqual(types, ["tool-input-start", "tool-input-available", "tool-approval-request"]);
});

desk.test("an allowed call runs once, in the continuation, and the message goes on", async (context) => {
  // wire 108, T86, §4.7
  const { room, provider } = context;
  const { socket, text, reply, ids, gate } = await parked(context, 'pay{"eur":5,"key":"k"}');
  const other = await room.connect();
  const since = socket.mark();
  gate().open(1);
  socket.decide(ids[0], true);
  const probeId = socket.probe();
  const updates = await Promise.all([socket, other].map((tab) => tab.frame(isUpdate(ids[0], "approval-responded"))));
  assert.equal(toolParts(updates[0].message)[0].approval.approved, true);
  assert.deepEqual(updates[1], updates[0]);
  await started(other, 1);
  assert.equal(provider.of(text).length, 1, "the model waits for the call");
  assert.equal((await other.call("release", ["k"])).result, true);
  const { id } = await socket.frame(RESUMING, { since });
  socket.ack(id);
  await socket.frame((frame) => frame.replayComplete === true && frame.continuation === true, { since });
  gate().open();
  await Promise.all([socket, other].map((tab) => tab.frame(isContinued)));

  // O7: the probe in the breath of the decision is promised the continuation.
  assert.deepEqual(socket.since(since).filter(isAnswer), [
    { type: "cf_agent_stream_pending", id, probeId },
    { type: RESUMING, id },
  ]);
  for (const tab of [socket, other]) {
    assert.deepEqual(tab.chunks(id).map((chunk) => chunk.type).slice(0, 3), ["start", "tool-output-available", "start-step"]);
    assert.deepEqual(tab.chunks(id)[0], { type: "start" });
    assert.deepEqual(tab.chunks(id)[1].output, { done: "pay" });
  }
  const history = await room.history();
  assert.deepEqual(history.map((message) => message.id), [history[0].id, reply.id]);
  assert.deepEqual(toolParts(history[1]).map((part) => [part.state, part.output]), [["output-available", { done: "pay" }]]);
  assert.equal(textOf(history[1]), SAID('{"done":"pay"}'));
  assert.deepEqual(await ran(socket), [["pay", { eur: 5, key: "k" }]]);
  assert.deepEqual(resultsOf(await provider.call(text, 2)), { [ids[0]]: '{"done":"pay"}' });
  await assertAtRest(socket, provider, text, 2);
});

for (const reason of ["too expensive", undefined]) {
  desk.test(`a call denied ${reason ? "with a reason" : "without one"} never runs, and the model goes on without it`, async (context) => {
    // wire 109, T87, T88
    const { room, provider } = context;
    const { socket, text, ids } = await parked(context, 'pay{"eur":5}');
    const other = await room.connect();
    socket.decide(ids[0], false, reason ? { reason } : {});
    const updates = await Promise.all([socket, other].map((tab) => tab.frame(isUpdate(ids[0], "output-denied"))));
    for (const { message } of updates) {
      const { approval } = toolParts(message)[0];
      assert.deepEqual([approval.approved, approval.reason], [false, reason]);
    }
    const end = await other.frame(isContinued);
    assert.ok(!other.chunks(end.id).some((chunk) => chunk.type.startsWith("tool-")), "no chunk of the call");
    assert.deepEqual(await ran(socket), []);
    const stored = toolParts((await room.history()).at(-1))[0];
    assert.deepEqual([stored.state, stored.approval.reason], ["output-denied", reason]);
    const told = resultsOf(await provider.call(text, 2))[ids[0]];
    assert.ok(reason ? told.includes(reason) : told.length > 0, told);
    await assertAtRest(socket, provider, text, 2);
  });
}

for (const first of [true, false]) {
  desk.test(`the first decision counts, here ${first ? "yes" : "no"}`, async (context) => {
    // wire 110, T91
    const { room, provider } = context;
    const { socket, text, ids } = await parked(context, 'pay{"eur":5}');
    const other = await room.connect();
    // Both tabs at once, then again when it is long over.
    socket.decide(ids[0], first, { ack: true });
    assert.equal((await socket.verdict(ids[0])).status, "accepted");
    other.decide(ids[0], !first, { ack: true });
    other.decide(ids[0], first, { ack: true });
    const verdicts = [await other.verdict(ids[0])];
    await other.frame(isContinued);
    const since = other.mark();
    other.decide(ids[0], !first, { ack: true });
    verdicts.push(await other.verdict(ids[0], { since }));
    assert.deepEqual(verdicts.map((frame) => frame.status), ["conflict", "conflict"]);
    await other.frame(isUpdate(ids[0], first ? "output-available" : "output-denied"), { since });
    assert.equal((await ran(socket)).length, first ? 1 : 0);
    assert.deepEqual(states((await room.history()).at(-1)), [first ? "output-available" : "output-denied"]);
    await assertAtRest(other, provider, text, 2);
  });
}

desk.test("a decision that is not to go on only shows; a request takes it up", async (context) => {
  // wire 111
  const { room, provider } = context;
  const { socket, text, message, ids } = await parked(context, 'pay{"eur":5}');
  socket.decide(ids[0], true, { autoContinue: false });
  const update = await socket.frame(isUpdate(ids[0], "approval-responded"));
  await assertAtRest(socket, provider, text, 1);
  assert.deepEqual(await ran(socket), []);
  const id = socket.post([message, update.message]);
  assert.equal((await socket.done(id)).outcome, "completed");
  assert.equal((await ran(socket)).length, 1);
  assert.equal(textOf((await room.history()).at(-1)), SAID('{"done":"pay"}'));
  await assertAtRest(socket, provider, text, 2);
});

desk.test("the tool says which calls are asked for; what goes wrong with that asks", async (context) => {
  // T89, wire 107
  const calls = [50, 500, -1].map((eur) => `transfer{"eur":${eur}}`).join("+");
  const { socket, text, reply, ids } = await parked(context, `${calls}+transfer`);
  assert.deepEqual(states(reply), ["output-available", "approval-requested", "output-denied", "approval-requested"]);
  assert.deepEqual(await ran(socket), [["transfer", { eur: 50 }]]);
  for (const id of ids) socket.decide(id, true);
  await socket.frame(isContinued);
  assert.deepEqual((await ran(socket)).slice(1), [["transfer", { eur: 500 }], ["transfer", {}]]);
  const results = Object.values(resultsOf(await context.provider.call(text, 2)));
  assert.equal(results.length, 4);
  assert.ok(results[2].includes("no negative amounts"), results[2]);
});

desk.test("two questions decided by two tabs at once are one continuation", async (context) => {
  // T90, §10.4
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, 'pay{"eur":1}+pay{"eur":2}');
  const other = await room.connect();
  socket.decide(ids[0], true);
  socket.probe();
  other.decide(ids[1], false, { reason: "not this one" });
  other.probe();
  const ends = await Promise.all([socket, other].map((tab) => tab.frame(isContinued)));
  assert.equal(ends[0].id, ends[1].id);
  assert.deepEqual(await ran(socket), [["pay", { eur: 1 }]]);
  assert.deepEqual(states((await room.history()).at(-1)), ["output-available", "output-denied"]);
  const told = resultsOf(await provider.call(text, 2));
  assert.equal(told[ids[0]], '{"done":"pay"}');
  assert.match(told[ids[1]], /not this one/);
  await assertAtRest(socket, provider, text, 2);
});

desk.test(
  "a tab is not turned away from a continuation that it is offered a moment later",
  async (context) => {
    // wire 117, §2.15, T90: told `continuation-owned`, the hook takes the offer as a stranger's; one that is over by then leaves an
    // empty message on its screen
    const { socket, ids } = await parked(context, 'pay{"key":"k"}+pay{"eur":2}');
    const other = await context.room.connect();
    socket.decide(ids[0], true);
    await other.frame(isUpdate(ids[0], "approval-responded"));
    other.decide(ids[1], false);
    await started(other, 1);
    const answer = await socket.ask();
    await other.call("release", ["k"]);
    await other.frame(isContinued);
    await socket.settle();
    const offered = socket.frames.some((frame) => frame.type === RESUMING);
    assert.deepEqual([answer.type, offered], offered ? ["cf_agent_stream_pending", true] : ["cf_agent_stream_resume_none", false]);
  },
);

for (const order of ["question first", "page first"]) {
  desk.test(`a question and a page's call of one step are one batch, ${order}`, async (context) => {
    // T96, §10.4
    const { room, provider } = context;
    const { socket, text, ids } = await parked(context, 'pay{"eur":1}+ask+work');
    assert.equal(ids.length, 2);
    const other = await room.connect();
    const steps = [
      () => socket.decide(ids[0], true),
      () => other.result(ids[1], "yes"),
    ];
    if (order === "page first") steps.reverse();
    steps[0]();
    await Promise.all([socket, other].map((tab) => tab.frame(isUpdate(ids[order === "page first" ? 1 : 0], "approval-responded", "output-available"))));
    assert.deepEqual((await ran(socket)).map(([name]) => name), ["work"]);
    assert.equal(provider.of(text).length, 1);
    steps[1]();
    await Promise.all([socket, other].map((tab) => tab.frame(isContinued)));
    const reply = (await room.history()).at(-1);
    assert.deepEqual(states(reply), Array(3).fill("output-available"));
    assert.equal(textOf(reply), SAID('{"done":"pay"}', "yes", '{"done":"work"}'));
    assert.deepEqual((await ran(socket)).map(([name]) => name), ["work", "pay"]);
    await assertAtRest(socket, provider, text, 2);
  });
}

desk.test("a read-only connection decides, answers, asks, stops and clears nothing", async (context) => {
  // T95, T149, decision 42
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, 'pay{"eur":5}+look');
  const guest = await room.connect({ search: { readonly: 1 } });
  const before = await (await room.get()).text();
  guest.decide(ids[0], true, { ack: true });
  guest.result(ids[1], "forged", { ack: true });
  const shown = guest.frames.length;
  const question = guest.say(`echo guest-${room.name}`, { history: await room.history() });
  assert.equal((await guest.done(question.id)).outcome, "error");
  guest.clear();
  await guest.settle();
  await socket.settle();
  for (const { message } of guest.frames.slice(shown).filter((frame) => frame.type === "cf_agent_message_updated")) {
    assert.deepEqual(message, JSON.parse(before).at(-1), "it is shown what holds");
  }
  assert.equal(await (await room.get()).text(), before);
  assert.deepEqual(await ran(socket), []);
  assert.equal(provider.of(`echo guest-${room.name}`).length, 0);
  // A stop of a running answer.
  const gate = provider.gate(room.name);
  socket.decide(ids[0], true);
  socket.result(ids[1], 1);
  gate.open(1);
  const { id } = await guest.frame(isChunk);
  guest.cancel(id);
  await guest.settle();
  gate.open();
  assert.equal((await guest.frame(isContinued)).outcome, "completed");
  assert.equal((await ran(socket)).length, 1);
  await assertAtRest(socket, provider, text, 2);
  assert.equal(open((await room.history()).at(-1)).length, 0);
});
