// What must hold on every socket of every conversation, whatever a test is about (wire 164–172, field invariants 1–3).
// Pure: a frame log in, an AssertionError out.

import assert from "node:assert/strict";

const KNOWN = new Set([
  "cf_agent_identity", "cf_agent_state", "cf_agent_state_error", "rpc", "cf_agent_mcp_servers", "agent-tool-event",
  "cf_agent_use_chat_response", "cf_agent_chat_messages", "cf_agent_message_updated", "cf_agent_chat_clear",
  "cf_agent_stream_resuming", "cf_agent_stream_resume_none", "cf_agent_stream_pending", "cf_agent_chat_recovering",
  // Ours (decisions, "Wire, events, callables").
  "cf_agent_tool_result_ack",
]);
const ANSWERS = new Set(["cf_agent_stream_resuming", "cf_agent_stream_pending", "cf_agent_stream_resume_none"]);
/** A chunk above this size is shown live only and carries no `seq` (decision 41). */
const STORED_CHUNK_LIMIT = 1_800_000;

/** Holds one socket's log against the invariants. `open`: the socket still lives, so nothing may be owed to it. */
export function assertLog(log, { open }) {
  frames(log);
  connectMark(log);
  probes(log, open);
  resumeSilence(log);
  requests(log, open);
  noInterleaving(log);
}

/**
 * Every run of frames belonging to one request. A new run begins where a replay starts over, and where the server answers
 * once more for a request that had ended: that takes an ACK or a new post of that id for each run.
 */
export function segmentsOf(log) {
  const segments = [];
  const current = new Map();
  const reasons = new Map();
  const posted = new Set();
  // A live frame to someone who did not ask answers nothing: an ACK that crossed it on the way is still owed its replay.
  const first = (frame) => (frame.replay || posted.has(frame.id) ? 1 : 0);
  log.forEach((entry, at) => {
    if (postedId(entry.out) !== undefined) posted.add(entry.out.id);
    const reopened = postedId(entry.out) ?? (entry.out?.type === "cf_agent_stream_resume_ack" ? entry.out.id : undefined);
    if (reopened !== undefined) reasons.set(reopened, (reasons.get(reopened) ?? 0) + 1);
    if (entry.in?.type !== "cf_agent_use_chat_response") return;
    const frame = entry.in;
    let segment = current.get(frame.id);
    const again = segment?.ended && (reasons.get(frame.id) ?? 0) > segment.reason;
    if (segment === undefined || again || (frame.replay && isStart(frame))) {
      segment = { id: frame.id, entries: [], ended: false, reason: segment === undefined ? first(frame) : segment.reason + 1 };
      segments.push(segment);
      current.set(frame.id, segment);
    }
    segment.entries.push({ at, frame });
    if (frame.done) segment.ended = true;
  });
  return segments;
}

function isStart(frame) {
  return frame.body.startsWith("{") && JSON.parse(frame.body).type === "start";
}

function postedId(frame) {
  if (frame?.type !== "cf_agent_use_chat_request" || frame.init?.method !== "POST") return undefined;
  return typeof frame.id === "string" && frame.id !== "" ? frame.id : undefined;
}

/** wire 171 */
function frames(log) {
  for (const { in: frame, text } of log) {
    if (frame === undefined) continue;
    assert.ok(frame !== null && typeof frame === "object" && !Array.isArray(frame), `wire 171: not a JSON object: ${text?.slice(0, 120)}`);
    assert.ok(KNOWN.has(frame.type), `wire 171: unknown frame ${text?.slice(0, 120)}`);
  }
}

/** wire 169 */
function connectMark(log) {
  const seen = log.flatMap((entry, at) => (entry.in === undefined ? [] : [{ at, frame: entry.in }]));
  const marked = seen.filter(({ frame }) => "connect" in frame);
  assert.ok(marked.length <= 1, `wire 169: ${marked.length} frames carry connect`);
  if (marked.length === 0) return;
  assert.equal(marked[0].frame.type, "cf_agent_chat_messages", "wire 169");
  assert.equal(marked[0].frame.connect, true, "wire 169");
  const identity = seen.find(({ frame }) => frame.type === "cf_agent_identity");
  if (identity) assert.ok(marked[0].at < identity.at, "wire 169: connect transcript behind the identity");
}

