// Tools that wait for a person or a page, in a real browser with two tabs, on the real worker with its demo model.

import assert from "node:assert/strict";
import { connected, id, LIMIT_MS, messages, ready, send, servePage, shows } from "./browser.mjs";
import { openRoom } from "./client.mjs";

const served = servePage();
const pageTest = served.test;

const cards = (page, state) => page.locator(state ? `${id("tool")}[data-state="${state}"]` : id("tool"));
const card = (page, n) => cards(page).nth(n);
const inState = (page, n, state) => page.waitForFunction(
  ([selector, at, wanted]) => document.querySelectorAll(selector)[at]?.dataset.state === wanted,
  [id("tool"), n, state],
  { timeout: LIMIT_MS },
);
const parked = (page) => page.locator(id("parked")).waitFor();

async function click(page, n, what) {
  // Tabs in the background draw seldom, and a click waits for what is drawn.
  await page.bringToFront();
  await card(page, n).locator(id(what)).click();
}

async function answer(page, n, text) {
  await card(page, n).locator(id("answer")).fill(text);
  await card(page, n).locator(id("answer")).press("Enter");
}

/** What stands on the screen, as far as a second tab must show the same. */
const screen = (page) => page.evaluate(([message, tool]) => [...document.querySelectorAll(message)].map((element) => ({
  id: element.dataset.messageId,
  text: element.querySelector(".bubble, .markdown:last-of-type")?.textContent,
  tools: [...element.querySelectorAll(tool)].map((call) => `${call.dataset.callId} ${call.dataset.state}`),
})), [id("message"), id("tool")]);

/** What is on the screen only while something is under way or waits for somebody. */
const UNDER_WAY = [".spin", ...["stop", "waiting", "parked", "remote", "approve", "answer", "queued", "server-queued"].map(id)].join();

/** Holds all tabs against what is stored: same messages, same calls, nothing that waits or spins. */
async function settled(tabs, { conversation, worker }) {
  for (const page of tabs) {
    await ready(page);
    await page.waitForFunction((selector) => document.querySelector(selector) === null, UNDER_WAY, { timeout: LIMIT_MS });
  }
  const stored = await openRoom(worker, { name: conversation }).history();
  for (const page of tabs) {
    await page.waitForFunction(
      ([message, ids]) => JSON.stringify([...document.querySelectorAll(message)].map((element) => element.dataset.messageId)) === ids,
      [id("message"), JSON.stringify(stored.map((entry) => entry.id))],
      { timeout: LIMIT_MS },
    );
  }
  const screens = await Promise.all(tabs.map(screen));
  for (const other of screens.slice(1)) assert.deepEqual(other, screens[0], "both tabs show the same");
  const calls = stored.flatMap((entry) => entry.parts.filter((part) => "toolCallId" in part).map((part) => part.toolCallId));
  assert.equal(new Set(calls).size, calls.length, "no call is stored twice");
  return stored;
}

const part = (stored, n) => stored.flatMap((entry) => entry.parts.filter((each) => "toolCallId" in each))[n];

pageTest("a tool of the page is run by a page, and both tabs show what was read", async ({ visit, picture, ...place }) => {
  // wire 114, 115
  const one = await visit();
  const two = await visit({ width: 900, height: 700 });
  await send(one, "Read the page");
  for (const page of [one, two]) await shows(page, "assistant", 0, "This page is called");
  const stored = await settled([one, two], place);
  const { output, state } = part(stored, 0);
  assert.equal(state, "output-available");
  assert.equal(output.address, `${place.worker.url}/`, "without query and fragment");
  for (const page of [one, two]) {
    assert.equal(await cards(page).count(), 1);
    assert.ok((await card(page, 0).textContent()).includes(`${output.viewport.width} × ${output.viewport.height}`));
  }
  const claims = await Promise.all([one, two].map(async (page) => (await card(page, 0).textContent()).includes("Read by this page")));
  assert.deepEqual(claims, [one, two].map((page) => page.viewportSize().width === output.viewport.width), "the page that was read says so, no other");
  await picture(one, "read");
});

pageTest("two questions at once, answered in different tabs, lead to one answer", async ({ visit, picture, ...place }) => {
  // wire 120, 121, 128
  const one = await visit();
  const two = await visit();
  await send(one, "Ask me two questions");
  for (const page of [one, two]) {
    await parked(page);
    assert.equal(await cards(page, "question").count(), 2);
  }
  await answer(two, 1, "teal");
  for (const page of [one, two]) await inState(page, 1, "done");
  // One is still open: nobody has begun to answer, and both screens still wait for a person.
  for (const page of [one, two]) {
    await parked(page);
    await inState(page, 0, "question");
  }
  await picture(two, "half");
  await answer(one, 0, "Ada");
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "You said: Ada");
    await shows(page, "assistant", 0, "You said: teal");
  }
  const stored = await settled([one, two], place);
  assert.equal(stored.length, 2);
});

