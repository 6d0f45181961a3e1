// `npm run deploy`: builds page and worker and deploys them with wrangler. A deployed agent answers with Workers AI unless
// the caller or wrangler.toml names a model, since the built-in demo model is not what one deploys for.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { ensureAll, fail, root, run } from "./setup.mjs";
import { buildPage } from "./web.mjs";

const DEFAULT_MODEL = "workers-ai/@cf/moonshotai/kimi-k2.5";

/** Whether the arguments or the `[vars]` (also of an environment) of the configuration name a model. */
export function namesModel(args, config) {
  const given = args.some(
    (arg, at) => /^--var=MODEL[:=]/.test(arg) || (/^MODEL[:=]/.test(arg) && /^--var$/.test(lastOption(args, at))),
  );
  return given || configuredVars(config).some((body) => /^\s*MODEL\s*=/m.test(body));
}

/** `--var` takes several values: the option a bare argument belongs to. */
function lastOption(args, at) {
  return args.slice(0, at).findLast((arg) => arg.startsWith("-")) ?? "";
}

function configuredVars(config) {
  const inline = [...config.matchAll(/^\s*vars\s*=\s*\{([^}]*)\}/gm)].map((found) => found[1].replaceAll(",", "\n"));
  const tables = config.split(/^\s*\[/m).filter((table) => /^(env\.[^.\]]+\.)?vars\]/.test(table));
  return [...inline, ...tables];
}

async function deploy(args) {
  const env = await ensureAll();
  await buildPage(env);
  const model = namesModel(args, readFileSync(join(root, "wrangler.toml"), "utf8"))
    ? []
    : ["--var", `MODEL:${DEFAULT_MODEL}`];
  if (model.length)
    console.log(`deploy: model ${DEFAULT_MODEL} (choose another with: npm run deploy -- --var MODEL:provider/model)`);
  process.exit(
    await run("node", [join(root, "node_modules/wrangler/bin/wrangler.js"), "deploy", ...args, ...model], {
      env,
      foreground: true, // it may ask which account to use
    }),
  );
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await deploy(process.argv.slice(2)).catch(fail);
}
