// A connection that is dead for one of its ends or both, while both believe it open (recovery 93).

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { hasChunk, isDone, isResponse, openRoom, textOf, textOfChunks } from "./client.mjs";
import { startLink } from "./link.mjs";
import { SLOW_DELTAS, SLOW_TEXT, TEXT } from "./scripts.mjs";
import { serve } from "./setup.mjs";

const served = serve({ config: fileURLToPath(new URL("./worker/wrangler.toml", import.meta.url)) });

/** On a room whose person is `far`: the same room, seen over a cable of its own. */
function test(name, body) {
  served.test(
    name,
    async (context) => {
      const link = await startLink(context.worker.port);
      const far = openRoom({ port: link.port }, { name: context.room.name, agent: "open-state" });
      try {
        await body({ ...context, link, far });
        await far.close();
      } finally {
        await link.stop();
      }
    },
    { agent: "open-state" },
  );
}

const said = (history) => history.map((entry) => [entry.role, entry.id, textOf(entry)]);
const idle = { type: "cf_agent_stream_resume_none", reason: "idle", probeId: "p" };

// The person in the report wrote two minutes after the connection had died. Nothing here depends on how long that was: what the
// network loses in the first second is as lost.
for (const same of [true, false]) {
  test(`a lost message is stored and answered once when it is sent again, as ${same ? "the same" : "another"} request`, async (context) => {
    // recovery 93
    const { room, far, link, provider } = context;
    const witness = await room.connect();
    const dead = await far.connect();
    const since = { dead: dead.mark(), witness: witness.mark() };
    const lost = link.lose();
    const { id, message } = dead.say(`text ${room.name}`);
    await lost;
    await witness.settle();
    assert.deepEqual(await room.history(), []);
    assert.deepEqual(provider.of(`text ${room.name}`), []);
    assert.equal(witness.since(since.witness).length, 1, "more than the answer to who asked whether anything came");
    assert.deepEqual([dead.isOpen, dead.since(since.dead)], [true, []]);

    // Nobody said that the message came: whoever comes back asks, hears of nothing, and sends it again.
    const back = await far.connect();
    assert.deepEqual(back.frames[0], { type: "cf_agent_chat_messages", messages: [], connect: true });
    assert.deepEqual(await back.ask("p"), idle);
    const again = back.post([message], { id: same ? id : "another" });
    const end = await back.done(again);
    assert.deepEqual([end.outcome, end.messageIds], ["completed", [message.id]]);
    await witness.frame(isDone(again));
    const history = await room.history();
    assert.deepEqual(said(history), [
      ["user", message.id, `text ${room.name}`],
      ["assistant", history[1]?.id, TEXT],
    ]);

    // The old connection comes to its end; what was lost in it stays lost.
    link.cut();
    assert.equal((await dead.closed).code, 1006);
    await witness.settle();
    assert.deepEqual(await room.history(), history);
    assert.equal(provider.of(`text ${room.name}`).length, 1);
    assert.deepEqual(dead.since(since.dead), []);
  });
}

test("a message whose answer is lost is answered once although it is sent again", async ({ room, far, link, provider }) => {
  // recovery 93, wire 70
  const gate = provider.gate(room.name);
  const witness = await room.connect();
  const dead = await far.connect();
  const since = dead.mark();
  const lost = link.lose({ answersOnly: true });
  const { id, message } = dead.say(`slow ${room.name}`);
  gate.open(1);
  await lost;
  await witness.frame(hasChunk(id, "text-delta", (chunk) => chunk.delta === SLOW_DELTAS[0]));
  assert.deepEqual([dead.isOpen, dead.since(since)], [true, []]);

  // To its sender this looks like the message that never arrived. It is told of the answer that runs, whatever it sends.
  const back = await far.connect();
  assert.deepEqual(back.frames[0], { type: "cf_agent_stream_resuming", id });
  back.post([message], { id });
  back.ack(id);
  await back.frame((frame) => isResponse(frame) && frame.id === id && frame.replayComplete === true);
  gate.open();
  const end = await back.done(id);
  assert.deepEqual([end.outcome, end.messageIds], ["completed", [message.id]]);
  assert.equal(textOfChunks(back.chunks(id)), SLOW_TEXT);
  link.cut();
  assert.equal((await dead.closed).code, 1006);
  await witness.settle();
  const history = await room.history();
  assert.deepEqual(said(history), [
    ["user", message.id, `slow ${room.name}`],
    ["assistant", history[1]?.id, SLOW_TEXT],
  ]);
  assert.equal(provider.of(`slow ${room.name}`).length, 1);
  assert.deepEqual(dead.since(since), []);
});
