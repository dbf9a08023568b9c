// Any network: its layers as a flow, with what is kept, live and dead in each.
import type { Audited, AuditLayer, NestedRate } from "./data";
import { cut, h, s } from "./dom";
import type { Table } from "./download";
import { canvas, Figure } from "./figure";
import { count, decimals, percent, plain, several } from "./format";
import { historyFigure } from "./history";
import { hatch } from "./layers";
import { facts } from "./provenance";
import { Rates } from "./rates";

const ROW = 34;
const WORST = 10; // layers that are told of at once

export function auditPage(audit: Audited): { parts: HTMLElement[]; figures: Figure[] } {
  let worst = false;
  const order = (): AuditLayer[] =>
    worst ? [...audit.layers].sort((a, b) => badness(b) - badness(a)) : audit.layers;
  const figure = new Figure({
    id: "flow",
    title: () => (worst ? "Layers, the worst first" : "Layers, from input to output"),
    about: () =>
      "The stream is as wide as the live part of what a layer keeps; hatched: dead, on no path from an input to an output. Bars are as long as the logarithm of how many connections a layer keeps.",
    synthetic: null,
    draw: (width) => flow(order(), width, !worst),
    table: () => table(order()),
    wide: true,
  });
  const sort = h(
    "button",
    {
      type: "button",
      class: "sort",
      "aria-pressed": "false",
      click: () => {
        worst = !worst;
        sort.setAttribute("aria-pressed", String(worst));
        figure.redraw();
      },
    },
    "Worst first",
  );
  figure.root.querySelector(".buttons")!.prepend(sort);
  const part = audit.kept ? audit.live / audit.kept : 0;
  const head = h(
    "section",
    { class: "hero" },
    h(
      "p",
      { class: "answer" },
      audit.dead === 0 && audit.kept > 0
        ? `All ${count(audit.kept)} kept connections are live.`
        : `${count(audit.dead)} of ${several(audit.kept, "kept connection")} ${audit.dead === 1 ? "is" : "are"} dead: on no path from an input to an output.`,
    ),
    h(
      "dl",
      { class: "tiles" },
      tile("Connections", count(audit.total)),
      tile("Kept", `${count(audit.kept)}`, percent(audit.total ? (100 * audit.kept) / audit.total : 0, 1)),
      tile("Live", `${count(audit.live)}`, `${shown(part)} of what is kept`),
      tile(
        "Dead",
        `${count(audit.dead)}`,
        `${shown(audit.kept ? audit.dead / audit.kept : 0)} of what is kept`,
      ),
      tile("Outputs reached", `${count(audit.outputs_reached)}`, `of ${count(audit.outputs)}`),
    ),
  );
  const words = h("section", { id: "words" }, h("h2", {}, "In words, the worst first"), ...told(audit));
  const layers = h("section", {}, h("h2", {}, "Where it is lost"), figure.root);
  const from = h("section", {}, h("h2", {}, "Provenance"), facts(audit.facts));
  if (audit.rates?.length) head.append(nested(audit.rates));
  const run = audit.history === undefined ? null : historyFigure(audit.history);
  if (run === null) return { parts: [head, words, layers, from], figures: [figure] };
  const trained = h("section", {}, h("h2", {}, "How it was made"), run.root);
  return { parts: [head, trained, layers, words, from], figures: [run, figure] };
}

function nested(rates: NestedRate[]): HTMLElement {
  const sizes = rates.map((rate) => ({
    kept: rate.kept,
    removed: 100 * (1 - rate.kept / rate.total),
    score: rate.score === null ? "" : `score ${plain(rate.score)}`,
    bytes: rate.bytes,
    asked: rate.asked,
  }));
  return new Rates(sizes, 0).root;
}

// What is said of layers as a list, the worst of them open; what is said of all stands around it.
function told({ words, layers: all }: Audited): HTMLElement[] {
  const names = all.map((layer) => layer.name).sort((a, b) => b.length - a.length);
  const first = words.findIndex((text) => text.startsWith("`"));
  if (first < 0) return words.map((text) => h("p", {}, text));
  const layers = words.filter((text) => text.startsWith("`"));
  const list = (items: string[], start: number): HTMLElement =>
    h("ol", { class: "words", start }, ...items.map((text) => h("li", {}, ...named(text, names))));
  const rest = layers.slice(WORST);
  const more = h(
    "details",
    {},
    h("summary", {}, `${several(rest.length, "layer")} more`),
    list(rest, WORST + 1),
  );
  return [
    ...words.slice(0, first).map((text) => h("p", {}, text)),
    list(layers.slice(0, WORST), 1),
    ...(rest.length > 0 ? [more] : []),
    ...words
      .slice(first + layers.length)
      .map((text) => h("p", { class: "aside" }, `${text[0]!.toUpperCase()}${text.slice(1)}.`)),
  ];
}

// A layer's name at the start of a sentence, set as a name. Names may hold ticks and colons: the
// longest that fits is meant.
function named(text: string, names: string[]): (Node | string)[] {
  const name = names.find((one) => text.startsWith(`\`${one}\`: `));
  return name === undefined ? [text] : [h("code", {}, name), text.slice(name.length + 2)];
}

const badness = (layer: AuditLayer): number =>
  (layer.kept ? layer.dead / layer.kept : 1) + (layer.live === 0 ? 1 : 0);

