// Lines, dots or bars, drawn as SVG in the colours of the page; a summary in words, and all values in a table.
import { h } from "vue";

const THIN = "\u202f";
const LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 22;

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 1 ? 1 : 3;
  const [whole, rest] = value.toFixed(digits).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, THIN) + (rest ? `.${rest}` : "");
}

function short(value) {
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= limit) return `${+(value / (limit === 1e4 ? 1e3 : limit)).toFixed(1)}${THIN}${letter}`;
  return size >= 1 || size === 0 ? String(+value.toFixed(2)) : String(+value.toPrecision(2));
}

function steps(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2592000];

function moments(low, high, count) {
  const step = (SECONDS.find((each) => each * 1000 >= (high - low) / count) ?? 31536000) * 1000;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}

function clock(at, span) {
  const text = new Date(at).toISOString();
  if (span > 3 * 86400e3) return text.slice(5, 10);
  return span > 20 * 60e3 ? text.slice(11, 16) : text.slice(11, 19);
}

function exact(at) {
  return new Date(at).toISOString().slice(0, 19).replace("T", " ");
}

export default {
  props: { kind: String, label: String, series: Array, unit: String, yTime: Boolean, size: Number, empty: String, from: Number, to: Number, xName: String },
  data: () => ({ width: 640, pointer: null, isOpen: false }),
  mounted() {
    this.observer = new ResizeObserver(() => (this.width = Math.max(this.$el.clientWidth, 200)));
    this.observer.observe(this.$el);
  },
  unmounted() {
    this.observer.disconnect();
  },
  computed: {
    all() {
      return this.series.flatMap((each) => each.points);
    },
    area() {
      const xs = this.all.map((each) => each[0]);
      const ys = this.all.map((each) => each[1]).filter((each) => each !== null);
      const low = this.yTime ? Math.min(...ys) : Math.min(0, ...ys);
      let high = Math.max(...ys);
      if (high === low) high = low + 1;
      const left = this.from ?? Math.min(...xs);
      let right = this.to ?? Math.max(...xs);
      if (right === left) right = left + 1;
      const over = (high - low) * 0.06;
      return { left, right, low: this.yTime ? low - over : low, high: high + over };
    },
    sum() {
      return this.size ?? 220;
    },
  },
  methods: {
    x(value) {
      const { left, right } = this.area;
      return LEFT + ((value - left) / (right - left)) * (this.width - LEFT - RIGHT);
    },
    y(value) {
      const { low, high } = this.area;
      return this.sum - BOTTOM - ((value - low) / (high - low)) * (this.sum - TOP - BOTTOM);
    },
    path(points) {
      let text = "";
      let isPen = false;
      for (const [at, value] of points) {
        if (value === null) {
          isPen = false;
          continue;
        }
        text += `${isPen ? "L" : "M"}${this.x(at).toFixed(1)},${this.y(value).toFixed(1)}`;
        isPen = true;
      }
      return text;
    },
    told(value) {
      return this.yTime ? exact(value) : `${number(value)}${this.unit ? ` ${this.unit}` : ""}`;
    },
    axes() {
      const { left, right, low, high } = this.area;
      const across = moments(left, right, Math.max(this.width / 110, 2));
      const upward = this.yTime ? moments(low, high, 4) : steps(low, high, 4);
      return [
        ...upward.map((at) => h("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: this.y(at), y2: this.y(at) })),
        ...upward.map((at) =>
          h("text", { x: LEFT - 6, y: this.y(at) + 4, "text-anchor": "end" }, this.yTime ? clock(at, high - low) : short(at)),
        ),
        ...across.map((at) => h("text", { x: this.x(at), y: this.sum - 5, "text-anchor": "middle" }, clock(at, right - left))),
      ];
    },
    drawn(each) {
      const style = `s${each.color % 8}`;
      if (each.shape === "dots")
        return h("g", { class: style }, each.points.map(([at, value]) => h("circle", { class: "dot", r: 2.5, cx: this.x(at), cy: this.y(value) })));
      if (each.shape === "triangles")
        return h("g", { class: style }, each.points.map(([at, value]) => {
          const [x, y] = [this.x(at), this.y(value)];
          return h("path", { class: "dot", style: "opacity:1", d: `M${x - 4.5},${y + 4} L${x + 4.5},${y + 4} L${x},${y - 5} z` });
        }));
      const dots = each.points.length === 1 ? each.points : [];
      return h("g", { class: style }, [
        h("path", { class: ["line", each.shape === "dashed" && "dashed"], d: this.path(each.points) }),
        ...dots.map(([at, value]) => h("circle", { class: "dot", r: 3, cx: this.x(at), cy: this.y(value) })),
        ...(each.marks ?? []).map(([at, value]) => h("rect", { class: "mark", x: this.x(at) - 4, y: this.y(value) - 4, width: 8, height: 8, transform: `rotate(45 ${this.x(at)} ${this.y(value)})` })),
      ]);
    },
    sample(each) {
      const style = `s${each.color % 8}`;
      const inner = { dots: h("circle", { class: "dot", r: 4, cx: 8, cy: 6 }), triangles: h("path", { class: "dot", d: "M3,11 L13,11 L8,1 z" }) };
      const line = h("path", { class: ["line", each.shape === "dashed" && "dashed"], d: "M0,6 H16" });
      return h("li", { key: each.name }, [h("svg", { class: style, viewBox: "0 0 16 12", "aria-hidden": "true" }, [inner[each.shape] ?? line]), each.name]);
    },
    point(event) {
      const box = event.currentTarget.getBoundingClientRect();
      this.pointer = [event.clientX - box.left, event.clientY - box.top];
    },
    nearest() {
      if (!this.pointer || !this.all.length) return null;
      const [px, py] = this.pointer;
      if (this.series.some((each) => each.shape === "dots" || each.shape === "triangles")) {
        let best = null;
        for (const each of this.series.filter((one) => one.shape !== "dashed" && one.shape !== "line"))
          for (const [at, value] of each.points) {
            const distance = Math.hypot(this.x(at) - px, this.y(value) - py);
            if (distance < 30 && (!best || distance < best.distance)) best = { distance, at, lines: [[each.name, value]] };
          }
        return best;
      }
      let at = null;
      for (const [each] of this.all) if (at === null || Math.abs(this.x(each) - px) < Math.abs(this.x(at) - px)) at = each;
      const lines = [];
      for (const each of this.series) {
        const found = each.points.find(([moment]) => moment === at);
        if (found && found[1] !== null) lines.push([each.name, found[1], (each.marks ?? []).some(([moment]) => moment === at)]);
      }
      return { at, lines };
    },
    tip() {
      const found = this.nearest();
      if (!found) return [];
      const x = this.x(found.at);
      const style = x > this.width / 2 ? { right: `${this.width - x + 12}px`, top: "10px" } : { left: `${x + 12}px`, top: "10px" };
      const lines = found.lines.map(([name, value, isMarked]) =>
        h("div", [`${name} `, h("b", this.told(value)), isMarked ? " (corrected after its end)" : ""]));
      return [h("div", { class: "tip", style, "aria-hidden": "true" }, [h("div", `${exact(found.at)} UTC`), ...lines])];
    },
    table() {
      const rows = this.kind === "bars"
        ? this.series.map((each) => [each.name, this.told(each.value)])
        : this.series.flatMap((each) => each.points.slice(-100).map(([at, value]) => [each.name, exact(at), this.told(value)])).slice(-400);
      const names = this.kind === "bars" ? [this.xName ?? "row", "value"] : ["line", `${this.xName ?? "time"} (UTC)`, this.yTime ? "event time (UTC)" : "value"];
      return h("div", { class: "sheet", tabindex: 0, role: "region", "aria-label": `Values: ${this.label}` }, [
        h("table", [
          h("thead", [h("tr", names.map((name) => h("th", { scope: "col" }, name)))]),
          h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell))))),
        ]),
      ]);
    },
    bars() {
      const most = Math.max(...this.series.map((each) => Math.abs(each.value)), 1e-9);
      const share = Math.max(this.width * 0.38, 90);
      const letters = Math.floor(share / 7.2);
      return this.series.map((each, index) => {
        const y = 4 + index * 26;
        const width = (Math.abs(each.value) / most) * (this.width - share - 84);
        const name = each.name.length > letters ? `${each.name.slice(0, letters - 1)}…` : each.name;
        return h("g", { class: "s0", key: index }, [
          h("title", each.name),
          h("text", { class: "bar-label", x: share - 8, y: y + 14, "text-anchor": "end" }, name),
          h("rect", { class: "bar", x: share, y: y, width: Math.max(width, 1), height: 18, rx: 3 }),
          h("text", { x: share + width + 6, y: y + 14 }, number(each.value)),
        ]);
      });
    },
  },
  render() {
    const isBars = this.kind === "bars";
    const isEmpty = isBars ? !this.series.length : !this.all.length;
    if (isEmpty) return h("div", { class: "chart" }, [h("p", { class: "note" }, this.empty)]);
    const height = isBars ? this.series.length * 26 + 8 : this.sum;
    const inner = isBars ? this.bars() : [...this.axes(), ...this.series.map(this.drawn)];
    const events = isBars ? {} : { onPointermove: this.point, onPointerleave: () => (this.pointer = null) };
    const hint = !isBars && this.nearest();
    if (hint) inner.push(h("line", { class: "cross", x1: this.x(hint.at), x2: this.x(hint.at), y1: TOP, y2: this.sum - BOTTOM }));
    const legend = !isBars && (this.series.length > 1 || this.kind === "scatter");
    const open = (event) => (this.isOpen = event.target.open);
    return h("div", { class: "chart" }, [
      legend ? h("ul", { class: "legend" }, this.series.map(this.sample)) : null,
      h("div", { style: "position:relative" }, [
        h("svg", { role: "img", "aria-label": this.label, width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, ...events }, inner),
        ...(isBars ? [] : this.tip()),
      ]),
      h("details", { class: "data", onToggle: open }, [h("summary", "Values as a table"), this.isOpen ? this.table() : null]),
    ]);
  },
};
