// Calls that wait for a page or a person: over the death of the process, until a deadline, until they are overtaken
// (wire 119, 126, 149; tools §9.6, §10.5, §11).

import assert from "node:assert/strict";
import { setTimeout as until } from "node:timers/promises";
import { hasChunk, isContinued, isResponse, isTranscript, isUpdate, textOf, textOfChunks, toolParts, user } from "./client.mjs";
import { TOOLS, assertAtRest, open, parked, resultsOf, serveDesk, states } from "./desk.mjs";

const desk = serveDesk();
const RESUMING = "cf_agent_stream_resuming";
const ran = async (socket) => (await socket.call("ran")).result;

/** The power cut, and a socket on the conversation that is there afterwards. */
async function died({ room, worker }) {
  await worker.kill();
  await Promise.all(room.sockets.map((socket) => socket.closed));
  await worker.restart();
  return room.connect();
}

desk.test("a death between call and result: any socket answers, and the model gets the tools it had", async (context) => {
  // wire 126, T62
  const { room, provider } = context;
  const { text, ids, reply } = await parked(context, "look/point");
  const back = await died(context);
  assert.deepEqual(back.frames[0].messages.at(-1), reply);
  assert.equal((await back.ask()).reason, "idle");
  back.result(ids[0], 1);
  back.probe();
  await back.frame(isContinued);
  const call = await provider.call(text, 2);
  const names = ({ request }) => request.tools.map((tool) => tool.function.name);
  assert.deepEqual(names(call), names(await provider.call(text)));
  assert.ok(names(call).includes("look") && names(call).includes("point"));
  const history = await room.history();
  assert.deepEqual(history.map((message) => message.id), [history[0].id, reply.id]);
  assert.deepEqual(states(history[1]), ["output-available", "input-available"]);
});

desk.test("a death with one of two results in: the wish to go on is kept", async (context) => {
  // wire 126, T76, tools D3
  const { provider } = context;
  const { socket, text, ids } = await parked(context, "look+point");
  socket.result(ids[0], 1);
  await socket.frame(isUpdate(ids[0], "output-available"));
  const back = await died(context);
  assert.equal(provider.of(text).length, 1);
  back.result(ids[1], 2, { autoContinue: false });
  await back.frame(isContinued);
  assert.deepEqual(resultsOf(await provider.call(text, 2)), { [ids[0]]: "1", [ids[1]]: "2" });
  await assertAtRest(back, provider, text, 2);
});

desk.test("a death in a continuation: it goes on in the message that it extends", async (context) => {
  // wire 119, 155, recovery D6, I5
  const { room, provider } = context;
  const { socket, text, ids, gate, reply } = await parked(context, "look");
  gate().open(1);
  socket.result(ids[0], 1);
  const { id } = await socket.frame(RESUMING);
  socket.ack(id);
  await socket.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === "It says: "));
  const back = await died(context);
  // One permit for the call that died with its reader, one for the first word of the next.
  gate().open(2);
  const { id: next } = await back.frame(RESUMING);
  assert.notEqual(next, id);
  back.ack(next);
  await back.frame(hasChunk(next, "text-delta", (chunk) => chunk.delta === "It says: "));
  gate().open();
  assert.equal((await back.done(next)).outcome, "completed");
  assert.ok(back.responses(next).every((frame) => frame.continuation === true));
  assert.equal(textOfChunks(back.chunks(next)), "It says: 1; that is all.");
  const history = await room.history();
  assert.deepEqual(history.map((message) => message.id), [history[0].id, reply.id]);
  assert.deepEqual(states(history[1]), ["output-available"]);
  // What was shown before the death was not on disk yet, and the model says it once more.
  assert.equal(textOf(history[1]), "Let me see. It says: 1; that is all.");
  await assertAtRest(back, provider, text, 3);
});

desk.test("a question outlives the process, and the call runs once", async (context) => {
  // T92, §10.5
  const { room, provider } = context;
  const { text, ids, reply } = await parked(context, 'pay{"eur":5}');
  const back = await died(context);
  assert.deepEqual(back.frames[0].messages.at(-1), reply);
  assert.ok(!back.frames.some((frame) => isResponse(frame) || frame.type === "cf_agent_chat_recovering"), "nothing has failed");
  assert.deepEqual(await ran(back), []);
  back.decide(ids[0], true);
  assert.equal((await back.frame(isContinued)).outcome, "completed");
  assert.deepEqual(await ran(back), [["pay", { eur: 5 }]]);
  assert.deepEqual(states((await room.history()).at(-1)), ["output-available"]);
  await assertAtRest(back, provider, text, 2);
});

