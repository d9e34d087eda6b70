/** What one model answers: translation, outputs, search and attention. */

import { AttentionPanel } from "./attention.js";
import { clamp, element } from "./dom.js";
import { legend, outputList, translation } from "./outputs.js";
import { SearchPanel } from "./search.js";

/** The part of the page that belongs to one model. Its element is `panel`. */
export class Side {
  /**
   * @param {object} model the model, as the server describes it, with its number.
   * @param {string} source the source text.
   * @param {object} answer the translation, as the server answers.
   * @param {string} other the translation of the other model, undefined if there is none.
   * @param {object} view what to show: step, output, kind, layer and head, undefined for defaults. It is changed.
   * @param {{changed: () => void, failed: (error: Error) => void}} events `changed` is called after a change of the
   *     view, `failed` if the server refuses.
   */
  constructor(model, source, answer, other, view, events) {
    Object.assign(this, { answer, view, events });
    const change = (values) => {
      Object.assign(view, values);
      events.changed();
    };
    const output = clamp(Number(view.output), 1, answer.hypotheses.length) - 1;
    this.attention = new AttentionPanel(model, source, view, { changed: change, failed: events.failed });
    this.search = new SearchPanel(answer.search, { step: Number(view.step), output }, (step) => change({ step }));
    const outputs = outputList(answer.hypotheses, output, (index) => {
      change({ output: index + 1 });
      this.search.choose(index);
      this.attention.choose(answer.hypotheses[index]);
    });
    this.panel = element(
      "section",
      { class: "side", "aria-label": `Translation by ${model.name}` },
      element("p", { class: "model" }, element("b", {}, model.name), ` ${model.description}`),
      element(
        "div",
        { class: "card best" },
        element("p", { class: "source", dir: "auto" }, source),
        translation(answer.hypotheses[0], other),
      ),
      card("Outputs", outputs, legend(answer.hypotheses.length > 1)),
      card("Beam search", this.search.panel),
      card("Attention", this.attention.panel),
    );
    this.output = output;
  }

  /** Does what needs the panel on the page: scrolls the tree, and asks for the attention. */
  start() {
    this.search.reveal();
    this.attention.choose(this.answer.hypotheses[this.output]);
  }

  /** Ends requests under way. The panel is no longer used. */
  close() {
    this.attention.close();
  }
}

function card(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}
