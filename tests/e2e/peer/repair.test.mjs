// The repair of transcripts against the original's own: both repair the same 20,000 drawn ones and the examples of the specification.
// Ours wrote the hashes of its answers into golden/recovery/repair.txt (`cargo test --test differential`); the original's functions are
// taken out of the installed packages here. Where the two are meant to differ, DIFFERENCES says how and why, and nowhere else.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { differences, drawing, functions, golden, hash, hashes, method, oursOf } from "./original.mjs";

const BLOCK = 1_000;
const PAGE = new Set(["page"]);
const { fields, examples } = JSON.parse(golden("parts.json"));

let peer;
before(() => {
  peer = {
    ...functions("agents/chat", [
      "repairInterruptedToolParts",
      "toolPartHasSettledResult",
      "normalizeToolInput",
      "partAwaitsClientInteraction",
    ]),
    repairPart: method("@cloudflare/think", "repairInterruptedToolPart"),
  };
  assert.equal(`${method("@cloudflare/ai-chat", "repairInterruptedToolPart")}`, `${peer.repairPart}`);
});

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTool = ({ type, toolCallId }) =>
  (type.startsWith("tool-") || type === "dynamic-tool") && typeof toolCallId === "string";
const isPreliminary = (part) => part.preliminary === true && !["output-error", "output-denied"].includes(part.state);
const isOpen = (part) => isPreliminary(part) || !peer.toolPartHasSettledResult(part);
const depth = (value) => (value && typeof value === "object" ? 1 + Math.max(0, ...Object.values(value).map(depth)) : 0);
/** How deep an input may be (`limits::VALUE_DEPTH`). */
const DEEPEST = 96;

/**
 * Rules that turn what the original does with a part into what ours does, in the order in which they build on each other. `when` says
 * of which parts; `change` gives the original other options, or says what is done with its answer.
 */
const DIFFERENCES = {
  "wire 71": {
    why: "Parts of user and system messages are kept as they came; no provider is sent a call out of them (providers, table of UI parts).",
    when: ({ message }) => message.role !== "assistant",
    change: (options) => ({ ...options, after: (_, { part }) => ({ part, repaired: 0, inputs: 0, ids: [] }) }),
  },
  "recovery §3.2, 1": {
    why: "Any string is a call id. For the original a call whose id is empty is none, and it stays open for ever.",
    when: ({ part, message }) => message.role === "assistant" && isTool(part) && part.toolCallId === "",
    change: (options) => ({ ...options, named: true }),
  },
  "recovery §3.2, 9": {
    why: "A text that was cut off ends with the message it is in. The original leaves that to whoever stores the message.",
    when: ({ part, message, last }) =>
      message.role === "assistant" &&
      ["text", "reasoning"].includes(part.type) &&
      part.state === "streaming" &&
      (last || message.parts.some((part) => isTool(part) && (isOpen(part) || !isObject(part.input)))),
    change: (options) => ({ ...options, after: (answer) => ({ ...answer, part: { ...answer.part, state: "done" } }) }),
  },
  "wire §3.2, tools §6.2": {
    why: "A preliminary output is no answer, only the last one is stored and sent. The original takes the call for settled.",
    when: ({ part, message }) => message.role === "assistant" && isTool(part) && isPreliminary(part),
    change: (options) => ({ ...options, isSettled: () => false }),
  },
  "wire §3.3": {
    why: "What closes a call overwrites what was preliminary about it, with the text of its input. The original leaves both beside the error.",
    when: ({ part, message }) =>
      message.role === "assistant" && isTool(part) && ["output", "preliminary", "rawInput"].some((key) => key in part),
    change: (options) => ({
      ...options,
      repairPart: (part) => {
        const { output, preliminary, rawInput, ...rest } = options.repairPart(part);
        return rest;
      },
    }),
  },
  "recovery D4": {
    why: "An absent input is what `rawInput` holds, as far as it can be read (so does the provider table). In the original it is `{}`.",
    when: ({ part, message }) => message.role === "assistant" && isTool(part) && "rawInput" in part && !("input" in part),
    change: (options, { part }) => ({
      ...options,
      normalizeInput: () => ({ ...options.normalizeInput(part.rawInput), changed: true }),
    }),
  },
  "decision 41": {
    why: "An input that is nested too deep for the message it is stored in is none.",
    when: ({ message }) => message.role === "assistant",
    change: (options) => ({
      ...options,
      normalizeInput: (input) => {
        const { changed, input: read } = options.normalizeInput(input);
        return { changed, input: changed && depth(read) > DEEPEST ? {} : read };
      },
    }),
  },
  "decision 6, tools §9.7": {
    why:
      "An answer goes on in the last message, and a new turn settles the calls of older ones: nobody runs or answers them. " +
      "The original keeps them while any continuation is under way.",
    when: ({ part, message, last }) => message.role === "assistant" && isTool(part) && !last,
    change: (options) => ({ ...options, shouldRepair: () => true, repairApprovalResponded: true }),
  },
  "recovery §3.4": {
    why: "Parts of a message with one call id are one call: as long as it goes on, all of them stay.",
    when: ({ part, message, last, going }) => message.role === "assistant" && last && isTool(part) && going.has(part.toolCallId),
    change: (options) => ({ ...options, shouldRepair: () => false }),
  },
};
const met = differences(DIFFERENCES);

