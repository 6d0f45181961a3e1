// One script on one side: a conversation with its tabs (the stock hook) and its plain sockets, the model behind it, and what
// all of them show once nothing moves any more.

import { openRoom } from "../client.mjs";
import { openTab } from "../hook.mjs";
import { describe } from "./view.mjs";

/** Nothing arrived anywhere for so long, and nobody waits for anything: the conversation is at rest. */
const QUIET_MS = 400;
/** Somebody waits (a status, a model call), yet nothing comes: longer than any pause of either side, its retries included. */
const STUCK_MS = 6_000;
const LOOK_MS = 40;
const LIMIT_MS = 15_000;

export class Stage {
  constructor({ side, agent = "QueueChat", key }) {
    this.side = side;
    this.provider = side.provider;
    /** A word of this script alone, for names of gates. */
    this.key = key;
    this.agent = agent;
    this.room = openRoom(side.worker, { agent: kebab(agent) });
    this.tabs = [];
    /** Plain sockets that only listen; the first is there before anything happens. */
    this.watchers = [];
    this.firstCall = side.provider.calls.length;
  }

  async watch() {
    this.watchers.push(await this.room.connect());
    return this;
  }

  /** A tab with the stock hook. `ready: false` leaves it to the script what to wait for. */
  async tab({ ready = true, use = "think", agent = {}, ...chat } = {}) {
    const tab = await openTab(this.room, this.side.worker, { use, chat, agent: { agent: this.agent, ...agent } });
    this.tabs.push(tab);
    if (ready) await tab.ready();
    return tab;
  }

  /** Closes a tab as a user does; what it showed counts no more. */
  async leave(tab) {
    this.tabs = this.tabs.filter((other) => other !== tab);
    await tab.close();
  }

  /** The page loaded anew. */
  async reload(tab, options) {
    await this.leave(tab);
    return this.tab(options);
  }

  /** A client without a framework, to send what the hook never would. */
  socket() {
    return this.room.connect();
  }

  /** A gate of this script; scripts of the provider that name it stand still there. */
  gate(name = "") {
    return this.provider.gate(this.key + name);
  }

  get calls() {
    return this.provider.calls.slice(this.firstCall);
  }

  /** The tool call a page is asked about, by the name of its tool; the first there is without one. */
  async waiting(tool = "", state = /input-available|approval-requested/) {
    const calls = (message) => message.parts.filter((part) => part.type.startsWith("tool-") && part.toolCallId !== undefined);
    const fits = (part) => state.test(part.state) && part.type.endsWith(tool);
    const history = await this.stored((messages) => messages.flatMap(calls).some(fits), `an open call of ${tool || "a tool"}`);
    return history.flatMap(calls).find(fits);
  }

  /** The n-th model request of this script, from 1. */
  async modelCall(n) {
    await this.until(() => this.calls.length >= n, `model request ${n}`);
    return this.calls[n - 1];
  }

  /** Requests that ended so far, as the listeners were told. */
  get ended() {
    return new Set(this.frames.filter((frame) => frame.done === true && !frame.replay).map((frame) => frame.id));
  }

  get frames() {
    return this.watchers.flatMap((socket) => socket.frames).filter((frame) => frame.type === "cf_agent_use_chat_response");
  }

  /** Waits until `n` requests have ended. */
  async ends(n) {
    await this.until(() => this.ended.size >= n, `${n} ended requests`);
  }

  /** Waits until a listener saw this text stream by. */
  async streamed(text) {
    await this.until(() => this.text.includes(text), `"${text}" in the stream`);
  }

  get text() {
    return this.frames.map((frame) => chunkOf(frame)?.delta ?? "").join("");
  }

  /** Waits until some part of the stored transcript fits. */
  async stored(fits, what = "a stored message") {
    for (const limit = Date.now() + LIMIT_MS; ; ) {
      const history = await this.room.history();
      if (fits(history)) return history;
      if (Date.now() > limit) throw new Error(`${this.side.name}: ${what} did not come: ${JSON.stringify(history)}`);
      await pause();
    }
  }

  /** Waits until so many questions are stored. */
  async asked(n) {
    return this.stored((history) => history.filter((message) => message.role === "user").length === n, `question ${n}`);
  }

  /** Says a message in a tab and waits until the tab and a listener know how it ended. */
  async turn(tab, text) {
    await this.act(tab, () => tab.now.sendMessage({ text }));
  }

  /** Does something in a tab that makes one turn. Its status alone says nothing: it may not have begun to change yet. */
  async act(tab, action) {
    const [before, ended] = [tab.turnsEnded.length, this.ended.size];
    await action();
    await tab.until(() => tab.turnsEnded.length > before, { what: "the end of the turn in the tab" });
    await tab.until((now) => now.status === "ready" || now.status === "error", { what: "a status at rest" });
    await this.ends(ended + 1);
  }

  /** Waits until the tab has lost its socket. */
  async lost(tab, cut) {
    const lost = new Promise((resolve) => tab.agent.addEventListener("close", resolve, { once: true }));
    await cut();
    await lost;
  }

  /** The runtime dies and comes back; tabs find their way by themselves, the listener has to be opened anew. */
  async restart(tab) {
    const back = new Promise((resolve) => tab.agent.addEventListener("open", resolve, { once: true }));
    await this.lost(tab, () => this.side.worker.restart());
    await this.watch();
    await back;
  }

  /** Everything that is going on, small enough to compare. */
  #pulse() {
    const sockets = this.room.sockets.reduce((sum, socket) => sum + socket.log.length, 0);
    const renders = this.tabs.reduce((sum, tab) => sum + tab.seen.length + tab.turnsEnded.length, 0);
    return `${sockets} ${renders} ${this.calls.length} ${this.#open()}`;
  }

  #open() {
    return this.calls.filter((call) => !call.finished && !call.aborted).length;
  }

  #settled() {
    const idle = ({ status, isServerStreaming, isRecovering, isToolContinuation }) =>
      (status === "ready" || status === "error") && !isServerStreaming && !isRecovering && !isToolContinuation;
    return this.#open() === 0 && this.tabs.every((tab) => tab.now !== undefined && idle(tab.now));
  }

  /** That nothing more comes cannot be awaited as an event: it is at rest when nothing came for a while. */
  async rest() {
    let pulse = "";
    let since = Date.now();
    for (;;) {
      const now = this.#pulse();
      if (now !== pulse) [pulse, since] = [now, Date.now()];
      const quiet = Date.now() - since;
      if (quiet > STUCK_MS || (quiet > QUIET_MS && this.#settled())) return;
      await pause();
    }
  }

  async until(fits, what) {
    for (const limit = Date.now() + LIMIT_MS; !fits(); await pause()) {
      if (Date.now() < limit) continue;
      throw new Error(`${this.side.name}: ${what} did not come within ${LIMIT_MS} ms\n${this.watchers[0].describe()}`);
    }
  }

  /** What is to be seen, once at rest. */
  async view() {
    await this.rest();
    return describe({ tabs: this.tabs, frames: this.frames, history: await this.room.history(), calls: this.calls, key: this.key });
  }

  async close() {
    await Promise.all(this.tabs.map((tab) => tab.close()));
    await Promise.all(this.room.sockets.map((socket) => socket.drop()));
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve, LOOK_MS));

export function chunkOf(frame) {
  try {
    return JSON.parse(frame.body);
  } catch {
    return undefined;
  }
}

/** The part of the URL that names a class. */
function kebab(name) {
  return name.replace(/(?!^)[A-Z]/g, "-$&").toLowerCase();
}
