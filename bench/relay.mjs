// What wakeful is measured against: a Durable Object that relays provider events to the socket and keeps nothing. It asks
// the same provider the same question and forwards each event of the answer as one frame, unread.

import { DurableObject } from "cloudflare:workers";

export class ChatAgent extends DurableObject {
  async fetch() {
    const { 0: client, 1: server } = new WebSocketPair();
    this.ctx.acceptWebSocket(server);
    server.send(JSON.stringify({ type: "cf_agent_identity", name: "relay", agent: "chat-agent" }));
    return new Response(null, { status: 101, webSocket: client });
  }

  async webSocketMessage(socket, text) {
    const frame = JSON.parse(text);
    if (frame.type !== "cf_agent_use_chat_request") return;
    const { messages } = JSON.parse(frame.init.body);
    const response = await fetch(`${this.env.MODEL_BASE_URL}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        model: "mock-1",
        stream: true,
        messages: messages.map(({ role, parts }) => ({ role, content: parts.map((part) => part.text).join("") })),
      }),
    });
    for await (const event of eventsOf(response.body)) {
      if (event === "[DONE]") break;
      socket.send(JSON.stringify({ type: "cf_agent_use_chat_response", id: frame.id, body: event, done: false }));
    }
    socket.send(JSON.stringify({ type: "cf_agent_use_chat_response", id: frame.id, body: "", done: true }));
  }

  webSocketClose(socket, code) {
    socket.close(code);
  }
}

/** The data of each server-sent event. */
async function* eventsOf(body) {
  let rest = "";
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    for (const event of events) yield event.slice("data: ".length);
  }
}

export default {
  fetch(request, env) {
    const [, , , name] = new URL(request.url).pathname.split("/");
    return env.ChatAgent.get(env.ChatAgent.idFromName(name)).fetch(request);
  },
};
