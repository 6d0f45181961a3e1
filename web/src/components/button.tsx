/** The small icon button used all over the page, and its variant that copies text. */
import { useEffect, useState, type ComponentProps, type ReactNode } from "react";
import { announce } from "../lib/announce";
import { Check, Copy, Cross } from "./icons";

type IconButtonProps = Omit<ComponentProps<"button">, "aria-label" | "children"> & { label: string; children: ReactNode };

export function IconButton({ label, children, className, ...rest }: IconButtonProps) {
  return (
    <button type="button" {...rest} className={`icon-button${className ? ` ${className}` : ""}`} aria-label={label} title={rest.title ?? label}>
      {children}
    </button>
  );
}

const SHOWN_MS = 1_600;
const SAID = { idle: null, copied: "Copied", failed: "Copying is not allowed here" };

export function CopyButton({ text, label = "Copy", size, withText = false }: { text: () => string; label?: string; size?: number; withText?: boolean }) {
  const [outcome, setOutcome] = useState<"idle" | "copied" | "failed">("idle");
  useEffect(() => {
    if (outcome === "idle") return;
    const timer = setTimeout(() => setOutcome("idle"), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [outcome]);

  const said = SAID[outcome] ?? label;
  function settle(result: "copied" | "failed") {
    setOutcome(result);
    announce(SAID[result]);
  }
  const mark = outcome === "copied" ? <Check size={size} /> : outcome === "failed" ? <Cross size={size} /> : <Copy size={size} />;
  return (
    <IconButton
      label={said}
      data-testid="copy"
      data-outcome={outcome}
      className={withText ? "with-text" : ""}
      onClick={() => {
        writeClipboard(text()).then(
          () => settle("copied"),
          () => settle("failed"),
        );
      }}
    >
      {mark}
      {withText && <span aria-hidden="true">{outcome === "idle" ? "Copy" : outcome === "copied" ? "Copied" : "Failed"}</span>}
    </IconButton>
  );
}

/** `navigator.clipboard` exists only in secure contexts, which a page on a LAN address is not. */
async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("copy refused");
}
