// The parts of the scripts that decide something, on small inputs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { namesModel } from "./deploy.mjs";
import { nodeIsNewEnough } from "./setup.mjs";
import { parse as parseSim } from "./sim.mjs";
import { forWrangler } from "./start.mjs";
import { choose, counts } from "./test.mjs";
import { crateOf, functions, namesSection, sections, withPlainNames, without } from "./wasm.mjs";

test("a Node is new enough for every package in the lock file, or is not", () => {
  for (const version of ["v22.22.2", "v22.23.0", "v24.15.0", "v24.22.3", "v26.0.0"])
    assert.ok(nodeIsNewEnough(version), version);
  for (const version of ["v18.20.0", "v20.20.2", "v22.22.1", "v22.9.9", "v23.11.0", "v24.14.9", "v25.0.0"])
    assert.ok(!nodeIsNewEnough(version), version);
});

// decision 49
test("a deployment gets the default model only where none is named", () => {
  const vars = '[vars]\nMODEL = "openai/gpt-5"\n[ai]\nbinding = "AI"\n';
  assert.ok(!namesModel([], '[ai]\nbinding = "AI"\n'));
  assert.ok(!namesModel(["--var", "INSTRUCTIONS:MODEL=x"], ""));
  assert.ok(!namesModel(["--var", "MODEL_BASE_URL:http://x"], "[vars]\nMODEL_BASE_URL = 'x'\n"));
  assert.ok(!namesModel([], '# [vars]\n# MODEL = "x"\n[observability]\nMODEL = "no"\n'));
  assert.ok(namesModel(["--var", "A:1", "MODEL:demo"], ""));
  assert.ok(namesModel(["--var=MODEL:demo"], ""));
  assert.ok(namesModel([], vars));
  assert.ok(namesModel([], vars.replace("[vars]", "[env.staging.vars]")));
  assert.ok(namesModel([], 'vars = { A = "1", MODEL = "demo" }\n'));
});

test("the plug may be pulled where the deployable is started for a demonstration, unless the caller says otherwise", () => {
  const on = ["--var", "PLUG:on"];
  assert.deepEqual(forWrangler([], true), on);
  assert.deepEqual(forWrangler(["--var", "MODEL:demo", "--port", "1"], true), ["--var", "MODEL:demo", "--port", "1", ...on]);
  assert.deepEqual(forWrangler(["--no-plug", "--port", "1"], true), ["--port", "1"]);
  assert.deepEqual(forWrangler(["--var", "PLUG:off"], true), ["--var", "PLUG:off"]);
  assert.deepEqual(forWrangler(["--no-plug"], false), []);
  assert.deepEqual(forWrangler(["--var=PLUG:on"], false), ["--var=PLUG:on"]);
});

test("what test runners report is added up", () => {
  const cargo =
    "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\u001b[32mtest result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured";
  assert.deepEqual(counts(cargo), { passed: 15, failed: 2, skipped: 1 });
  assert.deepEqual(counts("ℹ tests 9\nℹ pass 7\nℹ fail 1\nℹ cancelled 1\nℹ skipped 0\n"), {
    passed: 7,
    failed: 2,
    skipped: 0,
  });
  assert.deepEqual(counts("# pass 2\n# fail 0\nbypass 3"), { passed: 2, failed: 0, skipped: 0 });
});

test("a stage brings what it needs, in order, and an unknown one is an error", () => {
  assert.deepEqual(
    choose(["e2e"]).map(({ name }) => name),
    ["web", "worker", "examples", "e2e-worker", "e2e"],
  );
  const byName = [{ name: "always" }, { name: "asked", byName: true, needs: ["always"] }];
  const names = (wanted) => choose(wanted, byName).map(({ name }) => name);
  assert.deepEqual([names(), names(["asked"])], [["always"], ["always", "asked"]]);
  assert.throws(() => choose(["nativ"]), /no stage 'nativ'; there are: fmt/);
});

