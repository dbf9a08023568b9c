// The frame of every chart: its title, what data it is of, a table of the same, and downloads.
import { h, s } from "./dom";
import { saveCsv, saveSvg, type Table } from "./download";
import { count } from "./format";

export interface Parts {
  id: string;
  title: () => string;
  about: () => string;
  synthetic: string | null; // the label that synthetic data must bear
  // One picture, or several that lie on each other: what changes apart from the rest has its own, so
  // that a browser need not paint the rest again. The last lies on top and answers.
  draw: (width: number) => SVGSVGElement | SVGSVGElement[];
  table: () => Table;
  wide?: boolean;
}

const LABEL = 22; // height of the label of synthetic data

export class Figure {
  readonly root: HTMLElement;
  readonly picture = h("div", { class: "picture" });
  private readonly heading: HTMLElement;
  private readonly about: HTMLElement;
  private readonly tabular = h("div", { class: "tabular", hidden: true, tabindex: 0, role: "region" });
  private readonly toggle: HTMLButtonElement;
  private width = 0;

  constructor(private readonly parts: Parts) {
    this.heading = h("h3", { id: `${parts.id}-title` });
    this.about = h("p", { class: "about" });
    this.toggle = h(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        class: "to-table",
        click: () => this.showTable(this.tabular.hidden),
      },
      "Table",
    );
    const buttons = h(
      "div",
      { class: "buttons" },
      this.toggle,
      h(
        "button",
        { type: "button", class: "to-csv", click: () => saveCsv(parts.id, this.parts.table()) },
        "CSV",
      ),
      h("button", { type: "button", class: "to-svg", click: () => this.save() }, "SVG"),
    );
    const head = h("div", { class: "figure-head" }, h("div", {}, this.heading, this.about), buttons);
    this.root = h(
      "figure",
      { id: parts.id, class: parts.wide ? "wide" : "", "aria-labelledby": `${parts.id}-title` },
      head,
      this.picture,
      this.tabular,
    );
    this.tabular.setAttribute("aria-labelledby", `${parts.id}-title`);
  }

  // Draw when the width is known, and again whenever it changes.
  watch(): void {
    const seen = new ResizeObserver(() => {
      const width = Math.floor(this.picture.clientWidth);
      if (width > 0 && width !== this.width) this.redraw();
    });
    seen.observe(this.picture);
    this.redraw();
  }

  redraw(): void {
    const { synthetic } = this.parts;
    const [title, about] = [this.parts.title(), this.parts.about()];
    this.heading.textContent = title;
    this.about.textContent = about;
    this.width = Math.floor(this.picture.clientWidth);
    if (this.width <= 0) return;
    const layers = [this.parts.draw(this.width)].flat();
    const svg = layers.at(-1)!;
    if (!svg.hasAttribute("role")) svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${title}. ${about}`);
    for (const layer of layers.slice(0, -1)) {
      layer.classList.add("under");
      layer.setAttribute("aria-hidden", "true");
    }
    if (synthetic !== null) label(layers, synthetic);
    this.picture.replaceChildren(...layers);
    if (!this.tabular.hidden) this.tabular.replaceChildren(shown(this.parts.table()));
  }

  get title(): string {
    return this.parts.title();
  }

  get layers(): SVGSVGElement[] {
    return [...this.picture.querySelectorAll<SVGSVGElement>(":scope > svg")];
  }

  get svg(): SVGSVGElement | null {
    return this.layers.at(-1) ?? null;
  }

  private save(): void {
    if (this.svg !== null) saveSvg(this.parts.id, this.layers, this.parts.title());
  }

  private showTable(show: boolean): void {
    this.toggle.setAttribute("aria-pressed", String(show));
    this.toggle.textContent = show ? "Chart" : "Table";
    this.tabular.hidden = !show;
    this.picture.hidden = show;
    if (show) this.tabular.replaceChildren(shown(this.parts.table()));
    else this.redraw();
  }
}

// Within the picture, so that it stays with it wherever that goes.
function label(layers: SVGSVGElement[], text: string): void {
  const svg = layers.at(-1)!;
  const { y, width, height } = svg.viewBox.baseVal; // as it is now: it changes with the attribute
  for (const layer of layers) layer.setAttribute("viewBox", `0 ${y - LABEL} ${width} ${height + LABEL}`);
  svg.append(
    s("text", { class: "synthetic-label", x: width - 2, y: y - LABEL + 13, "text-anchor": "end" }, text),
  );
}

export function shown(table: Table): HTMLTableElement {
  const cell = (value: string | number | null): string =>
    value === null
      ? "–"
      : typeof value === "number" && Number.isInteger(value)
        ? count(value)
        : String(value);
  const head = h("tr", {}, ...table.head.map((text) => h("th", { scope: "col" }, text)));
  const rows = table.rows.map((row) =>
    h(
      "tr",
      {},
      ...row.map((value, i) =>
        i === 0
          ? h("th", { scope: "row" }, cell(value))
          : h("td", { class: typeof value === "number" ? "number" : "" }, cell(value)),
      ),
    ),
  );
  return h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows));
}

export function canvas(width: number, height: number, className = ""): SVGSVGElement {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: className });
}
