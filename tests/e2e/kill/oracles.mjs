// What must be true of a conversation when everybody has come to rest, whatever was killed meanwhile. Each function throws what it
// finds wrong.

import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { isResponse, isTranscript, textOf, toolParts } from "../client.mjs";
import { assertLog } from "../invariants.mjs";
import { ending } from "./scripts.mjs";
import { unrest } from "./world.mjs";

/** Executions of a tool that may be run again (limits.rs, TOOL_CLAIMS). */
const CLAIMS = 3;
/** What the model reads of a call that started and whose end nobody knows. */
const INTERRUPTED = "The tool call was interrupted before a result was recorded.";
/** Requests within one model call while nothing was shown: two quick retries. */
const QUICK_RETRIES = 2;

/** All words of all questions and answers, once, in their order. */
export function transcript(room, history) {
  const { script } = room;
  const told = history.map((message) => [message.role, textOf(message)]);
  const expected = ending(script, room.name);
  const ids = history.map((message) => message.id);
  assert.equal(new Set(ids).size, ids.length, `a message id twice: ${ids}`);
  if (script.partial) {
    // It was stopped: what there is of the answer is its beginning, and did not grow afterwards.
    assert.deepEqual(told[0], expected[0]);
    assert.ok(told.length <= 2, `${told.length} messages`);
    const said = told[1]?.[1] ?? "";
    assert.ok(expected[1][1].startsWith(said), `stopped at "${said}"`);
    if (!script.exhausted) assert.equal(said, room.stopped, "it went on after the stop");
  } else {
    assert.deepEqual(told, expected);
  }
  for (const part of history.flatMap(toolParts)) {
    const where = `${part.type} ${part.toolCallId}`;
    assert.ok(["output-available", "output-error", "output-denied"].includes(part.state), `${where} is ${part.state}`);
    if (part.state === "output-error") assert.equal(part.errorText, INTERRUPTED, where);
    const hit = room.hits.find(({ call }) => call === part.toolCallId);
    if (part.state === "output-available" && part.type !== "tool-page") {
      assert.ok(hit !== undefined, `${where} has an output and never ran`);
      assert.deepEqual(part.output, { done: hit.tool, call: hit.call }, where);
    }
  }
}

/** No effect twice: a call has one at most, and what may run again does so under the same key. */
export function effects(room, history) {
  const shown = new Map(history.flatMap(toolParts).map((part) => [part.toolCallId, part]));
  const wanted = Map.groupBy(room.hits, (hit) => `${hit.answer}/${hit.of}`);
  for (const [of, hits] of wanted) {
    const calls = new Set(hits.map((hit) => hit.call));
    const keys = new Set(hits.map((hit) => hit.key));
    const { tool } = hits[0];
    assert.equal(calls.size, 1, `${tool} (${of}) was called under ${calls.size} ids: its effect may be there twice`);
    assert.equal(keys.size, 1, `${tool} (${of}) ran under ${keys.size} keys`);
    const again = tool === "keyed" || tool === "look";
    assert.ok(hits.length <= (again ? CLAIMS : 1), `${tool} (${of}) ran ${hits.length} times`);
    if (room.script.cleared || room.script.exhausted || room.script.requests > 1) continue;
    const part = shown.get(hits[0].call);
    assert.ok(part !== undefined, `${tool} (${of}) had its effect and is in no message`);
    if (again && hits.length < CLAIMS) assert.equal(part.state, "output-available", `${tool} (${of}) may run again, and has no result`);
  }
  const keys = Map.groupBy(room.hits, (hit) => hit.key);
  for (const [key, hits] of keys) assert.equal(new Set(hits.map((hit) => hit.call)).size, 1, `two calls share the key ${key}`);
  room.script.check?.(room, history);
}

