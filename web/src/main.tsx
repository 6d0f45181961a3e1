/** Entry: takes a token out of the address before anything renders, then mounts the page. */
import "./lib/zod-config";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { adoptTokenFromUrl } from "./lib/access";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/thread.css";
import "./styles/tools.css";
import "./styles/markdown.css";

adoptTokenFromUrl();

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