/** wire 168 */
function probes(log, open) {
  const asked = new Map();
  let anonymous = 0;
  for (const entry of log) {
    if (entry.out?.type === "cf_agent_stream_resume_request") {
      const { probeId } = entry.out;
      if (probeId === undefined) anonymous += 1;
      else asked.set(probeId, { times: (asked.get(probeId)?.times ?? 0) + 1, answered: asked.get(probeId)?.answered ?? 0 });
    }
    if (entry.in === undefined || !ANSWERS.has(entry.in.type)) continue;
    const { probeId, type } = entry.in;
    if (probeId === undefined) {
      if (anonymous > 0) anonymous -= 1;
      continue;
    }
    const probe = asked.get(probeId);
    assert.ok(probe, `wire 168: ${type} answers a probe nobody sent: ${probeId}`);
    probe.answered += 1;
    assert.ok(probe.answered <= probe.times, `wire 168: probe ${probeId} answered ${probe.answered} times`);
  }
  if (!open) return;
  for (const [probeId, { times, answered }] of asked) assert.equal(answered, times, `wire 168: probe ${probeId} not answered`);
  assert.equal(anonymous, 0, "wire 168: a probe without id not answered");
}

/** wire 165: between RESUMING and ACK only the end of the stream reaches the socket. */
function resumeSilence(log) {
  const waiting = new Set();
  const probeAt = new Map();
  const ackAt = new Map();
  log.forEach(({ in: frame, out }, at) => {
    if (out?.type === "cf_agent_stream_resume_request") probeAt.set(out.probeId, at);
    if (out?.type === "cf_agent_stream_resume_ack") {
      ackAt.set(out.id, at);
      waiting.delete(out.id);
    }
    if (frame?.type === "cf_agent_stream_resuming") {
      // An ACK sent after the probe it answers was still on its way; it covers this offer too.
      const covered = frame.probeId !== undefined && (ackAt.get(frame.id) ?? -1) > (probeAt.get(frame.probeId) ?? Infinity);
      if (!covered) waiting.add(frame.id);
    }
    if (frame?.type === "cf_agent_use_chat_response" && waiting.has(frame.id)) {
      assert.ok(frame.done, `wire 165: live frame before the ACK: ${JSON.stringify(frame).slice(0, 160)}`);
    }
  });
}

/** wire 164, 166, 167: each request ends exactly once, its chunks are well-formed, its transcript comes before its end. */
function requests(log, open) {
  const segments = segmentsOf(log);
  for (const { id, entries } of segments) {
    const ends = entries.filter(({ frame }) => frame.done);
    assert.ok(ends.length <= 1, `wire 164: ${id} ended ${ends.length} times`);
    if (ends.length === 1) {
      assert.equal(entries.at(-1), ends[0], `wire 164: frames of ${id} behind its end`);
      assertTerminal(id, ends[0].frame);
    }
    for (const { frame } of entries) {
      assert.equal(typeof frame.body, "string", `wire §2.10: body of ${id}`);
      assert.equal(typeof frame.done, "boolean", `wire §2.10: done of ${id}`);
      if (frame.error) assert.ok(frame.done, `wire §2.10: an error frame of ${id} that does not end it`);
    }
    assertChunks(id, entries, log);
    assertTranscriptFirst(id, entries, log);
  }
  if (!open) return;
  log.forEach(({ out }, at) => {
    const id = postedId(out);
    if (id === undefined) return;
    const ended = log.slice(at).some(({ in: frame }) => frame?.type === "cf_agent_use_chat_response" && frame.id === id && frame.done);
    const dropped = log.slice(0, at).some(({ out: earlier }) => postedId(earlier) === id);
    assert.ok(ended || dropped, `wire 164: ${id} never ended`);
  });
}

