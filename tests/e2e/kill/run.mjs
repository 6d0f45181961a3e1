// The killer: batches of conversations side by side, each brought to a moment of its own, and then one death for all of them.

import { Client, Person, Room } from "./room.mjs";
import { effects, frames, hooks, requests, rest, screens, transcript } from "./oracles.mjs";
import { schedule } from "./schedule.mjs";
import { DOOMED, SCRIPTS } from "./scripts.mjs";
import { World, unrest } from "./world.mjs";

const MOMENT_LIMIT_MS = 30_000;
const ALARM_LIMIT_MS = 60_000;
const END_LIMIT_MS = 60_000;
const LOOK_MS = 500;
/** An object that was asked to die may leave the question open. */
const ANSWER_MS = 2_000;
/** Somebody is there: what takes longer than this waited for the alarm. */
const SLOW_S = 20;
/** An object without events is put to sleep after ten seconds. */
const HIBERNATION_MS = 13_000;

/**
 * Runs that are known to end badly, and why, by their label (`script:what`) or by the way they die. They stay in the schedule; one that
 * ends well is a failure too, so that this list gets shorter.
 */
export const KNOWN = new Map();
/** What is known to go wrong now and then, in which runs nobody can say, and why. */
const KNOWN_PROBLEMS = [
  [/^tab: \S+: the same messages in another order/, "a message that is sent while a recovered answer is resumed may stand behind its own answer until a reload"],
];
/** They are not waited for as long as the others. */
const KNOWN_LIMIT_MS = 8_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function within(promise, ms, what) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`${what} within ${ms} ms`)), ms)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs batches in one world and keeps the account. */
export class Killer {
  static async start({ seed, log = console.log, hooks: openTab } = {}) {
    const killer = new Killer();
    Object.assign(killer, { seed, log, openTab, runs: [], slow: [], tolerated: new Map(), kills: 0, idle: 0, processes: 0, began: Date.now() });
    killer.world = await World.start(seed);
    return killer;
  }

