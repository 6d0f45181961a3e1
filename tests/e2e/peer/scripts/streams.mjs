// Lost networks, pages that come in mid-answer, messages that overlap, stops, deaths of the server.

import { textOf } from "../../client.mjs";

const streaming = (now) => now.status === "streaming" || now.isServerStreaming;

/** How many ends the tab is told depends on who is back first, the tab or the recovery of the original. */
const CHANCE = { without: /^turns:/ };

/** Begins a slow answer in `tab` and waits until so many words of it are on its screen, each of which came alone. */
async function begin(s, tab, words = 2) {
  s.gate();
  tab.now.sendMessage({ text: `slow ${s.key}` });
  for (let at = 0; at < words; at += 1) {
    s.gate().open(1);
    await s.streamed(`w${at} `);
  }
  await tab.until((now) => now.status === "streaming" && textOf(now.messages.at(-1)).endsWith(`w${words - 1} `));
}

async function finish(s) {
  s.gate().open();
  await s.ends(1);
}

export const resume = {
  async "a tab opened in mid-answer"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    const late = await s.tab({ ready: false });
    await late.until(streaming);
    await finish(s);
  },

  async "a tab opened before the first word"(s) {
    s.gate();
    const tab = await s.tab();
    tab.now.sendMessage({ text: `late ${s.key}` });
    await s.modelCall(1);
    const late = await s.tab({ ready: false });
    await late.until((now) => now.identified === true);
    await finish(s);
  },

  async "the page loaded anew in mid-answer"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    const fresh = await s.reload(tab, { ready: false });
    await fresh.until(streaming);
    await finish(s);
  },

  async "the late tab stops the answer"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    const late = await s.tab({ ready: false });
    // Not in the middle of the replay: what a stopped tab shows would depend on how far that had come.
    await late.until((now) => now.status === "streaming" && textOf(now.messages.at(-1)).endsWith("w1 "));
    late.now.stop();
    await s.ends(1);
  },

  async "the network lost in mid-answer"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    tab.link.cut();
    await tab.until((now) => now.status === "error");
    s.gate().open(2);
    await tab.until((now) => now.status === "streaming");
    await finish(s);
  },

  async "the answer ends while the network is away"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    tab.link.cut({ stayDown: true });
    await tab.until((now) => now.status === "error");
    await finish(s);
    tab.link.restore();
    await tab.until((now) => now.status === "ready");
  },

  async "the network lost while a tool's input streams"(s) {
    s.gate();
    const tab = await s.tab();
    tab.now.sendMessage({ text: `inputs ${s.key}` });
    s.gate().open(2);
    await tab.until((now) => now.messages.at(-1)?.parts.some((part) => part.state === "input-streaming"));
    tab.link.cut();
    await tab.until((now) => now.status === "error");
    await tab.until((now) => now.status === "streaming");
    await finish(s);
  },

  async "a message sent without a network"(s) {
    const tab = await s.tab();
    await s.turn(tab, "echo one");
    await s.lost(tab, () => tab.link.cut({ stayDown: true }));
    tab.now.sendMessage({ text: "echo two" });
    await tab.until((now) => now.messages.length === 3);
    tab.link.restore();
    await s.ends(2);
  },

  async "a tab that does not resume"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    const late = await s.tab({ resume: false, ready: false });
    await late.until((now) => now.identified === true);
    await finish(s);
  },

  async "the server dies in mid-answer"(s) {
    const tab = await s.tab();
    // More than either side keeps in memory alone.
    await begin(s, tab, 25);
    await s.restart(tab);
    s.gate().open();
    await s.rest();
    await s.turn(tab, "echo two");
    return CHANCE;
  },

  async "the server dies at rest"(s) {
    const tab = await s.tab();
    await s.turn(tab, "stool");
    await s.restart(tab);
    await s.turn(tab, "echo two");
  },

  async "the server dies before the first word"(s) {
    s.gate();
    const tab = await s.tab();
    tab.now.sendMessage({ text: `late ${s.key}` });
    await s.modelCall(1);
    await s.restart(tab);
    s.gate().open();
    await s.rest();
    await s.turn(tab, "echo two");
    return CHANCE;
  },
};

export const concurrency = {
  async "a message behind a running answer"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    tab.now.sendMessage({ text: "echo two" });
    await s.asked(2);
    s.gate().open();
    await s.ends(2);
  },

  async "a message of another tab behind a running answer"(s) {
    const [tab, other] = [await s.tab(), await s.tab()];
    await begin(s, tab);
    await other.until((now) => now.messages.length > 1);
    other.now.sendMessage({ text: "echo two" });
    await s.asked(2);
    s.gate().open();
    await s.ends(2);
  },

  async "a message before the first word of the running answer"(s) {
    s.gate();
    const tab = await s.tab();
    tab.now.sendMessage({ text: `late ${s.key}` });
    await s.modelCall(1);
    // Of a client that does not echo the answer that is about to come, as a tab does by chance.
    (await s.socket()).say("echo two", { history: await s.asked(1).then((history) => history.slice(0, 1)) });
    await s.asked(2);
    s.gate().open();
    await s.ends(2);
  },

  async "stopped in mid-answer"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await begin(s, tab);
    tab.now.stop();
    await s.ends(1);
  },

  async "stopped, then asked again"(s) {
    const tab = await s.tab();
    await begin(s, tab);
    tab.now.stop();
    await s.ends(1);
    await tab.until((now) => now.status === "ready");
    await s.turn(tab, "echo two");
  },

  async "stopped before the first word"(s) {
    s.gate();
    const [tab] = [await s.tab(), await s.tab()];
    tab.now.sendMessage({ text: `late ${s.key}` });
    await s.modelCall(1);
    tab.now.stop();
    await s.ends(1);
    await s.turn(tab, "echo two");
  },

  async "a waiting message stopped"(s) {
    const [tab, other] = [await s.tab(), await s.tab()];
    await begin(s, tab);
    await other.until((now) => now.messages.length > 1);
    other.now.sendMessage({ text: "echo two" });
    await s.asked(2);
    other.now.stop();
    s.gate().open();
    await s.ends(2);
  },

  async "latest: three messages overlap"(s) {
    await overlap(s);
  },

  async "merge: three messages overlap"(s) {
    await overlap(s);
  },

  async "drop: a second message is refused"(s) {
    const [tab, other] = [await s.tab(), await s.tab()];
    await begin(s, tab);
    await other.until((now) => now.messages.length > 1);
    other.now.sendMessage({ text: "echo two" });
    await s.until(() => other.turnsEnded.some((turn) => turn.outcome === "skipped"), "the refusal");
    await finish(s);
  },

  async "debounce: three messages overlap"(s) {
    await overlap(s);
  },
};

/** A slow answer, and two messages of another tab behind it. */
async function overlap(s) {
  const [tab, other, third] = [await s.tab(), await s.tab(), await s.tab()];
  await begin(s, tab);
  for (const [at, sender] of [other, third].entries()) {
    await sender.until((now) => now.messages.length > 1);
    sender.now.sendMessage({ text: `echo ${at + 2}` });
    await s.asked(at + 2);
  }
  s.gate().open();
  await s.until(() => s.frames.some((frame) => frame.done && !frame.replay), "the first end");
  await s.until(() => other.turnsEnded.length + third.turnsEnded.length >= 4, "the ends in the tabs");
}

/** Classes by the names of scripts. */
export const AGENTS = { latest: "LatestChat", merge: "MergeChat", drop: "DropChat", debounce: "DebounceChat" };
