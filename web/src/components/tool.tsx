/** One tool call as a card: what was called, how far it is, what went in and what came out, and how to answer it. */
import { getToolName } from "ai";
import { memo, useId, useRef, useState, type ReactNode } from "react";
import { announce } from "../lib/announce";
import { ASK_PERSON, factRows, factsOf, READ_PAGE, wasReadHere } from "../lib/page-tools";
import { gistOf, rowsOf, toolState, type Place, type ToolPart, type ToolState } from "../lib/tool-calls";
import { Approval } from "./approval";
import { CopyButton } from "./button";
import { Alert, Check, Chevron, Clock, Cross, Forward, Question as QuestionMark, Spinner, Wrench } from "./icons";
import { Question } from "./question";

/** What the reader may do about a call that waits. */
export type ToolAnswers = {
  allow: (part: ToolPart) => void;
  deny: (part: ToolPart, reason: string) => void;
  answer: (part: ToolPart, text: string) => void;
  skip: (part: ToolPart) => void;
};

const SAID: Record<ToolState, string> = {
  preparing: "Preparing",
  running: "Running",
  waiting: "Waiting",
  approval: "Needs your approval",
  allowed: "Allowed",
  question: "Waiting for you",
  done: "Done",
  failed: "Failed",
  denied: "Denied",
  skipped: "Skipped",
  overtaken: "Overtaken",
};

function said(part: ToolPart, state: ToolState): string {
  const name = getToolName(part);
  const allowed = "approval" in part && part.approval?.approved === true;
  if (name === ASK_PERSON && state === "done") return "Answered";
  if (name === READ_PAGE && (state === "running" || state === "done")) return state === "done" ? "Read" : "Reading";
  return allowed && (state === "running" || state === "done" || state === "failed") ? `Allowed, ${SAID[state].toLowerCase()}` : SAID[state];
}

/** What is worth seeing without being asked for: what waits, what a person or a page has answered. */
function opensItself(part: ToolPart, state: ToolState): boolean {
  if (state === "approval" || state === "question" || state === "denied") return true;
  return [ASK_PERSON, READ_PAGE].includes(getToolName(part)) && state !== "preparing";
}

type ToolCardProps = Place & { part: ToolPart; online: boolean; answers: ToolAnswers };

