/** Builds the page into `dist`, which the worker serves; in development `/agents` goes to a running worker. */
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const worker = process.env.WAKEFUL_URL ?? "http://127.0.0.1:8787";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    // React, the AI SDK and the agents client are all needed before the first message can be shown.
    chunkSizeWarningLimit: 800,
  },
  server: { proxy: { "/agents": { target: worker, ws: true } } },
});
