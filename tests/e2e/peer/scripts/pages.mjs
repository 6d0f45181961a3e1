// Tools that a page runs.

import { textOf } from "../../client.mjs";
import { ANSWERS, ask, DECLARED, give, one, page, patient, plain, result, two } from "./people.mjs";

export const pageTools = {
  async "a page tool"(s) {
    const tab = await s.tab(page);
    tab.now.sendMessage({ text: one });
    await s.ends(2);
  },

  async "a page tool, and the next message"(s) {
    const tab = await s.tab(page);
    tab.now.sendMessage({ text: one });
    await s.ends(2);
    await s.rest();
    await s.turn(tab, "echo two");
  },

  async "two page tools at once"(s) {
    const tab = await s.tab(page);
    tab.now.sendMessage({ text: two });
    await s.ends(2);
  },

  async "a page tool, watched by a second tab"(s) {
    const [tab] = [await s.tab(page), await s.tab(plain)];
    tab.now.sendMessage({ text: one });
    await s.ends(2);
  },

  async "a tool that the server declares and the page runs"(s) {
    const tab = await s.tab({ onToolCall: page.onToolCall });
    tab.now.sendMessage({ text: ask(["locate", {}]) });
    await s.ends(2);
  },

  async "a page tool beside a server tool"(s) {
    const tab = await s.tab(page);
    tab.now.sendMessage({ text: ask(["calculate", { expression: "1 + 1" }], ["page_time", {}]) });
    await s.ends(2);
  },

  async "a page tool that fails"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    give(tab, await s.waiting(), { state: "output-error", errorText: "no clock" });
    await s.waiting("", /output-error/);
  },

  async "two page tools, one of which fails"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, two);
    give(tab, await s.waiting("page_time"));
    await s.waiting("page_time", /output-available/);
    give(tab, await s.waiting("page_colour"), { state: "output-error", errorText: "no colour" });
    await s.waiting("page_colour", /output-error/);
  },

  async "the answers to two calls come apart"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, two);
    give(tab, await s.waiting("page_colour"));
    await s.waiting("page_colour", /output-available/);
    give(tab, await s.waiting("page_time"));
    await s.ends(2);
  },

  async "one of two answers is missing"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, two);
    const socket = await s.socket();
    socket.send(result(await s.waiting("page_time"), ANSWERS.page_time));
    await s.waiting("page_time", /output-available/);
  },

  async "the same result twice"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    const [socket, call] = [await s.socket(), await s.waiting()];
    socket.send(result(call, { time: "noon" }));
    await s.ends(2);
    await s.rest();
    socket.send(result(call, { time: "noon" }));
    await socket.settle();
  },

  async "a second, different result"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    const [socket, call] = [await s.socket(), await s.waiting()];
    socket.send(result(call, { time: "noon" }));
    socket.send(result(call, { time: "midnight" }));
    await s.ends(2);
  },

  async "a result for a call there never was"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, two);
    const socket = await s.socket();
    socket.send(result({ type: "tool-page_time", toolCallId: "call_nobody" }, { time: "noon" }));
    await socket.settle();
  },

  async "a result of another tab"(s) {
    const [tab, other] = [await s.tab(patient), await s.tab(patient)];
    await s.turn(tab, one);
    const call = await s.waiting();
    await other.until((now) => now.messages.length === 2);
    give(other, call);
    await s.ends(2);
  },

  async "a message instead of the result"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    await s.waiting();
    await s.turn(tab, "echo two");
  },

  async "a result after the next message"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    const [socket, call] = [await s.socket(), await s.waiting()];
    await s.turn(tab, "echo two");
    socket.send(result(call, { time: "late" }));
    await socket.settle();
  },

  async "the page loaded anew before its result"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    await s.waiting();
    await s.reload(tab, page);
    await s.ends(2);
    // Whether the tab of the original is told of the end as well depends on when its page is there.
    return { without: /^turns:/ };
  },

  async "the server dies before the result"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, one);
    const call = await s.waiting();
    await s.restart(tab);
    give(tab, call);
    await s.until(() => s.calls.length > 1, "the continuation");
  },

  async "the server dies before the result of a tool it declared"(s) {
    const tab = await s.tab(plain);
    await s.turn(tab, ask(["locate", {}]));
    const call = await s.waiting();
    await s.restart(tab);
    give(tab, call);
    await s.until(() => s.calls.length > 1, "the continuation");
  },

  async "stopped in the answer after a page's result"(s) {
    const [tab] = [await s.tab(page), await s.tab(plain)];
    s.gate();
    tab.now.sendMessage({ text: `doslow ${s.key}` });
    s.gate().open(2);
    await tab.until((now) => textOf(now.messages.at(-1) ?? { parts: [] }).endsWith("w1 "));
    tab.now.stop();
    await s.ends(2);
  },

  async "a result and a message at once"(s) {
    await s.tab(patient);
    const socket = await s.socket();
    const first = socket.say(one, { clientTools: DECLARED });
    await socket.done(first.id);
    const history = await s.room.history();
    socket.send(result(await s.waiting(), { time: "noon" }));
    socket.say("echo two", { history });
    await s.ends(2);
  },

  async "the server dies between two results"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, two);
    const [time, colour] = [await s.waiting("page_time"), await s.waiting("page_colour")];
    (await s.socket()).send(result(time, ANSWERS.page_time));
    await s.waiting("page_time", /output-available/);
    await s.restart(tab);
    (await s.socket()).send(result(colour, ANSWERS.page_colour, { autoContinue: false }));
    await s.waiting("page_colour", /output-available/);
  },

  async "page tools with names no provider takes"(s) {
    const tab = await s.tab();
    const socket = await s.socket();
    socket.say("tools", { clientTools: [{ name: "bad name!", parameters: { type: "object" } }, ...DECLARED] });
    await s.ends(1);
    await tab.until((now) => now.messages.length > 0);
  },

  async "the page's tools at the next request, which names none"(s) {
    await s.tab();
    const socket = await s.socket();
    socket.say("tools one", { clientTools: DECLARED });
    await s.ends(1);
    for (const [n, body] of [{}, { clientTools: [] }].entries()) {
      socket.say(`tools ${n}`, { history: await s.room.history(), ...body });
      await s.ends(n + 2);
    }
  },
};
