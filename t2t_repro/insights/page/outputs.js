/** The translation and the list of all outputs, with a shade and a number for each token's probability. */

import { arrowKeys, element, number, plainText, probability, shownLabel } from "./dom.js";
import { explain } from "./tooltip.js";

/** Returns the paragraph with the best output. */
export function translation(hypothesis) {
  const text = hypothesis?.text || "(empty)";
  return element("p", { class: "translation", dir: "auto" }, text);
}

/**
 * Returns the list of outputs, best first.
 *
 * @param {object[]} hypotheses the outputs, as the server answers.
 * @param {number} chosen index of the output that the other panels show.
 * @param {(index: number) => void} choose is called if another output is chosen.
 */
export function outputList(hypotheses, chosen, choose) {
  const name = `output${(outputList.count = (outputList.count ?? 0) + 1)}`;
  const items = hypotheses.map((hypothesis, index) => {
    const button = element("input", {
      type: "radio",
      name,
      value: index + 1,
      checked: index === chosen,
      "aria-label": `Show output ${index + 1} in the search and the attention: ${hypothesis.text}`,
      onchange: () => choose(index),
    });
    const score = element(
      "p",
      { class: "score" },
      element("span", {}, "score "),
      element("b", {}, number(hypothesis.score, 3)),
      element("span", {}, `, log-probability ${number(hypothesis.log_prob, 3)}`),
      hypothesis.has_end ? null : element("span", {}, ", no end token: too long"),
    );
    const rank = element("label", { class: "rank" }, button, ` ${index + 1}`);
    return element("li", {}, rank, tokens(hypothesis.tokens, index), score);
  });
  return element("ol", { class: "outputs" }, ...items);
}

/** Returns the explanation of the shades. */
export function shadeLegend() {
  const steps = [0.9, 0.5, 0.1, 0.01].map((value) => chip(String(value), Math.log(value)));
  return element("p", { class: "legend shades" }, "Token probability: ", ...steps);
}

function tokens(list, index) {
  const chips = list.map(({ label, log_prob: logProb }) => {
    const node = chip(label, logProb);
    node.setAttribute("role", "img");
    explain(
      node,
      `${plainText([label]) || label}: probability ${probability(logProb)}, log-probability ${number(logProb)}`,
    );
    return node;
  });
  arrowKeys(chips);
  const name = `Tokens of output ${index + 1}; arrow keys move between them`;
  return element("p", { class: "tokens", role: "group", "aria-label": name, dir: "auto" }, ...chips);
}

/** Returns a token whose shade is the stronger, the less probable the token is: nothing at 1, the most at 0.01. */
function chip(label, logProb) {
  const node = element("span", { class: "token" }, shownLabel(label));
  node.style.setProperty("--doubt", logProb === null ? 1 : Math.min(-logProb / Math.log(100), 1).toFixed(3));
  return node;
}
