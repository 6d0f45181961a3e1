// The loop of model and server tools as a client sees it (wire 103, 105; tools §6).

import assert from "node:assert/strict";
import { textOf } from "./client.mjs";
import { serve } from "./setup.mjs";

const served = serve();

/** Sends `text`, waits for the end; returns the chunks, the stored reply and the model's requests. */
async function turn({ room, provider }, script) {
  const socket = await room.connect();
  const text = `${script} ${room.name}`;
  const { id } = socket.say(text);
  const end = await socket.done(id);
  const reply = (await room.history()).at(-1);
  return { socket, id, end, chunks: socket.chunks(id), reply, calls: provider.of(text) };
}

const toolParts = (message) => message.parts.filter((part) => part.type.startsWith("tool-") || part.type === "dynamic-tool");
const resultsOf = (call) => call.request.messages.filter((message) => message.role === "tool");

served.test("a server tool runs between two steps of one message", async (context) => {
  // wire 103, §3.6, §4.5
  const { end, chunks, reply, calls } = await turn(context, "stool");
  assert.equal(end.outcome, "completed");
  const order = chunks.map((chunk) => chunk.type).filter((type, at, all) => type !== all[at - 1]);
  assert.deepEqual(order, [
    "start", "start-step", "text-start", "text-delta", "text-end",
    "tool-input-start", "tool-input-delta", "tool-input-available", "tool-output-available", "finish-step",
    "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish",
  ]);
  const [tool] = toolParts(reply);
  assert.equal(tool.type, "tool-calculate");
  assert.equal(tool.state, "output-available");
  assert.deepEqual(tool.input, { expression: "6 * 7" });
  assert.match(JSON.stringify(tool.output), /\b42\b/);
  assert.deepEqual(chunks.find((chunk) => chunk.type === "tool-output-available").output, tool.output);
  assert.equal(reply.id, chunks[0].messageId);
  assert.match(textOf(reply), /^Let me see\. The tool said .*42/);

  // The second request carries call and result; the tools are declared in both.
  assert.equal(calls.length, 2);
  for (const call of calls) {
    assert.deepEqual(call.request.tools.map((tool) => tool.function.name).sort(), ["calculate", "current_time", "save_note"]);
  }
  const [assistant, result] = calls[1].request.messages.slice(-2);
  assert.equal(assistant.content, "Let me see. ");
  assert.equal(result.tool_call_id, assistant.tool_calls[0].id);
  assert.match(result.content, /\b42\b/);
});

served.test("the tool part is the same in the chunks, the transcript and the next request", async (context) => {
  // wire 170, field T-06, providers §11
  const { socket, reply } = await turn(context, "stool");
  const { room, provider } = context;
  const next = socket.say(`echo after-${room.name}`, { history: await room.history() });
  await socket.done(next.id);
  const { request } = await provider.call(`echo after-${room.name}`);
  const assistants = request.messages.filter((message) => message.tool_calls !== undefined);
  assert.equal(assistants.length, 1);
  assert.equal(JSON.parse(assistants[0].tool_calls[0].function.arguments).expression, "6 * 7");
  const result = request.messages.find((message) => message.role === "tool");
  assert.match(result.content, /\b42\b/);
  assert.deepEqual((await room.history())[1], reply);
});

served.test("parallel calls are all answered before the model goes on", async (context) => {
  // field T-01, providers §5
  const { reply, calls } = await turn(context, "stool2");
  assert.deepEqual(toolParts(reply).map((part) => [part.type, part.state]), [
    ["tool-calculate", "output-available"],
    ["tool-current_time", "output-available"],
  ]);
  assert.deepEqual(toolParts(reply)[1].input, {});
  assert.equal(calls.length, 2);
  assert.equal(resultsOf(calls[1]).length, 2);
  assert.equal(textOf(reply), "2 results");
});

