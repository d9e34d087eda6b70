/** The panel of the beam search: the tree, buttons and a slider for its steps, and a table of the current step. */

import { clamp, element, number, plainText, probability, shownLabel } from "./dom.js";
import { FATES, fateSign, markPath, Tree, treePicture } from "./tree.js";

const NUMBERS = ["Probability", "Log-prob.", "Score", "Output"];

/** The panel. Its element is `panel`. */
export class SearchPanel {
  /**
   * @param {object} search the search, as the server answers.
   * @param {{step: number, output: number}} shown the step to show at first, and the index of the output to mark.
   * @param {(step: number) => void} changed is called with the new step.
   */
  constructor(search, shown, changed) {
    this.search = search;
    this.changed = changed;
    this.tree = new Tree(search);
    this.last = search.steps.length;
    this.output = shown.output;
    this.box = element("div", {
      class: "scroll tree-box",
      tabindex: 0,
      role: "group",
      "aria-label": "Search tree. Left and Right change the step, Up and Down choose a candidate.",
      onkeydown: (event) => this.onKey(event),
    });
    this.table = element("div", {
      class: "scroll table-box",
      tabindex: 0,
      role: "group",
      "aria-label": "Candidates of the current step",
    });
    this.summary = element("p", { class: "summary", "aria-live": "polite" });
    this.panel = element(
      "div",
      { class: "search" },
      this.controls(),
      this.summary,
      this.box,
      legend(),
      element("p", { class: "stop" }, stopSentence(search)),
      this.table,
    );
    this.show(clamp(shown.step, 1, this.last, this.end()));
  }

  /** Marks the path of another output and shows the step at which it ends. */
  choose(output) {
    this.output = output;
    this.goTo(this.end());
    this.mark(null);
  }

  /** Returns the step at which the marked path ends. */
  end() {
    return this.tree.nodes.get(this.tree.nodeOf(this.output)).step ?? this.last;
  }

  /** Scrolls the tree so that the current step is at the right end of the box. The panel must be on the page. */
  reveal() {
    this.box.scrollLeft = this.tree.middle(this.step) + 90 - this.box.clientWidth;
  }

  controls() {
    const button = (name, sign, step) =>
      element("button", { type: "button", "aria-label": name, title: name, onclick: () => this.goTo(step()) }, sign);
    this.backward = [button("First step", "⇤", () => 1), button("Previous step", "←", () => this.step - 1)];
    this.forward = [button("Next step", "→", () => this.step + 1), button("Last step", "⇥", () => this.last)];
    this.slider = element("input", {
      type: "range",
      min: 1,
      max: this.last,
      "aria-label": "Step",
      oninput: () => this.goTo(Number(this.slider.value)),
    });
    return element("div", { class: "steps" }, ...this.backward, this.slider, ...this.forward);
  }

  onKey(event) {
    const steps = { ArrowLeft: this.step - 1, ArrowRight: this.step + 1, Home: 1, End: this.last };
    const candidates = { ArrowUp: -1, ArrowDown: 1 };
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in steps || event.key in candidates)) {
      return;
    }
    event.preventDefault();
    if (event.key in steps) {
      this.goTo(steps[event.key]);
      return;
    }
    const rows = this.search.steps[this.step - 1];
    const row = rows.findIndex((node) => node.id === this.pointed) + candidates[event.key];
    this.mark(rows[clamp(row, 0, rows.length - 1)].id);
  }

  goTo(step) {
    const limited = clamp(step, 1, this.last);
    if (limited !== this.step) {
      this.show(limited);
      this.changed(limited);
    }
    this.reveal();
  }

  show(step) {
    this.step = step;
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", `step ${step} of ${this.last}`);
    // A button that is disabled loses the focus, so the buttons only look disabled.
    this.backward.forEach((button) => button.setAttribute("aria-disabled", step === 1));
    this.forward.forEach((button) => button.setAttribute("aria-disabled", step === this.last));
    const candidates = this.search.steps[step - 1];
    this.summary.textContent = stepSentence(candidates, step, this.last);
    this.svg = treePicture(this.tree, step, (id) => this.mark(id));
    this.box.replaceChildren(this.svg);
    this.table.replaceChildren(this.candidateTable(candidates));
    this.mark(null);
  }

  /** Marks the path to a candidate; null for the path of the chosen output. */
  mark(id) {
    this.pointed = id;
    markPath(this.tree, this.svg, id ?? this.tree.nodeOf(this.output));
    for (const row of this.table.querySelectorAll("tbody tr")) {
      row.classList.toggle("pointed", Number(row.dataset.candidate) === id);
    }
  }

  candidateTable(candidates) {
    const rows = candidates.map((node, index) => {
      const labels = this.tree.path(node.id).map(({ token }) => token);
      return element(
        "tr",
        {
          "data-candidate": node.id,
          class: node.fate,
          onpointerenter: () => this.mark(node.id),
          onpointerleave: () => this.mark(null),
        },
        element("td", { "data-title": "Rank" }, String(index + 1)),
        element("td", {}, element("span", { class: "fate" }, fateSign(node.fate), ` ${node.fate}`)),
        element(
          "th",
          { scope: "row", dir: "auto" },
          `${plainText(labels.slice(0, -1))} `,
          element("b", {}, shownLabel(node.token)),
        ),
        ...[
          probability(node.token_log_prob),
          number(node.log_prob, 3),
          node.score === null ? "" : number(node.score, 3),
          node.output === null ? "" : String(node.output + 1),
        ].map((text, column) => element("td", { class: "number", "data-title": NUMBERS[column] }, text)),
      );
    });
    const titles = [
      ...["Rank", "Fate", "Hypothesis with its new token"].map((title) => element("th", { scope: "col" }, title)),
      ...NUMBERS.map((title) => element("th", { scope: "col", class: "number" }, title)),
    ];
    return element(
      "table",
      { class: "candidates" },
      element("caption", {}, `Candidates of step ${this.step}, best first`),
      element("thead", {}, element("tr", {}, ...titles)),
      element("tbody", {}, ...rows),
    );
  }
}

/** Returns the sentence that counts what became of a step's candidates. */
function stepSentence(candidates, step, last) {
  const count = (fate) => candidates.filter((node) => node.fate === fate).length;
  const counts = Object.keys(FATES).map((fate) => `${count(fate)} ${fate}`);
  return `Step ${step} of ${last}: ${counts.join(", ")}`;
}

/** Returns the sentence that says why a search stopped, with the two numbers that were compared. */
function stopSentence({ end, limit, num_best: count, steps }) {
  const best =
    end.best_possible === null
      ? "no hypothesis was alive"
      : `the best alive hypothesis could still reach a score of ${number(end.best_possible, 3)}`;
  const outputs = count > 1 ? `the worst of the ${count} best finished outputs` : "the best finished output";
  const worst =
    end.worst_of_best === null
      ? `${count > 1 ? `fewer than ${count} outputs` : "no output"} had finished`
      : `${outputs} has ${number(end.worst_of_best, 3)}`;
  const reason =
    end.reason === "limit"
      ? `because its outputs reached the length limit of ${limit} tokens`
      : "because no alive hypothesis could become an output any more";
  return `The search stopped after step ${steps.length} ${reason}: ${best}, and ${worst}.`;
}

function legend() {
  const items = Object.entries(FATES).map(([fate, meaning]) =>
    element("span", { class: `fate ${fate}` }, fateSign(fate), element("b", {}, ` ${fate}`), ` ${meaning}`),
  );
  return element("p", { class: "legend" }, ...items);
}
