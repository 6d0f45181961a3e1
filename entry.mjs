// The entry of the Worker. The runtime takes calls from other objects (RPC) only on classes that descend from its DurableObject,
// which the class generated from Rust does not.
import { DurableObject } from "cloudflare:workers";
import worker, { ChatAgent } from "./build/index.js";

Object.setPrototypeOf(ChatAgent, DurableObject);
Object.setPrototypeOf(ChatAgent.prototype, DurableObject.prototype);

export { ChatAgent, worker as default };
