// The surviving network, drawn: joints on the left, heads and filters, classes on the right.
import { anatomy, branchCount } from "./anatomy";
import { bundled } from "./bundles";
import { columns } from "./columns";
import type { Bundles, Network, Paths, Report, Row } from "./data";
import { cut, h, s } from "./dom";
import type { Table } from "./download";
import { canvas, Figure } from "./figure";
import { count, named, percent, several } from "./format";
import { light, nameAt, type Lit, type Stage } from "./lighting";
import { lines } from "./lines";
import { heard, heardJoints, listens, reachedClasses, FULL_SHARE } from "./listening";
import { branchClass } from "./palette";
import { roving } from "./roving";
import type { State } from "./state";
import { bundleStroke, filterBars, headBars, headings, thread } from "./strokes";
import { looksAt, timesOf } from "./times";

interface Drawn {
  classY: number[];
  blocks: [number, number][]; // heads and filters of each
}

export class NetworkPicture {
  readonly figure: Figure;
  private readonly readout = h("div", { class: "readout", "aria-live": "polite" });
  private stage: Stage | null = null;
  private hovered: Lit = null;

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    private readonly state: State,
    private readonly row: () => Row | null,
  ) {
    this.figure = new Figure({
      id: "network",
      title: () => `${row()?.method === "dense" ? "The network" : "The surviving network"}: ${named(row())}`,
      about: () => this.about(),
      synthetic,
      draw: (width) => this.draw(width),
      table: () => this.table(),
      wide: true,
    });
    this.figure.root.append(this.readout);
    state.on((now, before) => {
      if (now.row !== before.row) this.figure.redraw();
      else this.show();
    });
  }

  private network(): Network | null {
    return this.report.networks[this.state.chosen.row ?? ""] ?? null;
  }

  private about(): string {
    const drawing = this.network()?.drawing;
    if (drawing === undefined) return "";
    const whose = branchCount(this.report.skeleton!) > 2 ? "finger or limb" : "body";
    return (
      `${this.what(drawing)} Colours are those of the ${whose} that a line carries more of than others do. Point at a ` +
      `class, or a joint, to see what it listens to; click to keep it. Network of ${this.report.of_network}.`
    );
  }

  private what(drawing: Paths | Bundles): string {
    if (drawing.mode === "bundles") {
      const told = "Too many connections to tell apart: bundles, as wide as what runs through them.";
      const blocks = drawing.blocks.length;
      return blocks > 1 ? `${told} They pass the heads of all ${blocks} blocks.` : told;
    }
    const all = drawing.attentions.flat().length + drawing.dense.length + drawing.convolutions.flat().length;
    const waves = this.report.basis === "cosines";
    return (
      `Every one of the ${count(all)} lines is a connection on a path from a joint to a class. From a head, ` +
      `lines begin at the ${waves ? "wave" : "moment"} that they look at: ${waves ? "slow waves" : "early moments"} on top.` +
      (drawing.attentions.length > 1
        ? " In the heads of later blocks, lines run from the joints that are heard, on the left, to those that are told, on the right."
        : "")
    );
  }

  private draw(width: number): SVGSVGElement | SVGSVGElement[] {
    this.hovered = null;
    const network = this.network();
    const { skeleton, classes } = this.report;
    if (network === null || skeleton === null || classes === null) return this.nothing(width);
    const { drawing } = network;
    const blocks = drawing.mode === "paths" ? drawing.convolutions.length : drawing.blocks.length;
    const space = columns(width, classes.length, blocks);
    const svg = canvas(width, space.height, "chart network");
    svg.setAttribute("role", "group"); // its classes and joints can be chosen
    const stage: Stage = {
      svg,
      lines: canvas(width, space.height, "chart lines"),
      marks: canvas(width, space.height, "chart marks"),
      glow: s("g"),
      shine: s("g", { "aria-hidden": "true" }),
      names: s("g", { class: "joint-names", "aria-hidden": "true" }),
      body: anatomy(skeleton, space.hand),
      space,
      branches: branchCount(skeleton),
      classes: [],
      strokes: () => [],
      dots: () => [],
    };
    const lit = canvas(width, space.height, "chart glow");
    lit.append(stage.body.flesh, stage.glow);
    const made =
      drawing.mode === "paths"
        ? this.drawPaths(network, drawing, stage)
        : this.drawBundles(network, drawing, stage);
    const above = headings(
      several(heardJoints(network), "joint"),
      made.blocks.map(([heads, filters]) => [several(heads, "head"), several(filters, "filter")]),
      several(reachedClasses(network), "class", "classes"),
      space,
    );
    stage.marks.append(stage.body.group);
    svg.append(above, stage.shine, stage.names);
    this.stage = stage;
    this.interact(network, stage, made.classY);
    queueMicrotask(() => this.show());
    return [stage.lines, lit, stage.marks, svg];
  }

  private nothing(width: number): SVGSVGElement {
    this.stage = null;
    const svg = canvas(width, 80, "chart");
    const why =
      (this.row()?.rate ?? 0) < 90
        ? "A run keeps its networks from 90 % up: choose a higher rate above."
        : `This network is not in the page: trellis report RUN --network ${this.state.chosen.row ?? "ROW"}`;
    svg.append(s("text", { class: "nothing", x: 4, y: 44 }, why));
    return svg;
  }

  // Every connection a line.
  private drawPaths(network: Network, drawing: Paths, stage: Stage): Drawn {
    const { marks, space, branches } = stage;
    const times = timesOf(this.report);
    const drawn = lines(network, drawing, this.report.skeleton!, space, stage.body.places, times);
    const scale = space.narrow ? 0.7 : 1;
    const weakestFirst = [...drawn.lines].sort((a, b) => a.level - b.level);
    stage.lines.append(...weakestFirst.map((line) => thread(line, branches, scale)));
    const dots = drawn.filters.map((dot) => {
      const place = { cx: dot.x, cy: dot.y.toFixed(1), r: space.narrow ? 1.1 : 1.7 };
      return s("circle", { class: `filter ${branchClass(dot.branch, branches)}`, ...place });
    });
    const told = (block: number, head: number): string => {
      const own = drawing.convolutions[block]!.filter((row) => row[0] === head);
      const looks =
        block === 0
          ? `, looks at ${looksAt(
              times,
              own.map((row) => row[1]!),
            )}`
          : "";
      return `${headName(block, head, drawn.heads.length)}${looks}`;
    };
    stage.lines.append(s("g", { class: "filters" }, ...dots));
    marks.append(headBars(drawn.heads, space, told, true));
    stage.strokes = ({ kind, index }) =>
      drawn.lines
        .filter((line) => (kind === "class" ? line.classes : line.joints)[index])
        .map(({ d, branch, level }) => ({ d, branch, width: 0.7 + 2.6 * level ** 2 }));
    stage.dots = ({ kind, index }) =>
      drawn.filters
        .filter((dot) => (kind === "class" ? dot.classes : dot.joints)[index])
        .map(({ x, y, branch }) => ({ d: `M${x.toFixed(1)} ${y.toFixed(1)}h0`, branch, width: 3.5 }));
    const blocks = drawn.heads.map(
      (heads, block) =>
        [heads.length, drawn.filters.filter((dot) => dot.x === space.filters[block]).length] as [
          number,
          number,
        ],
    );
    return { classY: drawn.classY, blocks };
  }

  // Bundles, the strongest on top.
  private drawBundles(network: Network, drawing: Bundles, stage: Stage): Drawn {
    const { svg, marks, space, branches } = stage;
    const made = bundled(network, drawing, this.report.skeleton!, space, stage.body.places);
    const filters = drawing.blocks.map((block) => block.filters);
    stage.lines.append(...[...made.shown].reverse().map((bundle) => bundleStroke(bundle, branches)));
    const told = `drawn: ${count(made.shown.length)} of ${several(made.all, "bundle")}, ${percent(100 * made.carried)} of what flows`;
    const place = { x: space.width - 2, y: space.height - 3, "text-anchor": "end" };
    marks.append(
      headBars(made.heads, space, (block, head) => headName(block, head, made.heads.length), false),
      filterBars(made.heads, filters, space),
    );
    svg.append(s("text", { class: "axis-name", ...place }, told));
    stage.strokes = ({ kind, index }) => (kind === "class" ? made.ofClass(index) : made.ofJoint(index));
    const blocks = made.heads.map(
      (heads, block) => [heads.length, filters[block]!.reduce((a, b) => a + b, 0)] as [number, number],
    );
    return { classY: made.classY, blocks };
  }

  private interact(network: Network, stage: Stage, classY: number[]): void {
    const order = classY.map((_, o) => o).sort((a, b) => classY[a]! - classY[b]!);
    const classes = order.map((o) => this.classMark(network, stage, o, classY[o]!));
    const joints = this.report.skeleton!.joints.map((_, j) => this.jointMark(network, stage, j));
    stage.svg.append(
      s("g", { class: "class-marks" }, ...classes),
      s("g", { class: "joint-marks" }, ...joints),
    );
    const enter = (lit: Lit): void => {
      this.hovered = lit;
      this.show();
    };
    const leave = (): void => enter(null);
    const { state } = this;
    roving({
      elements: classes,
      enter: (i) => enter({ kind: "class", index: order[i]! }),
      leave,
      press: (i) => state.set({ label: state.chosen.label === order[i] ? null : order[i]!, joint: null }),
    });
    roving({
      elements: joints,
      enter: (i) => enter({ kind: "joint", index: i }),
      leave,
      press: (i) => state.set({ joint: state.chosen.joint === i ? null : i, label: null }),
    });
    stage.svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") state.set({ label: null, joint: null });
    });
  }

  private classMark(network: Network, stage: Stage, label: number, y: number): SVGGElement {
    const { space } = stage;
    const name = this.report.classes![label]!;
    const cutOff = network.joints[label]!.every((part) => part === 0);
    const step = (space.bottom - space.top) / this.report.classes!.length;
    const back = {
      x: space.classes - 26,
      y: y - step / 2,
      width: space.width - space.classes + 26,
      height: step,
    };
    const text = cut(name, space.label);
    stage.marks.append(
      s(
        "g",
        { class: cutOff ? "cut-off" : "", "aria-hidden": "true" },
        s("circle", { class: "class-dot", cx: space.classes, cy: y, r: space.narrow ? 2.2 : 3 }),
        s("text", { class: "class-name", ...nameAt(space, y) }, text),
      ),
    );
    const group = s(
      "g",
      {
        class: "class-mark",
        "data-class": label,
        role: "button",
        "aria-label": `class ${name}: ${listens(this.report, network, label)}`,
      },
      s("rect", { class: "hit", ...back }),
      s("title", {}, name),
    );
    stage.classes[label] = { group, y, text };
    return group;
  }

  private jointMark(network: Network, { body, space }: Stage, joint: number): SVGGElement {
    const name = this.report.skeleton!.joints[joint]!;
    const [cx, cy] = body.places[joint]!;
    return s(
      "g",
      {
        class: "joint-mark",
        "data-joint": joint,
        role: "button",
        "aria-label": `joint ${name}: ${heard(this.report, network, joint)}`,
      },
      s("circle", { class: "hit", cx, cy, r: space.narrow ? 7 : 13 }),
      s("title", {}, name),
    );
  }

  // What is pointed at, or else what was kept.
  private show(): void {
    const { label, joint } = this.state.chosen;
    let lit = this.hovered;
    if (lit === null && joint !== null) lit = { kind: "joint", index: joint };
    else if (lit === null && label !== null) lit = { kind: "class", index: label };
    const network = this.network();
    if (network !== null && this.stage !== null) light(this.report, network, this.stage, lit);
    this.readout.replaceChildren(...(network === null ? [] : [this.words(network, lit)]));
    this.readout.classList.toggle("on", lit !== null);
  }

  private words(network: Network, lit: Lit): HTMLElement {
    if (lit === null) return h("p", {}, "No class is chosen. Point at one, or use Tab and the arrow keys.");
    const isClass = lit.kind === "class";
    const name = isClass ? this.report.classes![lit.index]! : this.report.skeleton!.joints[lit.index]!;
    const told = (isClass ? listens : heard)(this.report, network, lit.index);
    return h("p", {}, h("strong", {}, name), ` ${told}.`);
  }

  private table(): Table {
    const shares = this.network()?.joints ?? [];
    return {
      head: ["class", ...(this.report.skeleton?.joints ?? [])],
      rows: shares.map((own, o) => [this.report.classes![o]!, ...own.map((part) => part / FULL_SHARE)]),
    };
  }
}

function headName(block: number, head: number, blocks: number): string {
  return blocks > 1 ? `block ${block + 1}, head ${head + 1}` : `head ${head + 1}`;
}
