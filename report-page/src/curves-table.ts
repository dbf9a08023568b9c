// The data of both curves as a table, with the paper's figures beside ours where they stand there.
import type { Published, Report } from "./data";
import type { Table } from "./download";

export function curvesTable(report: Report): Table {
  const head = [
    "method",
    "rate (%)",
    "kept",
    "live (%)",
    "± live",
    "top-1 (%)",
    "± top-1",
    "measured on",
    "mean-class (%)",
    "training (%)",
    "networks",
    "disconnected",
  ];
  const byX = report.axis === "x";
  if (byX) head.splice(1, 0, "1/α");
  const paper = report.published.length > 0;
  if (paper) head.push("paper: kept (%)", "paper: live (%)", "paper: top-1 (%)");
  const rows = report.rows.map((row) => {
    const cells: (string | number | null)[] = [row.label, row.rate, row.kept?.[0] ?? null];
    for (const value of [row.live, row.top1]) cells.push(value?.[0] ?? null, value?.[1] ?? null);
    cells.push(row.on, row.mean_class?.[0] ?? null, row.train?.[0] ?? null, row.networks, row.disconnected);
    if (byX) cells.splice(1, 0, row.x);
    if (paper) {
      const same = (p: Published): boolean => p.method === row.method && p.rate === row.rate && p.x === row.x;
      const found = report.published.find(same);
      const kept = found?.kept ?? null;
      cells.push(kept === null ? null : Number((100 * kept).toPrecision(4)));
      cells.push(found?.live ?? null, found?.top1 ?? null);
    }
    return cells;
  });
  return { head, rows };
}
