// Which joints, and which moments, matter to each class.
import { anatomy } from "./anatomy";
import { bars } from "./bars";
import type { Network, Report, Row } from "./data";
import { cut, h, s } from "./dom";
import { canvas, Figure } from "./figure";
import { named, share } from "./format";
import { heat, type Heat } from "./heat";
import { ranked, FULL_SHARE } from "./listening";
import type { State } from "./state";
import { bandName, bands, waveName } from "./times";

const PARTS =
  "The share of a class's summed path products that begins there. The shares of a class add up to one.";
const WAVES =
  "This network sees each joint as waves over the whole recording: its average place, half a wave, one " +
  "wave, and so on.";
const SPREAD =
  "What begins at a wave is spread over the moments by the wave's square there: most where it swings widest. " +
  "The shares of a class still add up to one.";

type Columns = Pick<Heat, "names" | "told" | "labels"> & { values: (network: Network) => number[][] };

export class Shares {
  readonly root: HTMLElement;
  readonly figures: Figure[];

  constructor(
    private readonly report: Report,
    private readonly synthetic: string | null,
    private readonly state: State,
    private readonly row: () => Row | null,
  ) {
    const joints = report.skeleton?.joints ?? [];
    const chunks = Array.from({ length: report.chunks }, (_, m) => `${m + 1}`);
    const inWaves = report.basis === "cosines";
    const one = new Figure({
      id: "class-shares",
      title: () =>
        this.label() === null
          ? "One class"
          : `What ${cut(this.report.classes![this.label()!]!, 60)} listens to`,
      about: () =>
        `Joints as large as their share, and the moments of a recording, from its first to its last` +
        `${inWaves ? ", and the waves, from slow to fast" : ""}. Choose a class in the picture above, or here.` +
        (inWaves ? ` ${WAVES} ${SPREAD}` : ""),
      synthetic,
      draw: (width) => this.one(width),
      table: () => this.oneTable(),
      wide: true,
    });
    const heats = [
      this.heat("joint-shares", "joints", PARTS, {
        names: joints,
        told: (j) => joints[j]!,
        labels: "upright",
        values: (network) => network.joints,
      }),
      this.heat("chunk-shares", "moments", inWaves ? SPREAD : PARTS, {
        names: chunks,
        told: (m) => `moment ${m + 1}`,
        labels: "some",
        values: (network) => network.chunks,
      }),
    ];
    if (inWaves) heats.push(this.waves());
    this.figures = [one, ...heats];
    this.root = h(
      "div",
      {},
      this.picker(),
      one.root,
      h("div", { class: inWaves ? "pair three" : "pair" }, ...heats.map((figure) => figure.root)),
    );
    state.on((now, before) => {
      if (now.row !== before.row) this.figures.forEach((f) => f.redraw());
      else if (now.label !== before.label) {
        one.redraw();
        for (const f of heats)
          f.svg
            ?.querySelectorAll<SVGElement>(".heat-row")
            .forEach((mark) => mark.classList.toggle("on", Number(mark.dataset["class"]) === now.label));
      }
    });
  }

  private heat(id: string, what: string, about: string, columns: Columns): Figure {
    return new Figure({
      id,
      title: () => `Which ${what} matter: ${named(this.row())}`,
      about: () => about,
      synthetic: this.synthetic,
      draw: (width) => {
        const [network, classes] = [this.network(), this.report.classes];
        if (network === null || classes === null) return nothing(width);
        return heat(width, {
          ...columns,
          values: columns.values(network),
          classes,
          chosen: this.state.chosen.label,
          pick: (label) => this.state.set({ label, joint: null }),
        });
      },
      table: () => ({
        head: ["class", ...columns.names],
        rows:
          this.network() === null
            ? []
            : columns
                .values(this.network()!)
                .map((parts, o) => [this.report.classes![o]!, ...parts.map((part) => part / FULL_SHARE)]),
      }),
    });
  }

