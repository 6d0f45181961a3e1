// Builds the crate in the current folder into its build/ (index.js and index_bg.wasm), which is what wrangler's `[build]`
// command runs. A build that is up to date ends at once; one that fails or is cut off leaves the last good output alone.
// Arguments are passed on to worker-build.
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { start } from "./processes.mjs";
import { SetupError, ensureAll, fail, root } from "./setup.mjs";
import { withPlainNames } from "./wasm.mjs";

const crate = process.cwd();
const out = join(crate, "build");
const stamp = join(out, ".inputs.json");
/**
 * `npm start` is running and this is a rebuild: it leaves the optimiser out, which takes as long as the compiler, and the
 * session must survive a source that does not compile.
 */
const inSession = process.env.WAKEFUL_SESSION === "dev";
const outputs = ["index.js", "index_bg.wasm"];

function manifest() {
  if (!existsSync(join(crate, "Cargo.toml"))) {
    throw new SetupError(`${crate} has no Cargo.toml: run this in the folder of the worker's crate`);
  }
  const text = readFileSync(join(crate, "Cargo.toml"), "utf8");
  const sections = text.split(/^(?=\[)/m);
  const name = (section) =>
    /^name\s*=\s*"([^"]+)"/m.exec(sections.find((each) => each.startsWith(`[${section}]`)) ?? "")?.[1];
  return {
    lib: (name("lib") ?? name("package") ?? "").replaceAll("-", "_"),
    standalone: /^standalone\s*=/m.test(text),
  };
}

/** The folder with Cargo.lock, which is also where cargo puts target/. */
function workspace() {
  for (let dir = crate; dir !== dirname(dir); dir = dirname(dir)) if (existsSync(join(dir, "Cargo.lock"))) return dir;
  return crate;
}

const version = (path) => {
  const seen = statSync(path, { throwIfNoEntry: false });
  return seen ? `${seen.mtimeMs}/${seen.size}` : "absent";
};

/** Every file the build read, by cargo's own account, and the manifests around them; undefined if cargo gives no account. */
function inputs(lib) {
  const top = workspace();
  const target = process.env.CARGO_TARGET_DIR ? resolve(crate, process.env.CARGO_TARGET_DIR) : join(top, "target");
  const account = join(target, "wasm32-unknown-unknown/release", `${lib}.d`);
  if (!existsSync(account)) return undefined;
  const manifests = [crate, top, root].map((dir) => join(dir, "Cargo.toml"));
  const files = new Set([
    ...manifests,
    join(top, "Cargo.lock"),
    join(top, ".cargo/config.toml"),
    join(root, "rust-toolchain.toml"),
  ]);
  // Lines of a makefile: `product: source source`, with spaces inside a path escaped.
  for (const line of readFileSync(account, "utf8").split("\n")) {
    for (const source of line.split(": ")[1]?.match(/(?:\\ |\S)+/g) ?? []) files.add(source.replaceAll("\\ ", " "));
  }
  return files;
}

function isFresh(key) {
  try {
    const last = JSON.parse(readFileSync(stamp, "utf8"));
    return (
      last.key === key &&
      (last.optimised || inSession) &&
      Object.entries(last.files).every(([path, seen]) => version(path) === seen)
    );
  } catch {
    return false;
  }
}

function remember(key, lib, started) {
  const files = inputs(lib);
  if (!files) return;
  // A source saved while the compiler ran may or may not be in the result: then the next build has to look again.
  for (const path of files) if ((statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) >= started) return;
  for (const name of outputs) files.add(join(out, name));
  writeFileSync(
    stamp,
    JSON.stringify({
      key,
      optimised: !inSession,
      files: Object.fromEntries([...files].map((path) => [path, version(path)])),
    }),
  );
}

/** Staging folders of builds that were killed. */
function sweep() {
  for (const name of readdirSync(out)) {
    const pid = /^\.next-(\d+)$/.exec(name)?.[1];
    if (pid && !isAlive(Number(pid))) rmSync(join(out, name), { recursive: true, force: true });
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Each file is replaced in one step, so a reader sees an old or a new one, never half of one. */
function publish(staging) {
  for (const name of readdirSync(staging).sort().reverse()) {
    const to = join(out, name);
    if (statSync(join(staging, name)).isDirectory()) rmSync(to, { recursive: true, force: true });
    renameSync(join(staging, name), to);
  }
}

/** The places of panics name source files: of dependencies, without the folder this machine keeps them in. */
function rustFlags(env) {
  const registry = join(env.CARGO_HOME || join(homedir(), ".cargo"), "registry/src");
  const given = env.CARGO_ENCODED_RUSTFLAGS?.split("\x1f") ?? env.RUSTFLAGS?.split(" ") ?? [];
  return [...given.filter(Boolean), `--remap-path-prefix=${registry}=crates`].join("\x1f");
}

async function workerBuild(env, staging, args) {
  const { child, ended } = start(
    "worker-build",
    ["--release", ...(inSession ? ["--no-opt"] : []), "--out-dir", join("build", staging), ...args],
    {
      env: { ...env, RUST_BACKTRACE: "0", CARGO_ENCODED_RUSTFLAGS: rustFlags(env) },
      cwd: crate,
      stdio: inSession ? ["ignore", "ignore", "pipe"] : undefined,
    },
  );
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  const code = await ended;
  if (code !== 0) process.stderr.write(compilerMessages(text));
  return code;
}

/** What the compiler said, without the reports around it; wrangler prints it line by line in the middle of its own. */
function compilerMessages(text) {
  const all = text.split("\n").filter((line) => line.trim() && !line.startsWith("[INFO]"));
  const end = all.findIndex((line) => line.startsWith("Error: Compiling your crate"));
  return `${all.slice(0, end < 0 ? undefined : end).join("\n")}\n`;
}

/** Wrangler holds every request back after a failed build command, so a running session is told to go on with what it has. */
function broken(lib, first) {
  if (first || !inSession) throw new SetupError(`the build of ${lib} failed; the compiler's message is above`);
  console.error(
    `\nbuild: ${lib} does not compile (message above). The last good build goes on serving; save a repaired file to build again.\n`,
  );
}

async function build() {
  const { lib, standalone } = manifest();
  const args = [...(standalone ? ["--features", "standalone"] : []), ...process.argv.slice(2)];
  const env = await ensureAll(crate);
  const key = JSON.stringify([args, env.RUSTUP_TOOLCHAIN, env.WASM_BINDGEN_BIN, env.WASM_OPT_BIN, rustFlags(env)]);
  if (isFresh(key)) return;

  mkdirSync(out, { recursive: true });
  sweep();
  const first = !existsSync(join(out, "index.js"));
  console.log(`build: compiling ${lib}${first ? " (2 to 4 minutes the first time, under a minute later)" : ""}`);
  const staging = `.next-${process.pid}`;
  // Also when this process is told to end, because a later save supersedes the build.
  process.on("exit", () => rmSync(join(out, staging), { recursive: true, force: true }));
  const started = Date.now();
  if ((await workerBuild(env, staging, args)) !== 0) return broken(lib, first);
  const wasm = join(out, staging, "index_bg.wasm");
  writeFileSync(wasm, withPlainNames(readFileSync(wasm)));
  publish(join(out, staging));
  remember(key, lib, started);
  console.log(`build: ${lib} ready in ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

await build().catch(fail);
