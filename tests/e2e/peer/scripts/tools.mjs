// Tools that run on the server, and what becomes of calls that go wrong.

export const tools = {
  async "a server tool"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, "stool");
  },

  async "the message after a tool"(s) {
    const tab = await s.tab();
    await s.turn(tab, "stool");
    await s.turn(tab, "echo two");
  },

  async "two server tools at once"(s) {
    const tab = await s.tab();
    await s.turn(tab, "stool2");
  },

  async "a server tool that fails"(s) {
    const tab = await s.tab();
    await s.turn(tab, "badtool");
  },

  async "a tool nobody declared"(s) {
    const tab = await s.tab();
    await s.turn(tab, "notool");
  },

  async "tool input that misses the schema"(s) {
    const tab = await s.tab();
    await s.turn(tab, "badinput");
  },

  async "a model that never stops calling"(s) {
    const tab = await s.tab();
    await s.turn(tab, "loop");
    await s.turn(tab, "echo two");
  },

  async "a call without an id"(s) {
    const tab = await s.tab();
    await s.turn(tab, "noid");
  },

  async "call ids that repeat"(s) {
    const tab = await s.tab();
    await s.turn(tab, 'do [["calculate",{"expression":"1 + 1"},"call_0"]]');
    await s.turn(tab, 'do [["calculate",{"expression":"2 + 2"},"call_0"]]');
  },

  async "a call cut by the token limit"(s) {
    const tab = await s.tab();
    await s.turn(tab, "cutcall");
    await s.turn(tab, "echo two");
  },

  async "stopped while a tool's input streams"(s) {
    s.gate();
    const [tab] = [await s.tab(), await s.tab()];
    tab.now.sendMessage({ text: `inputs ${s.key}` });
    s.gate().open(2);
    // On screen, because the next message carries what the tab knows, and the original believes it.
    await tab.until((now) => now.messages.at(-1)?.parts.some((part) => part.state === "input-streaming"));
    tab.now.stop();
    await s.ends(1);
    await s.turn(tab, "echo two");
  },

  async "a tool, then an error of the provider"(s) {
    const tab = await s.tab();
    await s.turn(tab, "toolfail");
    await s.turn(tab, "echo two");
  },
};
