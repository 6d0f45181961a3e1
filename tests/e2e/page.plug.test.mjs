// The plug pulled in a real browser, on the real worker with its demo model: in mid-sentence, in a tool, in an approval.

import assert from "node:assert/strict";
import { connected, id, LIMIT_MS, messages, ready, send, servePage, shows } from "./browser.mjs";
import { openRoom } from "./client.mjs";

const served = servePage({ vars: { PLUG: "on" }, tolerate: /panicked at|RuntimeError: unreachable|the plug was pulled/ });
const pageTest = served.test;

const talk = (seconds) =>
  `${Array.from({ length: seconds }, (_, n) => `Sentence ${n + 1} of ${seconds}. `).join("")}Done, and nothing is missing.`;
/** Between two pulls where nothing on the screen says that the first has done its work. */
const REST_MS = 1_500;
/** What must never be seen, however short: nothing is wrong. */
const ALARMING = ["error", "banner", "cut", "interrupted", "stopped", "empty", "crash"];

/** Remembers what is drawn from now on, however short: which marks, and how often it was said that the answer is carried on. */
const watch = (page) => page.evaluate(() => {
  const seen = new Set();
  let said = false;
  window.interruptions = 0;
  const look = () => {
    document.querySelectorAll("[data-testid]").forEach((element) => seen.add(element.dataset.testid));
    const says = document.querySelector('[data-testid="recovering"]') !== null;
    if (says && !said) window.interruptions += 1;
    said = says;
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  window.seen = () => [...seen];
});

const interruptions = (page, n) => page.waitForFunction((wanted) => window.interruptions >= wanted, n, { timeout: LIMIT_MS });

async function pull(page, kind) {
  await page.bringToFront();
  await page.locator(id("plug")).click();
  await page.locator(id(`plug-${kind}`)).click();
}

/** The one answer once it is there: on every screen and in the store the same, in one piece, and nobody was alarmed. */
async function settled(tabs, whole, { worker, conversation }) {
  for (const page of tabs) {
    await page.waitForFunction(
      ([selector, text]) => {
        const all = document.querySelectorAll(selector);
        return all.length === 1 && [...all[0].querySelectorAll(".markdown")].map((each) => each.textContent.trim()).join("|") === text;
      },
      [`${id("message")}[data-role="assistant"]`, whole],
      { timeout: LIMIT_MS },
    ).catch(async (error) => {
      throw new Error(`the screen says ${JSON.stringify(await messages(page, "assistant").allTextContents())}`, { cause: error });
    });
    await ready(page);
    await page.waitForFunction((selector) => document.querySelector(selector) === null, [id("stop"), id("recovering")].join());
    const seen = await page.evaluate(() => window.seen());
    assert.deepEqual(seen.filter((mark) => ALARMING.includes(mark)), [], "nobody is alarmed");
    assert.ok(seen.includes("recovering"), "it is said that the answer is carried on");
    assert.equal(await messages(page).count(), 2);
  }
  const stored = await openRoom(worker, { name: conversation }).history();
  assert.equal(stored.length, 2);
  return stored[1].parts;
}

const texts = (parts) => parts.filter((part) => part.type === "text").map((part) => part.text).join("");

for (const [kind, seconds] of [["abort", 11], ["panic", 11]]) {
  pageTest(`${kind}, five times in the sentences of one answer: every tab shows it whole, once`, async ({ visit, picture, ...place }) => {
    const tabs = [await visit(), await visit()];
    await send(tabs[0], `Talk slowly for ${seconds} seconds`);
    for (const page of tabs) await watch(page);
    for (let pulled = 1; pulled <= 5; pulled += 1) {
      const page = tabs[pulled % 2];
      await shows(page, "assistant", 0, `Sentence ${2 * pulled} of`);
      await pull(page, kind);
      // A tab that comes back late finds the answer going on already; that it does is what the next sentence says.
      if (pulled === 1) {
        await interruptions(page, 1);
        await picture(page, "recovering");
      }
    }
    const parts = await settled(tabs, talk(seconds), place);
    assert.equal(texts(parts), talk(seconds));
    await picture(tabs[0], "whole");
  }, { kills: true });
}

pageTest("hang: the silence is noticed, and the answer is whole", async ({ visit, ...place }) => {
  const page = await visit();
  await send(page, "Talk slowly for 4 seconds");
  await watch(page);
  await shows(page, "assistant", 0, "Sentence 2 of");
  await pull(page, "hang");
  assert.equal(texts(await settled([page], talk(4), place)), talk(4));
});

pageTest("in a running tool, five times: it is run again, and there is one result", async ({ visit, picture, ...place }) => {
  const page = await visit();
  const card = page.locator(`${id("tool")}[data-tool-name="wait"]`);
  await send(page, "Wait for 4 seconds");
  await watch(page);
  await card.waitFor();
  for (const kind of ["abort", "panic", "abort", "panic", "abort"]) {
    await page.locator(`${id("tool")}[data-state="running"]`).first().waitFor();
    await pull(page, kind);
    // It is said until there is something new to read: here, until the tool is done.
    await interruptions(page, 1);
    await page.waitForTimeout(REST_MS);
    if (kind === "panic") await picture(page, "tool");
    await connected(page);
  }
  const parts = await settled([page], "Let me use wait for that.|wait answered: 4 s", place);
  // Twice it is run again; then the call counts as cut off, and the model makes another one.
  assert.equal(await card.count(), 2);
  assert.deepEqual(parts.flatMap((part) => part.output ?? []), [{ waited: "4 s" }]);
}, { kills: true });

pageTest("in an approval: it is still asked, and runs once when it is allowed", async ({ visit, picture, ...place }) => {
  const page = await visit();
  await send(page, "Save a note: buy milk");
  await page.locator(id("parked")).waitFor();
  await watch(page);
  for (const kind of ["abort", "panic", "abort", "panic", "abort"]) {
    await pull(page, kind);
    await page.waitForTimeout(REST_MS);
    await connected(page);
    await page.locator(id("parked")).waitFor();
    assert.equal(await page.locator(id("note")).count(), 0, "nothing ran");
  }
  await page.locator(id("approve")).click();
  await page.locator(id("note")).getByText("buy milk").waitFor();
  await shows(page, "assistant", 0, "The note is saved: buy milk");
  await ready(page);
  const seen = await page.evaluate(() => window.seen());
  assert.deepEqual(seen.filter((mark) => ALARMING.includes(mark)), []);
  const [, answer] = await openRoom(place.worker, { name: place.conversation }).history();
  assert.equal(texts(answer.parts), "I will do that.The note is saved: **buy milk**");
  assert.deepEqual(answer.parts.flatMap((part) => part.output ?? []), [{ note: "buy milk" }]);
  await picture(page, "allowed");
}, { kills: true });

pageTest("the plug is a menu for the keyboard too", async ({ visit, picture }) => {
  const page = await visit();
  await page.locator(id("plug")).focus();
  await page.keyboard.press("Enter");
  await page.locator(id("plug-menu")).waitFor();
  assert.equal(await page.locator(id("plug")).getAttribute("aria-expanded"), "true");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.dataset.testid), "plug-abort");
  await picture(page, "menu");
  await page.keyboard.press("Escape");
  await page.locator(id("plug-menu")).waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement?.dataset.testid), "plug", "the focus is back");
});
