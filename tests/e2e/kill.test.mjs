// Killed for real, the short way: some moments of every script. `npm run e2e:kill` takes them all (recovery §6.9).

import assert from "node:assert/strict";
import { test } from "node:test";
import { effects, hooks, requests, rest, transcript } from "./kill/oracles.mjs";
import { Room } from "./kill/room.mjs";
import { killAll } from "./kill/run.mjs";
import { SCRIPTS, ending } from "./kill/scripts.mjs";

const SEED = Number(process.env.WAKEFUL_SEED ?? 1);
const LEAST_KILLS = 40;
const LIMIT_MS = 240_000;

// recovery 1, 4, 15, 16, 18, 19, 31, 32, 33, 36, 102: the scripts; whatever the moment
test("nothing is lost, doubled or left behind, whenever the process dies", { timeout: LIMIT_MS }, async (t) => {
  const killer = await killAll({ seed: SEED, small: true });
  console.log(killer.report());
  for (const script of new Set(killer.runs.map((run) => run.script))) {
    await t.test(script, () => {
      const wrong = killer.failures.filter((run) => run.script === script);
      assert.deepEqual(wrong.map(({ label, problems }) => `${label}: ${problems[0]}`), []);
    });
  }
  assert.ok(killer.kills >= LEAST_KILLS, `only ${killer.kills} kills`);
});

/** A conversation with one tool that went well, as its witnesses describe it. */
function good() {
  const script = SCRIPTS["one tool"];
  const name = "k-1";
  const [[, question], [, answer]] = ending(script, name);
  const call = { type: "tool-once", toolCallId: "c", state: "output-available", output: { done: "once", call: "c" } };
  const history = [
    { id: "u", role: "user", parts: [{ type: "text", text: question }] },
    { id: "a", role: "assistant", parts: [{ type: "text", text: answer }, call] },
  ];
  const hit = { life: 1, tool: "once", call: "c", key: "t/a/c", answer: 1, of: 0 };
  const room = { script, name, deaths: [], hits: [hit], hooks: [{ message: "a" }] };
  room.requests = [{ life: 1, n: 1, round: 0 }, { life: 1, n: 1, round: 1 }];
  const rows = { wk_turn: [{ id: "t", state: "completed", ended_at: 1n }], alarms: [] };
  for (const table of ["wk_attempt", "wk_outbox", "wk_submission", "wk_continuation", "wk_notice", "wk_seg", "wk_call", "wk_msg", "wk_msg_part"]) rows[table] = [];
  return { room, history, rows };
}

const judge = ({ room, history, rows }) => {
  transcript(room, history);
  effects(room, history);
  requests(room);
  hooks(room, history);
  rest(room, rows);
};

const WRONG = {
  "a word is missing": ({ history }) => (history[1].parts[0].text = Room.words(4)),
  "a word is there twice": ({ history }) => (history[1].parts[0].text = "w0 w1 w1 w2 w3 w4 "),
  "a message is there twice": ({ history }) => history.push({ ...history[0], id: "u2" }),
  "an answer is there twice": ({ history }) => history.push({ ...history[1], id: "a2" }),
  "an answer is missing": ({ history }) => history.pop(),
  "a call is open": ({ history }) => (history[1].parts[1].state = "input-available"),
  "a call has another error": ({ history }) => Object.assign(history[1].parts[1], { state: "output-error", errorText: "?" }),
  "an output is made up": ({ history }) => (history[1].parts[1].output = {}),
  "an effect is there twice": ({ room }) => room.hits.push({ ...room.hits[0], life: 2 }),
  "an effect came under another call": ({ room }) => room.hits.push({ ...room.hits[0], call: "d", key: "t/a/d" }),
  "a second start has another key": ({ room }) => {
    room.hits[0].tool = "keyed";
    room.hits.push({ ...room.hits[0], key: "other" });
  },
  "an effect is in no message": ({ history }) => history[1].parts.pop(),
  "the model is asked too often": ({ room }) => room.requests.push({ life: 2, n: 1, round: 1 }),
  "a step is asked for again in one life": ({ room }) => {
    room.deaths.push({});
    room.requests.push({ life: 1, n: 1, round: 1 });
  },
  "the hook is forgotten": ({ room }) => (room.hooks = []),
  "a turn runs": ({ rows }) => Object.assign(rows.wk_turn[0], { state: "running", ended_at: null }),
  "a turn is parked": ({ rows }) => Object.assign(rows.wk_turn[0], { state: "parked", ended_at: null }),
  "a turn failed": ({ rows }) => (rows.wk_turn[0].state = "failed"),
  "an attempt is left": ({ rows }) => rows.wk_attempt.push({ n: 1, turn: "t" }),
  "a log is left": ({ rows }) => rows.wk_seg.push({ stream: "t.1", seg: 0 }),
  "a hook is owed": ({ rows }) => rows.wk_outbox.push({ payload: "{}" }),
  "an alarm is left": ({ rows }) => rows.alarms.push(1n),
};

test("what went well passes", () => judge(good()));
for (const [what, spoil] of Object.entries(WRONG)) {
  test(`noticed: ${what}`, () => {
    const run = good();
    spoil(run);
    assert.throws(() => judge(run));
  });
}
