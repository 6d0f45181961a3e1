/**
 * Cuts markdown into top-level blocks, so that a growing answer re-parses only its last one.
 * A cut is made only where CommonMark would end a block anyway; in doubt text stays together.
 */

export type Blocks = { blocks: string[]; definitions: string };

type Fence = { mark: string; length: number; indented: boolean };

const FENCE_OPEN = /^(\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)*)(`{3,}|~{3,})(.*)$/;
const LIST_ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const DEFINITION = /^ {0,3}\[(?!\^)(?:\\.|[^\]\\])+\]:\s*\S/;
const FOOTNOTE = /^ {0,3}\[\^[^\]]+\]:/m;

export function splitBlocks(text: string): Blocks {
  // A footnote and its mark find each other only inside one document.
  if (FOOTNOTE.test(text)) return { blocks: [text], definitions: "" };

  const blocks: string[] = [];
  const definitions: string[] = [];
  let current: string[] = [];
  let fence: Fence | null = null;
  let inList = false;
  let blank = false;

  const cut = () => {
    while (current.length > 0 && current[current.length - 1]?.trim() === "") current.pop();
    if (current.length > 0) blocks.push(current.join("\n"));
    current = [];
    inList = false;
  };

  for (const line of text.split("\n")) {
    if (fence !== null) {
      // A fence inside a list item also ends with the item, at the first line back at the margin.
      const escaped: boolean = fence.indented && line !== "" && !/^\s/.test(line);
      if (!escaped) {
        current.push(line);
        if (closes(fence, line)) {
          if (!fence.indented) cut();
          fence = null;
        }
        continue;
      }
      fence = null;
    }
    if (line.trim() === "") {
      blank = true;
      current.push(line);
      continue;
    }
    const continues = /^(?: {2}|\t)/.test(line) || (inList && LIST_ITEM.test(line));
    if (blank && !continues) cut();
    blank = false;

    const opening = FENCE_OPEN.exec(line);
    const mark = opening?.[2];
    if (opening && mark !== undefined && !(mark.startsWith("`") && opening[3]?.includes("`"))) {
      const indented = opening[1] !== "";
      if (!indented) cut();
      fence = { mark: mark.charAt(0), length: mark.length, indented };
    } else if (DEFINITION.test(line)) {
      definitions.push(line);
    }
    if (current.length === 0 || LIST_ITEM.test(line)) inList = LIST_ITEM.test(line);
    current.push(line);
  }
  cut();
  return { blocks, definitions: definitions.join("\n") };
}

function closes(fence: Fence, line: string): boolean {
  const body = line.trim();
  return body.length >= fence.length && body === fence.mark.repeat(body.length);
}
