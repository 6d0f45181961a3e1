/** What a conversation does outside of its own elements: the root's status, the title, what is read out, keys and dropped files. */
import type { UIMessage } from "ai";
import { useEffect, useRef, useState } from "react";
import { announce } from "./announce";
import { remember } from "./conversations";
import { textOf, titleFrom } from "./text";

const ANNOUNCED_CHARS = 600;

/** Puts the hook's status on the root element, where tests and styles find it whatever is rendered below. */
export function useDocumentStatus(status: string): void {
  useEffect(() => {
    const root = document.getElementById("root");
    if (!root) return;
    root.dataset.status = status;
    return () => {
      root.dataset.status = "loading";
    };
  }, [status]);
}

export function useTitle(name: string, messages: readonly UIMessage[]): void {
  const title = titleFrom(messages);
  useEffect(() => {
    if (title !== undefined) remember(name, { title });
  }, [name, title]);
}

/** Reads a finished answer out once; a live region on the growing text would stutter it token by token. */
export function useAnnouncedAnswers(busy: boolean, messages: readonly UIMessage[], turnError: string | null, parked: boolean): void {
  const wasBusy = useRef(busy);
  useEffect(() => {
    const finished = wasBusy.current && !busy;
    wasBusy.current = busy;
    if (!finished || turnError !== null) return;
    const last = messages.at(-1);
    if (last?.role !== "assistant") return;
    const text = textOf(last).replace(/[*_`#>|]+/g, "");
    const short = text.length > ANNOUNCED_CHARS ? `${text.slice(0, ANNOUNCED_CHARS)}… The rest is in the conversation.` : text;
    announce(parked ? `${short} The agent waits for you.` : short);
  }, [busy, messages, turnError, parked]);
}

export function useEscape(active: boolean, action: () => void): void {
  useEffect(() => {
    if (!active) return;
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && document.querySelector("dialog[open], [popover][data-open=true]") === null) action();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [active, action]);
}

/**
 * Takes files dropped anywhere in the window: beside a smaller target the browser would open them in place of the page.
 * Says whether some are being dragged over it.
 */
export function useFileDrop(onFiles: (files: FileList) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(onFiles);
  useEffect(() => {
    latest.current = onFiles;
  });
  useEffect(() => {
    const listeners = new AbortController();
    const on = (type: "dragover" | "dragleave" | "drop", handle: (event: DragEvent, data: DataTransfer) => void) =>
      window.addEventListener(type, (event) => event.dataTransfer?.types.includes("Files") && handle(event, event.dataTransfer), listeners);
    on("dragover", (event) => {
      event.preventDefault();
      setOver(true);
    });
    // Leaving an element for another one is not leaving the window.
    on("dragleave", (event) => setOver(event.relatedTarget !== null));
    on("drop", (event, data) => {
      event.preventDefault();
      setOver(false);
      latest.current(data.files);
    });
    return () => listeners.abort();
  }, []);
  return over;
}
