/**
 * A value kept in web storage and shared by every component that reads it.
 * Storage that is blocked, full or holds something foreign never breaks the page: the value then lives in memory.
 */
import { useSyncExternalStore } from "react";

export type Stored<T> = {
  get(): T;
  set(next: T): void;
  subscribe(listener: () => void): () => void;
};

export function stored<T>(storage: () => Storage, key: string, parse: (raw: unknown) => T): Stored<T> {
  const listeners = new Set<() => void>();
  const notify = () => listeners.forEach((listener) => listener());
  let value = read();

  function read(): T {
    try {
      const raw = storage().getItem(key);
      return parse(raw === null ? undefined : JSON.parse(raw));
    } catch {
      return parse(undefined);
    }
  }

  // Other tabs of the page write the same key.
  function onStorage(event: StorageEvent) {
    if (event.key !== key && event.key !== null) return;
    value = read();
    notify();
  }

  return {
    get: () => value,
    set(next) {
      value = next;
      try {
        storage().setItem(key, JSON.stringify(next));
      } catch {
        // Blocked or full: the value stays valid for this page view.
      }
      notify();
    },
    subscribe(listener) {
      if (listeners.size === 0) window.addEventListener("storage", onStorage);
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0) window.removeEventListener("storage", onStorage);
      };
    },
  };
}

export function useStored<T>(store: Stored<T>): T {
  return useSyncExternalStore(store.subscribe, store.get);
}