// All is 100 % and none is 0 %, and nothing else is.
function shown(part: number): string {
  const text = decimals(100 * part, 1);
  if (part < 1 && text === "100.0") return "> 99.9 %";
  return part > 0 && text === "0.0" ? "< 0.1 %" : `${text} %`;
}

function tile(name: string, value: string, more = ""): HTMLElement {
  return h(
    "div",
    { class: "tile" },
    h("dt", {}, name),
    h("dd", {}, h("b", {}, value), more ? h("span", {}, more) : null),
  );
}

function flow(layers: AuditLayer[], width: number, stream: boolean): SVGSVGElement {
  const narrow = width < 640;
  const svg = canvas(width, 30 + ROW * layers.length + 10, "chart flow");
  svg.append(s("defs", {}, hatch()));
  const river = narrow ? width * 0.2 : width * 0.16;
  const middle = river / 2 + 4;
  const half = (part: number): number => Math.max(part > 0 ? 1 : 0.4, (river / 2) * part);
  const y = (i: number): number => 28 + ROW * i + ROW / 2;
  const part = (layer: AuditLayer): number => (layer.kept ? layer.live / layer.kept : 0);
  if (stream && layers.length > 0) {
    const side = (sign: number): string[] =>
      layers.map((layer, i) => `${(middle + sign * half(part(layer))).toFixed(1)} ${y(i)}`);
    const smooth = (points: string[]): string =>
      points
        .map((point, i) => {
          if (i === 0) return point;
          const [x0, y0] = points[i - 1]!.split(" ").map(Number) as [number, number];
          const [x1, y1] = point.split(" ").map(Number) as [number, number];
          return `C${x0} ${(y0 + y1) / 2} ${x1} ${(y0 + y1) / 2} ${point}`;
        })
        .join("");
    svg.append(
      s("path", { class: "river", d: `M${smooth(side(-1))}L${smooth(side(1).reverse())}Z` }),
      s("text", { class: "axis-name", x: middle, y: 14, "text-anchor": "middle" }, "input"),
      s(
        "text",
        { class: "axis-name", x: middle, y: 30 + ROW * layers.length + 6, "text-anchor": "middle" },
        "output",
      ),
    );
  }
  const nameAt = river + 18;
  const nameWidth = narrow
    ? width - nameAt
    : Math.min(width * 0.32, 30 + 7.2 * Math.max(...layers.map((layer) => layer.name.length)));
  const barAt = narrow ? nameAt : nameAt + nameWidth + 12;
  const barWidth = narrow ? width - nameAt - 4 : width - barAt - 190;
  const longest = Math.log1p(Math.max(1, ...layers.map((layer) => layer.kept)));
  layers.forEach((layer, i) => {
    const middleY = y(i);
    const group = s("g", { class: "layer", "data-layer": layer.name });
    group.append(
      s("line", { class: "gate", x1: middle - half(1), x2: middle + half(1), y1: middleY, y2: middleY }),
      s("line", {
        class: "gate-live",
        x1: middle - half(part(layer)),
        x2: middle + half(part(layer)),
        y1: middleY,
        y2: middleY,
      }),
    );
    group.append(
      s(
        "text",
        {
          class: layer.dead > 0 || layer.kept === 0 ? "row-name strong" : "row-name",
          x: nameAt,
          y: middleY + (narrow ? -3 : 4),
        },
        cut(`${layer.name}`, Math.floor(nameWidth / 7)),
        s("title", {}, `${layer.name}, ${layer.shape.join(" x ")}`),
      ),
    );
    const barY = middleY + (narrow ? 2 : -7);
    const tall = narrow ? 9 : 14;
    const keep = (barWidth * Math.log1p(layer.kept)) / longest;
    const live = layer.kept ? (keep * layer.live) / layer.kept : 0;
    group.append(
      s("rect", { class: "bar-track", x: barAt, y: barY, width: Math.max(1, barWidth), height: tall, rx: 2 }),
    );
    if (live > 0)
      group.append(
        s("rect", { class: "bar-live", x: barAt, y: barY, width: Math.max(1, live), height: tall, rx: 2 }),
      );
    if (layer.dead > 0)
      group.append(
        s("rect", {
          class: "bar-dead",
          x: barAt + live,
          y: barY,
          width: Math.max(1.5, keep - live),
          height: tall,
          rx: 2,
        }),
        s("rect", {
          fill: "url(#hatch)",
          x: barAt + live,
          y: barY,
          width: Math.max(1.5, keep - live),
          height: tall,
        }),
      );
    const text =
      layer.kept === 0
        ? "nothing kept"
        : layer.dead === 0
          ? `${count(layer.kept)} kept, all live`
          : `${count(layer.kept)} kept, ${count(layer.dead)} dead`;
    if (!narrow)
      group.append(
        s("text", { class: "bar-value", x: width - 2, y: middleY + 4, "text-anchor": "end" }, text),
      );
    group.append(
      s(
        "title",
        {},
        `${layer.name}: ${count(layer.total)} connections, ${count(layer.kept)} kept, ${count(layer.live)} live, ${count(layer.dead)} dead`,
      ),
    );
    svg.append(group);
  });
  return svg;
}

function table(layers: AuditLayer[]): Table {
  return {
    head: ["layer", "shape", "connections", "kept", "accessible", "co-accessible", "live", "dead"],
    rows: layers.map((l) => [
      l.name,
      l.shape.join("x"),
      l.total,
      l.kept,
      l.accessible,
      l.coaccessible,
      l.live,
      l.dead,
    ]),
  };
}
