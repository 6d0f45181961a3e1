// `npm run sim -- --seeds 1000000`: random lives of the simulated object on all cores, for as long as one likes. `--from N` begins at
// another seed. Progress every ten seconds; a life that fails is printed as soon as it is found, shrunk, with the command that
// repeats it. `npm run sim -- --crashes` lets every script die at every point instead.
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { SetupError, ensure, fail, run } from "./setup.mjs";

/** What is to be run, from the arguments. */
export function parse(args) {
  const options = { seeds: 100_000, from: 0, test: "lives::any_life" };
  for (let at = 0; at < args.length; at++) {
    const [name, inline] = args[at].split("=");
    if (name === "--crashes") {
      options.test = "crash::";
      continue;
    }
    const value = Number(inline ?? args[++at]);
    if (!["--seeds", "--from"].includes(name) || !Number.isSafeInteger(value) || value < 0)
      throw new SetupError(`unknown argument '${name}'; usage: npm run sim -- [--seeds N] [--from N] [--crashes]`);
    options[name.slice(2)] = value;
  }
  return options;
}

async function sim(args) {
  const { seeds, from, test } = parse(args);
  const env = await ensure({ rust: true, node: true });
  Object.assign(env, { WAKEFUL_SEEDS: String(seeds), WAKEFUL_FROM: String(from) });
  const command = ["test", "--profile", "seeds", "--test", "sim", "--", "--nocapture", test];
  process.exit(await run("cargo", command, { env }));
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url))
  await sim(process.argv.slice(2)).catch(fail);
