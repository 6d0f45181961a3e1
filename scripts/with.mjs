// `npm run build`: builds page and worker. With arguments, then runs them as a program: node scripts/with.mjs node bench/run.mjs
import { buildPage } from "./web.mjs";
import { ensureAll, fail, root, run } from "./setup.mjs";

async function withAll([command, ...args]) {
  const env = await ensureAll();
  await buildPage(env);
  if ((await run("node", ["scripts/build.mjs"], { env, cwd: root })) !== 0) process.exit(1);
  if (command) process.exit(await run(command, args, { env }));
}

await withAll(process.argv.slice(2)).catch(fail);
