// The same scripts against this worker and against the original; what clients show at rest is compared. A difference passes only
// where named.mjs gives its reason and differences.json what each side shows; one that is listed has to be there.
//
// `npm run e2e:peer`; a part of it by `npm run e2e:peer -- --test-name-pattern=WORDS`. `BLESS=1` writes what was found into
// differences.json and the table into docs/protocol.md; the reasons are given by hand.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startProvider } from "../provider.mjs";
import { startWorker } from "../worker.mjs";
import { bundlePeer } from "./bundle.mjs";
import { NAMED, OPEN, REASONS } from "./named.mjs";
import { providerScripts } from "./provider.mjs";
import { SCRIPTS } from "./scripts.mjs";
import { Stage } from "./stage.mjs";
import { publish, published, table } from "./table.mjs";
import { differences } from "./view.mjs";

const SCRIPT_LIMIT_MS = 120_000;
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const GOLDEN = at("./differences.json");
const golden = JSON.parse(readFileSync(GOLDEN, "utf8"));
const sides = [];

before(async () => {
  if (!existsSync(at("../worker/build/index.js"))) throw new Error("the worker of the tests is not built: see tests/e2e/worker/README.md");
  await bundlePeer();
  sides.push(await side("ours", at("../worker/wrangler.toml")));
  // What the original logs about the faults that scripts provoke is its own affair.
  sides.push(await side("peer", at("./wrangler.toml"), /./));
});

after(async () => {
  if (process.env.BLESS) {
    const inOrder = SCRIPTS.filter(({ key }) => golden[key]).map(({ key }) => [key, golden[key]]);
    writeFileSync(GOLDEN, `${JSON.stringify(Object.fromEntries(inOrder), null, 1)}\n`);
  }
  for (const { worker } of sides) await worker.stop();
  for (const { name, provider } of sides) {
    // The original is not held to the rules of strict providers.
    await provider.stop().catch((error) => {
      if (name === "ours") throw error;
    });
  }
});

async function side(name, config, tolerate) {
  const provider = await startProvider({ scripts: providerScripts(), keepAlive: false });
  return { name, provider, worker: await startWorker({ config, vars: provider.vars, tolerate }) };
}

async function play(script, side, key) {
  const stage = new Stage({ side, agent: script.agent, key });
  try {
    await stage.watch();
    const { without, chance = [] } = (await script.play(stage)) ?? {};
    const view = await stage.view();
    for (const [section, lines] of Object.entries(view)) view[section] = lines.filter((line) => !without?.test(line));
    if (side.name === "peer") for (const section of chance) view[section] = ["depends on chance"];
    return view;
  } finally {
    await stage.close();
  }
}

for (const [index, script] of SCRIPTS.entries()) {
  // What is known to be wrong on our side is played and shown, and does not fail the run.
  test(script.key, { timeout: SCRIPT_LIMIT_MS, todo: OPEN[script.key] }, async () => {
    const shown = {};
    for (const side of sides) shown[side.name] = await play(script, side, `k${index}`);
    const found = differences(shown.ours, shown.peer);
    if (process.env.BLESS && !(script.key in OPEN)) golden[script.key] = Object.keys(found).length > 0 ? found : undefined;
    assert.deepEqual(found, golden[script.key] ?? {});
  });
}

test("every difference has a reason, and every reason a difference", () => {
  assert.deepEqual(Object.keys(NAMED).sort(), Object.keys(golden).filter((key) => golden[key]).sort());
  for (const [key, rows] of Object.entries(NAMED)) {
    assert.ok(rows.length > 0 && rows.every((row) => row in REASONS), `${key} has no reason`);
  }
  for (const key of Object.keys(OPEN)) assert.ok(key in NAMED, `there is no script ${key}`);
  for (const row of Object.keys(REASONS)) {
    assert.ok(Object.values(NAMED).some((rows) => rows.includes(row)), `${row} explains nothing`);
  }
});

test("the table of the documentation is this one", () => {
  if (process.env.BLESS) publish();
  assert.equal(published(), table());
  console.log(table());
});
