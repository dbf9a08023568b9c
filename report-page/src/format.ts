import type { Pair, Row } from "./data";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value: number): string => whole.format(value);

export const decimals = (value: number, places: number): string => value.toFixed(places);

export function pair(value: Pair | null, places = 1): string {
  if (value === null) return "–";
  const [mean, deviation] = value;
  return deviation === null
    ? decimals(mean, places)
    : `${decimals(mean, places)} ± ${decimals(deviation, places)}`;
}

export function percent(value: number, places = 0): string {
  return `${decimals(value, places)} %`;
}

// Shares: never nothing where there is something.
export function share(value: number): string {
  if (value > 0 && value < 0.005) return "< 0.5 %";
  return percent(100 * value, value < 0.1 ? 1 : 0);
}

export function bytes(value: number | null): string {
  if (value === null) return "–";
  if (value < 1e3) return `${count(value)} bytes`;
  return value < 1e6 ? `${decimals(value / 1e3, 1)} kB` : `${decimals(value / 1e6, 2)} MB`;
}

export function large(value: number | null): string {
  if (value === null) return "–";
  if (value < 1e4) return count(value);
  return value < 1e6 ? `${decimals(value / 1e3, 1)} thousand` : `${decimals(value / 1e6, 2)} million`;
}

export function plain(value: number): string {
  return String(Number(value.toPrecision(6)));
}

export function several(number: number, one: string, more = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : more}`;
}

// A network, by its method and rate.
export function named(row: Row | null): string {
  if (row === null) return "–";
  return row.method === "dense" ? "dense" : `${row.label} at ${plain(row.rate)} %`;
}
