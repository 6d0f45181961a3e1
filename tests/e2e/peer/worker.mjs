// The original as a worker: `Think` from `@cloudflare/think` with the model, the tools and the classes that the twin on our side
// has (`../worker/src/twin.rs`). Bundled by bundle.mjs; wrangler.toml beside it describes it.

import { createOpenAI } from "@ai-sdk/openai";
import { Think } from "@cloudflare/think";
import { callable, routeAgentRequest } from "agents";
import { tool } from "ai";
import { z } from "zod";

const EXPRESSION = /^\s*(-?\d+)\s*([-+*])\s*(-?\d+)\s*$/;
const OPERATIONS = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b };

class Twin extends Think {
  getModel() {
    return createOpenAI({ baseURL: this.env.MODEL_BASE_URL, apiKey: "none" }).chat("mock-1");
  }

  getSystemPrompt() {
    return "Be brief.";
  }

  getTools() {
    return {
      calculate: tool({
        description: "Evaluates an expression of two integers",
        inputSchema: z.object({ expression: z.string() }),
        execute: async ({ expression }) => {
          const found = EXPRESSION.exec(expression);
          if (found === null) throw new Error("not an expression");
          return { result: OPERATIONS[found[2]](Number(found[1]), Number(found[3])) };
        },
      }),
      current_time: tool({
        description: "The time of day",
        inputSchema: z.object({}),
        execute: async () => ({ time: "noon" }),
      }),
      // Declared here, executed by a page.
      locate: tool({ description: "Where the user is", inputSchema: z.object({}) }),
      transfer: tool({
        description: "Moves money",
        inputSchema: z.object({ amount: z.number() }),
        needsApproval: true,
        execute: async ({ amount }) => ({ moved: amount }),
      }),
      spend: tool({
        description: "Spends money; small amounts without asking",
        inputSchema: z.object({ amount: z.number() }),
        needsApproval: async ({ amount }) => amount > 100,
        execute: async ({ amount }) => ({ spent: amount }),
      }),
    };
  }

  @callable()
  async ask(id, text) {
    const result = await this.saveMessages([{ id, role: "user", parts: [{ type: "text", text }] }]);
    return result.status;
  }
}

export class QueueChat extends Twin {}

export class LatestChat extends Twin {
  messageConcurrency = "latest";
}

export class MergeChat extends Twin {
  messageConcurrency = "merge";
}

export class DropChat extends Twin {
  messageConcurrency = "drop";
}

export class DebounceChat extends Twin {
  messageConcurrency = { strategy: "debounce", debounceMs: 300 };
}

export default {
  async fetch(request, env) {
    return (await routeAgentRequest(request, env)) ?? new Response("not an agent", { status: 404 });
  },
};
