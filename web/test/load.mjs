/** Loads a TypeScript module of the page into Node, through the build tool the page uses anyway. */
import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

export async function load(path) {
  const { module } = await runnerImport(fileURLToPath(new URL(`../src/${path}`, import.meta.url)), { configFile: false, logLevel: "error" });
  return module;
}
