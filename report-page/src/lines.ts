// Every live connection as a line.
import type { Network, Paths, Skeleton } from "./data";
import type { Columns } from "./columns";
import { grouped, ordered, type Link, type Order, type Unit } from "./order";
import { members } from "./sets";
import type { Span } from "./strokes";
import { along, type Times } from "./times";

export interface Line {
  d: string;
  kind: "attention" | "convolution" | "dense";
  branch: number;
  level: number; // 0 to 1
  joints: Uint8Array;
  classes: Uint8Array;
}

export interface Drawn {
  lines: Line[];
  heads: Span[][]; // of each block
  filters: { x: number; y: number; joints: Uint8Array; classes: Uint8Array; branch: number }[];
  classY: number[];
}

const weight = (level: number): number => 10 ** (level / 25);

// Class rows in the given order, spread over the height.
export function rowsOf(order: number[], columns: Columns): number[] {
  const step = (columns.bottom - columns.top) / order.length;
  const y: number[] = [];
  order.forEach((label, i) => (y[label] = columns.top + step * (i + 0.5)));
  return y;
}

export function heights(network: Network, skeleton: Skeleton): number[] {
  return network.joints.map((shares) => {
    const whole = shares.reduce((a, b) => a + b, 0);
    return whole ? shares.reduce((sum, part, joint) => sum + part * skeleton.pose[joint]![1], 0) / whole : 1;
  });
}

export function lines(
  network: Network,
  drawing: Paths,
  skeleton: Skeleton,
  columns: Columns,
  places: [number, number][],
  times: Times,
): Drawn {
  const [joints, classes] = [skeleton.joints.length, network.joints.length];
  const jointSets = drawing.joint_sets.map((text) => members(text, joints));
  const classSets = drawing.class_sets.map((text) => members(text, classes));
  const key = (head: number, filter: number): string => (drawing.summed ? `${filter}` : `${head}:${filter}`);
  const before = (channel: number): string =>
    drawing.summed ? `${channel}` : `${Math.floor(channel / drawing.filters)}:${channel % drawing.filters}`;
  const units = drawing.convolutions.map((rows, block) => [
    ...new Map(
      rows.map(
        ([k, , f]) =>
          [key(k!, f!), { key: key(k!, f!), head: drawing.summed ? 0 : k!, block }] as [string, Unit],
      ),
    ).values(),
  ]);
  const links: Link[][] = drawing.convolutions
    .slice(1)
    .map((rows) =>
      rows.map(([k, c, f, level]) => ({ from: before(c!), to: key(k!, f!), weight: weight(level!) })),
    );
  links.push(
    drawing.dense.map(([k, f, , o, level]) => ({ from: key(k!, f!), to: String(o), weight: weight(level!) })),
  );
  const order = ordered(units, links, heights(network, skeleton));
  const classY = rowsOf(order.classes, columns);
  const filterY = spread(order, columns);
  const heads = drawing.convolutions.map((_, block) => headSpans(drawing, order, filterY, columns, block));
  const spans = heads.map((list) => new Map(list.map((span) => [span.head, span])));
  const inSpan = (span: Span, part: number): number => span.top + part * (span.bottom - span.top);
  const found: Line[] = [];
  const add = (kind: Line["kind"], d: string, row: number[], at: number): void => {
    found.push({
      d,
      kind,
      level: row[at]! / 99,
      branch: row[at + 1]!,
      joints: jointSets[row[at + 2]!]!,
      classes: classSets[row[at + 3]!]!,
    });
  };
  const jointAt = (joint: number): number => (joint + 0.5) / joints;
  drawing.attentions.forEach((rows, block) => {
    const left = columns.heads[block]!;
    for (const row of rows) {
      const span = spans[block]!.get(row[0]!);
      if (span === undefined) continue;
      const to = inSpan(span, jointAt(row[1]!));
      const [x, y] = places[row[2]!]!;
      if (block === 0) add("attention", curve(x, y, left, to, 0), row, 3);
      else {
        // Within the head, from the joint on its left to the joint on its right.
        const from = inSpan(span, jointAt(row[2]!));
        add("attention", curve(left, from, left + columns.gateWidth, to, 0), row, 3);
      }
    }
  });
  drawing.convolutions.forEach((rows, block) => {
    const entry =
      block === 0 ? null : entries(rows, spans[block]!, (c) => filterY[block - 1]!.get(before(c)));
    for (const row of rows) {
      const [x, y] = [columns.filters[block]!, filterY[block]!.get(key(row[0]!, row[2]!))!];
      if (entry === null) {
        const from = inSpan(spans[0]!.get(row[0]!)!, along(times, row[1]!));
        add("convolution", curve(columns.heads[0]! + columns.headWidth, from, x, y, 0), row, 3);
        continue;
      }
      const from = filterY[block - 1]!.get(before(row[1]!));
      const through = entry.get(`${row[0]} ${row[1]}`);
      if (from === undefined || through === undefined) continue;
      const left = columns.heads[block]!;
      const d =
        curve(columns.filters[block - 1]!, from, left, through, 0) +
        curve(left + columns.gateWidth, through, x, y, 0);
      add("convolution", d, row, 3);
    }
  });
  const last = drawing.convolutions.length - 1;
  for (const row of drawing.dense) {
    const from = filterY[last]!.get(key(row[0]!, row[1]!));
    // Lines of one filter at several joints would lie on each other: they part on the way.
    const aside = (row[2]! / Math.max(1, joints - 1) - 0.5) * 16;
    if (from !== undefined)
      add("dense", curve(columns.filters[last]!, from, columns.classes, classY[row[3]!]!, aside), row, 4);
  }
  return { lines: found, heads, filters: dots(drawing, key, filterY, columns, jointSets, classSets), classY };
}

