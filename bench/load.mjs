// The provider under load, in a process of its own so that its work is not counted as the worker's. Two questions:
// `burst N` is answered with N events as fast as the reader takes them, `tick MS N` with one event every MS milliseconds. A turn that is carried on gets one word, and the measuring process a message.

import { createServer } from "node:http";

const event = (delta, finish_reason = null) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "mock-1", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
const WORD = Buffer.from(event({ content: "word " }));
const END = Buffer.from(
  `${event({}, "stop")}data: ${JSON.stringify({ id: "c", choices: [], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } })}\n\ndata: [DONE]\n\n`,
);

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { messages } = JSON.parse(Buffer.concat(chunks));
  const question = messages.findLast((message) => message.role === "user").content;
  const [kind, first, second] = question.split(" ");
  response.writeHead(200, { "content-type": "text/event-stream" });
  if (kind === "burst") {
    response.end(Buffer.concat([...Array(Number(first)).fill(WORD), END]));
  } else if (kind === "tick") {
    tick(response, Number(first), Number(second));
  } else {
    // What a recovered turn ends with: whoever measures is told that the model says its first new word.
    if (kind === "Continue") process.send({ carriedOn: true });
    response.end(Buffer.concat([WORD, END]));
  }
});

/** Holds the pace over the whole run: a late timer is followed by what it owes. */
function tick(response, everyMs, count) {
  const began = performance.now();
  let sent = 0;
  response.write(WORD);
  sent = 1;
  const timer = setInterval(() => {
    const due = Math.min(count, Math.floor((performance.now() - began) / everyMs) + 1);
    for (; sent < due; sent += 1) response.write(WORD);
    if (sent < count) return;
    clearInterval(timer);
    response.end(END);
  }, everyMs);
  response.once("close", () => clearInterval(timer));
}

server.listen(0, "127.0.0.1", () => process.send({ url: `http://127.0.0.1:${server.address().port}/v1` }));
process.on("disconnect", () => process.exit(0));
