/** The model's reasoning: open while it is written, folded away after, unless the reader has decided otherwise. */
import { useEffect, useId, useRef, useState } from "react";
import { Bulb, Chevron } from "./icons";
import { Markdown } from "./markdown";

export function Reasoning({ text, live }: { text: string; live: boolean }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const seconds = useDuration(live);
  const body = useId();
  const open = chosen ?? live;
  const title = live ? "Thinking" : seconds === null ? "Thought about it" : `Thought for ${seconds} s`;
  return (
    <section className="reasoning" data-testid="reasoning" data-state={live ? "streaming" : "done"} data-open={open}>
      <button type="button" className="disclosure" aria-expanded={open} aria-controls={body} onClick={() => setChosen(!open)}>
        <Bulb size={16} />
        <span className={live ? "shimmer" : ""}>{title}</span>
        <span className="disclosure-mark">
          <Chevron size={14} />
        </span>
      </button>
      <div id={body} hidden={!open} className="reasoning-body">
        {open && <Markdown text={text} live={live} />}
      </div>
    </section>
  );
}

/** How long it took, as far as this page has watched it; `null` for reasoning that was there already. */
function useDuration(live: boolean): number | null {
  const since = useRef<number | null>(null);
  const [seconds, setSeconds] = useState<number | null>(null);
  useEffect(() => {
    if (live) {
      since.current ??= performance.now();
    } else if (since.current !== null) {
      setSeconds(Math.max(1, Math.round((performance.now() - since.current) / 1_000)));
      since.current = null;
    }
  }, [live]);
  return seconds;
}
