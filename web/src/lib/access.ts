/**
 * The access token, and whether the server refused us.
 * A browser hides the status of a failed WebSocket upgrade, so a refusal is learnt from plain HTTP requests.
 */
import { useSyncExternalStore } from "react";
import { stored, useStored } from "./stored";

const token = stored<string | null>(() => localStorage, "wakeful.token", (raw) => (typeof raw === "string" && raw !== "" ? raw : null));

let refused: number | null = null;
const listeners = new Set<() => void>();

/** Takes `?token=` over into storage and out of the address bar, where it would be shared by accident. */
export function adoptTokenFromUrl(): void {
  const url = new URL(location.href);
  const given = url.searchParams.get("token");
  if (given === null) return;
  url.searchParams.delete("token");
  history.replaceState(history.state, "", url);
  token.set(given === "" ? null : given);
}

export function useToken(): string | null {
  return useStored(token);
}

/** Starts over with another token: everything that was refused is fetched again. */
export function giveToken(value: string): void {
  token.set(value);
  location.reload();
}

/** The status (401 or 403) with which the server refused this page, or `null`. */
export function useRefusal(): number | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => refused,
  );
}

export function reportStatus(status: number): void {
  if ((status !== 401 && status !== 403) || refused === status) return;
  refused = status;
  listeners.forEach((listener) => listener());
}
