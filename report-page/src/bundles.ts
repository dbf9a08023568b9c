// A network with too many connections to tell apart: joints, heads and classes, joined by bundles.
import type { Bundles, Network, Skeleton } from "./data";
import type { Columns } from "./columns";
import { unpacked } from "./dom";
import { curve, heights, rowsOf } from "./lines";

export interface Bundle {
  d: string;
  from: "joint" | "head";
  joint: number; // -1 for bundles behind a head
  head: number;
  label: number; // -1 for bundles before a head
  branch: number;
  width: number;
}

export interface Bundled {
  shown: Bundle[];
  all: number;
  carried: number; // the part of all flow that is drawn
  heads: { head: number; top: number; bottom: number }[];
  classY: number[];
  // Bundles of one class, or of one joint, as wide as their part of it.
  ofClass: (label: number) => Bundle[];
  ofJoint: (joint: number) => Bundle[];
}

const MOST = 1500;
const DRAWN = 0.95;

export function bundled(
  network: Network,
  drawing: Bundles,
  skeleton: Skeleton,
  columns: Columns,
  places: [number, number][],
): Bundled {
  const [classes, joints, heads] = drawing.bundles.shape as [number, number, number];
  const raw = unpacked(drawing.bundles.bytes);
  const flow = Float64Array.from(raw, (byte) => (byte / 255) ** 2 * drawing.bundles.largest);
  const at = (o: number, j: number, k: number): number => flow[(o * joints + j) * heads + k]!;
  const before = table(joints, heads);
  const behind = table(heads, classes);
  const branches = table(heads, Math.max(...skeleton.branches) + 1);
  for (let o = 0; o < classes; o++)
    for (let j = 0; j < joints; j++)
      for (let k = 0; k < heads; k++) {
        const part = at(o, j, k);
        before[j]![k]! += part;
        behind[k]![o]! += part;
        branches[k]![skeleton.branches[j]!]! += part;
      }
  const tall = heights(network, skeleton);
  const orderedClasses = tall.map((_, o) => o).sort((a, b) => tall[a]! - tall[b]!);
  const classY = rowsOf(orderedClasses, columns);
  const flows = behind.map((row) => row.reduce((a, b) => a + b, 0));
  const used = flows.map((_, k) => k).filter((k) => flows[k]! > 0);
  const centre = (k: number): number =>
    behind[k]!.reduce((sum, part, o) => sum + part * classY[o]!, 0) / flows[k]!;
  used.sort((a, b) => centre(a) - centre(b));
  const spans = stacked(used, flows, columns);
  const span = new Map(spans.map((one) => [one.head, one]));
  const strongest = (k: number): number => branches[k]!.indexOf(Math.max(...branches[k]!));
  const right = columns.heads + columns.headWidth;
  // Along a head, what comes in lies as joints do, what goes out as classes do, each as wide as it is.
  const byHeight = places.map((_, j) => j).sort((a, b) => places[a]![1] - places[b]![1]);
  const into = new Map(used.map((k) => [k, along(byHeight, (j) => before[j]![k]!, span.get(k)!)]));
  const outOf = new Map(used.map((k) => [k, along(orderedClasses, (o) => behind[k]![o]!, span.get(k)!)]));
  const filtersAt = columns.filters[0]!;
  const ofBefore = (j: number, k: number, width: number): Bundle => ({
    d: curve(places[j]![0], places[j]![1], columns.heads, into.get(k)![j]!, 0),
    from: "joint",
    joint: j,
    head: k,
    label: -1,
    branch: skeleton.branches[j]!,
    width,
  });
  const ofBehind = (k: number, o: number, width: number, branch = strongest(k)): Bundle => {
    const y = outOf.get(k)![o]!;
    const opened = curve(filtersAt, y, columns.classes, classY[o]!, 0).replace(/^M[^C]*/, "");
    return {
      d: `M${right.toFixed(1)} ${y.toFixed(1)}H${filtersAt.toFixed(1)}${opened}`,
      from: "head",
      joint: -1,
      head: k,
      label: o,
      branch,
      width,
    };
  };

  const candidates: { flow: number; make: (width: number) => Bundle }[] = [];
  for (let j = 0; j < joints; j++)
    for (const k of used) candidates.push({ flow: before[j]![k]!, make: (width) => ofBefore(j, k, width) });
  for (const k of used)
    for (let o = 0; o < classes; o++)
      candidates.push({ flow: behind[k]![o]!, make: (width) => ofBehind(k, o, width) });
  const real = candidates.filter((one) => one.flow > 0).sort((a, b) => b.flow - a.flow);
  const whole = real.reduce((sum, one) => sum + one.flow, 0);
  const height = spans.reduce((sum, one) => sum + one.bottom - one.top, 0);
  const shown: Bundle[] = [];
  let carried = 0;
  for (const one of real) {
    if (shown.length >= MOST || carried > DRAWN * whole) break;
    shown.push(one.make(Math.max(0.3, (one.flow / (whole / 2)) * height)));
    carried += one.flow;
  }
  const part = (value: number): number => 0.6 + 16 * Math.sqrt(value);
  return {
    shown,
    all: real.length,
    carried: whole > 0 ? carried / whole : 1,
    heads: spans,
    classY,
    ofClass: (label) => {
      const found: Bundle[] = [];
      for (const k of used) {
        const byBranch = branches[k]!.map(() => 0);
        let sum = 0;
        for (let j = 0; j < joints; j++) {
          const value = at(label, j, k);
          sum += value;
          byBranch[skeleton.branches[j]!]! += value;
          if (value > 0.001) found.push(ofBefore(j, k, part(value)));
        }
        if (sum > 0.001) found.push(ofBehind(k, label, part(sum), byBranch.indexOf(Math.max(...byBranch))));
      }
      return found;
    },
    ofJoint: (joint) => {
      const sum = before[joint]!.reduce((a, b) => a + b, 0) || 1;
      const found: Bundle[] = [];
      for (const k of used) {
        if (before[joint]![k]! / sum > 0.002) found.push(ofBefore(joint, k, part(before[joint]![k]! / sum)));
        for (let o = 0; o < classes; o++)
          if (at(o, joint, k) / sum > 0.002)
            found.push(ofBehind(k, o, part(at(o, joint, k) / sum), skeleton.branches[joint]!));
      }
      return found;
    },
  };
}

// The middle of each part's own stretch of a span.
function along(
  order: number[],
  value: (item: number) => number,
  span: { top: number; bottom: number },
): number[] {
  const whole = order.reduce((sum, item) => sum + value(item), 0) || 1;
  const found: number[] = [];
  let y = span.top;
  for (const item of order) {
    const tall = ((span.bottom - span.top) * value(item)) / whole;
    found[item] = y + tall / 2;
    y += tall;
  }
  return found;
}

function table(rows: number, columns: number): number[][] {
  return Array.from({ length: rows }, () => new Array<number>(columns).fill(0));
}

function stacked(used: number[], flows: number[], columns: Columns): Bundled["heads"] {
  const whole = used.reduce((sum, k) => sum + flows[k]!, 0) || 1;
  const gap = Math.min(14, (0.3 * (columns.bottom - columns.top)) / Math.max(1, used.length));
  const room = columns.bottom - columns.top - gap * (used.length - 1) - 6 * used.length;
  let y = columns.top;
  return used.map((head) => {
    const tall = 6 + (room * flows[head]!) / whole;
    const found = { head, top: y, bottom: y + tall };
    y += tall + gap;
    return found;
  });
}
