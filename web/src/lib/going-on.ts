/** The moment between the last answer a conversation waited for and the first word of what follows it. */
import { useEffect, useState } from "react";

/** The server goes on at once; if nothing comes, somebody has answered without wanting it to. */
const GO_ON_MS = 3_000;

/**
 * Whether the agent is about to go on: everything asked in `message` has been answered, here or elsewhere, and nothing has come yet.
 * A message sent in this moment would overtake what was just answered.
 */
export function useGoingOn(message: string | undefined, open: boolean, arriving: boolean): boolean {
  const [seen, setSeen] = useState({ message, open });
  const [expected, setExpected] = useState<string | undefined>(undefined);

  // While rendering, not after it: an effect that sees the answer without this would already send what waits.
  if (seen.message !== message || seen.open !== open) {
    setSeen({ message, open });
    setExpected(seen.message === message && seen.open ? message : undefined);
  } else if (expected !== undefined && arriving) {
    setExpected(undefined);
  }

  useEffect(() => {
    if (expected === undefined) return;
    const timer = setTimeout(() => setExpected(undefined), GO_ON_MS);
    return () => clearTimeout(timer);
  }, [expected]);

  return expected !== undefined;
}
