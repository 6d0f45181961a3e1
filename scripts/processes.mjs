// Programs these scripts start, and how they end: whatever ends the script ends them too, with all that they started
// themselves, so that no compiler and no runtime is left behind.
import { spawn } from "node:child_process";
import { constants } from "node:os";

/** How long a program may take to end by itself before it is killed. */
const GRACE_MS = 5_000;

/** Process ids to signal; negative for a whole process group. */
const live = new Set();
let stopping = false;

function signalAll(signal, targets = live) {
  for (const target of targets) {
    try {
      process.kill(target, signal);
    } catch (error) {
      // Gone already; macOS says EPERM where only the dead are left.
      if (error.code !== "ESRCH" && error.code !== "EPERM") throw error;
    }
  }
}

/** Ends the programs and then this process; asked a second time, does not wait for them. */
export function stop(signal = "SIGTERM") {
  signalAll(stopping ? "SIGKILL" : "SIGTERM");
  if (stopping) return;
  stopping = true;
  process.exitCode ??= 128 + constants.signals[signal];
  if (live.size === 0) process.exit();
  setTimeout(() => signalAll("SIGKILL"), GRACE_MS).unref();
}

function watchSignals() {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, stop);
  process.on("exit", () => signalAll("SIGKILL"));
}

/**
 * Starts a program. `ended` resolves to its exit code (128 and more for a signal) once it and its output have ended.
 * It leads a process group of its own unless `foreground` says that it has to read from the terminal.
 */
export function start(command, args, { env, cwd, stdio = ["ignore", "inherit", "inherit"], foreground = false } = {}) {
  if (process.listenerCount("SIGTERM", stop) === 0) watchSignals();
  const child = spawn(command, args, { env, cwd, stdio, detached: !foreground });
  const target = foreground ? child.pid : -child.pid;
  if (child.pid) live.add(target);
  const ended = new Promise((done, failed) => {
    child.once("error", failed);
    // What is left in the group now was forgotten by the program that started it.
    child.once("exit", () => signalAll("SIGKILL", foreground ? [] : [target]));
    child.once("close", (code, signal) => {
      live.delete(target);
      if (stopping && live.size === 0) process.exit();
      done(code ?? 128 + constants.signals[signal]);
    });
  });
  return { child, ended, kill: (signal) => signalAll(signal, [target]) };
}
