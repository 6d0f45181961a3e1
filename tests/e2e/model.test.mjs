// Providers that misbehave: each gets a defined outcome, tells the user what happened, and leaves the conversation usable
// (issue A "Bad input"; field group Q; providers §10, §13).

import assert from "node:assert/strict";
import { hasChunk, isContinued, textOf, textOfChunks } from "./client.mjs";
import { TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

/** Fails `times` with `status`, then answers. */
const flaky = (status, times, headers = {}) => {
  const seen = new Map();
  return async (call) => {
    const count = (seen.get(call.user) ?? 0) + 1;
    seen.set(call.user, count);
    if (count <= times) return call.json(status, { error: { message: `mock ${status}`, type: "server_error", code: null } }, headers);
    await call.say("after the storm");
    await call.finish();
  };
};

const served = serve({
  scripts: {
    flaky500: flaky(500, 1),
    flaky503: flaky(503, 2),
    flaky429: flaky(429, 1, { "retry-after": "1" }),
    firm503: flaky(503, 1, { "x-should-retry": "false" }),
    down: flaky(500, Infinity),
    async sliced(call) {
      call.head();
      const text = [
        `data: ${JSON.stringify({ id: call.id, choices: [{ index: 0, delta: { content: "Grüße 🙂 漢" }, finish_reason: null }] })}\r\n\r\n`,
        `data: ${JSON.stringify({ id: call.id, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })}\r\n\r\ndata: [DONE]\r\n\r\n`,
      ].join("");
      for (const byte of Buffer.from(text)) {
        await call.raw(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      call.end();
    },
    async noDone(call) {
      await call.say("No farewell.");
      await call.chunk({}, "stop");
      call.end();
    },
    async tail(call) {
      await call.say("Clean.");
      await call.chunk({}, "stop");
      await call.raw('data: [DONE]\n\ndata: {"choices":[{"index":0,"delta":{"content":" garbage"}}]}\n\n');
      call.end();
    },
    async unauthorized(call) {
      call.json(401, { error: { message: "Incorrect API key provided: sk-abcdefghijklmnop1234567890", type: "invalid_request_error", code: "invalid_api_key" } });
    },
    async usage(call) {
      await call.event({ id: call.id, choices: [], prompt_filter_results: [] });
      await call.event({ id: call.id, choices: null, usage: { prompt_tokens: 1 } });
      await call.say("Counted.");
      await call.finish();
    },
  },
});

/** One turn: its end, and the text shown and stored. */
async function turn({ room }, text) {
  const socket = await room.connect();
  const { id } = socket.say(text);
  const end = await socket.done(id);
  const stored = (await room.history()).filter((message) => message.role === "assistant");
  const shown = textOfChunks(socket.chunks(id));
  assert.equal(stored.map(textOf).join(""), shown, "field invariant 3");
  return { socket, id, end, shown, stored };
}

/** After whatever happened, the next message is answered. */
async function assertUsable({ room }, socket) {
  const next = socket.say("text", { history: await room.history() });
  assert.equal((await socket.done(next.id)).outcome, "completed");
  assert.equal(textOf((await room.history()).at(-1)), TEXT);
}

/** The request is cut after `cut`, and the answer goes on in the same message. */
async function assertGoesOn({ room, provider }, socket, id, cut) {
  assert.equal((await socket.done(id)).outcome, "recovering");
  const { id: next } = await socket.frame((frame) => isContinued(frame) && frame.outcome === "completed");
  assert.deepEqual([id, next].map((each) => textOfChunks(socket.chunks(each))), [cut, TEXT]);
  const told = provider.of("Continue exactly where you left off, without repeating.").map(({ request }) => request.messages.at(-2));
  assert.ok(told.some(({ role, content }) => role === "assistant" && content === cut));
  assert.deepEqual((await room.history()).slice(1).map(textOf), [cut + TEXT]);
  await assertUsable({ room }, socket);
}

function answers(name, rows, script, expected) {
  served.test(name, async (context) => {
    const { socket, end, shown } = await turn(context, script);
    assert.equal(end.outcome, "completed", `${rows}: ${end.body}`);
    assert.equal(shown, expected, rows);
    await assertUsable(context, socket);
  });
}

function fails(name, rows, script, { says }) {
  served.test(name, async (context) => {
    const { socket, end, shown, stored } = await turn(context, script);
    assert.equal(end.outcome, "error", rows);
    assert.equal(end.error, true, rows);
    assert.match(end.body, says, rows);
    assert.doesNotMatch(end.body, /<[a-z!]|127\.0\.0\.1|\.rs:/i, "decision 43: no body, no URL, no place in the code");
    assert.ok(end.body.length < 700, "decision 43: a sentence and at most 300 characters of the provider's");
    assert.equal(shown, "", rows);
    assert.equal(stored.length, 0, rows);
    await assertUsable(context, socket);
  });
}

answers("a whole JSON completion is taken as an answer", "field Q-13, PV-20", "json", "Whole answer");
answers("comments, empty events and foreign fields are no content", "field Q-07", "comments", TEXT);
answers("one event that is no JSON is skipped", "field Q-07", "garbage", "good again");
answers("bytes that come one by one, with CRLF, make the same text", "PV-02, providers §10.1", "sliced", "Grüße 🙂 漢");
answers("an end without [DONE] after a finish reason is an end", "PV-06", "noDone", "No farewell.");
answers("what follows [DONE] is not read", "PV-04", "tail", "Clean.");
answers("events without choices are skipped", "field Q-05, PV-17", "usage", "Counted.");
answers("a server error is tried again in silence", "decision 34", "flaky500 a", "after the storm");
answers("two of them as well", "decision 34", "flaky503 a", "after the storm");
answers("a rate limit is waited for as long as it says", "PV-46", "flaky429 a", "after the storm");

fails("an HTML page is no answer", "field Q-13, PV-21", "html", { says: /./ });
fails("an empty 200 is no answer", "PV-21", "empty", { says: /./ });
fails("an error under status 200, as a plain string", "PV-19", "error200", { says: /mock error as text/ });
fails("a refused key is said without the key", "decision 43, PV-49", "unauthorized", { says: /key/i });
fails("a missing model is said", "providers §13", "status 404", { says: /mock status 404/ });

served.test("a server that stays down is tried three times and reported", async (context) => {
  // decision 34
  const { socket, end } = await turn(context, "down a");
  assert.equal(end.outcome, "error");
  assert.match(end.body, /mock 500/);
  assert.equal(context.provider.of("down a").length, 3);
  await assertUsable(context, socket);
});

served.test("a server that forbids the retry is not asked again", async (context) => {
  // PV-47
  const { socket, end } = await turn(context, "firm503 a");
  assert.equal(end.outcome, "error");
  assert.equal(context.provider.of("firm503 a").length, 1);
  await assertUsable(context, socket);
});

served.test("an answer cut by the network keeps what came", async (context) => {
  // PV-05, PV-07, decision 34
  const { room, provider } = context;
  const gate = provider.gate(room.name);
  const socket = await room.connect();
  const { id } = socket.say(`cutoff ${room.name}`);
  await socket.frame(hasChunk(id, "text-delta"));
  gate.open();
  await assertGoesOn(context, socket, id, "cut ");
  assert.equal(provider.of(`cutoff ${room.name}`).length, 1, "no retry once something was shown");
});

served.test("half an event at the end keeps the text before it", async (context) => {
  // PV-05, decision 34
  const socket = await context.room.connect();
  await assertGoesOn(context, socket, socket.say("half").id, "half ");
});

served.test("broken UTF-8 becomes replacement characters, not a failure", async (context) => {
  // PV-48, issue A: invalid UTF-8
  const { socket, end, shown } = await turn(context, "utf8");
  assert.equal(end.outcome, "completed");
  assert.match(shown, /^a\ufffd+b$/);
  await assertUsable(context, socket);
});

for (const script of ["hang", "never"]) {
  served.test(`a provider that goes silent (${script}) can be stopped by hand`, async (context) => {
    // decision 39 ends it by itself after minutes; the user need not wait
    const { room, provider } = context;
    const socket = await room.connect();
    const { id } = socket.say(`${script} ${room.name}`);
    const call = await provider.call(`${script} ${room.name}`);
    assert.equal((await socket.ask()).type, "cf_agent_stream_pending");
    socket.cancel(id);
    assert.equal((await socket.done(id)).outcome, "aborted");
    await call.closed;
    assert.ok(call.aborted);
    await assertUsable(context, socket);
  });
}

served.test("a reasoning model's thoughts are not sent back to a server that does not ask for them", async ({ room, provider }) => {
  // providers §9, conservative row
  const socket = await room.connect();
  await socket.done(socket.say("reason").id);
  const { id } = socket.say(`echo next-${room.name}`, { history: await room.history() });
  await socket.done(id);
  const { request } = await provider.call(`echo next-${room.name}`);
  assert.doesNotMatch(JSON.stringify(request.messages), /Let me think/);
});

served.test("the answer's connection is read to its end and let go", async ({ room, provider }) => {
  // field invariant 5
  const socket = await room.connect();
  await socket.done(socket.say(`text ${room.name}`).id);
  const call = await provider.call(`text ${room.name}`);
  await call.closed;
  assert.equal(call.aborted, false);
});
