// Nested networks: a slider over their sizes, with what each keeps, how well it does and how large
// its file is.
import { h } from "./dom";
import { bytes, count, plain } from "./format";

export interface Size {
  kept: number;
  removed: number; // percent
  score: string; // in words
  bytes: number | null;
  asked: boolean; // or on the way between two that were
}

export class Rates {
  readonly root: HTMLElement;
  private readonly slider: HTMLInputElement;
  private readonly said = h("output", { for: "rates-slider" });

  constructor(
    private readonly sizes: Size[],
    first: number,
    chosen: (place: number) => void = () => {},
  ) {
    const marks = sizes.flatMap((size, i) =>
      size.asked ? [h("option", { value: i, label: `${plain(size.removed)} %` })] : [],
    );
    this.slider = h("input", {
      id: "rates-slider",
      type: "range",
      min: 0,
      max: sizes.length - 1,
      value: first,
      list: "rates-asked",
      input: () => {
        this.show(Number(this.slider.value));
        chosen(Number(this.slider.value));
      },
    });
    this.root = h(
      "div",
      { class: "rates" },
      h("label", { for: "rates-slider" }, "One training, all of these rates"),
      this.slider,
      h("datalist", { id: "rates-asked" }, ...marks),
      this.said,
    );
    this.show(first);
  }

  show(place: number): void {
    const size = this.sizes[place]!;
    const asked = size.asked ? "asked for" : "between two that were asked for";
    const parts = [
      `${plain(size.removed)} % removed (${asked})`,
      `${count(size.kept)} connections`,
      size.score,
      bytes(size.bytes),
    ];
    this.slider.value = String(place);
    this.slider.setAttribute("aria-valuetext", parts.join(", "));
    this.said.replaceChildren(parts.filter((part) => part !== "").join(" · "));
  }
}
