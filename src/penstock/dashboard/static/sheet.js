// A table. Every cell is text: nothing in it can become markup.
import { h } from "vue";

export function cellOf(cell) {
  if (cell === null || typeof cell !== "object") return [String(cell ?? "")];
  const inner = [];
  if (cell.spark) inner.push(spark(cell.spark));
  const text = cell.badge ? h("span", { class: ["badge", cell.badge] }, cell.text) : cell.text;
  if (cell.href) inner.push(h("a", { href: cell.href, title: cell.title }, text));
  else if (cell.at) inner.push(h("time", { datetime: cell.at, title: cell.title }, text));
  else if (cell.title) inner.push(h("span", { title: cell.title }, text));
  else inner.push(text);
  return inner;
}

function spark(values) {
  const most = Math.max(...values, 1e-9);
  const step = 100 / Math.max(values.length - 1, 1);
  const points = values.map((value, index) => `${index * step},${20 - (18 * value) / most}`).join(" ");
  return h("svg", { class: "spark", viewBox: "0 0 100 21", preserveAspectRatio: "none", "aria-hidden": "true" }, [
    h("polyline", { points }),
  ]);
}

export default {
  props: { caption: String, columns: Array, rows: Array, order: String, empty: String },
  emits: ["order"],
  methods: {
    heading(column) {
      const isDown = this.order === `-${column.name}`;
      const isSorted = isDown || this.order === column.name;
      const sorted = isSorted ? (isDown ? "descending" : "ascending") : undefined;
      const sign = isSorted ? (isDown ? " ↓" : " ↑") : "";
      const wanted = isDown ? column.name : `-${column.name}`;
      const inner = column.sortable
        ? h("button", { type: "button", onClick: () => this.$emit("order", wanted) }, column.label + sign)
        : column.label;
      return h("th", { scope: "col", role: "columnheader", class: column.right && "right", "aria-sort": sorted, key: column.name }, inner);
    },
    line(row, number) {
      return h(
        "tr",
        { key: number, role: "row" },
        this.columns.map((column, index) =>
          h(
            index || column.plain ? "td" : "th",
            { scope: index || column.plain ? undefined : "row", role: index || column.plain ? "cell" : "rowheader", class: { right: column.right, mono: column.mono, wide: column.wide, steady: column.steady } },
            cellOf(row[index]),
          ),
        ),
      );
    },
  },
  render() {
    const body = this.rows.length
      ? this.rows.map(this.line)
      : [h("tr", { role: "row" }, [h("td", { role: "cell", class: "nothing", colspan: this.columns.length }, this.empty)])];
    return h("div", { class: "sheet", tabindex: 0, role: "region", "aria-label": this.caption }, [
      // With its roles said, it stays a table also where a narrow screen shows its rows as blocks.
      h("table", { role: "table", class: this.columns.some((column) => column.mono) && "stacked" }, [
        h("caption", { class: "hidden-text" }, this.caption),
        h("thead", { role: "rowgroup" }, [h("tr", { role: "row" }, this.columns.map(this.heading))]),
        h("tbody", { role: "rowgroup" }, body),
      ]),
    ]);
  },
};
