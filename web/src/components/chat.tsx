/** One conversation on the stock hooks: what is shown of it, and what each action of the reader does to it. */
import { useAgentChat, type ChatTurnEndEvent } from "@cloudflare/ai-chat/react";
import { generateId, type FileUIPart, type TextUIPart, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState, type DragEvent } from "react";
import { announce } from "../lib/announce";
import { useConnection } from "../lib/connection";
import { remember } from "../lib/conversations";
import { isTouch, prefersReducedMotion } from "../lib/device";
import { loadHistory } from "../lib/history";
import { useOutbox, type Outbox, type Outgoing } from "../lib/outbox";
import { useStickyScroll } from "../lib/sticky-scroll";
import { isVisible, textOf, titleFrom } from "../lib/text";
import { IconButton } from "./button";
import { Composer, type ComposerHandle, type Draft } from "./composer";
import { Confirm } from "./dialog";
import { Files } from "./files";
import { ArrowDown, Clock, Cross, Spinner, Trash } from "./icons";
import { Message, type MessageActions } from "./message";
import { ConnectionBanner, ConnectionPill, TurnError } from "./notices";
import { Scroller, Shell } from "./shell";
import { Welcome } from "./welcome";

/** The transport reports a lost socket as an error of the turn; the turn goes on and the hook finds it again. */
const SOCKET_LOST = "WebSocket closed mid-stream";
/** Messages drawn at first; a long transcript is drawn backwards in steps of this many. */
const PAGE = 60;
const ANNOUNCED_CHARS = 600;
/** How long the end of a stopped answer is waited for; the server sends it at once. */
const STOP_MS = 5_000;

type ChatProps = { name: string; token: string | null; title: string; onMenu: () => void };

