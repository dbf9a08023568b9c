// Light or dark: as the system says, until somebody says otherwise.
import { h } from "./dom";

export function themeButton(): HTMLButtonElement {
  const dark = (): boolean =>
    (document.documentElement.dataset["theme"] ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = h("button", { type: "button", class: "theme" });
  const tell = (): void => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset["theme"] = dark() ? "light" : "dark";
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
  return button;
}
