// What clients show, as text that can be compared: sections of lines, ids replaced by their order of appearance.

/**
 * Sections: `stored` is get-messages, `tab n` what a tab shows (in short where it shows what is stored), `turns` how each
 * request ended, `model` how often it was asked and what for.
 */
export function describe({ tabs, frames, history, calls }) {
  const names = new Map();
  const name = (id) => names.get(id) ?? names.set(id, `#${names.size + 1}`).get(id);
  const lines = (messages) => messages.map((message) => `${name(message.id)} ${message.role}: ${message.parts.map(part).join(" ").trim()}`);
  const view = { stored: lines(history) };
  tabs.forEach((tab, at) => {
    const { messages, status, error, isServerStreaming, isRecovering } = tab.now;
    const seen = lines(messages);
    const flags = [isServerStreaming && "server streaming", isRecovering && "recovering"].filter(Boolean);
    view[`tab ${at + 1}`] = [
      [status, ...flags].join(", ") + (error ? `: ${error.message}` : ""),
      ...(same(seen, view.stored) ? ["as stored"] : seen),
      `turns: ${tab.turnsEnded.map(turn).join(", ") || "none"}`,
    ];
  });
  view.turns = ends(frames);
  const last = calls.at(-1)?.request?.messages ?? [];
  view.model = [`${calls.length} requests, the last: ${last.map(asked).join(", ")}`];
  return view;
}

const turn = ({ outcome, error }) => (error === undefined ? outcome : `${outcome} (${error})`);

function part(value) {
  const { type, text, state } = value;
  if (type === "step-start") return "|";
  if (type === "text") return JSON.stringify(text) + (state === "streaming" ? "…" : "");
  if (type === "reasoning") return `thinks ${JSON.stringify(text)}${state === "streaming" ? "…" : ""}`;
  if (type === "file") return `file ${value.mediaType}`;
  if (type === "dynamic-tool") return tool(`${value.toolName} (dynamic)`, value);
  if (type.startsWith("tool-")) return tool(type.slice(5), value);
  return type;
}

function tool(name, { state, input, output, errorText, approval }) {
  const call = `${name} ${JSON.stringify(input) ?? "?"}`;
  if (state === "output-available") return `[${call} = ${JSON.stringify(output)}]`;
  if (state === "output-error") return `[${call} failed: ${errorText}]`;
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
    return error === undefined ? outcome : `${outcome}: ${error}`;
  });
}

/** A message of a model request: who says it, and of a user what. */
function asked({ role, content, tool_calls: calls }) {
  if (role === "user") return `user ${JSON.stringify(typeof content === "string" ? content : content.map((each) => each.text ?? each.type).join("+"))}`;
  return calls === undefined ? role : `${role} (${calls.length} calls)`;
}

/** Sections that differ, as `{section: {ours, peer}}`. */
export function differences(ours, peer) {
  const sections = [...new Set([...Object.keys(ours), ...Object.keys(peer)])];
  return Object.fromEntries(
    sections.filter((section) => !same(ours[section], peer[section])).map((section) => [section, { ours: ours[section], peer: peer[section] }]),
  );
}

function same(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}
