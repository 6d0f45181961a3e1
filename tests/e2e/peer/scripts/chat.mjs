// Plain conversations: one tab and several, answers given anew, questions edited, everything cleared.

import { textOf, user } from "../../client.mjs";

export const chat = {
  async "one message"(s) {
    const tab = await s.tab();
    await s.turn(tab, "text");
  },

  async "three messages in a row"(s) {
    const tab = await s.tab();
    for (const text of ["echo one", "echo two", "echo three"]) await s.turn(tab, text);
  },

  async "a second tab watches"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "text");
  },

  async "two tabs talk in turn"(s) {
    const [one, two] = [await s.tab(), await s.tab()];
    await s.turn(one, "echo one");
    await two.until((now) => now.messages.length === 2);
    await s.turn(two, "echo two");
  },

  async "the other stock hook"(s) {
    const tab = await s.tab({ use: "ai-chat" });
    await s.turn(tab, "echo one");
    await s.turn(tab, "stool");
  },

  async "both hooks side by side"(s) {
    const [one] = [await s.tab({ use: "ai-chat" }), await s.tab()];
    await s.turn(one, "stool");
  },

  async "the page is loaded anew"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo one");
    const fresh = await s.reload(tab);
    await s.turn(fresh, "echo two");
  },

  async "an answer without content"(s) {
    const tab = await s.tab();
    await s.turn(tab, "none");
    await s.turn(tab, "echo two");
  },

  async "text in many scripts"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo größer ⇒ 漢字 👩‍👩‍👧 \u202eabc\u202c \"quoted\" \\ \u0000 end");
  },

  async "a picture in the question"(s) {
    const tab = await s.tab();
    const url = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    await s.act(tab, () => tab.now.sendMessage({ text: "echo seen", files: [{ type: "file", mediaType: "image/png", url }] }));
  },

  async "the application asks"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo one");
    await tab.agent.call("ask", ["asked-1", "echo two"]);
    await s.ends(2);
  },

  async "the last answer given anew"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "echo one");
    await s.turn(tab, "echo two");
    await s.act(tab, () => tab.now.regenerate());
  },

  async "an earlier answer given anew"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "echo one");
    await s.turn(tab, "echo two");
    await s.act(tab, () => tab.now.regenerate({ messageId: tab.now.messages[1].id }));
  },

  async "an answer given anew twice"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo one");
    for (let n = 0; n < 2; n += 1) {
      await s.act(tab, () => tab.now.regenerate());
    }
  },

  async "the only question edited"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "echo one");
    await s.act(tab, () => tab.now.sendMessage({ text: "echo uno", messageId: tab.now.messages[0].id }));
  },

  async "the first of two questions edited"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "echo one");
    await s.turn(tab, "echo two");
    await s.act(tab, () => tab.now.sendMessage({ text: "echo uno", messageId: tab.now.messages[0].id }));
  },

  async "a request without a new question"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo one");
    await s.act(tab, () => tab.now.sendMessage());
  },

  async "cleared, and begun anew"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "echo one");
    tab.now.clearHistory();
    await s.stored((history) => history.length === 0);
    await s.turn(tab, "echo two");
  },

  async "cleared while an answer streams"(s) {
    s.gate();
    const [tab] = [await s.tab(), await s.tab()];
    tab.now.sendMessage({ text: `slow ${s.key}` });
    s.gate().open(2);
    await tab.until((now) => now.messages.length === 2 && textOf(now.messages[1]).endsWith("w1 "));
    tab.now.clearHistory();
    await s.ends(1);
    await s.turn(tab, "echo two");
  },

  async "cleared while messages wait"(s) {
    s.gate();
    const [tab, other] = [await s.tab(), await s.tab()];
    tab.now.sendMessage({ text: `slow ${s.key}` });
    s.gate().open(2);
    await s.streamed("w1");
    await other.until((now) => now.messages.length > 1);
    other.now.sendMessage({ text: "echo two" });
    // A transcript on its way to a tab that clears would bring back what the tab just forgot, on either side.
    await tab.until((now) => now.messages.length === 3);
    tab.now.clearHistory();
    await s.ends(2);
  },

  async "a transcript sent by a page"(s) {
    const tab = await s.tab({ use: "ai-chat" });
    await s.turn(tab, "echo one");
    tab.now.setMessages([user("forged"), { id: "forged-a", role: "assistant", parts: [{ type: "text", text: "forged" }] }]);
    await s.turn(await s.tab(), "echo two");
  },
};
