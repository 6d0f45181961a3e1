/** A question of the agent to the person, with the place to answer it. */
import { useEffect, useId, useState } from "react";
import { Offline } from "./approval";

type QuestionProps = {
  callId: string;
  question: string;
  online: boolean;
  onAnswer: (text: string) => void;
  onSkip: () => void;
};

/** What is being written is kept while the card is folded or another conversation is on screen. */
const drafts = new Map<string, string>();

export function Question({ callId, question, online, onAnswer, onSkip }: QuestionProps) {
  const [text, setText] = useState(() => drafts.get(callId) ?? "");
  const id = useId();
  const sendable = online && text.trim() !== "";

  useEffect(() => {
    if (text === "") drafts.delete(callId);
    else drafts.set(callId, text);
  }, [callId, text]);

  return (
    <form
      className="tool-answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (sendable) onAnswer(text.trim());
      }}
    >
      <label htmlFor={id} className="question" data-testid="question">
        {question === "" ? "The agent asks you for an answer." : question}
      </label>
      <input id={id} type="text" autoComplete="off" placeholder="Your answer" value={text} data-testid="answer" onChange={(event) => setText(event.target.value)} />
      <button type="submit" className="button primary" data-testid="answer-send" disabled={!sendable}>
        Answer
      </button>
      <button type="button" className="button quiet" data-testid="skip" disabled={!online} onClick={onSkip}>
        Skip
      </button>
      {!online && <Offline />}
    </form>
  );
}
