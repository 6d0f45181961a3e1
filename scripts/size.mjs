// `npm run size`: what a deployment uploads, compressed, against the budget; what the function names in it cost; and which
// crates the code comes from. Fails above the budget. `npm run size -- --functions 40` also lists the largest functions.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { SetupError, ensureAll, fail, root } from "./setup.mjs";
import { crateOf, dataBytes, functions, namesSection, sections, without } from "./wasm.mjs";
import { buildPage } from "./web.mjs";

/**
 * All modules together, gzip at the default level, 1 kB = 1,000 bytes. The chat alone was held to 350 kB and fitted; tools in the
 * page, approvals, the hooks around step and call, submissions and recovery came on top. Cloudflare takes 3 MB from a free account.
 */
const BUDGET = 445_000;
const CONTRIBUTORS = 10;

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`.padStart(10);
const row = (label, ...cells) =>
  console.log(`  ${label.padEnd(34)}${cells.map((cell) => String(cell).padStart(10)).join("  ")}`);
const gzip = (bytes) => gzipSync(bytes).length;

/** The modules wrangler would upload, bundled by wrangler itself. */
function uploaded(env) {
  const folder = mkdtempSync(join(tmpdir(), "wakeful-size-"));
  try {
    const dry = spawnSync(
      "node",
      [join(root, "node_modules/wrangler/bin/wrangler.js"), "deploy", "--dry-run", "--outdir", folder],
      { cwd: root, env, encoding: "utf8" },
    );
    if (dry.status !== 0) throw new SetupError(`wrangler could not bundle the worker:\n${dry.stdout}${dry.stderr}`);
    const names = readdirSync(folder, { recursive: true })
      .map(String)
      .filter((name) => /\.(wasm|m?js)$/.test(name));
    return names.map((name) => ({ name, bytes: readFileSync(join(folder, name)) }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function contributors(wasm) {
  const byCrate = new Map();
  for (const { name, size } of functions(wasm)) byCrate.set(crateOf(name), (byCrate.get(crateOf(name)) ?? 0) + size);
  return [...byCrate].sort((a, b) => b[1] - a[1]);
}

/** Copies of one generic function count together: what is shown is what writing it differently could win. */
function largestFunctions(wasm, count) {
  const byName = new Map();
  for (const { name, size } of functions(wasm)) {
    const sum = byName.get(name) ?? { copies: 0, size: 0 };
    byName.set(name, { copies: sum.copies + 1, size: sum.size + size });
  }
  const largest = [...byName].sort((a, b) => b[1].size - a[1].size).slice(0, count);
  for (const [name, { copies, size }] of largest)
    console.log(`${kB(size)}  ${String(copies).padStart(4)} x  ${name || "(no name)"}`);
}

export async function size(env, { functionCount = 0 } = {}) {
  const modules = uploaded(env);
  const wasm = modules.filter(({ name }) => name.endsWith(".wasm"));
  if (wasm.length !== 1) throw new SetupError(`expected one wasm module in the upload, found ${wasm.length}`);
  const bytes = wasm[0].bytes;
  const total = modules.reduce((sum, module) => sum + gzip(module.bytes), 0);

  console.log("\nWhat is deployed");
  row("", "size", "gzip");
  for (const module of modules)
    row(module.name.replace(/^[0-9a-f]{40}-/, ""), kB(module.bytes.length), kB(gzip(module.bytes)));
  row("all modules", kB(modules.reduce((sum, module) => sum + module.bytes.length, 0)), kB(total));
  const names = namesSection(sections(bytes));
  row(
    "of this, names for stack traces",
    kB(names ? names.end - names.start : 0),
    kB(gzip(bytes) - gzip(without(bytes, names))),
  );

  console.log(`\nThe ${CONTRIBUTORS} largest contributors to the code`);
  const crates = contributors(bytes);
  const code = crates.reduce((sum, [, size]) => sum + size, 0);
  row("crate", "size", "share");
  for (const [crate, size] of crates.slice(0, CONTRIBUTORS))
    row(crate, kB(size), `${((100 * size) / code).toFixed(1)} %`);
  row(
    `${Math.max(0, crates.length - CONTRIBUTORS)} others`,
    kB(crates.slice(CONTRIBUTORS).reduce((sum, [, size]) => sum + size, 0)),
    "",
  );
  row("data (strings and tables)", kB(dataBytes(sections(bytes))), "");

  if (functionCount > 0) console.log(`\nThe ${functionCount} largest functions`);
  largestFunctions(bytes, functionCount);

  const verdict = total <= BUDGET ? "within" : "ABOVE";
  console.log(
    `\nsize: ${total.toLocaleString("en")} bytes gzip, ${verdict} the budget of ${BUDGET.toLocaleString("en")} (${Math.abs(BUDGET - total).toLocaleString("en")} ${total <= BUDGET ? "left" : "too many"})`,
  );
  return total <= BUDGET;
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    const env = await ensureAll();
    // Wrangler insists on the folder of the assets, whose size has no part in this.
    if (!existsSync(join(root, "web/dist"))) await buildPage(env);
    const at = process.argv.indexOf("--functions");
    process.exitCode = (await size(env, { functionCount: at < 0 ? 0 : Number(process.argv[at + 1] ?? 40) })) ? 0 : 1;
  } catch (error) {
    fail(error);
  }
}
