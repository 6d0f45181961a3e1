// What surrounds the process that is killed: a provider and an endpoint for effects that survive it, the process itself, and a look
// into the files it leaves.

import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { startProvider } from "../provider.mjs";
import { startWorker } from "../worker.mjs";

/** What the model is asked where it is to go on from its own words. */
export const CHECKPOINT = "Continue exactly where you left off, without repeating.";

const CONFIG = fileURLToPath(new URL("../worker/wrangler.toml", import.meta.url));
/** Where a runtime keeps the objects of the class below its state. */
const OBJECTS = "do/worker-Mortal";
/** The row of an object's own file that says when its alarm is due. */
const ALARM_KEY = 1;

/** A small generator (mulberry32): a run is a function of its seed, as far as the machine lets it. */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class World {
  rooms = new Map();
  random;
  isUp = false;
  #came;

  static async start(seed) {
    const world = new World();
    world.random = randomOf(seed);
    world.#down();
    const answer = (call) => {
      const told = call.request.messages.findLast((message) => message.role === "user" && String(message.content).startsWith("go "));
      const room = world.rooms.get(told?.content.split(" ")[1]);
      if (room === undefined) throw new Error(`nobody knows whose request this is: ${call.text.slice(0, 300)}`);
      return room.model(call.request, () => call).catch((error) => swallow(room, error, call));
    };
    world.provider = await startProvider({ scripts: { go: answer, Continue: answer }, keepAlive: false });
    world.effects = createServer(async (request, response) => {
      // A connection that closes under a request's hands is none of the deaths that are meant here.
      response.shouldKeepAlive = false;
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
      const of = request.url === "/tool" ? body.input.room : body.of?.split(" ")[1];
      const room = world.rooms.get(of);
      if (room === undefined) return response.writeHead(404).end("{}");
      try {
        const answered = request.url === "/tool" ? await room.tool(body) : await room.hook(body);
        if (!response.destroyed) response.end(JSON.stringify(answered));
      } catch (error) {
        swallow(room, error);
        response.destroy();
      }
    });
    world.effects.listen(0, "127.0.0.1");
    await once(world.effects, "listening");
    world.build = 1;
    const { port } = world.effects.address();
    world.worker = await startWorker({
      config: CONFIG,
      vars: { ...world.provider.vars, EFFECTS: `http://127.0.0.1:${port}`, BUILD: "1" },
      // What a test asks for by name is no defect.
      tolerate: /the killer asked for it|panicked at|RuntimeError: unreachable/,
    });
    world.#back();
    return world;
  }

  #down() {
    this.isUp = false;
    this.up = new Promise((resolve) => (this.#came = resolve));
  }

  #back() {
    this.isUp = true;
    this.#came();
  }

  /** SIGKILL for everything of the runtime. */
  async kill() {
    this.#down();
    await this.worker.kill();
  }

  /** The runtime comes back on the same state. */
  async restart() {
    await this.worker.restart();
    this.#back();
  }

  /** A new deployment takes the place of the one that runs. */
  async deploy(vars) {
    this.#down();
    await this.worker.update(vars);
    this.#back();
  }

  async stop() {
    await this.worker?.stop();
    this.effects.closeAllConnections();
    this.effects.close();
    await this.provider.stop();
  }

  /** The name of a room's object in the files. */
  async idOf(room) {
    const answer = await fetch(`${this.worker.url}/id/${room.name}`);
    if (!answer.ok) throw new Error(`no id of ${room.name}: ${answer.status}`);
    return answer.text();
  }

  #looks = Promise.resolve();

  /** Why a room's object is not at rest. One look at a time, and only at what changed: looking must not slow down what is looked at. */
  unrest(room) {
    const look = async () => {
      const file = join(this.worker.state, OBJECTS, `${room.id}.sqlite`);
      const version = [file, `${file}-wal`].map((each) => statSync(each, { throwIfNoEntry: false })?.mtimeMs).join();
      if (room.looked?.version !== version) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        room.looked = { version, why: unrest(read(file, WORK)) };
      }
      return room.looked.why;
    };
    const looked = this.#looks.then(look);
    this.#looks = looked.catch(() => {});
    return looked;
  }

  /** All rows of a room's object, and its alarms; `undefined` while it has none. Nothing of it is woken. */
  rows(room) {
    const folder = join(this.worker.state, OBJECTS);
    const rows = read(join(folder, `${room.id}.sqlite`));
    if (rows === undefined) return undefined;
    const due = (rows._cf_METADATA ?? []).find(({ key }) => Number(key) === ALARM_KEY)?.value;
    const slots = read(join(folder, "metadata.sqlite"))?._cf_ALARM ?? [];
    rows.alarms = [due, ...slots.filter((slot) => Object.values(slot).includes(room.id)).map((slot) => JSON.stringify(slot, big))].filter(
      (alarm) => alarm !== undefined && alarm !== null,
    );
    return rows;
  }
}

const big = (_, value) => (typeof value === "bigint" ? String(value) : value);

function swallow(room, error, call) {
  const isEnd = error.constructor.name === "Died" || error.constructor.name === "Gone";
  if (!isEnd) room.problems.push(`outside of the process: ${error.stack}`);
  call?.response.destroy();
}

/** All rows of these tables of a database, or of all, taken from a copy: it may be in use. */
export function read(file, only) {
  if (!existsSync(file)) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "wakeful-rows-"));
  try {
    for (const suffix of ["", "-wal"]) if (existsSync(file + suffix)) copyFileSync(file + suffix, join(folder, `db${suffix}`));
    const db = new DatabaseSync(join(folder, "db"));
    try {
      const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all();
      return Object.fromEntries(
        tables.filter(({ name }) => only?.includes(name) ?? true).map(({ name }) => {
          const all = db.prepare(`SELECT * FROM ${name}`);
          all.setReadBigInts(true);
          return [name, all.all()];
        }),
      );
    } finally {
      db.close();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The tables that say whether anything is to be done. */
const WORK = ["wk_turn", "wk_attempt", "wk_outbox", "wk_submission"];

/** Why a room's object is not at rest, by its rows; nothing if it is. A turn that waits for a page or a person rests. */
export function unrest(rows) {
  if (rows?.wk_turn === undefined) return [];
  const why = [];
  const live = rows.wk_turn.filter((turn) => turn.ended_at === null);
  for (const turn of live) if (turn.state !== "parked") why.push(`turn ${turn.id} is ${turn.state}`);
  for (const attempt of rows.wk_attempt) why.push(`attempt ${attempt.n} of ${attempt.turn} is left`);
  for (const { payload } of rows.wk_outbox) why.push(`owed: ${payload}`);
  for (const { id, status } of rows.wk_submission.filter((submission) => submission.completed_at === null)) why.push(`submission ${id} is ${status}`);
  return why;
}