export function Chat({ name, token, title, onMenu }: ChatProps) {
  const outboxRef = useRef<Outbox | null>(null);
  const [ended, setEnded] = useState<ChatTurnEndEvent | null>(null);
  const [stopping, setStopping] = useState(false);
  const composer = useRef<ComposerHandle>(null);
  const scroll = useStickyScroll();

  const connection = useConnection(name, token, {
    onLost: () => {
      setStopping(false);
      outboxRef.current?.suspectAll();
    },
    onCleared: () => outboxRef.current?.empty(),
    wantsTranscript: () => outboxRef.current?.hasSuspects() ?? false,
    onTranscript: (held) => outboxRef.current?.reconcile(new Set(held.map((message) => message.id))),
  });
  const { agent, liveRequest } = connection;

  const chat = useAgentChat({
    agent,
    getInitialMessages: loadHistory,
    onTurnEnd: (event) => {
      setStopping(false);
      outboxRef.current?.confirm(event.messageIds ?? []);
      setEnded(event);
    },
  });
  const { messages, status, error, isServerStreaming, isRecovering, isToolContinuation } = chat;

  const busy = status === "submitted" || status === "streaming" || isServerStreaming;
  const ownError = status === "error" && error !== undefined && error.message !== SOCKET_LOST ? error.message : null;
  // Stopping ends the hook's turn at once and the server's a round trip later, with a transcript: a message sent in
  // between would be wiped off this screen by it.
  const idle = connection.synced && !busy && !stopping;
  const outbox = useOutbox(name, idle && status !== "error", ({ id, parts }) => {
    setEnded(null);
    remember(name, { touch: true });
    void chat.sendMessage({ id, role: "user", parts });
  });
  useEffect(() => {
    outboxRef.current = outbox;
  });

  // The first piece of the answer proves that the server has the question.
  const { confirmAll } = outbox;
  useEffect(() => {
    if (status === "streaming") confirmAll();
  }, [status, confirmAll]);

  const last = messages.at(-1);
  const live = busy && last?.role === "assistant" && (status !== "submitted" || isToolContinuation) ? last : undefined;
  const remote = isServerStreaming && status === "ready" && !isToolContinuation;
  const endedHere = !busy && ended !== null && concerns(ended, messages) ? ended : null;
  const turnError = ownError ?? (endedHere?.outcome === "error" ? (endedHere.error ?? "The answer ended with an error.") : null);

  useDocumentStatus(status);
  useTitle(name, messages);
  useAnnouncedAnswers(busy, messages, turnError);

  const { stop } = chat;
  const stopTurn = useCallback(() => {
    const request = liveRequest();
    setStopping(true);
    void stop();
    // The hook cancels the turns it is attached to; a turn this tab only watches is cancelled by its id.
    if (remote && request !== null) agent.send(JSON.stringify({ type: "cf_agent_chat_request_cancel", id: request }));
  }, [stop, remote, liveRequest, agent]);

  useEffect(() => {
    if (!stopping) return;
    const timer = setTimeout(() => setStopping(false), STOP_MS);
    return () => clearTimeout(timer);
  }, [stopping]);

  useEscape(busy, stopTurn);

  function send({ text, files }: Draft) {
    const parts: (TextUIPart | FileUIPart)[] = [...files, ...(text === "" ? [] : [{ type: "text" as const, text }])];
    outbox.offer({ id: generateId(), parts }, idle);
    scroll.toEnd();
  }

  function retry() {
    setEnded(null);
    if (messages.length > 0) void chat.regenerate();
    scroll.toEnd();
  }

  function clear() {
    // Stop first: pieces of a running answer that are already on their way would be shown again.
    stopTurn();
    chat.clearHistory();
    outbox.empty();
    setEnded(null);
    composer.current?.focus();
  }

  const latest = useRef({ chat, scroll });
  useEffect(() => {
    latest.current = { chat, scroll };
  });
  const actions = useMemo<MessageActions>(
    () => ({
      regenerate: (messageId) => {
        setEnded(null);
        void latest.current.chat.regenerate({ messageId });
      },
      edit: (message, text) => {
        setEnded(null);
        const files = message.parts.filter((part) => part.type === "file");
        void latest.current.chat.sendMessage({ messageId: message.id, role: "user", parts: [...files, { type: "text", text }] });
        latest.current.scroll.toEnd();
        composer.current?.focus();
      },
      answerApproval: (id, approved) => void latest.current.chat.addToolApprovalResponse({ id, approved }),
    }),
    [],
  );

  const [start, setStart] = useState(() => Math.max(0, messages.length - PAGE));
  const from = Math.min(start, Math.max(0, messages.length - 1));
  const [clearing, setClearing] = useState(false);
  const drop = useFileDrop((files) => composer.current?.addFiles(files));
  const empty = messages.length === 0 && outbox.waiting.length === 0 && !busy && !isRecovering;

  return (
    <main className="chat" aria-label="Conversation" data-testid="chat" data-connection={connection.state} data-recovering={isRecovering} data-server-streaming={isServerStreaming} {...drop.handlers}>
      <Shell
        title={title}
        onMenu={onMenu}
        tools={
          <>
            <ConnectionPill state={connection.state} />
            <IconButton label="Clear this conversation" title="Clear conversation" data-testid="clear" disabled={messages.length === 0} onClick={() => setClearing(true)}>
              <Trash />
            </IconButton>
          </>
        }
      >
        <div className="thread-area">
          <Scroller ref={scroll.ref}>
            {empty && <Welcome onTry={(text) => send({ text, files: [] })} />}
            {from > 0 && (
              <button type="button" className="button earlier" data-testid="earlier" onClick={() => scroll.keepPosition(() => setStart(Math.max(0, from - PAGE)))}>
                Show {Math.min(PAGE, from)} earlier messages
              </button>
            )}
            {messages.slice(from).map((message) => (
              <Message key={message.id} message={message} live={message === live} locked={!idle} last={message === last} actions={actions} />
            ))}
            {busy && (live === undefined || !isVisible(live)) && <Waiting />}
            {isRecovering && !busy && (
              <p className="state-line" role="status" data-testid="recovering">
                <Spinner size={16} />
                The answer was interrupted. It is being picked up where it stopped…
              </p>
            )}
            {turnError !== null && (
              <TurnError
                message={turnError}
                onRetry={retry}
                onDismiss={() => {
                  chat.clearError();
                  setEnded(null);
                }}
              />
            )}
            {endedHere?.outcome === "aborted" && turnError === null && (
              <p className="state-line quiet" data-testid="stopped">
                Stopped.
              </p>
            )}
            {outbox.waiting.map((message) => (
              <Waitee
                key={message.id}
                message={message}
                reason={connection.state !== "online" ? "offline" : turnError !== null ? "failed" : "queued"}
                onRemove={() => outbox.remove(message.id)}
                onSend={() => {
                  chat.clearError();
                  setEnded(null);
                }}
              />
            ))}
          </Scroller>
          {scroll.away && (
            <button type="button" className="jump" data-testid="jump" onClick={() => scroll.toEnd(prefersReducedMotion() ? "auto" : "smooth")}>
              <ArrowDown size={16} />
              Jump to latest
            </button>
          )}
        </div>
        <div className="dock">
          <ConnectionBanner connection={connection} />
          {remote && (
            <p className="state-line remote" role="status" data-testid="remote">
              <span className="pulse" aria-hidden="true" />
              Answering a message from elsewhere
            </p>
          )}
          <Composer ref={composer} draftKey={name} busy={busy} hint={hintFor(connection.state === "online", busy)} onSend={send} onStop={stopTurn} />
        </div>
      </Shell>
      {drop.over && (
        <div className="drop-overlay" aria-hidden="true">
          <p>Drop files to attach them</p>
        </div>
      )}
      {clearing && (
        <Confirm title="Clear this conversation?" action="Clear" danger onConfirm={clear} onClose={() => setClearing(false)}>
          All its messages are deleted for everyone who has it open. This cannot be undone.
        </Confirm>
      )}
    </main>
  );
}

