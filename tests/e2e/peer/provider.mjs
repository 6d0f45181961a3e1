// What the scripted model says in these scripts, besides what it always can say.

import { SCRIPTS } from "../scripts.mjs";

export function providerScripts() {
  const attempts = new Map();
  /** How often this provider was asked for this very message. */
  const count = ({ user }) => attempts.set(user, (attempts.get(user) ?? 0) + 1).get(user);

  return {
    /** Calls as listed, `do [["name", {…input}, "id"?], …]`, then text that quotes the results. */
    async do(call) {
      if (call.results.length > 0) {
        await call.say(`Got ${call.results.map((result) => result.content).join(" and ")}`);
        return call.finish();
      }
      for (const [index, [name, input, id]] of JSON.parse(call.argument).entries()) {
        await call.tool(name, input, { index, ...(id === undefined ? {} : { id }) });
      }
      return call.finish("tool_calls");
    },

    /** A page tool, then words that wait for the gate. */
    async doslow(call) {
      if (call.results.length > 0) return SCRIPTS.slow(call);
      await call.tool("page_time", {});
      return call.finish("tool_calls");
    },

    /** The names of the tools that were offered and are not the server's. */
    async tools(call) {
      const own = ["calculate", "current_time", "locate", "transfer", "spend"];
      const names = (call.request.tools ?? []).map((tool) => tool.function.name).filter((name) => !own.includes(name));
      await call.say(`offered: ${names.join(", ") || "none"}`);
      return call.finish();
    },

    /** A tool, and after it a refusal. */
    async toolfail(call) {
      if (call.results.length > 0) return SCRIPTS.fail0(call);
      await call.tool("calculate", { expression: "6 * 7" });
      return call.finish("tool_calls");
    },

    /** Overloaded at the first attempt, well at the second. */
    async once(call) {
      if (count(call) > 1) return SCRIPTS.text(call);
      return call.json(503, { error: { message: "mock is overloaded", type: "server_error", code: null } });
    },

    /** Refused at the first attempt, well at the second. */
    async once400(call) {
      return count(call) > 1 ? SCRIPTS.text(call) : SCRIPTS.fail0(call);
    },
  };
}
