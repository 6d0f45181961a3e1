/** What the page says about the connection and about answers that did not come, each with what to do about it. */
import { useSyncExternalStore, type ReactNode } from "react";
import type { Connection, ConnectionState } from "../lib/connection";
import { useLate } from "../lib/late";
import type { Waiting } from "../lib/tool-calls";
import { Alert, Clock, Note, Refresh, Spinner } from "./icons";

const CONNECTION: Record<ConnectionState, string> = {
  connecting: "Connecting",
  online: "Online",
  reconnecting: "Reconnecting",
  closed: "Disconnected",
};

export function ConnectionPill({ state }: { state: ConnectionState }) {
  return (
    <span className="connection" data-testid="connection" data-state={state} title={`Connection: ${CONNECTION[state].toLowerCase()}`}>
      <span className="connection-dot" aria-hidden="true" />
      <span className="connection-text">{CONNECTION[state]}</span>
    </span>
  );
}

function useDeviceOnline(): boolean {
  return useSyncExternalStore(
    (listener) => {
      window.addEventListener("online", listener);
      window.addEventListener("offline", listener);
      return () => {
        window.removeEventListener("online", listener);
        window.removeEventListener("offline", listener);
      };
    },
    () => navigator.onLine,
  );
}

/** Most connections are back before anybody wonders. */
const LATE_MS = 2_500;

export function ConnectionBanner({ connection }: { connection: Connection }) {
  const { agent, state, obstacle } = connection;
  const deviceOnline = useDeviceOnline();
  const late = useLate(state === "reconnecting", LATE_MS);
  const again = (label: string) => (
    <button type="button" className="button small" data-testid="reconnect" onClick={() => agent.reconnect()}>
      {label}
    </button>
  );

  if (state === "closed") {
    const { code, reason } = agent.connectionError ?? {};
    return (
      <Banner tone="bad" icon={<Alert size={16} />} action={again("Connect again")}>
        The server has ended this connection for good{reason ? `: ${reason}` : ""}
        {code ? ` (code ${code})` : ""}. What is stored stays stored.
      </Banner>
    );
  }
  if (state === "online" || ((state === "connecting" || (!late && deviceOnline)) && obstacle === null)) return null;
  if (!deviceOnline) {
    return (
      <Banner tone="warn" icon={<Alert size={16} />}>
        This device is offline. What you send waits here and goes out when the network is back.
      </Banner>
    );
  }
  return (
    <Banner tone="warn" icon={<Spinner size={16} />} action={again("Try now")}>
      {state === "connecting" ? "No connection yet, still trying." : "Connection lost. Reconnecting; an answer under way continues on the server."}
      {obstacle ? ` ${obstacle}` : ""}
    </Banner>
  );
}

function Banner({ tone, icon, action, children }: { tone: "warn" | "bad"; icon: ReactNode; action?: ReactNode; children: ReactNode }) {
  return (
    <div className={`banner ${tone}`} role="status" data-testid="banner">
      {icon}
      <p>{children}</p>
      {action}
    </div>
  );
}

/** Nothing runs and nothing is late: the conversation rests until somebody answers, or says something else. */
export function Parked({ waiting, touch }: { waiting: Waiting; touch: boolean }) {
  const above = waiting.approvals + waiting.questions > 1 ? "the requests" : "the request";
  return (
    <p className="state-line quiet parked" role="status" data-testid="parked">
      <Clock size={15} />
      <span>{touch ? "Waiting for you, or for another message" : `Waiting for you. Answer ${above} above, or send a message to go on without.`}</span>
    </p>
  );
}

/** What the agent keeps for everybody in this conversation. */
export function SharedNote({ state }: { state: unknown }) {
  const { note } = (typeof state === "object" && state !== null ? state : {}) as { note?: unknown };
  if (typeof note !== "string" || note === "") return null;
  return (
    <aside className="shared-note" aria-label="Note of this conversation" data-testid="note" title={note}>
      <Note size={15} />
      <span>{note}</span>
    </aside>
  );
}

export function TurnError({ message, onRetry, onDismiss }: { message: string; onRetry: () => void; onDismiss?: () => void }) {
  return (
    <div className="turn-error" role="alert" data-testid="error">
      <Alert size={18} />
      <div>
        <strong>No complete answer</strong>
        <p>{message}</p>
        <div className="turn-error-actions">
          <button type="button" className="button small" data-testid="retry" onClick={onRetry}>
            <Refresh size={14} />
            Retry
          </button>
          {onDismiss && (
            <button type="button" className="button small quiet" data-testid="dismiss" onClick={onDismiss}>
              Dismiss
            </button>
          )}
        </div>
      </div>
    </div>
  );
}
