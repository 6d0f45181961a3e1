// What the scripted provider says, by the first word of the last user message. The names are those of the conformance
// checklist (wire §9); each script writes one model step.

/** Text of the `slow` script; delta n is `SLOW_DELTAS[n]`. */
export const SLOW_DELTAS = Array.from({ length: 50 }, (_, at) => `w${at} `);
export const SLOW_TEXT = SLOW_DELTAS.join("");
export const TEXT_DELTAS = ["Hello", ", ", "world"];
export const TEXT = TEXT_DELTAS.join("");

/** A call whose arguments come in these pieces, each behind the gate. */
async function typed(call, pieces) {
  const delta = (more, args) => call.chunk({ tool_calls: [{ index: 0, ...more, function: { ...more.function, arguments: args } }] });
  call.head();
  await delta({ id: "call_in", type: "function", function: { name: "calculate" } }, "");
  for (const piece of pieces) {
    await call.gate();
    await delta({}, piece);
  }
  return call.finish("tool_calls");
}

export const SCRIPTS = {
  /** Three deltas. A gate of the argument's name stands before each, so that they come in reads of their own. */
  async text(call) {
    for (const delta of TEXT_DELTAS) {
      await call.gate();
      await call.say(delta);
    }
    await call.finish();
  },

  /** Fifty deltas, one for each permit of the gate, or one every 100 ms. */
  async slow(call) {
    call.head();
    for (const delta of SLOW_DELTAS) {
      await call.gate(call.argument, 100);
      await call.say(delta);
    }
    await call.finish();
  },

  /** Repeats the argument. */
  async echo(call) {
    await call.say(call.argument);
    await call.finish();
  },

  /** Nothing before the gate opens, not even the response's head. */
  async late(call) {
    await call.gate();
    await SCRIPTS.text(call);
  },

  /**
   * Calls tools round by round, then says what the last round gave, one delta for each permit of the gate:
   * `want look+pay{"eur":5}/ask key` calls two tools, then one.
   */
  async want(call) {
    const [rounds, key] = call.argument.split(" ");
    const round = rounds.split("/")[call.rounds];
    if (round !== undefined) {
      await call.say("Let me see. ");
      for (const [index, item] of round.split("+").entries()) {
        const [, name, input] = /^(\w+)(.*)$/.exec(item);
        await call.tool(name, input || "{}", { index });
      }
      return call.finish("tool_calls");
    }
    call.head();
    for (const delta of ["It says: ", ...call.results.map((result) => `${result.content}; `), "that is all."]) {
      await call.gate(key);
      await call.say(delta);
    }
    return call.finish();
  },

  /** A server tool with an input, then text that quotes its result. */
  async stool(call) {
    if (call.results.length === 0) {
      await call.say("Let me see. ");
      await call.tool("calculate", { expression: "6 * 7" });
      return call.finish("tool_calls");
    }
    await call.say(`The tool said ${call.results[0].content}`);
    return call.finish();
  },

  /** Two parallel server tools, then text. */
  async stool2(call) {
    if (call.results.length === 0) {
      await call.tool("calculate", { expression: "2 + 3" }, { index: 0 });
      await call.tool("current_time", {}, { index: 1 });
      return call.finish("tool_calls");
    }
    await call.say(`${call.results.length} results`);
    return call.finish();
  },

  /** A tool input that streams under the gate, then the tool, then text. */
  async inputs(call) {
    if (call.results.length === 0) return typed(call, ['{"expr', 'ession":', '"1 ', "+ 1", '"}']);
    await call.say("Two.");
    return call.finish();
  },

  /** The input of a tool in many pieces, each behind the gate, then the tool, then text. */
  async typing(call) {
    const pieces = ['{"expression":"', ...Array.from({ length: 20 }, () => "1 + "), '1"}'];
    if (call.results.length === 0) return typed(call, pieces);
    await call.say(TEXT);
    return call.finish();
  },

  /** A tool that fails: its input is no expression. */
  async badtool(call) {
    if (call.results.length === 0) {
      await call.tool("calculate", { expression: "two times two" });
      return call.finish("tool_calls");
    }
    await call.say("That did not work.");
    return call.finish();
  },

  /** A call of a tool nobody declared. */
  async notool(call) {
    if (call.results.length === 0) {
      await call.tool("no_such_tool", { a: 1 });
      return call.finish("tool_calls");
    }
    await call.say("No such tool.");
    return call.finish();
  },

  /** Input that misses the schema. */
  async badinput(call) {
    if (call.results.length === 0) {
      await call.tool("calculate", { expression: 7 });
      return call.finish("tool_calls");
    }
    await call.say("Bad input.");
    return call.finish();
  },

  /** A call without end: never stops asking for tools. */
  async loop(call) {
    await call.tool("calculate", { expression: "1 + 1" });
    await call.finish("tool_calls");
  },

  async reason(call) {
    await call.think("Let me ");
    await call.think("think.");
    await call.say("Thought.");
    await call.finish();
  },

  /** Refused before the first chunk, by an error that is not retried. */
  async fail0(call) {
    call.json(400, { error: { message: "mock says no", type: "invalid_request_error", param: null, code: "bad" } });
  },

  /** Three chunks, then an error inside the stream that is not retried. The gate stands before each event. */
  async fail3(call) {
    for (const delta of ["one ", "two ", "three "]) {
      await call.gate();
      await call.say(delta);
    }
    await call.gate();
    await call.event({ error: { message: "mock broke", type: "invalid_request_error", code: null } });
    call.end();
  },

  /** An answer without content. */
  async none(call) {
    await call.finish();
  },

  /** One huge delta: the argument is its size in bytes. */
  async big(call) {
    await call.say("x".repeat(Number(call.argument) || 1_000_000));
    await call.finish();
  },

  /** A small delta, a huge one, a small one, each in a read of its own. */
  async bigmid(call) {
    await call.say("before ");
    await call.gate();
    await call.say("x".repeat(1_900_000));
    await call.gate();
    await call.say(" after");
    await call.gate();
    await call.finish();
  },

  /** As many deltas as the argument says, as fast as the reader takes them. */
  async flood(call) {
    const count = Number(call.argument) || 1_000;
    for (let at = 0; at < count; at += 1) await call.say(`t${at} `);
    await call.finish();
  },

  /** A head and then nothing. */
  async hang(call) {
    call.head();
    await call.closed;
  },

  /** Not even a head. */
  async never(call) {
    await call.closed;
  },

  async html(call) {
    call.head(200, { "content-type": "text/html" });
    call.end("<!doctype html><title>504</title><h1>Gateway time-out</h1>");
  },

  /** Status and optional Retry-After of every request: `status 429 1`. */
  async status(call) {
    const [status, retryAfter] = call.argument.split(/\s+/);
    const headers = retryAfter === undefined ? {} : { "retry-after": retryAfter };
    call.json(Number(status), { error: { message: `mock status ${status}`, type: "server_error", code: null } }, headers);
  },

  /** A whole JSON completion although a stream was asked for. */
  async json(call) {
    call.json(200, {
      id: call.id,
      object: "chat.completion",
      choices: [{ index: 0, message: { role: "assistant", content: "Whole answer" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    });
  },

  /** Nothing at all with status 200. */
  async empty(call) {
    call.head();
    call.end();
  },

  /** Half an event and the end of the connection. */
  async half(call) {
    await call.say("half ");
    await call.raw('data: {"id":"x","choices":[{"index":0,"del');
    call.end();
  },

  /** The connection dies after text. */
  async cutoff(call) {
    await call.say("cut ");
    await call.gate();
    call.cut();
  },

  /** Bytes that are no UTF-8 inside a delta. */
  async utf8(call) {
    call.head();
    const [before, after] = JSON.stringify({ id: call.id, choices: [{ index: 0, delta: { content: "a|b" }, finish_reason: null }] }).split("|");
    await call.raw(Buffer.concat([Buffer.from(`data: ${before}`), Buffer.from([0xff, 0xfe]), Buffer.from(`${after}\n\n`)]));
    await call.finish();
  },

  /** Not JSON in one event among good ones. */
  async garbage(call) {
    await call.say("good ");
    await call.raw("data: {broken\n\n");
    await call.say("again");
    await call.finish();
  },

  /** Comments, empty events and foreign fields between the events. */
  async comments(call) {
    await call.raw(": PROCESSING\n\ndata:\n\nevent: ping\ndata: {}\n\nid: 7\nretry: 10\n\n");
    await SCRIPTS.text(call);
  },

  /** An error as the first event under status 200, its value a plain string. */
  async error200(call) {
    await call.event({ error: "mock error as text" });
    call.end();
  },

  /** The name repeated in each delta, ids only in the first, both calls under index 0. */
  async quirks(call) {
    if (call.results.length === 0) {
      for (const text of ['{"expression"', ':"3 * ', '3"}']) {
        await call.chunk({ tool_calls: [{ index: 0, id: "call_0", type: "function", function: { name: "calculate", arguments: text } }] });
      }
      await call.chunk({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "calculate", arguments: '{"expression":"4 * 4"}' } }] });
      return call.finish("stop");
    }
    await call.say(call.results.map((result) => result.content).join(" and "));
    return call.finish();
  },

  /** A call without id. */
  async noid(call) {
    if (call.results.length === 0) {
      await call.chunk({ tool_calls: [{ index: 0, type: "function", function: { name: "calculate", arguments: '{"expression":"5 * 5"}' } }] });
      return call.finish("tool_calls");
    }
    await call.say(call.results[0].content);
    return call.finish();
  },

  /** Arguments cut by the token limit. */
  async cutcall(call) {
    await call.chunk({ tool_calls: [{ index: 0, id: "call_cut", type: "function", function: { name: "calculate", arguments: '{"expr' } }] });
    await call.finish("length");
  },
};
