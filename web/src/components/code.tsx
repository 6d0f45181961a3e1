/** A block of source text: language, copy button, colours as soon as the highlighter has been loaded. */
import { memo, useEffect, useMemo, useState, type ReactNode } from "react";
import { CopyButton } from "./button";

type Highlighter = typeof import("../lib/highlighter");

let loaded: Highlighter | null = null;
let loading: Promise<Highlighter | null> | null = null;

function useHighlighter(wanted: boolean): Highlighter | null {
  const [highlighter, setHighlighter] = useState(loaded);
  useEffect(() => {
    if (!wanted || highlighter) return;
    let current = true;
    // Without colours the text is as readable: a failed load is not worth an error.
    loading ??= import("../lib/highlighter").then(
      (module) => (loaded = module),
      () => (loading = null),
    );
    void loading.then((module) => {
      if (current && module) setHighlighter(module);
    });
    return () => {
      current = false;
    };
  }, [wanted, highlighter]);
  return highlighter;
}

/** Colouring starts over with each new piece of text, so a long block is coloured only once it is complete. */
const LIVE_LIMIT = 4_000;

export const CodeBlock = memo(function CodeBlock({ code, language, live }: { code: string; language: string; live: boolean }) {
  const highlighter = useHighlighter(language !== "");
  const coloured = useMemo<ReactNode>(
    () => (highlighter && language !== "" && !(live && code.length > LIVE_LIMIT) ? highlighter.highlight(code, language) : code),
    [highlighter, code, language, live],
  );
  return (
    <div className="code" data-testid="code">
      <div className="code-head">
        <span>{language || "text"}</span>
        <CopyButton text={() => code} label="Copy code" size={14} withText />
      </div>
      <pre tabIndex={0} aria-label={language ? `${language} code` : "code"}>
        <code>{coloured}</code>
      </pre>
    </div>
  );
});
