/**
 * Messages that the server has and has not begun to answer: sent from elsewhere while an answer was running.
 * The protocol does not mark them, so they are known by when they came.
 */
import type { UIMessage } from "ai";
import { useCallback, useEffect, useRef, useState } from "react";

const NONE: ReadonlySet<string> = new Set();

export type Queued = {
  ids: ReadonlySet<string>;
  /** An answer has ended: the next message in line is being answered, and these are. */
  advance: (answered: readonly string[]) => void;
};

/** `running`: an answer is being written; `ownWaits`: the latest message is this page's, and that answer is another's. */
export function useQueued(messages: readonly UIMessage[], running: boolean, ownWaits: boolean): Queued {
  const [arrived, setArrived] = useState<readonly string[]>([]);
  const known = useRef<ReadonlySet<string> | null>(null);
  const ran = useRef(false);

  useEffect(() => {
    const users = messages.flatMap((message) => (message.role === "user" ? [message.id] : []));
    const before = known.current;
    known.current = new Set(users);
    if (running && ran.current && before !== null) {
      const fresh = users.filter((id) => !before.has(id));
      if (fresh.length > 0) setArrived((old) => [...old, ...fresh]);
    }
    ran.current = running;
  }, [messages, running]);

  const advance = useCallback((answered: readonly string[]) => {
    setArrived((old) => (old.length === 0 ? old : old.filter((id) => !answered.includes(id)).slice(1)));
  }, []);

  if (!running) return { ids: NONE, advance };
  const own = ownWaits ? messages.findLast((message) => message.role === "user") : undefined;
  const ids = arrived.length === 0 && own === undefined ? NONE : new Set([...arrived, ...(own === undefined ? [] : [own.id])]);
  return { ids, advance };
}
