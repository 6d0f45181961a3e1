// The network between a browser and the worker: a plain TCP relay whose cable can be pulled. Stock clients keep their own
// WebSocket; what they see is what a lost network looks like (close 1006, refused connections).

import { connect, createServer } from "node:net";
import { once } from "node:events";

const UPGRADE = /(?:^|\r\n)GET (\S+) HTTP\/1\.1\r\n(?:[^\r\n]+\r\n)*upgrade: websocket\r\n/i;

export async function startLink(targetPort) {
  const pairs = new Set();
  let up = true;
  let accepted = 0;
  const watchers = new Set();

  const server = createServer((client) => {
    if (!up) return client.destroy();
    accepted += 1;
    const pair = { client, upstream: connect(targetPort, "127.0.0.1"), sent: "", upgrade: undefined };
    pairs.add(pair);
    const end = () => {
      pair.client.destroy();
      pair.upstream.destroy();
      pairs.delete(pair);
    };
    for (const side of [pair.client, pair.upstream]) side.on("error", end).on("close", end);
    pair.client.on("data", (data) => {
      if (pair.loses?.sent) return pair.loses.sent();
      if (pair.upgrade === undefined && pair.sent.length < 16_384) {
        // A kept-alive connection may have carried other requests before the upgrade.
        pair.sent += data.toString("latin1");
        pair.upgrade = UPGRADE.exec(pair.sent)?.[1];
        if (pair.upgrade !== undefined) for (const watcher of [...watchers]) watcher();
      }
      pair.upstream.write(data);
    });
    pair.upstream.on("data", (data) => {
      if (pair.loses?.answered) return pair.loses.answered();
      return pair.client.write(data);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const upgrades = () => [...pairs].filter((pair) => pair.upgrade !== undefined);

  return {
    port: server.address().port,
    host: `127.0.0.1:${server.address().port}`,
    get accepted() {
      return accepted;
    },
    /** Path and query of the WebSockets that are open now. */
    sockets: () => upgrades().map((pair) => pair.upgrade),
    /** Resolves with path and query of the next WebSocket. */
    nextSocket: () =>
      new Promise((resolve) => {
        const known = new Set(upgrades());
        const look = () => {
          const fresh = upgrades().find((pair) => !known.has(pair));
          if (fresh === undefined) return;
          watchers.delete(look);
          resolve(fresh.upgrade);
        };
        watchers.add(look);
      }),
    /** Cuts every connection; with `stayDown` new ones are refused until `restore()`. */
    cut({ stayDown = false } = {}) {
      up = !stayDown;
      for (const pair of pairs) pair.client.destroy();
    },
    restore() {
      up = true;
    },
    /**
     * From now on nothing arrives over the connections that are open, and neither end is told; with `answersOnly` what the clients
     * send does arrive. New connections are as good as ever. Resolves with the first loss: of what a client sent, or of an answer.
     */
    lose({ answersOnly = false } = {}) {
      return new Promise((resolve) => {
        const loses = answersOnly ? { answered: resolve } : { sent: resolve, answered: () => {} };
        for (const pair of pairs) pair.loses = loses;
      });
    },
    /** Says to every open socket, in the server's name, that it is closed for this reason. */
    closeSockets(code) {
      const frame = Buffer.from([0x88, 0x02, code >> 8, code & 0xff]);
      for (const pair of upgrades()) pair.client.write(frame);
    },
    async stop() {
      for (const pair of pairs) pair.client.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
