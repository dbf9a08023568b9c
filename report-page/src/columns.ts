// The columns of the picture, for the width there is: joints, heads, filters, classes.
import type { Box } from "./anatomy";

export interface Columns {
  width: number;
  height: number;
  top: number;
  bottom: number;
  narrow: boolean;
  hand: Box;
  heads: number;
  headWidth: number;
  filters: number[]; // of each block
  classes: number;
  label: number; // characters that fit behind a class
  font: number;
}

export function columns(width: number, classes: number, blocks: number): Columns {
  const narrow = width < 640;
  const row = narrow ? 17 : 19;
  const top = 40;
  const height = Math.max(narrow ? 480 : 560, top + classes * row + 24);
  const bottom = height - 18;
  const hand = narrow
    ? { x: 8, y: top + (bottom - top) / 2 - width * 0.24, width: width * 0.27, height: width * 0.48 }
    : {
        x: 26,
        y: top + (bottom - top) / 2 - Math.min(width * 0.2, (bottom - top) * 0.42),
        width: width * 0.29,
        height: 2 * Math.min(width * 0.2, (bottom - top) * 0.42),
      };
  const heads = width * (narrow ? 0.4 : 0.43);
  const classesAt = width * (narrow ? 0.7 : 0.83);
  const first = width * (narrow ? 0.53 : 0.6);
  const filters = Array.from(
    { length: blocks },
    (_, b) => first + (b * (classesAt - first)) / (blocks + 0.35),
  );
  const font = narrow ? 10 : 12.5;
  return {
    width,
    height,
    top,
    bottom,
    narrow,
    hand,
    heads,
    headWidth: narrow ? 6 : 10,
    filters,
    classes: classesAt,
    label: Math.floor((width - classesAt - 16) / (font * 0.56)),
    font,
  };
}
