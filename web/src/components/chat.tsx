/** One conversation on the stock hooks: what is shown of it, and what each action of the reader does to it. */
import { useAgentChat, type ChatTurnEndEvent } from "@cloudflare/ai-chat/react";
import { generateId, getToolName, type FileUIPart, type TextUIPart, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useConnection, type Connection } from "../lib/connection";
import { remember } from "../lib/conversations";
import { isTouch, prefersReducedMotion } from "../lib/device";
import { useGoingOn } from "../lib/going-on";
import { loadHistory, readHistory } from "../lib/history";
import { useLate } from "../lib/late";
import { useOutbox, type Outbox } from "../lib/outbox";
import { useAnnouncedAnswers, useDocumentStatus, useEscape, useFileDrop, useTitle } from "../lib/page-effects";
import { noteReading, PAGE_TOOLS, READ_PAGE, readPage, SKIPPED } from "../lib/page-tools";
import { useQueued, type Queued } from "../lib/queued";
import { useStickyScroll } from "../lib/sticky-scroll";
import { isVisible } from "../lib/text";
import { hasOpenPageCall, waitingIn } from "../lib/tool-calls";
import { IconButton } from "./button";
import { Composer, type ComposerHandle, type Draft } from "./composer";
import { Confirm } from "./dialog";
import { ArrowDown, Spinner, Trash } from "./icons";
import { Message, type MessageActions } from "./message";
import { ConnectionBanner, ConnectionPill, Parked, SharedNote, TurnError } from "./notices";
import { PullThePlug } from "./plug";
import { Scroller, Shell } from "./shell";
import { Waitee, Waiting } from "./waiting";
import { Welcome } from "./welcome";

/** The transport reports a lost socket as an error of the turn; the turn goes on and the hook finds it again. */
const SOCKET_LOST = "WebSocket closed mid-stream";
/** Messages drawn at first; a long transcript is drawn backwards in steps of this many. */
const PAGE = 60;
/** What is said of an answer that is not there, or not all of it. A replayed end is told by the server to those who were not there. */
const ENDING = {
  stopped: "Stopped.",
  interrupted: "This answer was interrupted. What is shown is everything the server has of it.",
  empty: "The answer was empty.",
  cut: "The connection was lost in mid-answer. What is shown is everything the server has of it.",
};
/** How long the server may take to say that an answer is carried on, until it counts as cut. */
const CUT_MS = 1_000;
/** How long the end of a stopped answer is waited for; the server sends it at once. */
const STOP_MS = 5_000;

type ChatProps = { name: string; token: string | null; title: string; onMenu: () => void };

