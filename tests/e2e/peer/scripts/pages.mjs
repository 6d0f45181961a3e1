// Tools that a page runs and calls that somebody has to allow.

import { textOf } from "../../client.mjs";

// The hook declares only tools that have an `execute`, and calls it only where the deprecated automatic mode is on.
const execute = () => undefined;
const TIME = { description: "The time in the page", parameters: { type: "object", properties: {} }, execute };
const COLOUR = { description: "The colour of the page", parameters: { type: "object", properties: {} }, execute };
const ANSWERS = { page_time: { time: "noon" }, page_colour: { colour: "red" }, locate: { place: "home" } };

/** What a client without the hook declares. */
const DECLARED = [{ name: "page_time", description: "The time in the page", parameters: { type: "object" } }];

/** A page that answers the calls of its tools as soon as they are there. */
const page = (names = ["page_time", "page_colour"]) => ({
  tools: Object.fromEntries(Object.entries({ page_time: TIME, page_colour: COLOUR }).filter(([name]) => names.includes(name))),
  onToolCall: ({ toolCall: { toolCallId, toolName }, addToolOutput }) => addToolOutput({ toolCallId, output: ANSWERS[toolName] }),
});

/** A page that declares its tools and leaves the calls to the script. */
const patient = { tools: { page_time: TIME, page_colour: COLOUR } };
/** A page without tools of its own, which leaves calls of the server's to the script. */
const plain = {};

const ask = (...calls) => `do ${JSON.stringify(calls)}`;
const one = ask(["page_time", {}]);
const two = ask(["page_time", {}], ["page_colour", {}]);

const result = (call, output, extra = {}) => ({
  type: "cf_agent_tool_result",
  toolCallId: call.toolCallId,
  toolName: call.type.slice(5),
  output,
  autoContinue: true,
  ...extra,
});
const approval = (call, approved) => ({ type: "cf_agent_tool_approval", toolCallId: call.toolCallId, approved, autoContinue: true });

/** Answers the approval that the tab shows, as its button would. */
async function decide(tab, approved, at = 0) {
  const asking = (now) => now.messages.flatMap((message) => message.parts).filter((part) => part.state === "approval-requested");
  const now = await tab.until((value) => asking(value).length > 0);
  tab.now.addToolApprovalResponse({ id: asking(now)[at].approval.id, approved });
}

/** Gives the tab's own answer to an open call. */
const give = (tab, call, extra = { output: ANSWERS[call.type.slice(5)] }) =>
  tab.now.addToolOutput({ toolCallId: call.toolCallId, toolName: call.type.slice(5), ...extra });

export const pageTools = {
  async "a page tool"(s) {
    const tab = await s.tab(page());
    tab.now.sendMessage({ text: one });
    await s.ends(2);
  },

  async "a page tool, and the next message"(s) {
    const tab = await s.tab(page());
    tab.now.sendMessage({ text: one });
    await s.ends(2);
    await s.rest();
    await s.turn(tab, "echo two");
  },

  async "two page tools at once"(s) {
    const tab = await s.tab(page());
    tab.now.sendMessage({ text: two });
    await s.ends(2);
  },

  async "a page tool, watched by a second tab"(s) {
    const [tab] = [await s.tab(page()), await s.tab(plain)];
    tab.now.sendMessage({ text: one });
    await s.ends(2);
  },

  async "a tool that the server declares and the page runs"(s) {
    const tab = await s.tab({ onToolCall: page().onToolCall });
    tab.now.sendMessage({ text: ask(["locate", {}]) });
    await s.ends(2);
  },

  async "a page tool beside a server tool"(s) {
    const tab = await s.tab(page());
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
    await s.reload(tab, page());
    await s.ends(2);
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
    const [tab] = [await s.tab(page()), await s.tab(plain)];
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

export const approvals = {
  async "allowed"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await decide(tab, true);
    await s.ends(2);
  },

  async "not allowed"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await decide(tab, false);
    await s.ends(2);
  },

  async "allowed, and the next message"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await decide(tab, true);
    await s.ends(2);
    await s.rest();
    await s.turn(tab, "echo two");
  },

  async "watched by a second tab"(s) {
    const [tab] = [await s.tab(), await s.tab()];
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await decide(tab, true);
    await s.ends(2);
  },

  async "allowed in another tab"(s) {
    const [tab, other] = [await s.tab(), await s.tab()];
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await decide(other, true);
    await s.ends(2);
  },

  async "an amount that needs nobody's consent"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["spend", { amount: 50 }]));
  },

  async "an amount that needs consent"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["spend", { amount: 500 }]));
    await decide(tab, true);
    await s.ends(2);
  },

  async "allowed twice"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    const [socket, call] = [await s.socket(), await s.waiting()];
    socket.send(approval(call, true));
    await s.ends(2);
    await s.rest();
    socket.send(approval(call, true));
    await socket.settle();
  },

  async "allowed, then not"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    const [socket, call] = [await s.socket(), await s.waiting()];
    socket.send(approval(call, true));
    socket.send(approval(call, false));
    await s.ends(2);
  },

  async "not allowed, with a reason"(s) {
    await s.tab();
    const socket = await s.socket();
    const { id } = socket.say(ask(["transfer", { amount: 5 }]));
    await socket.done(id);
    socket.send({ ...approval(await s.waiting(), false), reason: "not today" });
    await s.ends(2);
  },

  async "two calls, one allowed and one not"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 1 }], ["transfer", { amount: 2 }]));
    await decide(tab, true);
    await s.waiting("transfer", /approval-responded/);
    await decide(tab, false);
    await s.ends(2);
  },

  async "allowed before a page tool of the same step answers"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, ask(["transfer", { amount: 1 }], ["page_time", {}]));
    await decide(tab, true);
    await s.waiting("transfer", /approval-responded/);
    await tab.until((now) => now.isToolContinuation);
    give(tab, await s.waiting("page_time"));
    await s.ends(2);
  },

  async "allowed after a page tool of the same step answered"(s) {
    const tab = await s.tab(patient);
    await s.turn(tab, ask(["transfer", { amount: 1 }], ["page_time", {}]));
    give(tab, await s.waiting("page_time"));
    await s.waiting("page_time", /output-available/);
    await tab.until((now) => now.isToolContinuation);
    await decide(tab, true);
    await s.ends(2);
  },

  async "a message instead of the decision"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await s.waiting();
    await s.turn(tab, "echo two");
  },

  async "the page loaded anew before the decision"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await s.waiting();
    await decide(await s.reload(tab), true);
    await s.ends(2);
  },

  async "the server dies before the decision"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await s.waiting();
    await s.restart(tab);
    await decide(tab, true);
    await s.until(() => s.calls.length > 1, "the continuation");
  },

  async "a result forged for a call that waits"(s) {
    const tab = await s.tab();
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    const [socket, call] = [await s.socket(), await s.waiting()];
    socket.send(result(call, { moved: 5_000_000 }));
    await socket.settle();
  },

  async "a page tool with the name of a guarded one"(s) {
    const tab = await s.tab({ tools: { transfer: { description: "Mine", parameters: { type: "object", properties: {} }, execute } } });
    await s.turn(tab, ask(["transfer", { amount: 5 }]));
    await s.waiting();
  },
};
