// `npm run mutants`: puts known weaknesses of such systems back, one at a time (src/mutants.rs), and shows which test notices each.
// `npm run mutants -- W1 N4` tries these. Everything is built once; a weakness is switched on by the environment.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { start } from "./processes.mjs";
import { SetupError, ensure, fail, root } from "./setup.mjs";

/** A test program that does not end within this counts as having noticed: something went round and round. */
const LIMIT_MS = 180_000;
/** In this order, cheapest first: the rows of the specification, then deaths and lives. */
const PROGRAMS = [
  { target: "scenarios", args: ["recovery"] },
  { target: "scenarios", args: [] },
  { target: "sim", args: [] },
];

/** The weaknesses that can be put back, and what they are. */
export function weaknesses(source) {
  return [...source.matchAll(/^ {4}\("([WN]\d+)", "(.*)"\),$/gm)].map(([, name, what]) => ({ name, what }));
}

async function output(command, args, env, limit = 0) {
  const { child, ended, kill } = start(command, args, { env, cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (part) => (text += part));
  let late = false;
  const timer =
    limit &&
    setTimeout(() => {
      late = true;
      kill("SIGKILL");
    }, limit);
  const code = await ended;
  clearTimeout(timer);
  return { code, text, late };
}

/** Builds the programs with the weaknesses in them, and says where they are. */
async function build(env) {
  console.log("building the tests with the weaknesses in them; a few minutes the first time");
  const targets = [...new Set(PROGRAMS.map(({ target }) => target))].flatMap((target) => ["--test", target]);
  const args = ["test", "--no-run", "--profile", "seeds", "--features", "mutants", "--message-format", "json", ...targets];
  const { code, text } = await output("cargo", args, env);
  const built = {};
  for (const line of text.split("\n")) {
    if (!line.startsWith("{")) continue;
    const { executable, target } = JSON.parse(line);
    if (executable) built[target.name] = executable;
  }
  if (code !== 0 || !built.sim || !built.scenarios) throw new SetupError(`the tests cannot be built:\n${text.slice(-4_000)}`);
  return built;
}

async function noticedBy(built, env, name) {
  for (const { target, args } of PROGRAMS) {
    const { code, text, late } = await output(built[target], args, { ...env, WAKEFUL_MUTANT: name }, LIMIT_MS);
    if (late) return `${target}: does not end`;
    const failed = /^test (\S+) \.\.\. FAILED$/m.exec(text);
    if (failed) return `${target}: ${failed[1]}`;
    if (code !== 0) return `${target}: ends with ${code}`;
  }
  return undefined;
}

async function mutants(wanted) {
  const all = weaknesses(readFileSync(join(root, "src/mutants.rs"), "utf8"));
  const unknown = wanted.filter((name) => !all.some((known) => known.name === name));
  if (unknown.length) throw new SetupError(`there is no weakness ${unknown.join(", ")} in src/mutants.rs`);
  const chosen = all.filter(({ name }) => !wanted.length || wanted.includes(name));
  const env = await ensure({ rust: true });
  const built = await build(env);
  const healthy = await noticedBy(built, env, "none");
  if (healthy) throw new SetupError(`without any weakness a test fails already: ${healthy}`);
  let missed = 0;
  for (const { name, what } of chosen) {
    const by = await noticedBy(built, env, name);
    missed += by ? 0 : 1;
    console.log(`${name.padEnd(4)} ${by ? "noticed" : "MISSED "}  ${what}${by ? `\n     by ${by}` : ""}`);
  }
  console.log(`${chosen.length - missed} of ${chosen.length} weaknesses are noticed`);
  process.exit(missed ? 1 : 0);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url))
  await mutants(process.argv.slice(2)).catch(fail);
