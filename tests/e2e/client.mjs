// A client without a framework: one conversation, its sockets with their frame logs, its history over HTTP. Whatever
// the test is about, `room.check()` holds every log against the invariants of the protocol (wire 164–172).

import { randomUUID } from "node:crypto";
import { WebSocket } from "ws";
import { assertLog, assertHistory } from "./invariants.mjs";

export const FRAME_LIMIT_MS = 10_000;

/** A conversation of its own for one test. */
export function openRoom(worker, { name = `r-${randomUUID()}`, query = {}, agent = "chat-agent" } = {}) {
  const sockets = [];
  const path = `/agents/${agent}/${name}`;
  const address = (scheme, suffix, extra) => {
    const search = new URLSearchParams({ ...extra, ...query }).toString();
    return `${scheme}://127.0.0.1:${worker.port}${path}${suffix}${search ? `?${search}` : ""}`;
  };
  const room = {
    name,
    path,
    sockets,

    /** Opens a socket and waits for the 101. `raw` leaves everything about it to the test. */
    async open(options = {}) {
      const { search = {}, headers = {} } = options;
      const pk = "pk" in options ? options.pk : randomUUID();
      const socket = new Socket(address("ws", "", { ...(pk === undefined ? {} : { _pk: pk }), ...search }), { headers });
      sockets.push(socket);
      await socket.opened;
      return socket;
    },

    /** Opens a socket and waits until the whole connect sequence has arrived. */
    async connect(options) {
      const socket = await room.open(options);
      await socket.frame((frame) => frame.type === "cf_agent_mcp_servers");
      return socket;
    },

    get: (suffix = "/get-messages", init) => fetch(address("http", suffix), init),

    /** The stored transcript. */
    async history() {
      const response = await room.get();
      if (response.status !== 200) throw new Error(`get-messages answered ${response.status}: ${await response.text()}`);
      return response.json();
    },

    /** Holds all logs against the invariants, then closes the sockets. */
    async close() {
      // One round trip on each socket: what the server owed it has arrived.
      await Promise.all(sockets.filter((socket) => socket.isOpen).map((socket) => socket.settle()));
      try {
        for (const socket of sockets) assertLog(socket.log, { open: socket.isOpen });
        if (sockets.some((socket) => socket.isOpen)) assertHistory(sockets, await room.history());
      } finally {
        await Promise.all(sockets.map((socket) => socket.close()));
      }
    },
  };
  return room;
}

/**
 * One WebSocket with its log: every frame in either direction, in order, as `{in: frame}` or `{out: frame}`.
 */
export class Socket {
  #ws;
  #watchers = new Set();

