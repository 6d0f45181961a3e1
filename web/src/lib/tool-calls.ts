/** How far a tool call is, as a reader would say it, and which calls wait for somebody. */
import { getToolName, isToolUIPart, type DynamicToolUIPart, type ToolUIPart, type UIMessage } from "ai";
import { ASK_PERSON, READ_PAGE, SKIPPED } from "./page-tools";

export type ToolPart = ToolUIPart | DynamicToolUIPart;

export type ToolState = "preparing" | "running" | "waiting" | "approval" | "allowed" | "question" | "done" | "failed" | "denied" | "skipped" | "overtaken";

export type Place = {
  /** The message is being written right now. */
  live: boolean;
  /** Nothing was said after it, so what it asks can still be answered. */
  last: boolean;
};

export function toolState(part: ToolPart, { live, last }: Place): ToolState {
  switch (part.state) {
    case "input-streaming":
      return live ? "preparing" : last ? "waiting" : "overtaken";
    case "input-available":
      if (!last) return "overtaken";
      if (getToolName(part) === ASK_PERSON) return "question";
      return live || getToolName(part) === READ_PAGE ? "running" : "waiting";
    case "approval-requested":
      return last ? "approval" : "overtaken";
    case "approval-responded":
      if (!part.approval.approved) return "denied";
      // It runs when everything else that is asked beside it has its answer.
      return !last ? "overtaken" : live ? "running" : "allowed";
    case "output-available":
      return part.preliminary && live ? "running" : "done";
    case "output-error":
      return part.errorText === SKIPPED ? "skipped" : wasOvertaken(part) ? "overtaken" : "failed";
    case "output-denied":
      return "denied";
    default:
      return live ? "running" : "waiting";
  }
}

const PAGE_TOOL_NAMES = [ASK_PERSON, READ_PAGE];

/** What the server writes into a call that was still open when the conversation went on. */
const NOT_RUN = "The tool call was approved but did not run before the next turn started.";
/** The same for one that nobody had answered; a tool that was running when the server died gets this text too. */
const INTERRUPTED = "The tool call was interrupted before a result was recorded.";

function wasOvertaken(part: ToolPart): boolean {
  if (part.errorText === NOT_RUN) return true;
  const neverRan = PAGE_TOOL_NAMES.includes(getToolName(part)) || ("approval" in part && part.approval !== undefined && part.approval.approved !== true);
  return part.errorText === INTERRUPTED && neverRan;
}

export type Waiting = { approvals: number; questions: number };

/** The calls of a message that wait for a person. */
export function waitingIn(message: UIMessage | undefined): Waiting {
  const waiting = { approvals: 0, questions: 0 };
  if (message?.role !== "assistant") return waiting;
  for (const part of message.parts) {
    if (!isToolUIPart(part)) continue;
    if (part.state === "approval-requested") waiting.approvals += 1;
    if (part.state === "input-available" && getToolName(part) === ASK_PERSON) waiting.questions += 1;
  }
  return waiting;
}

/** Whether a page could still run a tool of its own for this message. */
export function hasOpenPageCall(message: UIMessage | undefined): boolean {
  return message?.role === "assistant" && message.parts.some((part) => isToolUIPart(part) && part.state === "input-available" && PAGE_TOOL_NAMES.includes(getToolName(part)));
}

/** The call in a few words for the closed card: its arguments, and the result when that is short. */
export function gistOf(part: ToolPart): string {
  const input = brief(part.input);
  const output = part.state === "output-available" ? brief(part.output) : part.state === "output-error" ? part.errorText : "";
  if (output === "" || output === input) return input;
  return input === "" ? `→ ${output}` : `${input} → ${output}`;
}

function brief(value: unknown): string {
  if (isScalar(value)) return String(value);
  if (typeof value !== "object" || value === null) return "";
  return Object.values(value).filter(isScalar).map(String).join(", ").slice(0, 200);
}

function isScalar(value: unknown): value is string | number | boolean {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}

/** More of them are easier to read as what they are, JSON. */
const MOST_ROWS = 8;

/** An input as names and values, when that is all there is to it. */
export function rowsOf(value: unknown): [string, string][] | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const entries = Object.entries(value);
  if (entries.length === 0 || entries.length > MOST_ROWS) return null;
  return entries.every(([, entry]) => isScalar(entry)) ? entries.map(([key, entry]) => [key, String(entry)]) : null;
}
