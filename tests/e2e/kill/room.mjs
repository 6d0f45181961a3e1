// One conversation that is killed: its story, the places where it can be made to stand still, the model and the tools outside of the
// process, and the person in front of it.

import { randomUUID } from "node:crypto";
import { isAnswer, isDone, isResponse, isTranscript, openRoom, textOf, toolParts } from "../client.mjs";
import { CHECKPOINT } from "./world.mjs";

const NEWS_MS = 1_000;
const HISTORY_MS = 5_000;
/** Between two words, so that each is a chunk of its own. */
const WORD_MS = 4;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The object died under the hands of who waited. */
export class Died extends Error {}

export class Room {
  static question = (name, n) => `go ${name} ${n}`;
  static words = (n, from = 0) => Array.from({ length: n - from }, (_, at) => `w${from + at} `).join("");

  /**
   * `targets`: for each life the action before which everything stands still, from 1, or what those are called that do; `returns`: whether somebody comes back at once
   * (`client`), or nobody before the turn came to rest by itself (`alarm`).
   */
  constructor(world, label, script, { targets = [], returns = "client", pace = 0 } = {}) {
    Object.assign(this, { world, label, script, targets, returns, pace });
    this.name = `k-${randomUUID().slice(0, 13)}`;
    this.life = 1;
    /** Actions of this life so far. */
    this.count = 0;
    this.actions = [];
    this.story = [];
    this.deaths = [];
    this.requests = [];
    this.hits = [];
    this.hooks = [];
    this.problems = [];
    this.failed = new Set();
    this.clients = [];
    this.acted = false;
    this.admitted = true;
    this.started = Date.now();
    this.#standstill();
    this.#news();
    world.rooms.set(this.name, this);
  }
  #held;
  #isHeld = false;
  #released = false;
  #release;
  #admit;

  tell(what) {
    this.story.push(`${String(Date.now() - this.started).padStart(6)} ms  life ${this.life}  ${what}`);
  }

