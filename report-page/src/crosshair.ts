// A line across a chart that the mouse or the arrow keys move from place to place.
import { s } from "./dom";

export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export interface Crosshair {
  svg: SVGSVGElement;
  box: Box;
  places: number[]; // on the chart, from left to right
  show: (index: number) => string; // says in words what is there
  hide: () => void;
  press: (index: number) => void;
}

export function crosshair({ svg, box, places, show, hide, press }: Crosshair): void {
  if (places.length === 0) return;
  const pageOnly = { "data-page-only": "" }; // no part of a saved picture
  const line = s("line", {
    class: "crosshair",
    y1: box.top,
    y2: box.bottom,
    visibility: "hidden",
    ...pageOnly,
  });
  const cover = s("rect", {
    class: "cover",
    x: box.left,
    y: box.top,
    width: Math.max(0, box.right - box.left),
    height: box.bottom - box.top,
    tabindex: 0,
    role: "slider",
    "aria-label": "Read values: arrow keys",
    "aria-valuemin": 0,
    "aria-valuemax": places.length - 1,
    "aria-valuenow": 0,
    "aria-valuetext": "",
    ...pageOnly,
  });
  let current = 0;
  const move = (to: number): void => {
    current = Math.max(0, Math.min(places.length - 1, to));
    for (const end of ["x1", "x2"]) line.setAttribute(end, String(places[current]));
    line.setAttribute("visibility", "visible");
    cover.setAttribute("aria-valuenow", String(current));
    cover.setAttribute("aria-valuetext", show(current));
  };
  const leave = (): void => {
    line.setAttribute("visibility", "hidden");
    hide();
  };
  const nearest = (event: MouseEvent): number => {
    const frame = svg.getBoundingClientRect();
    const at = ((event.clientX - frame.left) / frame.width) * svg.viewBox.baseVal.width;
    const far = places.map((place) => Math.abs(place - at));
    return far.indexOf(Math.min(...far));
  };
  cover.addEventListener("pointermove", (event) => move(nearest(event)));
  cover.addEventListener("pointerleave", leave);
  cover.addEventListener("focus", () => move(current));
  cover.addEventListener("blur", leave);
  cover.addEventListener("click", (event) => {
    move(nearest(event));
    press(current);
  });
  cover.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      move(current + step);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      press(current);
    }
  });
  svg.append(line, cover);
}