test("the simulator is told how much to live", () => {
  assert.deepEqual(parseSim([]), { seeds: 100_000, from: 0, test: "lives::any_life" });
  assert.deepEqual(parseSim(["--seeds", "7", "--from=3"]), { seeds: 7, from: 3, test: "lives::any_life" });
  assert.equal(parseSim(["--crashes"]).test, "crash::");
  assert.throws(() => parseSim(["--seed", "1"]), /unknown argument '--seed'/);
  assert.throws(() => parseSim(["--seeds", "many"]), /usage/);
});

/** A module with one imported function, two own ones, a data section and names for both own functions. */
function sampleModule([one, two] = ["alloc::a", "core::b"]) {
  const text = (value) => [value.length, ...Buffer.from(value)];
  const section = (id, body) => [id, body.length, ...body];
  const first = [2, 0, 0x0b];
  const second = [5, 0, 0x41, 7, 0x1a, 0x0b];
  const names = [2, 1, ...text(one), 2, ...text(two)];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 0, 0]),
    ...section(2, [2, ...text("m"), ...text("memory"), 2, 0, 1, ...text("m"), ...text("f"), 0, 0]),
    ...section(3, [2, 0, 0]),
    ...section(10, [2, ...first, ...second]),
    ...section(0, [...text("name"), ...section(1, names)]),
  ]);
}

test("functions of a wasm module are found with size and name", () => {
  const bytes = sampleModule();
  assert.ok(WebAssembly.validate(bytes), "the sample is a module");
  assert.deepEqual(functions(bytes), [
    { name: "alloc::a", size: 3 },
    { name: "core::b", size: 6 },
  ]);
  const bare = without(bytes, namesSection(sections(bytes)));
  assert.ok(WebAssembly.validate(bare) && bare.length < bytes.length);
  assert.deepEqual(
    functions(bare).map(({ name }) => name),
    ["", ""],
  );
});

test("names lose their hashes, those of libraries all but the crate, and nothing else changes", () => {
  const hashed = sampleModule([
    "mine::a::h4635f72a38590126",
    "<core[c5930c85a12de822]::B as core[c5930c85a12de822]::C>::b",
  ]);
  const plain = withPlainNames(hashed);
  assert.ok(WebAssembly.validate(plain));
  assert.deepEqual(functions(plain), [
    { name: "mine::a", size: 3 },
    { name: "core", size: 6 },
  ]);
  const bare = (bytes) => Buffer.from(without(bytes, namesSection(sections(bytes))));
  assert.deepEqual(bare(plain), bare(hashed));
  assert.deepEqual(withPlainNames(bare(plain)), bare(plain), "a module without names stays as it is");
});

test("bytes that are no wasm module, or half of one, are an error", () => {
  assert.throws(() => sections(Buffer.from("<html>")), /not a wasm module/);
  assert.throws(() => functions(sampleModule().subarray(0, -1)), /ends too early/);
});

test("a function belongs to the first crate its name mentions", () => {
  const table = {
    "worker::error::from_js_value::h4635f72a38590126": "worker",
    "<worker::error::Error as core::fmt::Display>::fmt::h46": "worker",
    "<dlmalloc[e24a27700634d609]::dlmalloc::Dlmalloc<dlmalloc[e2]::sys::System>>::malloc": "dlmalloc",
    "<i32 as core[c5930c85a12de822]::fmt::Display>::fmt": "core",
    "<&T as core::fmt::Debug>::fmt::h6d": "core",
    "core::ptr::drop_in_place<wakeful::engine::Engine>::h1": "wakeful",
    "core::ptr::drop_in_place<i32>::h1": "core",
    __wbindgen_malloc: "wasm_bindgen",
    "chatagent_fetch externref shim": "wasm_bindgen",
    memcmp: "(no crate in the name)",
    "": "(no name)",
  };
  for (const [name, crate] of Object.entries(table)) assert.equal(crateOf(name), crate, name);
});
