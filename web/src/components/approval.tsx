/** The two answers to a call that must not run unasked; saying no may come with a reason for the model. */
import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { flushSync } from "react-dom";

type ApprovalProps = {
  name: string;
  /** The element that shows what would run with what. */
  describedBy: string;
  online: boolean;
  onAllow: () => void;
  onDeny: (reason: string) => void;
};

/** The server keeps reasons up to 2 KiB; characters may take four bytes. */
const REASON_CHARS = 500;

export function Approval({ name, describedBy, online, onAllow, onDeny }: ApprovalProps) {
  const [reason, setReason] = useState<string | null>(null);
  const deny = useRef<HTMLButtonElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const id = useId();
  const asking = reason !== null;

  useEffect(() => {
    if (asking) field.current?.focus();
  }, [asking]);

  function cancel() {
    // The field takes the focus with it: back to the button it came from, which only then exists again.
    flushSync(() => setReason(null));
    deny.current?.focus();
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Escape") return;
    // The page stops answers by the same key.
    event.preventDefault();
    event.stopPropagation();
    cancel();
  }

  if (!asking) {
    return (
      <div className="tool-answer" role="group" aria-label={`Allow ${name} to run?`} aria-describedby={describedBy}>
        <button type="button" className="button primary" data-testid="approve" disabled={!online} onClick={onAllow}>
          Allow
        </button>
        <button type="button" className="button" data-testid="deny" ref={deny} disabled={!online} onClick={() => setReason("")}>
          Deny
        </button>
        {!online && <Offline />}
      </div>
    );
  }
  return (
    <form
      className="tool-answer"
      aria-label={`Deny ${name}`}
      aria-describedby={describedBy}
      onKeyDown={onKeyDown}
      onSubmit={(event) => {
        event.preventDefault();
        if (online) onDeny(reason.trim());
      }}
    >
      <label htmlFor={id}>Why not? The agent is told. You may leave it empty.</label>
      <input ref={field} id={id} type="text" autoComplete="off" maxLength={REASON_CHARS} placeholder="Reason (optional)" value={reason} data-testid="reason" onChange={(event) => setReason(event.target.value)} />
      <button type="submit" className="button primary" data-testid="deny-send" disabled={!online}>
        Deny
      </button>
      <button type="button" className="button quiet" data-testid="deny-cancel" onClick={cancel}>
        Cancel
      </button>
      {!online && <Offline />}
    </form>
  );
}

export function Offline() {
  return <p className="tool-note">Not connected: this can be answered when the connection is back.</p>;
}
