// A field, a choice or a button, with its label. It tells the server what was chosen.
import { h } from "vue";

export default {
  props: { kind: String, label: String, value: String, options: Array, placeholder: String, disabled: Boolean },
  emits: ["choose"],
  methods: {
    choose(value) {
      this.$emit("choose", value);
    },
  },
  render() {
    if (this.kind === "button")
      return h("button", { type: "button", class: "plain", disabled: this.disabled, onClick: () => this.choose("") }, this.label);
    const id = `control-${this.$.uid}`;
    const change = (event) => this.choose(event.target.value);
    const inner =
      this.kind === "choice"
        ? h(
            "select",
            { id, onChange: change },
            this.options.map(([value, text]) => h("option", { value, selected: value === this.value, key: value }, text)),
          )
        : h("input", { id, type: "text", value: this.value, placeholder: this.placeholder, onChange: change, spellcheck: "false" });
    return h("div", { class: "control" }, [h("label", { for: id }, this.label), inner]);
  },
};
