// A provider that falls silent in mid-sentence, as a page sees it (wire 153, 154).

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { isResponse, textOf } from "./client.mjs";
import { PACKAGES, openTab, screen } from "./hook.mjs";
import { SLOW_DELTAS, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve({ config: fileURLToPath(new URL("./worker/wrangler.toml", import.meta.url)) });

const WORDS = SLOW_DELTAS.slice(0, 5);
const WHOLE = WORDS.join("") + TEXT;
const CONTINUE = "Continue exactly where you left off, without repeating.";

for (const use of PACKAGES) {
  served.test(
    `${use}: an answer that stalls ends once, with every word once`,
    async ({ room, provider, worker }) => {
      // wire 153, 154; recovery 64
      const gate = provider.gate(room.name);
      const asked = provider.of(CONTINUE).length;
      const witness = await room.connect();
      const tab = await openTab(room, worker, { use, agent: { agent: "Impatient" } });
      const answers = (value) => value.messages.filter((entry) => entry.role === "assistant").map(textOf);
      try {
        await tab.ready();
        tab.now.sendMessage({ text: `slow ${room.name}` });
        for (const word of WORDS) {
          gate.open(1);
          await tab.until((value) => answers(value)[0]?.endsWith(word));
        }
        // The gate stays shut: from here on that request says nothing more.
        await tab.until((value) => tab.turnsEnded.length > 0 && value.status === "ready" && !value.isRecovering);
        // A second end would be there before the end of the next turn.
        const { length } = tab.seen;
        tab.now.sendMessage({ text: "echo on" });
        await tab.until((value) => value.status === "ready" && answers(value)[1] === "on" && tab.turnsEnded.length > 1);

        const [question, , next] = tab.now.messages;
        assert.deepEqual(
          tab.turnsEnded.map(({ outcome, messageIds }) => ({ outcome, messageIds })),
          [question, next].map(({ id }) => ({ outcome: "completed", messageIds: [id] })),
        );
        const conversation = [["user", `slow ${room.name}`], ["assistant", WHOLE], ["user", "echo on"], ["assistant", "on"]];
        assert.deepEqual(screen(tab.now), conversation);
        assert.deepEqual(screen({ messages: await room.history() }), conversation);
        // No word was on screen twice in between either, nor in a message of its own.
        for (const value of tab.seen.slice(0, length)) {
          const shown = answers(value);
          assert.ok(shown.length <= 1 && WHOLE.startsWith(shown.join("")), `on screen: ${JSON.stringify(screen(value))}`);
        }
        assert.deepEqual(changes(tab.seen.map((value) => Boolean(value.isRecovering))), [false, true, false]);
        assert.deepEqual(
          witness.frames.flatMap((frame) => {
            if (isResponse(frame) && frame.done) return [[frame.outcome, frame.messageIds]];
            return frame.type === "cf_agent_chat_recovering" ? [frame.recovering] : [];
          }),
          [["recovering", [question.id]], true, ["completed", [question.id]], false, ["completed", [next.id]]],
        );
        assert.deepEqual([provider.of(`slow ${room.name}`).length, provider.of(CONTINUE).length - asked], [1, 1]);
      } finally {
        await tab.close();
      }
    },
    { agent: "impatient" },
  );
}

/** The values without those that repeat the one before. */
function changes(values) {
  return values.filter((value, at) => value !== values[at - 1]);
}
