// Why the two sides differ where they do. Each reason is a row of the design; NAMED says which scripts show it. What each side
// shows is in differences.json.

export const REASONS = {
  "decision 6":
    "After a page's result or a decision the answer goes on in the same message. The original begins a second one, " +
    "and tabs that only watched show the new text twice until they are loaded anew.",
  "decision 7": "System messages of a page are ignored. The original stores them, and then cannot answer.",
  "decision 15":
    "A request that is sent twice under one id runs once. In the original it runs twice, and both runs end it.",
  "decision 16":
    "An edited question is answered anew, and what followed it leaves the conversation. The original changes its " +
    "text in place, keeps what followed and asks the model to go on from there.",
  "decision 34":
    "A model call that broke before anything was shown is made again, at most twice, whatever broke it. An overloaded " +
    "provider is asked again later, and an answer that broke off goes on where it was. The original makes a call again " +
    "only after some refusals, and shows every other error at once.",
  "decision 37":
    "The request of an answer whose server died gets an end, `recovering`, and the answer goes on under another one. " +
    "In the original it goes on as well, and the request gets no end.",
  "decision 43": "An error text says what to do and quotes the provider. The original shows what its library says.",
  "field Q-07": "One event that is not JSON is skipped. In the original it ends the answer with an error.",
  "PV-05": "An answer that is cut off before its end goes on where it was. The original takes it for complete.",
  "PV-19":
    "An error in place of an answer is told with the provider's own words. The original tells why its parser " +
    "refused it.",
  "PV-20": "A whole answer where a stream was asked for is taken as it is. The original shows nothing.",
  "PV-21": "A web page or nothing in place of an answer is an error. The original shows an empty answer.",
  "tools §6.2":
    "The model gets the results of one step in the order of the calls. In the original approved calls come last.",
  "tools §6.3":
    "A failed call says in one sentence what was wrong, and a call of a tool nobody declared is a `dynamic-tool` " +
    "part. The original passes on the texts of its library.",
  "tools §14":
    "A call whose input was still coming when the answer was stopped is dropped. The original keeps it as a failed " +
    "call.",
  "tools D2":
    "A result or decision that matches nothing open starts nothing. In the original each one asks the model to go " +
    "on.",
  "tools D3":
    "That an answer is to go on when its last result comes is stored. The original forgets it when the server dies," +
    " and the conversation stands still.",
  "tools D4":
    "A page can neither make up the result of a server tool nor replace a tool that needs consent. In the original " +
    "it can do both.",
  "tools D5": "The reason of a refusal is kept and told to the model. The original drops it.",
  "tools D7":
    "A message that comes before the first word of the running answer is answered after it. The original stores it " +
    "before that answer and never answers it.",
  "tools D11": "A page can neither make up nor change what the assistant said. In the original it can do both.",
  "tools D12": "A newer message takes the place of an answer that was about to go on. In the original both run.",
  "tools D13":
    "Calls of an answer that was cut by the token limit end the turn. The original asks again, up to the limit of " +
    "steps.",
  "tools D14":
    "A request that cannot be read is refused with an error, and tool names that no provider takes are left out. " +
    "The original is silent about the first and passes on the second.",
  "tools T88":
    "The model is told in a sentence that the user did not allow the call. The original passes on the text of its " +
    "library.",
  "wire §5.3":
    "A message that is sent again under a new request is answered anew. The original asks the model to go on after " +
    "its answer.",
  "wire 62, 63, 143": "A turn that brought nothing leaves no message. The original stores an empty one.",
  "wire X3":
    "A tab that lost its network while the input of a call came is healed. In the original it shows the half call " +
    "beside the whole one until it is loaded anew.",
  "wire X4":
    "A request that ends in an answer lets that answer go on. The original answers in a second message, and the tab" +
    " that asked shows the first text twice.",
  "wire X29":
    "A tab whose call was allowed shows its result. In the original it may end in an error, because the chunk of " +
    "the result meets a message without the call.",
};

