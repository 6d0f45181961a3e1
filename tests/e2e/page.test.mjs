// The page in a real browser, on the real worker, with the scripted provider behind it (issue A "Done when").

import assert from "node:assert/strict";
import { LIMIT_MS, connected, id, messages, ready, send, servePage, shows } from "./browser.mjs";
import { SLOW_TEXT, TEXT } from "./scripts.mjs";

const served = servePage({ scripted: true });
const pageTest = served.test;

pageTest("the page greets a newcomer with something to try", async ({ visit, picture }) => {
  const page = await visit();
  assert.equal(await messages(page).count(), 0);
  assert.ok(await page.locator(id("composer")).isEditable());
  const suggestions = page.locator(id("suggestion"));
  assert.equal(await suggestions.count(), 3, "three things to try");
  assert.equal(await page.locator(id("plug")).count(), 0, "no plug where it may not be pulled");
  await picture(page, "welcome");
  await suggestions.first().click();
  await messages(page, "user").first().waitFor();
  await messages(page, "assistant").first().waitFor();
  await ready(page);
});

pageTest("a message streams, and a second tab shows the same", async ({ visit, conversation, picture, provider }) => {
  // wire 74
  const gate = provider.gate(conversation);
  const one = await visit();
  const two = await visit();
  await send(one, `slow ${conversation}`);
  gate.open(10);
  await shows(one, "assistant", 0, "w9");
  await shows(two, "user", 0, `slow ${conversation}`);
  await shows(two, "assistant", 0, "w9");
  await picture(one, "streaming");
  gate.open();
  for (const page of [one, two]) {
    await shows(page, "assistant", 0, SLOW_TEXT.trim());
    await ready(page);
    assert.equal(await messages(page).count(), 2);
  }
});

pageTest("a reload in mid-answer goes on where it was", async ({ visit, conversation, provider }) => {
  // wire 97
  const gate = provider.gate(conversation);
  const page = await visit();
  await send(page, `slow ${conversation}`);
  gate.open(12);
  await shows(page, "assistant", 0, "w11");
  await page.reload();
  await connected(page);
  await shows(page, "assistant", 0, "w0 w1 w2");
  await shows(page, "assistant", 0, "w11");
  gate.open();
  await shows(page, "assistant", 0, SLOW_TEXT.trim());
  await ready(page);
  assert.equal(await messages(page).count(), 2);
});

pageTest("stop keeps what was said and ends the model call", async ({ visit, conversation, provider }) => {
  // wire 142, 146
  const gate = provider.gate(conversation);
  const page = await visit();
  await send(page, `slow ${conversation}`);
  gate.open(8);
  await shows(page, "assistant", 0, "w7");
  const call = await provider.call(`slow ${conversation}`);
  await page.locator(id("stop")).click();
  await call.closed;
  assert.ok(call.aborted);
  await ready(page);
  await page.reload();
  await connected(page);
  await shows(page, "assistant", 0, "w7");
  assert.ok(!(await messages(page, "assistant").first().textContent()).includes("w9"));
});

pageTest("regenerate replaces the answer", async ({ visit }) => {
  // wire 130
  const page = await visit();
  await send(page, "text");
  await shows(page, "assistant", 0, TEXT);
  await ready(page);
  const before = await messages(page, "assistant").first().getAttribute("data-message-id");
  await messages(page, "assistant").first().hover();
  await messages(page, "assistant").first().locator(id("regenerate")).click();
  await page.waitForFunction(
    ([selector, old]) => {
      const all = document.querySelectorAll(selector);
      return all.length === 1 && all[0].dataset.messageId !== old;
    },
    [`${id("message")}[data-role="assistant"]`, before],
    { timeout: LIMIT_MS },
  );
  await shows(page, "assistant", 0, TEXT);
  await ready(page);
  assert.equal(await messages(page).count(), 2);
});

pageTest("an edited question is answered anew and what followed goes", async ({ visit }) => {
  // wire 132
  const page = await visit();
  for (const [n, word] of ["one", "two"].entries()) {
    await send(page, `echo ${word}`);
    await shows(page, "assistant", n, word);
    await ready(page);
  }
  const first = messages(page, "user").first();
  await first.hover();
  await first.locator(id("edit")).click();
  await page.locator(id("edit-input")).fill("echo uno");
  await page.locator(id("edit-save")).click();
  await shows(page, "assistant", 0, "uno");
  await ready(page);
  assert.equal(await messages(page).count(), 2);
});

pageTest("a tool call is shown with its input and output", async ({ visit, picture }) => {
  // wire 103, 104
  const page = await visit();
  await send(page, "stool");
  await shows(page, "assistant", 0, "The tool said");
  const tool = page.locator(`${id("tool")}[data-tool-name="calculate"]`);
  assert.equal(await tool.count(), 1);
  assert.match(await tool.getAttribute("data-state"), /done|output-available/);
  await picture(page, "tool");
});

pageTest("an error says what happened and the conversation goes on", async ({ visit, picture }) => {
  // wire 65
  const page = await visit();
  await send(page, "fail0");
  const error = page.locator(id("error"));
  await error.waitFor();
  assert.match(await error.textContent(), /mock says no/);
  await picture(page, "error");
  await send(page, "text");
  await shows(page, "assistant", 0, TEXT);
  await ready(page);
});

pageTest("clear empties both tabs", async ({ visit }) => {
  // wire 147
  const one = await visit();
  const two = await visit();
  await send(one, "text");
  await shows(two, "assistant", 0, TEXT);
  await ready(one);
  await one.locator(id("clear")).click();
  await one.locator(id("confirm")).click();
  for (const page of [one, two]) await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 0, id("message"));
});

pageTest("a second message sent while the first is answered is answered next", async ({ visit, conversation, provider }) => {
  // wire 138
  const gate = provider.gate(conversation);
  const page = await visit();
  await send(page, `slow ${conversation}`);
  gate.open(5);
  await shows(page, "assistant", 0, "w4");
  await send(page, "echo second");
  await page.getByText("echo second").waitFor();
  gate.open();
  await shows(page, "assistant", 1, "second");
  await ready(page);
  assert.equal(await messages(page).count(), 4);
});

pageTest("after a kill and a restart the conversation is there and goes on", async ({ visit, conversation, picture, provider, worker }) => {
  // wire 22, 155
  const gate = provider.gate(conversation);
  const page = await visit();
  await send(page, "echo before");
  await shows(page, "assistant", 0, "before");
  await ready(page);
  await send(page, `slow ${conversation}`);
  // One delta at a time, so that the log has been written several times when the power goes (decision 41).
  for (let word = 0; word < 25; word += 1) {
    gate.open(1);
    await shows(page, "assistant", 1, `w${word}`);
  }
  await worker.kill();
  await page.locator(`${id("connection")}:not([data-state="online"])`).first().waitFor({ state: "attached" });
  await picture(page, "lost");
  await worker.restart();
  // The page comes back by itself, without a reload.
  await connected(page);
  await shows(page, "assistant", 0, "before");
  await shows(page, "assistant", 1, "w0 w1");
  await shows(page, "assistant", 1, TEXT);
  await ready(page);
  await send(page, "echo after");
  await shows(page, "assistant", 2, "after");
  await page.reload();
  await connected(page);
  await shows(page, "assistant", 2, "after");
  assert.equal(await messages(page).count(), 6);
}, { kills: true });
