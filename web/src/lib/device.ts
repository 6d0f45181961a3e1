/** What the device is like, asked when it matters: a laptop may gain a touch screen or a setting in mid-visit. */

/** Whether the main way to point is a finger, which usually means a keyboard on the screen. */
export function isTouch(): boolean {
  return window.matchMedia("(pointer: coarse)").matches;
}

export function prefersReducedMotion(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}