desk.test("a death while an allowed call runs: it does not run again", async (context) => {
  // T93, recovery I13
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, 'pay{"eur":5,"key":"bank"}');
  socket.decide(ids[0], true);
  while ((await ran(socket)).length === 0) await socket.settle();
  const back = await died(context);
  const { id } = await back.frame(RESUMING);
  back.ack(id);
  assert.equal((await back.done(id)).outcome, "completed");
  assert.deepEqual(await ran(back), [], "not in this incarnation");
  const history = await room.history();
  const [part] = toolParts(history.at(-1));
  assert.equal(part.state, "output-error");
  assert.equal(part.errorText, "The tool call was interrupted before a result was recorded.");
  assert.match(resultsOf(await provider.call(text, 2))[ids[0]], /interrupted/);
  assert.match(textOf(history.at(-1)), /^Let me see\. It says: .*interrupted.*that is all\.$/);
  // A second yes changes nothing, and the conversation goes on with the error in it.
  back.decide(ids[0], true, { ack: true });
  assert.notEqual((await back.verdict(ids[0])).status, "accepted");
  const next = back.say(`echo on-${room.name}`, { history });
  assert.equal((await back.done(next.id)).outcome, "completed");
  assert.match(resultsOf(await provider.call(`echo on-${room.name}`))[ids[0]], /interrupted/);
  assert.deepEqual(await ran(back), []);
});

for (const kind of ["an allowed call", "a plain call"]) {
  const body = async (context) => {
    // T93, O5: the log says nothing of what became of the call, so its replay alone leaves the tab with what was true before
    const { room, provider } = context;
    const input = '{"eur":5,"key":"bank"}';
    const tool = kind === "an allowed call" ? "pay" : "work";
    if (tool === "pay") {
      const { socket, ids } = await parked(context, `pay${input}`);
      socket.decide(ids[0], true);
    } else {
      (await room.connect()).say(`want work${input} ${room.name}`);
    }
    while ((await ran(room.sockets[0])).length === 0);
    const back = await died(context);
    const { id } = await back.frame(RESUMING);
    back.ack(id);
    assert.equal((await back.done(id)).outcome, "completed");
    await back.settle();
    const stored = (await room.history()).at(-1);
    assert.deepEqual(states(stored), ["output-error"]);
    assert.match(textOf(stored), /that is all\.$/);
    assert.equal(provider.of(`want ${tool}${input} ${room.name}`).length, 2);
    const shown = back.frames.flatMap((frame) => (isTranscript(frame) ? [frame.messages.at(-1)] : frame.message ? [frame.message] : []));
    assert.deepEqual(shown.at(-1), stored);
  };
  desk.test(`who comes back after a death in ${kind} is shown what became of it`, body);
}

desk.test("a page that does not answer in its time is given up, for every tab, once", async (context) => {
  // T81, T84
  const { room, provider } = context;
  const clientTools = [{ name: "look", timeoutMs: 2_000 }];
  const { socket, text, ids } = await parked(context, "look", { clientTools });
  const asked = performance.now();
  const other = await room.connect();
  const updates = await Promise.all([socket, other].map((tab) => tab.frame(isUpdate(ids[0], "output-error"))));
  // The clock of the object started a little before the end reached us.
  assert.ok(performance.now() - asked >= 1_900);
  for (const { message } of updates) assert.equal(toolParts(message)[0].errorText, "client tool timed out");
  await Promise.all([socket, other].map((tab) => tab.frame(isContinued)));
  assert.match(resultsOf(await provider.call(text, 2))[ids[0]], /client tool timed out/);
  const stored = await room.history();
  socket.result(ids[0], "too late", { ack: true });
  assert.equal((await socket.verdict(ids[0])).status, "late");
  assert.deepEqual(await room.history(), stored);
  await assertAtRest(socket, provider, text, 2);
});

desk.test("a deadline that falls due while the process is dead is honoured when it is back, with nobody there", async (context) => {
  // T82, decision 10: the alarm
  const { room, provider, worker } = context;
  const { text, ids } = await parked(context, "blink");
  const due = performance.now() + 1_000;
  await worker.kill();
  await until(Math.max(0, due - performance.now()));
  await worker.restart();
  const call = await provider.call(text, 2);
  assert.match(resultsOf(call)[ids[0]], /client tool timed out/);
  const back = await room.connect();
  await back.frame((frame) => isTranscript(frame) && textOf(frame.messages.at(-1)).includes("that is all."));
  assert.deepEqual(states((await room.history()).at(-1)), ["output-error"]);
  await assertAtRest(back, provider, text, 2);
});

