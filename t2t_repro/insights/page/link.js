/** The permanent link: the page's address holds the question and the shown part of the answers. */

const SETTINGS = ["source", "beam_size", "alpha", "num_best", "model", "compare"];
const VIEW = ["step", "output", "kind", "layer", "head"];

/** Returns what an address says: {question, views}. All values are text. */
export function readLink(address) {
  const parameters = new URLSearchParams(address);
  const read = (names, suffix = "") =>
    Object.fromEntries(
      names.filter((name) => parameters.has(name + suffix)).map((name) => [name, parameters.get(name + suffix)]),
    );
  return { question: read(SETTINGS), views: [read(VIEW), read(VIEW, "2")] };
}

/** Returns the address of a question and the views of its answers. Those of the second model end in "2". */
export function linkTo(question, views) {
  const parameters = new URLSearchParams();
  const write = (values, names, suffix = "") => {
    for (const name of names) {
      if (values[name] !== undefined) {
        parameters.set(name + suffix, values[name]);
      }
    }
  };
  write(question, SETTINGS);
  views.forEach((view, index) => write(view, VIEW, index ? "2" : ""));
  return `?${parameters}`;
}
