// The stock browser client, unmodified: `useAgent` and `useAgentChat` in React, in a DOM without a screen. A tab reaches
// the worker over a cable of its own, so that a test can pull it.

import { after } from "node:test";
import { JSDOM } from "jsdom";

const dom = new JSDOM("<!doctype html>", { url: "http://127.0.0.1/" });
// The hooks leave timers behind (a stream that was promised is waited for a minute); the process need not wait for them.
const timers = [];
const startTimer = globalThis.setTimeout;
globalThis.setTimeout = (...args) => {
  timers.push(startTimer(...args));
  return timers.at(-1);
};
after(() => {
  dom.window.close();
  timers.forEach(clearTimeout);
});
for (const name of ["window", "document", "HTMLElement", "Element", "Node", "navigator", "localStorage", "sessionStorage"]) {
  Object.defineProperty(globalThis, name, { value: dom.window[name], configurable: true, writable: true });
}

const React = await import("react");
const { createRoot } = await import("react-dom/client");
const { useAgent } = await import("agents/react");
const HOOKS = {
  "ai-chat": (await import("@cloudflare/ai-chat/react")).useAgentChat,
  think: (await import("@cloudflare/think/react")).useAgentChat,
};
const { startLink } = await import("./link.mjs");

export const PACKAGES = Object.keys(HOOKS);
const LIMIT_MS = 15_000;

/**
 * Opens a tab on `room`. `use` names the package whose hook is used; `chat` and `agent` are further options of
 * `useAgentChat` and `useAgent`.
 *
 * `tab.now` is what the hook returned in its last render, `tab.seen` every render so far, and `await tab.until(fits)`
 * the first render, from now on, that fits.
 */
export async function openTab(room, worker, { use = "ai-chat", chat: chatOptions = {}, agent: agentOptions = {} } = {}) {
  const link = await startLink(worker.port);
  const seen = [];
  const watchers = new Set();
  const turnsEnded = [];
  const states = [];
  let agentOfTab;
  let crash;

  const notify = () => {
    for (const watcher of [...watchers]) watcher(seen.at(-1));
  };
  const publish = (value) => {
    seen.push(value);
    notify();
  };
  const onTurnEnd = (turn) => {
    turnsEnded.push(turn);
    notify();
  };

  function Tab() {
    const agent = useAgent({
      agent: "ChatAgent",
      name: room.name,
      host: link.host,
      onStateUpdate: (state, source) => states.push({ state, source }),
      ...agentOptions,
    });
    agentOfTab = agent;
    const chat = HOOKS[use]({ agent, onTurnEnd, ...chatOptions });
    React.useLayoutEffect(() => {
      publish({ ...chat, connectionError: agent.connectionError, identified: agent.identified });
    });
    return null;
  }

  class Boundary extends React.Component {
    state = { failed: false };
    static getDerivedStateFromError() {
      return { failed: true };
    }
    componentDidCatch(error) {
      crash = error;
      notify();
    }
    render() {
      return this.state.failed ? null : this.props.children;
    }
  }

  const root = createRoot(dom.window.document.createElement("div"));
  root.render(
    React.createElement(Boundary, null, React.createElement(React.Suspense, { fallback: null }, React.createElement(Tab))),
  );

  const tab = {
    link,
    seen,
    turnsEnded,
    states,
    get now() {
      return seen.at(-1);
    },
    get agent() {
      return agentOfTab;
    },
    /** Resolves with the first render that fits; the one on screen counts. */
    until(fits, { limitMs = LIMIT_MS, what = fits } = {}) {
      if (seen.length > 0 && fits(seen.at(-1))) return Promise.resolve(seen.at(-1));
      const asked = new Error();
      return new Promise((resolve, reject) => {
        const finish = (settle, value) => {
          clearTimeout(limit);
          watchers.delete(watcher);
          settle(value);
        };
        const limit = setTimeout(() => {
          asked.message = `not on screen within ${limitMs} ms: ${what}\nlast: ${describe(seen.at(-1))}`;
          finish(reject, asked);
        }, limitMs);
        const watcher = (value) => {
          if (crash !== undefined) finish(reject, crash);
          else if (value !== undefined && fits(value)) finish(resolve, value);
        };
        watchers.add(watcher);
      });
    },
    /** Resolves when the agent said who it is. */
    async ready() {
      await tab.until((value) => value.identified === true && value.status === "ready");
      return tab;
    },
    async close() {
      root.unmount();
      agentOfTab?.close();
      await link.stop();
    },
  };
  return tab;
}

/** Text of each message on screen. */
export const screen = (value) =>
  value.messages.map((message) => [message.role, message.parts.map((part) => (part.type === "text" ? part.text : "")).join("")]);

/** A message as both reducers agree on it: ids, roles, texts, and what became of each call (wire 170). */
export function essence(message) {
  return {
    id: message.id,
    role: message.role,
    parts: message.parts.map((part) => {
      const { type, text, toolCallId, input, output, errorText } = part;
      const state = type.startsWith("tool-") ? part.state : undefined;
      return JSON.parse(JSON.stringify({ type, text, toolCallId, state, input, output, errorText }));
    }),
  };
}

function describe(value) {
  if (value === undefined) return "nothing rendered yet";
  const { messages, status, error, isServerStreaming, isRecovering, connectionError } = value;
  return JSON.stringify({ status, error: error?.message, isServerStreaming, isRecovering, connectionError, messages }).slice(0, 1_500);
}
