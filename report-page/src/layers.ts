// What each method keeps: connections per layer, the dead ones in another colour.
import type { Report, Row } from "./data";
import { cut, s } from "./dom";
import type { Table } from "./download";
import { canvas, Figure } from "./figure";
import { count, plain } from "./format";
import { linear } from "./scale";

const ROW = 30;

export function layersFigure(report: Report, synthetic: string | null, current: () => Row | null): Figure {
  const names = Object.keys(report.layers);
  const rate = (): number => current()?.rate ?? report.rows.at(-1)?.rate ?? 0;
  const rows = (): Row[] =>
    report.rows.filter((row) => row.method !== "dense" && row.rate === rate() && row.layers !== null);

  function draw(width: number): SVGSVGElement {
    const shown = rows();
    const narrow = width < 620;
    const left = narrow ? 0 : Math.min(220, 20 + 7 * Math.max(0, ...shown.map((row) => row.label.length)));
    const gap = 18;
    const across = narrow ? 1 : names.length;
    const room = (width - left - gap * across) / across;
    const words = (kept: number, live: number | null): string =>
      live === null || live >= kept ? count(kept) : `${count(kept)}, ${count(kept - live)} dead`;
    const longest = Math.max(
      ...shown.flatMap((row) => names.map((name) => words(...(row.layers![name] ?? [0, null])).length)),
    );
    const block = (narrow ? 22 + 40 * shown.length : 0) + 8;
    const svg = canvas(width, narrow ? block * names.length : 44 + ROW * shown.length, "chart");
    svg.append(s("defs", {}, hatch()));
    names.forEach((name, column) => {
      const most = Math.max(1, ...shown.map((row) => row.layers![name]?.[0] ?? 0));
      const length = linear([0, most], [0, Math.max(20, room - 14 - 6.4 * longest)]);
      const x = narrow ? 0 : left + gap + column * (room + gap);
      const top = narrow ? column * block : 0;
      svg.append(s("text", { class: "column-name", x, y: top + 14 }, cut(layerName(name), 40)));
      if (!narrow)
        svg.append(s("text", { class: "axis-name", x, y: top + 29 }, `of ${count(report.layers[name]!)}`));
      shown.forEach((row, i) => {
        const [kept, live] = row.layers![name] ?? [0, null];
        const y = narrow ? top + 24 + 40 * i : 40 + ROW * i;
        if (narrow) svg.append(s("text", { class: "row-name", x, y: y + 11 }, cut(row.label, 40)));
        const barTop = narrow ? y + 16 : y;
        svg.append(bar(x, barTop, length(live ?? kept), length(kept), live, row, name));
        svg.append(
          s("text", { class: "bar-value", x: x + length(kept) + 6, y: barTop + 13 }, words(kept, live)),
        );
      });
    });
    if (!narrow)
      shown.forEach((row, i) =>
        svg.append(
          s(
            "text",
            {
              class: row.key === current()?.key ? "row-name strong" : "row-name",
              x: left,
              y: 40 + ROW * i + 13,
              "text-anchor": "end",
            },
            cut(row.label, 30),
            s("title", {}, row.label),
          ),
        ),
      );
    return svg;
  }

  function table(): Table {
    const rows = report.rows.filter((row) => row.layers !== null);
    return {
      head: [
        "method",
        "rate (%)",
        ...names.flatMap((name) => [`${name} kept`, `${name} live`, `${name} dead`]),
      ],
      rows: rows.map((row) => [
        row.label,
        row.rate,
        ...names.flatMap((name) => {
          const [kept, live] = row.layers![name] ?? [null, null];
          return [kept, live, live === null || kept === null ? null : Math.round(100 * (kept - live)) / 100];
        }),
      ]),
    };
  }

  return new Figure({
    id: "layers",
    title: () => `What each method keeps at ${plain(rate())} %`,
    about: () =>
      "Connections kept in each layer, in the mean over networks; hatched: dead, on no path from an input to an output. Each layer has its own scale.",
    synthetic,
    draw,
    table,
    wide: true,
  });
}

function bar(
  x: number,
  y: number,
  live: number,
  kept: number,
  known: number | null,
  row: Row,
  name: string,
): SVGGElement {
  const group = s("g", { class: "bar", "data-row": row.key, "data-layer": name });
  if (kept > 0 && live > 0)
    group.append(
      s("rect", {
        class: known === null ? "bar-unknown" : "bar-live",
        x,
        y,
        width: Math.max(1, live),
        height: 17,
        rx: 2,
      }),
    );
  if (known !== null && kept > live)
    group.append(
      s("rect", { class: "bar-dead", x: x + live, y, width: Math.max(1, kept - live), height: 17, rx: 2 }),
      s("rect", { fill: "url(#hatch)", x: x + live, y, width: Math.max(1, kept - live), height: 17 }),
    );
  return group;
}

export function hatch(): SVGPatternElement {
  return s(
    "pattern",
    { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }),
  );
}

export function layerName(name: string): string {
  const found = /^blocks\.(\d+)\.(\w+)$/.exec(name);
  if (found) return Number(found[1]) > 0 ? `${found[2]}, block ${Number(found[1]) + 1}` : found[2]!;
  return name === "dense.weight" ? "dense layer" : name;
}
