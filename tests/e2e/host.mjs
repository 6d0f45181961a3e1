// One runtime process: reads a job from its arguments, serves the built worker in workerd, prints its address as
// one JSON line and lives until its standard input closes. It never builds anything and never touches an account.
//
// It leads a process group of its own, so that a test can end the runtime the hard way (SIGKILL of the group) and
// start it again on the same state.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { builtinModules, createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { deserialize, serialize } from "node:v8";

process.env.WRANGLER_SEND_METRICS = "false";
process.env.WRANGLER_LOG = "error";

// Runtime and bundler are the ones wrangler itself brings along, so that what is tested is what is deployed.
const require = createRequire(import.meta.url);
const wranglersOwn = createRequire(require.resolve("wrangler"));
const { Log, LogLevel, Miniflare, convertV4MiniflareOptions } = wranglersOwn("miniflare");

const job = JSON.parse(process.argv[2]);
const { workerOptions, modules } = await prepared();

const optionsOf = ({ port, vars }) =>
  convertV4MiniflareOptions({
    log: new Log(LogLevel.WARN),
    cf: false,
    host: "127.0.0.1",
    port,
    resourcePersistencePath: job.state,
    workers: [
      {
        ...workerOptions,
        name: workerOptions.name ?? "worker",
        modules,
        // Only the job's: a developer's own `[vars]` and `.dev.vars` must not decide what a test sees.
        bindings: vars,
      },
    ],
  });

const runtime = new Miniflare(optionsOf(job));
const tellReady = async () => process.stdout.write(`${JSON.stringify({ ready: (await runtime.ready).href })}\n`);
await tellReady();

// Each line is a new deployment: its vars and the port.
createInterface({ input: process.stdin }).on("line", async (line) => {
  await runtime.setOptions(optionsOf(JSON.parse(line)));
  await tellReady();
});
process.stdin.on("end", async () => {
  await runtime.dispose();
  process.exit(0);
});

/**
 * What is to be served. Reading the configuration takes wrangler, and loading wrangler takes longer than all the rest: a restart
 * finds beside the state what the first start found out.
 */
async function prepared() {
  const kept = join(job.state, ".prepared");
  if (existsSync(kept)) {
    const { config, ...last } = deserialize(readFileSync(kept));
    if (config === job.config) return last;
  }
  const { unstable_getMiniflareWorkerOptions: workerOptionsOf } = require("wrangler");
  const { workerOptions, main } = workerOptionsOf(job.config);
  // The rules by which wrangler picks up extra modules are replaced by the bundle below; the binding to hosted models
  // needs a login, and every test names a model of its own.
  delete workerOptions.modulesRules;
  delete workerOptions.ai;
  if (job.assets === false) delete workerOptions.assets;
  const modules = await bundle(resolve(dirname(job.config), main));
  // A start may be killed like anything else.
  writeFileSync(`${kept}.next`, serialize({ config: job.config, workerOptions, modules }));
  renameSync(`${kept}.next`, kept);
  return { workerOptions, modules };
}

/** The module graph below `entry` as wrangler would upload it: one script and the WebAssembly beside it. */
async function bundle(entry) {
  const { build } = wranglersOwn("esbuild");
  const outdir = dirname(entry);
  const { outputFiles } = await build({
    entryPoints: [entry],
    outdir,
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    external: ["cloudflare:*", "node:*", ...builtinModules],
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    outExtension: { ".js": ".mjs" },
    logLevel: "error",
  });
  const scriptFirst = [...outputFiles].sort((a, b) => Number(b.path.endsWith(".mjs")) - Number(a.path.endsWith(".mjs")));
  return scriptFirst.map(({ path, contents, text }) => {
    const isScript = path.endsWith(".mjs");
    return {
      type: isScript ? "ESModule" : "CompiledWasm",
      path: basename(path),
      contents: isScript ? text : Buffer.from(contents),
    };
  });
}