  #standstill() {
    this.held = new Promise((resolve) => (this.#held = resolve));
    this.#isHeld = false;
    this.#released = false;
    this.gate = new Promise((resolve, reject) => (this.#release = { resolve, reject }));
    this.gate.catch(() => {});
    this.count = 0;
    this.at = undefined;
  }

  #news() {
    this.moved = new Promise((resolve) => (this.#admit = resolve));
  }

  get target() {
    return this.targets[this.life - 1];
  }

  /**
   * Whoever outside of the process is about to do something asks here. Before the target of this life everybody stands still, until
   * the object dies (`Died`) or is let go. Who belongs to an earlier life goes on unheard.
   */
  async pass(what, life = this.life) {
    if (life !== this.life) return;
    if (this.pace > 0) await pause(this.pace * this.world.random());
    if (life !== this.life) return;
    if (!this.#released && this.#holds(what)) {
      if (!this.#isHeld) {
        this.#isHeld = true;
        this.at = what;
        this.tell(`stands still before ${this.count + 1}: ${what}`);
        this.#held();
      }
      await this.gate;
      if (life !== this.life) return;
    }
    this.count += 1;
    if (this.life === 1) this.actions.push(what);
    this.tell(`${this.count}. ${what}`);
  }

  #holds(what) {
    const { target } = this;
    return target instanceof RegExp ? target.test(what) : target !== undefined && this.count + 1 >= target;
  }

  get isHeld() {
    return this.#isHeld;
  }

  /** What stood still goes on. */
  letGo() {
    this.#released = true;
    this.#release.resolve();
  }

  /**
   * The object is about to be ended. `survived`: connections outlive it, and who uses them notices nothing. `lingers`: it is not dead
   * yet when this returns; who stands still does so until the function that comes back is called.
   */
  die(kind, { survived = false, lingers = false } = {}) {
    this.deaths.push({ kind, life: this.life, before: this.at, after: this.count });
    this.tell(`dies: ${kind}${this.at === undefined ? `, after action ${this.count}` : ""}`);
    const { resolve, reject } = this.#release;
    this.life += 1;
    if (this.returns === "alarm") {
      this.admitted = false;
      this.tab?.leaves();
    }
    this.#standstill();
    const end = () => (survived ? resolve() : reject(new Died()));
    if (!lingers) end();
    this.#admit();
    this.#news();
    return end;
  }

  /** People may come back. */
  admit() {
    if (this.admitted) return;
    this.tell("at rest by itself; people come back");
    this.admitted = true;
    this.tab?.returns();
    this.#admit();
    this.#news();
  }

  /** Resolves once the worker is up and people may come. */
  async open() {
    for (;;) {
      await this.world.up;
      if (this.admitted) return;
      await this.moved;
    }
  }

  /** The life of whoever speaks. What was on its way when the process died may be heard a moment later, but before the next is up. */
  get #speaking() {
    return this.life - (this.world.isUp ? 0 : 1);
  }

  // The model

  async model(request, make) {
    const life = this.#speaking;
    const texts = request.messages.map((message) => (typeof message.content === "string" ? message.content : ""));
    const asked = request.messages.flatMap((message, at) => (message.role === "user" && texts[at] !== CHECKPOINT ? [texts[at]] : []));
    if (new Set(asked).size !== asked.length) this.problems.push(`a request has a message twice: ${asked}`);
    const anchor = texts.findLastIndex((text, at) => request.messages[at].role === "user" && text.startsWith("go "));
    const n = Number(texts[anchor].split(" ")[2]);
    const after = request.messages.slice(anchor + 1);
    const round = after.filter((message) => message.tool_calls !== undefined).length;
    const said = after.map((message) => (message.role === "assistant" ? (message.content ?? "") : "")).join("");
    const count = said.split(" ").length - 1;
    if (said !== Room.words(count)) this.problems.push(`a request says "${said}" of answer ${n}`);
    this.requests.push({ life, n, round, count, request });
    const steps = this.script.turns[n - 1];
    const step = steps[Math.min(round, steps.length - 1)];
    const end = steps.slice(0, round + 1).reduce((sum, each) => sum + each.text, 0);
    const call = make();

    await this.pass(`the model is asked (answer ${n}, step ${round + 1}, behind w${count})`, life);
    const fails = step.fail !== undefined && !this.failed.has(step) ? step.fail : undefined;
    if (fails !== undefined) this.failed.add(step);
    if (fails?.at === "head") return call.json(fails.status, { error: { message: "not now", type: "server_error", code: null } });
    if (count < end && step.think !== undefined && count === end - step.text) {
      for (let word = 0; word < step.think; word += 1) {
        await this.pass(`thinks ${word}`, life);
        await call.think(`t${word} `);
        await pause(WORD_MS);
      }
    }
    for (let word = count; word < end; word += 1) {
      if (fails !== undefined && fails.at === word) {
        await this.pass("the provider breaks off", life);
        return call.cut();
      }
      if (step.waits === word) await this.#person(life, call);
      await this.pass(`says w${word}`, life);
      await call.say(`w${word} `);
      await pause(WORD_MS);
    }
    if (step.calls !== undefined && round < steps.length && count <= end) {
      const first = steps.slice(0, round).reduce((sum, each) => sum + (each.calls?.length ?? 0), 0);
      for (const [index, { name }] of step.calls.entries()) {
        await this.pass(`calls ${name}`, life);
        await call.tool(name, { room: this.name, answer: n, of: first + index }, { index });
        await pause(WORD_MS);
      }
      await this.pass("ends the step", life);
      return call.finish("tool_calls");
    }
    await this.pass("ends the answer", life);
    return call.finish();
  }

  /** The model waits until the person has done something, unless nobody is there to. */
  async #person(life, call) {
    while (!this.acted && this.admitted && life === this.life && !call.aborted) await Promise.race([pause(20), call.closed]);
    // What was sent just now is to arrive before the next word.
    if (this.admitted && life === this.life) await Promise.race([pause(100), call.closed]);
  }

  // Effects

  /** A tool is at work. Its effect is done when it is heard of; the answer may never arrive. */
  async tool({ tool, input, call, key }) {
    const life = this.#speaking;
    this.hits.push({ life, tool, call, key, answer: input.answer, of: input.of });
    await this.pass(`${tool} has its effect (call ${input.of})`, life);
    return { done: tool, call };
  }

  async hook(body) {
    const life = this.#speaking;
    this.hooks.push({ life, ...body });
    await this.pass(`the response hook is told: ${body.status}`, life);
    return {};
  }

  describe() {
    const requests = this.requests.map(
      ({ life, n, round, count, request }) =>
        `  life ${life}, answer ${n}, step ${round + 1}, behind w${count}: ${request.messages.map((message) => `${message.role}(${message.tool_calls ? message.tool_calls.map((call) => call.id) : ""}${message.tool_call_id ?? ""}${String(message.content ?? "").slice(0, 60)})`).join(" ")}`,
    );
    const hits = this.hits.map((hit) => `  ${JSON.stringify(hit)}`);
    const frames = this.clients.flatMap((client) =>
      client.sockets.map((socket, at) => `  ${client.who}, connection ${at + 1}\n${socket.describe().replace(/^/gm, "    ")}`),
    );
    return [
      `story of ${this.label} (${this.name})`,
      ...this.story.map((line) => `  ${line}`),
      "requests to the model",
      ...requests,
      "effects",
      ...hits,
      "response hooks",
      ...this.hooks.map((hook) => `  ${JSON.stringify(hook)}`),
      "frames",
      ...frames,
    ].join("\n");
  }
}

/** A tab without a framework that comes back by itself, asks for what runs and takes up what it is offered. */
export class Client {
  constructor(room, who) {
    this.room = room;
    this.who = who;
    this.route = openRoom(room.world.worker, { name: room.name, agent: "mortal" });
    this.sockets = this.route.sockets;
    room.clients.push(this);
  }
  #current;

