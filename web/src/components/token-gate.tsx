/** Shown instead of a conversation when the server refuses this page. */
import { useId, useState, type FormEvent } from "react";
import { giveToken } from "../lib/access";
import { Key } from "./icons";

export function TokenGate({ status, hadToken }: { status: number; hadToken: boolean }) {
  const [value, setValue] = useState("");
  const field = useId();
  const heading = useId();

  function submit(event: FormEvent) {
    event.preventDefault();
    if (value.trim() !== "") giveToken(value.trim());
  }

  return (
    <section className="gate" data-testid="token-gate" aria-labelledby={heading}>
      <span className="gate-icon">
        <Key size={26} />
      </span>
      <h2 id={heading}>{hadToken ? "The token was not accepted" : "A token is needed"}</h2>
      <p>
        {status === 403
          ? "The server refuses requests from this page. If it admits only certain origins, add this one to ALLOWED_ORIGINS; otherwise try another token."
          : "This server answers only to those who know its access token. Ask whoever runs it (the variable is called AUTH_TOKEN), or open the page with ?token=… in its address."}
      </p>
      <form onSubmit={submit}>
        <label htmlFor={field} className="sr-only">
          Access token
        </label>
        <input id={field} type="password" autoComplete="current-password" autoFocus placeholder="Access token" value={value} data-testid="token" onChange={(event) => setValue(event.target.value)} />
        <button type="submit" className="button primary" data-testid="token-submit" disabled={value.trim() === ""}>
          Continue
        </button>
      </form>
    </section>
  );
}
