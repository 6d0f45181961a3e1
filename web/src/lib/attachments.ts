/** Turns chosen, pasted or dropped files into file parts, and says clearly which ones cannot be sent. */
import type { FileUIPart } from "ai";

const MB = 1024 * 1024;
const MAX_FILE_BYTES = 5 * MB;
/** The server takes 8 MiB for one message as JSON; base64 costs a third, and the text needs room too. */
const MAX_MESSAGE_CHARS = 7.5 * MB;

export type Attached = { files: FileUIPart[]; problems: string[] };

export async function attach(present: FileUIPart[], chosen: Iterable<File>): Promise<Attached> {
  const files = [...present];
  const problems: string[] = [];
  let used = present.reduce((sum, file) => sum + file.url.length, 0);
  for (const file of chosen) {
    const label = file.name || "The pasted file";
    if (file.size === 0) {
      problems.push(`${label} is empty.`);
      continue;
    }
    if (file.size > MAX_FILE_BYTES) {
      problems.push(`${label} is ${megabytes(file.size)}. A file may have at most ${megabytes(MAX_FILE_BYTES)}.`);
      continue;
    }
    try {
      const url = await dataUrl(file);
      if (used + url.length > MAX_MESSAGE_CHARS) {
        problems.push(`${label} does not fit: the files of one message are too large together. Send it in a message of its own.`);
        continue;
      }
      used += url.length;
      files.push({ type: "file", mediaType: file.type || "application/octet-stream", ...(file.name ? { filename: file.name } : {}), url });
    } catch {
      problems.push(`${label} could not be read. If it is a folder, choose the files in it.`);
    }
  }
  return { files, problems };
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      // Browsers differ in what they write for a file of unknown type; the part and its URL have to agree.
      const url = String(reader.result);
      resolve(file.type ? url : url.replace(/^data:[^,]*?;base64,/, "data:application/octet-stream;base64,"));
    };
    reader.onerror = () => reject(reader.error ?? new Error("unreadable file"));
    reader.readAsDataURL(file);
  });
}

function megabytes(bytes: number): string {
  return `${(bytes / MB).toFixed(bytes % MB === 0 ? 0 : 1)} MB`;
}
