// Builds src/trellis/pages/page.js and page.css, and stamps both with the hash of their sources,
// so that a test can say, without node, whether they are up to date.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const sources = readdirSync("src").sort();
const hash = createHash("sha256");
for (const name of sources) hash.update(name + "\n").update(readFileSync(`src/${name}`));
const stamp = `/* built from report-page/src, ${hash.digest("hex")} */\n`;

const made = await build({
  entryPoints: { page: "src/main.ts", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome100", "firefox100", "safari15.4"],
  charset: "utf8",
  legalComments: "none",
  outdir: "out",
  write: false,
});
const out = "../src/trellis/pages";
for (const file of made.outputFiles) {
  const style = file.path.endsWith(".css");
  writeFileSync(`${out}/${style ? "page.css" : "page.js"}`, stamp + file.text);
  console.log(style ? "page.css" : "page.js", file.text.length, "characters");
}
