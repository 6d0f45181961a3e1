// Tools that run in the page, on raw sockets: offered, called, answered by any tab, and the same message goes on
// (wire 114–125, 127, 134; tools §8, §9). The real hook: toolhooks.test.mjs; deaths and deadlines: toolwaits.test.mjs.

import assert from "node:assert/strict";
import { isAnswer, isChunk, isContinued, isResponse, isUpdate, textOf, textOfChunks, toolParts } from "./client.mjs";
import { TOOLS, assertAtRest, open, parked, resultsOf, serveDesk, states } from "./desk.mjs";

const desk = serveDesk();
const RESUMING = "cf_agent_stream_resuming";
const SAID = (...outputs) => `Let me see. It says: ${outputs.map((output) => `${output}; `).join("")}that is all.`;

/** The owner takes the continuation up; resolves with its id. */
async function takeUp(socket, since) {
  const { id } = await socket.frame(RESUMING, { since });
  socket.ack(id);
  return id;
}

desk.test("a call of a page's tool ends the stream and parks the turn", async (context) => {
  // wire 114, T56
  const { socket, text, id, reply, ids } = await parked(context, 'look{"at":"map"}');
  assert.deepEqual(socket.chunks(id).slice(-3).map((chunk) => chunk.type), ["tool-input-available", "finish-step", "finish"]);
  const [part] = toolParts(reply);
  assert.deepEqual([part.type, part.state, part.input], ["tool-look", "input-available", { at: "map" }]);
  const { request } = await context.provider.call(text);
  const look = request.tools.find((tool) => tool.function.name === "look").function;
  assert.deepEqual([look.description, look.parameters], [TOOLS[0].description, TOOLS[0].parameters]);
  // Nobody answered: nothing goes on, and a late tab sees the open call.
  await assertAtRest(socket, context.provider, text, 1);
  const late = await context.room.connect();
  assert.deepEqual(open(late.frames[0].messages.at(-1)), ids);
});

desk.test("result and probe in one breath: promised, offered, replayed, and one message at the end", async (context) => {
  // wire 115, 164, O7, T56, T73, §4.6
  const { room, provider } = context;
  const { socket, text, ids, reply, gate } = await parked(context, "look");
  const other = await room.connect();
  const [since, seen] = [socket.mark(), other.mark()];
  gate().open(1);
  socket.result(ids[0], { city: "Oslo" }, { clientTools: TOOLS });
  const probeId = socket.probe();
  const id = await takeUp(socket, since);
  await socket.frame((frame) => frame.replayComplete === true, { since });
  gate().open();
  const [end, same] = await Promise.all([socket.frame(isContinued, { since }), other.frame(isContinued, { since: seen })]);

  const frames = socket.since(since);
  assert.equal(isUpdate(ids[0], "output-available")(frames[0]), true);
  assert.deepEqual(frames[1], { type: "cf_agent_stream_pending", id, probeId });
  assert.deepEqual(frames[2], { type: RESUMING, id });
  assert.ok(!frames.some((frame) => frame.type === "cf_agent_stream_resume_none"), "T73");
  const all = socket.responses(id, since);
  assert.ok(all.every((frame) => frame.continuation === true), "every frame is a continuation's, the mark of the replay too");
  assert.ok(all.some((frame) => frame.replayComplete));
  assert.deepEqual(JSON.parse(all[0].body), { type: "start" });
  assert.deepEqual([end.outcome, end.messageIds], ["completed", undefined]);

  // Who watches: the update, then the stream live, the same end.
  assert.deepEqual(same, end);
  assert.deepEqual(other.since(seen)[0], frames[0]);
  assert.deepEqual(other.chunks(id, { replay: false }), socket.chunks(id));

  const history = await room.history();
  assert.deepEqual(history.map((message) => message.id), [history[0].id, reply.id]);
  assert.deepEqual(toolParts(history[1]).map((part) => part.output), [{ city: "Oslo" }]);
  assert.equal(textOf(history[1]), SAID('{"city":"Oslo"}'));
  const call = await provider.call(text, 2);
  assert.deepEqual(call.request.messages.slice(-3).map((message) => message.role), ["user", "assistant", "tool"]);
  assert.deepEqual(resultsOf(call), { [ids[0]]: '{"city":"Oslo"}' });
  assert.ok(call.request.tools.some((tool) => tool.function.name === "look"));
  await assertAtRest(socket, provider, text, 2);
});

