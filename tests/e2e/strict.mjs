// What a strict OpenAI-compatible server would refuse. Pure: a request in, its violations out.

/** Fields every server of the conservative profile knows (providers §9, first row); others answer 400 to the unknown. */
const REQUEST_FIELDS = new Set([
  "model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "stop",
  "seed", "response_format",
]);
const MESSAGE_FIELDS = {
  system: ["role", "content"],
  user: ["role", "content", "name"],
  assistant: ["role", "content", "tool_calls"],
  tool: ["role", "tool_call_id", "content"],
};
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** What the worker calls a call whose id was missing or used before. */
const MINTED = /^call_[a-zA-Z0-9]{24}$/;

/** Names every rule of the chat protocol (providers §5) that this request breaks. `made`: the ids of all calls the model made. */
export function violationsOf(http, text, body, made) {
  if (body === undefined || body === null || typeof body !== "object") return [`the body is not a JSON object: ${text.slice(0, 80)}`];
  const found = [];
  const refuse = (rule) => found.push(rule);

  if (http.method !== "POST" || http.url !== "/v1/chat/completions") refuse(`${http.method} ${http.url}`);
  if (!/^application\/json/.test(http.headers["content-type"] ?? "")) refuse(`content-type ${http.headers["content-type"]}`);
  for (const field of Object.keys(body)) if (!REQUEST_FIELDS.has(field)) refuse(`unknown field "${field}"`);
  if (body.model !== "mock-1") refuse(`unknown model ${JSON.stringify(body.model)}`);
  if (body.stream !== true) refuse("stream is not true");
  if (hasNull(body.tools)) refuse("null inside tools");
  for (const tool of body.tools ?? []) checkTool(tool, refuse);
  if (Array.isArray(body.tools) && body.tools.length === 0) refuse("tools is empty");
  if (body.tools === undefined && body.tool_choice !== undefined) refuse("tool_choice without tools");
  if (!Array.isArray(body.messages) || body.messages.length === 0) refuse("messages is not a filled array");
  else checkMessages(body.messages, refuse);
  for (const call of made === undefined ? [] : callsOf(body)) {
    if (!made.has(call?.id) && !MINTED.test(call?.id)) refuse(`a call the model never made: ${call?.id}`);
  }
  return found;
}

function callsOf(body) {
  const messages = Array.isArray(body.messages) ? body.messages : [];
  return messages.flatMap((message) => (Array.isArray(message?.tool_calls) ? message.tool_calls : []));
}

function checkTool(tool, refuse) {
  if (tool?.type !== "function") refuse(`tool of type ${JSON.stringify(tool?.type)}`);
  if (!TOOL_NAME.test(tool?.function?.name ?? "")) refuse(`tool name ${JSON.stringify(tool?.function?.name)}`);
  if (tool?.function?.parameters?.type !== "object") refuse(`parameters of ${tool?.function?.name} are no object schema`);
  if (tool?.function?.strict !== undefined) refuse("strict in a tool of the conservative profile");
}

/** Roles, contents, and the pairing of calls with results: each call answered exactly once, right behind its message. */
function checkMessages(messages, refuse) {
  const seen = new Set();
  let open = [];
  messages.forEach((message, at) => {
    const where = `message ${at} (${message?.role})`;
    const fields = MESSAGE_FIELDS[message?.role];
    if (fields === undefined) return refuse(`${where}: illegal role`);
    for (const field of Object.keys(message)) if (!fields.includes(field)) refuse(`${where}: unknown field "${field}"`);
    if (message.role === "system" && at !== 0) refuse(`${where}: not the first message`);

    if (message.role === "tool") {
      if (typeof message.content !== "string") refuse(`${where}: content is not a string`);
      if (!isFilled(message.tool_call_id)) refuse(`${where}: empty tool_call_id`);
      if (!open.includes(message.tool_call_id)) refuse(`${where}: result without a call: ${message.tool_call_id}`);
      open = open.filter((id) => id !== message.tool_call_id);
      return;
    }
    if (open.length > 0) refuse(`${where}: calls without a result before it: ${open.join(", ")}`);
    open = [];
    if (message.role === "assistant") checkAssistant(message, where, seen, open, refuse);
    else checkContent(message.content, where, refuse);
  });
  if (open.length > 0) refuse(`calls without a result at the end: ${open.join(", ")}`);
  if (messages.at(-1)?.role === "assistant") refuse("the last message is the assistant's");
}

function checkAssistant(message, where, seen, open, refuse) {
  const calls = message.tool_calls;
  if (calls === undefined) {
    if (!isFilled(message.content)) refuse(`${where}: neither text nor calls`);
    return;
  }
  if (!Array.isArray(calls) || calls.length === 0) return refuse(`${where}: tool_calls is not a filled array`);
  if (message.content !== null && typeof message.content !== "string") refuse(`${where}: content is neither text nor null`);
  for (const call of calls) {
    if (!isFilled(call?.id)) refuse(`${where}: empty call id`);
    if (seen.has(call?.id)) refuse(`${where}: call id used twice: ${call?.id}`);
    seen.add(call?.id);
    open.push(call?.id);
    if (call?.type !== "function") refuse(`${where}: call of type ${JSON.stringify(call?.type)}`);
    if (!TOOL_NAME.test(call?.function?.name ?? "")) refuse(`${where}: call name ${JSON.stringify(call?.function?.name)}`);
    if (!isObjectText(call?.function?.arguments)) refuse(`${where}: arguments are no JSON object: ${call?.function?.arguments}`);
  }
}

function checkContent(content, where, refuse) {
  if (isFilled(content)) return;
  if (!Array.isArray(content) || content.length === 0) return refuse(`${where}: empty content`);
  if (content.every((part) => part?.type === "text")) refuse(`${where}: text only, sent as an array`);
  for (const part of content) {
    if (part?.type === "text" && isFilled(part.text)) continue;
    if (part?.type === "image_url" && /^(https?|data):/.test(part.image_url?.url ?? "")) continue;
    if (part?.type === "file" && isFilled(part.file?.file_data ?? part.file?.file_id)) continue;
    if (part?.type === "input_audio" && isFilled(part.input_audio?.data)) continue;
    refuse(`${where}: unusable part ${JSON.stringify(part).slice(0, 80)}`);
  }
}

function isFilled(value) {
  return typeof value === "string" && value.length > 0;
}

function isObjectText(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value);
  } catch {
    return false;
  }
}

function hasNull(value) {
  if (value === null) return true;
  if (typeof value !== "object") return false;
  return Object.values(value).some(hasNull);
}