  /** The open socket; connects where there is none. */
  async socket() {
    for (;;) {
      await this.room.open();
      if (this.left) throw new Error("it left");
      if (this.#current === undefined) this.#current = this.#connect();
      const socket = await this.#current;
      if (socket?.isOpen) return socket;
      this.#current = undefined;
      if (socket === undefined) await pause(50);
    }
  }

  async #connect() {
    try {
      const socket = await this.route.open();
      this.#follow(socket);
      await socket.frame("cf_agent_mcp_servers");
      socket.probe();
      return socket;
    } catch {
      // The worker died meanwhile.
      return undefined;
    }
  }

  async #follow(socket) {
    const taken = new Set();
    const isOffer = (frame) => frame.type === "cf_agent_stream_resuming" && !taken.has(frame);
    try {
      for (;;) {
        const offer = await socket.frame(isOffer, { limitMs: 2 ** 30 });
        taken.add(offer);
        socket.ack(offer.id);
      }
    } catch {
      // It closed.
    }
  }

  /** Stays connected until it is told to leave. */
  async stay() {
    while (!this.left) {
      const socket = await this.socket();
      await socket.closed;
    }
  }
}

/** What somebody does in a tab, again and again until it is done, whatever dies meanwhile. */
export class Person {
  constructor(room, who = "person") {
    this.room = room;
    this.client = new Client(room, who);
    this.messages = new Map();
    /** What was done in which life over which socket. */
    this.did = new Set();
  }

  inAnotherTab() {
    const other = new Person(this.room, "another tab");
    other.messages = this.messages;
    return other;
  }

