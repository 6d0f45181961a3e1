// The same scripts against this worker and against the original; what clients show at rest is compared. A difference passes only
// where expected.mjs names it, and what it names has to be there.
//
// Run by `npm run e2e:peer`; a part by `-- --test-name-pattern=WORDS`. `PEER_SHOW=1` prints what each script shows.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startProvider } from "../provider.mjs";
import { startWorker } from "../worker.mjs";
import { bundlePeer } from "./bundle.mjs";
import { EXPECTED } from "./expected.mjs";
import { providerScripts } from "./provider.mjs";
import { SCRIPTS } from "./scripts.mjs";
import { Stage } from "./stage.mjs";
import { differences } from "./view.mjs";

const SCRIPT_LIMIT_MS = 120_000;
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const ONLY = process.env.PEER_ONLY;
const sides = [];
const results = new Map();

before(async () => {
  if (!existsSync(at("../worker/build/index.js"))) throw new Error("the worker of the tests is not built: see tests/e2e/worker/README.md");
  await bundlePeer();
  sides.push(await side("ours", at("../worker/wrangler.toml")));
  // What the original logs about the faults that scripts provoke is its own affair.
  sides.push(await side("peer", at("./wrangler.toml"), /./));
});

after(async () => {
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
    await script.play(stage);
    return await stage.view();
  } finally {
    await stage.close();
  }
}

for (const [index, script] of SCRIPTS.entries()) {
  test(`${script.group}: ${script.name}`, { timeout: SCRIPT_LIMIT_MS }, async () => {
    const shown = {};
    for (const side of sides) if (!ONLY || ONLY === side.name) shown[side.name] = await play(script, side, `k${index}`);
    if (process.env.PEER_SHOW) console.log(JSON.stringify({ script: script.name, shown }, null, 1));
    if (ONLY) return;
    const found = differences(shown.ours, shown.peer);
    results.set(script.name, found);
    assert.deepEqual(found, EXPECTED[script.name]?.differs ?? {});
  });
}
