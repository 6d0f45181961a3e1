/** Colours source text. Loaded on the first code block, because the grammars weigh more than the rest of the page. */
import type { Element, ElementContent, Root, RootContent } from "hast";
import { createElement, type ReactNode } from "react";
import rehypeHighlight from "rehype-highlight";

const transform = rehypeHighlight({ detect: false });

/** The text as coloured spans, or as it is when the language is unknown. */
export function highlight(code: string, language: string): ReactNode {
  const text: Element = { type: "element", tagName: "code", properties: { className: [`language-${language}`] }, children: [{ type: "text", value: code }] };
  const tree: Root = { type: "root", children: [{ type: "element", tagName: "pre", properties: {}, children: [text] }] };
  // The transformer reports an unknown language on the file it is given and leaves the text alone.
  const file = { message: () => undefined } as unknown as Parameters<typeof transform>[1];
  transform(tree, file);
  return text.children.map(render);
}

function render(node: ElementContent | RootContent, key: number): ReactNode {
  if (node.type === "text") return node.value;
  if (node.type !== "element") return null;
  const { className } = node.properties;
  return createElement("span", { key, className: Array.isArray(className) ? className.join(" ") : undefined }, node.children.map(render));
}
