// Colours are classes of style.css, which gives each a light and a dark tone. After Okabe and Ito:
// the colour-blind can tell them apart, and a shape or a dash always says the same.

export const SERIES = 7;
export const MARKS = ["circle", "square", "triangle", "diamond", "down", "cross", "star"] as const;

export interface Look {
  colour: string;
  mark: (typeof MARKS)[number];
  dash: string;
}

const ORDER = ["viterbi", "tc", "tc-stochastic", "mp", "stochastic-mp", "global-mp", "lamp"];

// The paper's methods and our own have colours of their own; others repeat them, dashed. Each round
// of colours shifts the marks by one, so that no two methods share both, up to 49 of them.
export function looks(methods: { key: string }[]): Map<string, Look> {
  const rest = methods.map((m) => m.key).filter((key) => !ORDER.includes(key));
  const found = new Map<string, Look>();
  const set = (key: string, place: number): void => {
    const [colour, round] = [place % SERIES, Math.floor(place / SERIES)];
    found.set(key, {
      colour: `c${colour}`,
      mark: MARKS[(colour + round) % MARKS.length]!,
      dash: round === 0 ? "" : round % 2 ? "7 4" : "2 4",
    });
  };
  ORDER.filter((key) => methods.some((m) => m.key === key)).forEach((key) => set(key, ORDER.indexOf(key)));
  // Where none of them is there, the first colours are free.
  rest.forEach((key, i) => set(key, i + (rest.length < methods.length ? SERIES : 0)));
  return found;
}

export function markPath(mark: Look["mark"], x: number, y: number, r: number): string {
  const at = (points: [number, number][]): string =>
    "M" + points.map(([a, b]) => `${(x + a * r).toFixed(1)} ${(y + b * r).toFixed(1)}`).join("L") + "Z";
  switch (mark) {
    case "circle":
      return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case "square":
      return at([
        [-0.9, -0.9],
        [0.9, -0.9],
        [0.9, 0.9],
        [-0.9, 0.9],
      ]);
    case "triangle":
      return at([
        [0, -1.15],
        [1.05, 0.8],
        [-1.05, 0.8],
      ]);
    case "down":
      return at([
        [0, 1.15],
        [1.05, -0.8],
        [-1.05, -0.8],
      ]);
    case "diamond":
      return at([
        [0, -1.25],
        [1.1, 0],
        [0, 1.25],
        [-1.1, 0],
      ]);
    case "cross":
      return at([
        [-0.4, -1.1],
        [0.4, -1.1],
        [0.4, -0.4],
        [1.1, -0.4],
        [1.1, 0.4],
        [0.4, 0.4],
        [0.4, 1.1],
        [-0.4, 1.1],
        [-0.4, 0.4],
        [-1.1, 0.4],
        [-1.1, -0.4],
        [-0.4, -0.4],
      ]);
    case "star":
      return at(
        Array.from({ length: 10 }, (_, i) => {
          const out = i % 2 === 0 ? 1.3 : 0.55;
          return [out * Math.sin((i * Math.PI) / 5), -out * Math.cos((i * Math.PI) / 5)] as [number, number];
        }),
      );
  }
}

export const branchClass = (branch: number, count: number): string =>
  branch === 0 && count > 2 ? "b0" : `b${1 + ((branch - (count > 2 ? 1 : 0)) % 6)}`;
