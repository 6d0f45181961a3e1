/** Which conversation is on screen, and the list beside it. */
import { Component, Suspense, useEffect, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { Chat } from "./components/chat";
import { Spinner } from "./components/icons";
import { ConnectionPill } from "./components/notices";
import { Scroller, Shell } from "./components/shell";
import { Sidebar } from "./components/sidebar";
import { TokenGate } from "./components/token-gate";
import { useRefusal, useToken } from "./lib/access";
import { freshName, hashOf, initialName, remember, titleOf, useConversations, useHashName } from "./lib/conversations";
import { useHistoryFailing } from "./lib/history";

const NARROW = window.matchMedia("(max-width: 820px)");

export function App() {
  const selected = useHashName();
  const [fallback] = useState(initialName);
  const name = selected ?? fallback;
  const token = useToken();
  const refusal = useRefusal();
  const conversation = useConversations().find((entry) => entry.name === name);
  const title = titleOf(conversation ?? { name });
  const narrow = useSyncExternalStore(onNarrowChange, () => NARROW.matches);
  const [drawer, setDrawer] = useState(false);
  const open = drawer && narrow;
  const sidebar = useRef<HTMLElement>(null);

  useEffect(() => {
    if (location.hash !== hashOf(name)) history.replaceState(history.state, "", hashOf(name));
    remember(name);
  }, [name]);

  useEffect(() => {
    document.title = conversation?.title ? `${conversation.title} · wakeful` : "wakeful";
  }, [conversation?.title]);

  useEffect(() => {
    if (!open) return;
    const opener = document.activeElement;
    sidebar.current?.querySelector<HTMLElement>("button, a")?.focus();
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open]") !== null) return;
      // Taken here, so that the same key does not also stop the answer.
      event.preventDefault();
      setDrawer(false);
    };
    window.addEventListener("keydown", onKeyDown, { capture: true });
    return () => {
      window.removeEventListener("keydown", onKeyDown, { capture: true });
      if (opener instanceof HTMLElement) opener.focus();
    };
  }, [open]);

  function show(next: string) {
    location.hash = hashOf(next);
    setDrawer(false);
  }

  function begin() {
    // An empty conversation is already a new one.
    if (conversation?.title !== undefined) show(freshName());
    setDrawer(false);
    document.querySelector<HTMLElement>("[data-testid=composer]")?.focus();
  }

  return (
    <div className="app" data-drawer={open}>
      <aside className="sidebar" ref={sidebar} inert={narrow && !open} aria-label="Conversations and settings">
        <Sidebar current={name} onOpen={show} onNew={begin} />
      </aside>
      <div className="scrim" hidden={!open} onClick={() => setDrawer(false)} />
      <div className="stage" inert={open}>
        <Boundary key={`${name}\n${token ?? ""}`}>
          {refusal !== null ? (
            <TokenGate status={refusal} hadToken={token !== null} />
          ) : (
            <Suspense fallback={<Loading title={title} onMenu={() => setDrawer(true)} />}>
              <Chat name={name} token={token} title={title} onMenu={() => setDrawer(true)} />
            </Suspense>
          )}
        </Boundary>
      </div>
    </div>
  );
}

function onNarrowChange(listener: () => void): () => void {
  NARROW.addEventListener("change", listener);
  return () => NARROW.removeEventListener("change", listener);
}

function Loading({ title, onMenu }: { title: string; onMenu: () => void }) {
  const failing = useHistoryFailing();
  return (
    <main className="chat" aria-label="Conversation" aria-busy="true">
      <Shell title={title} onMenu={onMenu} tools={<ConnectionPill state="connecting" />}>
        <Scroller>
          <p className="state-line loading" role="status" data-testid="loading">
            <Spinner size={16} />
            {failing ? "The server cannot be reached. Trying again…" : "Opening the conversation…"}
          </p>
        </Scroller>
      </Shell>
    </main>
  );
}

/** A defect of the page must not look like an empty conversation. */
class Boundary extends Component<{ children: ReactNode }, { failure: Error | null }> {
  override state = { failure: null as Error | null };

  static getDerivedStateFromError(failure: Error) {
    return { failure };
  }

  override render() {
    const { failure } = this.state;
    if (failure === null) return this.props.children;
    return (
      <section className="gate" role="alert" data-testid="crash">
        <h2>This page stopped working</h2>
        <p>Your conversation is safe on the server. Reload the page to go on. ({failure.message})</p>
        <button type="button" className="button primary" onClick={() => location.reload()}>
          Reload
        </button>
      </section>
    );
  }
}