for (const leaves of [false, true]) {
  desk.test(`a result without a probe goes on by itself, ${leaves ? "also if its sender left" : "and its sender is offered it"}`, async (context) => {
    // wire 116, T75
    const { socket, text, ids } = await parked(context, "look");
    const other = await context.room.connect();
    const since = socket.mark();
    socket.result(ids[0], 1);
    if (leaves) {
      await other.frame(isUpdate(ids[0], "output-available"));
      await socket.drop();
    } else {
      const id = await takeUp(socket, since);
      assert.equal(socket.frames.find((frame) => frame.type === RESUMING).probeId, undefined);
      assert.equal((await socket.frame(isContinued, { since })).id, id);
    }
    assert.equal((await other.frame(isContinued)).outcome, "completed");
    assert.equal(textOf((await context.room.history()).at(-1)), SAID("1"));
    await assertAtRest(other, context.provider, text, 2);
  });
}

desk.test("another tab's probe is turned away while the owner watches, and it sees everything live", async (context) => {
  // wire 117, T74
  const { socket, ids, gate } = await parked(context, "look");
  const other = await context.room.connect();
  const since = socket.mark();
  gate().open(1);
  socket.result(ids[0], 1);
  socket.probe();
  const id = await takeUp(socket, since);
  await other.frame(() => textOfChunks(other.chunks(id)) === "It says: ");
  assert.deepEqual(await other.ask("p-2"), { type: "cf_agent_stream_resume_none", reason: "continuation-owned", probeId: "p-2" });
  // The owner itself may probe again, a page that reloads does.
  assert.equal((await socket.ask()).id, id);
  socket.ack(id);
  gate().open();
  await Promise.all([socket, other].map((each) => each.frame(isContinued)));
  assert.equal(textOfChunks(other.chunks(id)), "It says: 1; that is all.");
});

desk.test("a continuation whose owner is gone is anybody's, and stays one in its replay", async (context) => {
  // wire 118, 119
  const { socket, ids, gate, reply } = await parked(context, "look");
  const [other, since] = [await context.room.connect(), socket.mark()];
  gate().open(1);
  socket.result(ids[0], 1);
  socket.probe();
  const id = await takeUp(socket, since);
  await other.frame(() => textOfChunks(other.chunks(id)) === "It says: ");
  await socket.drop();
  // Until the object hears of the loss, the owner counts as there.
  let answer = await other.ask();
  while (answer.reason === "continuation-owned") answer = await other.ask();
  assert.deepEqual([answer.type, answer.id], [RESUMING, id]);
  const from = other.mark();
  other.ack(id);
  await other.frame((frame) => frame.replayComplete === true && frame.continuation === true, { since: from });
  const burst = other.responses(id, from);
  assert.ok(burst.every((frame) => frame.replay === true && frame.continuation === true));
  assert.deepEqual(JSON.parse(burst[0].body), { type: "start" });
  gate().open();
  assert.equal((await other.frame(isContinued)).outcome, "completed");
  assert.equal(textOfChunks(other.chunks(id, { since: from })), "It says: 1; that is all.");
  assert.equal((await context.room.history()).at(-1).id, reply.id);
});

desk.test("one of two results promises; the other starts the one continuation", async (context) => {
  // wire 120
  const { socket, text, ids } = await parked(context, "look+point");
  socket.result(ids[0], 1);
  const since = socket.mark();
  const promise = await socket.ask();
  assert.equal(promise.type, "cf_agent_stream_pending");
  assert.equal(context.provider.of(text).length, 1);
  assert.deepEqual(states((await context.room.history()).at(-1)), ["output-available", "input-available"]);
  socket.result(ids[1], 2);
  assert.equal(await takeUp(socket, since), promise.id);
  await socket.frame(isContinued);
  assert.equal(textOf((await context.room.history()).at(-1)), SAID("1", "2"));
  await assertAtRest(socket, context.provider, text, 2);
});

