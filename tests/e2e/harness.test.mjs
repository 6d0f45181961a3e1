// The instruments themselves: each invariant refuses a log that breaks it, the strict provider refuses what it should, and
// both let the good through.

import assert from "node:assert/strict";
import { test } from "node:test";
import { assertHistory, assertLog } from "./invariants.mjs";
import { violationsOf } from "./strict.mjs";

const into = (frame) => ({ in: frame, text: JSON.stringify(frame) });
const out = (frame) => ({ out: frame });
const post = (id) => out({ id, init: { method: "POST", body: "{}" }, type: "cf_agent_use_chat_request" });
const response = (id, fields) => into({ type: "cf_agent_use_chat_response", id, body: "", done: false, ...fields });
const chunk = (id, seq, value, fields = {}) => response(id, { body: JSON.stringify(value), seq, ...fields });
const done = (id, fields = {}) => response(id, { done: true, outcome: "completed", ...fields });
const transcript = (messages = [], fields = {}) => into({ type: "cf_agent_chat_messages", messages, ...fields });
const identity = into({ type: "cf_agent_identity", name: "x", agent: "chat-agent" });
const resuming = (id, probeId) => into({ type: "cf_agent_stream_resuming", id, ...(probeId && { probeId }) });
const ack = (id) => out({ type: "cf_agent_stream_resume_ack", id });
const probe = (probeId) => out({ type: "cf_agent_stream_resume_request", probeId });
const none = (probeId) => into({ type: "cf_agent_stream_resume_none", reason: "idle", probeId });

const stream = (id, fields) => [
  chunk(id, 0, { type: "start", messageId: "m" }, fields),
  chunk(id, 1, { type: "text-start", id: "t" }, fields),
  chunk(id, 2, { type: "text-delta", id: "t", delta: "hi" }, fields),
];
const rest = (id) => [chunk(id, 3, { type: "text-end", id: "t" }), chunk(id, 4, { type: "finish" }), transcript(), done(id)];
const turn = (id) => [...stream(id), ...rest(id)];
const replayed = (id) => [...stream(id, { replay: true }), response(id, { replay: true, replayComplete: true })];
const bareEnd = (id) => response(id, { done: true, replay: true });
const continued = { continuation: true };
const open = { id: "m", role: "assistant", parts: [{ type: "tool-x", toolCallId: "c", state: "approval-responded", input: {} }] };
const goesOn = (...chunks) => [...chunks.map((value, seq) => chunk("c", seq, value, continued)), transcript(), done("c", continued)];
const outcome = { type: "tool-output-available", toolCallId: "c", output: 1 };

const GOOD = {
  "a turn": [post("a"), ...turn("a")],
  "two turns, the id used again": [post("a"), ...turn("a"), post("a"), ...turn("a")],
  "a resume": [resuming("a"), identity, ack("a"), ...replayed("a"), ...rest("a")],
  "two replays": [ack("a"), ack("a"), ...replayed("a"), ...replayed("a"), ...rest("a")],
  "an ACK after the end": [post("a"), ...turn("a"), ack("a"), bareEnd("a"), ack("a"), bareEnd("a")],
  "a probe answered behind the ACK it crossed": [resuming("a"), probe("p"), ack("a"), resuming("a", "p"), ...replayed("a"), ...rest("a")],
  "an ACK that crosses the end": [resuming("a"), ack("a"), transcript(), done("a"), bareEnd("a")],
  "a continuation with the outcome of an allowed call": [transcript([open]), ...goesOn({ type: "start" }, outcome, { type: "finish" })],
  "an end without ACK": [resuming("a"), transcript(), done("a")],
  "a request dropped because its id runs": [post("a"), ...stream("a"), post("a"), ...rest("a")],
  "a connect": [transcript([], { connect: true }), identity, probe("p"), none("p")],
  "an abort by clear": [post("a"), ...stream("a"), out({ type: "cf_agent_chat_clear" }), done("a", { outcome: "aborted" })],
};

