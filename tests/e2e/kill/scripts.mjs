// The conversations that are killed. Each has a defined end: what the person does, what the model says and calls, and what has
// to stand there whatever died in between.
//
// A model's step is `{think, text, calls, fail}`: so many words of reasoning and of text, then these tools. The words of an
// answer are numbered through all its steps ("w0 w1 …"), and a model that is asked to go on does so behind the last word it is
// told: so an answer is whole exactly if it counts.

import assert from "node:assert/strict";
import { Room } from "./room.mjs";

const text = (n, more) => ({ text: n, ...more });
const call = (...calls) => calls.map((each) => (typeof each === "string" ? { name: each } : each));

/** Says one thing and waits for its answer. */
const plain = async (person) => {
  await person.say(1);
  await person.answered(1);
};

/**
 * `turns`: the steps of the answer to each message; `person`: what the person does; `end`: the roles of the conversation at its
 * end, unless each message has one answer in their order; `partial`: the answer may end early; `faults`: calls of the model that
 * fail by themselves; `frozen`: nothing of it is ever answered again.
 */
export const SCRIPTS = {
  "plain text": { turns: [[text(5)]], person: plain },
  "long text": { turns: [[text(34)]], person: plain },
  "reasoning and text": { turns: [[text(4, { think: 4 })]], person: plain },
  "provider fails before a word": { turns: [[text(3, { fail: { at: "head", status: 503 } })]], person: plain, faults: 1 },
  "provider breaks off": { turns: [[text(6, { fail: { at: 3 } })]], person: plain, faults: 1 },
  "one tool": { turns: [[text(2, { calls: call("once") }), text(3)]], person: plain },
  "keyed tool": { turns: [[text(2, { calls: call("keyed") }), text(3)]], person: plain },
  "pure tool": { turns: [[text(2, { calls: call("look") }), text(3)]], person: plain },
  "parallel tools": { turns: [[text(1, { calls: call("once", "keyed", "once", "look") }), text(3)]], person: plain },
  "four steps": {
    turns: [[text(1, { calls: call("once") }), text(1, { calls: call("keyed") }), text(1, { calls: call("once") }), text(3)]],
    person: plain,
  },
  "tool of the page": {
    turns: [[text(2, { calls: call("page") }), text(3)]],
    async person(person) {
      await person.say(1);
      await person.answersCalls(1);
      await person.answered(1);
    },
  },
  "two tools of the page, two tabs": {
    turns: [[text(1, { calls: call("page", "page") }), text(3)]],
    async person(person) {
      await person.say(1);
      await Promise.all([person.answersCalls(1, { only: 0 }), person.inAnotherTab().answersCalls(1, { only: 1 })]);
      await person.answered(1);
    },
  },
  "tool of the page beside one here": {
    turns: [[text(1, { calls: call("page", "once") }), text(3)]],
    async person(person) {
      await person.say(1);
      await person.answersCalls(1);
      await person.answered(1);
    },
  },
  "approval granted": {
    turns: [[text(2, { calls: call("pay") }), text(3)]],
    async person(person) {
      await person.say(1);
      await person.decides(1, true);
      await person.answered(1);
    },
  },
  "approval denied": {
    turns: [[text(2, { calls: call("pay") }), text(3)]],
    async person(person) {
      await person.say(1);
      await person.decides(1, false);
      await person.answered(1);
    },
    check(room) {
      assert.equal(room.hits.length, 0, "a denied call ran");
    },
  },
  "second message in the queue": {
    turns: [[text(4, { waits: 3 })], [text(3)]],
    async person(person) {
      await person.say(1);
      await person.sees(1, 2);
      await person.say(2);
      await person.answered(1);
      await person.answered(2);
    },
  },
  regenerate: {
    turns: [[text(3)]],
    async person(person) {
      await person.say(1);
      await person.answered(1);
      await person.regenerates(1);
      await person.answered(1);
    },
    requests: 2,
  },
  "turn of the application": {
    turns: [[text(4)]],
    async person(person) {
      await person.applicationAsks(1);
      await person.answered(1);
    },
  },
  submission: {
    turns: [[text(4)]],
    async person(person) {
      await person.submits(1);
      await person.answered(1);
      await person.submissionIs(1, "completed");
    },
  },
  "stop in mid-answer": {
    turns: [[text(9, { waits: 4 })]],
    partial: true,
    async person(person) {
      await person.say(1);
      await person.sees(1, 3);
      await person.stops(1);
    },
  },
  "clear in mid-answer": {
    turns: [[text(9, { waits: 4 })]],
    cleared: true,
    async person(person) {
      await person.say(1);
      await person.sees(1, 3);
      await person.clears();
    },
  },
};

/** What somebody sees of a turn that died too often (docs/recovery.md, Bounds). */
const GIVEN_UP = "The assistant was interrupted and could not recover. Please try again.";

/** A conversation whose object dies until its turn is given up. */
const givenUp = (script) => ({
  ...SCRIPTS[script],
  partial: true,
  exhausted: true,
  async person(person) {
    await person.say(1);
    await person.isTold(GIVEN_UP);
  },
});

/** Scripts that die five times. */
export const DOOMED = Object.fromEntries(["plain text", "long text", "one tool", "keyed tool", "pure tool"].map((name) => [name, givenUp(name)]));

/** What a script's conversation says at its end: `[role, text]` of each message. */
export function ending({ turns, cleared }, name) {
  if (cleared) return [];
  return turns.flatMap((steps, at) => [
    ["user", Room.question(name, at + 1)],
    ["assistant", Room.words(steps.reduce((sum, step) => sum + step.text, 0))],
  ]);
}

/** The calls that a script's model wants, one by one. */
export const callsOf = ({ turns }) => turns.flatMap((steps) => steps.flatMap((step) => step.calls ?? []));
