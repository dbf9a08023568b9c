// A network with too many connections to tell apart: joints, the heads of each block and classes,
// joined by bundles.
import type { Bundles, Network, Quantised, Skeleton } from "./data";
import type { Columns } from "./columns";
import { unpacked } from "./dom";
import { curve, heights, rowsOf } from "./lines";
import type { Span } from "./strokes";

export interface Bundle {
  d: string;
  branch: number;
  width: number;
}

export interface Bundled {
  shown: Bundle[];
  all: number;
  carried: number; // the part of all flow that is drawn
  heads: Span[][]; // of each block
  classY: number[];
  // Bundles of one class, or of one joint, as wide as their part of it.
  ofClass: (label: number) => Bundle[];
  ofJoint: (joint: number) => Bundle[];
}

const MOST = 1500;
const DRAWN = 0.95; // of all that flows
const LIT = 0.85; // of what flows to a class, or from a joint

interface Link {
  flow: number;
  make: (width: number) => Bundle;
}
type Table = number[][];
type Cube = (a: number, b: number, c: number) => number;

export function bundled(
  network: Network,
  drawing: Bundles,
  skeleton: Skeleton,
  columns: Columns,
  places: [number, number][],
): Bundled {
  const [classes, joints] = drawing.blocks[0]!.flow.shape as [number, number];
  const flows = drawing.blocks.map((block) => cube(block.flow)); // class, joint, head
  const count = drawing.blocks.map((block) => block.flow.shape[2]!);
  const ofClass = drawing.blocks.map((block) => (block.of_class ? cube(block.of_class) : null));
  const ofJoint = drawing.blocks.map((block) => (block.of_joint ? cube(block.of_joint) : null));
  const last = flows.length - 1;
  const branchCount = Math.max(...skeleton.branches) + 1;

  // Between columns: joints to heads, heads to heads, heads to classes.
  const tables = (own: (o: number, j: number) => boolean, between: (block: number) => Table): Table[] => {
    const first = table(joints, count[0]!);
    const end = table(count[last]!, classes);
    for (let o = 0; o < classes; o++)
      for (let j = 0; j < joints; j++) {
        if (!own(o, j)) continue;
        for (let k = 0; k < count[0]!; k++) first[j]![k]! += flows[0]!(o, j, k);
        for (let k = 0; k < count[last]!; k++) end[k]![o]! += flows[last]!(o, j, k);
      }
    return [first, ...flows.slice(1).map((_, i) => between(i + 1)), end];
  };
  const sliced = (values: Cube | null | undefined, at: number[], block: number): Table => {
    const found = table(count[block - 1]!, count[block]!);
    for (const i of at)
      found.forEach((row, h) => row.forEach((_, k) => (row[k]! += values ? values(i, h, k) : 0)));
    return found;
  };
  const every = [...Array(classes).keys()];
  const whole = tables(
    () => true,
    (block) => sliced(ofClass[block], every, block),
  );
  // Of each head the branch that it carries more of than the others do.
  const marked = (block: number, labels: number[]): number[] => {
    const found = table(count[block]!, branchCount);
    for (const o of labels)
      for (let j = 0; j < joints; j++)
        found.forEach((row, k) => (row[skeleton.branches[j]!]! += flows[block]!(o, j, k)));
    const shares = (row: number[]): number[] => {
      const sum = row.reduce((a, b) => a + b, 0) || 1;
      return row.map((part) => part / sum);
    };
    const usual = shares(found[0]!.map((_, b) => found.reduce((sum, row) => sum + row[b]!, 0)));
    return found.map((row) => {
      const more = shares(row).map((part, b) => part - usual[b]! + 1e-6 * part);
      return more.indexOf(Math.max(...more));
    });
  };

  const tall = heights(network, skeleton);
  const orderedClasses = tall.map((_, o) => o).sort((a, b) => tall[a]! - tall[b]!);
  const classY = rowsOf(orderedClasses, columns);
  // From the classes back, each head at the height of what it leads to.
  const spans: Span[][] = [];
  for (let block = last; block >= 0; block--) {
    const behind = whole[block + 1]!;
    const middle = (k: number): number => {
      const y = (i: number): number => {
        const span = spans[0]?.find((one) => one.head === i);
        return block === last ? classY[i]! : span ? (span.top + span.bottom) / 2 : 0;
      };
      const sum = behind[k]!.reduce((a, b) => a + b, 0);
      return behind[k]!.reduce((a, part, i) => a + part * y(i), 0) / sum;
    };
    const sums = behind.map((row) => row.reduce((a, b) => a + b, 0));
    const used = sums.map((_, k) => k).filter((k) => sums[k]! > 0);
    used.sort((a, b) => middle(a) - middle(b));
    spans.unshift(stacked(used, sums, columns));
  }
  const order = spans.map((list) => list.map((span) => span.head));

  // Along a head, what comes in lies as it comes, what goes out as it goes, each as wide as it is.
  const byHeight = places.map((_, j) => j).sort((a, b) => places[a]![1] - places[b]![1]);
  const into = spans.map((list, block) =>
    lookup(list, (span) =>
      along(block === 0 ? byHeight : order[block - 1]!, (i) => whole[block]![i]![span.head]!, span),
    ),
  );
  const outOf = spans.map((list, block) =>
    lookup(list, (span) =>
      along(
        block === last ? orderedClasses : order[block + 1]!,
        (i) => whole[block + 1]![span.head]![i]!,
        span,
      ),
    ),
  );
  const path = (stage: number, from: number, to: number): string => {
    if (stage === 0) {
      const [x, y] = places[from]!;
      return curve(x, y, columns.heads[0]!, into[0]!.get(to)![from]!, 0);
    }
    const y = outOf[stage - 1]!.get(from)![to]!;
    const left = columns.heads[stage - 1]! + columns.headWidth;
    const opens = columns.filters[stage - 1]!;
    const [x2, y2] =
      stage > last ? [columns.classes, classY[to]!] : [columns.heads[stage]!, into[stage]!.get(to)![from]!];
    const opened = curve(opens, y, x2, y2, 0).replace(/^M[^C]*/, "");
    return `M${left.toFixed(1)} ${y.toFixed(1)}H${opens.toFixed(1)}${opened}`;
  };

  // All links of these tables that carry anything, the widest first.
  const links = (found: Table[], branch: (stage: number, from: number) => number): Link[] => {
    const made = found.flatMap((rows, stage) =>
      rows.flatMap((row, from) =>
        row.flatMap((flow, to) => {
          if (flow <= 0) return [];
          const make = (width: number): Bundle => ({
            d: path(stage, from, to),
            branch: branch(stage, from),
            width,
          });
          return [{ flow, make }];
        }),
      ),
    );
    return made.sort((a, b) => b.flow - a.flow);
  };
  const colour = (labels: number[]) => {
    const known = flows.map((_, block) => marked(block, labels));
    return (stage: number, from: number): number =>
      stage === 0 ? skeleton.branches[from]! : known[stage - 1]![from]!;
  };
  const real = links(whole, colour(every));
  const all = total(real);
  const height = spans[0]!.reduce((sum, one) => sum + one.bottom - one.top, 0);
  const strong = strongestOf(real, DRAWN);
  const shown = strong.map((one) => one.make(Math.max(0.3, (one.flow / (all / whole.length)) * height)));
  // Of what is lit, too: hundreds of hairs would take a browser longer to paint than all the rest.
  const lit = (found: Link[]): Bundle[] => {
    const sum = total(found) / whole.length || 1;
    return strongestOf(found, LIT).map((one) => one.make(0.6 + 16 * Math.sqrt(one.flow / sum)));
  };
  return {
    shown,
    all: real.length,
    carried: all > 0 ? total(strong) / all : 1,
    heads: spans,
    classY,
    ofClass: (label) => {
      const own = tables(
        (o) => o === label,
        (block) => sliced(ofClass[block], [label], block),
      );
      return lit(links(own, colour([label])));
    },
    ofJoint: (joint) => {
      const own = tables(
        (_, j) => j === joint,
        (block) => sliced(ofJoint[block], [joint], block),
      );
      const branch = skeleton.branches[joint]!;
      return lit(links(own, () => branch));
    },
  };
}

function total(links: Link[]): number {
  return links.reduce((sum, one) => sum + one.flow, 0);
}

// The widest of them, which come first, as far as they carry most of it all.
function strongestOf(links: Link[], part: number): Link[] {
  const enough = part * total(links);
  let carried = 0;
  return links.slice(0, MOST).filter((one) => {
    const wanted = carried <= enough;
    carried += one.flow;
    return wanted;
  });
}

function cube({ shape, bytes, largest }: Quantised): Cube {
  const raw = unpacked(bytes);
  const flow = Float64Array.from(raw, (byte) => (byte / 255) ** 2 * largest);
  return (a, b, c) => flow[(a * shape[1]! + b) * shape[2]! + c]!;
}

function lookup<T>(list: Span[], of: (span: Span) => T): Map<number, T> {
  return new Map(list.map((span) => [span.head, of(span)]));
}

// The middle of each part's own stretch of a span.
function along(order: number[], value: (item: number) => number, span: Span): number[] {
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

function table(rows: number, columns: number): Table {
  return Array.from({ length: rows }, () => new Array<number>(columns).fill(0));
}

function stacked(used: number[], flows: number[], columns: Columns): Span[] {
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
