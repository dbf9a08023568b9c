// The columns of the picture, for the width there is: joints, heads and filters of each block,
// classes.
import type { Box } from "./anatomy";

export interface Columns {
  width: number;
  height: number;
  top: number;
  bottom: number;
  narrow: boolean;
  hand: Box;
  heads: number[]; // of each block
  headWidth: number;
  gateWidth: number; // of the heads of later blocks, which show their joints on both sides
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
  const classesAt = width * (narrow ? 0.7 : 0.83);
  const start = width * (blocks > 1 ? (narrow ? 0.34 : 0.37) : narrow ? 0.4 : 0.43);
  // One block: heads, filters and classes; each further one puts its heads and filters between.
  const steps = blocks > 1 ? [1, 0.8, 0.9, 1.4] : [0.425, 0, 0, 0.575];
  const gateWidth = narrow ? 12 : Math.min(44, width * 0.03);
  const room = classesAt - start - gateWidth * (blocks - 1);
  const unit = room / (steps[0]! + (blocks - 1) * (steps[1]! + steps[2]!) + steps[3]!);
  const heads = [start];
  const filters = [start + unit * steps[0]!];
  for (let b = 1; b < blocks; b++) {
    heads.push(filters[b - 1]! + unit * steps[1]!);
    filters.push(heads[b]! + gateWidth + unit * steps[2]!);
  }
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
    gateWidth,
    filters,
    classes: classesAt,
    label: Math.floor((width - classesAt - 16) / (font * 0.56)),
    font,
  };
}
