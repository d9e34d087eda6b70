/** The beam search as a tree: a column for each step, and in it the candidates of this step, best first. */

import { drawing, fitted, number, plainText, probability, shownLabel, textWidth } from "./dom.js";
import { explain } from "./tooltip.js";

/** What can become of a candidate, with its explanation in the legend. */
export const FATES = {
  alive: "stays in the beam and grows in the next step",
  finished: "has the end token and is one of the best finished ones so far",
  pruned: "is dropped",
};
const NODE = { width: 132, height: 22 };
const PITCH = { x: NODE.width + 26, y: 28 };
const TOP = 34;
const ROOT = 0;

/** The nodes of a search by their numbers, and what follows from them. */
export class Tree {
  /** @param {object} search the search, as the server answers. */
  constructor(search) {
    this.steps = search.steps;
    this.nodes = new Map([[ROOT, { id: ROOT, parent: null, token: "start", x: 4, y: TOP, fate: "alive" }]]);
    search.steps.forEach((candidates, step) => {
      candidates.forEach((node, row) => {
        this.nodes.set(node.id, { ...node, x: 60 + step * PITCH.x, y: TOP + row * PITCH.y, step: step + 1 });
      });
    });
    this.width = 60 + search.steps.length * PITCH.x;
    this.height = TOP + Math.max(...search.steps.map((candidates) => candidates.length)) * PITCH.y;
  }

  /** Returns the nodes from the first token to a node, without the empty hypothesis. */
  path(id) {
    const nodes = [];
    for (let node = this.nodes.get(id); node && node.id !== ROOT; node = this.nodes.get(node.parent)) {
      nodes.unshift(node);
    }
    return nodes;
  }

  /** Returns the number of the node that became an output. Without an output, it is the empty hypothesis's. */
  nodeOf(output) {
    return [...this.nodes.values()].find((node) => node.output === output)?.id ?? ROOT;
  }

  /** Returns the x coordinate of the middle of a step's column. */
  middle(step) {
    return 60 + (step - 1) * PITCH.x + NODE.width / 2;
  }
}

/**
 * Returns the picture of a tree up to a step. Earlier and later columns keep their places.
 *
 * @param {Tree} tree the tree.
 * @param {number} step the step, from 1.
 * @param {(id: number | null) => void} point is called with the node under the pointer, null if there is none.
 */
export function treePicture(tree, step, point) {
  const svg = drawing("svg", {
    class: "tree",
    width: tree.width,
    height: tree.height,
    viewBox: `0 0 ${tree.width} ${tree.height}`,
    role: "img",
    "aria-label": `Search tree up to step ${step}. The table below has the candidates of this step.`,
  });
  const shown = [...tree.nodes.values()].filter((node) => node.id === ROOT || node.step <= step);
  svg.append(columnShade(tree, step), ...tree.steps.map((_, index) => columnTitle(tree, index + 1, step)));
  svg.append(...shown.filter((node) => node.id !== ROOT).map((node) => edge(tree, node)));
  svg.append(...shown.map((node) => box(tree, node, point)));
  return svg;
}

/** Marks the nodes and edges from the first token to the node `id`, and no others. */
export function markPath(tree, svg, id) {
  const ids = new Set([ROOT, ...tree.path(id).map((node) => node.id)]);
  for (const part of svg.querySelectorAll("[data-node]")) {
    const isOnPath = ids.has(Number(part.dataset.node));
    part.classList.toggle("on-path", isOnPath);
    if (isOnPath && part.classList.contains("edge")) {
      part.parentNode.insertBefore(part, svg.querySelector(".node"));
    }
  }
}

/** Returns the sign of a fate, as an SVG element of 12 x 12. */
export function fateSign(fate) {
  const paths = { alive: "M6 2.5a3.5 3.5 0 1 0 .01 0", finished: "M2 6.5l3 3L10.5 3", pruned: "M3 3l6 6M9 3l-6 6" };
  const path = drawing("path", { d: paths[fate] });
  return drawing(
    "svg",
    { class: `sign ${fate}`, width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
    path,
  );
}

function columnShade(tree, step) {
  return drawing("rect", {
    class: "current",
    x: tree.middle(step) - NODE.width / 2 - 6,
    y: 0,
    width: NODE.width + 12,
    height: tree.height,
    rx: 6,
  });
}

function columnTitle(tree, column, step) {
  const attributes = { class: "column", x: tree.middle(column), y: 18 };
  return drawing("text", attributes, column === step ? `step ${column}` : String(column));
}

function edge(tree, node) {
  const parent = tree.nodes.get(node.parent);
  const start = parent.id === ROOT ? parent.x + 44 : parent.x + NODE.width;
  const [y, end, target] = [parent.y + NODE.height / 2, node.x, node.y + NODE.height / 2];
  const half = (end - start) / 2;
  const path = `M${start} ${y}C${start + half} ${y} ${end - half} ${target} ${end} ${target}`;
  return drawing("path", { class: `edge ${node.fate}`, "data-node": node.id, d: path });
}

function box(tree, node, point) {
  const isRoot = node.id === ROOT;
  const width = isRoot ? 44 : NODE.width;
  const group = drawing("g", {
    class: `node ${node.fate}`,
    "data-node": node.id,
    tabindex: -1, // else browsers would make each node a stop of Tab
    transform: `translate(${node.x} ${node.y})`,
    onpointerenter: () => point(isRoot ? null : node.id),
    onpointerleave: () => point(null),
  });
  const radius = node.fate === "finished" ? NODE.height / 2 : 4;
  group.append(drawing("rect", { width, height: NODE.height, rx: radius }));
  if (isRoot) {
    group.append(drawing("text", { class: "root", x: width / 2, y: 15 }, node.token));
    return group;
  }
  const sign = fateSign(node.fate);
  sign.setAttribute("x", 6);
  sign.setAttribute("y", 5);
  const value = number(node.log_prob);
  group.append(
    sign,
    drawing("text", { x: 21, y: 15.5 }, fitted(shownLabel(node.token), width - 32 - textWidth(value))),
  );
  group.append(drawing("text", { class: "value", x: width - 7, y: 15.5 }, value));
  const numbers = `probability ${probability(node.token_log_prob)}, log-probability ${number(node.log_prob, 3)}`;
  explain(group, `${plainText(tree.path(node.id).map(({ token }) => token))}: ${numbers}, ${node.fate}`);
  return group;
}
