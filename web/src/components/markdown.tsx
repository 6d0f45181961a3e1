/** Markdown of an answer, block by block: finished blocks are never parsed again while the answer grows. */
import { createContext, isValidElement, memo, useContext, useMemo, type ReactElement, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { splitBlocks } from "../lib/blocks";
import { CodeBlock } from "./code";

export function Markdown({ text, live }: { text: string; live: boolean }) {
  const { blocks, definitions } = useMemo(() => splitBlocks(text), [text]);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        // Blocks are only ever appended or completed, so their position is their identity.
        <Block key={index} text={block} definitions={block.includes("[") ? definitions : ""} live={live && index === blocks.length - 1} />
      ))}
    </div>
  );
}

const plugins = [remarkGfm];

/** Whether the block is still being written. A context, so that completing a block does not remount what is in it. */
const Live = createContext(false);

const Block = memo(function Block({ text, definitions, live }: { text: string; definitions: string; live: boolean }) {
  return (
    <Live value={live}>
      <ReactMarkdown remarkPlugins={plugins} components={components}>
        {definitions ? `${text}\n\n${definitions}` : text}
      </ReactMarkdown>
    </Live>
  );
});

const components: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  ),
  // A picture in an answer would make the browser call an address the model chose; the reader decides instead.
  img: ({ src, alt }) =>
    typeof src === "string" && src !== "" ? (
      <a href={src} target="_blank" rel="noopener noreferrer">
        {alt || "Image"}
      </a>
    ) : (
      <>{alt}</>
    ),
  pre: ({ children }) => <Source>{children}</Source>,
  table: ({ children }) => (
    <div className="table" tabIndex={0} role="group" aria-label="Table">
      <table>{children}</table>
    </div>
  ),
  input: ({ checked }) => <input type="checkbox" checked={checked === true} readOnly disabled aria-label={checked ? "done" : "open"} />,
};

function Source({ children }: { children: ReactNode }) {
  const live = useContext(Live);
  const { code, language } = sourceOf(children);
  return <CodeBlock code={code} language={language} live={live} />;
}

function sourceOf(children: ReactNode): { code: string; language: string } {
  if (!isValidElement(children)) return { code: "", language: "" };
  const { className, children: content } = (children as ReactElement<{ className?: string; children?: unknown }>).props;
  const code = typeof content === "string" ? content.replace(/\n$/, "") : "";
  return { code, language: /(?:^|\s)language-(\S+)/.exec(className ?? "")?.[1] ?? "" };
}