  constructor(url, { headers } = {}) {
    this.log = [];
    this.#ws = new WebSocket(url, { headers, maxPayload: 64 * 1024 * 1024, perMessageDeflate: false });
    this.#ws.once("upgrade", (response) => (this.upgradeHeaders = response.headers));
    this.opened = new Promise((resolve, reject) => {
      this.#ws.once("open", resolve);
      this.#ws.once("error", reject);
      this.#ws.once("unexpected-response", (_request, response) => {
        const chunks = [];
        response.on("data", (chunk) => chunks.push(chunk));
        response.on("end", () => reject(new Refused(response, Buffer.concat(chunks).toString("utf8"))));
      });
    });
    this.closed = new Promise((resolve) => {
      this.#ws.once("close", (code, reason) => resolve({ code, reason: reason.toString("utf8") }));
    });
    this.#ws.on("error", () => {});
    this.#ws.on("message", (data, isBinary) => {
      const text = data.toString("utf8");
      this.log.push({ in: isBinary ? { binary: data } : parseFrame(text), text });
      for (const watcher of [...this.#watchers]) watcher();
    });
    this.closed.then(() => {
      for (const watcher of [...this.#watchers]) watcher();
    });
  }

  get isOpen() {
    return this.#ws.readyState === WebSocket.OPEN;
  }

  /** Frames received so far. */
  get frames() {
    return this.log.flatMap((entry) => (entry.in === undefined ? [] : [entry.in]));
  }

  /** A place in the log, to look only at what comes after it. */
  mark() {
    return this.log.length;
  }

  since(mark) {
    return this.log.slice(mark).flatMap((entry) => (entry.in === undefined ? [] : [entry.in]));
  }

  /** Sends a frame, or text or bytes as they are. */
  send(frame) {
    const isRaw = typeof frame === "string" || Buffer.isBuffer(frame);
    this.log.push({ out: Buffer.isBuffer(frame) ? { binary: frame } : isRaw ? parseFrame(frame) ?? {} : frame });
    this.#ws.send(isRaw ? frame : JSON.stringify(frame));
  }

  /** The first frame after `since` that fits, waiting for it if need be. */
  frame(fits, { since = 0, limitMs = FRAME_LIMIT_MS } = {}) {
    const test = typeof fits === "string" ? (frame) => frame.type === fits : fits;
    let at = since;
    const look = () => {
      for (; at < this.log.length; at += 1) {
        const frame = this.log[at].in;
        if (frame !== undefined && test(frame)) return frame;
      }
      return undefined;
    };
    const found = look();
    if (found !== undefined) return Promise.resolve(found);
    const asked = new Error();
    return new Promise((resolve, reject) => {
      const fail = (why) => {
        this.#watchers.delete(watcher);
        clearTimeout(limit);
        asked.message = `${why}; wanted ${fits}; log:\n${this.describe(since)}`;
        reject(asked);
      };
      const limit = setTimeout(() => fail(`no such frame within ${limitMs} ms`), limitMs);
      const watcher = () => {
        const frame = look();
        if (frame !== undefined) {
          this.#watchers.delete(watcher);
          clearTimeout(limit);
          resolve(frame);
        } else if (this.#ws.readyState >= WebSocket.CLOSING) {
          fail("the socket closed");
        }
      };
      this.#watchers.add(watcher);
    });
  }

  /**
   * A round trip that changes nothing: a call of a method that does not exist. Frames the server sent before it read
   * the call have arrived when this resolves.
   */
  async settle() {
    const id = randomUUID();
    this.send({ type: "rpc", id, method: "noSuchMethod", args: [] });
    return this.frame((frame) => frame.type === "rpc" && frame.id === id);
  }

  /** Posts a transcript as the stock transport does; returns the request id. */
  post(messages, { id = randomUUID().slice(0, 8), trigger = "submit-message", method = "POST", ...body } = {}) {
    this.send({ id, init: { method, body: JSON.stringify({ messages, trigger, ...body }) }, type: "cf_agent_use_chat_request" });
    return id;
  }

  /** Posts one user message after `history`; returns `{id, message}`. */
  say(text, { history = [], id, message = user(text), ...rest } = {}) {
    return { id: this.post([...history, message], { id, ...rest }), message };
  }

  /** Asks for a running stream; returns the probe id. */
  probe(probeId = `p-${randomUUID()}`) {
    this.send({ type: "cf_agent_stream_resume_request", ...(probeId === null ? {} : { probeId }) });
    return probeId;
  }

  /** Asks, and waits for the answer. */
  async ask(probeId) {
    const since = this.mark();
    const sent = this.probe(probeId);
    return this.frame(answers(sent), { since });
  }

  ack(id) {
    this.send({ type: "cf_agent_stream_resume_ack", id });
  }

  cancel(id) {
    this.send({ id, type: "cf_agent_chat_request_cancel" });
  }

  clear() {
    this.send({ type: "cf_agent_chat_clear" });
  }

  /** Answers a call of a page's tool as the stock hook does; it leaves the tool's name empty. */
  result(toolCallId, output, extra = {}) {
    this.send({ type: "cf_agent_tool_result", toolCallId, toolName: "", output, autoContinue: true, ...extra });
  }

  /** Says that a page's tool failed; the stock hook does not want the model to go on then. */
  toolError(toolCallId, errorText, extra = {}) {
    const frame = { type: "cf_agent_tool_result", toolCallId, toolName: "", state: "output-error", errorText, autoContinue: false };
    this.send({ ...frame, ...extra });
  }

  /** Allows or denies a call. */
  decide(toolCallId, approved, extra = {}) {
    this.send({ type: "cf_agent_tool_approval", toolCallId, approved, autoContinue: true, ...extra });
  }

  /** What the server says became of an answer that asked for it (`ack: true`). */
  verdict(toolCallId, options) {
    return this.frame((frame) => frame.type === "cf_agent_tool_result_ack" && frame.toolCallId === toolCallId, options);
  }

  /** Calls a method and waits for its (first final) reply. */
  async call(method, args = [], id = randomUUID()) {
    this.send({ args, id, method, type: "rpc" });
    return this.frame((frame) => frame.type === "rpc" && frame.id === id && frame.done !== false);
  }

  /** The live terminal of a request. */
  done(id, options) {
    return this.frame(isDone(id), options);
  }

  /** Chunks of a request received so far, parsed, in order. */
  chunks(id, { since = 0, replay } = {}) {
    return this.responses(id, since)
      .filter((frame) => isChunk(frame) && (replay === undefined || Boolean(frame.replay) === replay))
      .map((frame) => JSON.parse(frame.body));
  }

  responses(id, since = 0) {
    return this.since(since).filter((frame) => isResponse(frame) && frame.id === id);
  }

  /** Ends the connection as a lost network would, without a closing handshake. */
  drop() {
    this.#ws.terminate();
    return this.closed;
  }

  close(code = 1000) {
    if (this.#ws.readyState === WebSocket.OPEN) this.#ws.close(code);
    else if (this.#ws.readyState === WebSocket.CONNECTING) this.#ws.terminate();
    return this.closed;
  }

  describe(since = 0) {
    return this.log
      .slice(since)
      .map((entry) => (entry.out ? `→ ${JSON.stringify(entry.out)}` : `← ${entry.text}`).slice(0, 300))
      .join("\n");
  }
}

/** The server answered the upgrade with something else than 101. */
export class Refused extends Error {
  constructor(response, body) {
    super(`upgrade refused: ${response.statusCode} ${body}`);
    this.status = response.statusCode;
    this.headers = response.headers;
    this.body = body;
  }
}

/** A user message as the AI SDK makes it. */
export function user(text, extra = {}) {
  return { parts: [{ type: "text", text }], id: randomUUID().replaceAll("-", "").slice(0, 16), role: "user", ...extra };
}

export const isResponse = (frame) => frame.type === "cf_agent_use_chat_response";
export const isTranscript = (frame) => frame.type === "cf_agent_chat_messages";
export const isDone = (id) => (frame) => isResponse(frame) && frame.id === id && frame.done === true;
export const isChunk = (frame) => isResponse(frame) && !frame.error && !frame.done && typeof frame.body === "string" && frame.body.startsWith("{");

/** Fits a response frame of `id` whose chunk has the given type (and passes `also`). */
export const hasChunk = (id, type, also = () => true) => (frame) => {
  if (!isChunk(frame) || frame.id !== id) return false;
  const chunk = JSON.parse(frame.body);
  return chunk.type === type && also(chunk, frame);
};

const ANSWERS = ["cf_agent_stream_resuming", "cf_agent_stream_pending", "cf_agent_stream_resume_none"];
export const isAnswer = (frame) => ANSWERS.includes(frame.type);
export const answers = (probeId) => (frame) => isAnswer(frame) && (probeId === null ? frame.probeId === undefined : frame.probeId === probeId);

/** The stored message that a frame brings up to date, if its part of this call is in one of these states. */
export const isUpdate = (toolCallId, ...states) => (frame) =>
  frame.type === "cf_agent_message_updated" &&
  frame.message.parts.some((part) => part.toolCallId === toolCallId && states.includes(part.state));

/** The end of a continuation. */
export const isContinued = (frame) => isResponse(frame) && frame.continuation === true && frame.done === true;

/** Tool parts of a message. */
export const toolParts = (message) => message.parts.filter((part) => part.toolCallId !== undefined);

/** All text of the `text-delta` chunks. */
export const textOfChunks = (chunks) => chunks.map((chunk) => (chunk.type === "text-delta" ? chunk.delta : "")).join("");

/** All text of a stored message. */
export const textOf = (message) => message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

function parseFrame(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { unparsable: text };
  }
}
