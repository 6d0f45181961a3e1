// Pure functions of the original, taken out of the installed packages, and our answers to compare theirs with.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** A file of `tests/golden/recovery`. */
export const golden = (name) => readFileSync(join(ROOT, "tests/golden/recovery", name), "utf8");

/** The hashes of our answers in such a file, by block. */
export const hashes = (name) => Object.fromEntries(golden(name).trim().split("\n").map((line) => line.split(" ")));

/** The file that a package's module is in. */
const fileOf = (module) => fileURLToPath(import.meta.resolve(module));

/**
 * These functions of a module, with those that they call. They use nothing else of it: the packages cannot be loaded outside of
 * their runtime, and do not export all of them.
 */
export function functions(module, wanted) {
  const file = fileOf(module);
  const own = readFileSync(file, "utf8");
  const imported = [...own.matchAll(/^import .* from "(\.[^"]+)";$/gm)].map(([, path]) => readFileSync(join(file, "..", path), "utf8"));
  const found = new Map();
  const take = (name) => {
    const source = [own, ...imported]
      .map((text) => text.match(new RegExp(`^(?:async )?function ${name}\\([^]*?^}`, "m"))?.[0])
      .find((source) => source !== undefined);
    if (!source || found.has(name)) return source !== undefined;
    found.set(name, source);
    for (const [, called] of source.matchAll(/\b(\w+)\(/g)) take(called);
    return true;
  };
  for (const name of wanted) assert.ok(take(name), `${file} has no function ${name} any more`);
  const constants = [...own.matchAll(/^const [A-Z_]+ = \d[^\n]*;$/gm)].map(([line]) => line);
  const source = [...constants, ...found.values()].join("\n");
  return new Function(`"use strict"; ${source}\nreturn { ${wanted.join(", ")} };`)();
}

/** A method of a class of a module, as a function. It uses no `this`. */
export function method(module, name) {
  const file = fileOf(module);
  const source = readFileSync(file, "utf8").match(new RegExp(`^\\t${name}(\\([^)]*\\) {[^]*?^\\t})`, "m"))?.[1];
  assert.ok(source, `${file} has no method ${name} any more`);
  return new Function(`"use strict"; return function ${name}${source};`)();
}

/** The draws of the Rust side: the same state gives the same values there. */
export function drawing() {
  let state = 0;
  return (...values) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return values[(state >>> 16) % values.length];
  };
}

/** FNV-1a of words, step by step. */
export const EMPTY = 0x811c9dc5;
export const hashed = (hash, word) => Math.imul(hash ^ word, 0x01000193);
export const hex = (hash) => (hash >>> 0).toString(16).padStart(8, "0");

/** FNV-1a of lines. */
export const hash = (lines) => hex(Buffer.from(lines.map((line) => `${line}\n`).join("")).reduce(hashed, EMPTY));

/** Our answers, one by one. Only asked for where a hash differs. */
export function ours(test, env) {
  const folder = mkdtempSync(join(tmpdir(), "answers-"));
  try {
    const file = join(folder, "answers");
    const { stderr } = spawnSync("cargo", ["test", ...test], {
      cwd: ROOT,
      env: { ...process.env, BLESS: undefined, ...env(file) },
      encoding: "utf8",
    });
    try {
      return readFileSync(file, "utf8").split("\n");
    } catch {
      throw new Error(`our answers cannot be had:\n${stderr}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The answers of a block of `tests/differential.rs`. */
export const oursOf = (name, block) => ours(["--test", "differential", name], (file) => ({ ANSWERS: file, ANSWERS_OF: `${block}` }));

/**
 * Where the two sides are meant to differ: names of rules with the reason why. `happened(name)` counts one that changed an answer;
 * `allHappened` fails on one that never did, because then its reason is none.
 */
export function differences(reasons) {
  const counts = Object.fromEntries(Object.keys(reasons).map((name) => [name, 0]));
  return {
    counts,
    happened(name) {
      assert.ok(name in counts, `${name} has no reason`);
      counts[name] += 1;
    },
    allHappened() {
      const never = Object.keys(counts).filter((name) => counts[name] === 0);
      assert.deepEqual(never, [], "named as differences, and no input shows them any more");
    },
  };
}
