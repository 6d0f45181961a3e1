// The page in a real browser: one browser, one worker and, if wanted, one scripted provider for a test file, one
// conversation for a test. What is shared by the files whose name begins with `page.`.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { startProvider } from "./provider.mjs";
import { startWorker } from "./worker.mjs";

const CANDIDATES = [
  process.env.CHROME_BIN,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
const browserPath = CANDIDATES.find((path) => path && existsSync(path));
const built = existsSync(fileURLToPath(new URL("../../web/dist/index.html", import.meta.url)));
const skip = browserPath === undefined ? "no browser: set CHROME_BIN" : built ? false : "the page is not built: npm run build -w web";

export const LIMIT_MS = 15_000;
const TEST_LIMIT_MS = 60_000;
/** What Chromium writes to the console by itself when a server is away. */
const UNREACHABLE = /WebSocket connection to .* failed|Failed to load resource: net::ERR_/;

/**
 * Serves the page for the tests of a file. The returned object holds `worker` and `provider` from the first test on; its
 * `test(name, body)` gives the body a conversation of its own. `scripted`: the provider answers, else the demo model; `vars` and
 * `tolerate` go to the worker.
 */
export function servePage({ scripted = false, vars = {}, tolerate } = {}) {
  const context = {
    test(name, body, { kills = false } = {}) {
      test(name, { skip, timeout: TEST_LIMIT_MS }, async (t) => {
        const profile = await context.browser.newContext({
          viewport: { width: 1280, height: 800 },
          permissions: ["clipboard-read", "clipboard-write"],
        });
        t.after(() => profile.close());
        const conversation = `page-${randomUUID().slice(0, 8)}`;
        const problems = [];
        /** Opens a tab on the conversation. */
        const visit = async ({ width, height } = {}) => {
          const page = await profile.newPage();
          if (width) await page.setViewportSize({ width, height });
          page.setDefaultTimeout(LIMIT_MS);
          page.on("pageerror", (error) => problems.push(String(error)));
          page.on("console", (message) => {
            if (message.type() !== "error" || (kills && UNREACHABLE.test(message.text()))) return;
            problems.push(message.text());
          });
          await page.goto(`${context.worker.url}/#/c/${encodeURIComponent(conversation)}`);
          await connected(page);
          return page;
        };
        const picture = (page, label) =>
          page.screenshot({ path: join(context.pictures, `${name.replace(/\W+/g, "-")}-${label}.png`) });
        try {
          await body({ visit, conversation, picture, worker: context.worker, provider: context.provider });
        } catch (error) {
          for (const [at, page] of profile.pages().entries()) await picture(page, `failed-${at}`).catch(() => {});
          throw error;
        }
        assert.deepEqual(problems, [], "no error on the page or its console");
      });
    },
  };
  before(async () => {
    if (skip) return;
    context.pictures = mkdtempSync(join(tmpdir(), "wakeful-page-"));
    if (scripted) context.provider = await startProvider();
    context.worker = await startWorker({ vars: { ...context.provider?.vars, ...vars }, assets: true, tolerate });
    context.browser = await chromium.launch({
      executablePath: browserPath,
      args: [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
      ],
    });
  });
  after(async () => {
    await context.browser?.close();
    await context.worker?.stop();
    await context.provider?.stop();
    if (context.pictures !== undefined) console.log(`pictures: ${context.pictures}`);
  });
  return context;
}

export const id = (name) => `[data-testid="${name}"]`;
export const connected = (page) => page.locator(`${id("connection")}[data-state="online"]`).first().waitFor({ state: "attached" });
export const messages = (page, role) => page.locator(role ? `${id("message")}[data-role="${role}"]` : id("message"));
export const ready = (page) => page.locator('[data-status="ready"]').first().waitFor({ state: "attached" });

export async function send(page, text) {
  await page.locator(id("composer")).fill(text);
  await page.locator(id("composer")).press("Enter");
}

/** Waits until the n-th message of that role shows the text. */
export async function shows(page, role, n, text) {
  await page.waitForFunction(
    ([selector, at, wanted]) => document.querySelectorAll(selector)[at]?.textContent.includes(wanted),
    [`${id("message")}[data-role="${role}"]`, n, text],
    { timeout: LIMIT_MS },
  );
}
