/** Where the reader writes: text, files by button, paste or drop, send and stop. */
import type { FileUIPart } from "ai";
import { useEffect, useImperativeHandle, useLayoutEffect, useRef, useState, type ClipboardEvent, type KeyboardEvent, type Ref } from "react";
import { attach } from "../lib/attachments";
import { isTouch } from "../lib/device";
import { IconButton } from "./button";
import { Files } from "./files";
import { ArrowUp, Cross, Paperclip, Square } from "./icons";

export type Draft = { text: string; files: FileUIPart[] };

export type ComposerHandle = { focus: () => void; addFiles: (files: Iterable<File>) => void };

type ComposerProps = {
  ref: Ref<ComposerHandle>;
  /** What is being written is kept under this key while the reader looks at another conversation. */
  draftKey: string;
  busy: boolean;
  hint: string;
  onSend: (draft: Draft) => void;
  onStop: () => void;
};

const drafts = new Map<string, Draft>();
const EMPTY: Draft = { text: "", files: [] };

export function Composer({ ref, draftKey, busy, hint, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState(() => drafts.get(draftKey)?.text ?? "");
  const [files, setFiles] = useState<FileUIPart[]>(() => drafts.get(draftKey)?.files ?? EMPTY.files);
  const [problems, setProblems] = useState<string[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const latestFiles = useRef(files);

  useEffect(() => {
    drafts.set(draftKey, { text, files });
    latestFiles.current = files;
  }, [draftKey, text, files]);

  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "0";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);

  useEffect(focusUnlessTouch, []);

  // On a touch screen focus would open the keyboard over the conversation.
  function focusUnlessTouch() {
    if (!isTouch()) area.current?.focus();
  }

  async function addFiles(chosen: Iterable<File>) {
    const result = await attach(latestFiles.current, [...chosen]);
    latestFiles.current = result.files;
    setFiles(result.files);
    setProblems(result.problems);
  }

  function removeFile(index: number) {
    setFiles(files.filter((_, at) => at !== index));
    // The focused button goes with the last file.
    if (files.length === 1) area.current?.focus();
  }

  useImperativeHandle(ref, () => ({ focus: focusUnlessTouch, addFiles: (chosen) => void addFiles(chosen) }));

  const sendable = text.trim() !== "" || files.length > 0;

  function submit() {
    if (!sendable) return;
    onSend({ text: text.trim(), files });
    setText("");
    setFiles([]);
    setProblems([]);
    area.current?.focus();
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    // On a touch keyboard Enter is the only way to a new line; the button sends.
    if (isTouch()) return;
    event.preventDefault();
    submit();
  }

  function onPaste(event: ClipboardEvent) {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    void addFiles(event.clipboardData.files);
  }

  return (
    <form
      className="composer"
      aria-label="Write a message"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {problems.length > 0 && (
        <div className="composer-problems" role="alert" data-testid="attachment-error">
          <ul>
            {problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
          <IconButton label="Dismiss" onClick={() => setProblems([])}>
            <Cross size={14} />
          </IconButton>
        </div>
      )}
      <div className="composer-box">
        <Files files={files} onRemove={removeFile} />
        <textarea
          ref={area}
          rows={1}
          value={text}
          placeholder="Message the agent"
          aria-label="Message"
          aria-describedby="composer-hint"
          data-testid="composer"
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
        <div className="composer-bar">
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            data-testid="file-input"
            onChange={(event) => {
              void addFiles(event.target.files ?? []);
              event.target.value = "";
            }}
          />
          <IconButton label="Attach files" title="Attach files (or paste, or drop them here)" data-testid="attach" onClick={() => picker.current?.click()}>
            <Paperclip />
          </IconButton>
          <span id="composer-hint" className="composer-hint">
            {hint}
          </span>
          {busy && (
            <IconButton label="Stop answering" title="Stop (Esc)" className="stop" data-testid="stop" onClick={onStop}>
              <Square size={18} />
            </IconButton>
          )}
          {(!busy || sendable) && (
            <button type="submit" className="icon-button send" data-testid="send" aria-label="Send message" title="Send (Enter)" disabled={!sendable}>
              <ArrowUp />
            </button>
          )}
        </div>
      </div>
    </form>
  );
}
