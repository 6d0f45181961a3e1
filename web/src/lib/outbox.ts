/**
 * Messages the reader has sent that the server has not been given yet: behind a running answer, or while offline.
 * They wait here rather than in the socket's buffer so that they survive a reload, can be taken back,
 * and leave `stop()` pointing at the answer on screen.
 */
import type { FileUIPart, TextUIPart } from "ai";
import { useCallback, useEffect, useRef } from "react";
import { stored, useStored, type Stored } from "./stored";

export type Outgoing = { id: string; parts: (TextUIPart | FileUIPart)[] };

const stores = new Map<string, Stored<Outgoing[]>>();

function storeOf(name: string): Stored<Outgoing[]> {
  let store = stores.get(name);
  if (store === undefined) {
    store = stored<Outgoing[]>(() => sessionStorage, `wakeful.outbox.${name}`, (raw) => (Array.isArray(raw) ? raw.filter(isOutgoing) : []));
    stores.set(name, store);
  }
  return store;
}

function isOutgoing(value: unknown): value is Outgoing {
  if (typeof value !== "object" || value === null) return false;
  const { id, parts } = value as Record<string, unknown>;
  return typeof id === "string" && Array.isArray(parts) && parts.length > 0;
}

export type Outbox = {
  waiting: Outgoing[];
  /** Sends the message now if `open` says that the server would begin with it at once, else lets it wait. */
  offer: (message: Outgoing, open: boolean) => void;
  remove: (id: string) => void;
  /** Sends the first waiting message, whatever it waits for. */
  release: () => void;
  /** The server has shown that it has these messages. */
  confirm: (ids: Iterable<string>) => void;
  confirmAll: () => void;
  /** The socket closed: what is unconfirmed may have been lost with it. */
  suspectAll: () => void;
  hasSuspects: () => boolean;
  /** The server's first transcript after that: what it does not hold is put back in front of the queue. */
  reconcile: (held: ReadonlySet<string>) => void;
  empty: () => void;
};

/**
 * `free`: the server is there and has nothing to do, so the next waiting message may go; `hold`: it had better not go by itself,
 * since it would overtake what the reader has been asked meanwhile.
 */
export function useOutbox(name: string, free: boolean, hold: boolean, send: (message: Outgoing) => void): Outbox {
  const store = storeOf(name);
  const waiting = useStored(store);
  const unconfirmed = useRef(new Map<string, Outgoing>());
  const suspects = useRef(new Set<string>());
  // Between handing a message over and the hook reporting a busy status, `free` is out of date.
  const handed = useRef<string | null>(null);
  const latestSend = useRef(send);
  useEffect(() => {
    latestSend.current = send;
  });

  const deliver = useCallback((message: Outgoing) => {
    handed.current = message.id;
    unconfirmed.current.set(message.id, message);
    latestSend.current(message);
  }, []);

  const remove = useCallback((id: string) => store.set(store.get().filter((message) => message.id !== id)), [store]);

  const offer = useCallback(
    (message: Outgoing, open: boolean) => {
      if (open && handed.current === null && store.get().length === 0) deliver(message);
      else store.set([...store.get(), message]);
    },
    [store, deliver],
  );

  const release = useCallback(() => {
    const next = store.get()[0];
    if (handed.current !== null || next === undefined) return;
    remove(next.id);
    deliver(next);
  }, [store, remove, deliver]);

  useEffect(() => {
    if (!free) handed.current = null;
    else if (!hold) release();
  });

  const confirm = useCallback((ids: Iterable<string>) => {
    for (const id of ids) {
      unconfirmed.current.delete(id);
      suspects.current.delete(id);
      if (handed.current === id) handed.current = null;
    }
  }, []);

  return {
    waiting,
    offer,
    remove,
    release,
    confirm,
    confirmAll: useCallback(() => confirm([...unconfirmed.current.keys()]), [confirm]),
    suspectAll: useCallback(() => {
      for (const id of unconfirmed.current.keys()) suspects.current.add(id);
    }, []),
    hasSuspects: useCallback(() => suspects.current.size > 0, []),
    reconcile: useCallback(
      (held) => {
        const lost = [...suspects.current].flatMap((id) => (held.has(id) ? [] : (unconfirmed.current.get(id) ?? [])));
        confirm([...suspects.current]);
        if (lost.length > 0) store.set([...lost, ...store.get()]);
      },
      [store, confirm],
    ),
    empty: useCallback(() => {
      unconfirmed.current.clear();
      suspects.current.clear();
      handed.current = null;
      store.set([]);
    }, [store]),
  };
}
