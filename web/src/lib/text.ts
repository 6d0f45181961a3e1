/** Plain text out of messages: for copying, titles and announcements. */
import type { UIMessage } from "ai";

export function textOf(message: UIMessage): string {
  return message.parts.flatMap((part) => (part.type === "text" && part.text !== "" ? [part.text] : [])).join("\n\n");
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
