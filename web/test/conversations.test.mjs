/** Names travel through the address bar and into the server's URL: what is refused, and that the rest comes back whole. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { freshName, hashOf, nameOfHash, nameProblem, titleOf } = await load("lib/conversations.ts");
const { isVisible, textOf, titleFrom } = await load("lib/text.ts");

test("names: refused with a reason", () => {
  // decision 46, wire 1.3: 1 to 256 bytes of the raw segment, no control characters.
  for (const name of ["", ".", "..", "a\nb", "\u0000", "\u0085", "\ud800", "x".repeat(257), "ü".repeat(43)]) {
    assert.equal(typeof nameProblem(name), "string", JSON.stringify(name));
  }
});

test("names: everything else survives the hash and one URL segment", () => {
  for (const name of ["a", "x".repeat(256), "ü".repeat(42), "a/b?c#d %", "..x", "🦉 night", "%2e", "'()*!~"]) {
    assert.equal(nameProblem(name), null, name);
    assert.equal(nameOfHash(hashOf(name)), name);
    const url = new URL(`/agents/chat-agent/${encodeURIComponent(name)}/get-messages`, "http://host.test");
    assert.deepEqual(url.pathname.split("/").slice(1, 3), ["agents", "chat-agent"]);
    assert.equal(decodeURIComponent(url.pathname.split("/")[3]), name);
  }
});

test("names: a foreign or broken hash selects nothing", () => {
  for (const hash of ["", "#", "#/c/", "#/c/%", "#/c/%00", "#/x/a", `#/c/${"x".repeat(300)}`]) assert.equal(nameOfHash(hash), null, hash);
});

test("names: fresh ones are valid, unlike each other, and not shown as titles", () => {
  const names = new Set(Array.from({ length: 200 }, freshName));
  assert.equal(names.size, 200);
  for (const name of names) {
    assert.equal(nameProblem(name), null);
    assert.equal(titleOf({ name }), "New conversation");
  }
  assert.equal(titleOf({ name: "room-1" }), "room-1");
  assert.equal(titleOf({ name: "room-1", title: "Hello" }), "Hello");
});

test("text of messages", () => {
  const user = { id: "u", role: "user", parts: [{ type: "file", mediaType: "image/png", url: "data:image/png;base64,", filename: "cat.png" }] };
  assert.equal(titleFrom([user]), "cat.png");
  assert.equal(titleFrom([{ id: "a", role: "assistant", parts: [{ type: "text", text: "hi" }] }]), undefined);
  const step = { type: "step-start" };
  const said = (...parts) => textOf({ id: "a", role: "assistant", parts: parts.map((part) => (typeof part === "string" ? { type: "text", text: part } : part)) });
  assert.equal(said("a", { type: "tool-x" }, step, "b"), "a\n\nb");
  assert.equal(said("a", "b"), "a\n\nb");
  assert.equal(said(step, "It is ", step, "", step, "sun", step, "ny"), "It is sunny", "interrupted twice, and one text");
  assert.equal(isVisible({ id: "a", role: "assistant", parts: [{ type: "step-start" }, { type: "text", text: " " }] }), false);
  assert.equal(isVisible({ id: "a", role: "assistant", parts: [{ type: "tool-x", toolCallId: "c", state: "input-streaming" }] }), true);
});
