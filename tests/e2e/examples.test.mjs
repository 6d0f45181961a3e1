// The pages of the examples, each on its own worker with the demo model, in a real browser.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
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
  const built = existsSync(join(folder(example), "build/index.js"));
  const skip = !browserPath ? "no browser: set CHROME_BIN" : built ? false : `${example} is not built: node ../../scripts/build.mjs`;
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

  await press(page, "use the tool ask_person: Tea or coffee?");
  await page.getByLabel("Answer", { exact: true }).fill("Cocoa.");
  await press(page, "Answer");
  await shows(page, "`ask_person` answered: Cocoa.");

  await press(page, "use the tool wave: Hello there!");
  await press(page, "Wave back");
  await shows(page, "`wave` answered: The person waves.");
  assert.equal((await page.locator("#acks").textContent()).match(/accepted/g).length, 3);
});
