// Builds the page in web/ into web/dist, which the worker serves as its static assets, when a source is newer.
import { existsSync, readdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { SetupError, ensure, fail, root, run } from "./setup.mjs";

const web = join(root, "web");

/** Time of the last change below a path. A folder's own time tells of files taken away, but the page's holds dist/. */
function newest(path) {
  const seen = statSync(path, { throwIfNoEntry: false });
  if (!seen) return 0;
  if (!seen.isDirectory()) return seen.mtimeMs;
  return Math.max(
    path === web ? 0 : seen.mtimeMs,
    ...readdirSync(path)
      .filter((name) => name !== "dist" && name !== "node_modules")
      .map((name) => newest(join(path, name))),
  );
}

const pageIsFresh = () =>
  statSync(join(web, "dist/index.html"), { throwIfNoEntry: false })?.mtimeMs >
  Math.max(newest(web), newest(join(root, "package-lock.json")));

export async function buildPage(env) {
  if (pageIsFresh()) return;
  console.log("web: building the page (about ten seconds)");
  const code = await run("npm", ["run", "--silent", "build", "-w", "web"], { env });
  if (code !== 0 || !existsSync(join(web, "dist/index.html")))
    throw new SetupError("the page could not be built; the reason is above");
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await ensure({ node: true, packages: true }).then(buildPage).catch(fail);
}
