// `npm test`: every check there is, cheapest first. A failure stops only what depends on it; the run fails at the end.
// `npm test -- --only native,e2e` runs these stages and what they need; `--list` names them; what follows `--` goes to the
// last of them.
import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { start } from "./processes.mjs";
import { SetupError, ensure, ensureAll, fail, root } from "./setup.mjs";

const MINUTE = 60_000;
const WASM = ["--target", "wasm32-unknown-unknown"];
const DENY = ["--", "-D", "warnings"];

const folder = (path) => (existsSync(join(root, path)) ? readdirSync(join(root, path)) : []);
const examples = folder("examples").filter((name) => existsSync(join(root, "examples", name, "Cargo.toml")));
const npmRun = (workspace, script) => ["npm", "run", "--silent", script, "-w", workspace];
const nodeTest = (...args) => ["node", "--test", "--test-reporter=spec", ...args];

/**
 * What a stage runs: commands in a row; what it needs to have passed; `counted` if it has tests, so that running none is a
 * failure; `byName` if it runs only where it is asked for; and how many minutes it may take before it counts as hung.
 */
const STAGES = [
  { name: "fmt", title: "formatting", limit: 2, commands: () => [["cargo", "fmt", "--all", "--check"]] },
  {
    name: "scripts",
    title: "the scripts' own tests",
    counted: true,
    limit: 2,
    commands: () => [nodeTest("scripts/scripts.test.mjs")],
  },
  {
    name: "clippy",
    title: "lints, native",
    limit: 20,
    commands: () => [["cargo", "clippy", "--workspace", "--all-targets", "--features", "testkit", ...DENY]],
  },
  {
    name: "clippy-wasm",
    title: "lints, wasm32",
    limit: 15,
    commands: () => [
      ["cargo", "clippy", "--lib", ...WASM, "--features", "standalone", ...DENY],
      ...examples.map((name) => [
        "cargo",
        "clippy",
        "--lib",
        "--manifest-path",
        `examples/${name}/Cargo.toml`,
        ...WASM,
        ...DENY,
      ]),
    ],
  },
  {
    name: "native",
    title: "native tests",
    counted: true,
    limit: 20,
    commands: (extra) => [["cargo", "test", "--workspace", "--no-fail-fast", ...extra]],
  },
  {
    name: "seeds",
    title: "10,000 random lives and interleavings; every script dies at every point",
    counted: true,
    limit: 30,
    env: { WAKEFUL_SEEDS: process.env.WAKEFUL_SEEDS ?? "10000" },
    commands: (extra) => [
      ["cargo", "test", "--profile", "seeds", "--test", "interleavings", "--test", "sim", ...extra, "--", "--nocapture"],
    ],
  },
  {
    name: "docs",
    title: "API documentation",
    limit: 10,
    env: { RUSTDOCFLAGS: "-D warnings" },
    commands: () => [
      ["cargo", "doc", "--no-deps", "--features", "testkit"],
      ["cargo", "doc", "--no-deps", ...WASM, "--features", "standalone"],
    ],
  },
  {
    name: "web",
    title: "the page: types and build",
    limit: 5,
    counted: true,
    commands: () => [npmRun("web", "typecheck"), npmRun("web", "test"), ["node", "scripts/web.mjs"]],
  },
  { name: "worker", title: "worker build", limit: 15, commands: () => [["node", "scripts/build.mjs"]] },
  {
    name: "size",
    title: "size of the deployment",
    needs: ["web", "worker"],
    limit: 3,
    commands: () => [["node", "scripts/size.mjs"]],
  },
  {
    name: "examples",
    title: "examples as workers",
    needs: ["worker"],
    limit: 20,
    commands: () =>
      examples.map((name) => ({ cwd: join(root, "examples", name), command: ["node", "../../scripts/build.mjs"] })),
  },
  {
    name: "e2e-worker",
    title: "worker of the tests of hooks",
    needs: ["worker"],
    limit: 10,
    commands: () => [{ cwd: join(root, "tests/e2e/worker"), command: ["node", "../../../scripts/build.mjs"] }],
  },
  {
    name: "e2e",
    title: "real clients on the real runtime",
    counted: true,
    needs: ["web", "worker", "examples", "e2e-worker"],
    limit: 25,
    env: () => (chrome() ? { CHROME_BIN: chrome() } : {}),
    commands: (extra) => (endToEnd().length ? [nodeTest("--test-concurrency=1", ...extra, ...endToEnd())] : []),
    notes: () => (chrome() ? [] : ["skipped: tests of pages, no browser (set CHROME_BIN, or install chromium)"]),
  },
  {
    name: "peer",
    title: "the original and this worker, script by script",
    counted: true,
    byName: true,
    needs: ["e2e-worker"],
    limit: 30,
    commands: (extra) => [
      nodeTest(...extra, ...["compare", "budget", "repair"].map((name) => `tests/e2e/peer/${name}.test.mjs`)),
    ],
  },
  {
    name: "kill",
    title: "killed at every moment, on the real runtime",
    counted: true,
    byName: true,
    needs: ["e2e-worker"],
    limit: 40,
    commands: (extra) => [["node", "tests/e2e/kill.mjs", ...extra]],
  },
];

