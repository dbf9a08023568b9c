// A skeleton in its anatomical shape: a soft silhouette, bones, and joints that can be lit.
import type { Skeleton } from "./data";
import { s } from "./dom";
import { branchClass } from "./palette";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Anatomy {
  flesh: SVGPathElement; // to lie behind everything
  group: SVGGElement;
  places: [number, number][];
  dots: SVGCircleElement[];
  scale: number;
}

export function branchCount(skeleton: Skeleton): number {
  return Math.max(...skeleton.branches) + 1;
}

// The pose fitted into a box, as large as it goes, in its middle.
export function fitted(pose: [number, number][], box: Box): { places: [number, number][]; scale: number } {
  const xs = pose.map((p) => p[0]);
  const ys = pose.map((p) => p[1]);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min(box.width / (right - left || 1), box.height / (bottom - top || 1));
  const dx = box.x + (box.width - scale * (right - left)) / 2;
  const dy = box.y + (box.height - scale * (bottom - top)) / 2;
  return { places: pose.map(([x, y]) => [dx + scale * (x - left), dy + scale * (y - top)]), scale };
}

export function anatomy(skeleton: Skeleton, box: Box): Anatomy {
  const { places, scale } = fitted(skeleton.pose, box);
  const count = branchCount(skeleton);
  const group = s("g", { class: "anatomy" });
  const lengths = skeleton.bones
    .map(([a, b]) => Math.hypot(places[a]![0] - places[b]![0], places[a]![1] - places[b]![1]))
    .sort((a, b) => a - b);
  const thickness = Math.max(6, Math.min(0.105 * scale, 0.62 * (lengths[lengths.length >> 1] ?? 0)));
  const path = (a: number, b: number): string =>
    `M${places[a]!.map((n) => n.toFixed(1)).join(" ")}L${places[b]!.map((n) => n.toFixed(1)).join(" ")}`;
  const bones = skeleton.bones.map(([a, b]) => path(a, b)).join("");
  // Between what hangs on one joint there is flesh too: a palm, a trunk.
  const children = (joint: number): number[] =>
    skeleton.bones.filter(([parent]) => parent === joint).map(([, child]) => child);
  const web = skeleton.joints
    .map((_, joint) => [joint, ...children(joint)])
    .filter((ring) => ring.length > 3)
    .map((ring) => `M${ring.map((j) => places[j]!.map((n) => n.toFixed(1)).join(" ")).join("L")}Z`)
    .join("");
  const flesh = s("path", { class: "flesh", d: web + bones, "stroke-width": thickness.toFixed(1) });
  skeleton.bones.forEach(([a, b]) =>
    group.append(s("path", { class: `bone ${branchClass(skeleton.branches[b]!, count)}`, d: path(a, b) })),
  );
  const dots = places.map(([x, y], joint) =>
    s("circle", {
      class: `joint ${branchClass(skeleton.branches[joint]!, count)}`,
      cx: x.toFixed(1),
      cy: y.toFixed(1),
      r: 3.6,
    }),
  );
  group.append(...dots);
  return { flesh, group, places, dots, scale };
}