pageTest("of two answers to one question the first counts, and both tabs show it", async ({ visit, ...place }) => {
  // wire 124
  const one = await visit();
  const two = await visit();
  await send(one, "Ask me something");
  for (const page of [one, two]) {
    await parked(page);
    await card(page, 0).locator(id("answer")).fill(page === one ? "Ada" : "Grace");
  }
  await Promise.all([one, two].map((page) => page.evaluate((selector) => document.querySelector(selector).click(), id("answer-send"))));
  for (const page of [one, two]) await shows(page, "assistant", 0, "You said:");
  const stored = await settled([one, two], place);
  const { answer: first } = part(stored, 0).output;
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, `You said: ${first}`);
    assert.equal(await card(page, 0).locator(".answer-given").textContent(), first);
  }
});

pageTest("a question may be skipped, and the agent is told", async ({ visit, ...place }) => {
  const one = await visit();
  const two = await visit();
  await send(one, "Ask me something");
  for (const page of [one, two]) await parked(page);
  await click(two, 0, "skip");
  for (const page of [one, two]) await shows(page, "assistant", 0, "I have no answer: the person skipped the question");
  const stored = await settled([one, two], place);
  assert.equal(part(stored, 0).state, "output-error");
  await inState(one, 0, "skipped");
});

pageTest("an approval is given in the second tab; the tool runs once and both show its note", async ({ visit, picture, ...place }) => {
  // wire 107, 108, 112
  const one = await visit();
  const two = await visit();
  await send(one, "Save a note: buy milk");
  for (const page of [one, two]) {
    await parked(page);
    await inState(page, 0, "approval");
    assert.ok((await card(page, 0).textContent()).includes("buy milk"), "what would run is readable");
    assert.equal(await page.locator(id("note")).count(), 0, "nothing ran yet");
  }
  await picture(two, "asked");
  await click(two, 0, "approve");
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "The note is saved: buy milk");
    await page.locator(id("note")).getByText("buy milk").waitFor();
  }
  const stored = await settled([one, two], place);
  assert.equal(part(stored, 0).approval.approved, true);
  assert.ok((await card(one, 0).textContent()).includes("Allowed, done"));
  await picture(one, "done");
});

pageTest("a denial takes its reason along, to both tabs and to the agent", async ({ visit, picture, ...place }) => {
  // wire 109, 112
  const one = await visit();
  const two = await visit();
  await send(one, "Save two notes: buy milk and call Ada");
  for (const page of [one, two]) {
    await parked(page);
    assert.equal(await cards(page, "approval").count(), 2);
  }
  await one.bringToFront();
  // All by keyboard: Escape takes the field away and answers nothing.
  await card(one, 1).locator(id("deny")).press("Enter");
  await one.keyboard.type("never mind");
  await one.keyboard.press("Escape");
  assert.equal(await one.evaluate(() => document.activeElement?.dataset.testid), "deny", "the focus is back where it was");
  await one.keyboard.press("Enter");
  await one.keyboard.type("she is away");
  await picture(one, "reason");
  await one.keyboard.press("Enter");
  for (const page of [one, two]) {
    await inState(page, 1, "denied");
    await card(page, 1).getByText("she is away").waitFor();
    await parked(page);
  }
  await click(two, 0, "approve");
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "The note is saved: buy milk");
    await shows(page, "assistant", 0, "I did not use save_note: she is away");
  }
  const stored = await settled([one, two], place);
  assert.equal(part(stored, 1).approval.reason, "she is away");
  assert.equal(stored.length, 2);
});

pageTest("a denial without a reason is answered as well", async ({ visit, ...place }) => {
  const one = await visit();
  const two = await visit();
  await send(one, "Save a note: buy milk");
  for (const page of [one, two]) await parked(page);
  await click(two, 0, "deny");
  await card(two, 0).locator(id("reason")).press("Enter");
  for (const page of [one, two]) await shows(page, "assistant", 0, "All right, I did not use save_note.");
  await settled([one, two], place);
});

pageTest("a page's tool and an approval side by side: the one is answered at once, the other waits", async ({ visit, ...place }) => {
  const one = await visit();
  const two = await visit({ width: 900, height: 700 });
  await send(one, "Read the page and save a note: seen");
  for (const page of [one, two]) {
    await inState(page, 0, "done");
    await parked(page);
  }
  await click(one, 1, "approve");
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "This page is called");
    await shows(page, "assistant", 0, "The note is saved: seen");
  }
  await settled([one, two], place);
});

pageTest("what waits is there after a reload, and can be answered then", async ({ visit, ...place }) => {
  const page = await visit();
  await send(page, "Ask me two questions");
  await parked(page);
  await answer(page, 0, "Ada");
  await inState(page, 0, "done");
  await page.reload();
  await connected(page);
  await parked(page);
  await inState(page, 0, "done");
  await answer(page, 1, "teal");
  await shows(page, "assistant", 0, "You said: teal");
  await settled([page], place);
});

