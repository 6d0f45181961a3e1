/** Files of a message: pictures to look at, everything else to download. */
import type { FileUIPart } from "ai";
import { useRef, useState } from "react";
import { IconButton } from "./button";
import { Cross, File } from "./icons";

/** Only these are fetched or opened; anything else in a message is named but not linked. */
function safeUrl(url: string): string | null {
  return /^(?:data:|https?:)/i.test(url) ? url : null;
}

export function Files({ files, onRemove }: { files: FileUIPart[]; onRemove?: (index: number) => void }) {
  if (files.length === 0) return null;
  return (
    <ul className="files" data-testid="files">
      {files.map((file, index) => (
        <li key={index} className={isPicture(file) ? "file picture" : "file"} data-testid="file" data-media-type={file.mediaType}>
          <FileView file={file} />
          {onRemove && (
            <IconButton label={`Remove ${file.filename ?? "file"}`} className="file-remove" onClick={() => onRemove(index)}>
              <Cross size={13} />
            </IconButton>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Pictures come from data URLs: one from the network would tell its server who reads this conversation. */
function isPicture(file: FileUIPart): boolean {
  return file.mediaType.startsWith("image/") && file.url.startsWith("data:image/");
}

function FileView({ file }: { file: FileUIPart }) {
  const name = file.filename ?? (file.mediaType.startsWith("image/") ? "Picture" : "File");
  if (isPicture(file)) return <Picture url={file.url} name={name} />;
  const url = safeUrl(file.url);
  const inner = (
    <>
      <File size={18} />
      <span className="file-name">{name}</span>
      <span className="file-type">{file.mediaType}</span>
    </>
  );
  if (url === null) return <span className="file-card">{inner}</span>;
  return (
    <a className="file-card" href={url} download={file.filename ?? true} target="_blank" rel="noopener noreferrer">
      {inner}
    </a>
  );
}

function Picture({ url, name }: { url: string; name: string }) {
  const [open, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button
        type="button"
        className="picture-button"
        aria-label={`Enlarge ${name}`}
        onClick={() => {
          setOpen(true);
          dialog.current?.showModal();
        }}
      >
        <img src={url} alt={name} />
      </button>
      <dialog ref={dialog} className="lightbox" aria-label={name} onClose={() => setOpen(false)} onClick={() => dialog.current?.close()}>
        {open && <img src={url} alt={name} />}
        <IconButton label="Close" className="lightbox-close" onClick={() => dialog.current?.close()}>
          <Cross />
        </IconButton>
      </dialog>
    </>
  );
}
