// Turning the picture of a network towards one class, or one joint.
import type { Anatomy } from "./anatomy";
import type { Columns } from "./columns";
import type { Network, Report } from "./data";
import { cut, s } from "./dom";
import { percent, share } from "./format";
import { ranked, FULL_SHARE } from "./listening";
import { together, type Stroke } from "./strokes";

export interface Chosen {
  kind: "class" | "joint";
  index: number;
}
export type Lit = Chosen | null;

export interface Stage {
  svg: SVGSVGElement;
  lines: SVGSVGElement; // a picture of its own: it only ever fades
  glow: SVGGElement;
  names: SVGGElement;
  body: Anatomy;
  space: Columns;
  branches: number;
  classes: { group: SVGGElement; told: SVGTSpanElement }[];
  strokes: (chosen: Chosen) => Stroke[];
  dots: (chosen: Chosen) => Stroke[]; // of filters
}

// What is not lit fades by one rule of the style for all of it: only what is lit, or was, is touched.
export function light(report: Report, network: Network, stage: Stage, lit: Lit): void {
  stage.lines.classList.toggle("dim", lit !== null);
  stage.svg.classList.toggle("lit", lit !== null);
  stage.glow.replaceChildren(
    ...(lit === null
      ? []
      : [
          ...together(stage.strokes(lit), stage.branches, "lit-line"),
          ...together(stage.dots(lit), stage.branches, "lit-dot"),
        ]),
  );
  lightJoints(network, stage.body, lit);
  lightClasses(network, stage, lit);
  nameJoints(report, network, stage, lit);
}

function set(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function turn(element: Element, name: string, on: boolean): void {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

// A joint is as large as its share of the class.
function lightJoints(network: Network, body: Anatomy, lit: Lit): void {
  const part = (joint: number): number => {
    if (lit === null) return 0;
    if (lit.kind === "class") return network.joints[lit.index]![joint]! / FULL_SHARE;
    return joint === lit.index ? 0.25 : 0;
  };
  body.dots.forEach((dot, joint) => {
    const own = part(joint);
    set(dot, "r", (own > 0 ? 3.2 + 15 * Math.sqrt(own) : 3.6).toFixed(1));
    turn(dot, "on", own > 0);
  });
}

function lightClasses(network: Network, { classes }: Stage, lit: Lit): void {
  classes.forEach(({ group, told }, label) => {
    let part = 0;
    if (lit?.kind === "class") part = label === lit.index ? 1 : 0;
    if (lit?.kind === "joint") part = network.joints[label]![lit.index]! / FULL_SHARE;
    turn(group, "on", part > 0);
    const text = lit?.kind === "joint" && part >= 0.005 ? percent(100 * part) : "";
    if (told.textContent !== text) told.textContent = text;
  });
}

// The names of the joints that matter most, where they do not cover each other.
function nameJoints(report: Report, network: Network, { names, body, space }: Stage, lit: Lit): void {
  const joints = report.skeleton!.joints;
  const wanted: [number, string][] = [];
  if (lit?.kind === "joint") wanted.push([lit.index, joints[lit.index]!]);
  if (lit?.kind === "class") {
    const most = ranked(network.joints[lit.index]!).slice(0, space.narrow ? 2 : 5);
    for (const [j, part] of most) wanted.push([j, `${joints[j]} ${share(part / FULL_SHARE)}`]);
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
  if (texts.length > 0 || names.childNodes.length > 0) names.replaceChildren(...texts);
}
