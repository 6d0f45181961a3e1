// What clients show, as text that can be compared: sections of lines, ids replaced by their order of appearance.

/**
 * Sections: `stored` is get-messages, `tab n` what a tab shows (in short where it shows what is stored), `turns` how each
 * request ended, `model` how often it was asked and what for. `key` is the word of the script that its gates are named by.
 */
export function describe({ tabs, frames, history, calls, key }) {
  const names = new Map();
  const name = (id) => names.get(id) ?? names.set(id, `#${names.size + 1}`).get(id);
  const lines = (messages) => messages.map((message) => `${name(message.id)} ${message.role}: ${message.parts.map(part).join(" ")}`.trim());
  const view = { stored: lines(history) };
  tabs.forEach((tab, at) => {
    const { messages, status, error, isServerStreaming, isRecovering } = tab.now;
    const seen = lines(messages);
    const flags = [isServerStreaming && "server streaming", isRecovering && "recovering"].filter(Boolean);
    view[`tab ${at + 1}`] = [
      [status, ...flags].join(", ") + (error ? `: ${short(error.message)}` : ""),
      ...(same(seen, view.stored) ? ["as stored"] : seen),
      `turns: ${tab.turnsEnded.map(turn).join(", ") || "none"}`,
    ];
  });
  view.turns = ends(frames);
  const last = calls.at(-1)?.request?.messages ?? [];
  view.model = [`${calls.length} requests`, ...last.map(asked)];
  return JSON.parse(JSON.stringify(view).replaceAll(key, "k").replace(/call_[a-z0-9]{8}\b/g, "call"));
}

const turn = ({ outcome, error }) => (error === undefined ? outcome : `${outcome} (${short(error)})`);

/** Error texts, in one line that can be read. */
function short(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 120 ? `${line.slice(0, 120)}…` : line;
}

function part(value) {
  const { type, text } = value;
  if (type === "step-start") return "|";
  if (type === "text") return JSON.stringify(text.length > 60 ? `${text.slice(0, 30)} … ${text.slice(-10)}` : text);
  if (type === "reasoning") return `thinks ${JSON.stringify(text)}`;
  if (type === "file") return `file ${value.mediaType}`;
  if (type === "dynamic-tool") return tool(`${value.toolName} (dynamic)`, value);
  if (type.startsWith("tool-")) return tool(type.slice(5), value);
  return type;
}

function tool(name, { state, input, output, errorText, approval }) {
  const call = `${name} ${JSON.stringify(input) ?? "?"}`;
  if (state === "output-available") return `[${call} = ${JSON.stringify(output)}]`;
  if (state === "output-error") return `[${call} failed: ${short(errorText)}]`;
  return `[${call} ${state}${approval?.reason === undefined ? "" : ` because ${approval.reason}`}]`;
}

/** How each request ended, in the order they began; more than one end is said so. */
function ends(frames) {
  const requests = new Map();
  for (const frame of frames) {
    if (frame.replay) continue;
    const request = requests.get(frame.id) ?? requests.set(frame.id, { ends: [], error: undefined }).get(frame.id);
    if (frame.error) request.error = frame.body;
    if (frame.done) request.ends.push(frame.outcome ?? (request.error === undefined ? "completed" : "error"));
  }
  return [...requests.values()].map(({ ends, error }) => {
    const outcome = ends.join(" and ") || "no end";
    return error === undefined ? outcome : `${outcome}: ${short(error)}`;
  });
}

/** A message of a model request: who says it, and of a user what. */
function asked({ role, content, tool_calls: calls }) {
  const text = typeof content === "string" ? content : content?.map((each) => each.text ?? each.type).join("+");
  if (role === "user") return `user ${JSON.stringify(text)}`;
  return calls === undefined ? role : `${role} (${calls.length} calls)`;
}

/** Sections that differ, as `{section: {ours, peer}}`. */
export function differences(ours, peer) {
  const sections = Object.keys({ ...ours, ...peer }).filter((section) => !same(ours[section], peer[section]));
  return Object.fromEntries(sections.map((section) => [section, { ours: ours[section], peer: peer[section] }]));
}

function same(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}
