// The worker under test: starts the built worker in a real workerd, ends it (gently or with SIGKILL) and starts it
// again on the same state and the same port. What runs is what `wrangler.toml` describes; nothing is built here.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const HOST = fileURLToPath(new URL("./host.mjs", import.meta.url));
const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));

/** Another deployment's configuration may be named, to run the same promises against a different build. */
const CONFIG = process.env.WAKEFUL_E2E_CONFIG ?? join(REPOSITORY, "wrangler.toml");
const START_LIMIT_MS = 60_000;

/** Lines of the runtime that mean a defect of ours, whatever the test at hand is about. */
const FATAL = /panicked at|RuntimeError: unreachable|already (mutably )?borrowed|Uncaught (\(in promise\)|Error|TypeError)/;

/**
 * Starts the worker with the given vars on an empty state directory.
 *
 * `kill()` is the power cut, `restart()` brings the process back on the same rows, `stop()` ends it, removes the state
 * and fails if the runtime reported a defect meanwhile (unless `tolerate` matches the line).
 */
export async function startWorker({ vars = {}, config = CONFIG, assets = false, stateBelow = tmpdir(), tolerate } = {}) {
  if (config === CONFIG && config.startsWith(REPOSITORY) && !existsSync(join(REPOSITORY, "build"))) {
    throw new Error("the worker is not built: run `npm run build` first");
  }
  const state = mkdtempSync(join(stateBelow, "wakeful-e2e-"));
  const lines = [];
  let port = 0;
  let running;

  const launch = async () => {
    const job = JSON.stringify({ config, port, state, vars, assets });
    running = await launchHost(job, lines);
    port = Number(new URL(running.url).port);
  };
  await launch();

  const kill = async () => {
    if (running === undefined) return;
    const { child, exited } = running;
    running = undefined;
    killGroup(child.pid);
    await exited;
  };

  return {
    get url() {
      return `http://127.0.0.1:${port}`;
    },
    get port() {
      return port;
    },
    /** Process id of the workerd that serves the worker. */
    get pid() {
      return workerdBelow(running.child.pid);
    },
    state,
    lines,
    kill,
    async restart() {
      await kill();
      await launch();
    },
    /** A new deployment of the same code takes over, with these vars on top: the runtime ends the old one as it sees fit. */
    async update(more) {
      vars = { ...vars, ...more };
      await running.update({ port, vars });
    },
    async stop() {
      if (running !== undefined) {
        const { child, exited } = running;
        running = undefined;
        child.stdin.end();
        const giveUp = setTimeout(() => killGroup(child.pid), 5_000);
        await exited;
        clearTimeout(giveUp);
      }
      rmSync(state, { recursive: true, force: true });
      const defects = lines.filter((line) => FATAL.test(line) && !tolerate?.test(line));
      if (defects.length > 0) throw new Error(`the runtime reported defects:\n${defects.join("\n")}`);
    },
  };
}

async function launchHost(job, lines) {
  const child = spawn(process.execPath, [HOST, job], {
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: "0" },
  });
  // The power cut closes this pipe under our hands.
  child.stdin.on("error", () => {});
  const exited = new Promise((resolve) => child.once("exit", resolve));
  let updated;
  const update = (change) => {
    const done = new Promise((resolve) => (updated = resolve));
    child.stdin.write(`${JSON.stringify(change)}\n`);
    return Promise.race([done, exited.then(() => Promise.reject(new Error("the runtime ended")))]);
  };
  const url = await new Promise((resolve, reject) => {
    const limit = setTimeout(() => {
      killGroup(child.pid);
      reject(new Error(`the runtime did not start within ${START_LIMIT_MS} ms:\n${lines.join("\n")}`));
    }, START_LIMIT_MS);
    const onLine = (line) => {
      const ready = line.startsWith('{"ready":') ? JSON.parse(line).ready : undefined;
      if (ready === undefined) {
        lines.push(line);
        if (process.env.WAKEFUL_E2E_LOG) console.error(line);
        return;
      }
      clearTimeout(limit);
      resolve(ready);
      updated?.(ready);
    };
    createInterface({ input: child.stdout }).on("line", onLine);
    createInterface({ input: child.stderr }).on("line", onLine);
    exited.then((code) => {
      clearTimeout(limit);
      reject(new Error(`the runtime ended with ${code} before it was ready:\n${lines.join("\n")}`));
    });
  });
  return { child, exited, url, update };
}

function killGroup(pid) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

function workerdBelow(pid) {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean);
  const found = children.find((child) => readFileSync(`/proc/${child}/comm`, "utf8").trim() === "workerd");
  if (found === undefined) throw new Error(`no workerd below process ${pid}`);
  return Number(found);
}
