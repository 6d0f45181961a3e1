// Who may talk to the agents of the deployable: the token and the list of origins (decision 49; wire 4–8, 14; field A-02,
// A-06).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { openRoom, Refused } from "./client.mjs";
import { serve } from "./setup.mjs";

const TOKEN = "s3cret-token";
const PAGE = "https://page.example";
const SECOND = "https://second.example:8443";

const served = serve({ vars: { AUTH_TOKEN: TOKEN, ALLOWED_ORIGINS: `${PAGE}, ${SECOND}` } });
const bearer = { authorization: `Bearer ${TOKEN}` };
const corsOf = (response) =>
  Object.fromEntries([...response.headers].filter(([name]) => name.startsWith("access-control-")));
const CORS = {
  "access-control-allow-origin": PAGE,
  "access-control-allow-methods": "GET, POST, HEAD, OPTIONS",
  // The wildcard does not cover `Authorization` (Fetch standard), so a page that sends the token needs it named.
  "access-control-allow-headers": "Authorization, *",
  "access-control-max-age": "86400",
};

/** Storage files of conversations; none may appear for a request that was refused. */
const objectsStored = () => readdirSync(served.worker.state, { recursive: true }).filter((file) => /\/do\/|^do\//.test(file));

const WRONG = {
  "no token": {},
  "a wrong token": { authorization: "Bearer wrong" },
  "a prefix of the token": { authorization: `Bearer ${TOKEN.slice(0, -1)}` },
  "the token and more": { authorization: `Bearer ${TOKEN}x` },
  "an empty token": { authorization: "Bearer " },
  "another scheme": { authorization: `Basic ${btoa(`:${TOKEN}`)}` },
};

for (const [what, headers] of Object.entries(WRONG)) {
  test(`${what}: history and socket are refused alike`, async () => {
    // wire 14, field A-02
    const room = openRoom(served.worker);
    const before = objectsStored();
    const response = await room.get("/get-messages", { headers: { ...headers, origin: PAGE } });
    assert.equal(response.status, 401);
    assert.match(response.headers.get("content-type"), /^application\/json/);
    assert.deepEqual(corsOf(response), CORS);
    const body = await response.json();
    assert.equal(typeof body.error, "string");
    assert.ok(!JSON.stringify(body).includes(room.name), "field A-06: the error names no conversation");

    await assert.rejects(room.open({ headers }), (error) => {
      assert.ok(error instanceof Refused);
      assert.equal(error.status, 401);
      assert.match(error.headers["content-type"], /^application\/json/);
      // wire 8: CORS headers never on the answer to an upgrade that came without an origin
      return true;
    });
    assert.deepEqual(objectsStored(), before, "nothing is created for who is refused");
  });
}

test("a wrong token in the query is refused", async () => {
  for (const query of [{ token: "wrong" }, { token: "" }, { TOKEN }]) {
    const room = openRoom(served.worker, { query });
    assert.equal((await room.get()).status, 401);
    await assert.rejects(room.open(), (error) => error instanceof Refused && error.status === 401);
  }
});

test("the token opens history and socket, as Bearer or in the query", async () => {
  // decision 49: stock clients send `query: {token}`
  const room = openRoom(served.worker, { query: { token: TOKEN } });
  const socket = await room.connect();
  const { id } = socket.say("text");
  assert.equal((await socket.done(id)).outcome, "completed");
  assert.equal((await room.history()).length, 2);
  const byHeader = openRoom(served.worker, { name: room.name });
  const response = await byHeader.get("/get-messages", { headers: bearer });
  assert.deepEqual(await response.json(), await room.history());
  const second = await byHeader.open({ headers: bearer });
  await second.frame("cf_agent_mcp_servers");
  await second.close();
  await room.close();
});

test("the token never reaches a client", async () => {
  // wire §1.9
  const room = openRoom(served.worker, { query: { token: TOKEN } });
  const socket = await room.connect();
  await socket.done(socket.say("fail0").id);
  assert.ok(!socket.describe().includes(TOKEN));
  await room.close();
});

test("a preflight is answered for a listed origin without a token", async () => {
  // wire 5
  const path = `${served.worker.url}/agents/chat-agent/${randomUUID()}`;
  const before = objectsStored();
  const response = await fetch(path, { method: "OPTIONS", headers: { origin: PAGE, "access-control-request-method": "GET" } });
  assert.equal(response.status, 200);
  assert.equal(await response.text(), "");
  assert.deepEqual(corsOf(response), CORS);
  assert.deepEqual(objectsStored(), before, "no object is created by a preflight");
});

test("a preflight for an unknown agent is an invalid request without CORS headers", async () => {
  // wire 4
  const response = await fetch(`${served.worker.url}/agents/nope/x`, { method: "OPTIONS", headers: { origin: PAGE } });
  assert.equal(response.status, 400);
  assert.equal(await response.text(), "Invalid request");
  assert.deepEqual(corsOf(response), {});
});

test("each listed origin gets its own name back", async () => {
  // wire 6, 7, decision 49
  const room = openRoom(served.worker);
  for (const origin of [PAGE, SECOND]) {
    const response = await room.get("/get-messages", { headers: { ...bearer, origin } });
    assert.equal(response.status, 200);
    assert.deepEqual(corsOf(response), { ...CORS, "access-control-allow-origin": origin });
    assert.match(response.headers.get("vary") ?? "", /origin/i);
  }
});

test("an origin that is not on the list is refused even with the token", async () => {
  // decision 20, decision 49: the list is exact
  const strangers = ["https://evil.example", `${PAGE}.evil.example`, `${PAGE}:444`, "http://page.example", "null", PAGE.toUpperCase()];
  const room = openRoom(served.worker, { query: { token: TOKEN } });
  for (const origin of strangers) {
    const response = await room.get("/get-messages", { headers: { origin } });
    assert.equal(response.status, 403, origin);
    await assert.rejects(room.open({ headers: { origin } }), (error) => error instanceof Refused && error.status === 403, origin);
  }
});

test("a client without an origin is no browser and needs only the token", async () => {
  const room = openRoom(served.worker);
  const response = await room.get("/get-messages", { headers: bearer });
  assert.equal(response.status, 200);
});

test("a listed origin may open a socket, and the 101 carries no CORS headers", async () => {
  // wire 8
  const room = openRoom(served.worker, { query: { token: TOKEN } });
  const socket = await room.connect({ headers: { origin: PAGE } });
  assert.deepEqual(Object.keys(socket.upgradeHeaders).filter((name) => name.startsWith("access-control-")), []);
  await room.close();
});
