/** What an empty conversation says to somebody who has never seen this: what it is, and three things to try. */
import type { ComponentType } from "react";
import { Clock, Logo, Note, Sparkle } from "./icons";

type Suggestion = { text: string; title: string; note: string; Icon: ComponentType<{ size?: number }> };

const SUGGESTIONS: Suggestion[] = [
  { text: "What can you do?", title: "What can you do?", note: "Meet the agent that answers here", Icon: Sparkle },
  { text: "Save a note: buy milk", title: "Save a note: buy milk", note: "A tool that runs only if you allow it", Icon: Note },
  { text: "Talk slowly for 30 seconds", title: "Talk slowly for 30 seconds", note: "Reload in mid-answer: it goes on", Icon: Clock },
];

export function Welcome({ onTry }: { onTry: (text: string) => void }) {
  return (
    <section className="welcome" data-testid="welcome" aria-labelledby="welcome-title">
      <Logo size={56} />
      <h2 id="welcome-title">An agent that stays awake</h2>
      <p>
        This conversation lives in a Durable Object: it is stored as it is spoken, looks the same in every tab, and an answer that was begun goes on after a
        reload. With no model configured, a small built-in demo model answers.
      </p>
      <ul className="suggestions" aria-label="Things to try">
        {SUGGESTIONS.map(({ text, title, note, Icon }) => (
          <li key={text}>
            <button type="button" className="suggestion" data-testid="suggestion" onClick={() => onTry(text)}>
              <Icon size={18} />
              <span className="suggestion-title">{title}</span>
              <span className="suggestion-note">{note}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
