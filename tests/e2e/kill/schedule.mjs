// Who dies when. The schedule is a function of the seed and of how many actions each script has.

import { DOOMED, SCRIPTS } from "./scripts.mjs";
import { randomOf } from "./world.mjs";

/** Conversations that are killed by one and the same signal. */
const SIDE_BY_SIDE = 64;
/** A client's message, and death this soon after it. */
const SOON_MS = 50;

const names = Object.keys(SCRIPTS);
const chunks = (list, size) => Array.from({ length: Math.ceil(list.length / size) }, (_, at) => list.slice(at * size, (at + 1) * size));

/**
 * The batches: `{kind, plans, options}`. `actions`: how many each script has. `known`: what ends badly. `small`: those of `npm test`.
 * `only`: plans of this label, script, or way to die.
 */
export function schedule({ seed, actions, known, small = false, only }) {
  const random = randomOf(seed);
  const below = (n) => Math.floor(random() * n);
  const batches = [];
  const add = (kind, plans, options = {}) => {
    const chosen = plans.filter((plan) => only === undefined || plan.label === only || plan.label.startsWith(`${only}:`) || plan.death === only);
    // Those that wait for the alarm cost half a minute: they do so together.
    for (const returns of ["client", "alarm"]) {
      const these = chosen.filter((plan) => plan.returns === returns);
      for (const part of chunks(these, SIDE_BY_SIDE)) batches.push({ kind: `${kind}, ${BACK[returns]}`, plans: part, options });
    }
  };
  const viewers = ["onlooker", "ai-chat", "nobody", "onlooker", "think", "onlooker"];
  let turn = 0;
  const plan = (script, how, targets, more = {}) => {
    turn += 1;
    const returns = more.returns ?? (turn % 3 === 0 ? "alarm" : "client");
    const viewer = returns === "client" ? viewers[turn % viewers.length] : "onlooker";
    return { script, targets, label: `${script}:${how}`, viewer, ...more, returns };
  };

  // One run for each moment, and death once everything that had begun has arrived.
  const moments = names.flatMap((script) => range(2, actions[script]).map((k) => [script, k]));
  const some = (list, n) => (small ? every(list, n) : list);
  add("at each moment", some(moments, 40).map(([script, k]) => plan(script, `at ${k}`, [k])));

  // The same, with what comes next let go a moment before: death meets it in the middle.
  const edges = names.flatMap((script) => range(1, actions[script]).map((k) => [script, k]));
  add(
    "in the middle of each",
    some(edges, 30).map(([script, k]) => plan(script, `edge ${k}`, [k], small ? { returns: "client" } : {})),
    { edge: true, delay: () => below(30) },
  );

  // Death soon after something was sent.
  const first = names.map((script) => plan(script, "sent", [1], { returns: "client" }));
  if (!small) add(`within ${SOON_MS} ms of sending`, first, { edge: true, delay: () => below(SOON_MS) });

  // Two to four deaths in a row: the later ones meet recovery at work.
  const again = names.flatMap((script) =>
    range(1, small ? 0 : 3).map((n) => {
      const deaths = 2 + below(3);
      const targets = Array.from({ length: deaths }, (_, at) => (at === 0 ? 2 + below(actions[script] - 1) : 1 + below(5)));
      return plan(script, `again ${n}`, targets, { returns: "client" });
    }),
  );
  add("two to four in a row", again);

  // So often that the turn is given up: five times before a word, or behind a few.
  const doomed = Object.keys(DOOMED).flatMap((script) =>
    [2, script === "long text" ? 16 : 4].map((k) => plan(script, `five at ${k}`, [k, 2, 2, 2, 2], { returns: "client", viewer: "onlooker", doomed: true })),
  );
  if (!small) add("five in a row", doomed);

  // Whenever it happens to be.
  for (const n of range(1, small ? 0 : 4)) {
    const plans = names.map((script) => plan(script, `random ${n}`, [Infinity], { pace: 20 + below(60), returns: n === 4 ? "alarm" : "client" }));
    add(`at random (${n})`, plans, { edge: true, random: true, delay: () => 40 + below(600) });
  }

  // Other ways to go. Something of a script is under way at each of these moments.
  for (const [kind, death] of Object.entries(OTHERS)) {
    const plans = names.flatMap((script, at) =>
      range(1, 2).map((n) => {
        const returns = n === 2 && at % 2 === 0 ? "alarm" : "client";
        return plan(script, `${death} ${n}`, [2 + below(actions[script] - 1)], { returns, death });
      }),
    );
    // What is known to end badly takes one run to show it.
    const chosen = known.has(death) ? (small ? [] : plans.slice(0, 1)) : small ? every(plans.filter(({ returns }) => returns === "client"), 7) : plans;
    add(kind, chosen, { death });
  }
  const parked = names.filter((script) => PARKED.includes(script));
  const asleep = parked.map((script) => plan(script, "sleep", [AWAITED], { returns: "client", viewer: "onlooker" }));
  add("asleep", asleep, { death: "sleep" });
  return batches;
}

const OTHERS = { "ctx.abort()": "abort", "a panic": "panic", "a new deployment": "deploy" };
/** Conversations that wait for one person at a moment when nobody says anything. */
const PARKED = ["tool of the page", "tool of the page beside one here", "approval granted", "approval denied"];
/** What that person is about to do. */
const AWAITED = /^(call \d+ of the page is|the call is) /;
const BACK = { client: "somebody comes back", alarm: "nobody comes back" };
const range = (from, to) => Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => from + at);
/** About `n` of a list, evenly. */
const every = (list, n) => list.filter((_, at) => Math.floor((at * n) / list.length) !== Math.floor(((at - 1) * n) / list.length));