const BAD = {
  "171: text that is no JSON": [{ in: { unparsable: "x" }, text: "x" }],
  "171: an array": [{ in: [], text: "[]" }],
  "171: an unknown type": [into({ type: "hello" })],
  "164: no end": [post("a"), ...stream("a")],
  "164: two ends": [post("a"), ...turn("a"), done("a")],
  "164: a frame behind the end": [post("a"), ...turn("a"), chunk("a", 5, { type: "text-delta", id: "t", delta: "!" })],
  "164: a replay end nobody asked for": [post("a"), ...turn("a"), bareEnd("a")],
  "164: two ends for one ACK that crosses the end": [resuming("a"), ack("a"), transcript(), done("a"), bareEnd("a"), bareEnd("a")],
  "115: a continuation that names its message": goesOn({ type: "start", messageId: "m" }, { type: "finish" }),
  "119: a continuation whose end does not say so": [...goesOn({ type: "start" }, { type: "finish" }).slice(0, -1), done("c")],
  "166: the outcome of a call that was never shown": goesOn({ type: "start" }, outcome, { type: "finish" }),
  "165: live frames before the ACK": [resuming("a"), ...stream("a"), ...rest("a")],
  "166: no start": [post("a"), ...turn("a").slice(1)],
  "166: a delta without opener": [post("a"), chunk("a", 0, { type: "start" }), chunk("a", 1, { type: "text-delta", id: "t", delta: "x" }), transcript(), done("a")],
  "166: an output without a call": [post("a"), chunk("a", 0, { type: "start" }), chunk("a", 1, { type: "tool-output-available", toolCallId: "c", output: 1 }), transcript(), done("a")],
  "166: a block left open": [post("a"), ...stream("a"), chunk("a", 3, { type: "finish" }), transcript(), done("a")],
  "166: overlapping blocks": [post("a"), ...stream("a"), chunk("a", 3, { type: "text-start", id: "u" }), transcript(), done("a")],
  "166: interleaved requests": [post("a"), post("b"), ...stream("a"), ...stream("b"), ...rest("a"), ...rest("b")],
  "60: a gap in seq": [post("a"), ...stream("a"), chunk("a", 4, { type: "text-end", id: "t" }), transcript(), done("a")],
  "60: a small chunk without seq": [post("a"), ...stream("a"), chunk("a", undefined, { type: "text-end", id: "t" }), transcript(), done("a")],
  "83: something else inside a replay": [ack("a"), ...stream("a", { replay: true }), done("b"), response("a", { replay: true, replayComplete: true })],
  "167: the end before the transcript": [post("a"), ...turn("a").filter((entry) => entry.in.type !== "cf_agent_chat_messages")],
  "168: a probe without an answer": [probe("p")],
  "168: two answers": [probe("p"), none("p"), none("p")],
  "168: an answer to nobody": [none("q")],
  "169: connect twice": [transcript([], { connect: true }), identity, transcript([], { connect: true })],
  "169: connect behind the identity": [identity, transcript([], { connect: true })],
  "§2.10: an error that does not end": [post("a"), response("a", { error: true, body: "x" }), done("a")],
  "§2.10: an error without a word": [post("a"), done("a", { error: true, outcome: "error" })],
  "§2.10: an end without outcome": [post("a"), done("a", { outcome: undefined })],
  "X9: an error chunk": [post("a"), chunk("a", 0, { type: "start" }), chunk("a", 1, { type: "error", errorText: "x" }), transcript(), done("a")],
};

for (const [name, log] of Object.entries(GOOD)) test(`lets through: ${name}`, () => assertLog(log, { open: true }));
for (const [name, log] of Object.entries(BAD)) test(`refuses: ${name}`, () => assert.throws(() => assertLog(log, { open: true }), assert.AssertionError));

const message = (id, parts = []) => ({ id, role: "user", parts });

