// Turning the picture of a network towards one class, or one joint.
import type { Anatomy } from "./anatomy";
import type { Columns } from "./columns";
import type { Network, Report } from "./data";
import { cut, s } from "./dom";
import { percent, share } from "./format";
import { ranked, FULL_SHARE } from "./listening";
import { branchClass } from "./palette";
import { together, type Stroke } from "./strokes";

export interface Chosen {
  kind: "class" | "joint";
  index: number;
}
export type Lit = Chosen | null;

export interface Stage {
  svg: SVGSVGElement;
  // Pictures of their own, which only ever fade: lines, and the marks of joints, heads and classes.
  lines: SVGSVGElement;
  marks: SVGSVGElement;
  glow: SVGGElement; // lit lines
  shine: SVGGElement; // lit joints and classes
  names: SVGGElement;
  body: Anatomy;
  space: Columns;
  branches: number;
  classes: { group: SVGGElement; y: number; text: string }[];
  strokes: (chosen: Chosen) => Stroke[];
  dots: (chosen: Chosen) => Stroke[]; // of filters
}

// What is not lit fades as whole pictures, which a browser need not paint again for that: what is lit
// is drawn once more, above them.
export function light(report: Report, network: Network, stage: Stage, lit: Lit): void {
  for (const picture of [stage.lines, stage.marks]) turn(picture, "dim", lit !== null);
  const strokes = lit === null ? [] : together(stage.strokes(lit), stage.branches, "lit-line");
  const dots = lit === null ? [] : together(stage.dots(lit), stage.branches, "lit-dot");
  fill(stage.glow, [...strokes, ...dots]);
  fill(stage.shine, [...litJoints(report, network, stage, lit), ...litClasses(network, stage, lit)]);
  fill(stage.names, jointNames(report, network, stage, lit));
}

function fill(group: SVGGElement, children: Element[]): void {
  if (children.length > 0 || group.childNodes.length > 0) group.replaceChildren(...children);
}

function turn(element: Element, name: string, on: boolean): void {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

// A joint is as large as its share of the class.
function litJoints(report: Report, network: Network, { body, branches }: Stage, lit: Lit): Element[] {
  const part = (joint: number): number => {
    if (lit === null) return 0;
    if (lit.kind === "class") return network.joints[lit.index]![joint]! / FULL_SHARE;
    return joint === lit.index ? 0.25 : 0;
  };
  return body.places.flatMap(([x, y], joint) => {
    const own = part(joint);
    turn(body.dots[joint]!, "on", own > 0);
    if (own <= 0) return [];
    const look = `lit-joint ${branchClass(report.skeleton!.branches[joint]!, branches)}`;
    const r = (3.6 + 15 * Math.sqrt(own)).toFixed(1);
    return [s("circle", { class: look, cx: x.toFixed(1), cy: y.toFixed(1), r })];
  });
}

const SHARE = 7; // characters that a share takes behind a name

// A class has its name, strong, and where a joint was chosen how much of it comes from there.
function litClasses(network: Network, { classes, space }: Stage, lit: Lit): Element[] {
  const rows: [number, string, string][] = [];
  classes.forEach(({ group, y, text }, label) => {
    let part = 0;
    if (lit?.kind === "class") part = label === lit.index ? 1 : 0;
    if (lit?.kind === "joint") part = network.joints[label]![lit.index]! / FULL_SHARE;
    turn(group, "on", part > 0);
    if (part <= 0) return;
    const told = lit?.kind === "joint" && part >= 0.005 ? percent(100 * part) : "";
    rows.push([y, told ? cut(text, space.label - SHARE) : text, told]);
  });
  if (rows.length === 0) return [];
  const step = (space.bottom - space.top) / classes.length;
  const x = space.classes + 6;
  const box = (y: number): string =>
    `M${x} ${(y - step / 2).toFixed(1)}H${space.width}v${step.toFixed(1)}H${x}z`;
  const r = space.narrow ? 2.2 : 3;
  const dot = (y: number): string =>
    `M${space.classes - r} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  return [
    s("path", { class: "lit-ground", d: rows.map(([y]) => box(y)).join("") }),
    s("path", { class: "class-dot", d: rows.map(([y]) => dot(y)).join("") }),
    ...rows.map(([y, text, told]) =>
      s(
        "text",
        { class: "lit-name", ...nameAt(space, y) },
        text,
        told ? s("tspan", { class: "class-share", dx: 7 }, told) : null,
      ),
    ),
  ];
}

// Where the name of a class stands.
export function nameAt(space: Columns, y: number): Record<string, number> {
  return { x: space.classes + 9, y: y + space.font * 0.35, "font-size": space.font };
}

// The names of the joints that matter most, where they do not cover each other.
function jointNames(report: Report, network: Network, { body, space }: Stage, lit: Lit): Element[] {
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
  return texts;
}
