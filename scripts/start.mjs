// `npm start`: set-up, page, worker, then the local runtime with whatever arguments were given (`npm start -- --port 8790`).
// Needs no account. In the folder of an example, serves that example. Ends everything it started when it is told to end.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ensureAll, fail, root, run, SetupError } from "./setup.mjs";
import { buildPage } from "./web.mjs";

/** How long a child may take to end by itself before it is killed. */
const GRACE_MS = 5_000;

const here = existsSync(join(process.cwd(), "wrangler.toml")) ? process.cwd() : root;

async function start(args) {
  const env = await ensureAll(here);
  if (process.stdout.isTTY)
    Object.assign(env, { FORCE_COLOR: env.FORCE_COLOR ?? "1", CARGO_TERM_COLOR: env.CARGO_TERM_COLOR ?? "always" });
  if (here === root) await buildPage(env);
  // Wrangler would build as well, but without cargo's progress bar; after this, its own call finds nothing to do.
  if ((await run("node", [join(root, "scripts/build.mjs")], { env, cwd: here })) !== 0)
    throw new SetupError("nothing to serve yet: repair the error above and start again");

  // A process group of its own, so that the runtime and a running compiler end with it.
  const wrangler = spawn("node", [join(root, "node_modules/wrangler/bin/wrangler.js"), "dev", "--local", ...args], {
    env: { ...env, WAKEFUL_SESSION: "dev" },
    cwd: here,
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const signalGroup = (signal) => {
    try {
      process.kill(-wrangler.pid, signal);
    } catch (error) {
      if (error.code !== "ESRCH") throw error;
    }
  };
  let ending = false;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      signalGroup(ending ? "SIGKILL" : "SIGTERM");
      ending = true;
      setTimeout(() => signalGroup("SIGKILL"), GRACE_MS).unref();
    });
  }
  announce(wrangler.stdout);

  const code = await new Promise((done, failed) => {
    wrangler.once("error", failed);
    wrangler.once("exit", (exit, signal) => done(ending ? 0 : signal ? 1 : exit));
  });
  signalGroup("SIGKILL");
  process.exit(code);
}

/** Passes the runtime's output on and says where to click as soon as it listens. */
function announce(output) {
  let line = "";
  let announced = false;
  output.setEncoding("utf8");
  output.on("data", (text) => {
    process.stdout.write(text);
    if (announced) return;
    line = (line + text).slice(-4_096);
    const address = /Ready on (https?:\/\/[^\s\u001b]+)/.exec(line)?.[1];
    if (!address) return;
    announced = true;
    process.stdout.write(`\n  wakeful is running.  Open ${address}  (Ctrl-C ends it)\n\n`);
  });
}

await start(process.argv.slice(2)).catch(fail);
