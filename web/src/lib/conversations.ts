/**
 * Which conversations this browser knows, which one the address bar selects, and what may be a name.
 * The conversations themselves live on the server, under their names; this list only remembers where to look.
 */
import { useSyncExternalStore } from "react";
import { stored, useStored } from "./stored";

export type Conversation = { name: string; title?: string; usedAt: number };

const MAX_NAME_BYTES = 256;
const MAX_TITLE = 80;

/** Why a name cannot be used, or `null` when it can. */
export function nameProblem(name: string): string | null {
  if (name === "") return "A name needs at least one character.";
  // These two are path segments that every URL parser removes, however they are written.
  if (name === "." || name === "..") return "“.” and “..” cannot be names.";
  if (/\p{Cc}/u.test(name)) return "A name cannot contain control characters.";
  // A lone surrogate has no UTF-8 form, and encodeURIComponent throws on it.
  if (/\p{Cs}/u.test(name)) return "This name contains a broken character.";
  const bytes = encodeURIComponent(name).length;
  if (bytes > MAX_NAME_BYTES) return `This name is too long: ${bytes} bytes in an address, at most ${MAX_NAME_BYTES} are allowed.`;
  return null;
}

const FRESH = /^chat-[0-9a-z]{10}$/;

/** A name nobody guesses: whoever knows the name of a conversation can open it. */
export function freshName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return `chat-${Array.from(bytes, (byte) => (byte % 36).toString(36)).join("")}`;
}

export function hashOf(name: string): string {
  return `#/c/${encodeURIComponent(name)}`;
}

export function nameOfHash(hash: string): string | null {
  if (!hash.startsWith("#/c/")) return null;
  try {
    const name = decodeURIComponent(hash.slice("#/c/".length));
    return nameProblem(name) === null ? name : null;
  } catch {
    return null;
  }
}

const list = stored<Conversation[]>(() => localStorage, "wakeful.conversations", (raw) => {
  if (!Array.isArray(raw)) return [];
  return raw.flatMap((entry: unknown): Conversation[] => {
    if (typeof entry !== "object" || entry === null) return [];
    const { name, title, usedAt } = entry as Record<string, unknown>;
    if (typeof name !== "string" || nameProblem(name) !== null) return [];
    return [{ name, ...(typeof title === "string" ? { title } : {}), usedAt: typeof usedAt === "number" ? usedAt : 0 }];
  });
});

export function useConversations(): Conversation[] {
  return useStored(list);
}

/** Puts a conversation into the list, or to its top when `touch` is set. */
export function remember(name: string, change: { title?: string; touch?: boolean } = {}): void {
  const entries = list.get();
  const known = entries.find((entry) => entry.name === name);
  const title = change.title === undefined ? known?.title : shorten(change.title);
  const usedAt = known === undefined || change.touch ? Date.now() : known.usedAt;
  if (known !== undefined && known.title === title && known.usedAt === usedAt) return;
  const entry: Conversation = { name, ...(title ? { title } : {}), usedAt };
  list.set([entry, ...entries.filter((other) => other.name !== name)].sort((a, b) => b.usedAt - a.usedAt));
}

export function forget(name: string): void {
  list.set(list.get().filter((entry) => entry.name !== name));
}

/** A name somebody chose says more than nothing; one this page made up does not. */
export function titleOf({ name, title }: Pick<Conversation, "name" | "title">): string {
  return title ?? (FRESH.test(name) ? "New conversation" : name);
}

function shorten(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  const characters = Array.from(line);
  return characters.length <= MAX_TITLE ? line : `${characters.slice(0, MAX_TITLE - 1).join("").trimEnd()}…`;
}

/** The selected conversation: the address bar's, else the one used last, else a new one. */
export function initialName(): string {
  return nameOfHash(location.hash) ?? list.get()[0]?.name ?? freshName();
}

export function useHashName(): string | null {
  return useSyncExternalStore(
    (listener) => {
      window.addEventListener("hashchange", listener);
      return () => window.removeEventListener("hashchange", listener);
    },
    () => nameOfHash(location.hash),
  );
}
