/** Attention as a table: a row for each query, a column for each key, and a shade and a number for each weight. */

import { arrowKeys, element } from "./dom.js";
import { explain } from "./tooltip.js";

/**
 * Returns the table in a box that scrolls.
 *
 * @param {string[]} queries labels of the rows.
 * @param {string[]} keys labels of the columns.
 * @param {number[][]} weights the weights [queries][keys].
 * @param {string} name what the table shows.
 */
export function heatMap(queries, keys, weights, name) {
  const cells = [];
  const rows = queries.map((query, row) => {
    const values = keys.map((key, column) =>
      cell(`${query} to ${key}: ${weights[row][column].toFixed(3)}`, weights[row][column]),
    );
    cells.push(...values);
    return element("tr", {}, element("th", { scope: "row" }, element("span", {}, query)), ...values);
  });
  arrowKeys(cells, keys.length);
  const titles = keys.map((key) => element("th", { scope: "col" }, element("span", {}, key)));
  const corner = element("td", { class: "corner" });
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      { class: "heatmap" },
      element("caption", { class: "visually-hidden" }, `Weights of ${name}. Rows are queries, columns are keys.`),
      element("thead", {}, element("tr", {}, corner, ...titles)),
      element("tbody", {}, ...rows),
    ),
  );
}

function cell(text, weight) {
  const node = element("td", { class: "cell" });
  node.style.setProperty("--weight", weight);
  explain(node, text);
  return node;
}