function assertTerminal(id, frame) {
  if (frame.outcome === undefined) assert.ok(frame.replay, `wire §2.10: the end of ${id} names no outcome`);
  else assert.ok(["completed", "error", "aborted", "skipped", "recovering"].includes(frame.outcome), `outcome ${frame.outcome}`);
  if (frame.error) assert.notEqual(frame.body, "", `wire §2.10: the error of ${id} says nothing`);
}

/** O1, O2 and the openers of §3.3; `seq` counts the stored chunks without a gap. */
function assertChunks(id, entries, log) {
  // wire 115, 119: what goes on with a message says so in every frame, and does not name it.
  const goesOn = entries.filter(({ frame }) => frame.continuation === true).length;
  assert.ok(goesOn === 0 || goesOn === entries.length, `wire 119: only ${goesOn} of ${entries.length} frames of ${id} are a continuation's`);
  // A frame with a number and nothing in it stands for a chunk that this socket cannot take.
  const chunkFrames = entries.filter(({ frame }) => !frame.done && !frame.error && (frame.body !== "" || frame.seq !== undefined));
  if (chunkFrames.length === 0) return;
  const open = new Map();
  const calls = goesOn > 0 ? callsBefore(log, chunkFrames[0].at) : new Map();
  let nextSeq = 0;
  let finished = false;
  chunkFrames.forEach(({ frame }, position) => {
    if (frame.body === "") {
      assert.equal(frame.seq, nextSeq, `wire 60: ${id}, chunk ${position} (left out)`);
      nextSeq += 1;
      return;
    }
    const chunk = JSON.parse(frame.body);
    const where = `${id}, chunk ${position} (${chunk.type})`;
    if (frame.seq === undefined) {
      assert.ok(Buffer.byteLength(frame.body) > STORED_CHUNK_LIMIT, `wire 60: no seq: ${where}`);
    } else {
      assert.equal(frame.seq, nextSeq, `wire 60: ${where}`);
      nextSeq += 1;
    }
    assert.ok(!finished, `wire 166: behind finish: ${where}`);
    if (position === 0) assert.equal(chunk.type, "start", `wire 166: ${where} is not start`);
    else assert.notEqual(chunk.type, "start", `wire 166: second ${where}`);
    if (chunk.type === "start" && goesOn > 0) assert.equal(chunk.messageId, undefined, `wire 115: the start of ${id} names a message`);
    assertChunk(chunk, open, calls, where);
    if (chunk.type === "finish") {
      finished = true;
      assert.equal(open.size, 0, `wire 166: open blocks at ${where}: ${[...open.keys()]}`);
    }
  });
}

/** Calls that a socket was shown by transcripts and updates; a continuation may bring the outcome of an approved one. */
function callsBefore(log, at) {
  const shown = log.slice(0, at).flatMap(({ in: frame }) => frame?.messages ?? (frame?.message ? [frame.message] : []));
  const parts = shown.flatMap((message) => message.parts.filter((part) => part.toolCallId !== undefined));
  return new Map(parts.map((part) => [part.toolCallId, "available"]));
}

function assertChunk(chunk, open, calls, where) {
  const kind = /^(text|reasoning)-(start|delta|end)$/.exec(chunk.type);
  if (kind) {
    const [, block, event] = kind;
    const key = `${block}:${chunk.id}`;
    if (event === "start") {
      // X28: observers match by position, so blocks of one kind never overlap.
      assert.ok(![...open.keys()].some((other) => other.startsWith(block)), `wire 166: overlapping ${where}`);
      open.set(key, true);
    } else {
      assert.ok(open.has(key), `wire 166: no opener for ${where}`);
      if (event === "delta") assert.equal(typeof chunk.delta, "string", where);
      else open.delete(key);
    }
    return;
  }
  switch (chunk.type) {
    case "tool-input-start":
      assert.ok(!calls.has(chunk.toolCallId), `wire 166: second opener ${where}`);
      calls.set(chunk.toolCallId, "input");
      break;
    case "tool-input-delta":
      assert.equal(calls.get(chunk.toolCallId), "input", `wire 166: no opener for ${where}`);
      break;
    case "tool-input-available":
      calls.set(chunk.toolCallId, "available");
      assert.ok(isPlainObject(chunk.input), `wire X27: input of ${where} is no object`);
      break;
    case "tool-input-error":
      calls.set(chunk.toolCallId, "failed");
      break;
    case "tool-output-available":
    case "tool-output-error":
    case "tool-output-denied":
      assert.ok(calls.has(chunk.toolCallId), `wire 166: no call for ${where}`);
      break;
    case "error":
      assert.fail(`wire X9: an error chunk: ${where}`);
      break;
    default:
  }
}

