/** Functions that make elements. Texts become text nodes, so that no input is ever read as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** Returns a new HTML element. `attributes` whose names begin with "on" are event listeners. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Returns a new SVG element; arguments as for `element`. */
export function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (typeof value === "boolean") {
      node.toggleAttribute(name, value);
    } else if (value !== null) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Returns a number as text with a true minus sign; "–" for null, which stands for a number that does not exist. */
export function number(value, digits = 2) {
  return value === null ? "–" : value.toFixed(digits).replace("-", "−");
}

/** Returns a probability as text, given its logarithm. Small ones have more digits. */
export function probability(logProb) {
  if (logProb === null) {
    return "–";
  }
  const value = Math.exp(logProb);
  return value >= 0.1 ? value.toFixed(2) : value >= 0.001 ? value.toFixed(3) : "below 0.001";
}

/** Returns `value` rounded and limited to low..high; `otherwise` if it is not a number. */
export function clamp(value, low, high, otherwise = low) {
  return Number.isFinite(value) ? Math.min(Math.max(Math.round(value), low), high) : otherwise;
}

/** Returns the text of tokens. SentencePiece's "▁" becomes a space; without it, spaces separate the tokens. */
export function plainText(labels) {
  const separator = labels.some((label) => label.startsWith("▁")) ? "" : " ";
  return labels.join(separator).replaceAll("▁", " ").trim();
}

/** Returns a token's label as it is shown: "▁" becomes "_", which is narrower. */
export function shownLabel(label) {
  return label.replaceAll("▁", "_");
}

/** Returns for each item of `list` whether it differs from `other`: it is not in their longest common subsequence. */
export function different(list, other) {
  const lengths = Array.from({ length: list.length + 1 }, () => new Array(other.length + 1).fill(0)); // of the rests
  for (let i = list.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      lengths[i][j] =
        list[i] === other[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  let place = 0;
  return list.map((item, index) => {
    while (place < other.length && item !== other[place] && lengths[index][place + 1] === lengths[index][place]) {
      place += 1;
    }
    const isCommon = item === other[place];
    place += isCommon ? 1 : 0;
    return !isCommon;
  });
}

/**
 * Returns a row of buttons, one of them chosen. They are radio buttons, so arrow keys work.
 *
 * @param {string} legend the name of the choice.
 * @param {[string, string][]} options value and label of each button.
 * @param {string} chosen value of the chosen button.
 * @param {(value: string) => void} choose is called with the new value.
 */
export function choice(legend, options, chosen, choose) {
  const name = `choice${(choice.count = (choice.count ?? 0) + 1)}`;
  const buttons = options.map(([value, label]) =>
    element(
      "label",
      {},
      element("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }),
      element("span", {}, label),
    ),
  );
  return element("fieldset", { class: "choice" }, element("legend", {}, legend), element("div", {}, ...buttons));
}

/**
 * Makes one of many elements reachable with Tab, and the others from there with the arrow keys, Home and End.
 *
 * @param {Element[]} items the elements, row after row.
 * @param {number} columns number of elements in a row, between which Left and Right move.
 */
export function arrowKeys(items, columns = items.length) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  items.forEach((item, index) => {
    item.setAttribute("tabindex", index ? -1 : 0);
    item.addEventListener("focus", () => {
      items.forEach((other) => other.setAttribute("tabindex", other === item ? 0 : -1));
    });
    item.addEventListener("keydown", (event) => {
      const start = index - (index % columns);
      const ends = { Home: start, End: start + columns - 1 };
      const target = event.key in moves ? index + moves[event.key] : ends[event.key];
      const staysInRow =
        !["ArrowLeft", "ArrowRight"].includes(event.key) || Math.floor(target / columns) * columns === start;
      if (target === undefined || event.ctrlKey || event.altKey || event.metaKey) {
        return;
      }
      event.preventDefault();
      if (items[target] && staysInRow) {
        items[target].focus();
      }
    });
  });
}

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;

/** Returns the width of a text in pixels, in the font of pictures. */
export function textWidth(text) {
  return ruler.measureText(text).width;
}

/** Returns a text, shortened if it is wider than `width` pixels. */
export function fitted(text, width) {
  const letters = [...text];
  let shown = text;
  while (letters.length > 1 && textWidth(shown) > width) {
    letters.pop();
    shown = `${letters.join("")}…`;
  }
  return shown;
}