export const ToolCard = memo(function ToolCard({ part, live, last, online, answers }: ToolCardProps) {
  const [sent, setSent] = useState(false);
  const stored = toolState(part, { live, last });
  const open = stored === "approval" || stored === "question";
  // An answer that is on its way is one; if the connection breaks under it, the server's transcript tells.
  if (sent && (!open || !online)) setSent(false);
  const state = sent && open ? "waiting" : stored;
  const [chosen, setChosen] = useState<boolean | null>(null);
  const unfolded = chosen ?? opensItself(part, state);
  const head = useRef<HTMLButtonElement>(null);
  const body = useId();
  const name = getToolName(part);
  const gist = unfolded && (state === "approval" || name === ASK_PERSON || name === READ_PAGE) ? "" : gistOf(part);

  function settle(words: string, act: () => void) {
    setSent(true);
    act();
    announce(words);
    // The focused button goes.
    head.current?.focus();
  }

  return (
    <div role="group" className="tool" data-testid="tool" data-tool-name={name} data-state={state} data-open={unfolded} data-call-id={part.toolCallId} aria-label={`Tool ${name}`}>
      <button type="button" className="tool-head" ref={head} aria-expanded={unfolded} aria-controls={body} onClick={() => setChosen(!unfolded)}>
        <span className="tool-icon">{name === ASK_PERSON ? <QuestionMark size={16} /> : <Wrench size={16} />}</span>
        <span className="tool-name">{part.title ?? name}</span>
        {gist && <span className="tool-gist">{gist}</span>}
        <span className="tool-state">
          <StateIcon state={state} />
          {said(part, state)}
        </span>
        <span className="disclosure-mark">
          <Chevron size={14} />
        </span>
      </button>
      <div id={body} hidden={!unfolded} className="tool-body">
        {unfolded && <Details part={part} state={state} />}
      </div>
      {state === "approval" && (
        <Approval
          name={name}
          describedBy={body}
          online={online}
          onAllow={() => settle(`${name} is allowed.`, () => answers.allow(part))}
          onDeny={(reason) => settle(`${name} is denied.`, () => answers.deny(part, reason))}
        />
      )}
      {state === "question" && (
        <Question
          callId={part.toolCallId}
          question={questionOf(part)}
          online={online}
          onAnswer={(text) => settle("Your answer is sent.", () => answers.answer(part, text))}
          onSkip={() => settle("The question is skipped.", () => answers.skip(part))}
        />
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
    case "question":
      return <Clock size={14} />;
    case "approval":
      return <Alert size={14} />;
    case "allowed":
    case "done":
      return <Check size={14} />;
    case "skipped":
    case "overtaken":
      return <Forward size={14} />;
    case "failed":
    case "denied":
      return <Cross size={14} />;
  }
}

function Details({ part, state }: { part: ToolPart; state: ToolState }) {
  const name = getToolName(part);
  if (name === ASK_PERSON && state !== "preparing") return <AskedDetails part={part} state={state} />;
  const facts = name === READ_PAGE && part.state === "output-available" ? factsOf(part.output) : null;
  if (facts !== null) {
    return (
      <>
        <Rows rows={factRows(facts)} />
        <p className="tool-note">{wasReadHere(part.toolCallId, facts) ? "Read by this page, from itself. Nothing else was looked at." : "Read by a page that had this conversation open, from itself. Nothing else was looked at."}</p>
      </>
    );
  }
  const input = part.input ?? ("rawInput" in part ? part.rawInput : undefined);
  const answered = state === "approval" || state === "denied" || state === "overtaken";
  const rows = answered ? rowsOf(input) : null;
  return (
    <>
      {rows === null ? <Value title="Input" value={input} empty={state === "preparing" ? "Being written…" : "No input"} /> : <Rows rows={rows} />}
      {part.state === "output-available" && <Value title={part.preliminary ? "Output so far" : "Output"} value={part.output} empty="No output" />}
      {part.state === "output-error" && state !== "overtaken" && <Value title="Error" value={part.errorText} empty="No reason given" failed />}
      {state === "denied" && "approval" in part && <Denied reason={part.approval?.reason} />}
      {state === "overtaken" && <Overtaken />}
    </>
  );
}

function Denied({ reason }: { reason: string | undefined }) {
  return (
    <p className="tool-note" data-testid="denied">
      {reason ? <>Denied, so it did not run. Reason given: “{reason}”</> : "Denied, so it did not run."}
    </p>
  );
}

function Overtaken() {
  return <p className="tool-note">The conversation went on before this was answered, so nothing ran.</p>;
}

function AskedDetails({ part, state }: { part: ToolPart; state: ToolState }) {
  // While it is open, the question is the label of its field.
  if (state === "question") return null;
  let answer: ReactNode = null;
  if (part.state === "output-available") answer = <p className="answer-given">{answerOf(part.output)}</p>;
  else if (state === "overtaken") answer = <p className="tool-note">The conversation went on before this was answered.</p>;
  else if (state === "skipped") answer = <p className="tool-note">Nobody answered: the question was skipped.</p>;
  else if (part.state === "output-error") answer = <Value title="Error" value={part.errorText} empty="No reason given" failed />;
  return (
    <>
      <p className="question">{questionOf(part)}</p>
      {answer}
    </>
  );
}

function questionOf(part: ToolPart): string {
  const { question } = (part.input ?? {}) as { question?: unknown };
  return typeof question === "string" ? question : "";
}

function answerOf(output: unknown): string {
  if (typeof output === "string") return output;
  const { answer } = (output ?? {}) as { answer?: unknown };
  return typeof answer === "string" ? answer : pretty(output);
}

function Rows({ rows }: { rows: [string, string][] }) {
  return (
    <dl className="tool-rows">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
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
