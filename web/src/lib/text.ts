/** Plain text out of messages: for copying, titles and announcements. */
import type { UIMessage } from "ai";

type Part = UIMessage["parts"][number];

/**
 * The parts of a message. What was interrupted goes on in a step of its own; here it is one: a text goes on where it stopped, thoughts
 * were had anew.
 */
export function joined(parts: readonly Part[]): Part[] {
  const whole: Part[] = [];
  let stepped = false;
  for (const part of parts) {
    if (part.type === "step-start") {
      stepped = true;
      continue;
    }
    if (part.type === "text" && part.text === "") continue;
    const before = stepped ? whole.at(-1) : undefined;
    if (part.type === "text" && before?.type === "text") whole[whole.length - 1] = { ...part, text: before.text + part.text };
    else if (part.type === "reasoning" && before?.type === "reasoning") whole[whole.length - 1] = part;
    else whole.push(part);
    stepped = false;
  }
  return whole;
}

export function textOf(message: UIMessage): string {
  return joined(message.parts).flatMap((part) => (part.type === "text" && part.text !== "" ? [part.text] : [])).join("\n\n");
}

/** What a conversation is called: its first user message, or the name of the first file sent. */
export function titleFrom(messages: readonly UIMessage[]): string | undefined {
  const first = messages.find((message) => message.role === "user");
  if (first === undefined) return undefined;
  const text = textOf(first).trim();
  if (text !== "") return text;
  const file = first.parts.find((part) => part.type === "file");
  return file ? (file.filename ?? "A file") : undefined;
}

/** Whether an answer shows anything yet; until then the page shows that it is being waited for. */
export function isVisible(message: UIMessage): boolean {
  return message.parts.some((part) =>
    part.type === "text" || part.type === "reasoning" ? part.text.trim() !== "" : part.type !== "step-start" && !part.type.startsWith("data-"),
  );
}
