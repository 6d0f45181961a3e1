// A scripted model provider: an OpenAI-compatible server on the loopback whose answer is chosen by the first word of
// the last user message (`slow k1`, `calc 6*7`). It is as strict as the strictest real server: each request is checked
// against the rules of the protocol, and `stop()` fails if one was broken.
//
// Nothing here waits for a clock unless the script's point is time: a gate named in the message (`slow k1`) lets the
// test release one delta after another.

import { createServer } from "node:http";
import { once } from "node:events";
import { SCRIPTS } from "./scripts.mjs";
import { violationsOf } from "./strict.mjs";

export const MODEL = "openai-compatible/mock-1";

/**
 * Starts the provider. `scripts` adds to, or replaces, the built-in scripts for this provider only. Without `keepAlive` each
 * request has a connection of its own, for clients that do not try again when an idle one closes under their hands.
 */
export async function startProvider({ scripts = {}, port = 0, keepAlive = true } = {}) {
  const table = { ...SCRIPTS, ...scripts };
  const calls = [];
  const violations = [];
  const gates = new Map();
  const made = new Set();
  const waiters = new Set();
  const report = (violation) => violations.push(violation);

  const server = createServer(async (request, response) => {
    response.shouldKeepAlive &&= keepAlive;
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const call = new Call({ request, response, body: Buffer.concat(chunks), gates, made });
    if (request.method === "GET" && request.url === "/v1/models") return call.json(200, { data: [{ id: "mock-1" }] });
    for (const violation of violationsOf(request, call.text, call.request, made)) report(`${call.script}: ${violation}`);
    calls.push(call);
    for (const waiter of [...waiters]) waiter();
    try {
      await (table[call.script] ?? table.text)(call);
    } catch (error) {
      if (!(error instanceof Gone)) report(`script ${call.script} failed: ${error.stack}`);
    }
  });
  // A request held open by a script must never be cut by the server's own limits.
  server.requestTimeout = 0;
  server.headersTimeout = 0;
  server.keepAliveTimeout = 1_000;
  server.listen(port, "127.0.0.1");
  await once(server, "listening");

  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    /** Vars that point the deployable at this provider. */
    vars: { MODEL, MODEL_BASE_URL: `http://127.0.0.1:${server.address().port}/v1` },
    calls,
    violations,

    /** The gate named `key`; a script that waits for it stands still until the test opens it. */
    gate(key) {
      let gate = gates.get(key);
      if (gate === undefined) gates.set(key, (gate = new Gate()));
      return gate;
    },

    /** Requests whose last user message is `text` (or contains it, given a string ending in `…`). */
    of: (text) => calls.filter((call) => matches(call, text)),

    /** The `n`-th request (from 1) for `text`, waiting for it if need be. */
    async call(text, n = 1, limitMs = 10_000) {
      const find = () => calls.filter((call) => matches(call, text))[n - 1];
      const found = find();
      if (found !== undefined) return found;
      return new Promise((resolve, reject) => {
        const limit = setTimeout(() => {
          waiters.delete(look);
          const seen = calls.map((call) => call.user);
          reject(new Error(`model call ${n} for "${text}" did not come within ${limitMs} ms; seen: ${JSON.stringify(seen)}`));
        }, limitMs);
        const look = () => {
          const call = find();
          if (call === undefined) return;
          clearTimeout(limit);
          waiters.delete(look);
          resolve(call);
        };
        waiters.add(look);
      });
    },

    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
      if (violations.length > 0) throw new Error(`requests a strict provider refuses:\n${violations.join("\n")}`);
    },
  };
}

function matches(call, text) {
  return text.endsWith("…") ? call.user.includes(text.slice(0, -1)) : call.user === text;
}

/** The worker hung up; ends the script quietly. */
class Gone extends Error {}

/** Counts permits: `open(n)` hands out n more, `reached(n)` resolves once n permits were asked for. */
export class Gate {
  #permits = 0;
  #asked = 0;
  #queue = [];
  #watchers = [];

  open(n = Infinity) {
    this.#permits += n;
    while (this.#permits > 0 && this.#queue.length > 0) {
      this.#permits -= 1;
      this.#queue.shift()();
    }
  }

  pass() {
    this.#asked += 1;
    this.#watchers = this.#watchers.filter((watcher) => !watcher(this.#asked));
    if (this.#permits > 0) {
      this.#permits -= 1;
      return Promise.resolve();
    }
    return new Promise((resolve) => this.#queue.push(resolve));
  }

  reached(n) {
    if (this.#asked >= n) return Promise.resolve();
    return new Promise((resolve) => {
      this.#watchers.push((asked) => {
        if (asked < n) return false;
        resolve();
        return true;
      });
    });
  }
}

