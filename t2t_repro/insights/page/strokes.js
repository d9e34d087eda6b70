/** Attention as in figures 3 to 5 of the paper: words on two lines, joined by strokes whose opacity is the weight. */

import { arrowKeys, drawing, element, fitted, textWidth } from "./dom.js";

const MIN_WEIGHT = 0.02; // weaker strokes cannot be seen
const GAP = 110; // between the lines, in pixels
const LONGEST = 96; // longest label, in pixels
const SHORTEST_PITCH = 16; // distance of the words if they are upright
const VALUE = 16; // room for a weight beyond a word

/** The picture. Its element is `panel`, which must be on the page before `draw` is called. */
export class Strokes {
  /**
   * @param {string[]} queries labels of the upper line.
   * @param {string[]} keys labels of the lower line.
   * @param {number[][]} weights the weights [queries][keys].
   */
  constructor(queries, keys, weights) {
    Object.assign(this, { queries, keys, weights });
    this.panel = element("div", { class: "scroll strokes-box" });
    this.observer = new ResizeObserver(() => this.panel.clientWidth !== this.width && this.draw());
    this.observer.observe(this.panel);
  }

  /** Stops watching the width of the page. */
  close() {
    this.observer.disconnect();
  }

  /** Draws the picture in the width that the page has. Words are upright if they do not fit side by side. */
  draw() {
    this.width = this.panel.clientWidth;
    const count = Math.max(this.queries.length, this.keys.length);
    const widest = Math.min(Math.max(...[...this.queries, ...this.keys].map(textWidth)), LONGEST);
    this.isUpright = (widest + 14) * count > this.width;
    this.pitch = this.isUpright
      ? Math.max(SHORTEST_PITCH, Math.min((this.width - 4) / count, 44))
      : Math.min(this.width / count, Math.max(widest + 34, 60));
    this.label = (this.isUpright ? widest + 8 : 20) + VALUE;
    const width = Math.max(count * this.pitch, 1);
    const height = 2 * this.label + GAP;
    this.svg = drawing("svg", { class: "strokes", width, height, viewBox: `0 0 ${width} ${height}` });
    this.lines = this.weights.flatMap((row, query) => row.map((weight, key) => this.stroke(query, key, weight)));
    this.words = [
      this.queries.map((text, index) => this.word("query", text, index)),
      this.keys.map((text, index) => this.word("key", text, index)),
    ];
    this.svg.append(...this.lines.filter(Boolean).map(({ line }) => line));
    ["Queries", "Keys"].forEach((name, line) => {
      this.svg.append(drawing("g", { role: "group", "aria-label": name }, ...this.words[line]));
      arrowKeys(this.words[line]);
    });
    this.panel.replaceChildren(this.svg);
    this.point(null);
  }

  stroke(query, key, weight) {
    if (weight < MIN_WEIGHT) {
      return null;
    }
    const [top, bottom] = [this.label + 2, this.label + GAP - 2];
    const line = drawing("line", { class: "stroke", x1: this.x(query), y1: top, x2: this.x(key), y2: bottom });
    line.style.setProperty("--weight", weight);
    return { query, key, line };
  }

  x(index) {
    return (index + 0.5) * this.pitch;
  }

  /** Returns a word with a place for its weight beyond it. */
  word(line, text, index) {
    const isQuery = line === "query";
    const y = isQuery ? this.label - 6 : this.label + GAP + 6;
    const far = isQuery ? VALUE - 5 : 2 * this.label + GAP - 4;
    const shown = fitted(text, this.isUpright ? LONGEST : this.pitch - 8);
    const label = this.isUpright
      ? drawing(
          "text",
          { class: isQuery ? "upright" : "upright key", transform: `translate(${this.x(index) + 4} ${y}) rotate(-90)` },
          shown,
        )
      : drawing("text", { class: "level", x: this.x(index), y: y + (isQuery ? -4 : 12) }, shown);
    const group = drawing("g", {
      class: `word ${line}`,
      role: "img",
      "aria-label": this.description(isQuery, index),
      onpointerenter: () => this.point({ isQuery, index }),
      onpointerleave: () => this.point(null),
      onfocus: () => this.point({ isQuery, index }),
      onblur: () => this.point(null),
    });
    const [left, top] = [this.x(index) - this.pitch / 2 + 1, isQuery ? 0 : this.label + GAP];
    const attributes = { x: left, y: top, width: this.pitch - 2, height: this.label, rx: 4 };
    group.append(drawing("rect", attributes), label, drawing("text", { class: "weight", x: this.x(index), y: far }));
    return group;
  }

  /** Returns the name of a word and its largest weights. */
  description(isQuery, index) {
    const others = isQuery ? this.keys : this.queries;
    const name = isQuery ? `${this.queries[index]} attends to` : `${this.keys[index]} gets attention from`;
    const largest = others
      .map((text, other) => [text, this.weight(isQuery, index, other)])
      .filter(([, weight]) => weight >= MIN_WEIGHT)
      .sort(([, first], [, second]) => second - first)
      .slice(0, 5)
      .map(([text, weight]) => `${text} ${weight.toFixed(2)}`);
    return `${name} ${largest.join(", ") || "none"}`;
  }

  weight(isQuery, index, other) {
    return isQuery ? this.weights[index][other] : this.weights[other][index];
  }

  /** Shows the strokes and numbers of only one word; of all words, without numbers, for null. */
  point(place) {
    for (const part of this.lines.filter(Boolean)) {
      const isShown = !place || (place.isQuery ? part.query : part.key) === place.index;
      part.line.classList.toggle("hidden", !isShown);
    }
    this.words.forEach((words, line) => {
      const isOther = place && (line === 0) !== place.isQuery;
      words.forEach((word, index) => {
        const weight = isOther ? this.weight(place.isQuery, place.index, index) : 0;
        word.style.setProperty("--weight", weight);
        word.classList.toggle("pointed", Boolean(place) && !isOther && index === place.index);
        word.lastChild.textContent = weight >= MIN_WEIGHT ? weight.toFixed(2).replace(/^0/, "") : "";
      });
    });
  }
}
