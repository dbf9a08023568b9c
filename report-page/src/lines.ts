// Every live connection as a line.
import type { Network, Paths, Skeleton } from "./data";
import type { Columns } from "./columns";
import { grouped, ordered, type Link, type Order, type Unit } from "./order";
import { members } from "./sets";

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
  heads: { head: number; top: number; bottom: number }[];
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
  moments: number[],
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
  const heads = headSpans(drawing, order, filterY, columns);
  const spans = new Map(heads.map((span) => [span.head, span]));
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
  for (const row of drawing.attention) {
    const span = spans.get(row[0]!);
    const [x, y] = places[row[2]!]!;
    if (span)
      add(
        "attention",
        curve(x, y, columns.heads, span.top + ((row[1]! + 0.5) / joints) * (span.bottom - span.top), 0),
        row,
        3,
      );
  }
  const chunks = 1 + Math.max(...moments);
  drawing.convolutions.forEach((rows, block) => {
    for (const row of rows) {
      const to = filterY[block]!.get(key(row[0]!, row[2]!))!;
      if (block === 0) {
        const span = spans.get(row[0]!)!;
        const from =
          span.top +
          ((moments[Math.floor(row[1]! / 3)]! + ((row[1]! % 3) + 0.5) / 3) / chunks) *
            (span.bottom - span.top);
        add(
          "convolution",
          curve(columns.heads + columns.headWidth, from, columns.filters[0]!, to, 0),
          row,
          3,
        );
      } else {
        const from = filterY[block - 1]!.get(before(row[1]!));
        if (from !== undefined)
          add(
            "convolution",
            curve(columns.filters[block - 1]!, from, columns.filters[block]!, to, 0),
            row,
            3,
          );
      }
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
): Drawn["heads"] {
  const heads = drawing.summed
    ? [...new Set(drawing.convolutions[0]!.map((row) => row[0]!))].sort((a, b) => a - b)
    : order.heads;
  if (drawing.summed) {
    const step = (columns.bottom - columns.top) / heads.length;
    return heads.map((head, i) => ({
      head,
      top: columns.top + i * step + step * 0.15,
      bottom: columns.top + (i + 1) * step - step * 0.15,
    }));
  }
  return heads.map((head) => {
    const own = order.filters[0]!.filter((unit) => unit.head === head).map((unit) =>
      filterY[0]!.get(unit.key)!,
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
