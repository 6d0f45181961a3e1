/**
 * Loads the stored messages of a conversation for the chat hook.
 * The promise never rejects: the hook keeps a rejected one for ever, so a network failure is retried here instead.
 */
import type { UIMessage } from "ai";
import { useSyncExternalStore } from "react";
import { reportStatus } from "./access";
import { addressOf } from "./connection";

const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 10_000;

let failing = false;
const listeners = new Set<() => void>();

function setFailing(value: boolean) {
  if (failing === value) return;
  failing = value;
  listeners.forEach((listener) => listener());
}

/** Whether the history could not be fetched and is being tried again. */
export function useHistoryFailing(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => failing,
  );
}

export async function loadHistory({ url }: { url?: string }): Promise<UIMessage[]> {
  if (url === undefined) return [];
  const address = new URL(url);
  address.pathname += "/get-messages";
  for (let delay = FIRST_RETRY_MS; ; delay = Math.min(delay * 2, LAST_RETRY_MS)) {
    try {
      const response = await fetch(address);
      if (response.status < 500 && response.status !== 429) {
        setFailing(false);
        reportStatus(response.status);
        const messages: unknown = response.ok ? await response.json() : [];
        return Array.isArray(messages) ? (messages as UIMessage[]) : [];
      }
    } catch {
      // Unreachable or cut off: try again below.
    }
    setFailing(true);
    await untilOnlineOr(delay);
  }
}

function untilOnlineOr(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    window.addEventListener("online", done);
  });
}

/** The conversation as it is stored now; `null` if it cannot be had. */
export async function readHistory(name: string, token: string | null): Promise<UIMessage[] | null> {
  try {
    const answer = await fetch(addressOf(name, token, "get-messages"));
    return answer.ok ? ((await answer.json()) as UIMessage[]) : null;
  } catch {
    return null;
  }
}
