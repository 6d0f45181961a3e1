// The examples, each on its own worker with the demo model: their pages in a real browser, and the stock hooks as docs/tools.md
// shows them.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { openRoom } from "./client.mjs";
import { openTab, PACKAGES, screen } from "./hook.mjs";
import { startWorker } from "./worker.mjs";

const CANDIDATES = [
  process.env.CHROME_BIN,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
const browserPath = CANDIDATES.find((path) => path && existsSync(path));
const folder = (name) => fileURLToPath(new URL(`../../examples/${name}/`, import.meta.url));
const notBuilt = (name) => !existsSync(join(folder(name), "build/index.js")) && `${name} is not built: npm test -- --only examples`;
const LIMIT_MS = 15_000;

let browser;
let pictures;
before(async () => {
  if (!browserPath) return;
  pictures = mkdtempSync(join(tmpdir(), "wakeful-examples-"));
  browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--no-first-run"] });
});
after(async () => {
  await browser?.close();
  if (pictures) console.log(`pictures: ${pictures}`);
});

/** A test on the page of one example. `visit()` opens a tab; all tabs show one conversation. */
function exampleTest(example, name, body) {
  const skip = browserPath ? notBuilt(example) : "no browser: set CHROME_BIN";
  test(name, { skip, timeout: 90_000 }, async (t) => {
    const worker = await startWorker({ config: join(folder(example), "wrangler.toml"), assets: true });
    const context = await browser.newContext({ viewport: { width: 800, height: 900 } });
    t.after(async () => {
      await context.close();
      await worker.stop();
    });
    const problems = [];
    const visit = async () => {
      const page = await context.newPage();
      page.setDefaultTimeout(LIMIT_MS);
      page.on("pageerror", (error) => problems.push(String(error)));
      await page.goto(`${worker.url}/#room`);
      await connected(page);
      return page;
    };
    try {
      await body({ visit, worker });
    } finally {
      for (const [at, page] of context.pages().entries()) await page.screenshot({ path: join(pictures, `${example}-${at}.png`) });
    }
    assert.deepEqual(problems, [], "no uncaught error on the page");
  });
}

const connected = (page) => page.getByText("connected", { exact: true }).waitFor();
const press = (page, text) => page.getByRole("button", { name: text, exact: true }).last().click();
const shows = (page, text) => page.locator("#messages").getByText(text).last().waitFor();

exampleTest("approvals", "a person allows and denies on the page, and a death in between does not matter", async ({ visit, worker }) => {
  const [page, other] = [await visit(), await visit()];
  await press(page, "transfer 50 to rent");
  await shows(page, "`transfer` answered: Moved 50 EUR to Rent.");

  await press(page, "transfer 500 to savings");
  await page.getByLabel("Reason").fill("Savings are full.");
  await press(page, "Deny");
  for (const tab of [page, other]) await shows(tab, "All right, I did not use `transfer`: Savings are full.");

  await press(page, "close the account holiday");
  await other.getByRole("button", { name: "Allow" }).waitFor();
  await worker.kill();
  for (const tab of [page, other]) await tab.getByText("not connected").waitFor();
  await worker.restart();
  for (const tab of [page, other]) await connected(tab);
  await press(other, "Allow");
  for (const tab of [page, other]) await shows(tab, "`close_account` answered: Holiday is closed.");
  assert.equal(await page.getByRole("button", { name: "Allow" }).count(), 0);
});

exampleTest("client-tools", "a page answers by itself, by its person, and for a tool that it did not bring", async ({ visit }) => {
  const page = await visit();
  await page.getByLabel("Notes").fill("Water the tomatoes.");
  await press(page, "use the tool read_notes");
  await shows(page, "`read_notes` answered: Water the tomatoes.");

  await press(page, "ask me two questions");
  const field = page.getByLabel("Answer", { exact: true });
  for (const [left, words] of [[2, "Green."], [1, "Ada."]]) {
    await field.nth(left - 1).waitFor();
    await field.last().fill(words);
    await press(page, "Answer");
    await page.waitForFunction((rest) => document.querySelectorAll("#messages input").length < rest, left);
  }
  await shows(page, /You said: \*\*Ada\.\*\*[^]*You said: \*\*Green\.\*\*/);

  await press(page, "use the tool wave: Hello there!");
  await press(page, "Wave back");
  await shows(page, "`wave` answered: The person waves.");
  assert.equal((await page.locator("#acks").textContent()).match(/accepted/g).length, 4);
});

/** A test on the worker of an example with each of the stock hooks. */
function hookTest(example, name, body) {
  const skip = notBuilt(example);
  for (const use of PACKAGES) {
    test(`${use}: ${name}`, { skip, timeout: 60_000 }, async (t) => {
      const worker = await startWorker({ config: join(folder(example), "wrangler.toml") });
      t.after(() => worker.stop());
      const room = openRoom(worker);
      const open = async (chat) => {
        const tab = await openTab(room, worker, { use, chat });
        t.after(() => tab.close());
        return tab.ready();
      };
      await body({ room, open });
    });
  }
}

const parts = (value) => value.messages.at(-1)?.parts ?? [];
const ends = (words) => (value) => value.status === "ready" && value.messages.length === 2 && screen(value)[1][1].includes(words);

hookTest("client-tools", "tools of a React page answer by themselves and by the person", async ({ room, open }) => {
  const tools = {
    read_notes: {
      description: "Reads the notes the person keeps in the page",
      parameters: { type: "object", properties: {} },
      execute: () => "Water the tomatoes.",
    },
  };
  const tab = await open({
    tools,
    onToolCall: async ({ toolCall: { toolCallId, toolName, input }, addToolOutput }) => {
      const run = tools[toolName]?.execute;
      if (run) addToolOutput({ toolCallId, output: await run(input) });
    },
  });
  tab.now.sendMessage({ text: "use the tool read_notes" });
  await tab.until(ends("`read_notes` answered: Water the tomatoes."));

  tab.now.sendMessage({ text: "use the tool wave: Hello!" });
  const isOpen = (part) => part.type === "tool-wave" && part.state === "input-available";
  const { toolCallId } = parts(await tab.until((value) => value.status === "ready" && parts(value).some(isOpen))).find(isOpen);
  tab.now.addToolOutput({ toolCallId, toolName: "wave", output: "The person waves." });
  await tab.until((value) => screen(value).at(-1)[1].includes("`wave` answered: The person waves."));
  assert.equal((await room.history()).length, 4);
});

hookTest("approvals", "a React page allows a call", async ({ room, open }) => {
  const tab = await open();
  tab.now.sendMessage({ text: "transfer 500 to savings" });
  const asks = (part) => part.state === "approval-requested";
  const asked = parts(await tab.until((value) => value.status === "ready" && parts(value).some(asks))).find(asks);
  tab.now.addToolApprovalResponse({ id: asked.approval.id, approved: true });
  await tab.until(ends("Moved 500 EUR to Savings."));
  assert.equal((await room.history()).length, 2, "one message, extended");
});
