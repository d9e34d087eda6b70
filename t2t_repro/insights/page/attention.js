/** The panel of attention: which kind, layer and head; strokes and a heat map of these weights. */

import { ask } from "./api.js";
import { choice, clamp, element, shownLabel } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { Strokes } from "./strokes.js";

const MEAN = "mean";

/** The panel. Its element is `panel`. */
export class AttentionPanel {
  /**
   * @param {object} model the model: its number, kinds, layers and heads.
   * @param {string} source the source text.
   * @param {object} view the kind, layer and head to show, as texts; undefined for defaults.
   * @param {{changed: (view: object) => void, failed: (error: Error) => void}} events `changed` is called with the
   *     kind, layer and head, `failed` if the server refuses.
   */
  constructor(model, source, view, events) {
    Object.assign(this, { model, source, events, answers: new Map(), strokes: null });
    this.kinds = Object.entries(model.kinds);
    this.body = element("div", { class: "attention-body" });
    this.panel = element("div", { class: "attention" });
    if (!this.kinds.length) {
      this.panel.append(element("p", {}, "This model has no attention."));
      return;
    }
    const kinds = this.kinds.map(([kind]) => kind);
    this.shown = {
      kind: kinds.includes(view.kind) ? view.kind : kinds.at(-1),
      layer: String(clamp(Number(view.layer), 1, model.layers, model.layers)),
      head: String(clamp(Number(view.head), 1, model.heads, MEAN)),
    };
    this.panel.append(this.controls(), this.body);
  }

  controls() {
    const numbers = (count) => Array.from({ length: count }, (_, index) => [String(index + 1), String(index + 1)]);
    const choose = (name) => (value) => {
      this.shown = { ...this.shown, [name]: value };
      this.events.changed(this.shown);
      this.update();
    };
    this.layers = choice("Layer", numbers(this.model.layers), this.shown.layer, choose("layer"));
    return element(
      "div",
      { class: "choices" },
      choice("Attention", this.kinds, this.shown.kind, choose("kind")),
      this.layers,
      choice("Head", [[MEAN, "mean"], ...numbers(this.model.heads)], this.shown.head, choose("head")),
    );
  }

  /** Disables layers that this kind does not have, as encoder and decoder can differ. Returns the layer to show. */
  limitLayers(count) {
    const layer = Math.min(Number(this.shown.layer), count);
    for (const input of this.layers.querySelectorAll("input")) {
      input.disabled = Number(input.value) > count;
      input.checked = Number(input.value) === layer;
    }
    return layer;
  }

  /** Shows the attention between the source and another output. */
  choose(hypothesis) {
    this.hypothesis = hypothesis;
    this.update();
  }

  /** Asks the server for the weights, unless it has answered before, and shows them. */
  async update() {
    if (!this.kinds.length || !this.hypothesis) {
      return;
    }
    this.request?.abort();
    const request = (this.request = new AbortController());
    this.body.setAttribute("aria-busy", "true");
    try {
      const answer = await this.answer(request.signal);
      if (!request.signal.aborted) {
        this.draw(answer);
        this.body.setAttribute("aria-busy", "false");
      }
    } catch (error) {
      if (!request.signal.aborted) {
        this.body.setAttribute("aria-busy", "false");
        this.events.failed(error);
      }
    }
  }

  /** Ends the request under way. The panel is no longer used. */
  close() {
    this.request?.abort();
    this.strokes?.close();
  }

  async answer(signal) {
    const { kind } = this.shown;
    const ids = this.hypothesis.ids.join();
    const key = `${kind} ${ids}`;
    if (!this.answers.has(key)) {
      const question = { model: this.model.number, source: this.source, target_ids: ids, kind };
      this.answers.set(key, await ask("attention", question, signal));
    }
    return this.answers.get(key);
  }

  draw(answer) {
    const [queries, keys] = [answer.queries, answer.keys].map((labels) => labels.map(shownLabel));
    const { head, kind } = this.shown;
    const layer = this.limitLayers(answer.weights.length);
    const matrix = head === MEAN ? mean(answer.weights[layer - 1]) : answer.weights[layer - 1][head - 1];
    const name = `${this.model.kinds[kind]}, layer ${layer}, ${head === MEAN ? "mean of the heads" : `head ${head}`}`;
    this.strokes?.close();
    this.strokes = new Strokes(queries, keys, matrix);
    this.body.replaceChildren(
      element("h3", {}, name),
      element(
        "p",
        { class: "hint" },
        "Upper line: queries. Lower line: keys. Point at a token, or use Tab and the arrow keys, to see its weights.",
      ),
      this.strokes.panel,
      heatMap(queries, keys, matrix, name),
    );
    this.strokes.draw();
  }
}

/** Returns the mean of the heads' matrices, [heads][queries][keys] --> [queries][keys]. */
function mean(heads) {
  return heads[0].map((row, query) =>
    row.map((_, key) => heads.reduce((sum, head) => sum + head[query][key], 0) / heads.length),
  );
}
