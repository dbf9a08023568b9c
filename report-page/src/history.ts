// How a network was trained and pruned: score, loss and what is kept, over the steps of the run.
import type { HistoryRow } from "./data";
import { s } from "./dom";
import type { Table } from "./download";
import { canvas, Figure } from "./figure";
import { count, plain } from "./format";
import { linear, logarithmic, steps, type Scale } from "./scale";

const TALL = 150; // of one chart
const GAP = 34;

interface Line {
  name: string;
  points: [number, number][];
  logarithmic: boolean;
  stairs: boolean;
}

export function historyFigure(rows: HistoryRow[]): Figure {
  return new Figure({
    id: "history",
    title: () => "The run",
    about: () =>
      "Over the optimizer steps. The loss is that of training, the mean since the last point. Vertical lines separate the phases.",
    synthetic: null,
    draw: (width) => drawn(rows, width),
    table: () => table(rows),
    wide: true,
  });
}

function lines(rows: HistoryRow[]): Line[] {
  const scores = rows.filter((row) => row.score !== null);
  const of = (name: string, points: [number, number][], more: Partial<Line> = {}): Line => ({
    name,
    points,
    logarithmic: false,
    stairs: false,
    ...more,
  });
  const kept = of(
    "connections kept (logarithmic)",
    rows.map((row) => [row.step, row.kept]),
    { logarithmic: true, stairs: true },
  );
  const loss = of(
    "loss",
    rows.map((row) => [row.step, row.loss]),
  );
  const score = of(
    "score on validation data",
    scores.map((row) => [row.step, row.score!]),
  );
  return scores.length > 0 ? [score, loss, kept] : [loss, kept];
}

function drawn(rows: HistoryRow[], width: number): SVGSVGElement {
  const all = lines(rows);
  const svg = canvas(width, all.length * (TALL + GAP) + 30, "chart");
  const box = { left: 64, right: width - 14 };
  const last = Math.max(1, ...rows.map((row) => row.step));
  const x = linear([0, last], [box.left, box.right]);
  const ends = rows.filter((row, i) => rows[i + 1]?.phase !== row.phase);
  all.forEach((line, i) => {
    const top = 22 + i * (TALL + GAP);
    const bottom = top + TALL;
    const values = line.points.map(([, value]) => value);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const y: Scale = line.logarithmic
      ? logarithmic([Math.max(low, 1), Math.max(high, 2)], [bottom, top])
      : linear([low, high === low ? low + 1 : high], [bottom, top]);
    const axes = s("g", { class: "axes", "aria-hidden": "true" });
    const ticks = line.logarithmic ? powers(low, high) : steps(low, high, 4);
    for (const tick of ticks)
      axes.append(
        s("line", { class: "rule", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
        s(
          "text",
          { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" },
          tick >= 1000 ? count(tick) : plain(tick),
        ),
      );
    axes.append(s("text", { class: "axis-name", x: 2, y: top - 9 }, line.name));
    svg.append(axes);
    for (const end of ends.slice(0, -1))
      svg.append(s("line", { class: "dense-line", x1: x(end.step), x2: x(end.step), y1: top, y2: bottom }));
    const path = line.points
      .map(([step, value], at) => {
        const place = `${x(step).toFixed(1)} ${y(Math.max(value, line.logarithmic ? 1 : value)).toFixed(1)}`;
        if (at === 0) return `M${place}`;
        return line.stairs ? `H${x(step).toFixed(1)}V${y(Math.max(value, 1)).toFixed(1)}` : `L${place}`;
      })
      .join("");
    svg.append(s("path", { class: "series-line c0", d: path }, s("title", {}, line.name)));
  });
  const foot = all.length * (TALL + GAP);
  const axis = s("g", { class: "axes", "aria-hidden": "true" });
  for (const tick of steps(0, last, width < 480 ? 3 : 6))
    axis.append(s("text", { x: x(tick), y: foot + 6, "text-anchor": "middle" }, count(tick)));
  axis.append(s("text", { class: "axis-name", x: box.right, y: foot + 22, "text-anchor": "end" }, "step"));
  let before = 0;
  for (const end of ends) {
    if (x(end.step) - x(before) > 7 * end.phase.length)
      axis.append(s("text", { x: (x(before) + x(end.step)) / 2, y: 12, "text-anchor": "middle" }, end.phase));
    before = end.step;
  }
  svg.append(axis);
  return svg;
}

function powers(low: number, high: number): number[] {
  const found: number[] = [];
  for (let tick = 1; tick <= high; tick *= 10) if (tick >= low) found.push(tick);
  return found;
}

function table(rows: HistoryRow[]): Table {
  return {
    head: ["step", "phase", "loss", "kept", "score"],
    rows: rows.map((row) => [row.step, row.phase, row.loss, row.kept, row.score]),
  };
}
