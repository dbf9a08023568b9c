// A group of marks that is one stop of the Tab key: arrow keys move within it.

export interface Roving {
  elements: Element[]; // in the order that arrow keys go through
  enter: (index: number) => void;
  leave: () => void;
  press: (index: number) => void;
}

export function roving({ elements, enter, leave, press }: Roving): void {
  elements.forEach((element, i) => {
    element.setAttribute("tabindex", i === 0 ? "0" : "-1");
    element.addEventListener("pointerenter", () => enter(i));
    element.addEventListener("pointerleave", leave);
    element.addEventListener("focus", () => enter(i));
    element.addEventListener("blur", leave);
    element.addEventListener("click", () => press(i));
    element.addEventListener("keydown", (event) => {
      const { key } = event as KeyboardEvent;
      const step = {
        ArrowDown: 1,
        ArrowRight: 1,
        ArrowUp: -1,
        ArrowLeft: -1,
        Home: -elements.length,
        End: elements.length,
      }[key];
      if (step !== undefined) {
        event.preventDefault();
        const to = elements[Math.max(0, Math.min(elements.length - 1, i + step))]!;
        elements.forEach((one) => one.setAttribute("tabindex", one === to ? "0" : "-1"));
        (to as SVGElement).focus();
      } else if (key === "Enter" || key === " ") {
        event.preventDefault();
        press(i);
      }
    });
  });
}
