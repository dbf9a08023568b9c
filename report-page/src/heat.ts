// A table of shares as colours: a row for each class, which can be chosen.
import { cut, s } from "./dom";
import { canvas } from "./figure";
import { share } from "./format";
import { FULL_SHARE } from "./listening";

export interface Heat {
  values: number[][]; // of each class, in ten-thousandths
  classes: string[];
  chosen: number | null;
  pick: (label: number) => void;
  names: string[]; // of columns, short
  told: (column: number) => string; // the same in full
  labels: "upright" | "every" | "some"; // which columns have their name above, and how
}

export function heat(
  width: number,
  { values, classes, chosen, pick, names, told, labels }: Heat,
): SVGSVGElement {
  const font = width < 480 ? 9.5 : 11;
  const left = Math.min(
    width * 0.32,
    14 + font * 0.58 * Math.max(...classes.map((name) => Math.min(18, [...name].length))),
  );
  const row = font + 4;
  const tall = Math.max(...names.map((name) => [...name].length));
  const top = labels === "upright" ? 8 + Math.min(80, font * 0.6 * tall) : 20;
  const step = (width - left - 6) / names.length;
  const svg = canvas(width, top + row * classes.length + 8, "chart");
  const most = Math.max(1, ...values.flat());
  names.forEach((name, j) => {
    const x = left + step * (j + 0.5);
    const text = (place: Record<string, string | number>): SVGTextElement =>
      s(
        "text",
        { class: "axis-name", "font-size": font - 1, ...place },
        cut(name, 13),
        s("title", {}, told(j)),
      );
    if (labels === "upright") svg.append(text({ transform: `translate(${x + 3} ${top - 5}) rotate(-90)` }));
    else if (labels === "every" || j === 0 || j === names.length - 1 || (j + 1) % 8 === 0)
      svg.append(text({ x, y: top - 5, "text-anchor": "middle" }));
  });
  values.forEach((shares, o) => {
    const y = top + row * o;
    const group = s("g", {
      class: `heat-row${chosen === o ? " on" : ""}`,
      "data-class": o,
      click: () => pick(o),
    });
    const name = { x: left - 5, y: y + font, "text-anchor": "end", "font-size": font };
    group.append(
      s("rect", { class: "heat-back", x: 0, y, width, height: row }),
      s("text", { class: "heat-name", ...name }, cut(classes[o]!, 18), s("title", {}, classes[o]!)),
    );
    shares.forEach((part, j) => {
      if (part === 0) return;
      const look = {
        class: "heat",
        x: (left + step * j).toFixed(1),
        y: y + 0.5,
        width: Math.max(1, step - 1).toFixed(1),
        height: row - 1,
        "fill-opacity": (0.06 + 0.94 * (part / most) ** 0.8).toFixed(2),
      };
      group.append(s("rect", look, s("title", {}, `${classes[o]}, ${told(j)}: ${share(part / FULL_SHARE)}`)));
    });
    svg.append(group);
  });
  return svg;
}
