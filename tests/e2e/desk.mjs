// Conversations with tools that a page runs or a person has to allow, on the agent `Desk` of the worker in worker/.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toolParts } from "./client.mjs";
import { serve } from "./setup.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
if (!existsSync(at("./worker/build/index.js"))) throw new Error("the worker of these tests is not built: see worker/README.md");

/** The tools a page brings. */
export const TOOLS = [
  { name: "look", description: "Looks around", parameters: { type: "object", properties: { at: { type: "string" } } } },
  { name: "point" },
];

/** Serves the worker; `test` runs on a room of the agent. */
export function serveDesk(options = {}) {
  const served = serve({ config: at("./worker/wrangler.toml"), ...options });
  return {
    get worker() {
      return served.worker;
    },
    get provider() {
      return served.provider;
    },
    test: (name, body, more) => served.test(name, body, { agent: "desk", ...more }),
  };
}

/**
 * A conversation whose model wants `tools` (rounds as in the script `want`), and whose first stream is over. `ids` are the
 * calls that somebody has to answer, in order.
 */
export async function parked({ room, provider }, tools, { clientTools = TOOLS, ...body } = {}) {
  const socket = await room.connect();
  const text = `want ${tools} ${room.name}`;
  const { id, message } = socket.say(text, { clientTools, ...body });
  const end = await socket.done(id);
  assert.equal(end.outcome, "completed");
  const reply = (await room.history()).at(-1);
  const ids = open(reply);
  assert.ok(ids.length > 0, "nothing is open");
  return { socket, text, id, message, reply, ids, gate: () => provider.gate(room.name) };
}

/** Calls of a message that have no outcome. */
export const open = (message) =>
  toolParts(message)
    .filter((part) => ["input-available", "approval-requested"].includes(part.state))
    .map((part) => part.toolCallId);

/** What became of each call of a message. */
export const states = (message) => toolParts(message).map((part) => part.state);

/** Nothing goes on: the probe says so, and the model was asked `requests` times for `text`. */
export async function assertAtRest(socket, provider, text, requests) {
  assert.equal((await socket.ask()).reason, "idle");
  assert.equal(provider.of(text).length, requests, "requests to the model");
}

/** The tool results of a request, by their calls' ids. */
export const resultsOf = ({ request }) =>
  Object.fromEntries(request.messages.filter((message) => message.role === "tool").map((message) => [message.tool_call_id, message.content]));
