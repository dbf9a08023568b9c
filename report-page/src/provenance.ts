// Where the figures come from, what they do not say, and what the page lacks.
import type { Report } from "./data";
import { h } from "./dom";

export function provenance(report: Report): HTMLElement {
  const missing = report.missing.length
    ? h(
        "div",
        { class: "missing" },
        h("h3", {}, "What is missing here"),
        h("ul", {}, ...report.missing.map(({ what, how }) => h("li", {}, h("strong", {}, what), ": ", how))),
      )
    : null;
  const notes = report.notes.length
    ? h(
        "details",
        { open: true },
        h("summary", {}, "Notes"),
        h("ol", {}, ...report.notes.map((note) => h("li", {}, note))),
      )
    : null;
  return h("div", { class: "provenance" }, missing, facts(report.facts), notes);
}

export function facts(list: [string, string][]): HTMLElement {
  return h(
    "dl",
    { class: "facts" },
    ...list.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
  );
}
