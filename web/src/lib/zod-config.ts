/**
 * Tells zod, which the AI SDK brings along, not to probe for `eval`: the page's policy forbids it, and every browser
 * would report the attempt. Has to be evaluated before anything that imports zod.
 */
(globalThis as { __zod_globalConfig?: { jitless?: boolean } }).__zod_globalConfig = { jitless: true };

export {};
