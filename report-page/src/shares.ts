// Which joints, and which moments, matter to each class.
import { anatomy } from "./anatomy";
import type { Network, Report, Row } from "./data";
import { cut, h, s } from "./dom";
import { canvas, Figure } from "./figure";
import { named, share } from "./format";
import { ranked, WHOLE } from "./listening";
import type { State } from "./state";

export class Shares {
  readonly root: HTMLElement;
  readonly figures: Figure[];

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    private readonly state: State,
    row: () => Row | null,
  ) {
    const of = (): string => named(row());
    const about =
      "The share of a class's summed path products that begins there. The shares of a class add up to one.";
    const heat = (
      id: string,
      what: string,
      parts: (network: Network) => number[][],
      names: () => string[],
    ): Figure =>
      new Figure({
        id,
        title: () => `Which ${what} matter: ${of()}`,
        about: () => about,
        synthetic,
        draw: (width) => this.heat(width, parts, names(), id),
        table: () => ({
          head: ["class", ...names()],
          rows:
            this.network() === null
              ? []
              : parts(this.network()!).map((row_, o) => [
                  this.report.classes![o]!,
                  ...row_.map((part) => part / WHOLE),
                ]),
        }),
      });
    const chunks = (): string[] => Array.from({ length: report.chunks }, (_, i) => `${i + 1}`);
    this.figures = [
      new Figure({
        id: "class-shares",
        title: () =>
          this.label() === null
            ? "One class"
            : `What ${cut(this.report.classes![this.label()!]!, 60)} listens to`,
        about: () =>
          "Joints as large as their share, and the moments of a recording, from its first to its last. Choose a class in the picture above, or here.",
        synthetic,
        draw: (width) => this.one(width),
        table: () => this.oneTable(),
        wide: true,
      }),
      heat(
        "joint-shares",
        "joints",
        (network) => network.joints,
        () => report.skeleton?.joints ?? [],
      ),
      heat("chunk-shares", "moments", (network) => network.chunks, chunks),
    ];
    this.root = h(
      "div",
      {},
      this.picker(),
      this.figures[0]!.root,
      h("div", { class: "pair" }, this.figures[1]!.root, this.figures[2]!.root),
    );
    state.on((now, before) => {
      if (now.row !== before.row) this.figures.forEach((f) => f.redraw());
      else if (now.label !== before.label) {
        this.figures[0]!.redraw();
        for (const f of this.figures.slice(1))
          f.svg
            ?.querySelectorAll<SVGElement>(".heat-row")
            .forEach((mark) => mark.classList.toggle("on", Number(mark.dataset["class"]) === now.label));
      }
    });
  }

  private network(): Network | null {
    return this.report.networks[this.state.chosen.row ?? ""] ?? null;
  }

  // The chosen class; until there is one, the first that is reached.
  private label(): number | null {
    const network = this.network();
    if (network === null) return null;
    if (this.state.chosen.label !== null) return this.state.chosen.label;
    const first = network.joints.findIndex((shares) => shares.some((part) => part > 0));
    return first >= 0 ? first : null;
  }

  private picker(): HTMLElement {
    const select = h(
      "select",
      {
        id: "class-picker",
        change: () =>
          this.state.set({ label: select.value === "" ? null : Number(select.value), joint: null }),
      },
      h("option", { value: "" }, "choose a class"),
      ...(this.report.classes ?? []).map((name, o) => h("option", { value: o }, cut(name, 60))),
    );
    this.state.on(({ label }) => (select.value = label === null ? "" : String(label)));
    return h("p", { class: "picker" }, h("label", { for: "class-picker" }, "Class "), select);
  }

  private one(width: number): SVGSVGElement {
    const [network, label, skeleton] = [this.network(), this.label(), this.report.skeleton];
    if (network === null || label === null || skeleton === null) return nothing(width);
    const narrow = width < 640;
    const height = narrow ? 470 : 280;
    const svg = canvas(width, height, "chart");
    const body = anatomy(
      skeleton,
      narrow
        ? { x: width * 0.2, y: 14, width: width * 0.6, height: 220 }
        : { x: 20, y: 14, width: width * 0.3, height: height - 40 },
    );
    svg.append(body.flesh, body.group);
    const found = ranked(network.joints[label]!);
    body.dots.forEach((dot, j) => {
      const part = network.joints[label]![j]! / WHOLE;
      dot.setAttribute("r", (part > 0 ? 2.5 + 15 * Math.sqrt(part) : 2).toFixed(1));
      dot.classList.toggle("on", part > 0);
      dot.classList.toggle("faint", part === 0);
      dot.append(s("title", {}, `${skeleton.joints[j]}: ${share(part)}`));
    });
    const listAt = narrow ? { x: 8, y: 262 } : { x: width * 0.37, y: 30 };
    const most = found[0]?.[1] ?? 1;
    const listed = narrow ? 4 : 10;
    found.slice(0, listed).forEach(([j, part], i) => {
      const y = listAt.y + i * 23;
      svg.append(
        s(
          "text",
          { class: "row-name", x: listAt.x + 92, y: y + 11, "text-anchor": "end" },
          cut(skeleton.joints[j]!, 14),
          s("title", {}, skeleton.joints[j]!),
        ),
        s("rect", {
          class: "bar-live",
          x: listAt.x + 100,
          y,
          width: Math.max(1, (width * (narrow ? 0.45 : 0.16) * part) / most),
          height: 14,
          rx: 2,
          "data-joint": j,
        }),
        s(
          "text",
          {
            class: "bar-value",
            x: listAt.x + 106 + (width * (narrow ? 0.45 : 0.16) * part) / most,
            y: y + 11,
          },
          share(part / WHOLE),
        ),
      );
    });
    if (found.length > listed)
      svg.append(
        s(
          "text",
          { class: "axis-name", x: listAt.x + 100, y: listAt.y + listed * 23 + 11 },
          `and ${found.length - listed} more`,
        ),
      );
    const chart = narrow
      ? { x: 8, width: width - 16, top: 386, bottom: 446 }
      : { x: width * 0.69, width: width * 0.3, top: 24, bottom: height - 36 };
    const chunks = network.chunks[label]!;
    const top = Math.max(1, ...chunks);
    const step = chart.width / chunks.length;
    chunks.forEach((part, m) =>
      svg.append(
        s(
          "rect",
          {
            class: "moment",
            x: (chart.x + m * step).toFixed(1),
            y: (chart.bottom - ((chart.bottom - chart.top) * part) / top).toFixed(1),
            width: Math.max(1, step - 1.5).toFixed(1),
            height: (((chart.bottom - chart.top) * part) / top).toFixed(1),
            "data-chunk": m,
          },
          s("title", {}, `moment ${m + 1} of ${chunks.length}: ${share(part / WHOLE)}`),
        ),
      ),
    );
    svg.append(
      s("line", {
        class: "tick",
        x1: chart.x,
        x2: chart.x + chart.width,
        y1: chart.bottom + 0.5,
        y2: chart.bottom + 0.5,
      }),
      s("text", { class: "axis-name", x: chart.x, y: chart.bottom + 17 }, "first"),
      s(
        "text",
        { class: "axis-name", x: chart.x + chart.width, y: chart.bottom + 17, "text-anchor": "end" },
        "last moment",
      ),
      s(
        "text",
        { class: "axis-name", x: chart.x, y: chart.top - 6 },
        `up to ${share(top / WHOLE)} in one of ${chunks.length} moments`,
      ),
    );
    return svg;
  }

  private oneTable(): { head: string[]; rows: (string | number)[][] } {
    const [network, label] = [this.network(), this.label()];
    const head = ["part", "share"];
    if (network === null || label === null) return { head, rows: [] };
    return {
      head,
      rows: [
        ...network.joints[label]!.map((part, j) => [
          `joint ${this.report.skeleton!.joints[j]}`,
          part / WHOLE,
        ]),
        ...network.chunks[label]!.map((part, m) => [`moment ${m + 1}`, part / WHOLE]),
      ],
    };
  }

  private heat(
    width: number,
    parts: (network: Network) => number[][],
    names: string[],
    id: string,
  ): SVGSVGElement {
    const [network, classes] = [this.network(), this.report.classes];
    if (network === null || classes === null) return nothing(width);
    const font = width < 480 ? 9.5 : 11;
    const left = Math.min(
      width * 0.32,
      14 + font * 0.58 * Math.max(...classes.map((name) => Math.min(18, [...name].length))),
    );
    const row = font + 4;
    const top =
      id === "joint-shares" ? 8 + Math.min(80, font * 0.6 * Math.max(...names.map((n) => n.length))) : 20;
    const step = (width - left - 6) / names.length;
    const svg = canvas(width, top + row * classes.length + 8, "chart");
    const values = parts(network);
    const most = Math.max(1, ...values.flat());
    names.forEach((name, j) => {
      const x = left + step * (j + 0.5);
      if (id === "joint-shares")
        svg.append(
          s(
            "text",
            {
              class: "axis-name",
              "font-size": font - 1,
              transform: `translate(${x + 3} ${top - 5}) rotate(-90)`,
            },
            cut(name, 13),
            s("title", {}, name),
          ),
        );
      else if (j === 0 || j === names.length - 1 || (j + 1) % 8 === 0)
        svg.append(
          s(
            "text",
            { class: "axis-name", x, y: top - 5, "text-anchor": "middle", "font-size": font - 1 },
            name,
          ),
        );
    });
    values.forEach((shares, o) => {
      const y = top + row * o;
      const group = s("g", {
        class: `heat-row${this.state.chosen.label === o ? " on" : ""}`,
        "data-class": o,
        click: () => this.state.set({ label: o, joint: null }),
      });
      group.append(
        s("rect", { class: "heat-back", x: 0, y, width, height: row }),
        s(
          "text",
          { class: "heat-name", x: left - 5, y: y + font, "text-anchor": "end", "font-size": font },
          cut(classes[o]!, 18),
          s("title", {}, classes[o]!),
        ),
      );
      shares.forEach((part, j) => {
        if (part > 0)
          group.append(
            s(
              "rect",
              {
                class: "heat",
                x: (left + step * j).toFixed(1),
                y: y + 0.5,
                width: Math.max(1, step - 1).toFixed(1),
                height: row - 1,
                "fill-opacity": (0.06 + 0.94 * (part / most) ** 0.8).toFixed(2),
              },
              s(
                "title",
                {},
                `${classes[o]}, ${id === "joint-shares" ? names[j] : `moment ${names[j]}`}: ${share(part / WHOLE)}`,
              ),
            ),
          );
      });
      svg.append(group);
    });
    return svg;
  }
}

export function nothing(width: number): SVGSVGElement {
  const svg = canvas(width, 60, "chart");
  svg.append(
    s(
      "text",
      { class: "nothing", x: 4, y: 34 },
      "Nothing to draw for this network: see what is missing, below.",
    ),
  );
  return svg;
}