  /**
   * One batch. `plans`: `{script, targets, returns, viewer, label}`; `kind` names the deaths, `death` says what they are
   * (`kill`: SIGKILL and restart; `abort`, `panic`, `deploy`, `sleep`); `edge`: what stood still is let go just before, so that death comes in the
   * middle; `delay()`: how long it takes then.
   */
  async batch(kind, plans, { edge, delay = () => 0, death = "kill", random = false } = {}) {
    const started = Date.now();
    const { world } = this;
    const deaths = { kill: this.#sigkill, abort: this.#abort, panic: this.#panic, deploy: this.#deploy, sleep: this.#sleep };
    const rooms = plans.map((plan) => {
      const room = new Room(world, plan.label, (plan.doomed ? DOOMED : SCRIPTS)[plan.script], plan);
      Object.assign(room, { plan, kind });
      return room;
    });
    await Promise.all(rooms.map((room) => this.#enter(room)));
    const lives = Math.max(...plans.map((plan) => plan.targets?.length ?? 0));
    for (let life = 1; life <= lives; life += 1) {
      const there = rooms.filter((room) => room.target !== undefined);
      if (!random) await Promise.all(there.map((room) => this.#moment(room)));
      const alive = there.filter((room) => room.isHeld || random);
      if (edge) {
        there.forEach((room) => room.letGo());
        await pause(delay());
      }
      this.kills += alive.filter((room) => !room.isOver).length;
      this.idle += rooms.filter((room) => room.life === life).length - alive.filter((room) => !room.isOver).length;
      await deaths[death].call(this, rooms, kind);
    }
    await Promise.all(rooms.map((room) => this.#calm(room)));
    await Promise.all(rooms.map((room) => this.#leave(room)));
    // What is left in the files is looked at when nobody can change it any more.
    await world.kill();
    for (const room of rooms) {
      room.rows = attempt(room, "the files can be read", () => world.rows(room));
      attempt(room, "rest", () => rest(room, room.rows));
    }
    await world.restart();
    this.processes += 1;
    for (const room of rooms) this.#account(room);
    this.log(`${kind}: ${rooms.length} conversations, ${this.kills} kills so far, ${((Date.now() - started) / 1000).toFixed(1)} s`);
    return rooms;
  }

  async #enter(room) {
    const { world } = this;
    room.id = await world.idOf(room);
    const { viewer = "onlooker" } = room.plan;
    if (viewer === "onlooker") {
      room.onlooker = new Client(room, "onlooker");
      room.onlooker.stay().catch((error) => room.onlooker.left || room.problems.push(`the onlooker: ${error.stack}`));
      await room.onlooker.socket();
    } else if (viewer !== "nobody") {
      room.tab = await (await this.openTab())(room, world, viewer);
    }
    room.over = room.script.person(new Person(room)).then(
      () => room.tell("everything is done"),
      (error) => room.problems.push(`the person: ${error.stack}`),
    );
    room.over.then(() => (room.isOver = true));
  }

  /** The room stands still at its target, or has come to its end before. */
  async #moment(room) {
    await within(Promise.race([room.held, room.over]), MOMENT_LIMIT_MS, "the room was to stand still").catch((error) =>
      room.problems.push(error.message),
    );
  }

  async #sigkill(rooms, kind) {
    for (const room of rooms) room.die(kind);
    await this.world.kill();
    this.processes += 1;
    await this.world.restart();
  }

  /** `ctx.abort()`: the object is gone, the process is not. */
  async #abort(rooms, kind) {
    const ends = rooms.map((room) => room.die(kind, { lingers: true }));
    await Promise.all(rooms.map((room) => this.#tell(room, "abort")));
    ends.forEach((end) => end());
  }

  /** A panic in one object: the memory of all of them is gone, and so are the connections of that one. */
  async #panic(rooms, kind) {
    // recovery 114
    const ends = rooms.map((room, at) => room.die(kind, { survived: at > 0, lingers: true }));
    await this.#tell(rooms[0], "panic");
    ends.forEach((end) => end());
  }

  /** Another deployment of the same code takes over. */
  async #deploy(rooms, kind) {
    // recovery 120
    const ends = rooms.map((room) => room.die(kind, { lingers: true }));
    this.world.build += 1;
    await this.world.deploy({ BUILD: String(this.world.build) });
    ends.forEach((end) => end());
    const { build } = await (await this.#ask(rooms[0], "life")).json();
    if (build !== String(this.world.build)) rooms[0].problems.push(`build ${build} answers`);
  }

  /** Nobody says anything for long enough: memory is given up, and nothing but an event from outside brings it back. */
  async #sleep(rooms, kind) {
    // recovery 39
    const asked = async (room) => (await (await this.#ask(room, "life")).json()).asked;
    for (const room of rooms) await asked(room);
    await pause(HIBERNATION_MS);
    for (const room of rooms) {
      attempt(room, "asleep", () => {
        const rows = this.world.rows(room);
        if (rows.alarms.length > 0 || unrest(rows).length > 0) throw new Error(`${unrest(rows)} ${rows.alarms}`);
      });
      if ((await asked(room)) !== 1) room.problems.push("its memory was not given up");
      room.die(kind, { survived: true });
    }
  }

  #ask(room, what) {
    return fetch(`${this.world.worker.url}/agents/mortal/${room.name}/${what}`);
  }

  /** Asks an object to die; no answer comes of that. */
  async #tell(room, what) {
    const answered = this.#ask(room, what).then((answer) => answer.text(), () => {});
    await Promise.race([answered, pause(ANSWER_MS)]);
  }

  /** Nobody comes before the object is at rest by itself, where that was asked for; then everything comes to its end. */
  async #calm(room) {
    const since = Date.now();
    const limit = knownOf(room.plan) === undefined ? END_LIMIT_MS : KNOWN_LIMIT_MS;
    try {
      if (!room.admitted) {
        await this.#rests(room, ALARM_LIMIT_MS);
        room.admit();
      }
      await within(room.over, limit, "the conversation was to end");
      const seconds = (Date.now() - since) / 1000;
      if (room.returns === "client" && seconds > SLOW_S) this.slow.push(`${room.label} (${room.kind}): ${seconds.toFixed(0)} s`);
      await this.#rests(room, limit);
    } catch (error) {
      room.problems.push(error.message);
      room.admit();
    }
  }

  async #rests(room, limitMs) {
    const until = Date.now() + limitMs;
    for (;;) {
      let why;
      try {
        why = await this.world.unrest(room);
      } catch (error) {
        why = [error.message];
      }
      if (why.length === 0) return;
      if (Date.now() > until) throw new Error(`not at rest within ${limitMs} ms: ${why.join("; ")}`);
      await pause(LOOK_MS);
    }
  }

  /** Somebody comes late; then everybody is asked what they saw, and leaves. */
  async #leave(room) {
    const check = async (what, body) => {
      try {
        await body();
      } catch (error) {
        room.problems.push(`${what}: ${error.message}`);
      }
    };
    await check("late", async () => {
      const late = new Client(room, "late");
      const limit = knownOf(room.plan) === undefined ? END_LIMIT_MS : KNOWN_LIMIT_MS;
      const socket = await within(late.socket(), limit, "somebody was to get in late");
      const history = await late.route.history();
      const present = room.clients.map((client) => client.sockets.at(-1)).filter((each) => each?.isOpen);
      await Promise.all(present.map((each) => each.settle()));
      room.history = history;
      await check("transcript", () => transcript(room, history));
      await check("effects", () => effects(room, history));
      await check("requests", () => requests(room));
      await check("hooks", () => hooks(room, history));
      await check("screens", () => screens(room, history));
      await check("tab", () => room.tab?.shows(history));
      await check("frames", () => frames(room, socket, history));
    });
    for (const client of room.clients) {
      client.left = true;
      await Promise.all(client.sockets.map((each) => each.close()));
    }
    await room.tab?.close();
  }

  #account(room) {
    const { label, kind, plan, deaths } = room;
    const known = knownOf(plan);
    const problems = room.problems.filter((problem) => !isKnown(problem));
    for (const why of room.problems.filter(isKnown).map(reasonOf)) this.tolerated.set(why, [...(this.tolerated.get(why) ?? []), label]);
    this.runs.push({ label, kind, script: plan.script, deaths, problems, known });
    if (problems.length > 0) {
      this.log(`\n${known === undefined ? "FAILED" : `known (${known})`} ${label}: ${kind}\n  ${problems.join("\n  ")}`);
      if (known === undefined) this.log(room.describe(), "\nrows", JSON.stringify(room.rows, big), "\nevents", this.#eventsOf(room), "\n");
    }
  }

  /** The events of a room's turns, as the runtime printed them. */
  #eventsOf(room) {
    const ids = new Set((room.rows?.wk_turn ?? []).flatMap((turn) => [turn.id, turn.request_id, turn.root_request_id]));
    return this.world.worker.lines.filter((line) => [...ids].some((id) => line.includes(id))).map((line) => `\n  ${line}`).join("");
  }

  get failures() {
    return this.runs.filter((run) => (run.problems.length > 0) !== (run.known !== undefined));
  }

  report() {
    const kinds = [...new Set(this.runs.map((run) => run.kind))];
    const scripts = [...new Set(this.runs.map((run) => run.script))];
    const width = Math.max(...scripts.map((script) => script.length)) + 2;
    const cell = (script, kind) => {
      const runs = this.runs.filter((run) => run.script === script && run.kind === kind);
      const bad = runs.filter((run) => run.problems.length > 0).length;
      return runs.length === 0 ? "–" : bad === 0 ? String(runs.length) : `${runs.length}/${bad}!`;
    };
    const lines = kinds.map((kind, at) => `  ${at + 1}  ${kind}`);
    lines.push("", `${"".padEnd(width)}${kinds.map((_, at) => String(at + 1).padStart(7)).join("")}`);
    for (const script of scripts) lines.push(`${script.padEnd(width)}${kinds.map((kind) => cell(script, kind).padStart(7)).join("")}`);
    const seconds = ((Date.now() - this.began) / 1000).toFixed(0);
    lines.push(
      "",
      `${this.kills} kills in mid-work (and ${this.idle} of conversations at rest) in ${this.runs.length} runs of ${scripts.length} scripts, ` +
        `${this.processes} processes, ${this.failures.length} failures, ${seconds} s, seed ${this.seed}`,
    );
    for (const [why, labels] of this.tolerated) lines.push(`known, ${labels.length} times: ${why} (${labels.join("; ")})`);
    for (const slow of this.slow) lines.push(`slow: ${slow}`);
    for (const { label, kind, problems, known } of this.failures) {
      lines.push(`FAILED ${label} (${kind}): ${problems[0] ?? `ends well, and is listed as known: ${known}`}`);
      lines.push(`  again: npm run e2e:kill -- --seed ${this.seed} --only "${label}"`);
    }
    return lines.join("\n");
  }

  async stop() {
    await this.world.stop();
  }
}

const reasonOf = (problem) => KNOWN_PROBLEMS.find(([pattern]) => pattern.test(problem))?.[1];
const isKnown = (problem) => reasonOf(problem) !== undefined;
const knownOf = ({ label, death }) => KNOWN.get(label) ?? KNOWN.get(death);

const big = (_, value) => (typeof value === "bigint" ? String(value) : value);

function attempt(room, what, body) {
  try {
    return body();
  } catch (error) {
    room.problems.push(`${what}: ${error.message}`);
    return undefined;
  }
}

/** The whole schedule, or a part of it. */
export async function killAll({ seed, only, small, log = console.log }) {
  log(`seed ${seed}`);
  const killer = await Killer.start({ seed, log, hooks: () => import("./tab.mjs").then(({ openTab }) => openTab) });
  try {
    const scripts = Object.keys(SCRIPTS);
    const whole = await killer.batch("no death", scripts.map((script) => ({ script, label: `${script}:0` })));
    const actions = Object.fromEntries(whole.map((room) => [room.plan.script, room.actions.length]));
    for (const { kind, plans, options } of schedule({ seed, actions, known: KNOWN, only, small })) await killer.batch(kind, plans, options);
  } finally {
    // What provider and runtime have to say in the end is a run of its own, so that the account of the others is not lost.
    const problems = await killer.stop().then(() => [], (error) => [error.message]);
    killer.runs.push({ label: "the whole", kind: "no death", script: "provider and runtime", deaths: [], problems });
  }
  return killer;
}
