// Which joints a class listens to, and which classes hear a joint, in words.
import type { Network, Report } from "./data";
import { several, share } from "./format";

export const FULL_SHARE = 10_000; // shares are told in these parts
const NAMED = 6;

// What is there at all, the largest first: its place, and its part.
export function ranked(parts: number[]): [number, number][] {
  return parts
    .map((part, i) => [i, part] as [number, number])
    .filter(([, part]) => part > 0)
    .sort((a, b) => b[1] - a[1]);
}

export function reachedClasses(network: Network): number {
  return network.joints.filter((shares) => shares.some((part) => part > 0)).length;
}

export function heardJoints(network: Network): number {
  const joints = network.joints[0] ?? [];
  return joints.filter((_, j) => network.joints.some((shares) => shares[j]! > 0)).length;
}

export function listens(report: Report, network: Network, label: number): string {
  const found = ranked(network.joints[label]!);
  if (found.length === 0) return "listens to nothing: no path reaches it";
  const names = found.map(([j, part]) => `${report.skeleton!.joints[j]} ${share(part / FULL_SHARE)}`);
  return `listens to ${several(found.length, "joint")}: ${few(names)}`;
}

export function heard(report: Report, network: Network, joint: number): string {
  const found = ranked(network.joints.map((shares) => shares[joint]!));
  if (found.length === 0) return "is heard by no class";
  const names = found.map(([o, part]) => `${report.classes![o]} (${share(part / FULL_SHARE)} of it)`);
  return `is heard by ${several(found.length, "class", "classes")}: ${few(names)}`;
}

function few(names: string[]): string {
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  return names.slice(0, NAMED).join(", ") + more;
}