served.test("a tool that fails tells the model and the turn goes on", async (context) => {
  // wire 105
  const { end, chunks, reply, calls } = await turn(context, "badtool");
  assert.equal(end.outcome, "completed");
  const failure = chunks.find((chunk) => chunk.type === "tool-output-error");
  assert.ok(failure.errorText.length > 0);
  const [tool] = toolParts(reply);
  assert.equal(tool.state, "output-error");
  assert.equal(tool.errorText, failure.errorText);
  assert.equal(resultsOf(calls[1]).length, 1);
  assert.match(resultsOf(calls[1])[0].content, /error/i);
  assert.equal(textOf(reply), "That did not work.");
});

served.test("a tool nobody declared is reported to the model, not to the user", async (context) => {
  // issue A 4: unknown tool told to the model
  const { end, reply, calls } = await turn(context, "notool");
  assert.equal(end.outcome, "completed");
  assert.equal(toolParts(reply)[0].state, "output-error");
  assert.match(resultsOf(calls[1])[0].content, /no_such_tool/);
});

served.test("input that misses the schema is reported to the model and the tool does not run", async (context) => {
  // issue A 4: bad input told to the model
  const { end, reply, calls } = await turn(context, "badinput");
  assert.equal(end.outcome, "completed");
  assert.equal(toolParts(reply)[0].state, "output-error");
  assert.match(resultsOf(calls[1])[0].content, /expression|string/i);
});

served.test("a model that never stops calling is stopped after the last allowed step", async (context) => {
  // issue A 4: max_steps
  const { end, reply, calls } = await turn(context, "loop");
  assert.equal(calls.length, 10);
  assert.equal(end.outcome, "completed");
  assert.equal(toolParts(reply).length, 10);
  assert.ok(toolParts(reply).every((part) => part.state === "output-available"));
});

served.test("calls whose names repeat, whose index and finish reason lie, are run as meant", async (context) => {
  // field, PV-12, PV-15
  const { reply } = await turn(context, "quirks");
  assert.deepEqual(toolParts(reply).map((part) => part.input.expression), ["3 * 3", "4 * 4"]);
  assert.match(textOf(reply), /\b9\b.* and .*\b16\b/);
});

served.test("a call without an id gets one", async (context) => {
  // field Q-11
  const { reply, calls } = await turn(context, "noid");
  assert.match(textOf(reply), /\b25\b/);
  assert.ok(toolParts(reply)[0].toolCallId.length > 0);
  assert.equal(resultsOf(calls[1])[0].tool_call_id, calls[1].request.messages.at(-2).tool_calls[0].id);
});

served.test("call ids a provider uses again stay unique in the conversation", async ({ room, provider }) => {
  // PV-16, X34
  const socket = await room.connect();
  for (const round of [1, 2]) {
    const { id } = socket.say(`quirks ${round}`, { history: await room.history() });
    assert.equal((await socket.done(id)).outcome, "completed");
  }
  const ids = (await room.history()).flatMap(toolParts).map((part) => part.toolCallId);
  assert.equal(ids.length, 4);
  assert.equal(new Set(ids).size, 4);
  assert.deepEqual(provider.violations, []);
});

served.test("a call cut by the token limit is not run, and the conversation goes on", async (context) => {
  // field Q-04, PV-14, PV-15, decision 40
  const { reply, end, socket, calls } = await turn(context, "cutcall");
  assert.ok(["completed", "error"].includes(end.outcome), end.outcome);
  assert.ok(calls.length <= 10, "retries are bounded");
  for (const part of toolParts(reply)) {
    assert.equal(part.state, "output-error");
    assert.deepEqual(part.input ?? {}, {});
  }
  const next = socket.say("text", { history: await context.room.history() });
  assert.equal((await socket.done(next.id)).outcome, "completed");
});

served.test("a cancel while the input streams leaves no call that looks finished", async ({ room, provider }) => {
  // field T-09, T-10
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`inputs ${room.name}`);
  gate.open(2);
  await socket.frame((frame) => frame.id === id && frame.body?.includes("tool-input-delta"));
  socket.cancel(id);
  assert.equal((await socket.done(id)).outcome, "aborted");
  const parts = (await room.history()).flatMap(toolParts);
  assert.ok(parts.every((part) => part.state === "output-error"), JSON.stringify(parts));
  const next = socket.say("text", { history: await room.history() });
  assert.equal((await socket.done(next.id)).outcome, "completed");
});
