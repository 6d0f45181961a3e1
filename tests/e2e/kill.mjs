// `npm run e2e:kill`: the whole schedule. `-- --seed N` repeats a run, `-- --only "one tool:at 5"` a single one of it, or all of a
// script.

import { parseArgs } from "node:util";
import { killAll } from "./kill/run.mjs";

const { values } = parseArgs({
  options: { seed: { type: "string" }, only: { type: "string" }, small: { type: "boolean" } },
});
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const killer = await killAll({ seed, only: values.only, small: values.small });
console.log(`\n${killer.report()}`);
console.log(`\n# pass ${killer.runs.length - killer.failures.length}\n# fail ${killer.failures.length}`);
process.exit(killer.failures.length === 0 ? 0 : 1);