for (const at of ["one after the other, the last first", "in one tick from three tabs"]) {
  desk.test(`a batch answered ${at} goes on once`, async (context) => {
    // wire 121, T63, T64, field T-01, T-02
    const { room, provider } = context;
    const { socket, text, ids } = await parked(context, "look+point+look");
    const tabs = [socket, await room.connect(), await room.connect()];
    const order = at.startsWith("one") ? [2, 1, 0] : [0, 1, 2];
    for (const [tab, which] of order.entries()) {
      tabs[tab].result(ids[which], which);
      if (at.startsWith("one")) await socket.frame(isUpdate(ids[which], "output-available"));
    }
    if (!at.startsWith("one")) for (const tab of tabs) tab.probe();
    const ends = await Promise.all(tabs.map((tab) => tab.frame(isContinued)));
    assert.deepEqual(new Set(ends.map((end) => end.id)).size, 1);
    const reply = (await room.history()).at(-1);
    assert.deepEqual(toolParts(reply).map((part) => part.output), [0, 1, 2]);
    assert.equal(textOf(reply), SAID("0", "1", "2"));
    await assertAtRest(socket, provider, text, 2);
  });
}

desk.test("an error that is not to go on is stored and starts nothing", async (context) => {
  // wire 122, T66
  const { socket, text, ids } = await parked(context, "look");
  socket.toolError(ids[0], "no camera");
  const { message } = await socket.frame(isUpdate(ids[0], "output-error"));
  assert.equal(toolParts(message)[0].errorText, "no camera");
  await assertAtRest(socket, context.provider, text, 1);
  // The next question goes with the error in the conversation.
  const next = socket.say(`echo on-${context.room.name}`, { history: await context.room.history() });
  await socket.done(next.id);
  const call = await context.provider.call(`echo on-${context.room.name}`);
  assert.match(resultsOf(call)[ids[0]], /no camera/);
});

desk.test("an error that completes a batch whose other half wants to go on lets it", async (context) => {
  // wire 123, T65
  const { socket, text, ids } = await parked(context, "look+point");
  socket.result(ids[0], 1);
  socket.toolError(ids[1], "no finger");
  await socket.frame(isContinued);
  assert.deepEqual(states((await context.room.history()).at(-1)), ["output-available", "output-error"]);
  assert.match(resultsOf(await context.provider.call(text, 2))[ids[1]], /no finger/);
  await assertAtRest(socket, context.provider, text, 2);
});

desk.test("the first answer counts; what comes later from any tab changes nothing", async (context) => {
  // wire 124, T68, T70, §4.16
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, "look");
  const other = await room.connect();
  socket.result(ids[0], { a: 1, b: 2 }, { ack: true });
  assert.equal((await socket.verdict(ids[0])).status, "accepted");
  await other.frame(isContinued);
  const stored = await (await room.get()).text();
  for (const [output, status] of [[{ b: 2, a: 1 }, "duplicate"], ["other", "conflict"]]) {
    const since = other.mark();
    other.result(ids[0], output, { ack: true });
    assert.equal((await other.verdict(ids[0], { since })).status, status);
    const update = await other.frame(isUpdate(ids[0], "output-available"), { since });
    assert.deepEqual(update.message, JSON.parse(stored).at(-1), "its sender is shown what holds");
    await assertAtRest(other, provider, text, 2);
  }
  // Both tabs answer at once: one wins.
  assert.equal(await (await room.get()).text(), stored);
});

desk.test("two tabs that run the same call at once make one continuation", async (context) => {
  // T68, tools §8.4
  const { socket, text, ids } = await parked(context, "look");
  const other = await context.room.connect();
  for (const tab of [socket, other]) {
    tab.result(ids[0], 7, { ack: true });
    tab.probe();
  }
  const verdicts = await Promise.all([socket, other].map((tab) => tab.verdict(ids[0])));
  assert.deepEqual(verdicts.map((frame) => frame.status).sort(), ["accepted", "duplicate"]);
  await Promise.all([socket, other].map((tab) => tab.frame(isContinued)));
  assert.equal(textOf((await context.room.history()).at(-1)), SAID("7"));
  await assertAtRest(socket, context.provider, text, 2);
});

desk.test("a result of an unknown call starts nothing while others are open", async (context) => {
  // wire 124, T69, tools D2
  const { socket, text, ids } = await parked(context, "look+point");
  const before = await context.room.history();
  socket.result("nobodys", 1, { ack: true });
  assert.equal((await socket.verdict("nobodys")).status, "unknown");
  await assertAtRest(socket, context.provider, text, 1);
  assert.deepEqual(await context.room.history(), before);
  assert.deepEqual(open(before.at(-1)), ids);
});

