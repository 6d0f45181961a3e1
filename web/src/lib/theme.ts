/** Light, dark or the system's choice; `public/theme.js` applies the remembered one before the first paint. */
import { useEffect } from "react";
import { stored, useStored } from "./stored";

export type Theme = "system" | "light" | "dark";

const theme = stored<Theme>(() => localStorage, "wakeful.theme", (raw) => (raw === "light" || raw === "dark" ? raw : "system"));

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function useTheme(): { theme: Theme; next: Theme; advance: () => void } {
  const current = useStored(theme);
  useEffect(() => {
    if (current === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = current;
  }, [current]);
  return { theme: current, next: NEXT[current], advance: () => theme.set(NEXT[current]) };
}