// Where what comes from a filter passes through a head of a later block: in the order of the filters,
// so that lines cross little.
function entries(
  rows: number[][],
  spans: Map<number, Span>,
  height: (channel: number) => number | undefined,
): Map<string, number> {
  const found = new Map<string, number>();
  for (const [head, own] of grouped(rows, (row) => String(row[0]))) {
    const channels = [...new Set(own.map((row) => row[1]!))].sort(
      (a, b) => (height(a) ?? 0) - (height(b) ?? 0),
    );
    const span = spans.get(Number(head));
    if (span === undefined) continue;
    channels.forEach((channel, i) =>
      found.set(`${head} ${channel}`, span.top + ((i + 0.5) / channels.length) * (span.bottom - span.top)),
    );
  }
  return found;
}

export function curve(x1: number, y1: number, x2: number, y2: number, aside: number): string {
  const bend = (x2 - x1) * 0.46;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${(x1 + bend).toFixed(1)} ${(y1 + aside).toFixed(1)} ${(x2 - bend).toFixed(1)} ${(y2 + aside).toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

function spread(order: Order, columns: Columns): Map<string, number>[] {
  return order.filters.map((units) => {
    const groups = [...grouped(units, (unit) => String(unit.head)).values()];
    const gap = groups.length > 1 ? Math.min(12, (0.25 * (columns.bottom - columns.top)) / groups.length) : 0;
    const step = (columns.bottom - columns.top - gap * (groups.length - 1)) / units.length;
    const found = new Map<string, number>();
    let y = columns.top;
    for (const group of groups) {
      for (const unit of group) {
        found.set(unit.key, y + step / 2);
        y += step;
      }
      y += gap;
    }
    return found;
  });
}

// A head is as tall as the filters behind it, and a little less, so that heads stand apart.
function headSpans(
  drawing: Paths,
  order: Order,
  filterY: Map<string, number>[],
  columns: Columns,
  block: number,
): Span[] {
  const heads = drawing.summed
    ? [...new Set(drawing.convolutions[block]!.map((row) => row[0]!))].sort((a, b) => a - b)
    : [...new Set(order.filters[block]!.map((unit) => unit.head))];
  if (drawing.summed) {
    const step = (columns.bottom - columns.top) / heads.length;
    return heads.map((head, i) => ({
      head,
      top: columns.top + i * step + step * 0.15,
      bottom: columns.top + (i + 1) * step - step * 0.15,
    }));
  }
  return heads.map((head) => {
    const own = order.filters[block]!.filter((unit) => unit.head === head).map((unit) =>
      filterY[block]!.get(unit.key)!,
    );
    const [low, high] = [Math.min(...own), Math.max(...own)];
    const middle = (low + high) / 2;
    const half = Math.max(5, ((high - low) / 2) * 0.9);
    return { head, top: middle - half, bottom: middle + half };
  });
}

function dots(
  drawing: Paths,
  key: (head: number, filter: number) => string,
  filterY: Map<string, number>[],
  columns: Columns,
  jointSets: Uint8Array[],
  classSets: Uint8Array[],
): Drawn["filters"] {
  return drawing.convolutions.flatMap((rows, block) =>
    [...grouped(rows, (row) => key(row[0]!, row[2]!))].map(([name, own]) => {
      const union = (sets: Uint8Array[], at: number): Uint8Array => {
        const found = new Uint8Array(sets[0]?.length ?? 0);
        for (const row of own) sets[row[at]!]!.forEach((member, i) => (found[i]! |= member));
        return found;
      };
      const strongest = own.reduce((a, b) => (a[3]! >= b[3]! ? a : b));
      return {
        x: columns.filters[block]!,
        y: filterY[block]!.get(name)!,
        joints: union(jointSets, 5),
        classes: union(classSets, 6),
        branch: strongest[4]!,
      };
    }),
  );
}
