/** One conversation on the stock hooks: what is shown of it, and what each action of the reader does to it. */
import { useAgentChat, type ChatTurnEndEvent } from "@cloudflare/ai-chat/react";
import { generateId, type FileUIPart, type TextUIPart, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
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
/** What is said of an answer that is not there, or not all of it. A replayed end is told by the server to those who were not there. */
const ENDING = {
  stopped: "Stopped.",
  interrupted: "This answer was interrupted. What is shown is everything the server has of it.",
  empty: "The answer was empty.",
  cut: "The connection was lost in mid-answer. What is shown is everything the server has of it.",
};
/** How long the end of a stopped answer is waited for; the server sends it at once. */
const STOP_MS = 5_000;

type ChatProps = { name: string; token: string | null; title: string; onMenu: () => void };

export function Chat({ name, token, title, onMenu }: ChatProps) {
  const outboxRef = useRef<Outbox | null>(null);
  const [ended, setEnded] = useState<ChatTurnEndEvent | null>(null);
  const [stopping, setStopping] = useState(false);
  const [clearOwed, setClearOwed] = useState(false);
  /** The message an answer was being written after, or into, when the connection broke, until its end is known. */
  const [cutAt, setCutAt] = useState<string | null>(null);
  const composer = useRef<ComposerHandle>(null);
  const scroll = useStickyScroll();

  const connection = useConnection(name, token, {
    onLost: () => {
      setStopping(false);
      if (busy) setCutAt(messages.at(-1)?.id ?? null);
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
      setCutAt(null);
    },
  });
  const { messages, status, error, isServerStreaming, isRecovering, isToolContinuation } = chat;

  const busy = status === "submitted" || status === "streaming" || isServerStreaming;
  const ownError = status === "error" && error !== undefined && error.message !== SOCKET_LOST ? error.message : null;
  // Stopping ends the hook's turn at once and the server's a round trip later, with a transcript: a message sent in
  // between would be wiped off this screen by it.
  const idle = connection.synced && !busy && !stopping && !clearOwed;
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

  const cut = idle && !isRecovering && last !== undefined && last.id === cutAt;
  const blank = last === undefined || last.role === "user" || !isVisible(last);
  const ending = turnError !== null ? null : endedHere !== null ? endingOf(endedHere, blank) : cut ? "cut" : null;

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
    composer.current?.focus();
  }

  function clear() {
    if (busy) stopTurn();
    outbox.empty();
    setClearOwed(true);
    composer.current?.focus();
  }

  // Not before a running answer has ended everywhere: its last pieces and its transcript would be shown again.
  const { clearHistory } = chat;
  useEffect(() => {
    if (!clearOwed || busy || stopping) return;
    setClearOwed(false);
    setEnded(null);
    clearHistory();
  }, [clearOwed, busy, stopping, clearHistory]);

  const latest = useRef({ chat, scroll });
  useEffect(() => {
    latest.current = { chat, scroll };
  });
  const actions = useMemo<MessageActions>(
    () => ({
      regenerate: (messageId) => {
        setEnded(null);
        void latest.current.chat.regenerate({ messageId });
        composer.current?.focus();
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
  const dropping = useFileDrop((files) => composer.current?.addFiles(files));
  const empty = messages.length === 0 && outbox.waiting.length === 0 && !busy && !isRecovering;

  return (
    <main className="chat" aria-label="Conversation" data-testid="chat" data-connection={connection.state} data-recovering={isRecovering} data-server-streaming={isServerStreaming}>
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
          {/* A greeting is read from its start, however small the screen. */}
          <Scroller ref={empty ? undefined : scroll.ref}>
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
            {ending !== null && (
              <p className="state-line quiet" data-testid={ending} role="status">
                {ENDING[ending]}
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
      {dropping && (
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

function endingOf({ outcome, replay }: ChatTurnEndEvent, blank: boolean): keyof typeof ENDING | null {
  if (outcome === "aborted") return replay ? "interrupted" : "stopped";
  return outcome === "completed" && blank ? "empty" : null;
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

/**
 * Takes files dropped anywhere in the window: beside a smaller target the browser would open them in place of the page.
 * Says whether some are being dragged over it.
 */
function useFileDrop(onFiles: (files: FileList) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(onFiles);
  useEffect(() => {
    latest.current = onFiles;
  });
  useEffect(() => {
    const listeners = new AbortController();
    const on = (type: "dragover" | "dragleave" | "drop", handle: (event: DragEvent, data: DataTransfer) => void) =>
      window.addEventListener(type, (event) => event.dataTransfer?.types.includes("Files") && handle(event, event.dataTransfer), listeners);
    on("dragover", (event) => {
      event.preventDefault();
      setOver(true);
    });
    // Leaving an element for another one is not leaving the window.
    on("dragleave", (event) => setOver(event.relatedTarget !== null));
    on("drop", (event, data) => {
      event.preventDefault();
      setOver(false);
      latest.current(data.files);
    });
    return () => listeners.abort();
  }, []);
  return over;
}
