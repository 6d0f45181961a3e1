// The comparison as it is told in docs/protocol.md.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { NAMED, OPEN, REASONS } from "./named.mjs";
import { SCRIPTS } from "./scripts.mjs";

const DOCUMENT = fileURLToPath(new URL("../../../docs/protocol.md", import.meta.url));
const [FROM, TO] = ["<!-- e2e:peer -->\n", "<!-- /e2e:peer -->\n"];

/** All scripts, and why some differ; made of what is named, which a run holds against what is. */
export function table() {
  const differing = SCRIPTS.filter(({ key }) => key in NAMED);
  const used = Object.keys(REASONS).filter((row) => differing.some(({ key }) => NAMED[key].includes(row)));
  const same = SCRIPTS.length - differing.length;
  return [
    `${SCRIPTS.length} scripts: ${same} look the same on both sides, ${differing.length} differ as named here.`,
    "",
    "| row | the difference |",
    "|---|---|",
    ...used.map((row) => `| ${row} | ${REASONS[row]} |`),
    "",
    "| script | result | row |",
    "|---|---|---|",
    ...SCRIPTS.map(({ key }) => `| ${key} | ${result(key)} | ${(NAMED[key] ?? []).join(", ")} |`),
    "",
  ].join("\n");
}

function result(key) {
  if (key in OPEN) return `differs; open: ${OPEN[key]}`;
  return key in NAMED ? "differs" : "same";
}

/** What the document says now. */
export function published() {
  const [, , part = ""] = /(<!-- e2e:peer -->\n)([^]*)<!-- \/e2e:peer -->\n/.exec(readFileSync(DOCUMENT, "utf8")) ?? [];
  return part;
}

export function publish() {
  const text = readFileSync(DOCUMENT, "utf8");
  const [from, to] = [text.indexOf(FROM), text.indexOf(TO)];
  if (from < 0 || to < from) throw new Error(`docs/protocol.md has no place for the table: ${FROM.trim()} … ${TO.trim()}`);
  writeFileSync(DOCUMENT, text.slice(0, from) + FROM + table() + text.slice(to));
}
