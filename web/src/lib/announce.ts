/** The page's one live region: what is written here is read out by a screen reader, once. */
export function announce(text: string): void {
  const region = document.getElementById("announcer");
  if (region) region.textContent = text;
}
