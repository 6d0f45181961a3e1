// `npm run e2e:long`: an answer of ten minutes, carried on by the alarm alone after a death, with nobody connected (recovery 122, Q4).
// Longer than the platform keeps an object without events, and longer than any test should take; so it has a command of its own.
// `npm run e2e:long -- 3` takes three minutes.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { WebSocket } from "ws";
import { startWorker } from "./worker.mjs";

const minutes = Number(process.argv[2] ?? 10);
const seconds = minutes * 60;
const path = `agents/chat-agent/${randomUUID()}`;

// recovery 122
const worker = await startWorker({ vars: { MODEL: "demo" } });
try {
  const socket = new WebSocket(`ws://127.0.0.1:${worker.port}/${path}?_pk=long`);
  await once(socket, "open");
  const message = { id: "m1", role: "user", parts: [{ type: "text", text: `Talk slowly for ${seconds} seconds` }] };
  const body = JSON.stringify({ messages: [message], trigger: "submit-message" });
  socket.send(JSON.stringify({ id: "r1", init: { method: "POST", body }, type: "cf_agent_use_chat_request" }));
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  await worker.kill();
  await worker.restart();
  console.log(`killed in mid-sentence and started again; nobody connects for ${minutes} minutes`);
  const began = Date.now();
  const finished = (line) => line.includes('"event":"chat:turn:finish"');
  while (!worker.lines.some(finished)) {
    if (Date.now() - began > (seconds + 90) * 1_000) throw new Error(`no end in time:\n${worker.lines.join("\n")}`);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  const end = JSON.parse(worker.lines.find(finished).slice(worker.lines.find(finished).indexOf("{")));
  const attempts = worker.lines.filter((line) => line.includes('"event":"chat:recovery:attempt"')).length;
  const history = await (await fetch(`${worker.url}/${path}/get-messages`)).json();
  const text = history[1].parts.filter((part) => part.type === "text").map((part) => part.text).join("");
  console.log(`after ${Math.round((Date.now() - began) / 1000)} s: ${end.status}, ${history.length} messages, ${text.split(/\s+/).length} words, ${attempts} interruption`);
  if (end.status !== "completed" || history.length !== 2 || attempts !== 1) throw new Error("that is not what was to come");
} finally {
  await worker.stop();
}