export function Chat({ name, token, title, onMenu }: ChatProps) {
  const outboxRef = useRef<Outbox | null>(null);
  const queueRef = useRef<Queued | null>(null);
  const [ended, setEnded] = useState<ChatTurnEndEvent | null>(null);
  const [stopping, setStopping] = useState(false);
  const [clearOwed, setClearOwed] = useState(false);
  /** The message an answer was being written after, or into, when the connection broke, until its end is known. */
  const [cutAt, setCutAt] = useState<UIMessage | null>(null);
  const composer = useRef<ComposerHandle>(null);
  const scroll = useStickyScroll();

  const connection = useConnection(name, token, {
    onLost: () => {
      setStopping(false);
      if (busy || isRecovering) setCutAt(messages.at(-1) ?? null);
      else if (cut) setCutAt(null);
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
    tools: PAGE_TOOLS,
    onToolCall: ({ toolCall, addToolOutput }) => {
      if (toolCall.toolName !== READ_PAGE) return;
      const facts = readPage();
      noteReading(toolCall.toolCallId, facts);
      if (asked.approvals > 0) sendOutput(agent, toolCall.toolCallId, READ_PAGE, { output: facts });
      else addToolOutput({ toolCallId: toolCall.toolCallId, output: facts });
    },
    onTurnEnd: (event) => {
      setStopping(false);
      queueRef.current?.advance(event.messageIds ?? []);
      outboxRef.current?.confirm(event.messageIds ?? []);
      setEnded(event);
      setCutAt(null);
    },
  });
  const { messages: all, status, error, isRecovering, isToolContinuation } = chat;

  // The hook also says that the server is streaming while a call of this page's tools is open, however long that is.
  const end = all.findLast((message) => message.role !== "system");
  const pageCall = hasOpenPageCall(end);
  const isServerStreaming = chat.isServerStreaming && (connection.stream !== null || !pageCall);
  const asked = waitingIn(end);
  const waits = asked.approvals + asked.questions > 0;
  // Of several calls one is answered: the hook awaits what follows, which comes only when a person has answered the rest.
  const held = status === "submitted" && isToolContinuation && waits;
  const running = (status === "submitted" && !held) || status === "streaming" || isServerStreaming;
  const goingOn = useGoingOn(end?.id, waits || pageCall, running || connection.state !== "online");
  const busy = running || goingOn;
  const parked = waits && !busy && !isRecovering;

  const queue = useQueued(all, busy, status === "submitted" && !isToolContinuation && isServerStreaming);
  const messages = useMemo(() => (queue.ids.size === 0 ? all : all.filter((message) => !queue.ids.has(message.id))), [all, queue.ids]);
  const later = queue.ids.size === 0 ? [] : all.filter((message) => queue.ids.has(message.id));
  const hookError = status === "error" && error !== undefined && error.message !== SOCKET_LOST ? error.message : null;
  // Of an answer that is carried on the hook may have missed the beginning, and fail to put the rest together: no failure of the turn.
  const [strayed, setStrayed] = useState(false);
  const ownError = isRecovering || strayed ? null : hookError;
  // Stopping ends the hook's turn at once and the server's a round trip later, with a transcript: a message sent in
  // between would be wiped off this screen by it.
  const idle = connection.synced && !busy && !stopping && !clearOwed;
  const outbox = useOutbox(name, idle && status !== "error", parked || pageCall, ({ id, parts }) => {
    setEnded(null);
    remember(name, { touch: true });
    void released().then(() => chat.sendMessage({ id, role: "user", parts }));
  });
  useEffect(() => {
    outboxRef.current = outbox;
    queueRef.current = queue;
  });

  const { setMessages, clearError } = chat;
  useEffect(() => {
    if (isRecovering) {
      if (hookError !== null) setStrayed(true);
    } else if (strayed) {
      clearError();
      setStrayed(false);
      // What is stored is whole.
      void readHistory(name, token).then((stored) => stored !== null && setMessages(stored));
    }
  }, [isRecovering, hookError, strayed, name, token, setMessages, clearError]);

  /** The hook takes a new request badly while it still awaits what follows an answered call. */
  async function released(): Promise<void> {
    if (held) await chat.stop();
  }

  // The first piece of the answer proves that the server has the question.
  const { confirmAll } = outbox;
  useEffect(() => {
    if (status === "streaming") confirmAll();
  }, [status, confirmAll]);

  const last = messages.at(-1);
  const online = connection.state === "online";
  const live = busy && last?.role === "assistant" && (status !== "submitted" || isToolContinuation) ? last : undefined;
  const remote = isServerStreaming && status === "ready" && !isToolContinuation;
  const endedHere = !busy && ended !== null && concerns(ended, messages) ? ended : null;
  const turnError = ownError ?? (endedHere?.outcome === "error" ? (endedHere.error ?? "The answer ended with an error.") : null);

  const lost = idle && !isRecovering && last !== undefined && last.id === cutAt?.id;
  const cut = useLate(lost, CUT_MS);
  const interrupted = (isRecovering && !busy) || (cutAt !== null && (!connection.synced || (lost && !cut)));
  const drawn = isRecovering || interrupted ? whole(messages, live, cutAt) : messages;
  const blank = last === undefined || last.role === "user" || !isVisible(last);
  const ending = turnError !== null ? null : endedHere !== null ? endingOf(endedHere, blank) : cut ? "cut" : null;

  useDocumentStatus(status);
  useTitle(name, messages);
  useAnnouncedAnswers(busy, messages, turnError, parked);

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

  const latest = useRef({ chat, scroll, released, asked });
  useEffect(() => {
    latest.current = { chat, scroll, released, asked };
  });
  const actions = useMemo<MessageActions>(
    () => ({
      regenerate: (messageId) => {
        setEnded(null);
        const { chat, released } = latest.current;
        void released().then(() => chat.regenerate({ messageId }));
        composer.current?.focus();
      },
      edit: (message, text) => {
        setEnded(null);
        const files = message.parts.filter((part) => part.type === "file");
        const { chat, released } = latest.current;
        void released().then(() => chat.sendMessage({ messageId: message.id, role: "user", parts: [...files, { type: "text", text }] }));
        latest.current.scroll.toEnd();
        composer.current?.focus();
      },
      tools: {
        allow: (part) => {
          if (part.state === "approval-requested") void latest.current.chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
        },
        answer: (part, text) => {
          const { chat, asked } = latest.current;
          const output = { answer: text };
          if (asked.approvals > 0) sendOutput(agent, part.toolCallId, getToolName(part), { output });
          else chat.addToolOutput({ toolCallId: part.toolCallId, toolName: getToolName(part), output });
        },
        // The hook sends no reason with a denial, and asks that nothing follow an error. What follows these is shown as the answer
        // to anybody else is: by the frames every tab gets.
        deny: (part, reason) =>
          agent.send(JSON.stringify({ type: "cf_agent_tool_approval", toolCallId: part.toolCallId, approved: false, ...(reason === "" ? {} : { reason }), autoContinue: true })),
        skip: (part) => sendOutput(agent, part.toolCallId, getToolName(part), { state: "output-error", errorText: SKIPPED }),
      },
    }),
    [agent],
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
            {connection.plug && <PullThePlug name={name} token={token} />}
            <IconButton label="Clear this conversation" title="Clear conversation" data-testid="clear" disabled={messages.length === 0} onClick={() => setClearing(true)}>
              <Trash />
            </IconButton>
          </>
        }
      >
        <SharedNote state={agent.state} />
        <div className="thread-area">
          {/* A greeting is read from its start, however small the screen. */}
          <Scroller ref={empty ? undefined : scroll.ref}>
            {empty && <Welcome onTry={(text) => send({ text, files: [] })} />}
            {from > 0 && (
              <button type="button" className="button earlier" data-testid="earlier" onClick={() => scroll.keepPosition(() => setStart(Math.max(0, from - PAGE)))}>
                Show {Math.min(PAGE, from)} earlier messages
              </button>
            )}
            {drawn.slice(from).map((message, index, shown) => (
              <Message
                key={message.id}
                message={message}
                live={message.role === "assistant" && index === shown.length - 1 && (live !== undefined || interrupted)}
                locked={!idle}
                last={index === shown.length - 1}
                continued={message.role === "assistant" && live !== undefined && shown[index + 1] === live}
                queued={false}
                online={online}
                actions={actions}
              />
            ))}
            {busy && (live === undefined || !isVisible(live) || status === "submitted" || goingOn) && <Waiting />}
            {interrupted && (
              <p className="state-line" role="status" data-testid="recovering">
                <Spinner size={16} />
                Interrupted. Carrying on…
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
            {later.map((message) => (
              <Message key={message.id} message={message} live={false} locked last={false} continued={false} queued online={online} actions={actions} />
            ))}
            {outbox.waiting.map((message) => (
              <Waitee
                key={message.id}
                message={message}
                reason={!online ? "offline" : turnError !== null ? "failed" : parked ? "parked" : "queued"}
                onRemove={() => outbox.remove(message.id)}
                onSend={() => {
                  chat.clearError();
                  setEnded(null);
                  if (parked) outbox.release();
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
          {parked && <Parked waiting={asked} touch={isTouch()} />}
          {remote && connection.stream !== "continuation" && (
            <p className="state-line remote" role="status" data-testid="remote">
              <span className="pulse" aria-hidden="true" />
              Answering a message from elsewhere
            </p>
          )}
          <Composer ref={composer} draftKey={name} busy={busy} hint={hintFor(online, busy)} onSend={send} onStop={stopTurn} />
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

/**
 * Answers a call without the hook. After its own answer the hook awaits the rest in a message that does not hold the calls, and
 * throws when the result of one that is allowed later arrives in it; so a call beside an open approval is answered this way.
 */
function sendOutput(agent: Connection["agent"], toolCallId: string, toolName: string, outcome: { output: unknown } | { state: "output-error"; errorText: string }): void {
  agent.send(JSON.stringify({ type: "cf_agent_tool_result", toolCallId, toolName, ...outcome, autoContinue: true }));
}

function hintFor(online: boolean, busy: boolean): string {
  if (!online) return "Not connected: messages wait here";
  if (isTouch()) return busy ? "Sending now queues" : "";
  return busy ? "Enter queues, Esc stops" : "Enter sends, Shift+Enter starts a new line";
}

/**
 * The messages while an interrupted answer is carried on. What follows it arrives as a message of its own until the server has joined
 * them, and the answer is missing for the moment in which the server reads it; on screen it is one, and stays.
 */
function whole(messages: readonly UIMessage[], live: UIMessage | undefined, cutAt: UIMessage | null): readonly UIMessage[] {
  const begun = messages.at(-2);
  if (live !== undefined && live === messages.at(-1) && begun?.role === "assistant")
    return [...messages.slice(0, -2), { ...begun, parts: [...begun.parts, { type: "step-start" }, ...live.parts] }];
  const missing = cutAt?.role === "assistant" && messages.at(-1)?.role === "user" && messages.every(({ id }) => id !== cutAt.id);
  return missing ? [...messages, cutAt] : messages;
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
