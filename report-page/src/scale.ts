// From values to places.

export type Scale = (value: number) => number;

export function linear(from: [number, number], to: [number, number]): Scale {
  const span = from[1] - from[0] || 1;
  return (value) => to[0] + ((value - from[0]) / span) * (to[1] - to[0]);
}

export function logarithmic(from: [number, number], to: [number, number]): Scale {
  const inner = linear([Math.log(from[0]), Math.log(from[1])], to);
  return (value) => inner(Math.log(value));
}

// Round steps that a person would choose: 1, 2 or 5 times a power of ten.
export function steps(low: number, high: number, about: number): number[] {
  const raw = (high - low) / Math.max(1, about) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) ?? raw;
  const found: number[] = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    found.push(Number(v.toPrecision(12)));
  return found;
}
