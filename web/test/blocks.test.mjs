/** Rendering block by block has to show what rendering the whole document shows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import ReactMarkdown from "react-markdown";
import remarkGfm from "remark-gfm";
import { load } from "./load.mjs";

const { splitBlocks } = await load("lib/blocks.ts");

const html = (text) => renderToStaticMarkup(createElement(ReactMarkdown, { remarkPlugins: [remarkGfm] }, text)).replace(/\n+/g, "\n").trim();

function piecewise(text) {
  const { blocks, definitions } = splitBlocks(text);
  return blocks.map((block) => html(definitions ? `${block}\n\n${definitions}` : block)).filter((shown) => shown !== "").join("\n");
}

const F = "```";
const documents = {
  paragraphs: "One.\n\nTwo\nlines.\n\n\n\nThree.",
  headings: "# A\ntext\n\nSetext\n===\n\n## B ##",
  "tight and loose lists": "- a\n- b\n\nText\n\n1. one\n\n2. two\n\n   more of two\n\n3. three",
  "list with fence": `1. Run this:\n\n   ${F}sh\n   npm start\n\n   npm test\n   ${F}\n\n2. Done`,
  "fence in an item without indentation after it": `- item\n  ${F}js\n  a\n\nback at the margin`,
  "fence without blank lines around it": `before\n${F}rust\nfn a() {}\n\nfn b() {}\n${F}\nafter`,
  "fence that contains a shorter fence": `${F}${F}\n${F}\nx\n\n${F}\n${F}${F}\n\nend`,
  "tilde fence": "~~~\n```\n\n~~~\nend",
  "unfinished fence": `text\n\n${F}js\nlet a = 1;\n\nlet b`,
  "inline backticks that look like a fence": `${F}not a fence${F}\n\nnext`,
  "indented code": "para\n\n    code\n\n    more\n\npara",
  quotes: "> a\n> b\n\ntext\n\n> c",
  table: "| a | b |\n|---|--:|\n| 1 | 2 |\n\nafter",
  "definitions far away": "See [one] and [two][2].\n\nMore [one].\n\n[one]: https://one.test\n[2]: https://two.test 'Two'",
  footnotes: "Said[^1] and said again[^2].\n\nText.\n\n[^1]: First.\n\n[^2]: Second.",
  tasks: "- [x] a\n- [ ] b\n  - c\n\nend",
  rules: "a\n\n---\n\nb\n\n***",
  "nothing but blank lines": "\n\n  \n",
};

for (const [name, text] of Object.entries(documents)) {
  test(`split: ${name}`, () => assert.equal(piecewise(text), html(text)));
}

test("split: only the last block changes while text grows, apart from the cut itself", () => {
  const text = Object.values(documents).join("\n\n");
  const whole = splitBlocks(text.replace(/\[\^\d\]:?/g, "")).blocks;
  const source = text.replace(/\[\^\d\]:?/g, "");
  let before = [];
  let rewritten = 0;
  for (let end = 1; end <= source.length; end++) {
    const { blocks } = splitBlocks(source.slice(0, end));
    // A line decides about the block before it, so one finished block may still be taken back, never more.
    for (let i = 0; i < before.length - 2; i++) assert.equal(blocks[i], before[i], `block ${i} at ${end}`);
    if (before.length > 1 && blocks[before.length - 2] !== before[before.length - 2]) rewritten++;
    before = blocks;
  }
  assert.deepEqual(before, whole);
  assert.ok(rewritten < whole.length / 2, `${rewritten} finished blocks were parsed again`);
});

test("split: hostile lines take no time", { timeout: 2_000 }, () => {
  for (const line of ["- ".repeat(20_000), "1. ".repeat(20_000), " ".repeat(50_000) + "`", "[".repeat(50_000), "[" + "\\".repeat(50_000), "`".repeat(50_000)]) {
    assert.equal(splitBlocks(line).blocks.length <= 1, true);
  }
});