/** Stages that need nothing but the Rust toolchain, so that `npm run check` does not wait for anything else. */
const RUST_ONLY = new Set(["fmt", "scripts", "clippy", "clippy-wasm", "native", "seeds", "docs"]);

function endToEnd() {
  const files = folder("tests/e2e").filter(
    (name) => name.endsWith(".test.mjs") && (chrome() || !name.startsWith("page.")),
  );
  return [...files.sort(), "worker/application.test.mjs"].map((name) => `tests/e2e/${name}`);
}

let found;
function chrome() {
  const path = (process.env.PATH ?? "").split(":");
  found ??= [
    process.env.CHROME_BIN,
    ...["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].flatMap((name) =>
      path.map((dir) => join(dir, name)),
    ),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
  ].filter((candidate) => candidate && existsSync(candidate));
  return found[0];
}

/** What cargo test and node's runner report at their ends, added up. */
export function counts(output) {
  const sum = { passed: 0, failed: 0, skipped: 0 };
  for (const line of output.replace(/\u001b\[[0-9;]*m/g, "").split("\n")) {
    const cargo = /^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored/.exec(line);
    const node = /^(?:#|ℹ) (pass|fail|cancelled|skipped) (\d+)$/.exec(line.trim());
    if (cargo) {
      sum.passed += Number(cargo[1]);
      sum.failed += Number(cargo[2]);
      sum.skipped += Number(cargo[3]);
    }
    if (node)
      sum[{ pass: "passed", fail: "failed", cancelled: "failed", skipped: "skipped" }[node[1]]] += Number(node[2]);
  }
  return sum;
}

/** Runs a command, shows and keeps its output, and ends it where it takes too long. */
async function tee(command, { env, cwd = root, until }) {
  const { child, ended, kill } = start(command[0], command.slice(1), { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const show = (to) => (text) => {
    output += text;
    to.write(text);
  };
  child.stdout.setEncoding("utf8").on("data", show(process.stdout));
  child.stderr.setEncoding("utf8").on("data", show(process.stderr));
  const late = setTimeout(
    () => {
      console.error(`\ntest: '${command.slice(0, 3).join(" ")} …' did not end in time and is ended now`);
      kill("SIGKILL");
    },
    Math.max(0, until - Date.now()),
  );
  try {
    return { ok: (await ended) === 0, output };
  } catch (error) {
    console.error(`test: cannot run ${command[0]}: ${error.message}`);
    return { ok: false, output };
  } finally {
    clearTimeout(late);
  }
}

async function runStage(stage, env, extra) {
  const started = Date.now();
  const result = { ok: true, passed: 0, failed: 0, skipped: 0 };
  const own = typeof stage.env === "function" ? stage.env() : stage.env;
  for (const each of stage.commands(extra)) {
    const { command, cwd } = Array.isArray(each) ? { command: each } : each;
    const { ok, output } = await tee(command, { env: { ...env, ...own }, cwd, until: started + stage.limit * MINUTE });
    const sum = counts(output);
    for (const key of ["passed", "failed", "skipped"]) result[key] += sum[key];
    result.ok &&= ok;
  }
  for (const note of stage.notes?.() ?? []) console.log(note);
  if (stage.counted && result.passed + result.failed === 0) {
    console.error(`test: ${stage.name} ran no test`);
    result.ok = false;
  }
  // A stage that fails without a test to name for it is itself what failed.
  if (!result.ok && result.failed === 0) result.failed = 1;
  return { ...result, seconds: (Date.now() - started) / 1000 };
}

/** The stages asked for, with what they need, in the order of the list. */
export function choose(names, stages = STAGES) {
  const known = new Map(stages.map((stage) => [stage.name, stage]));
  const wanted = new Set();
  const add = (name) => {
    if (!known.has(name)) throw new SetupError(`no stage '${name}'; there are: ${[...known.keys()].join(", ")}`);
    wanted.add(name);
    known.get(name).needs?.forEach(add);
  };
  (names ?? stages.filter((stage) => !stage.byName).map((stage) => stage.name)).forEach(add);
  return stages.filter((stage) => wanted.has(stage.name));
}

function parse(args) {
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  const options = { extra: end < 0 ? [] : args.slice(end + 1), list: false, only: undefined };
  for (let at = 0; at < own.length; at++) {
    if (own[at] === "--list") options.list = true;
    else if (own[at].startsWith("--only=")) options.only = own[at].slice(7).split(",");
    else if (own[at] === "--only" && own[at + 1]) options.only = own[++at].split(",");
    else
      throw new SetupError(
        `unknown argument '${own[at]}'; usage: npm test -- [--list] [--only STAGE,…] [-- ARGUMENTS]`,
      );
  }
  return options;
}

function report(results) {
  console.log(
    `\n${"stage".padEnd(14)}${"result".padEnd(10)}${"passed".padStart(8)}${"failed".padStart(8)}${"skipped".padStart(9)}${"seconds".padStart(9)}`,
  );
  for (const [name, { state, passed = 0, failed = 0, skipped = 0, seconds = 0 }] of results) {
    console.log(
      `${name.padEnd(14)}${state.padEnd(10)}${String(passed).padStart(8)}${String(failed).padStart(8)}${String(skipped).padStart(9)}${seconds.toFixed(1).padStart(9)}`,
    );
  }
  const total = (key) => [...results.values()].reduce((sum, result) => sum + (result[key] ?? 0), 0);
  console.log(`\n${total("passed")} passed, ${total("failed")} failed`);
}

async function test(args) {
  const { only, list, extra } = parse(args);
  const stages = choose(only);
  if (list) return console.log(STAGES.map(({ name, title }) => `${name.padEnd(14)}${title}`).join("\n"));
  const env = stages.every(({ name }) => RUST_ONLY.has(name))
    ? await ensure({ rust: true, node: true })
    : await ensureAll();
  if (process.stdout.isTTY)
    Object.assign(env, { CARGO_TERM_COLOR: env.CARGO_TERM_COLOR ?? "always", FORCE_COLOR: env.FORCE_COLOR ?? "1" });

  const results = new Map();
  for (const stage of stages) {
    const missing = stage.needs?.filter((name) => results.get(name)?.state !== "ok") ?? [];
    if (missing.length) {
      console.log(`\n=== ${stage.name}: not run, because ${missing.join(" and ")} failed`);
      results.set(stage.name, { state: "not run" });
      continue;
    }
    console.log(`\n=== ${stage.name}: ${stage.title}`);
    const result = await runStage(stage, env, stage === stages.at(-1) ? extra : []);
    results.set(stage.name, { ...result, state: result.ok ? "ok" : "FAILED" });
    console.log(`=== ${stage.name}: ${result.ok ? "ok" : "FAILED"} in ${result.seconds.toFixed(1)} s`);
  }
  report(results);
  process.exitCode = [...results.values()].every(({ state }) => state === "ok") ? 0 : 1;
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await test(process.argv.slice(2)).catch(fail);
}
