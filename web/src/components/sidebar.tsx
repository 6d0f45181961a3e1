/** The conversations this browser knows: open, begin, open by name, remove from the list. */
import { useId, useState, type FormEvent } from "react";
import { forget, hashOf, nameProblem, titleOf, useConversations, type Conversation } from "../lib/conversations";
import { IconButton } from "./button";
import { Confirm } from "./dialog";
import { Cross, Logo, Plus } from "./icons";

type SidebarProps = { current: string; onOpen: (name: string) => void; onNew: () => void };

export function Sidebar({ current, onOpen, onNew }: SidebarProps) {
  const conversations = useConversations();
  const [removing, setRemoving] = useState<Conversation | null>(null);

  function remove(conversation: Conversation) {
    forget(conversation.name);
    if (conversation.name !== current) return;
    const next = conversations.find((other) => other.name !== conversation.name);
    if (next) onOpen(next.name);
    else onNew();
  }

  return (
    <>
      <div className="brand">
        <Logo size={26} />
        <h1>wakeful</h1>
      </div>
      <button type="button" className="new-conversation" data-testid="new-conversation" onClick={onNew}>
        <Plus size={17} />
        New conversation
      </button>
      <nav className="conversations" aria-label="Conversations">
        <ul>
          {conversations.map((conversation) => (
            <li key={conversation.name} className="conversation" data-testid="conversation" data-name={conversation.name}>
              <a
                href={hashOf(conversation.name)}
                aria-current={conversation.name === current ? "page" : undefined}
                title={conversation.name}
                onClick={() => onOpen(conversation.name)}
              >
                {titleOf(conversation)}
              </a>
              <IconButton label={`Remove “${titleOf(conversation)}” from the list`} title="Remove from the list" className="conversation-remove" data-testid="remove" onClick={() => setRemoving(conversation)}>
                <Cross size={14} />
              </IconButton>
            </li>
          ))}
        </ul>
      </nav>
      <OpenByName onOpen={onOpen} />
      <footer className="sidebar-footer">
        <a href="https://developers.cloudflare.com/agents/" target="_blank" rel="noopener noreferrer">
          Agents SDK
        </a>
        <a href="https://developers.cloudflare.com/durable-objects/" target="_blank" rel="noopener noreferrer">
          Durable Objects
        </a>
      </footer>
      {removing && (
        <Confirm title="Remove from this list?" action="Remove" onConfirm={() => remove(removing)} onClose={() => setRemoving(null)}>
          The conversation itself stays on the server. Opening the name <code>{removing.name}</code> brings it back.
        </Confirm>
      )}
    </>
  );
}

function OpenByName({ onOpen }: { onOpen: (name: string) => void }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const field = useId();
  const note = useId();

  function submit(event: FormEvent) {
    event.preventDefault();
    const wanted = name.trim();
    const found = nameProblem(wanted);
    setProblem(found);
    if (found !== null) return;
    setName("");
    onOpen(wanted);
  }

  return (
    <form className="open-by-name" onSubmit={submit}>
      <label htmlFor={field}>Open by name</label>
      <div className="open-by-name-row">
        <input
          id={field}
          value={name}
          placeholder="room-1"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          data-testid="open-name"
          aria-invalid={problem !== null}
          aria-describedby={problem === null ? undefined : note}
          onChange={(event) => {
            setName(event.target.value);
            setProblem(null);
          }}
        />
        <button type="submit" className="button" data-testid="open">
          Open
        </button>
      </div>
      {problem !== null && (
        <p id={note} role="alert" className="field-problem">
          {problem}
        </p>
      )}
    </form>
  );
}