export const NAMED = {
  "chat: an answer without content": ["wire 62, 63, 143"],
  "chat: the only question edited": ["decision 16"],
  "chat: the first of two questions edited": ["decision 16"],
  "chat: a request without a new question": ["wire X4"],
  "tools: a tool nobody declared": ["tools §6.3"],
  "tools: tool input that misses the schema": ["tools §6.3"],
  "tools: a call cut by the token limit": ["tools D13", "tools §6.3"],
  "tools: stopped while a tool's input streams": ["tools §14"],
  "tools: a tool, then an error of the provider": ["decision 43"],
  "page tools: a page tool": ["decision 6"],
  "page tools: a page tool, and the next message": ["decision 6"],
  "page tools: two page tools at once": ["decision 6"],
  "page tools: a page tool, watched by a second tab": ["decision 6"],
  "page tools: a tool that the server declares and the page runs": ["decision 6"],
  "page tools: a page tool beside a server tool": ["decision 6"],
  "page tools: two page tools, one of which fails": ["decision 6"],
  "page tools: the answers to two calls come apart": ["decision 6"],
  "page tools: the same result twice": ["decision 6", "tools D2"],
  "page tools: a second, different result": ["decision 6"],
  "page tools: a result for a call there never was": ["tools D2"],
  "page tools: a result of another tab": ["decision 6"],
  "page tools: a result after the next message": ["tools D2"],
  "page tools: the page loaded anew before its result": ["decision 6"],
  "page tools: the server dies before the result": ["decision 6"],
  "page tools: the server dies before the result of a tool it declared": ["decision 6"],
  "page tools: stopped in the answer after a page's result": ["decision 6"],
  "page tools: a result and a message at once": ["tools D12"],
  "page tools: the server dies between two results": ["decision 6", "tools D3"],
  "page tools: page tools with names no provider takes": ["tools D14"],
  "approvals: allowed": ["decision 6"],
  "approvals: not allowed": ["decision 6", "tools T88"],
  "approvals: allowed, and the next message": ["decision 6"],
  "approvals: watched by a second tab": ["decision 6"],
  "approvals: allowed in another tab": ["decision 6"],
  "approvals: an amount that needs consent": ["decision 6"],
  "approvals: allowed twice": ["decision 6", "tools D2"],
  "approvals: allowed, then not": ["decision 6"],
  "approvals: not allowed, with a reason": ["decision 6", "tools D5"],
  "approvals: two calls, one allowed and one not": ["decision 6", "tools §6.2", "tools T88"],
  "approvals: allowed before a page tool of the same step answers": ["decision 6", "tools §6.2"],
  "approvals: allowed after a page tool of the same step answered": ["decision 6", "tools §6.2", "wire X29"],
  "approvals: the page loaded anew before the decision": ["decision 6"],
  "approvals: the server dies before the decision": ["decision 6", "wire X29"],
  "approvals: a result forged for a call that waits": ["tools D4"],
  "approvals: a page tool with the name of a guarded one": ["tools D4"],
  "concurrency: a message before the first word of the running answer": ["tools D7"],
  "concurrency: stopped before the first word": ["wire 62, 63, 143"],
  "resume: the network lost while a tool's input streams": ["wire X3"],
  "resume: the server dies in mid-answer": ["decision 37"],
  "resume: the server dies before the first word": ["decision 37"],
  "errors: the provider refuses": ["decision 43", "wire 62, 63, 143"],
  "errors: the provider breaks off with an error": ["decision 43"],
  "errors: the provider ends in the middle of an event": ["PV-05"],
  "errors: the provider answers with a web page": ["PV-21", "decision 34", "wire 62, 63, 143"],
  "errors: the provider answers with nothing": ["PV-21", "decision 34", "wire 62, 63, 143"],
  "errors: the provider sends an error under status 200": ["PV-19", "decision 34", "wire 62, 63, 143"],
  "errors: the provider sends one broken event": ["field Q-07"],
  "errors: the provider answers whole instead of streaming": ["PV-20"],
  "errors: the provider is overloaded for good": ["decision 34", "wire 62, 63, 143"],
  "errors: the provider hangs up in mid-answer": ["decision 34"],
  "errors: an error, seen by a second tab": ["decision 43"],
  "errors: an error, and the page loaded anew": ["decision 43", "wire 62, 63, 143"],
  "errors: an error, and the same question again": ["decision 43"],
  "errors: a chat request that is no JSON": ["tools D14"],
  "errors: a chat request without messages": ["tools D14"],
  "errors: an answer invented by a page": ["tools D11"],
  "errors: an answer overwritten by a page": ["tools D11"],
  "errors: a stored answer under an id of the page": ["tools D11"],
  "errors: a system message of a page": ["decision 7"],
  "errors: a request sent twice at once": ["decision 15"],
  "errors: a message sent again under a new request": ["wire §5.3"],
};

/** Where our side is not yet as it should be, and how; differences.json says what it has to show. */
export const OPEN = {};
