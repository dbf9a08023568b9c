// A right and a wrong prediction of the chosen class, moving.
import { branchCount } from "./anatomy";
import type { Moving, Report } from "./data";
import { cut, h, s, unpacked } from "./dom";
import { named, several } from "./format";
import { branchClass } from "./palette";
import type { State } from "./state";

const SIZE = 260;
const SECONDS = 3;

export class MovingSkeletons {
  readonly root: HTMLElement;
  private readonly players: Player[];
  private readonly heading = h("h3");
  private readonly about = h("p", { class: "about" });
  private readonly button: HTMLButtonElement;
  private playing = false;
  private began = 0;

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    private readonly state: State,
  ) {
    this.players = [new Player(report, synthetic, "right"), new Player(report, synthetic, "wrong")];
    this.button = h(
      "button",
      { type: "button", class: "play", click: () => this.play(!this.playing) },
      "Play",
    );
    const slider = h("input", {
      type: "range",
      min: 0,
      max: 1000,
      value: 0,
      "aria-label": "Moment of the recording",
      input: () => (this.play(false), this.at(Number(slider.value) / 1000)),
    });
    this.root = h(
      "figure",
      { id: "moving", class: "wide" },
      h(
        "div",
        { class: "figure-head" },
        h("div", {}, this.heading, this.about),
        h("div", { class: "buttons" }, this.button),
      ),
      h("div", { class: "players" }, ...this.players.map((p) => p.root)),
      slider,
    );
    this.slide = (part) => (slider.value = String(Math.round(1000 * part)));
    state.on((now, before) => now.label !== before.label && this.show());
    this.show();
  }

  private readonly slide: (part: number) => void;

  private show(): void {
    const { examples, classes } = this.report;
    const label = this.state.chosen.label ?? this.firstWrong();
    const found = label === null ? undefined : examples?.classes[String(label)];
    const row = this.report.rows.find((one) => one.key === examples?.row);
    this.heading.textContent =
      label === null ? "Predictions, moving" : `Predictions of ${cut(classes![label]!, 80)}, moving`;
    this.about.textContent =
      examples === null
        ? "The recordings are not at hand: see what is missing, below."
        : `Test recordings, as the network ${named(row ?? null)} names them (${this.report.of_network}).`;
    this.players.forEach((player) =>
      player.load(found?.[player.kind] ?? null, label !== null && found !== undefined),
    );
    this.at(0);
    this.play(!matchMedia("(prefers-reduced-motion: reduce)").matches && found !== undefined);
  }

  private firstWrong(): number | null {
    const all = Object.entries(this.report.examples?.classes ?? {});
    const both = all.find(([, found]) => found.right !== null && found.wrong !== null) ?? all[0];
    return both === undefined ? null : Number(both[0]);
  }

  private at(part: number): void {
    this.players.forEach((player) => player.at(part));
    this.slide(part);
  }

  private play(on: boolean): void {
    const was = this.playing;
    this.playing = on;
    this.button.textContent = on ? "Pause" : "Play";
    if (!on || was) return;
    this.began = performance.now();
    const step = (now: number): void => {
      if (!this.playing) return;
      // Out of sight it costs nothing.
      const box = this.root.getBoundingClientRect();
      if (box.bottom > 0 && box.top < innerHeight) this.at((((now - this.began) / 1000) % SECONDS) / SECONDS);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

class Player {
  readonly root: HTMLElement;
  private readonly caption = h("figcaption");
  private readonly bones: SVGPathElement[];
  private readonly dots: SVGCircleElement[];
  private points: Uint8Array = new Uint8Array();
  private frames = 0;
  private readonly grid: number;

  constructor(
    private readonly report: Report,
    synthetic: string | null,
    readonly kind: "right" | "wrong",
  ) {
    const skeleton = report.skeleton;
    this.grid = report.examples?.grid ?? 127;
    const count = skeleton === null ? 1 : branchCount(skeleton);
    this.bones = (skeleton?.bones ?? []).map(([, joint]) =>
      s("path", { class: `bone ${branchClass(skeleton!.branches[joint]!, count)}` }),
    );
    this.dots = (skeleton?.joints ?? []).map((_, joint) =>
      s("circle", { class: `joint ${branchClass(skeleton!.branches[joint]!, count)}`, r: 3 }),
    );
    const svg = s(
      "svg",
      {
        viewBox: `0 0 ${SIZE} ${SIZE}`,
        class: "player",
        role: "img",
        "aria-label": `a recording named ${kind === "right" ? "right" : "wrongly"}, moving`,
      },
      ...this.bones,
      ...this.dots,
    );
    if (synthetic !== null)
      svg.append(
        s("text", { class: "synthetic-label", x: SIZE - 4, y: SIZE - 6, "text-anchor": "end" }, synthetic),
      );
    this.root = h("figure", { class: `moving ${kind}` }, svg, this.caption);
  }

  load(moving: Moving | null, known: boolean): void {
    this.points = moving === null ? new Uint8Array() : unpacked(moving.bytes);
    this.frames = moving?.frames ?? 0;
    this.root.classList.toggle("empty", moving === null);
    if (moving === null)
      this.caption.textContent = !known
        ? "–"
        : this.kind === "right"
          ? "None of this class is named right."
          : "None of this class is named wrong.";
    else {
      const verdict =
        this.kind === "right" ? "named right" : `taken for ${cut(this.report.classes![moving.said]!, 60)}`;
      this.caption.replaceChildren(
        h("strong", {}, verdict),
        h("span", {}, `${cut(moving.name, 60)} · ${several(moving.length, "frame")}`),
      );
    }
  }

  at(part: number): void {
    if (this.frames === 0 || this.report.skeleton === null) return;
    const joints = this.report.skeleton.joints.length;
    const exact = part * (this.frames - 1);
    const low = Math.min(this.frames - 1, Math.floor(exact));
    const high = Math.min(this.frames - 1, low + 1);
    const mix = exact - low;
    const value = (joint: number, axis: number): number =>
      (1 - mix) * this.points[(low * joints + joint) * 3 + axis]! +
      mix * this.points[(high * joints + joint) * 3 + axis]!;
    const scale = (SIZE / 2 - 14) / this.grid;
    const x = (joint: number): number => SIZE / 2 + (value(joint, 0) - this.grid) * scale;
    const y = (joint: number): number => SIZE / 2 - (value(joint, 1) - this.grid) * scale;
    this.dots.forEach((dot, joint) => {
      dot.setAttribute("cx", x(joint).toFixed(1));
      dot.setAttribute("cy", y(joint).toFixed(1));
    });
    this.report.skeleton.bones.forEach(([a, b], i) =>
      this.bones[i]!.setAttribute(
        "d",
        `M${x(a).toFixed(1)} ${y(a).toFixed(1)}L${x(b).toFixed(1)} ${y(b).toFixed(1)}`,
      ),
    );
  }
}
