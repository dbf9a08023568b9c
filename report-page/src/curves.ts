// Accuracy, and the live part, against what is kept.
import { crosshair, type Box } from "./crosshair";
import type { Method, Published, Report, Row } from "./data";
import { curvesTable } from "./curves-table";
import { h, s } from "./dom";
import { canvas, Figure } from "./figure";
import { count, decimals, pair, plain } from "./format";
import { looks, markPath, type Look } from "./palette";
import { linear, logarithmic, steps, type Scale } from "./scale";

type Value = "top1" | "live";
const LIVE = "live, of what is kept (%)";
const HELD_OUT = "training recordings held out for the search (validation)";

export class Curves {
  readonly root: HTMLElement;
  readonly figures: Figure[];
  private readonly looks: Map<string, Look>;
  private readonly visible: Set<string>;
  private readonly total: number;
  private readonly reader = h("div", { class: "reader", "aria-live": "polite" });

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    private readonly choose: (row: string) => void,
  ) {
    this.looks = looks(report.methods);
    this.total = Object.values(report.layers).reduce((a, b) => a + b, 0);
    const first = ["mp", "stochastic-mp", "tc", "tc-stochastic", "global-mp", "viterbi"].filter((key) =>
      report.methods.some((m) => m.key === key),
    );
    this.visible = new Set(report.methods.length <= 7 ? report.methods.map((m) => m.key) : first);
    this.figures = (["top1", "live"] as const).map(
      (value) =>
        new Figure({
          id: value === "top1" ? "accuracy" : "live",
          title: () => (value === "top1" ? "Accuracy" : "Live connections"),
          about: () =>
            value === "top1"
              ? `Top-1 by what is kept, ${this.measured()}. ${this.spread()}`
              : "Of what is kept, the part that lies on a path from an input to an output. The rest is dead weight.",
          synthetic,
          draw: (width) => this.draw(value, width),
          table: () => curvesTable(report),
        }),
    );
    this.root = h(
      "div",
      {},
      this.legend(),
      h("div", { class: "pair" }, ...this.figures.map((f) => f.root)),
      this.reader,
    );
  }

  private spread(): string {
    const many = this.report.rows.some((row) => row.top1 !== null && row.top1[1] !== null);
    return many ? "Whiskers are one standard deviation over seeds." : "One seed: no spread is known.";
  }

  // Which recordings the figures are of: a search is judged on others than a finished network.
  private get mixed(): boolean {
    return this.report.rows.some((row) => row.on !== "test");
  }

  private measured(): string {
    return this.mixed
      ? `on test recordings; dotted, on ${HELD_OUT}, which are not to be compared with them`
      : "on test recordings";
  }

  private on(row: Row): string {
    return this.mixed ? `, on ${row.on} recordings` : "";
  }

  private dash(method: string): string {
    const held = this.report.rows.some((row) => row.method === method && row.on !== "test");
    return held ? "1.5 4" : this.looks.get(method)!.dash;
  }

  private value(row: Row, value: Value, places: number, unit = ""): string {
    if (row[value] === null)
      return row.refused !== null ? "not possible" : row.disconnected > 0 ? "disconnected" : "not known";
    return `${pair(row[value], places)}${unit}${value === "top1" ? this.on(row) : ""}`;
  }

  private legend(): HTMLElement {
    const buttons = this.report.methods.map((method) => this.key(method));
    const all = (show: boolean): void => {
      this.report.methods.forEach((m) => (show ? this.visible.add(m.key) : this.visible.delete(m.key)));
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(show)));
      this.figures.forEach((f) => f.redraw());
    };
    const paper =
      this.report.published.length > 0
        ? h("span", { class: "legend-note" }, hollow(), "the paper's figures")
        : null;
    return h(
      "div",
      { class: "legend", role: "group", "aria-label": "Methods shown" },
      ...buttons,
      h("button", { type: "button", class: "quiet", click: () => all(true) }, "all"),
      h("button", { type: "button", class: "quiet", click: () => all(false) }, "none"),
      paper,
    );
  }

  private key(method: Method): HTMLButtonElement {
    const look = this.looks.get(method.key)!;
    const swatch = s(
      "svg",
      { viewBox: "0 0 30 12", class: `swatch ${look.colour}`, "aria-hidden": "true" },
      s("path", { class: "series-line", d: "M1 6H29", "stroke-dasharray": this.dash(method.key) }),
      s("path", { class: "series-mark", d: markPath(look.mark, 15, 6, 4) }),
    );
    const button = h(
      "button",
      {
        type: "button",
        class: "key",
        "data-method": method.key,
        "aria-pressed": String(this.visible.has(method.key)),
      },
      swatch,
      method.label,
    );
    button.addEventListener("click", () => {
      if (!this.visible.delete(method.key)) this.visible.add(method.key);
      button.setAttribute("aria-pressed", String(this.visible.has(method.key)));
      this.figures.forEach((f) => f.redraw());
    });
    return button;
  }

  private place(row: Row): number | null {
    if (this.report.axis === "x") return row.x;
    return row.kept === null ? null : row.kept[0] / this.total;
  }

  private draw(value: Value, width: number): SVGSVGElement {
    const narrow = width < 480;
    const height = narrow ? 300 : 380;
    const box = { left: 44, right: width - 14, top: 26, bottom: height - 46 };
    const svg = canvas(width, height, "chart");
    svg.setAttribute("role", "group"); // it holds a slider, which an image would hide
    const rows = this.report.rows.filter((row) => row.method !== "dense" && this.visible.has(row.method));
    const dense = this.report.rows[0]!;
    const places = this.report.rows
      .slice(1)
      .map((row) => this.place(row))
      .filter((p): p is number => p !== null);
    const byX = this.report.axis === "x";
    const low = Math.min(...places, byX ? 1 : 0.5);
    const high = byX ? Math.max(...places, low * 2) : 1;
    const margin = 1.18;
    const x = byX
      ? logarithmic([low / margin, high * margin], [box.left, box.right])
      : logarithmic([high * margin, low / margin], [box.left, box.right]);
    const y = linear([0, 100], [box.bottom, box.top]);
    svg.append(this.axes(x, y, box, value, narrow));
    if (value === "top1" && dense.top1 !== null) {
      const at = y(dense.top1[0]);
      svg.append(
        s("line", { class: "dense-line", x1: box.left, x2: box.right, y1: at, y2: at }),
        s(
          "text",
          { class: "dense-label", x: box.left + 4, y: at - 6 },
          `dense ${decimals(dense.top1[0], 1)}`,
        ),
      );
    }
    for (const method of this.report.methods) {
      const own = rows.filter((row) => row.method === method.key);
      if (own.length > 0) svg.append(this.series(method, own, x, y, value, box.bottom));
    }
    const paper = this.report.published.filter((p) => p.method === "dense" && p[value] !== null);
    for (const point of paper) svg.append(...this.published(point, "dense", "circle", x, y, value));
    this.pointer(svg, rows, x, box, value);
    return svg;
  }

  private axes(x: Scale, y: Scale, box: Box, value: Value, narrow: boolean): SVGGElement {
    const group = s("g", { class: "axes", "aria-hidden": "true" });
    for (const tick of steps(0, 100, narrow ? 4 : 6)) {
      group.append(
        s("line", { class: "rule", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
        s("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, plain(tick)),
      );
    }
    const seen: number[] = [];
    const ticks =
      this.report.axis === "x"
        ? this.report.rows.map((r) => r.x)
        : [1, ...this.report.rows.slice(1).map((row) => 1 - row.rate / 100)];
    for (const tick of ticks) {
      if (tick === null || seen.some((other) => Math.abs(x(other) - x(tick)) < 24)) continue;
      seen.push(tick);
      const text = this.report.axis === "x" ? plain(tick) : plain(100 * Number(tick.toPrecision(8)));
      group.append(
        s("line", { class: "tick", x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 5 }),
        s("text", { x: x(tick), y: box.bottom + 19, "text-anchor": "middle" }, text),
      );
    }
    const name = this.report.axis === "x" ? "1/α" : "kept, % of all connections (logarithmic) →";
    group.append(
      s("text", { class: "axis-name", x: box.right, y: box.bottom + 38, "text-anchor": "end" }, name),
    );
    group.append(s("text", { class: "axis-name", x: 2, y: 11 }, this.name(value, narrow)));
    return group;
  }

  private name(value: Value, narrow: boolean): string {
    if (value === "live") return LIVE;
    const held = narrow ? "dotted: validation" : `on test recordings; dotted: on validation recordings`;
    return this.mixed ? `top-1 accuracy (%), ${held}` : "top-1 accuracy (%), on test recordings";
  }

  private series(method: Method, rows: Row[], x: Scale, y: Scale, value: Value, bottom: number): SVGGElement {
    const look = this.looks.get(method.key)!;
    const group = s("g", { class: `series ${look.colour}`, "data-method": method.key });
    const sorted = rows
      .filter((row) => this.place(row) !== null)
      .sort((a, b) => this.place(b)! - this.place(a)!);
    const known = sorted.filter((row) => row[value] !== null);
    const line = known
      .map((row) => `${x(this.place(row)!).toFixed(1)} ${y(row[value]![0]).toFixed(1)}`)
      .join("L");
    const dash = this.dash(method.key);
    if (line) group.append(s("path", { class: "series-line", d: `M${line}`, "stroke-dasharray": dash }));
    for (const row of known) {
      const [mean, deviation] = row[value]!;
      const at = x(this.place(row)!);
      if (deviation !== null && deviation > 0) {
        const [top, end] = [y(Math.min(100, mean + deviation)), y(Math.max(0, mean - deviation))];
        group.append(
          s("path", { class: "whisker", d: `M${at} ${top}V${end}M${at - 4} ${top}h8M${at - 4} ${end}h8` }),
        );
      }
      group.append(
        s(
          "path",
          { class: "series-mark", d: markPath(look.mark, at, y(mean), 4.4), "data-row": row.key },
          s("title", {}, `${method.label}, ${this.at(row)}: ${this.value(row, value, 2)}`),
        ),
      );
    }
    for (const row of sorted.filter((r) => r[value] === null && r.disconnected > 0)) {
      const at = x(this.place(row)!);
      group.append(
        s(
          "path",
          { class: "severed", d: `M${at - 4} ${bottom - 10}l8 8m0 -8l-8 8`, "data-row": row.key },
          s("title", {}, `${method.label}, ${this.at(row)}: disconnected`),
        ),
      );
    }
    for (const point of this.report.published.filter((p) => p.method === method.key && p[value] !== null))
      group.append(...this.published(point, method.label, look.mark, x, y, value));
    return group;
  }

  private published(
    point: Published,
    label: string,
    mark: Look["mark"],
    x: Scale,
    y: Scale,
    value: Value,
  ): SVGElement[] {
    const at = this.report.axis === "x" ? point.x : point.kept;
    if (at === null) return [];
    const made = s(
      "path",
      { class: "published", d: markPath(mark, x(at), y(point[value]!), 6.5), "data-method": point.method },
      s("title", {}, `the paper, ${label}: ${point[value]}`),
    );
    return [made];
  }

  private at(row: Row): string {
    return this.report.axis === "x"
      ? `1/α = ${row.x === null ? "–" : plain(row.x)}`
      : `${plain(row.rate)} % removed`;
  }

  // Hovering, or the arrow keys, read the values at one place on the axis; a click, or Enter, chooses
  // the most accurate network there.
  private pointer(svg: SVGSVGElement, rows: Row[], x: Scale, box: Box, value: Value): void {
    const known = rows.filter((row) => this.place(row) !== null);
    const groups: Row[][] = [];
    for (const row of known.sort((a, b) => x(this.place(a)!) - x(this.place(b)!))) {
      const last = groups.at(-1);
      const near = last !== undefined && Math.abs(x(this.place(row)!) - x(this.place(last[0]!)!)) < 6;
      if (near) last.push(row);
      else groups.push([row]);
    }
    // What was tested comes first: figures of other recordings say nothing against it.
    const best = (group: Row[], by: Value): Row[] =>
      [...group].sort(
        (a, b) =>
          Number(a.on !== "test") - Number(b.on !== "test") || (b[by]?.[0] ?? -1) - (a[by]?.[0] ?? -1),
      );
    crosshair({
      svg,
      box,
      places: groups.map((group) => x(this.place(group[0]!)!)),
      show: (index) => {
        const there = best(groups[index]!, value);
        this.reader.replaceChildren(this.read(there, value));
        this.reader.classList.add("on");
        return there.map((row) => `${row.label} ${this.value(row, value, 1)}`).join(", ");
      },
      hide: () => this.reader.classList.remove("on"),
      press: (index) => this.choose(best(groups[index]!, "top1")[0]!.key),
    });
  }

  private read(rows: Row[], value: Value): HTMLElement {
    const first = rows[0];
    if (first === undefined) return h("span");
    const head =
      this.report.axis === "x"
        ? this.at(first)
        : `${this.at(first)} · ${count(first.kept![0])} connections kept`;
    const list = rows.map((row) => {
      const look = this.looks.get(row.method)!;
      const swatch = s(
        "svg",
        { viewBox: "0 0 12 12", class: `dot ${look.colour}` },
        s("path", { class: "series-mark", d: markPath(look.mark, 6, 6, 4) }),
      );
      return h("li", {}, swatch, h("span", {}, row.label), h("b", {}, this.value(row, value, 1, " %")));
    });
    return h("div", {}, h("strong", {}, head), h("ul", {}, ...list));
  }
}

function hollow(): SVGSVGElement {
  return s(
    "svg",
    { viewBox: "0 0 16 16", class: "dot", "aria-hidden": "true" },
    s("path", { class: "published", d: markPath("circle", 8, 8, 6) }),
  );
}
