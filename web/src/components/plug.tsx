/** Ends the conversation's object in the middle of its work, so that one can watch it carry on. Only where the server offers it. */
import { useId, useRef, useState } from "react";
import { announce } from "../lib/announce";
import { addressOf } from "../lib/connection";
import { Plug } from "./icons";

const KINDS = [
  { kind: "abort", title: "Abort", what: "The object dies at once and its connections close, as in a deploy or a crash." },
  { kind: "panic", title: "Panic", what: "Its code fails: its memory is gone, and its connections close." },
  { kind: "hang", title: "Hang", what: "The model falls silent and never ends. After some seconds that is noticed." },
] as const;

type PullThePlugProps = { name: string; token: string | null };

export function PullThePlug({ name, token }: PullThePlugProps) {
  const menu = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);
  const id = useId();

  async function pull(kind: string) {
    menu.current?.hidePopover();
    announce("The plug is pulled.");
    // An object that died before its answer left has done what it was asked to.
    await fetch(addressOf(name, token, `plug/${kind}`), { method: "POST" }).catch(() => null);
  }

  return (
    <>
      <button type="button" className="icon-button with-text plug" popoverTarget={id} aria-haspopup="true" aria-expanded={open} aria-label="Pull the plug" title="Pull the plug" data-testid="plug">
        <Plug />
        <span aria-hidden="true">Pull the plug</span>
      </button>
      <div ref={menu} id={id} popover="auto" className="plug-menu" role="group" aria-label="Pull the plug" data-testid="plug-menu" data-open={open} onToggle={(event) => setOpen(event.newState === "open")}>
        <p>End the agent in mid-sentence: it carries on.</p>
        <ul>
          {KINDS.map(({ kind, title, what }) => (
            <li key={kind}>
              <button type="button" data-testid={`plug-${kind}`} onClick={() => void pull(kind)}>
                <strong>{title}</strong>
                <span>{what}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
    </>
  );
}
