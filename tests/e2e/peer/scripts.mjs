// All scripts, in the order in which they are reported. A script acts like people at their tabs and ends when what it started
// has ended; what is then to be seen is compared, but for the lines it returns as `without` and, of the original, the sections it
// returns as `chance`.

import { approvals } from "./scripts/approvals.mjs";
import { chat } from "./scripts/chat.mjs";
import { errors } from "./scripts/errors.mjs";
import { pageTools } from "./scripts/pages.mjs";
import { AGENTS, concurrency, resume } from "./scripts/streams.mjs";
import { tools } from "./scripts/tools.mjs";

const groups = { chat, tools, "page tools": pageTools, approvals, concurrency, resume, errors };

export const SCRIPTS = Object.entries(groups).flatMap(([group, scripts]) =>
  Object.entries(scripts).map(([name, play]) => {
    const agent = AGENTS[name.split(":", 1)[0]] ?? "QueueChat";
    return { key: `${group}: ${name}`, play, agent };
  }),
);
