// One provider and one worker for a test file, one conversation for a test.

import { after, before, test } from "node:test";
import { openRoom } from "./client.mjs";
import { startProvider } from "./provider.mjs";
import { startWorker } from "./worker.mjs";

const TEST_LIMIT_MS = 30_000;

/**
 * Serves the worker for the tests of this file. The returned object holds `worker` and `provider` from the first test
 * on; its `test(name, body)` gives the body a room of its own and holds the room's logs against the invariants.
 */
export function serve({ vars = {}, scripts, ...options } = {}) {
  const context = {
    /** `body` gets `{room, provider, worker}`. */
    test(name, body, { limitMs = TEST_LIMIT_MS, todo, ...roomOptions } = {}) {
      test(name, { timeout: limitMs, todo }, async () => {
        const room = openRoom(context.worker, roomOptions);
        try {
          await body({ room, provider: context.provider, worker: context.worker });
        } catch (error) {
          await Promise.all(room.sockets.map((socket) => socket.drop()));
          throw error;
        }
        await room.close();
      });
    },
  };
  before(async () => {
    context.provider = await startProvider({ scripts });
    context.worker = await startWorker({ ...options, vars: { ...context.provider.vars, ...vars } });
  });
  after(async () => {
    await context.worker?.stop();
    await context.provider?.stop();
  });
  return context;
}