desk.test("a new message overtakes an open call; its late result changes and starts nothing", async (context) => {
  // T79, D12, decision 47
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, 'look+pay{"eur":5}');
  const other = await room.connect();
  const next = other.say(`echo instead-${room.name}`, { history: await room.history() });
  assert.equal((await other.done(next.id)).outcome, "completed");
  const history = await room.history();
  assert.deepEqual(states(history[1]), ["output-error", "output-error"]);
  assert.equal(textOf(history.at(-1)), `instead-${room.name}`);
  const { request } = await provider.call(`echo instead-${room.name}`);
  assert.deepEqual(request.messages.slice(-4).map((message) => message.role), ["assistant", "tool", "tool", "user"]);
  socket.result(ids[0], "late", { ack: true });
  assert.equal((await socket.verdict(ids[0])).status, "late");
  socket.decide(ids[1], true, { ack: true });
  const isSecond = (frame) => frame.type === "cf_agent_tool_result_ack" && frame.toolCallId === ids[1];
  assert.equal((await socket.frame(isSecond)).status, "late");
  assert.deepEqual(await room.history(), history);
  assert.deepEqual(await ran(socket), []);
  await assertAtRest(socket, provider, text, 1);
});

desk.test("a stop in mid-stream settles open calls and goes on with nothing", async (context) => {
  // T146, wire 142, tools D13
  const { room, provider } = context;
  const [sender, other] = [await room.connect(), await room.connect()];
  const text = `want look+work{"key":"k"} ${room.name}`;
  const { id } = sender.say(text, { clientTools: TOOLS });
  const { body } = await other.frame(hasChunk(id, "tool-input-available", (chunk) => chunk.toolName === "look"));
  const callId = JSON.parse(body).toolCallId;
  while ((await ran(other)).length === 0) await other.settle();
  const since = other.mark();
  other.cancel(id);
  // The tool does not listen to the stop; without this the object waits for its grace period.
  await other.call("release", ["k"]);
  const ends = await Promise.all([sender, other].map((tab) => tab.done(id)));
  assert.deepEqual(ends.map((end) => end.outcome), ["aborted", "aborted"]);
  const reply = (await room.history()).at(-1);
  assert.deepEqual(open(reply), []);
  assert.equal(states(reply)[0], "output-error");
  assert.ok(!other.responses(id, since).some((frame) => frame.body.includes("text-delta")), "nothing of the model follows");
  sender.result(callId, 1, { ack: true });
  assert.notEqual((await sender.verdict(callId)).status, "accepted");
  assert.deepEqual((await room.history()).at(-1), reply);
  await assertAtRest(sender, provider, text, 1);
});

desk.test("a clear lets go of a held continuation and of who waits for it", async (context) => {
  // wire 149, T04
  const { room, provider } = context;
  const { socket, text, ids } = await parked(context, "look+point");
  socket.result(ids[0], 1);
  assert.equal((await socket.ask()).type, "cf_agent_stream_pending");
  const other = await room.connect();
  const since = socket.mark();
  other.clear();
  assert.deepEqual(await socket.frame("cf_agent_stream_resume_none", { since }), { type: "cf_agent_stream_resume_none" });
  await socket.frame("cf_agent_chat_clear", { since });
  socket.result(ids[1], 2, { ack: true });
  assert.equal((await socket.verdict(ids[1])).status, "unknown");
  assert.deepEqual(await room.history(), []);
  await assertAtRest(socket, provider, text, 1);
});

desk.test("three tabs, one asks: all see the stream, the others get the question", async ({ room, provider }) => {
  // T144, O4
  const tabs = [await room.connect(), await room.connect(), await room.connect()];
  const { id, message } = tabs[0].say(`want work ${room.name}`);
  await Promise.all(tabs.map((tab) => tab.done(id)));
  const first = (tab) => tab.frames.findIndex((frame) => isResponse(frame) && frame.id === id);
  const questions = tabs.map((tab) => tab.frames.slice(0, first(tab)).filter((frame) => isTranscript(frame) && !frame.connect));
  assert.deepEqual(questions.map((frames) => frames.length), [0, 1, 1]);
  assert.deepEqual(questions[1][0].messages, [message]);
  for (const tab of tabs) assert.deepEqual(tab.responses(id), tabs[0].responses(id));
  assert.deepEqual(provider.violations, []);
});

desk.test("a tab that comes in mid-continuation gets all of it, without gap or copy", async (context) => {
  // T145, wire 83, 119
  const { socket, ids, gate } = await parked(context, "look");
  const { room } = context;
  gate().open(1);
  socket.result(ids[0], 1);
  const { id } = await socket.frame(RESUMING);
  await socket.drop();
  const late = await room.connect();
  // Before it come the ends of requests that it may have missed.
  const first = late.frames.find((frame) => frame.done !== true);
  assert.deepEqual([first.type, first.id], [RESUMING, id]);
  gate().open(1);
  const since = late.mark();
  late.ack(id);
  await late.frame((frame) => frame.replayComplete === true, { since });
  gate().open();
  await late.frame(isContinued, { since });
  assert.equal(textOfChunks(late.chunks(id, { since })), "It says: 1; that is all.");
  const last = (await room.history()).at(-1);
  assert.equal(textOf(last), `Let me see. ${textOfChunks(late.chunks(id, { since }))}`);
  const next = late.say("text", { history: await room.history(), message: user("text") });
  assert.equal((await late.done(next.id)).outcome, "completed");
});