function assertTranscriptFirst(id, entries, log) {
  const end = entries.find(({ frame }) => frame.done);
  // The end of an attempt whose turn goes on: the transcript comes with the next one.
  if (end === undefined || end.frame.replay || end.frame.outcome === "recovering") return;
  const chunks = entries.filter(({ frame }) => !frame.done && !frame.replay && frame.body !== "");
  const shown = chunks.filter(({ frame }) => /^\{"type":"(text-delta|reasoning-delta|tool-input|tool-output|file|source|data)/.test(typeFirst(frame.body)));
  if (shown.length === 0) return;
  const between = log.slice(shown.at(-1).at, end.at).map((entry) => entry.in ?? entry.out ?? {});
  // Who clears is not told so; what was on its way then may arrive behind it.
  const asked = log.slice(0, end.at).some(({ out }) => out?.type === "cf_agent_chat_clear");
  const cleared = asked || between.some((frame) => frame.type === "cf_agent_chat_clear");
  const transcript = between.some((frame) => frame.type === "cf_agent_chat_messages");
  assert.ok(cleared || transcript, `wire 167: the end of ${id} came before the transcript`);
}

/** Key order is irrelevant on the wire; put `type` first so that a prefix tells the kind. */
function typeFirst(body) {
  const { type } = JSON.parse(body);
  return `{"type":"${type}`;
}

/** wire 166, O9: chunks of one request are not interrupted by those of another; a replay is one burst. */
function noInterleaving(log) {
  let live;
  const over = new Set();
  let burst;
  for (const { in: frame, out } of log) {
    if (out?.type === "cf_agent_use_chat_request") over.delete(out.id);
    if (frame?.type !== "cf_agent_use_chat_response") continue;
    if (burst !== undefined) {
      assert.ok(frame.id === burst && (frame.replay || frame.done), `wire 83: ${frame.id} inside the replay of ${burst}`);
    }
    if (frame.replay) {
      burst = frame.done || frame.replayComplete ? undefined : frame.id;
      continue;
    }
    burst = undefined;
    if (frame.done || frame.body === "") continue;
    if (frame.id !== live) {
      assert.ok(!over.has(frame.id), `wire 166: frames of ${frame.id} interleave with others`);
      if (live !== undefined) over.add(live);
      live = frame.id;
    }
  }
}

/** wire 172, 61 and field invariants 2 and 3: what was shown is what is stored. */
export function assertHistory(sockets, history) {
  const ids = history.map((message) => message.id);
  assert.equal(new Set(ids).size, ids.length, `field invariant 2: a message id twice: ${ids}`);
  const calls = history.flatMap((message) => message.parts.map((part) => part.toolCallId).filter(Boolean));
  assert.equal(new Set(calls).size, calls.length, `field invariant 2: a call id twice: ${calls}`);

  for (const socket of sockets) {
    if (!socket.isOpen) continue;
    const shown = lastShown(socket.log);
    if (shown !== undefined) assert.deepEqual(history, shown, "wire 172: get-messages differs from the last transcript");
  }
}

/** The list a client holds after its last frames, unless it changed the list itself since. */
function lastShown(log) {
  let shown;
  for (const { in: frame, out } of log) {
    if (postedId(out) !== undefined || out?.type === "cf_agent_chat_clear") shown = undefined;
    if (frame?.type === "cf_agent_chat_messages") shown = frame.messages;
    if (frame?.type === "cf_agent_chat_clear") shown = [];
    if (frame?.type === "cf_agent_message_updated" && shown !== undefined) {
      shown = shown.map((message) => (message.id === frame.message.id ? frame.message : message));
    }
  }
  return shown;
}

function isPlainObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
