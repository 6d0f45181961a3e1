// `npm start`: set-up, page, worker, then the local runtime with whatever arguments were given (`npm start -- --port 8790`).
// Needs no account. In the folder of an example, serves that example. Ends everything it started when it is told to end.
// The plug of the demonstration may be pulled here (docs/recovery.md), unless `--no-plug` says otherwise.
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { start as spawn, stop } from "./processes.mjs";
import { ensureAll, fail, root, run, SetupError } from "./setup.mjs";
import { buildPage } from "./web.mjs";

const PARENT_CHECK_MS = 1_000;

const here = existsSync(join(process.cwd(), "wrangler.toml")) ? process.cwd() : root;

/** The arguments for wrangler. What the caller says of PLUG counts. */
export function forWrangler(args, isDemonstration) {
  const own = args.filter((arg) => arg !== "--no-plug");
  const said = own.length < args.length || own.some((arg) => /^(--var=)?PLUG:/.test(arg));
  return isDemonstration && !said ? [...own, "--var", "PLUG:on"] : own;
}

async function serve(args) {
  const env = await ensureAll(here);
  if (process.stdout.isTTY)
    Object.assign(env, { FORCE_COLOR: env.FORCE_COLOR ?? "1", CARGO_TERM_COLOR: env.CARGO_TERM_COLOR ?? "always" });
  if (here === root) await buildPage(env);
  // Wrangler would build as well, but without cargo's progress bar; after this, its own call finds nothing to do.
  if ((await run("node", [join(root, "scripts/build.mjs")], { env, cwd: here })) !== 0)
    throw new SetupError("nothing to serve yet: repair the error above and start again");

  // Being told to end is the ordinary end of a server.
  process.exitCode = 0;
  process.stdout.on("error", () => stop());
  // Killed the hard way, the program that started this one has no chance to pass it on.
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    stop();
  }, PARENT_CHECK_MS);

  const wrangler = spawn("node", [join(root, "node_modules/wrangler/bin/wrangler.js"), "dev", "--local", ...forWrangler(args, here === root)], {
    env: { ...env, WAKEFUL_SESSION: "dev" },
    cwd: here,
    stdio: ["ignore", "pipe", "inherit"],
  });
  announce(wrangler.child.stdout);
  process.exit(await wrangler.ended);
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

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await serve(process.argv.slice(2)).catch(fail);
}
