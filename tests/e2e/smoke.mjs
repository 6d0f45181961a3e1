import { startProvider } from "./provider.mjs"; import { startWorker } from "./worker.mjs"; import { openRoom } from "./client.mjs";
const provider = await startProvider(); const worker = await startWorker({vars: provider.vars});
const room = openRoom(worker); const s = await room.connect(); const r = s.say("text"); 
await s.done(r.id).catch(e=>console.log(e.message)); console.log(s.describe());
const r2 = s.say("stool", {history:[]}); await s.done(r2.id).catch(e=>console.log(e.message)); console.log(s.describe(s.log.length-20));
await room.close().catch(e=>console.log(e.message)); await worker.stop().catch(e=>console.log(e.message)); await provider.stop().catch(e=>console.log(e.message));
