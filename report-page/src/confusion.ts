// Which class is taken for which, and which classes suffer.
import type { Report, Row } from "./data";
import { cut, h, s } from "./dom";
import type { Table } from "./download";
import { canvas, Figure } from "./figure";
import { decimals, named, percent, several } from "./format";
import { nothing } from "./shares";
import type { State } from "./state";

const LEGIBLE = 9; // pixels: names with less room are left out

interface Loss {
  label: number;
  dense: number | null;
  pruned: number;
  recordings: number;
}

export class Confusion {
  readonly root: HTMLElement;
  readonly figures: Figure[];

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    private readonly state: State,
    private readonly row: () => Row | null,
  ) {
    const of = (): string => named(row());
    this.figures = [
      new Figure({
        id: "losses",
        title: () => `Which classes suffer: ${of()}`,
        about: () =>
          this.alone()
            ? "Accuracy of each class, the lowest first."
            : "Accuracy of each class, dense (hollow) and pruned (full), the largest loss first.",
        synthetic,
        draw: (width) => this.losses(width),
        table: () => this.lossTable(),
      }),
      new Figure({
        id: "confusion",
        title: () => `What is taken for what: ${of()}`,
        about: () =>
          `Rows are what is, columns what was said. Shade: the share of a class's test recordings${this.pooled()}.`,
        synthetic,
        draw: (width) => this.matrix(width),
        table: () => this.confusionTable(),
      }),
    ];
    this.root = h("div", { class: "pair" }, ...this.figures.map((f) => f.root));
    state.on((now, before) => {
      if (now.row !== before.row) this.figures.forEach((f) => f.redraw());
      else if (now.label !== before.label)
        this.figures.forEach((f) =>
          f.svg
            ?.querySelectorAll<SVGElement>("[data-class]")
            .forEach((mark) => mark.classList.toggle("on", Number(mark.dataset["class"]) === now.label)),
        );
    });
  }

  // Whether the network shown is the dense one, so that there is nothing to compare it with.
  private alone(): boolean {
    return this.row()?.method === "dense" || this.report.confusions[this.report.rows[0]!.key] === undefined;
  }

  private pooled(): string {
    return (this.row()?.networks ?? 1) > 1 ? `, over ${several(this.row()!.networks, "network")}` : "";
  }

  private cells(key: string): number[][] | null {
    const flat = this.report.confusions[key];
    const classes = this.report.classes;
    if (flat === undefined || classes === null) return null;
    const matrix = classes.map(() => new Array<number>(classes.length).fill(0));
    for (let i = 0; i + 2 < flat.length; i += 3) matrix[flat[i]!]![flat[i + 1]!] = flat[i + 2]!;
    return matrix;
  }

  private lossesOf(): Loss[] {
    const pruned = this.cells(this.state.chosen.row ?? "");
    const dense = this.alone() ? null : this.cells(this.report.rows[0]!.key);
    if (pruned === null) return [];
    const right = (matrix: number[][], o: number): [number, number] => [
      matrix[o]![o]!,
      matrix[o]!.reduce((a, b) => a + b, 0),
    ];
    return pruned
      .map((_, label) => {
        const [hits, recordings] = right(pruned, label);
        const [before, all] = dense === null ? [0, 0] : right(dense, label);
        return {
          label,
          recordings,
          pruned: recordings ? (100 * hits) / recordings : 0,
          dense: all ? (100 * before) / all : null,
        };
      })
      .filter((loss) => loss.recordings > 0)
      .sort((a, b) => (b.dense ?? 100) - b.pruned - ((a.dense ?? 100) - a.pruned) || a.pruned - b.pruned);
  }

  private losses(width: number): SVGSVGElement {
    const found = this.lossesOf();
    if (found.length === 0) return nothing(width);
    const row = 17;
    const left = Math.min(
      width * 0.36,
      150,
      8 + 6.4 * Math.max(...this.report.classes!.map((name) => [...name].length)),
    );
    const x = (value: number): number => left + 12 + (value / 100) * (width - left - 66);
    const top = 26;
    const svg = canvas(width, top + found.length * row + 8, "chart");
    for (const tick of [0, 25, 50, 75, 100])
      svg.append(
        s("line", { class: "rule", x1: x(tick), x2: x(tick), y1: top - 4, y2: top + found.length * row }),
        s(
          "text",
          { class: "axis-name", x: x(tick), y: 13, "text-anchor": "middle" },
          tick === 100 ? "100 %" : String(tick),
        ),
      );
    found.forEach((loss, i) => {
      const y = top + i * row + row / 2;
      const name = this.report.classes![loss.label]!;
      const group = s("g", {
        class: `loss${this.state.chosen.label === loss.label ? " on" : ""}`,
        "data-class": loss.label,
        click: () => this.state.set({ label: loss.label, joint: null }),
      });
      group.append(
        s("rect", { class: "heat-back", x: 0, y: y - row / 2, width, height: row }),
        s(
          "text",
          { class: "heat-name", x: left, y: y + 4, "text-anchor": "end", "font-size": 11 },
          cut(name, Math.floor(left / 6.2)),
        ),
      );
      if (loss.dense !== null)
        group.append(
          s("line", {
            class: loss.pruned < loss.dense ? "loss-line" : "gain-line",
            x1: x(loss.dense),
            x2: x(loss.pruned),
            y1: y,
            y2: y,
          }),
          s("circle", { class: "loss-dense", cx: x(loss.dense), cy: y, r: 4 }),
        );
      group.append(s("circle", { class: "loss-pruned", cx: x(loss.pruned), cy: y, r: 4 }));
      if (loss.dense !== null)
        group.append(
          s(
            "text",
            { class: "bar-value", x: width - 2, y: y + 4, "text-anchor": "end" },
            signed(loss.pruned - loss.dense),
          ),
        );
      group.append(
        s(
          "title",
          {},
          `${name}: ${loss.dense === null ? "" : `dense ${decimals(loss.dense, 1)} %, `}pruned ${decimals(loss.pruned, 1)} %, of ${several(loss.recordings, "recording")}`,
        ),
      );
      svg.append(group);
    });
    return svg;
  }

  private lossTable(): Table {
    return {
      head: ["class", "dense (%)", "pruned (%)", "change", "recordings tested"],
      rows: this.lossesOf().map((loss) => [
        this.report.classes![loss.label]!,
        loss.dense === null ? null : round(loss.dense),
        round(loss.pruned),
        loss.dense === null ? null : round(loss.pruned - loss.dense),
        loss.recordings,
      ]),
    };
  }

  private matrix(width: number): SVGSVGElement {
    const matrix = this.cells(this.state.chosen.row ?? "");
    const classes = this.report.classes;
    if (matrix === null || classes === null) return nothing(width);
    const room = (width * 0.74) / classes.length;
    const font = Math.max(LEGIBLE, Math.min(12, 0.78 * room));
    const names = room > LEGIBLE; // else a tap, and the table, say which is which
    const longest = Math.max(...classes.map((name) => [...name].length));
    const left = names ? Math.min(width * 0.26, 120, 8 + font * 0.58 * longest) : 4;
    const top = names ? left : 4;
    const step = (width - left - 4) / classes.length;
    const svg = canvas(width, top + step * classes.length + 22, "chart");
    svg.append(
      s("rect", {
        class: "matrix-back",
        x: left,
        y: top,
        width: step * classes.length,
        height: step * classes.length,
      }),
    );
    matrix.forEach((counts, truth) => {
      const whole = counts.reduce((a, b) => a + b, 0);
      const group = s("g", {
        class: `matrix-row${this.state.chosen.label === truth ? " on" : ""}`,
        "data-class": truth,
        click: () => this.state.set({ label: truth, joint: null }),
      });
      const y = top + step * truth;
      group.append(s("rect", { class: "heat-back", x: 0, y, width, height: step }));
      if (names)
        group.append(
          s(
            "text",
            {
              class: "heat-name",
              x: left - 4,
              y: y + step / 2 + font * 0.35,
              "text-anchor": "end",
              "font-size": font,
            },
            cut(classes[truth]!, Math.floor(left / (font * 0.56))),
          ),
        );
      counts.forEach((number, said) => {
        if (number === 0) return;
        const part = number / whole;
        group.append(
          s(
            "rect",
            {
              class: said === truth ? "cell right" : "cell wrong",
              x: (left + step * said).toFixed(2),
              y: y.toFixed(2),
              width: step.toFixed(2),
              height: step.toFixed(2),
              "fill-opacity": (0.12 + 0.88 * Math.sqrt(part)).toFixed(2),
            },
            s(
              "title",
              {},
              `${classes[truth]} taken for ${classes[said]}: ${number} of ${whole} (${percent(100 * part)})`,
            ),
          ),
        );
      });
      svg.append(group);
      if (names)
        svg.append(
          s(
            "text",
            {
              class: "heat-name",
              "font-size": font,
              transform: `translate(${(left + step * (truth + 0.5) + font * 0.35).toFixed(1)} ${top - 4}) rotate(-90)`,
            },
            cut(classes[truth]!, Math.floor(left / (font * 0.56))),
          ),
        );
    });
    svg.append(
      s(
        "text",
        { class: "axis-name", x: width - 4, y: top + step * classes.length + 16, "text-anchor": "end" },
        "said →",
      ),
    );
    return svg;
  }

  private confusionTable(): Table {
    const matrix = this.cells(this.state.chosen.row ?? "") ?? [];
    const rows: [string, string, number, number][] = [];
    matrix.forEach((counts, truth) => {
      const whole = counts.reduce((a, b) => a + b, 0);
      counts.forEach((number, said) => {
        if (number > 0 && said !== truth)
          rows.push([
            this.report.classes![truth]!,
            this.report.classes![said]!,
            number,
            round((100 * number) / whole),
          ]);
      });
    });
    return {
      head: ["class", "taken for", "times", "% of the class"],
      rows: rows.sort((a, b) => b[2] - a[2]),
    };
  }
}

const round = (value: number): number => Math.round(100 * value) / 100;
const signed = (value: number): string =>
  Math.abs(value) < 0.05 ? "0" : value > 0 ? `+${decimals(value, 0)}` : `−${decimals(-value, 0)}`;
