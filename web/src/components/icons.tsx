/** The page's line icons, drawn on one 20-unit grid; decorative, so hidden from assistive technology. */
import type { ReactNode } from "react";

function icon(children: ReactNode) {
  return function Icon({ size = 18 }: { size?: number }) {
    return (
      <svg width={size} height={size} viewBox="0 0 20 20" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true" focusable="false">
        {children}
      </svg>
    );
  };
}

export const ArrowUp = icon(<path d="M10 16V4.500M5 9.200l5-5 5 5" />);
export const ArrowDown = icon(<path d="M10 4v11.500M5 10.800l5 5 5-5" />);
export const Square = icon(<rect x="5.500" y="5.500" width="9" height="9" rx="1.800" fill="currentColor" stroke="none" />);
export const Paperclip = icon(<path d="m16 9.300-5.900 5.900a3.700 3.700 0 0 1-5.300-5.200l6-6a2.500 2.500 0 0 1 3.500 3.500l-5.900 5.900a1.200 1.200 0 0 1-1.800-1.700l5.400-5.400" />);
export const Plus = icon(<path d="M10 4v12M4 10h12" />);
export const Cross = icon(<path d="m5.500 5.500 9 9m0-9-9 9" />);
export const Copy = icon(<><rect x="7" y="7" width="9" height="9.500" rx="2" /><path d="M13 4.700a1.800 1.800 0 0 0-1.700-1.200H5.700A2.200 2.200 0 0 0 3.500 5.700v5.800c0 .8.500 1.500 1.200 1.700" /></>);
export const Check = icon(<path d="m4 10.500 4 4L16 6" />);
export const Refresh = icon(<path d="M15.900 8.300A6.200 6.200 0 1 0 16 12m.2-8v4.300H12" />);
export const Pencil = icon(<path d="m4 16 .8-3.400 8.400-8.400a1.600 1.600 0 0 1 2.300 0l.3.300a1.600 1.600 0 0 1 0 2.300l-8.400 8.400L4 16Zm7.600-10.200 2.600 2.600" />);
export const Trash = icon(<path d="M4 5.800h12M8 5.500V4.300c0-.4.400-.8.800-.8h2.400c.4 0 .8.400.8.800v1.200m2.400.3-.6 9c-.1.900-.8 1.700-1.800 1.700H8c-1 0-1.700-.8-1.800-1.700l-.6-9M8.500 9v4.500m3-4.500v4.500" />);
export const Chevron = icon(<path d="m7.500 5 5 5-5 5" />);
export const Menu = icon(<path d="M3.500 6h13m-13 4h13m-13 4h8" />);
export const Sun = icon(<><circle cx="10" cy="10" r="3.200" /><path d="M10 2.500v1.600m0 11.800v1.600M2.500 10h1.600m11.800 0h1.600M4.700 4.700l1.100 1.100m8.400 8.400 1.100 1.100m0-10.600-1.100 1.100m-8.400 8.400-1.100 1.100" /></>);
export const Moon = icon(<path d="M16.300 11.800A6.700 6.700 0 0 1 8.200 3.700a6.700 6.700 0 1 0 8.100 8.100Z" />);
export const Contrast = icon(<><circle cx="10" cy="10" r="6.500" /><path d="M10 3.500a6.500 6.500 0 0 1 0 13Z" fill="currentColor" stroke="none" /></>);
export const Wrench = icon(<path d="M16.500 6.300a3.700 3.700 0 0 1-5 4.700l-5.100 5.200a1.800 1.800 0 0 1-2.600-2.600L9 8.500a3.700 3.700 0 0 1 4.700-5l-2.200 2.300.4 2.300 2.300.4 2.300-2.200Z" />);
export const Bulb = icon(<path d="M7.500 13.300c0-1.100-.6-1.800-1.300-2.600a5 5 0 1 1 7.600 0c-.7.800-1.300 1.500-1.300 2.600m-5 0h5m-5 0v1.500c0 .9.700 1.700 1.700 1.700h1.600c1 0 1.700-.8 1.700-1.700v-1.500" />);
export const Clock = icon(<><circle cx="10" cy="10" r="6.500" /><path d="M10 6.300V10l2.500 1.700" /></>);
export const Alert = icon(<path d="M10 7.200v3.600m0 2.700v.1M8.700 3.800 2.900 13.700c-.6 1 .1 2.200 1.300 2.200h11.600c1.200 0 1.900-1.200 1.300-2.200L11.300 3.800a1.500 1.500 0 0 0-2.600 0Z" />);
export const File = icon(<path d="M11.500 3H6.700C5.800 3 5 3.800 5 4.700v10.600c0 .9.800 1.700 1.700 1.700h6.600c.9 0 1.700-.8 1.700-1.700V6.500L11.500 3Zm0 0v3.500H15" />);
export const External = icon(<path d="M8.500 5H5.800c-.7 0-1.300.6-1.300 1.300v7.900c0 .7.600 1.300 1.300 1.300h7.900c.7 0 1.300-.6 1.300-1.300v-2.700M11.500 4.500h4v4m0-4L9.500 10.500" />);
export const Sparkle = icon(<path d="M10 3.500c.6 3.800 2.700 5.900 6.500 6.500-3.800.6-5.900 2.700-6.500 6.500-.6-3.800-2.700-5.900-6.500-6.500 3.800-.6 5.900-2.700 6.500-6.500Z" />);
export const Key = icon(<path d="M12.800 3.500a3.700 3.700 0 1 0 0 7.400 3.700 3.700 0 0 0 0-7.400Zm-2.700 6.300L4 16m2-2 1.800 1.800M8 12l1.500 1.500" />);
export const Spinner = icon(<path className="spin" d="M10 3.500a6.500 6.500 0 1 1-6.500 6.500" />);
export const Question = icon(<><circle cx="10" cy="10" r="6.500" /><path d="M8.100 8.200a1.900 1.900 0 1 1 2.700 1.800c-.5.300-.8.600-.8 1.200v.2m0 2.100v.1" /></>);
export const Forward = icon(<path d="m4.500 5.500 4.500 4.500-4.500 4.500m6-9 4.500 4.500-4.500 4.500" />);
export const Note = icon(<path d="M5.200 3.500h9.600c.7 0 1.200.5 1.200 1.200v7.100L11.800 16H5.200c-.7 0-1.200-.5-1.200-1.200V4.700c0-.7.500-1.200 1.200-1.200ZM11.500 16v-3.200c0-.7.500-1.200 1.200-1.200H16M7 7h6m-6 3h3" />);
export const Plug = icon(<path d="M7.500 3v3.500m5-3.500v3.500M5.500 6.500h9v2.800a4.500 4.500 0 0 1-9 0V6.500Zm4.500 7.300V17" />);

export function Logo({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" fill="none" aria-hidden="true" focusable="false" className="logo">
      <path d="M4 17.500c3-5.300 7-8 12-8s9 2.700 12 8c-3 5.300-7 8-12 8s-9-2.700-12-8Z" stroke="currentColor" strokeWidth="2.400" strokeLinejoin="round" />
      <circle cx="16" cy="17.500" r="4.200" fill="var(--accent)" />
      <path d="M16 3v3M8.300 5l1.400 2.500M23.700 5l-1.400 2.500" stroke="var(--accent)" strokeWidth="2.200" strokeLinecap="round" />
    </svg>
  );
}