pageTest("what waits outlives the process", async ({ visit, picture, worker, ...place }) => {
  // wire 126
  const one = await visit();
  const two = await visit();
  await send(one, "Save two notes: buy milk and call Ada");
  for (const page of [one, two]) await parked(page);
  await click(one, 0, "approve");
  await inState(two, 0, "allowed");
  await worker.kill();
  for (const page of [one, two]) {
    await page.locator(`${id("connection")}:not([data-state="online"])`).first().waitFor({ state: "attached" });
    assert.ok(await card(page, 1).locator(id("approve")).isDisabled(), "nobody would hear");
  }
  await picture(one, "offline");
  await worker.restart();
  for (const page of [one, two]) {
    await connected(page);
    await parked(page);
  }
  await click(two, 1, "approve");
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "The note is saved: buy milk");
    await shows(page, "assistant", 0, "The note is saved: call Ada");
  }
  const stored = await settled([one, two], { worker, ...place });
  assert.equal(stored.length, 2);
}, { kills: true });

pageTest("a message instead of an answer goes on without it", async ({ visit, picture, ...place }) => {
  const one = await visit();
  const two = await visit();
  await send(one, "Ask me two questions");
  for (const page of [one, two]) await parked(page);
  await answer(one, 0, "Ada");
  for (const page of [one, two]) await inState(page, 0, "done");
  await send(one, "Calculate 6 * 7");
  for (const page of [one, two]) {
    await shows(page, "assistant", 1, "6 * 7 = 42");
    await inState(page, 1, "overtaken");
  }
  const stored = await settled([one, two], place);
  assert.equal(stored.length, 4);
  await picture(one, "overtaken");
});

pageTest("while something waits, the question may be put again or taken back altogether", async ({ visit, ...place }) => {
  const one = await visit();
  const two = await visit();
  await send(one, "Ask me two questions");
  for (const page of [one, two]) await parked(page);
  await answer(one, 0, "Ada");
  for (const page of [one, two]) await inState(page, 0, "done");
  const before = await messages(one, "assistant").first().getAttribute("data-message-id");
  await one.bringToFront();
  await messages(one, "assistant").first().locator(id("regenerate")).click();
  for (const page of [one, two]) {
    await page.waitForFunction(
      ([selector, old]) => [...document.querySelectorAll(selector)].every((element) => element.dataset.messageId !== old),
      [`${id("message")}[data-role="assistant"]`, before],
      { timeout: LIMIT_MS },
    );
    await parked(page);
    assert.equal(await cards(page, "question").count(), 2, "both are asked anew");
  }
  await one.locator(id("clear")).click();
  await one.locator(id("confirm")).click();
  for (const page of [one, two]) {
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 0, id("message"));
    await page.locator(id("welcome")).waitFor();
  }
  await settled([one, two], place);
});

pageTest("a message that waited does not overtake a question that came meanwhile", async ({ visit, ...place }) => {
  const page = await visit();
  await send(page, "Ask me something");
  await send(page, "Calculate 6 * 7");
  await parked(page);
  await page.locator(`${id("queued")}[data-reason="parked"]`).waitFor();
  await answer(page, 0, "Ada");
  await shows(page, "assistant", 0, "You said: Ada");
  await shows(page, "assistant", 1, "6 * 7 = 42");
  const stored = await settled([page], place);
  assert.equal(stored.length, 4);
});

pageTest("a second message waits its turn, wherever it comes from", async ({ visit, picture, conversation, worker }) => {
  // wire 138
  const one = await visit();
  const two = await visit();
  await send(one, "Talk slowly for 4 seconds");
  await shows(two, "assistant", 0, "Sentence 1");
  // From a second tab, which knows that an answer is running and keeps the message.
  await send(two, "Calculate 6 * 7");
  await two.locator(`${id("queued")}[data-reason="queued"]`).waitFor();
  // From a client that does not know: the server keeps it, and every tab shows it as waiting.
  const room = openRoom(worker, { name: conversation });
  const socket = await room.connect();
  const { id: request } = socket.say("Calculate 2 + 3", { history: (await room.history()).filter((entry) => entry.role === "user") });
  for (const page of [one, two]) {
    const queued = page.locator(`${id("message")}[data-queued="true"]`);
    await queued.waitFor();
    assert.ok((await queued.textContent()).includes("2 + 3"));
  }
  await picture(one, "queued");
  await socket.done(request);
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, "Sentence 4 of 4");
    await shows(page, "assistant", 1, "2 + 3 = 5");
    await shows(page, "assistant", 2, "6 * 7 = 42");
  }
  const stored = await settled([one, two], { conversation, worker });
  assert.equal(stored.length, 6);
  await room.close();
});