function hintFor(online: boolean, busy: boolean): string {
  if (!online) return "Not connected: messages wait here";
  if (isTouch()) return busy ? "Sending now queues" : "";
  return busy ? "Enter queues, Esc stops" : "Enter sends, Shift+Enter starts a new line";
}

/** Whether an ended turn is about what is on screen: its question is the latest one, or it had none. */
function concerns(ended: ChatTurnEndEvent, messages: readonly UIMessage[]): boolean {
  if (ended.messageIds === undefined) return true;
  const asked = messages.findLast((message) => message.role === "user");
  return asked !== undefined && ended.messageIds.includes(asked.id);
}

function Waiting() {
  return (
    <div className="waiting" role="status" data-testid="waiting">
      <span className="sr-only">The agent is answering</span>
      <span className="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
    </div>
  );
}

type WaiteeProps = { message: Outgoing; reason: "offline" | "queued" | "failed"; onRemove: () => void; onSend: () => void };

const WAITING_FOR: Record<WaiteeProps["reason"], string> = {
  offline: "Waiting for the connection",
  queued: "Queued: goes out after this answer",
  failed: "Held back: the last answer failed",
};

/** A message of the reader that has not been handed over yet. */
function Waitee({ message, reason, onRemove, onSend }: WaiteeProps) {
  const files = message.parts.filter((part) => part.type === "file");
  const text = message.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n\n");
  return (
    <article className="message user pending" data-testid="queued" data-role="user" data-message-id={message.id} data-reason={reason} aria-label="You, not sent yet">
      <Files files={files} />
      {text !== "" && <div className="bubble">{text}</div>}
      <p className="pending-note">
        <Clock size={13} />
        {WAITING_FOR[reason]}
        {reason === "failed" && (
          <button type="button" className="link" onClick={onSend}>
            Send now
          </button>
        )}
        <IconButton label="Take this message back" data-testid="unsend" onClick={onRemove}>
          <Cross size={13} />
        </IconButton>
      </p>
    </article>
  );
}

/** Puts the hook's status on the root element, where tests and styles find it whatever is rendered below. */
function useDocumentStatus(status: string): void {
  useEffect(() => {
    const root = document.getElementById("root");
    if (!root) return;
    root.dataset.status = status;
    return () => {
      root.dataset.status = "loading";
    };
  }, [status]);
}

function useTitle(name: string, messages: readonly UIMessage[]): void {
  const title = titleFrom(messages);
  useEffect(() => {
    if (title !== undefined) remember(name, { title });
  }, [name, title]);
}

/** Reads a finished answer out once; a live region on the growing text would stutter it token by token. */
function useAnnouncedAnswers(busy: boolean, messages: readonly UIMessage[], turnError: string | null): void {
  const wasBusy = useRef(busy);
  useEffect(() => {
    const finished = wasBusy.current && !busy;
    wasBusy.current = busy;
    if (!finished || turnError !== null) return;
    const last = messages.at(-1);
    if (last?.role !== "assistant") return;
    const text = textOf(last).replace(/[*_`#>|]+/g, "");
    announce(text.length > ANNOUNCED_CHARS ? `${text.slice(0, ANNOUNCED_CHARS)}… The rest is in the conversation.` : text);
  }, [busy, messages, turnError]);
}

function useEscape(active: boolean, action: () => void): void {
  useEffect(() => {
    if (!active) return;
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && document.querySelector("dialog[open]") === null) action();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [active, action]);
}

function useFileDrop(onFiles: (files: FileList) => void) {
  const [over, setOver] = useState(false);
  const holdsFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  return {
    over,
    handlers: {
      onDragOver: (event: DragEvent) => {
        if (!holdsFiles(event)) return;
        event.preventDefault();
        setOver(true);
      },
      onDragLeave: (event: DragEvent<HTMLElement>) => {
        // Leaving a child for another child of the area is not leaving the area.
        if (event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget)) return;
        setOver(false);
      },
      onDrop: (event: DragEvent) => {
        if (!holdsFiles(event)) return;
        event.preventDefault();
        setOver(false);
        onFiles(event.dataTransfer.files);
      },
    },
  };
}
