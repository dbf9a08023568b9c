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
    class: `line bundle ${branchClass(stroke.branch, branches)}`,
    d: stroke.d,
    "stroke-width": stroke.width.toFixed(2),
    "stroke-opacity": 0.5,
  });
}

const TOGETHER = 16; // strokes in one element

// Few elements for many strokes, so that a picture answers at once; and not one for all, because a
// browser paints a page in tiles, and for every tile goes through all of an element that lies there.
export function together(strokes: Stroke[], branches: number, look: string): SVGPathElement[] {
  const groups: { width: number; branch: number; d: string[] }[] = [];
  const open = new Map<string, (typeof groups)[number]>();
  for (const { d, branch, width } of strokes) {
    const rounded = Math.max(0.8, Math.round(width * 2) / 2);
    const key = `${branch} ${rounded}`;
    let group = open.get(key);
    if (group === undefined || group.d.length >= TOGETHER) {
      group = { width: rounded, branch, d: [] };
      groups.push(group);
      open.set(key, group);
    }
    group.d.push(d);
  }
  return groups
    .sort((a, b) => b.width - a.width)
    .map(({ width, branch, d }) =>
      s("path", {
        class: `${look} ${branchClass(branch, branches)}`,
        d: d.join(""),
        "stroke-width": width,
        "data-lines": d.length,
      }),
    );
}

// The heads of a block. Those of later blocks are as wide as the picture of their attention: joints
// on the left are what they hear, joints on the right what they tell.
export function headBars(
  blocks: Span[][],
  space: Columns,
  told: (block: number, head: number) => string,
  gates: boolean,
): SVGGElement {
  const bar = (x: number, { top, bottom }: Span, name: string, width = space.headWidth): SVGRectElement =>
    s(
      "rect",
      {
        class: "head",
        x: x.toFixed(1),
        y: top.toFixed(1),
        width,
        height: Math.max(2, bottom - top).toFixed(1),
        rx: width / 2,
      },
      s("title", {}, name),
    );
  const bars = blocks.flatMap((heads, block) =>
    heads.flatMap((span) => {
      const name = told(block, span.head);
      const x = space.heads[block]!;
      if (block === 0 || !gates) return [bar(x, span, name)];
      const edge = space.narrow ? 2 : 3;
      return [bar(x - edge, span, name, edge), bar(x + space.gateWidth, span, name, edge)];
    }),
  );
  return s("g", { class: "heads", "aria-hidden": "true" }, ...bars);
}

// How many filters a head has, where its bundle opens.
export function filterBars(blocks: Span[][], filters: number[][], space: Columns): SVGGElement {
  const bars = blocks.flatMap((heads, block) => {
    const own = filters[block]!;
    const most = Math.max(1, ...own);
    return heads.map(({ head, top, bottom }) => {
      const tall = ((bottom - top) * own[head]!) / most;
      const place = {
        x: (space.filters[block]! - 1.5).toFixed(1),
        y: ((top + bottom - tall) / 2).toFixed(1),
        width: 3,
        height: Math.max(1, tall).toFixed(1),
        rx: 1.5,
      };
      return s("rect", { class: "filter-bar", ...place }, s("title", {}, several(own[head]!, "filter")));
    });
  });
  return s("g", { class: "filters", "aria-hidden": "true" }, ...bars);
}

// What the columns are, above them: joints, heads and filters of each block, classes.
export function headings(
  joints: string,
  blocks: [string, string][],
  classes: string,
  space: Columns,
): SVGGElement {
  const later = blocks.length > 1;
  const marks: [number, string][] = [[space.hand.x + space.hand.width / 2, joints]];
  blocks.forEach(([heads, filters], b) => {
    const width = b === 0 ? space.headWidth : space.gateWidth;
    // A phone has no room to name heads and filters of several blocks.
    if (later && space.narrow) marks.push([(space.heads[b]! + space.filters[b]!) / 2, `block ${b + 1}`]);
    else marks.push([space.heads[b]! + width / 2, heads], [space.filters[b]!, filters]);
  });
  marks.push([space.classes + (space.narrow ? 30 : 34), classes]);
  const texts = marks.map(([x, text], i) => {
    // Nor is there side by side, nor for the columns of several blocks.
    const inner = i > 0 && i < marks.length - 1;
    const low = later ? inner && i % 2 === 0 : space.narrow && i === 2;
    const look = { "text-anchor": "middle", "font-size": space.narrow ? 10 : 13 };
    return s("text", { x: x.toFixed(1), y: low ? 30 : 17, ...look }, text);
  });
  return s("g", { class: "headings", "aria-hidden": "true" }, ...texts);
}