function transcript(draw) {
  const count = draw(1, 2, 3, 4);
  const continues = draw(true, false);
  const waits = draw(true, false);
  const messages = Array.from({ length: count }, (_, at) => {
    const role = draw("assistant", "assistant", "assistant", "assistant", "user", "system");
    const parts = Array.from({ length: draw(0, 1, 2, 3, 4, 5) }, () => {
      const drawn = Object.entries(fields).map(([name, values]) => [name, draw(...values)]);
      return Object.fromEntries(drawn.flatMap(([name, [...value]]) => value.map((value) => [name, value])));
    });
    return { id: `m${at}`, role, parts };
  });
  return { messages, continues, waits };
}

const usual = ({ continues, waits }) => ({
  repairPart: peer.repairPart,
  isSettled: peer.toolPartHasSettledResult,
  normalizeInput: peer.normalizeToolInput,
  // `ai-chat` spares what a page still answers, Think does not (recovery §3.2, 4).
  shouldRepair: (part) => !(waits && peer.partAwaitsClientInteraction(part, PAGE)),
  repairApprovalResponded: !continues,
});

/** What the original does with one part of a message. */
function ask(question, options) {
  const { part, last } = question;
  const given = options.named ? { ...part, toolCallId: "-" } : part;
  const messages = [{ id: "m", role: "assistant", parts: [given] }, ...(last ? [] : [{ id: "n", role: "user", parts: [] }])];
  const found = peer.repairInterruptedToolParts(messages, options);
  const [repaired] = found.messages[0].parts;
  const answer = {
    part: options.named ? { ...repaired, toolCallId: part.toolCallId } : repaired,
    repaired: found.removedToolCalls,
    inputs: found.normalizedInputs,
    ids: found.toolCallIds.map((id) => (options.named ? part.toolCallId : id)),
  };
  return options.after ? options.after(answer, question) : answer;
}

function line(messages, answers) {
  const sum = (key) => answers.flat().reduce((sum, answer) => sum + answer[key], 0);
  const whole = messages.map((message, at) => ({ ...message, parts: answers[at].map(({ part }) => part) }));
  const ids = answers.flat().flatMap(({ ids }) => ids);
  return `${JSON.stringify(whole)} repaired:${sum("repaired")} inputs:${sum("inputs")} ids:${ids.join()}`;
}

/** What the original says to a transcript, and with the differences that are meant. */
function judge({ messages, ...host }) {
  const options = usual(host);
  const runs = (part) =>
    isOpen(part) && (part.state === "approval-responded" || (host.waits && peer.partAwaitsClientInteraction(part, PAGE)));
  const plain = [];
  const meant = messages.map((message, at) => {
    const last = at === messages.length - 1;
    const going = new Set(message.parts.filter((part) => isTool(part) && runs(part)).map(({ toolCallId }) => toolCallId));
    const answers = message.parts.map((part) => {
      const question = { part, message, last, going };
      let changed = options;
      let answer = ask(question, options);
      const first = answer;
      for (const [name, { when, change }] of Object.entries(DIFFERENCES)) {
        if (!when(question)) continue;
        changed = change(changed, question);
        const other = ask(question, changed);
        if (JSON.stringify(other) !== JSON.stringify(answer)) met.happened(name);
        answer = other;
        if (name === "wire 71") break;
      }
      return [first, answer];
    });
    plain.push(answers.map(([first]) => first));
    return answers.map(([, answer]) => answer);
  });
  const found = peer.repairInterruptedToolParts(messages, options);
  const whole = `${JSON.stringify(found.messages)} repaired:${found.removedToolCalls} inputs:${found.normalizedInputs} ids:${found.toolCallIds.join()}`;
  assert.equal(line(messages, plain), whole, "the original repairs a message part by part");
  return { answer: line(messages, meant), same: line(messages, meant) === whole };
}

test("transcripts are repaired as the original repairs them", () => {
  const draw = drawing();
  const known = hashes("repair.txt");
  const blocks = Object.keys(known).length;
  assert.ok(blocks >= 10, `${blocks} blocks`);
  let same = 0;
  for (let block = 0; block < blocks; block += 1) {
    const inputs = Array.from({ length: BLOCK }, () => transcript(draw));
    const judged = inputs.map(judge);
    same += judged.filter(({ same }) => same).length;
    const answers = judged.map(({ answer }) => answer);
    if (hash(answers) === known[block]) continue;
    const own = oursOf("the_repairs", block);
    const at = answers.findIndex((answer, index) => answer !== own[index]);
    assert.notEqual(at, -1, `block ${block} agrees, and its hash is an old one: BLESS=1 cargo test --test differential`);
    assert.fail(`transcript ${block * BLOCK + at}: ${JSON.stringify(inputs[at])}\n    ours: ${own[at]}\noriginal: ${answers[at]}`);
  }
  console.log(`${blocks * BLOCK} transcripts, ${same} without a difference; parts: ${JSON.stringify(met.counts)}`);
  met.allHappened();
  assert.ok(same > 1_000, "too few transcripts are compared as they are");
});

// recovery 126: `tests/differential.rs` has ours repair the same.
test("the examples of the specification are those of the original", () => {
  for (const { name, before, after, hook, last, removed, normalised, ids } of examples) {
    const message = { id: "a", role: "assistant", parts: [JSON.parse(before)] };
    const options = { repairPart: hook ? () => hook : peer.repairPart, repairApprovalResponded: true };
    const messages = [message, ...(last ? [] : [{ id: "u", role: "user", parts: [] }])];
    const found = peer.repairInterruptedToolParts(messages, options);
    assert.equal(JSON.stringify(found.messages[0].parts[0]), after, name);
    assert.deepEqual([found.removedToolCalls, found.normalizedInputs, found.toolCallIds], [removed, normalised, ids], name);
  }
});