desk.test("a result in mid-stream is part of the stream; the message goes on after it", async (context) => {
  // wire 125, T67, X11
  const { room, provider } = context;
  const [sender, other] = [await room.connect(), await room.connect()];
  const text = `want look+work{"key":"k"} ${room.name}`;
  const { id } = sender.say(text, { clientTools: TOOLS });
  const isInput = (frame) => isChunk(frame) && JSON.parse(frame.body).toolName === "look" && JSON.parse(frame.body).type === "tool-input-available";
  const callId = JSON.parse((await other.frame(isInput)).body).toolCallId;
  other.result(callId, 5);
  for (const tab of [sender, other]) {
    await tab.frame((frame) => isChunk(frame) && frame.body.includes("tool-output-available") && frame.body.includes(callId));
  }
  assert.equal(provider.of(text).length, 1);
  while (!(await other.call("release", ["k"])).result) await other.settle();
  const [end] = await Promise.all([sender.done(id), other.done(id)]);
  assert.equal(end.outcome, "completed");
  await Promise.all([sender, other].map((tab) => tab.frame(isContinued)));
  const order = other.frames.filter(isResponse).map((frame) => frame.id);
  assert.equal(order.filter((each, at) => each !== order[at - 1]).length, 2, "the continuation follows the stream");
  const reply = (await room.history()).at(-1);
  assert.deepEqual(states(reply), ["output-available", "output-available"]);
  assert.equal(textOf(reply), SAID("5", '{"done":"work"}'));
  await assertAtRest(other, provider, text, 2);
});

desk.test("a request that carries the result takes it and runs one turn", async (context) => {
  // wire 127, X4
  const { room, provider } = context;
  const { socket, text, ids, message, reply } = await parked(context, "look");
  const filled = structuredClone(reply);
  Object.assign(toolParts(filled)[0], { state: "output-available", output: "by hand" });
  const id = socket.post([message, filled], { clientTools: TOOLS });
  assert.equal((await socket.done(id)).outcome, "completed");
  const history = await room.history();
  assert.deepEqual(history.map((each) => each.id), [message.id, reply.id]);
  assert.equal(textOf(history[1]), SAID("by hand"));
  assert.equal(resultsOf(await provider.call(text, 2))[ids[0]], "by hand");
  await assertAtRest(socket, provider, text, 2);
});

desk.test("a stale copy of an answered call does not undo its result", async (context) => {
  // wire 134, field T-06
  const { room, provider } = context;
  const { socket, ids, message, reply } = await parked(context, "look");
  socket.result(ids[0], "seen");
  await socket.frame(isContinued);
  const stored = (await room.history()).at(-1);
  const next = socket.say(`echo on-${room.name}`, { history: [message, reply] });
  await socket.done(next.id);
  assert.deepEqual((await room.history())[1], stored);
  assert.equal(resultsOf(await provider.call(`echo on-${room.name}`))[ids[0]], "seen");
});

desk.test("a model that calls page tools round after round stays in one message", async (context) => {
  // wire 114, 115, field T-12
  const { room, provider } = context;
  const { socket, text, ids, reply } = await parked(context, "look/work/point");
  socket.result(ids[0], 1);
  socket.probe();
  socket.ack((await socket.frame(RESUMING)).id);
  await socket.frame(isContinued);
  const second = open((await room.history()).at(-1));
  assert.equal(second.length, 1);
  const since = socket.mark();
  socket.result(second[0], 3);
  socket.probe();
  await takeUp(socket, since);
  await socket.frame(isContinued, { since });
  const history = await room.history();
  assert.deepEqual(history.map((each) => each.id), [history[0].id, reply.id]);
  assert.deepEqual(toolParts(history[1]).map((part) => [part.type, part.state]), [
    ["tool-look", "output-available"],
    ["tool-work", "output-available"],
    ["tool-point", "output-available"],
  ]);
  assert.equal(socket.frames.filter((frame) => isAnswer(frame) && frame.type === RESUMING).length, 2);
  await assertAtRest(socket, provider, text, 4);
});
