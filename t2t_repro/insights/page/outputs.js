/** The translation and the list of all outputs, with a shade and a number for each token's probability. */

import { arrowKeys, different, element, number, plainText, probability, shownLabel } from "./dom.js";
import { explain } from "./tooltip.js";

const WORDS = /(\s+|[^\p{L}\p{M}\p{N}\s]|[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}])/u;

/** Returns the best output with a button that copies it. Words that the text `other` does not have are marked. */
export function translation(hypothesis, other = undefined) {
  const words = (text) => text.split(WORDS).filter(Boolean);
  const text = hypothesis?.text || "(empty)";
  const marks = other === undefined ? [] : different(words(text), words(other));
  const parts = words(text).map((word, index) =>
    marks[index] && word.trim() ? element("span", { class: "differs" }, word) : word,
  );
  return element(
    "div",
    { class: "copied" },
    element("p", { class: "translation", dir: "auto" }, ...parts),
    copyButton(hypothesis?.text ?? "", "Copy the translation"),
  );
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
    const marks = different(...[hypothesis, hypotheses[0]].map(({ tokens }) => tokens.map(({ label }) => label)));
    const copy = copyButton(hypothesis.text, `Copy output ${index + 1}`);
    return element("li", {}, rank, tokens(hypothesis.tokens, marks, index), score, copy);
  });
  return element("ol", { class: "outputs" }, ...items);
}

/** Returns the explanation of the shades, and of the marks if there are several outputs. */
export function legend(isSeveral) {
  const steps = [0.9, 0.5, 0.1, 0.01].map((value) => chip(String(value), Math.log(value)));
  const marks = element("span", {}, element("span", { class: "token differs" }, "token"), "not in output 1");
  return element("p", { class: "legend shades" }, "Token probability: ", ...steps, isSeveral ? marks : null);
}

/**
 * Returns a button that copies a text; null if the browser has no clipboard for the page. It has none for a page of
 * another machine without encryption.
 */
function copyButton(text, name) {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  const button = element("button", { type: "button", class: "copy", "aria-label": name, onclick: copy }, "Copy");
  return navigator.clipboard ? button : null;
}

function tokens(list, marks, index) {
  const chips = list.map(({ label, log_prob: logProb }, position) => {
    const node = chip(label, logProb);
    node.classList.toggle("differs", marks[position]);
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
