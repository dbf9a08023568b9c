// Turning the picture of a network towards one class, or one joint.
import type { Anatomy } from "./anatomy";
import type { Columns } from "./columns";
import type { Network, Report } from "./data";
import { cut, s } from "./dom";
import { percent, share } from "./format";
import { ranked, WHOLE } from "./listening";
import { together, type Stroke } from "./strokes";

export interface Chosen {
  kind: "class" | "joint";
  index: number;
}
export type Lit = Chosen | null;

export interface Stage {
  svg: SVGSVGElement;
  lines: SVGGElement;
  glow: SVGGElement;
  names: SVGGElement;
  body: Anatomy;
  space: Columns;
  branches: number;
  strokes: (chosen: Chosen) => Stroke[];
  filters: (lit: Lit) => void;
}

export function light(report: Report, network: Network, stage: Stage, lit: Lit): void {
  stage.lines.classList.toggle("dim", lit !== null);
  stage.svg.classList.toggle("lit", lit !== null);
  stage.filters(lit);
  stage.glow.replaceChildren(...(lit === null ? [] : together(stage.strokes(lit), stage.branches)));
  lightJoints(network, stage.body, lit);
  lightClasses(network, stage.svg, lit);
  nameJoints(report, network, stage, lit);
}

// A joint is as large as its share of the class.
function lightJoints(network: Network, body: Anatomy, lit: Lit): void {
  const part = (joint: number): number => {
    if (lit === null) return 0;
    if (lit.kind === "class") return network.joints[lit.index]![joint]! / WHOLE;
    return joint === lit.index ? 0.25 : 0;
  };
  body.dots.forEach((dot, joint) => {
    const own = part(joint);
    const radius = lit === null ? 3.6 : own > 0 ? 3.2 + 15 * Math.sqrt(own) : 2;
    dot.setAttribute("r", radius.toFixed(1));
    dot.classList.toggle("faint", lit !== null && own === 0);
    dot.classList.toggle("on", lit !== null && own > 0);
  });
}

function lightClasses(network: Network, svg: SVGSVGElement, lit: Lit): void {
  svg.querySelectorAll<SVGGElement>(".class-mark").forEach((mark) => {
    const label = Number(mark.dataset["class"]);
    let part: number | null = null;
    if (lit?.kind === "class") part = label === lit.index ? 1 : 0;
    if (lit?.kind === "joint") part = network.joints[label]![lit.index]! / WHOLE;
    mark.classList.toggle("faint", part === 0);
    mark.classList.toggle("on", part !== null && part > 0);
    const told = lit?.kind === "joint" && part !== null && part >= 0.005;
    mark.querySelector(".class-share")!.textContent = told ? percent(100 * part!) : "";
  });
}

// The names of the joints that matter most, where they do not cover each other.
function nameJoints(report: Report, network: Network, { names, body, space }: Stage, lit: Lit): void {
  const joints = report.skeleton!.joints;
  const wanted: [number, string][] = [];
  if (lit?.kind === "joint") wanted.push([lit.index, joints[lit.index]!]);
  if (lit?.kind === "class") {
    const most = ranked(network.joints[lit.index]!).slice(0, space.narrow ? 2 : 5);
    for (const [j, part] of most) wanted.push([j, `${joints[j]} ${share(part / WHOLE)}`]);
  }
  const taken: [number, number][] = [];
  const texts: SVGTextElement[] = [];
  for (const [j, text] of wanted) {
    const [x, y] = body.places[j]!;
    if (taken.some(([a, b]) => Math.abs(a - x) < 110 && Math.abs(b - y) < 17)) continue;
    taken.push([x, y]);
    const place = { x: (x + 13).toFixed(1), y: (y + 4).toFixed(1) };
    texts.push(s("text", { ...place, "font-size": space.narrow ? 10 : 12.5 }, cut(text, 28)));
  }
  names.replaceChildren(...texts);
}
