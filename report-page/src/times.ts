// When: a channel of a joint is of a moment of the recording or, in the basis of cosines, of a wave
// over all of it.
import type { Report } from "./data";

export interface Times {
  basis: Report["basis"];
  moments: number[]; // the moment, or the wave, of each three channels
  count: number;
}

export function timesOf(report: Report): Times {
  return { basis: report.basis, moments: report.moments, count: 1 + Math.max(...report.moments) };
}

// How far along a head a channel's lines begin, from 0 to 1: the first moment or the slowest wave on
// top. Waves by octaves: slow ones matter most, and would lie on each other.
export function along({ basis, moments, count }: Times, channel: number): number {
  const place = moments[Math.floor(channel / 3)]! + ((channel % 3) + 0.5) / 3;
  return basis === "chunks" ? place / count : Math.log2(1 + place) / Math.log2(1 + count);
}

const HALF = "½";

// Wave k is half k waves over the recording; wave 0 is where a joint is on average.
export function waves(k: number): string {
  const whole = Math.floor(k / 2);
  return k % 2 === 0 ? `${whole}` : `${whole || ""}${HALF}`;
}

export function waveName(k: number): string {
  if (k === 0) return "wave 0: the average place";
  return `wave ${k}: ${k === 1 ? "half a wave" : k === 2 ? "one wave" : `${waves(k)} waves`} over the recording`;
}

// Waves from slow to fast, by octaves from the fifth on: first and last of each band.
export function bands(count: number): [number, number][] {
  const found: [number, number][] = [];
  for (let first = 0; first < count;) {
    const last = Math.min(count - 1, first < 5 ? first : 2 * first - 2);
    found.push([first, last]);
    first = last + 1;
  }
  return found;
}

export function bandName([first, last]: [number, number]): string {
  if (first === 0) return "average";
  return first === last ? waves(first) : `${waves(first)}–${waves(last)}`;
}

// Which moments, or waves, the lines of a head are of, in words.
export function looksAt({ basis, moments }: Times, channels: number[]): string {
  const found = [...new Set(channels.map((channel) => moments[Math.floor(channel / 3)]!))].sort(
    (a, b) => a - b,
  );
  const names = found.map((place) => (basis === "chunks" ? `${place + 1}` : `${place}`));
  const more = names.length > 8 ? ` and ${names.length - 8} more` : "";
  const word = basis === "chunks" ? "moment" : "wave";
  return `${word}${names.length === 1 ? "" : "s"} ${names.slice(0, 8).join(", ")}${more}`;
}
