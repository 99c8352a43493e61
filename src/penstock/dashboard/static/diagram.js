// Boxes and arrows. Where they stand is worked out by the server; all words are text.
import { h } from "vue";

export default {
  props: { label: String, width: Number, height: Number, boxes: Array, arrows: Array },
  methods: {
    box(each) {
      const inner = [
        h("rect", { class: "box", x: each.x, y: each.y, width: each.width, height: each.height, rx: each.kind === "topic" ? 26 : 8 }),
        h("text", { class: "title", x: each.x + 16, y: each.y + 22 }, each.title),
        ...each.lines.map((line, index) => h("text", { class: "soft", x: each.x + 16, y: each.y + 40 + index * 16 }, line)),
        h("title", each.about),
      ];
      const kind = [each.kind, each.state];
      return each.href
        ? h("a", { href: each.href, class: kind, key: each.name, "aria-label": each.about }, inner)
        : h("g", { class: kind, key: each.name }, inner);
    },
    arrow(each) {
      const middle = (each.x1 + each.x2) / 2;
      const path = `M${each.x1},${each.y1} C${middle},${each.y1} ${middle},${each.y2} ${each.x2 - 6},${each.y2}`;
      return h("g", { key: each.name }, [
        h("path", { class: ["edge", each.isMoving && "moving"], d: path, "marker-end": "url(#tip)" }),
        each.text && h("text", { class: "flow", x: each.x2 - 12, y: each.y2 - 5, "text-anchor": "end" }, each.text),
      ]);
    },
  },
  render() {
    const tip = h("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, [
      h("path", { d: "M0,0 L8,4 L0,8 z", fill: "var(--soft)" }),
    ]);
    return h("div", { class: "diagram", tabindex: 0, role: "region", "aria-label": this.label }, [
      h("svg", { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}` }, [
        h("defs", [tip]),
        ...this.arrows.map(this.arrow),
        ...this.boxes.map(this.box),
      ]),
    ]);
  },
};
