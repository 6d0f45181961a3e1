/** What is worth saying only when it lasts. */
import { useEffect, useState } from "react";

/** Whether something has lasted for so long. */
export function useLate(lasts: boolean, ms: number): boolean {
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (!lasts) return;
    const timer = setTimeout(() => setLate(true), ms);
    return () => {
      clearTimeout(timer);
      setLate(false);
    };
  }, [lasts, ms]);
  return lasts && late;
}
