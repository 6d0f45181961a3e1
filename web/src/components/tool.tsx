/** One tool call as a card: what was called, how far it is, what went in and what came out. */
import { getToolName, type DynamicToolUIPart, type ToolUIPart } from "ai";
import { memo, useId, useState } from "react";
import { CopyButton } from "./button";
import { Alert, Check, Chevron, Clock, Cross, Spinner, Wrench } from "./icons";

export type ToolPart = ToolUIPart | DynamicToolUIPart;

type ToolState = "preparing" | "running" | "waiting" | "approval" | "done" | "failed" | "denied";

const SAID: Record<ToolState, string> = {
  preparing: "Preparing",
  running: "Running",
  waiting: "Waiting",
  approval: "Needs your approval",
  done: "Done",
  failed: "Failed",
  denied: "Denied",
};

function stateOf(part: ToolPart, live: boolean): ToolState {
  switch (part.state) {
    case "input-streaming":
      return live ? "preparing" : "waiting";
    case "input-available":
      return live ? "running" : "waiting";
    case "approval-requested":
      return "approval";
    case "approval-responded":
      return part.approval.approved ? "running" : "denied";
    case "output-available":
      return part.preliminary && live ? "running" : "done";
    case "output-error":
      return "failed";
    case "output-denied":
      return "denied";
    default:
      return live ? "running" : "waiting";
  }
}

type ToolCardProps = { part: ToolPart; live: boolean; onAnswer: (approvalId: string, approved: boolean) => void };

export const ToolCard = memo(function ToolCard({ part, live, onAnswer }: ToolCardProps) {
  const state = stateOf(part, live);
  const [chosen, setChosen] = useState<boolean | null>(null);
  const open = chosen ?? state === "approval";
  const body = useId();
  const name = getToolName(part);
  const gist = gistOf(part);
  return (
    <div role="group" className="tool" data-testid="tool" data-tool-name={name} data-state={state} data-open={open} aria-label={`Tool ${name}`}>
      <button type="button" className="tool-head" aria-expanded={open} aria-controls={body} onClick={() => setChosen(!open)}>
        <span className="tool-icon">
          <Wrench size={16} />
        </span>
        <span className="tool-name">{part.title ?? name}</span>
        {gist && <span className="tool-gist">{gist}</span>}
        <span className="tool-state">
          <StateIcon state={state} />
          {SAID[state]}
        </span>
        <span className="disclosure-mark">
          <Chevron size={14} />
        </span>
      </button>
      <div id={body} hidden={!open} className="tool-body">
        {open && (
          <>
            <Value title="Input" value={part.input ?? ("rawInput" in part ? part.rawInput : undefined)} empty={state === "preparing" ? "Being written…" : "No input"} />
            {part.state === "output-available" && <Value title={part.preliminary ? "Output so far" : "Output"} value={part.output} empty="No output" />}
            {part.state === "output-error" && <Value title="Error" value={part.errorText} empty="No reason given" failed />}
            {part.state === "output-denied" && <p className="tool-note">Not run: the request was denied.{part.approval.reason ? ` ${part.approval.reason}` : ""}</p>}
          </>
        )}
      </div>
      {part.state === "approval-requested" && (
        <div className="tool-approval" role="group" aria-label={`Allow ${name} to run?`}>
          <button type="button" className="button primary" data-testid="approve" onClick={() => onAnswer(part.approval.id, true)}>
            Allow
          </button>
          <button type="button" className="button" data-testid="deny" onClick={() => onAnswer(part.approval.id, false)}>
            Deny
          </button>
        </div>
      )}
    </div>
  );
});

function StateIcon({ state }: { state: ToolState }) {
  switch (state) {
    case "preparing":
    case "running":
      return <Spinner size={14} />;
    case "waiting":
      return <Clock size={14} />;
    case "approval":
      return <Alert size={14} />;
    case "done":
      return <Check size={14} />;
    case "failed":
    case "denied":
      return <Cross size={14} />;
  }
}

function Value({ title, value, empty, failed = false }: { title: string; value: unknown; empty: string; failed?: boolean }) {
  const text = pretty(value);
  return (
    <div className={`tool-value${failed ? " failed" : ""}`}>
      <div className="tool-value-head">
        <span>{title}</span>
        {text !== "" && <CopyButton text={() => text} label={`Copy ${title.toLowerCase()}`} size={14} />}
      </div>
      {text === "" ? <p className="tool-note">{empty}</p> : <pre tabIndex={0}>{shown(text)}</pre>}
    </div>
  );
}

function pretty(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  if (typeof value === "object" && Object.keys(value).length === 0) return "";
  return JSON.stringify(value, null, 2);
}

/** A browser lays out megabytes of text slowly; the copy button still has all of it. */
const SHOWN_LIMIT = 20_000;

function shown(text: string): string {
  return text.length <= SHOWN_LIMIT ? text : `${text.slice(0, SHOWN_LIMIT)}\n… ${text.length - SHOWN_LIMIT} more characters`;
}

/** The call in a few words for the closed card: its arguments, and the result when that is short. */
function gistOf(part: ToolPart): string {
  const input = brief(part.input);
  const output = part.state === "output-available" ? brief(part.output) : part.state === "output-error" ? part.errorText : "";
  if (output === "") return input;
  return input === "" ? `→ ${output}` : `${input} → ${output}`;
}

function brief(value: unknown): string {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "object" || value === null) return "";
  return Object.values(value)
    .filter((entry) => typeof entry === "string" || typeof entry === "number" || typeof entry === "boolean")
    .map(String)
    .join(", ")
    .slice(0, 200);
}