  // From slow to fast: the first few waves, and octaves of the others.
  private waves(): Figure {
    const found = bands(this.report.chunks);
    const sum = (parts: number[], [first, last]: [number, number]): number =>
      parts.slice(first, last + 1).reduce((a, b) => a + b, 0);
    return this.heat("wave-shares", "waves", `${WAVES} Columns are waves over the recording, slow to fast.`, {
      names: found.map(bandName),
      told: (i) =>
        found[i]![0] === found[i]![1]
          ? waveName(found[i]![0])
          : `waves ${found[i]!.join(" to ")}: ${bandName(found[i]!)} over the recording`,
      labels: "upright",
      values: (network) => (network.waves ?? []).map((parts) => found.map((band) => sum(parts, band))),
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
    const waves = network.waves?.[label] ?? null;
    const height = narrow ? (waves ? 590 : 470) : 280;
    const svg = canvas(width, height, "chart");
    const body = anatomy(
      skeleton,
      narrow
        ? { x: width * 0.2, y: 14, width: width * 0.6, height: 220 }
        : { x: 20, y: 14, width: width * 0.3, height: height - 40 },
    );
    svg.append(body.flesh, body.group);
    body.dots.forEach((dot, j) => {
      const part = network.joints[label]![j]! / FULL_SHARE;
      dot.setAttribute("r", (part > 0 ? 2.5 + 15 * Math.sqrt(part) : 2).toFixed(1));
      dot.classList.toggle("on", part > 0);
      dot.classList.toggle("faint", part === 0);
      dot.append(s("title", {}, `${skeleton.joints[j]}: ${share(part)}`));
    });
    svg.append(...this.largest(network.joints[label]!, width, narrow));
    const chart = narrow ? { x: 8, width: width - 16 } : { x: width * 0.69, width: width * 0.3 };
    const half = (height - 72) / 2;
    const [top, bottom] = narrow ? [394, 450] : [24, waves ? half + 12 : height - 36];
    const chunks = network.chunks[label]!;
    svg.append(
      bars({
        parts: chunks,
        kind: "moment",
        told: (m) => `moment ${m + 1} of ${chunks.length}`,
        ends: ["first", "last moment"],
        ...chart,
        top,
        bottom,
      }),
    );
    if (waves)
      svg.append(
        bars({
          parts: waves,
          kind: "wave",
          told: waveName,
          ends: ["slow", "fast waves"],
          ...chart,
          top: narrow ? 510 : height - half,
          bottom: narrow ? 566 : height - 24,
        }),
      );
    return svg;
  }

  // The joints that a class listens to most, as bars with their names.
  private largest(parts: number[], width: number, narrow: boolean): SVGElement[] {
    const joints = this.report.skeleton!.joints;
    const found = ranked(parts);
    const at = narrow ? { x: 8, y: 262 } : { x: width * 0.37, y: 30 };
    const [most, listed] = [found[0]?.[1] ?? 1, narrow ? 4 : 10];
    const marks: SVGElement[] = found.slice(0, listed).flatMap(([j, part], i) => {
      const y = at.y + i * 23;
      const room = narrow ? width * 0.45 : Math.min(width * 0.16, width * 0.32 - 165);
      const long = (room * part) / most;
      const name = { class: "row-name", x: at.x + 92, y: y + 11, "text-anchor": "end" };
      const bar = { x: at.x + 100, y, width: Math.max(1, long), height: 14, rx: 2, "data-joint": j };
      return [
        s("text", name, cut(joints[j]!, 14), s("title", {}, joints[j]!)),
        s("rect", { class: "bar-live", ...bar }),
        s("text", { class: "bar-value", x: at.x + 106 + long, y: y + 11 }, share(part / FULL_SHARE)),
      ];
    });
    if (found.length > listed) {
      const place = { x: at.x + 100, y: at.y + listed * 23 + 11 };
      marks.push(s("text", { class: "axis-name", ...place }, `and ${found.length - listed} more`));
    }
    return marks;
  }

  private oneTable(): { head: string[]; rows: (string | number)[][] } {
    const [network, label] = [this.network(), this.label()];
    const head = ["part", "share"];
    if (network === null || label === null) return { head, rows: [] };
    const listed = (parts: number[], name: (i: number) => string): (string | number)[][] =>
      parts.map((part, i) => [name(i), part / FULL_SHARE]);
    return {
      head,
      rows: [
        ...listed(network.joints[label]!, (j) => `joint ${this.report.skeleton!.joints[j]}`),
        ...listed(network.chunks[label]!, (m) => `moment ${m + 1}`),
        ...listed(network.waves?.[label] ?? [], waveName),
      ],
    };
  }
}

export function nothing(width: number): SVGSVGElement {
  const svg = canvas(width, 60, "chart");
  const text = "Nothing to draw for this network: see what is missing, below.";
  svg.append(s("text", { class: "nothing", x: 4, y: 34 }, text));
  return svg;
}