/** The model is not asked more often than deaths and the failures of the script account for. */
export function requests(room) {
  const { script, deaths, requests: asked } = room;
  for (const [n, steps] of script.turns.entries()) {
    const of = asked.filter((request) => request.n === n + 1);
    const legs = steps.length * (script.requests ?? 1);
    const bound = legs + deaths.length + (script.faults ?? 0) * (1 + QUICK_RETRIES);
    assert.ok(of.length <= bound, `answer ${n + 1} took ${of.length} requests, ${bound} at most are accounted for`);
    for (const life of new Set(of.map((request) => request.life))) {
      const rounds = of.filter((request) => request.life === life).map((request) => request.round);
      const repeated = rounds.filter((round, at) => rounds.indexOf(round) !== at);
      const allowed = (script.faults ?? 0) * (1 + QUICK_RETRIES) + (script.requests ?? 1) - 1;
      assert.ok(repeated.length <= allowed, `in life ${life}, steps ${repeated.map((round) => round + 1)} were asked for again`);
    }
  }
}

/** Nothing is left behind: no turn that is not final, no log, nothing owed, no alarm. */
export function rest(room, rows) {
  assert.deepEqual(unrest(rows), []);
  if (rows?.wk_turn === undefined) return;
  assert.deepEqual(rows.wk_turn.filter((turn) => turn.ended_at === null).map((turn) => turn.state), [], "turns that are not final");
  assert.deepEqual(rows.wk_continuation, [], "a continuation is left");
  const logs = rows.wk_notice.map((notice) => notice.stream);
  assert.deepEqual(rows.wk_seg.filter((segment) => !logs.includes(segment.stream)).map(({ stream, seg }) => `${stream}/${seg}`), [], "segments are left");
  assert.deepEqual(rows.wk_call.filter((call) => call.state !== "settled").map(({ call_id, state }) => `${call_id} ${state}`), [], "calls are open");
  assert.deepEqual(rows.alarms, [], "an alarm is left");
  if (!room.script.cleared) {
    const states = rows.wk_turn.map((turn) => turn.state);
    const good = room.script.exhausted ? ["failed"] : room.script.partial ? ["completed", "aborted"] : ["completed"];
    assert.deepEqual(states.filter((state) => !good.includes(state)), [], "how turns ended");
    if (room.script.exhausted) assert.deepEqual(rows.wk_turn.map((turn) => turn.reason), ["interrupted_attempts_exceeded"]);
  }
  for (const table of ["wk_msg", "wk_msg_part"]) {
    if (room.script.cleared) assert.deepEqual(rows[table], [], `${table} after a clear`);
  }
}

/** Every turn that came to its end by itself had its response hook, at least once. */
export function hooks(room, history) {
  if (room.script.cleared) return;
  for (const message of history.filter((entry) => entry.role === "assistant")) {
    const told = room.hooks.filter((hook) => hook.message === message.id);
    assert.ok(told.length > 0, `the response hook was never told of ${message.id}`);
  }
}

/** The frames of everybody who was there, in order and ended once; and what somebody sees who comes only now. */
export function frames(room, late, history) {
  for (const client of room.clients) {
    for (const [at, socket] of client.sockets.entries()) {
      try {
        assertLog(socket.log, { open: false });
      } catch (error) {
        error.message = `${client.who}, connection ${at + 1}: ${error.message}`;
        throw error;
      }
    }
  }
  const shown = late.frames.findLast(isTranscript);
  assert.deepEqual(shown.messages, history, "who comes late sees something else than what is stored");
  assert.deepEqual(late.frames.filter(isResponse).filter((frame) => !frame.done && !frame.replay), [], "something still runs");
}

/** What a tab shows that was there all along is what is stored. */
export function screens(room, history) {
  for (const client of room.clients.filter(({ who }) => who === "onlooker")) {
    const last = shownBy(client.sockets.at(-1));
    const same = last.length === history.length && last.every((message, at) => isDeepStrictEqual(message, history[at]));
    assert.ok(same, `the onlooker holds ${JSON.stringify(last)}\nstored is ${JSON.stringify(history)}`);
  }
}

/** The conversation by the transcripts and updates of a socket. */
function shownBy(socket) {
  let shown = [];
  for (const frame of socket.frames) {
    if (isTranscript(frame)) shown = frame.messages;
    if (frame.type === "cf_agent_chat_clear") shown = [];
    if (frame.type === "cf_agent_message_updated") shown = shown.map((message) => (message.id === frame.message.id ? frame.message : message));
  }
  return shown;
}