/** One request to the provider, and the pen its script writes the answer with. */
export class Call {
  constructor({ request, response, body, gates, made }) {
    this.headers = request.headers;
    this.path = request.url;
    this.text = body.toString("utf8");
    this.request = parse(this.text);
    this.response = response;
    this.id = `chatcmpl-${Math.random().toString(36).slice(2, 10)}`;
    this.finished = false;
    this.aborted = false;
    /** Resolves when the answer ended or the worker hung up. */
    this.closed = new Promise((resolve) => {
      response.once("close", () => {
        this.aborted = !this.finished;
        resolve();
      });
    });
    const messages = this.request?.messages ?? [];
    const lastUser = messages.findLastIndex((message) => message?.role === "user");
    /** Text of the last user message; its first word names the script, the rest is the script's argument. */
    this.user = lastUser < 0 ? "" : textOf(messages[lastUser]?.content);
    this.script = this.user.split(/\s+/, 1)[0];
    this.argument = this.user.slice(this.script.length).trim();
    /** Tool results of the turn so far. */
    this.results = messages.slice(lastUser + 1).filter((message) => message?.role === "tool");
    /** How often the model asked for tools in this turn so far. */
    this.rounds = messages.slice(lastUser + 1).filter((message) => message?.tool_calls !== undefined).length;
    this.#gates = gates;
    this.#made = made;
  }
  #gates;
  #made;
  #started = false;

  /** Waits for the test if it holds a gate of this name, else for `orMs`. */
  async gate(name = this.argument, orMs = 0) {
    const gate = this.#gates.get(name);
    if (gate === undefined && orMs === 0) return;
    let timer;
    const turn = gate === undefined ? new Promise((resolve) => (timer = setTimeout(resolve, orMs))) : gate.pass();
    await Promise.race([turn, this.closed]);
    clearTimeout(timer);
    this.#check();
  }

  #check() {
    if (this.aborted || this.response.destroyed) throw new Gone();
  }

  head(status = 200, headers = {}) {
    this.#check();
    this.#started = true;
    this.response.writeHead(status, { "content-type": "text/event-stream", "cache-control": "no-cache", ...headers });
    this.response.flushHeaders();
  }

  /** Writes bytes as they are, waiting for the reader when it is slow. */
  async raw(text) {
    if (!this.#started) this.head();
    this.#check();
    if (!this.response.write(text)) {
      await Promise.race([once(this.response, "drain"), this.closed]);
      this.#check();
    }
  }

  event(value) {
    return this.raw(`data: ${JSON.stringify(value)}\n\n`);
  }

  chunk(delta, finishReason = null) {
    for (const { id } of delta.tool_calls ?? []) if (id !== undefined) this.#made.add(id);
    return this.event({
      id: this.id,
      object: "chat.completion.chunk",
      created: 1_700_000_000,
      model: "mock-1",
      choices: [{ index: 0, delta, finish_reason: finishReason }],
    });
  }

  say(content) {
    return this.chunk({ content });
  }

  think(reasoning_content) {
    return this.chunk({ reasoning_content });
  }

  /** A whole tool call in three deltas, its arguments cut in the middle. */
  async tool(name, input, { id = `call_${Math.random().toString(36).slice(2, 10)}`, index = 0 } = {}) {
    const text = typeof input === "string" ? input : JSON.stringify(input);
    const middle = Math.ceil(text.length / 2);
    await this.chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] });
    await this.chunk({ tool_calls: [{ index, function: { arguments: text.slice(0, middle) } }] });
    await this.chunk({ tool_calls: [{ index, function: { arguments: text.slice(middle) } }] });
    return id;
  }

  async finish(reason = "stop") {
    await this.chunk({}, reason);
    await this.event({ id: this.id, choices: [], usage: { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29 } });
    await this.raw("data: [DONE]\n\n");
    this.end();
  }

  end(text) {
    this.#check();
    this.finished = true;
    this.response.end(text);
  }

  json(status, value, headers = {}) {
    this.#check();
    this.finished = true;
    this.response.writeHead(status, { "content-type": "application/json", ...headers });
    this.response.end(typeof value === "string" ? value : JSON.stringify(value));
  }

  /** Cuts the connection in the middle of the answer. */
  cut() {
    this.finished = true;
    this.response.destroy();
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (part?.type === "text" ? part.text : "")).join("");
}
