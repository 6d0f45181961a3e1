/** Keeps a scroll area at its end while its content grows, but only as long as the reader is at the end. */
import { useCallback, useRef, useState } from "react";

const NEAR_END_PX = 48;

export type StickyScroll = {
  /** Attach to the scrolling element; its first child is taken as the content. */
  ref: (element: HTMLElement | null) => (() => void) | undefined;
  /** Whether newer content is out of sight. */
  away: boolean;
  toEnd: (behavior?: ScrollBehavior) => void;
  /** Runs a change that adds content above and keeps what the reader sees where it is. */
  keepPosition: (change: () => void) => void;
};

export function useStickyScroll(): StickyScroll {
  const scroller = useRef<HTMLElement | null>(null);
  const stuck = useRef(true);
  const [away, setAway] = useState(false);

  const ref = useCallback((element: HTMLElement | null) => {
    scroller.current = element;
    stuck.current = true;
    const content = element?.firstElementChild;
    if (!element || !content) return;
    let last = element.scrollTop;

    const onScroll = () => {
      const distance = element.scrollHeight - element.clientHeight - element.scrollTop;
      if (distance < NEAR_END_PX) stuck.current = true;
      // Growing content never moves scrollTop back: only the reader does.
      else if (element.scrollTop < last) stuck.current = false;
      last = element.scrollTop;
      setAway(!stuck.current);
    };
    const observer = new ResizeObserver(() => {
      if (stuck.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(content);
    observer.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      setAway(false);
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);

  const toEnd = useCallback((behavior: ScrollBehavior = "auto") => {
    stuck.current = true;
    setAway(false);
    const element = scroller.current;
    element?.scrollTo({ top: element.scrollHeight, behavior });
  }, []);

  const keepPosition = useCallback((change: () => void) => {
    const element = scroller.current;
    if (!element) return change();
    const fromEnd = element.scrollHeight - element.scrollTop;
    stuck.current = false;
    change();
    requestAnimationFrame(() => {
      element.scrollTop = element.scrollHeight - fromEnd;
    });
  }, []);

  return { ref, away, toEnd, keepPosition };
}
