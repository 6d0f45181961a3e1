/** A question that has to be answered before something cannot be undone. The native element brings focus and Esc along. */
import { useEffect, useId, useRef, type ReactNode } from "react";

type ConfirmProps = { title: string; children: ReactNode; action: string; danger?: boolean; onConfirm: () => void; onClose: () => void };

export function Confirm({ title, children, action, danger = false, onConfirm, onClose }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const text = useId();
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className="dialog"
      data-testid="dialog"
      aria-labelledby={heading}
      aria-describedby={text}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div className="dialog-card">
        <h2 id={heading}>{title}</h2>
        <p id={text}>{children}</p>
        <div className="dialog-actions">
          <button type="button" className="button" data-testid="cancel" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button
            type="button"
            className={`button ${danger ? "danger" : "primary"}`}
            data-testid="confirm"
            onClick={() => {
              onConfirm();
              dialog.current?.close();
            }}
          >
            {action}
          </button>
        </div>
      </div>
    </dialog>
  );
}