test("the history must be what was shown last", () => {
  const socket = { isOpen: true, log: [transcript([message("a")])] };
  assertHistory([socket], [message("a")]);
  assert.throws(() => assertHistory([socket], []), assert.AssertionError);
  assert.throws(() => assertHistory([socket], [message("a"), message("a")]), assert.AssertionError);
  socket.log.push(into({ type: "cf_agent_message_updated", message: message("a", [{ type: "text", text: "new" }]) }));
  assert.throws(() => assertHistory([socket], [message("a")]), assert.AssertionError);
  socket.log.push(into({ type: "cf_agent_chat_clear" }));
  assertHistory([socket], []);
});

test("a call id stands for one call", () => {
  const part = { type: "tool-x", toolCallId: "c", state: "input-available", input: {} };
  assert.throws(() => assertHistory([], [message("a", [part]), message("b", [part])]), assert.AssertionError);
});

const http = { method: "POST", url: "/v1/chat/completions", headers: { "content-type": "application/json" } };
const asked = (messages, more = {}) => ({ model: "mock-1", stream: true, messages, ...more });
const call = (id, args = "{}") => ({ role: "assistant", content: null, tool_calls: [{ id, type: "function", function: { name: "f", arguments: args } }] });
const result = (id) => ({ role: "tool", tool_call_id: id, content: "ok" });
const hello = { role: "user", content: "hello" };
const tool = { type: "function", function: { name: "f", description: "", parameters: { type: "object" } } };

const ACCEPTED = {
  "text": asked([{ role: "system", content: "s" }, hello]),
  "a call and its result": asked([hello, call("1"), result("1")], { tools: [tool] }),
  "a picture": asked([{ role: "user", content: [{ type: "text", text: "x" }, { type: "image_url", image_url: { url: "data:image/png;base64,AA" } }] }]),
};
const REFUSED = {
  "an orphan result": asked([hello, result("1")]),
  "a call without a result": asked([hello, call("1"), hello]),
  "a call at the end": asked([hello, call("1")]),
  "a result twice": asked([hello, call("1"), result("1"), result("1")]),
  "a call id used again": asked([hello, call("1"), result("1"), call("1"), result("1")]),
  "an empty id": asked([hello, call(""), result("")]),
  "arguments that are no object": asked([hello, call("1", "[1]"), result("1")]),
  "arguments that are no JSON": asked([hello, call("1", "{"), result("1")]),
  "an unknown role": asked([{ role: "developer", content: "x" }, hello]),
  "a late system message": asked([hello, { role: "system", content: "x" }, hello]),
  "an unknown field": asked([hello], { parallel_tool_calls: true }),
  "an unknown field of a message": asked([{ ...hello, id: "1" }]),
  "an empty message": asked([{ role: "user", content: "" }]),
  "text as an array": asked([{ role: "user", content: [{ type: "text", text: "x" }] }]),
  "the assistant's turn at the end": asked([hello, { role: "assistant", content: "x" }]),
  "no messages": asked([]),
  "no stream": asked([hello], { stream: false }),
  "an empty list of tools": asked([hello], { tools: [] }),
  "a tool without an object schema": asked([hello], { tools: [{ type: "function", function: { name: "f", parameters: {} } }] }),
  "another model": asked([hello], { model: "openai-compatible/mock-1" }),
};
for (const [name, body] of Object.entries(ACCEPTED)) test(`provider accepts: ${name}`, () => assert.deepEqual(violationsOf(http, "", body), []));
for (const [name, body] of Object.entries(REFUSED)) test(`provider refuses: ${name}`, () => assert.notDeepEqual(violationsOf(http, "", body), []));
test("provider refuses: a call the model never made", () => {
  const body = asked([hello, call("1"), result("1")], { tools: [tool] });
  assert.deepEqual(violationsOf(http, "", body, new Set(["1"])), []);
  assert.equal(violationsOf(http, "", body, new Set(["2"])).length, 1);
});
test("provider refuses: another path", () => assert.equal(violationsOf({ ...http, url: "/chat/completions" }, "", asked([hello])).length, 1));
test("provider refuses: a body that is no JSON", () => assert.equal(violationsOf(http, "x", undefined).length, 1));
