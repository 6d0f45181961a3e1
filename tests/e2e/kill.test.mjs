// Killed for real, the short way: some moments of every script. `npm run e2e:kill` takes them all (recovery §6.9).

import assert from "node:assert/strict";
import { test } from "node:test";
import { killAll } from "./kill/run.mjs";

const SEED = Number(process.env.WAKEFUL_SEED ?? 1);
const LEAST_KILLS = 40;
const LIMIT_MS = 240_000;

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
