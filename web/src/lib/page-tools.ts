/** What this page can do for the agent, and what it remembers of having done it. */
import type { AITool } from "@cloudflare/ai-chat/react";

export const READ_PAGE = "read_page";
export const ASK_PERSON = "ask_person";
/** What the model is told of a question nobody wanted to answer; also how a skipped one is known again. */
export const SKIPPED = "the person skipped the question";

export type PageFacts = { title: string; address: string; language: string; timeZone: string; viewport: { width: number; height: number } };

/**
 * The hook offers a tool to the model only if it could execute it, but leaves the work to `onToolCall`,
 * which is told of each call once and may answer later or not at all.
 */
const elsewhere = () => undefined;

export const PAGE_TOOLS: Record<string, AITool> = {
  [READ_PAGE]: {
    description: "Reads title, address, language, time zone and window size of the page the person has open. It takes no input and nobody is asked.",
    parameters: { type: "object", properties: {} },
    execute: elsewhere,
  },
  [ASK_PERSON]: {
    description: "Asks the person one question on the page and waits for the answer, which may take long or be refused.",
    parameters: {
      type: "object",
      properties: { question: { type: "string", description: "The question, as the person is to read it" } },
      required: ["question"],
    },
    execute: elsewhere,
  },
};

/** The address goes without query and fragment: these hold what is private, the first of all the name of the conversation. */
export function readPage(): PageFacts {
  return {
    title: document.title,
    address: location.origin + location.pathname,
    language: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    viewport: { width: window.innerWidth, height: window.innerHeight },
  };
}

/** What this page has answered, by call: of two pages that read themselves, only one is quoted. */
const answered = new Map<string, PageFacts>();

export function noteReading(callId: string, facts: PageFacts): void {
  answered.set(callId, facts);
}

export function wasReadHere(callId: string, stored: PageFacts): boolean {
  const own = answered.get(callId);
  return own !== undefined && JSON.stringify(factRows(own)) === JSON.stringify(factRows(stored));
}

export function factsOf(output: unknown): PageFacts | null {
  if (typeof output !== "object" || output === null) return null;
  const { title, address, language, timeZone, viewport } = output as Record<string, unknown>;
  const texts = [title, address, language, timeZone].every((value) => typeof value === "string");
  const { width, height } = (typeof viewport === "object" && viewport !== null ? viewport : {}) as Record<string, unknown>;
  return texts && typeof width === "number" && typeof height === "number" ? (output as PageFacts) : null;
}

export function factRows({ title, address, language, timeZone, viewport }: PageFacts): [string, string][] {
  return [
    ["Title", title],
    ["Address", address],
    ["Language", language],
    ["Time zone", timeZone],
    ["Window", `${viewport.width} × ${viewport.height}`],
  ];
}
