// A client that costs as little as possible: it looks at a frame only as far as the measurement needs.

import { randomUUID } from "node:crypto";
import { WebSocket } from "ws";

const LIMIT_MS = 60_000;

/** Opens a conversation and waits for the first frame. */
export async function connect(worker, name = randomUUID()) {
  const socket = new WebSocket(`ws://127.0.0.1:${worker.port}/agents/chat-agent/${name}?_pk=${randomUUID()}`, {
    perMessageDeflate: false,
    maxPayload: 64 * 1024 * 1024,
  });
  await within("a connection", (resolve, reject) => {
    socket.once("error", reject);
    socket.once("message", resolve);
  });
  return {
    name,
    /** Asks `text` on the history `before`; resolves with the milliseconds to the first delta and to the end. */
    ask(text, before = []) {
      const id = randomUUID().slice(0, 8);
      const message = { id: randomUUID(), role: "user", parts: [{ type: "text", text }] };
      const body = JSON.stringify({ messages: [...before, message], trigger: "submit-message" });
      const began = performance.now();
      let firstDelta;
      return within(`an answer to "${text}"`, (resolve, reject) => {
        const onMessage = (data) => {
          const frame = data.toString("latin1");
          if (firstDelta === undefined && frame.includes("word ") && frame.includes("chat_response")) firstDelta = performance.now() - began;
          if (!frame.includes('"done":true') || !frame.includes("chat_response")) return;
          socket.off("message", onMessage);
          if (frame.includes('"error":true')) reject(new Error(frame));
          else resolve({ firstDelta, total: performance.now() - began });
        };
        socket.on("message", onMessage);
        socket.once("close", () => reject(new Error("the socket closed")));
        socket.send(JSON.stringify({ id, init: { method: "POST", body }, type: "cf_agent_use_chat_request" }));
      });
    },
    close() {
      socket.close();
    },
  };
}

/** Milliseconds from the upgrade request to the connect transcript, and its size. */
export async function timeConnect(worker, name) {
  const began = performance.now();
  const socket = new WebSocket(`ws://127.0.0.1:${worker.port}/agents/chat-agent/${name}?_pk=${randomUUID()}`, {
    perMessageDeflate: false,
    maxPayload: 64 * 1024 * 1024,
  });
  const bytes = await within("a transcript", (resolve, reject) => {
    socket.once("error", reject);
    socket.on("message", (data) => {
      if (data.subarray(0, 4_096).includes("cf_agent_chat_messages") || data.length > 1_000_000) resolve(data.length);
    });
  });
  const took = performance.now() - began;
  socket.close();
  return { took, bytes };
}

function within(what, begin) {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`no ${what} within ${LIMIT_MS} ms`)), LIMIT_MS);
    limit.unref();
    begin(
      (value) => {
        clearTimeout(limit);
        resolve(value);
      },
      (error) => {
        clearTimeout(limit);
        reject(error);
      },
    );
  });
}
