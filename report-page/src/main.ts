// Puts the page together from the content that it was written with.
import { auditPage } from "./audit";
import { Confusion } from "./confusion";
import { Curves } from "./curves";
import type { Audited, Report, Row } from "./data";
import { cut, h } from "./dom";
import type { Figure } from "./figure";
import { standalone } from "./download";
import { decimals, plain } from "./format";
import { Headline } from "./headline";
import { layersFigure } from "./layers";
import { MovingSkeletons } from "./moving";
import { NetworkPicture } from "./network";
import { provenance } from "./provenance";
import { Rates } from "./rates";
import { Shares } from "./shares";
import { State } from "./state";
import { themeButton } from "./theme";

const content = JSON.parse(document.getElementById("content")!.textContent!) as Report | Audited;
const page = document.getElementById("page")!;
let figures: Figure[] = [];

function section(id: string, title: string, about: string, ...parts: (Node | null)[]): HTMLElement {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-heading` },
    h("h2", { id: `${id}-heading` }, title),
    about ? h("p", { class: "lead" }, about) : null,
    ...parts,
  );
}

function top(title: string, sub: string, synthetic: string | null, controls: Node | null): HTMLElement {
  return h(
    "header",
    {},
    h(
      "div",
      { class: "title" },
      h("h1", {}, title),
      h("p", { class: "sub" }, sub, synthetic === null ? null : h("span", { class: "badge" }, "synthetic")),
    ),
    h("div", { class: "controls" }, controls, themeButton()),
  );
}

function chooser(report: Report, state: State): HTMLElement | null {
  const rows = report.rows.slice(1);
  if (rows.length === 0) return null;
  const rates = [...new Set(rows.map((row) => row.rate))];
  const groups = rates.map((rate) =>
    h(
      "optgroup",
      { label: `${plain(rate)} % removed` },
      ...rows
        .filter((row) => row.rate === rate)
        .map((row) =>
          h(
            "option",
            { value: row.key },
            `${cut(row.label, 60)} · ${plain(rate)} %${report.networks[row.key] ? "" : " (figures only)"}`,
          ),
        ),
    ),
  );
  const select = h(
    "select",
    { id: "network-picker", change: () => state.set({ row: select.value }) },
    ...groups,
  );
  const follow = (): void => {
    if (state.chosen.row !== null) select.value = state.chosen.row;
  };
  state.on(follow);
  follow();
  return h("label", { class: "chooser" }, h("span", {}, "Network "), select);
}

function nested(report: Report, state: State): HTMLElement | null {
  if (report.nested === null) return null;
  const { keys, asked } = report.nested;
  const rows = keys.map((key) => report.rows.find((row) => row.key === key)!);
  const sizes = rows.map((row) => ({
    kept: row.kept![0],
    removed: row.rate,
    score: row.top1 === null ? "" : `${decimals(row.top1[0], 1)} % right`,
    bytes: row.bytes,
    asked: asked.includes(row.key),
  }));
  const rates = new Rates(sizes, Math.max(0, keys.indexOf(state.chosen.row ?? "")), (place) =>
    state.set({ row: keys[place]! }),
  );
  state.on((now) => {
    const place = keys.indexOf(now.row ?? "");
    if (place >= 0) rates.show(place);
  });
  return rates.root;
}

function reportPage(report: Report): void {
  const synthetic = report.synthetic ? `synthetic data: ${cut(report.source, 40)}` : null;
  const state = new State({ row: report.chosen, label: null, joint: null });
  const row = (): Row | null => report.rows.find((one) => one.key === state.chosen.row) ?? null;
  const pruned = report.rows.length > 1;
  const headline = new Headline(report, state, row);
  page.append(
    h("a", { class: "skip", href: "#headline" }, "Skip to the figures"),
    top(report.title, report.source, synthetic, chooser(report, state)),
    ...(report.warnings.length
      ? [
          h(
            "aside",
            { class: "warnings", "aria-label": "Read first" },
            ...report.warnings.map((text) => h("p", {}, text)),
          ),
        ]
      : []),
    section(
      "headline",
      "At a glance",
      report.rows.length > 2 ? `Opened with ${report.rule}; choose another above.` : "",
      nested(report, state),
      headline.root,
    ),
  );
  if (pruned) {
    const layers = layersFigure(report, synthetic, row);
    state.on((now, before) => now.row !== before.row && layers.redraw());
    if (report.rows.length > 2) {
      const curves = new Curves(report, synthetic, (key) => state.set({ row: key })); // one point is no curve
      figures.push(...curves.figures);
      page.append(section("curves", "How much can be pruned", "", curves.root));
    }
    figures.push(layers);
    page.append(section("what", "What is kept", "", layers.root));
  }
  if (report.classes !== null && report.skeleton !== null && Object.keys(report.networks).length > 0) {
    const picture = new NetworkPicture(report, synthetic, state, row);
    const shares = new Shares(report, synthetic, state, row);
    figures.push(picture.figure, ...shares.figures);
    page.append(
      section("survivors", "What survived", "", picture.figure.root),
      section("matter", "Which joints and which moments matter", "", shares.root),
    );
  }
  if (report.classes !== null && Object.keys(report.confusions).length > 0) {
    const confusion = new Confusion(report, synthetic, state, row);
    figures.push(...confusion.figures);
    page.append(
      section(
        "suffer",
        "Which classes suffer",
        "",
        confusion.root,
        report.examples === null ? null : new MovingSkeletons(report, synthetic, state).root,
      ),
    );
  }
  page.append(section("provenance", "Where this comes from", "", provenance(report)));
}

function auditReport(audit: Audited): void {
  const made = auditPage(audit);
  figures = made.figures;
  page.append(top(audit.title, audit.target, null, null), ...made.parts);
}

if (content.kind === "audit") auditReport(content);
else reportPage(content);
page.append(h("footer", {}, "Written by trellis report. One file: nothing is fetched, nothing is sent."));
figures.forEach((figure) => figure.watch());
// For whoever draws pictures from a page: a figure as a file, as its button gives it.
Object.assign(window, {
  trellisSvg: (id: string, title?: string): string | null => {
    const figure = figures.find((one) => one.root.id === id);
    return figure?.svg ? standalone(figure.layers, title ?? figure.title) : null;
  },
});
