/** One message: the parts of an answer in order, or what the reader wrote, with the actions each allows. */
import { isToolUIPart, type FileUIPart, type SourceDocumentUIPart, type SourceUrlUIPart, type UIMessage } from "ai";
import { memo, useEffect, useRef, useState, type KeyboardEvent } from "react";
import { flushSync } from "react-dom";
import { isVisible, joined, textOf } from "../lib/text";
import { CopyButton, IconButton } from "./button";
import { Files } from "./files";
import { Clock, External, Pencil, Refresh } from "./icons";
import { Markdown } from "./markdown";
import { Reasoning } from "./reasoning";
import { ToolCard, type ToolAnswers } from "./tool";

export type MessageActions = {
  regenerate: (messageId: string) => void;
  edit: (message: UIMessage, text: string) => void;
  tools: ToolAnswers;
};

type MessageProps = {
  message: UIMessage;
  /** The message is being written right now, or will be as soon as the server is back. */
  live: boolean;
  /** A turn is under way, or nobody would hear: history cannot be rewritten now. */
  locked: boolean;
  last: boolean;
  /** What goes on with it stands in the next message until the server has joined them. */
  continued: boolean;
  /** The server has it and is still busy with another one. */
  queued: boolean;
  online: boolean;
  actions: MessageActions;
};

export const Message = memo(function Message({ message, live, locked, last, continued, queued, online, actions }: MessageProps) {
  const [editing, setEditing] = useState(false);
  const editButton = useRef<HTMLButtonElement>(null);
  const user = message.role === "user";
  const text = textOf(message);

  function stopEditing() {
    // The editor takes the focus with it: back to where it came from, which only then exists again.
    flushSync(() => setEditing(false));
    editButton.current?.focus();
  }

  // An answer that was stopped before its first word.
  if (message.role === "assistant" && !live && !isVisible(message)) return null;
  return (
    <article
      className={`message ${message.role}${last ? " last" : ""}${queued ? " pending" : ""}`}
      data-testid="message"
      data-queued={queued}
      data-role={message.role}
      data-message-id={message.id}
      data-live={live}
      aria-label={user ? (queued ? "You, not answered yet" : "You") : message.role === "assistant" ? "Assistant" : "System"}
    >
      {user ? (
        <UserContent message={message} editing={editing} locked={locked} onDone={stopEditing} actions={actions} />
      ) : (
        <Parts message={message} live={live} last={last || continued} online={online} tools={actions.tools} />
      )}
      {queued && (
        <p className="pending-note" data-testid="server-queued">
          <Clock size={13} />
          Queued: answered after this one
        </p>
      )}
      {!live && !editing && !continued && !queued && (
        <div className="message-actions">
          {text !== "" && <CopyButton text={() => text} label="Copy message" size={15} />}
          {user ? (
            <IconButton ref={editButton} label="Edit message" data-testid="edit" disabled={locked} onClick={() => setEditing(true)}>
              <Pencil size={15} />
            </IconButton>
          ) : (
            message.role === "assistant" && (
              <IconButton label={last ? "Answer again" : "Answer again from here"} data-testid="regenerate" disabled={locked} onClick={() => actions.regenerate(message.id)}>
                <Refresh size={15} />
              </IconButton>
            )
          )}
        </div>
      )}
    </article>
  );
});

type PartsProps = Pick<MessageProps, "message" | "live" | "last" | "online"> & { tools: ToolAnswers };

function Parts({ message, live, last, online, tools }: PartsProps) {
  const sources: (SourceUrlUIPart | SourceDocumentUIPart)[] = [];
  const parts = joined(message.parts);
  const shown = parts.map((part, index) => {
    // Providers may leave a part "streaming" for ever when a turn breaks off; only the last part of a live answer is.
    const growing = live && index === parts.length - 1;
    if (isToolUIPart(part)) return <ToolCard key={part.toolCallId} part={part} live={live} last={last} online={online} answers={tools} />;
    switch (part.type) {
      case "text":
        return part.text === "" ? null : <Markdown key={index} text={part.text} live={growing} />;
      case "reasoning":
        return part.text.trim() === "" ? null : <Reasoning key={index} text={part.text} live={growing && part.state !== "done"} />;
      case "file":
        return <Files key={index} files={[part]} />;
      case "source-url":
      case "source-document":
        sources.push(part);
        return null;
      default:
        return null;
    }
  });
  return (
    <>
      {shown}
      {sources.length > 0 && <Sources sources={sources} />}
    </>
  );
}

function Sources({ sources }: { sources: (SourceUrlUIPart | SourceDocumentUIPart)[] }) {
  return (
    <ul className="sources" aria-label="Sources" data-testid="sources">
      {sources.map((source, index) => {
        const url = source.type === "source-url" && /^https?:/i.test(source.url) ? source.url : null;
        const title = source.title ?? (url === null ? "Source" : hostOf(url));
        return (
          <li key={index}>
            {url === null ? (
              <span className="source">{title}</span>
            ) : (
              <a className="source" href={url} target="_blank" rel="noopener noreferrer">
                <External size={13} />
                <span>{title}</span>
              </a>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
}

type UserContentProps = { message: UIMessage; editing: boolean; locked: boolean; onDone: () => void; actions: MessageActions };

function UserContent({ message, editing, locked, onDone, actions }: UserContentProps) {
  const files = message.parts.filter((part): part is FileUIPart => part.type === "file");
  const text = textOf(message);
  return (
    <>
      <Files files={files} />
      {editing ? (
        <Editor
          initial={text}
          locked={locked}
          onCancel={onDone}
          onSave={(changed) => {
            onDone();
            actions.edit(message, changed);
          }}
        />
      ) : (
        text !== "" && <div className="bubble">{text}</div>
      )}
    </>
  );
}

type EditorProps = { initial: string; locked: boolean; onCancel: () => void; onSave: (text: string) => void };

function Editor({ initial, locked, onCancel, onSave }: EditorProps) {
  const [text, setText] = useState(initial);
  const area = useRef<HTMLTextAreaElement>(null);
  const sendable = text.trim() !== "" && !locked;

  useEffect(() => {
    const element = area.current;
    element?.focus();
    element?.setSelectionRange(element.value.length, element.value.length);
  }, []);

  function onKeyDown(event: KeyboardEvent) {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      if (sendable) onSave(text.trim());
    }
  }

  return (
    <form
      className="editor"
      onSubmit={(event) => {
        event.preventDefault();
        if (sendable) onSave(text.trim());
      }}
    >
      <textarea ref={area} value={text} aria-label="Edit message" data-testid="edit-input" onChange={(event) => setText(event.target.value)} onKeyDown={onKeyDown} />
      <p className="editor-note">Sending replaces this message and everything after it.</p>
      <div className="editor-actions">
        <button type="button" className="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" className="button primary" data-testid="edit-save" disabled={!sendable}>
          Send
        </button>
      </div>
    </form>
  );
}
