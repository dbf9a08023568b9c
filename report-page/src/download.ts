// Charts and tables as files, made in the page itself.
import { h, s } from "./dom";

export interface Table {
  head: string[];
  rows: (string | number | null)[][];
}

function save(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A cell that begins like a formula would be run by a spreadsheet: an apostrophe makes it text.
function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(table: Table): string {
  return [table.head, ...table.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function saveCsv(name: string, table: Table): void {
  save(`${name}.csv`, "text/csv", csv(table));
}

const LOOKS = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "opacity",
  "font-size",
  "font-weight",
  "font-family",
  "text-anchor",
  "dominant-baseline",
  "letter-spacing",
  "paint-order",
];
// rgb(217, 130, 0) and 0.49px as files have them.
function brief(value: string): string {
  const rgb = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(value);
  if (rgb)
    return (
      "#" +
      rgb
        .slice(1)
        .map((part) => Number(part).toString(16).padStart(2, "0"))
        .join("")
    );
  return value.replace(/^([\d.]+)px$/, "$1");
}

const TITLE = 30; // height of the title that a picture has as a file

// A copy that looks the same without the page's style: what was drawn, in a group.
function looked(svg: SVGSVGElement): SVGGElement {
  const copy = s("g", {}, ...[...svg.children].map((child) => child.cloneNode(true)));
  const pairs: [Element, Element][] = [[svg, copy]];
  for (let i = 0; i < pairs.length; i++) {
    const [from, to] = pairs[i]!;
    const seen = getComputedStyle(from);
    const above = from === svg ? null : getComputedStyle(from.parentElement!);
    for (const look of LOOKS) {
      const value = seen.getPropertyValue(look);
      // All but opacity are inherited: only what differs needs to be said.
      if (look === "opacity" ? value !== "1" : above === null || value !== above.getPropertyValue(look))
        to.setAttribute(look, brief(value));
      else to.removeAttribute(look);
    }
    for (const name of ["class", "tabindex", "role"]) to.removeAttribute(name);
    [...from.children].forEach((child, n) => pairs.push([child, to.children[n]!]));
  }
  copy.querySelectorAll("[data-page-only]").forEach((part) => part.remove());
  return copy;
}

// A picture as a file: its layers on each other, under a title.
export function standalone(layers: SVGSVGElement[], title: string): string {
  const svg = layers.at(-1)!;
  const box = svg.viewBox.baseVal;
  const [pad, top] = [16, box.y - TITLE];
  const frame = { x: -pad, y: top - pad, width: box.width + 2 * pad, height: box.height + TITLE + 2 * pad };
  const copy = s("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `${frame.x} ${frame.y} ${frame.width} ${frame.height}`,
    width: frame.width,
    height: frame.height,
    role: "img",
    "aria-label": svg.getAttribute("aria-label"),
  });
  const look = getComputedStyle(document.documentElement);
  const text = s(
    "text",
    {
      x: 0,
      y: top + 16,
      "font-size": 16,
      "font-weight": 650,
      "font-family": getComputedStyle(document.body).fontFamily,
      fill: look.getPropertyValue("--ink").trim(),
    },
    title,
  );
  const ground = s("rect", { ...frame, fill: look.getPropertyValue("--panel").trim() });
  copy.append(ground, text, ...layers.map(looked));
  return new XMLSerializer().serializeToString(copy);
}

export function saveSvg(name: string, layers: SVGSVGElement[], title: string): void {
  save(`${name}.svg`, "image/svg+xml", standalone(layers, title));
}
