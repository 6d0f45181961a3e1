/** What is shown in the place of words that are not there yet: an answer that is awaited, a message that waits its turn. */
import type { Outgoing } from "../lib/outbox";
import { IconButton } from "./button";
import { Files } from "./files";
import { Clock, Cross } from "./icons";

export function Waiting() {
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

export type WaitingReason = "offline" | "queued" | "failed" | "parked";

type WaiteeProps = { message: Outgoing; reason: WaitingReason; onRemove: () => void; onSend: () => void };

const WAITING_FOR: Record<WaitingReason, string> = {
  offline: "Waiting for the connection",
  queued: "Queued: goes out after this answer",
  failed: "Held back: the last answer failed",
  parked: "Held back: you have been asked something",
};

/** A message of the reader that has not been handed over yet. */
export function Waitee({ message, reason, onRemove, onSend }: WaiteeProps) {
  const files = message.parts.filter((part) => part.type === "file");
  const text = message.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n\n");
  return (
    <article className="message user pending" data-testid="queued" data-role="user" data-message-id={message.id} data-reason={reason} aria-label="You, not sent yet">
      <Files files={files} />
      {text !== "" && <div className="bubble">{text}</div>}
      <p className="pending-note">
        <Clock size={13} />
        {WAITING_FOR[reason]}
        {(reason === "failed" || reason === "parked") && (
          <button type="button" className="link" data-testid="send-now" onClick={onSend}>
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
