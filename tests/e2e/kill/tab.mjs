// A tab of the killer's conversations with the unmodified hooks in it. It is there all along, loses its network with each death, and
// has to show in the end what is stored.

import { isDeepStrictEqual } from "node:util";
import { essence, openTab as open } from "../hook.mjs";

const LIMIT_MS = 20_000;
const FLAG_MS = 2_000;

export async function openTab(room, world, use) {
  const tab = await open({ name: room.name }, world.worker, { use, agent: { agent: "Mortal" } });
  await tab.ready();
  const isIdle = (value) => value.status === "ready" && !value.isServerStreaming && !value.isRecovering;
  return {
    /**
     * Says it; where the tab still shows it from a time when it was lost on the way, sends what it shows. Unless it is still on its way:
     * a tab keeps what it could not send, and a second request for it would be answered too (wire §5.3).
     */
    say: (text) => {
      const { messages, status } = tab.now;
      const isThere = messages.some(({ role, parts }) => role === "user" && parts.some((part) => part.text === text));
      if (isThere) return status === "submitted" ? undefined : tab.now.sendMessage();
      return tab.now.sendMessage({ text });
    },
    leaves: () => tab.link.cut({ stayDown: true }),
    returns: () => tab.link.restore(),
    /** Resolves when a message may be sent: a person waits until what runs is over. */
    ready: () => tab.until((value) => value.identified && isIdle(value), { limitMs: LIMIT_MS }),
    /** In the end it shows what is stored, and says that nothing goes on. */
    async shows(history) {
      const stored = history.map(essence);
      const fits = (value) => value.status === "ready" && !value.isServerStreaming && isDeepStrictEqual(value.messages.map(essence), stored);
      try {
        await tab.until(fits, { limitMs: LIMIT_MS, what: `what is stored: ${JSON.stringify(stored)}` });
      } catch (error) {
        const inOrder = (messages) => [...messages].sort((a, b) => (a.id < b.id ? -1 : 1));
        const same = isDeepStrictEqual(inOrder(tab.now.messages.map(essence)), inOrder(stored));
        error.message = `${use}: ${same ? "the same messages in another order: " : ""}${error.message}`;
        throw error;
      }
      await tab.until(isIdle, { limitMs: FLAG_MS }).catch(() => {
        throw new Error(`${use}: nothing recovers, and it is shown that something does`);
      });
      if (tab.now.error !== undefined) throw new Error(`${use} shows an error: ${tab.now.error.message}`);
    },
    close: () => tab.close(),
  };
}
