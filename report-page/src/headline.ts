// Dense and pruned, side by side.
import type { Report, Row } from "./data";
import { h } from "./dom";
import { bytes, count, decimals, large, pair, percent, plain } from "./format";
import type { State } from "./state";

export class Headline {
  readonly root = h("div", { class: "headline" });

  constructor(
    private readonly report: Report,
    state: State,
    private readonly row: () => Row | null,
  ) {
    state.on((now, before) => now.row !== before.row && this.show());
    this.show();
  }

  private show(): void {
    const dense = this.report.rows[0]!;
    const chosen = this.row();
    const row = chosen?.method === "dense" ? null : chosen;
    const cards = [this.card("Dense", dense, null), row === null ? null : this.card("Pruned", row, dense)];
    this.root.replaceChildren(
      h("p", { class: "answer" }, this.answer(dense, row)),
      h("div", { class: "cards" }, ...cards),
      this.command(),
    );
  }

  private answer(dense: Row, row: Row | null): string {
    if (row === null)
      return dense.top1 === null
        ? "Nothing is finished yet."
        : `The dense network names ${decimals(dense.top1[0], 1)} % of test recordings right.`;
    const removed = `${plain(row.rate)} % of connections removed by ${row.label}`;
    if (row.refused !== null) return `${removed}: not possible. ${row.refused}`;
    if (row.top1 === null)
      return row.disconnected === 0
        ? `${removed}: ${row.networks === 0 ? "not finished yet" : "how well it does is not known"}.`
        : `${removed}: disconnected, no path leads from an input to an output any more.`;
    const change = dense.top1 === null ? "" : changed(row.top1[0] - dense.top1[0]);
    const dead =
      row.live === null
        ? ""
        : row.live[0] >= 100
          ? " Every one that is left is live."
          : ` Of what is left, ${decimals(100 - row.live[0], 1)} % is dead.`;
    // Never beside the dense network's: that is of test recordings.
    const right =
      row.on === "test" ? `right${change}` : "of the training recordings held out for the search named right";
    return `${removed}: ${decimals(row.top1[0], 1)} % ${right}.${dead}`;
  }

  private card(title: string, row: Row, dense: Row | null): HTMLElement {
    const network = this.report.networks[row.key];
    const multiplications =
      dense === null ? this.report.dense_multiplications : (network?.multiplications ?? null);
    const total = Object.values(this.report.layers).reduce((a, b) => a + b, 0);
    const kept = row.kept?.[0] ?? null;
    const live = kept === null || row.live === null ? null : Math.round((kept * row.live[0]) / 100);
    const times = (now: number | null, before: number | null, less: string): string =>
      dense === null || now === null || before === null || now === 0
        ? ""
        : `${before / now < 10 ? decimals(before / now, 1) : count(before / now)} times ${less}`;
    const fact = (name: string, value: string, more: string, why = ""): HTMLElement =>
      h(
        "div",
        { class: "fact" },
        h("dt", { title: why || null }, name),
        h("dd", {}, h("b", {}, value), more ? h("span", {}, more) : null),
      );
    return h(
      "article",
      { class: dense === null ? "card" : "card pruned" },
      h("h3", {}, dense === null ? title : `${row.label}, ${plain(row.rate)} %`),
      h(
        "dl",
        {},
        fact(
          row.on === "test" ? "Top-1 accuracy" : "Top-1 accuracy, validation",
          row.top1 === null ? "NA" : `${pair(row.top1)} %`,
          row.mean_class === null ? "" : `${pair(row.mean_class)} % mean over classes`,
        ),
        fact(
          "Connections",
          kept === null ? "–" : count(kept),
          dense === null
            ? ""
            : `${live === null ? "" : `${live === kept ? "all" : count(live)} live · `}${percent((100 * (kept ?? 0)) / total, 2)} of all`,
        ),
        fact(
          "Size",
          bytes(row.bytes),
          times(row.bytes, this.report.rows[0]!.bytes, "smaller"),
          dense === null
            ? "Four bytes a weight."
            : "Live connections: four bytes a weight, four where it stands.",
        ),
        fact(
          "Multiplications",
          large(multiplications),
          multiplications === null
            ? "the run keeps no network here"
            : times(multiplications, this.report.dense_multiplications, "fewer"),
          "To name one recording; pruned: uses of connections that lie on a path.",
        ),
      ),
    );
  }

  private command(): HTMLElement {
    const text = h("code", {}, this.report.command);
    const button = h("button", { type: "button", class: "quiet copy" }, "copy");
    button.addEventListener("click", () => {
      void navigator.clipboard?.writeText(this.report.command).then(() => (button.textContent = "copied"));
    });
    return h("p", { class: "command" }, h("span", {}, "Made by"), text, button);
  }
}

function changed(points: number): string {
  if (Math.abs(points) < 0.05) return ", as the dense network";
  return points < 0
    ? `, ${decimals(-points, 1)} points below the dense network`
    : `, ${decimals(points, 1)} points above the dense network`;
}
