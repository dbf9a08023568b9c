// The marks that the picture of a network is made of.
import type { Columns } from "./columns";
import { s } from "./dom";
import { several } from "./format";
import type { Line } from "./lines";
import { branchClass } from "./palette";

export interface Stroke {
  d: string;
  branch: number;
  width: number;
}

export interface Span {
  head: number;
  top: number;
  bottom: number;
}

// One connection: the more runs through it, the wider and the stronger.
export function thread(line: Line, branches: number, scale: number): SVGPathElement {
  return s("path", {
    class: `line ${branchClass(line.branch, branches)}`,
    d: line.d,
    "stroke-width": (scale * (0.45 + 2.3 * line.level ** 2.2)).toFixed(2),
    "stroke-opacity": (0.2 + 0.62 * line.level ** 1.3).toFixed(2),
  });
}

export function bundleStroke(stroke: Stroke, branches: number): SVGPathElement {
  return s("path", {
    class: `line ${branchClass(stroke.branch, branches)}`,
    d: stroke.d,
    "stroke-width": stroke.width.toFixed(2),
    "stroke-opacity": 0.5,
  });
}

// Few elements for many strokes, so that a picture answers at once.
export function together(strokes: Stroke[], branches: number): SVGPathElement[] {
  const groups = new Map<string, { width: number; branch: number; d: string[] }>();
  for (const { d, branch, width } of strokes) {
    const rounded = Math.max(0.8, Math.round(width * 2) / 2);
    const key = `${branch} ${rounded}`;
    const group = groups.get(key) ?? { width: rounded, branch, d: [] };
    group.d.push(d);
    groups.set(key, group);
  }
  return [...groups.values()]
    .sort((a, b) => b.width - a.width)
    .map(({ width, branch, d }) =>
      s("path", {
        class: `lit-line ${branchClass(branch, branches)}`,
        d: d.join(""),
        "stroke-width": width,
        "data-lines": d.length,
      }),
    );
}

export function headBars(heads: Span[], space: Columns): SVGGElement {
  const bars = heads.map(({ head, top, bottom }) =>
    s(
      "rect",
      {
        class: "head",
        x: space.heads,
        y: top.toFixed(1),
        width: space.headWidth,
        height: Math.max(2, bottom - top).toFixed(1),
        rx: space.headWidth / 2,
      },
      s("title", {}, `head ${head + 1}`),
    ),
  );
  return s("g", { class: "heads", "aria-hidden": "true" }, ...bars);
}

// How many filters a head has, where its bundle opens.
export function filterBars(heads: Span[], filters: number[], space: Columns): SVGGElement {
  const most = Math.max(1, ...filters);
  const bars = heads.map(({ head, top, bottom }) => {
    const tall = ((bottom - top) * filters[head]!) / most;
    const place = {
      x: (space.filters[0]! - 1.5).toFixed(1),
      y: ((top + bottom - tall) / 2).toFixed(1),
      width: 3,
      height: Math.max(1, tall).toFixed(1),
      rx: 1.5,
    };
    return s("rect", { class: "filter-bar", ...place }, s("title", {}, several(filters[head]!, "filter")));
  });
  return s("g", { class: "filters", "aria-hidden": "true" }, ...bars);
}

// What the columns are, above them: joints, heads, filters, classes.
export function headings(texts: string[], space: Columns): SVGGElement {
  const middle = space.filters.reduce((a, b) => a + b, 0) / space.filters.length;
  const at = [
    space.hand.x + space.hand.width / 2,
    space.heads + space.headWidth / 2,
    middle,
    space.classes + (space.narrow ? 30 : 34),
  ];
  const marks = texts.map((text, i) => {
    const y = space.narrow && i === 2 ? 30 : 17; // there is no room side by side on a phone
    const look = { "text-anchor": "middle", "font-size": space.narrow ? 10 : 13 };
    return s("text", { x: at[i]!.toFixed(1), y, ...look }, text);
  });
  return s("g", { class: "headings", "aria-hidden": "true" }, ...marks);
}
