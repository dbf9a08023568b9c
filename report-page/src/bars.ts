// Shares side by side as bars: of moments from the first to the last, of waves from slow to fast.
import { s } from "./dom";
import { share } from "./format";
import { FULL_SHARE } from "./listening";

export interface Bars {
  parts: number[]; // in ten-thousandths
  kind: "moment" | "wave";
  told: (place: number) => string;
  ends: [string, string];
  x: number;
  width: number;
  top: number;
  bottom: number;
}

export function bars({ parts, kind, told, ends, x, width, top, bottom }: Bars): SVGGElement {
  const most = Math.max(1, ...parts);
  const step = width / parts.length;
  const marks = parts.map((part, m) => {
    const tall = ((bottom - top) * part) / most;
    const place = {
      x: (x + m * step).toFixed(1),
      y: (bottom - tall).toFixed(1),
      width: Math.max(1, step - 1.5).toFixed(1),
      height: tall.toFixed(1),
      [kind === "moment" ? "data-chunk" : "data-wave"]: m,
    };
    return s("rect", { class: kind, ...place }, s("title", {}, `${told(m)}: ${share(part / FULL_SHARE)}`));
  });
  const below = { class: "axis-name", y: bottom + 17 };
  return s(
    "g",
    {},
    ...marks,
    s("line", { class: "tick", x1: x, x2: x + width, y1: bottom + 0.5, y2: bottom + 0.5 }),
    s("text", { ...below, x }, ends[0]),
    s("text", { ...below, x: x + width, "text-anchor": "end" }, ends[1]),
    s(
      "text",
      { class: "axis-name", x, y: top - 6 },
      `up to ${share(most / FULL_SHARE)} in one of ${parts.length} ${kind}s`,
    ),
  );
}