  /** Calls `attempt` until it says yes: whenever something arrived, and anew after each death. */
  async #until(attempt, isNews = changes) {
    const { room } = this;
    for (;;) {
      const socket = await this.client.socket();
      const { life } = room;
      const since = socket.mark();
      const first = (what) => {
        const key = `${life} ${this.client.sockets.length} ${what}`;
        return !this.did.has(key) && Boolean(this.did.add(key));
      };
      try {
        const history = await this.#history();
        if (life === room.life && (await attempt({ socket, history, first }))) return;
        await socket.frame(isNews, { since, limitMs: NEWS_MS }).catch(() => {});
      } catch (error) {
        const died = error instanceof Died || life !== room.life || !socket.isOpen || !room.world.isUp || CANCELLED.test(error.message);
        if (!died) throw error;
        await pause(20);
      }
    }
  }

  /** The stored conversation. A request whose object lost its memory under it may stay without an answer. */
  #history() {
    const late = pause(HISTORY_MS).then(() => Promise.reject(new Died()));
    return Promise.race([this.client.route.history(), late]);
  }

  #message(n) {
    if (!this.messages.has(n)) {
      const parts = [{ type: "text", text: Room.question(this.room.name, n) }];
      this.messages.set(n, { id: `${this.room.name}-u${n}`, role: "user", parts });
    }
    return this.messages.get(n);
  }

  /** Sends message `n`, again if it got lost. A tab with the hooks gives it an id of its own. */
  async say(n) {
    const message = this.#message(n);
    const { tab } = this.room;
    await this.#until(async ({ socket, history, first }) => {
      if (history.some((entry) => textOf(entry) === message.parts[0].text)) return true;
      if (first(`say ${n}`)) {
        if (n === 1) await tab?.ready();
        await this.room.pass(`message ${n} is sent`);
        this.room.acted ||= n > 1;
        if (tab === undefined) socket.post([...history, message]);
        else tab.say(message.parts[0].text);
      }
      return false;
    });
  }

  #answer(history, n) {
    const at = history.findIndex((entry) => entry.role === "user" && textOf(entry) === Room.question(this.room.name, n));
    // The answer of a message that waited may come behind later questions.
    const answers = history.filter((entry) => entry.role === "assistant");
    return at < 0 ? undefined : answers[n - 1];
  }

  #whole(n) {
    return Room.words(this.room.script.turns[n - 1].reduce((sum, step) => sum + step.text, 0));
  }

  #isWhole(history, n) {
    const answer = this.#answer(history, n);
    return answer !== undefined && textOf(answer) === this.#whole(n);
  }

  /** Waits until message `n` has its whole answer. */
  async answered(n) {
    await this.#until(async ({ history }) => {
      if (!this.#isWhole(history, n)) return false;
      await this.room.pass(`the end of answer ${n} is seen`);
      return true;
    });
  }

  /** Waits until so many words of an answer were shown. */
  async sees(n, words) {
    const word = `w${words - 1} `;
    const isShown = (frame) => isResponse(frame) && frame.body.includes('"delta":"') && frame.body.includes(word);
    await this.#until(
      async ({ socket, history }) =>
        socket.frames.some(isShown) || textOf(this.#answer(history, n) ?? { parts: [] }).includes(word),
      (frame) => changes(frame) || isShown(frame),
    );
  }

  /** Answers the calls of the page's tool, or only the one at this place, until the answer is whole. */
  async answersCalls(n, { only } = {}) {
    await this.#until(async ({ socket, history, first }) => {
      if (this.#isWhole(history, n)) return true;
      const calls = toolParts(this.#answer(history, n) ?? { parts: [] }).filter((part) => part.type === "tool-page");
      for (const [at, part] of calls.entries()) {
        if (part.state !== "input-available" || (only ?? at) !== at || !first(part.toolCallId)) continue;
        await this.room.pass(`call ${at} of the page is answered`);
        socket.result(part.toolCallId, { page: part.input.of });
      }
      return false;
    });
  }

  /** Allows or denies what is asked for. */
  async decides(n, approved) {
    await this.#until(async ({ socket, history, first }) => {
      if (this.#isWhole(history, n)) return true;
      for (const part of toolParts(this.#answer(history, n) ?? { parts: [] })) {
        if (part.state !== "approval-requested" || !first(part.toolCallId)) continue;
        await this.room.pass(approved ? "the call is allowed" : "the call is denied");
        socket.decide(part.toolCallId, approved);
      }
      return false;
    });
  }

  /** Waits to be told that the turn was given up. */
  async isTold(text) {
    const tells = (frame) => isResponse(frame) && frame.error === true && frame.body === text;
    await this.#until(
      async ({ socket }) => socket.frames.some(tells),
      (frame) => changes(frame) || tells(frame),
    );
  }

  async regenerates(n) {
    let old;
    await this.#until(async ({ socket, history, first }) => {
      const answer = this.#answer(history, n);
      old ??= answer?.id;
      if (answer?.id !== old) return true;
      if (first("regenerate")) {
        await this.room.pass("regenerate is sent");
        socket.post(history.slice(0, -1), { trigger: "regenerate-message" });
      }
      return false;
    });
    this.room.replaced = old;
  }

  /** The application has the message answered. */
  async applicationAsks(n) {
    const message = this.#message(n);
    await this.#until(async ({ history, first }) => {
      if (history.some((entry) => entry.id === message.id)) return true;
      if (first(`ask ${n}`)) {
        await this.room.pass(`the application asks ${n}`);
        this.client.route.get("/ask", { method: "POST", body: JSON.stringify(message) }).then((answer) => answer.text(), () => {}).catch(() => {});
        await pause(20);
      }
      return false;
    });
  }

  async submits(n) {
    const options = { submissionId: `s-${this.room.name}`, idempotencyKey: `key ${this.room.name}` };
    await this.#until(async ({ socket }) => {
      await this.room.pass(`message ${n} is submitted`);
      const reply = await socket.call("submitMessages", [[this.#message(n)], options]);
      if (!reply.success) throw new Error(`not accepted: ${reply.error}`);
      return true;
    });
  }

  async submissionIs(n, status) {
    await this.#until(async ({ socket }) => {
      const { result } = await socket.call("inspectSubmission", [`s-${this.room.name}`]);
      if (result?.status === status) return true;
      if (["completed", "aborted", "error", "skipped"].includes(result?.status)) {
        throw new Error(`submission ${n} is ${JSON.stringify(result)}, not ${status}`);
      }
      return false;
    });
  }

  /** Stops whatever runs, until nothing does. */
  async stops(n) {
    const { room } = this;
    await this.#until(async ({ socket, history }) => {
      const { reason, id } = await socket.ask();
      if (reason === "idle" && room.acted) {
        await room.pass("the stop is seen");
        room.stopped = textOf(this.#answer(history, n) ?? { parts: [] });
        return true;
      }
      if (reason === "idle") room.acted = true;
      if (id !== undefined) {
        await room.pass("stop is sent");
        room.acted = true;
        socket.cancel(id);
        await socket.frame(isDone(id));
      }
      return false;
    });
  }

  async clears() {
    const { room } = this;
    await this.#until(async ({ socket, history, first }) => {
      if (history.length === 0 && room.acted) {
        await room.pass("the empty conversation is seen");
        return true;
      }
      if (first("clear")) {
        await room.pass("clear is sent");
        room.acted = true;
        socket.clear();
        await socket.settle();
      }
      return false;
    });
  }
}

/** What the runtime says to a request whose object lost its memory under it. */
const CANCELLED = /runtime canceled this request/;

const changes = (frame) =>
  isTranscript(frame) ||
  isAnswer(frame) ||
  ["cf_agent_message_updated", "cf_agent_chat_recovering", "cf_agent_chat_clear"].includes(frame.type) ||
  (isResponse(frame) && frame.done === true);
