// What pages and the people before them do about calls that wait for them.

// The hook declares only tools that have an `execute`, and calls it only where the deprecated automatic mode is on.
export const execute = () => undefined;
const TIME = { description: "The time in the page", parameters: { type: "object", properties: {} }, execute };
const COLOUR = { description: "The colour of the page", parameters: { type: "object", properties: {} }, execute };
export const ANSWERS = { page_time: { time: "noon" }, page_colour: { colour: "red" }, locate: { place: "home" } };

/** What a client without the hook declares. */
export const DECLARED = [{ name: "page_time", description: "The time in the page", parameters: { type: "object" } }];

/** A page without tools of its own, which leaves calls of the server's to the script. */
export const plain = {};
/** A page that declares its tools and leaves the calls to the script. */
export const patient = { tools: { page_time: TIME, page_colour: COLOUR } };
/** A page that answers calls as soon as they are there. */
export const page = {
  ...patient,
  onToolCall: ({ toolCall: { toolCallId, toolName }, addToolOutput }) => addToolOutput({ toolCallId, output: ANSWERS[toolName] }),
};

export const ask = (...calls) => `do ${JSON.stringify(calls)}`;
export const one = ask(["page_time", {}]);
export const two = ask(["page_time", {}], ["page_colour", {}]);

export const result = (call, output, extra = {}) => ({
  type: "cf_agent_tool_result",
  toolCallId: call.toolCallId,
  toolName: call.type.slice(5),
  output,
  autoContinue: true,
  ...extra,
});
export const approval = (call, approved) => ({ type: "cf_agent_tool_approval", toolCallId: call.toolCallId, approved, autoContinue: true });

/** Whether the hook meets the chunk of a result with the message it belongs to is chance; the original leaves it to that. */
export const CHANCE = { chance: ["tab 1"] };

/** Answers the approval that the tab shows, as its button would. */
export async function decide(tab, approved) {
  const asking = (now) => now.messages.flatMap((message) => message.parts).filter((part) => part.state === "approval-requested");
  const now = await tab.until((value) => asking(value).length > 0);
  tab.now.addToolApprovalResponse({ id: asking(now)[0].approval.id, approved });
}

/** Gives the tab's own answer to an open call. */
export const give = (tab, call, extra = { output: ANSWERS[call.type.slice(5)] }) =>
  tab.now.addToolOutput({ toolCallId: call.toolCallId, toolName: call.type.slice(5), ...extra });
