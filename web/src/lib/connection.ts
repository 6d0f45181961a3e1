/**
 * The stock `useAgent` socket of one conversation and what the page has to know about it beyond the hook:
 * whether it is connected, whether the server has answered the hook's resume probe, and which turn is streaming.
 */
import { useAgent } from "agents/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { reportStatus } from "./access";

export const AGENT = "ChatAgent";
const AGENT_PATH = "chat-agent";
/** As long as the chat hook itself waits for the answer to its probe. */
const PROBE_MS = 5_000;
/** How long to wait before the first attempt at another connection, at least; doubled at most. Each further one waits longer. */
const RECONNECT_MS = 300;
/** Close codes 4401 and 4403 carry the HTTP status of a refusal. */
const APPLICATION_CLOSE = 4_000;

export type ConnectionState = "connecting" | "online" | "reconnecting" | "closed";

/** What arrives right now: nothing, the answer to a message, or what follows an answer of the reader to a tool. */
export type Stream = null | "turn" | "continuation";

export type Connection = ReturnType<typeof useConnection>;

export type WireEvents = {
  onTranscript: (messages: readonly { id: string }[]) => void;
  onCleared: () => void;
  onLost: () => void;
  /** Parsing a whole transcript a second time is worth it only when somebody waits for it. */
  wantsTranscript: () => boolean;
};

export function useConnection(name: string, token: string | null, events: WireEvents) {
  const [state, setState] = useState<Exclude<ConnectionState, "closed">>("connecting");
  const [obstacle, setObstacle] = useState<string | null>(null);
  const [synced, setSynced] = useState(false);
  const live = useRef<string | null>(null);
  const [stream, setStream] = useState<Stream>(null);
  const [plug, setPlug] = useState(false);
  const open = useRef(false);
  // Not all pages of a server that was replaced in the same moment; and sooner than the library's seconds, since people watch.
  const [minReconnectionDelay] = useState(() => RECONNECT_MS * (1 + Math.random()));
  const query = useMemo(() => (token === null ? undefined : { token }), [token]);
  const handlers = useRef(events);
  useEffect(() => {
    handlers.current = events;
  });

  const onMessage = useCallback((event: MessageEvent) => {
    const frame = readFrame(event.data, handlers.current.wantsTranscript());
    switch (frame?.type) {
      case "cf_agent_stream_resuming":
      case "cf_agent_stream_resume_none":
      case "cf_agent_stream_pending":
        setSynced(true);
        break;
      case "cf_agent_use_chat_response":
        if (!frame.done && !frame.error) {
          live.current = frame.id ?? null;
          setStream(frame.continuation ? "continuation" : "turn");
        } else if (live.current === frame.id) {
          live.current = null;
          setStream(null);
        }
        break;
      case "cf_agent_chat_messages":
        if (Array.isArray(frame.messages)) handlers.current.onTranscript(frame.messages);
        break;
      case "cf_agent_chat_clear":
        handlers.current.onCleared();
        break;
      case "wakeful_plug":
        setPlug(true);
        break;
    }
  }, []);

  const agent = useAgent({
    agent: AGENT,
    name: encodeURIComponent(name),
    host: location.host,
    // The socket library assumes TLS for every host it does not know as local; the page knows better.
    protocol: location.protocol === "https:" ? "wss" : "ws",
    query,
    minReconnectionDelay,
    onOpen: () => {
      open.current = true;
      setState("online");
      setObstacle(null);
    },
    onClose: () => {
      live.current = null;
      setStream(null);
      setSynced(false);
      setState((before) => (before === "online" ? "reconnecting" : before));
      handlers.current.onLost();
      if (open.current) {
        open.current = false;
        return;
      }
      // Not a connection that broke but an attempt that failed: find out what is in the way.
      void diagnose(name, token).then((found) => {
        if (!open.current) setObstacle(found);
      });
    },
    onConnectionError: (error) => reportStatus(error.code - APPLICATION_CLOSE),
    onMessage,
  });

  useEffect(() => {
    if (state !== "online" || synced) return;
    const timer = setTimeout(() => setSynced(true), PROBE_MS);
    return () => clearTimeout(timer);
  }, [state, synced]);

  return {
    agent,
    state: agent.connectionError ? ("closed" as const) : state,
    /** What the server says instead of accepting a connection, when it says so for every attempt. */
    obstacle,
    /** Connected, and the server has said whether a turn is under way. */
    synced: synced && state === "online",
    stream,
    /** The server lets its plug be pulled, for demonstrations. */
    plug,
    /** The request whose answer is being streamed, whoever asked for it. */
    liveRequest: useCallback(() => live.current, []),
  };
}

type Frame = { type?: string; id?: string; done?: boolean; error?: boolean; continuation?: boolean; messages?: { id: string }[] };

const WATCHED = /"type":\s*"(?:wakeful_plug|cf_agent_(?:stream_|use_chat_response|chat_clear|chat_messages))/;

function readFrame(data: unknown, transcript: boolean): Frame | null {
  if (typeof data !== "string" || !WATCHED.test(data)) return null;
  if (!transcript && data.includes('"cf_agent_chat_messages"')) return null;
  try {
    return JSON.parse(data) as Frame;
  } catch {
    return null;
  }
}

/** The address of something of the conversation's object. */
export function addressOf(name: string, token: string | null, path: string): URL {
  const address = new URL(`/agents/${AGENT_PATH}/${encodeURIComponent(name)}/${path}`, location.origin);
  if (token !== null) address.searchParams.set("token", token);
  return address;
}

/** Asks over HTTP why no socket can be had. `null`: nothing is wrong there, or nobody answers at all. */
async function diagnose(name: string, token: string | null): Promise<string | null> {
  try {
    const { ok, status } = await fetch(addressOf(name, token, "get-messages"), { method: "HEAD" });
    reportStatus(status);
    return ok ? null : `The server answers with HTTP status ${status}.`;
  } catch {
    return null;
  }
}
