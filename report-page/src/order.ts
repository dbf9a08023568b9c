// Where heads, filters and classes stand, so that lines cross little: each moves to the mean of
// what it is joined to, over and over.

export interface Unit {
  key: string;
  head: number;
  block: number;
}

export interface Order {
  filters: Unit[][]; // of each block, heads together
  classes: number[];
}

export interface Link {
  from: string;
  to: string;
  weight: number;
}

function mean(pairs: [number, number][], otherwise: number): number {
  let [sum, weights] = [0, 0];
  for (const [value, weight] of pairs) {
    sum += value * weight;
    weights += weight;
  }
  return weights > 0 ? sum / weights : otherwise;
}

// links[b] join filters of block b to those of the next, the last to classes, named by number.
// height[o] is about where a class should stand: as high as the joints that it listens to.
export function ordered(units: Unit[][], links: Link[][], height: number[]): Order {
  const rank = <T>(items: T[]): Map<T, number> =>
    new Map(items.map((item, i) => [item, i / Math.max(1, items.length - 1)]));
  let classes = height.map((_, o) => o).sort((a, b) => height[a]! - height[b]!);
  let filters = units.map((list) => [...list]);
  const outgoing = links.map((list) => grouped(list, (link) => link.from));
  const incoming = grouped(links.at(-1)!, (link) => link.to);
  for (let round = 0; round < 12; round++) {
    let next: Map<string, number> = new Map([...rank(classes)].map(([o, place]) => [String(o), place]));
    for (let block = filters.length - 1; block >= 0; block--) {
      const at = new Map(
        filters[block]!.map((unit) => [
          unit.key,
          mean(
            (outgoing[block]!.get(unit.key) ?? []).map((link) => [next.get(link.to) ?? 0.5, link.weight]),
            0.5,
          ),
        ]),
      );
      const byHead = grouped(filters[block]!, (unit) => String(unit.head));
      const order = [...byHead.values()].sort(
        (a, b) =>
          mean(
            a.map((u) => [at.get(u.key)!, 1]),
            0.5,
          ) -
          mean(
            b.map((u) => [at.get(u.key)!, 1]),
            0.5,
          ),
      );
      filters[block] = order.flatMap((list) => list.sort((a, b) => at.get(a.key)! - at.get(b.key)!));
      next = new Map([...rank(filters[block]!)].map(([unit, place]) => [unit.key, place]));
    }
    const last = new Map([...rank(filters.at(-1)!)].map(([unit, place]) => [unit.key, place]));
    const score = height.map((tall, o) =>
      mean(
        (incoming.get(String(o)) ?? []).map((link) => [last.get(link.from) ?? 0.5, link.weight]),
        tall,
      ),
    );
    if (round < 11) classes = [...classes].sort((a, b) => score[a]! - score[b]!);
  }
  return { filters, classes };
}

export function grouped<T>(items: T[], key: (item: T) => string): Map<string, T[]> {
  const found = new Map<string, T[]>();
  for (const item of items) {
    const list = found.get(key(item));
    if (list) list.push(item);
    else found.set(key(item), [item]);
  }
  return found;
}
