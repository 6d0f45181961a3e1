// Makes one script of worker.mjs and the packages it imports, into build/, where the runtime of the tests picks it up.

import { builtinModules, createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const { build } = createRequire(require.resolve("wrangler"))("esbuild");
const at = (path) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Peers of the original that nothing here uses and the repository does not install: its file workspace, its shell for skill
 * scripts, its client of MCP servers. The original imports them always; what it gets here is a module whose every export can be
 * called, constructed or extended and does nothing.
 */
const ABSENT = /^(@cloudflare\/computer|@modelcontextprotocol\/|just-bash)/;
// As a prototype, because the bundler's conversion to named exports copies own properties and keeps the prototype.
const STAND_IN = "module.exports = Object.create(new Proxy({}, { get: () => function () { return {}; } }));";

const resolution = {
  name: "resolution",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: ABSENT }, ({ path }) => ({ path, namespace: "absent" }));
    onLoad({ filter: /.*/, namespace: "absent" }, () => ({ contents: STAND_IN }));
    // The runtime knows Node's modules by their full names only, and to import alone.
    const builtin = new RegExp(`^(node:)?(${builtinModules.join("|")})$`);
    onResolve({ filter: builtin }, ({ path, namespace }) =>
      namespace === "builtin" ? { path, external: true } : { path: path.replace(/^(node:)?/, "node:"), namespace: "builtin" },
    );
    onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => ({
      contents: `export * from "${path}"; export { default } from "${path}";`,
    }));
  },
};

export async function bundlePeer() {
  await build({
    entryPoints: [at("./worker.mjs")],
    outfile: at("./build/index.js"),
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    external: ["cloudflare:*"],
    plugins: [resolution],
    logLevel: "error",
  });
}
