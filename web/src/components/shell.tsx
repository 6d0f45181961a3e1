/** The frame around a conversation: title bar on top, the thread, the composer below. Also drawn while it loads. */
import type { ReactNode, Ref } from "react";
import { useTheme } from "../lib/theme";
import { IconButton } from "./button";
import { Contrast, Menu, Moon, Sun } from "./icons";

type ShellProps = { title: string; onMenu: () => void; tools?: ReactNode; children: ReactNode };

export function Shell({ title, onMenu, tools, children }: ShellProps) {
  return (
    <>
      <header className="chat-head">
        <IconButton label="Open the list of conversations" title="Conversations" className="menu" data-testid="menu" onClick={onMenu}>
          <Menu />
        </IconButton>
        <h2 className="chat-title">{title}</h2>
        <div className="chat-tools">
          {tools}
          <ThemeButton />
        </div>
      </header>
      {children}
    </>
  );
}

function ThemeButton() {
  const { theme, next, advance } = useTheme();
  const Icon = theme === "light" ? Sun : theme === "dark" ? Moon : Contrast;
  return (
    <IconButton label={`Colours: ${theme}. Switch to ${next}.`} title={`Colours: ${theme}`} data-testid="theme" data-theme-choice={theme} onClick={advance}>
      <Icon />
    </IconButton>
  );
}

export function Scroller({ ref, children }: { ref?: Ref<HTMLDivElement>; children: ReactNode }) {
  return (
    <div className="scroller" ref={ref} tabIndex={-1}>
      <div className="thread">{children}</div>
    </div>
  );
}
