// Reads from a wasm module what the size report needs (sections, the size and name of each function), and writes the names
// again without what no reader of a stack trace needs.

const HEADER = 8;
const CUSTOM = 0,
  IMPORT = 2,
  CODE = 10,
  DATA = 11;
const FUNCTION_NAMES = 1;

class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }
  byte() {
    if (this.at >= this.bytes.length) throw new Error("the wasm module ends too early");
    return this.bytes[this.at++];
  }
  /** Unsigned LEB128 of at most 32 bits. */
  number() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new Error("a number in the wasm module is too long");
  }
  text() {
    const length = this.number();
    this.at += length;
    return Buffer.from(this.bytes.subarray(this.at - length, this.at)).toString("utf8");
  }
}

/** All sections; `body` is where the content begins, after a custom section's name. */
export function sections(bytes) {
  if (Buffer.from(bytes.subarray(0, 4)).toString("latin1") !== "\0asm") throw new Error("not a wasm module");
  const found = [];
  for (const reader = new Reader(bytes, HEADER); reader.at < bytes.length;) {
    const start = reader.at;
    const id = reader.byte();
    const end = reader.number() + reader.at;
    if (end > bytes.length) throw new Error("the wasm module ends too early");
    const name = id === CUSTOM ? reader.text() : "";
    found.push({ id, name, start, end, body: reader.at });
    reader.at = end;
  }
  return found;
}

export function without(bytes, section) {
  return section ? Buffer.concat([bytes.subarray(0, section.start), bytes.subarray(section.end)]) : bytes;
}

export const namesSection = (all) => all.find((section) => section.id === CUSTOM && section.name === "name");
export const dataBytes = (all) =>
  all.filter((section) => section.id === DATA).reduce((sum, { start, end }) => sum + end - start, 0);

/** Functions of the module itself, with the size of their code and their name if it has one. */
export function functions(bytes) {
  const all = sections(bytes);
  const section = (id) => all.find((each) => each.id === id);
  const names = functionNames(bytes, namesSection(all));
  let index = importedFunctions(bytes, section(IMPORT));
  const code = section(CODE);
  if (!code) return [];
  const reader = new Reader(bytes, code.body);
  return Array.from({ length: reader.number() }, () => {
    const start = reader.at;
    reader.at = reader.number() + reader.at;
    return { name: names.get(index++) ?? "", size: reader.at - start };
  });
}

function functionNames(bytes, section) {
  const names = new Map();
  if (!section) return names;
  for (const reader = new Reader(bytes, section.body); reader.at < section.end;) {
    const kind = reader.byte();
    const end = reader.number() + reader.at;
    if (kind === FUNCTION_NAMES)
      for (let left = reader.number(); left > 0; left--) names.set(reader.number(), reader.text());
    reader.at = end;
  }
  return names;
}

/** Imported functions come first in the numbering, so they have to be counted. */
function importedFunctions(bytes, section) {
  if (!section) return 0;
  const reader = new Reader(bytes, section.body);
  const limits = () => {
    const flags = reader.number();
    reader.number();
    if (flags & 1) reader.number();
  };
  let count = 0;
  for (let left = reader.number(); left > 0; left--) {
    reader.text();
    reader.text();
    switch (reader.byte()) {
      case 0:
        reader.number();
        count++;
        break;
      case 1:
        reader.byte();
        limits();
        break;
      case 2:
        limits();
        break;
      case 3:
        reader.byte();
        reader.byte();
        break;
      case 4:
        reader.byte();
        reader.number();
        break;
      default:
        throw new Error("an import of a kind this reader does not know");
    }
  }
  return count;
}

/**
 * The module with only functions named, and without the compiler's hashes in their names: those tell one copy of a generic
 * function from another, cannot be compressed, and are about two fifths of what names cost. Of functions of the libraries below
 * only the crate is named, which is another two fifths: who reads a stack trace looks for their own code and ours.
 */
export function withPlainNames(bytes) {
  const section = namesSection(sections(bytes));
  if (!section) return bytes;
  const names = [...functionNames(bytes, section)].map(([index, name]) => [
    leb(index),
    sized(Buffer.from(plain(name))),
  ]);
  const map = sized(Buffer.concat([leb(names.length), ...names.flat()]));
  const content = Buffer.concat([sized(Buffer.from("name")), Buffer.from([FUNCTION_NAMES]), map]);
  return Buffer.concat([without(bytes, section), Buffer.from([CUSTOM]), sized(content)]);
}

const LIBRARIES =
  /^(core|alloc|std|dlmalloc|hashbrown|indexmap|memchr|itoa|zmij|ryu|fastrand|getrandom|js_sys|web_sys|worker\w*|serde\w*|schemars|futures\w*|console_error_panic_hook|http|bytes|url|idna|percent_encoding|chrono|matchit|strum|tokio\w*|pin_project\w*)$/;

function plain(name) {
  const crate = crateOf(name);
  return LIBRARIES.test(crate) ? crate : name.replace(/::h[0-9a-f]{16}$/, "").replace(/\[[0-9a-f]{13,16}\]/g, "");
}
const sized = (bytes) => Buffer.concat([leb(bytes.length), bytes]);

function leb(number) {
  const bytes = [];
  for (let rest = number; ; rest = Math.floor(rest / 128)) {
    bytes.push(rest < 128 ? rest : (rest % 128) | 0x80);
    if (rest < 128) return Buffer.from(bytes);
  }
}

/** The crate a function came from: the first path in its demangled name; for drop glue, the crate of what is dropped. */
export function crateOf(name) {
  if (/^_*wbindgen|^_*wbg|^_*externref|(externref|multivalue) shim$/.test(name)) return "wasm_bindgen";
  const first = (text) => /([A-Za-z_]\w*)(?:\[[0-9a-f]+\])?::/.exec(text)?.[1];
  const dropped = /^core(?:\[[0-9a-f]+\])?::ptr::drop_in_place(?:::)?<(.*)/.exec(name)?.[1];
  return (dropped && first(dropped)) || first(name) || (name ? "(no crate in the name)" : "(no name)");
}
