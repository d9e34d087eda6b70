/** The page of t2t-insights: reads the question, asks the server and shows the answers. */

import { ask, PageError, ServerStopped } from "./api.js";
import { element } from "./dom.js";
import { linkTo, readLink } from "./link.js";
import { Side } from "./side.js";

const find = (id) => document.getElementById(id);
const [form, source, results, error, status] = ["question", "source", "results", "error", "status"].map(find);
const SETTINGS = {
  beam_size: "The beam size",
  alpha: "The length penalty α",
  num_best: "The number of outputs", // at most the beam size
};
const NONE = "";

let models = [];
let limits = {};
let sides = [];
let views = [{}, {}];
let asked = null; // the question whose answers the page shows
let request = new AbortController();
let timer = null; // writes the address after the view has changed

/** Reads the models from the server, then the address, and answers it if it has a sentence. */
async function start() {
  try {
    ({ models, limits } = await ask("models"));
  } catch (problem) {
    report(problem);
    return;
  }
  models = numbered(models);
  find("models").textContent = models.map(({ name, description }) => `${name}: ${description}`).join(" · ");
  const options = models.map(({ name, number }) => element("option", { value: number + 1 }, name));
  find("model").append(...options);
  find("compare").append(
    element("option", { value: NONE }, "no other"),
    ...options.map((option) => option.cloneNode(true)),
  );
  form.classList.toggle("one-model", models.length < 2);
  find("beam_size").max = limits.beam_size;
  find("alpha").max = limits.alpha;
  listen();
  openLink();
}

/** Returns the models with their numbers. Two checkpoints of a folder have its name, so the number is added to it. */
function numbered(list) {
  const isUnique = new Set(list.map(({ name }) => name)).size === list.length;
  return list.map((model, number) => {
    const { name } = model;
    return { ...model, number, folder: name, name: isUnique ? name : `${name} (${number + 1})` };
  });
}

function listen() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      translate();
    }
  });
  source.addEventListener("input", followSource);
  form.querySelector(".settings").addEventListener("change", ({ target }) => {
    // A beam of K hypotheses has at most K outputs.
    const [beam, outputs] = [find("beam_size"), find("num_best")];
    if (isValid(target) && Number(outputs.value) > Number(beam.value)) {
      (target === outputs ? beam : outputs).value = target.value;
    }
    if (source.value.trim()) {
      translate();
    }
  });
  addEventListener("popstate", openLink);
}

/** Shows what the address says. Settings that it does not have get the problem's values. */
function openLink() {
  const link = readLink(location.search);
  const model = models[Number(link.question.model) - 1] ?? models[0];
  const other = models.length > 1 ? String(((model.number + 1) % models.length) + 1) : NONE;
  const question = { ...link.question, model: model.number + 1, compare: link.question.compare ?? other };
  const defaults = { source: "", beam_size: model.beam_size, alpha: model.alpha, num_best: model.beam_size };
  for (const [name, value] of Object.entries({ ...defaults, ...question })) {
    find(name).value = value;
  }
  find("compare").value ||= NONE;
  views = link.views;
  forgetTimer();
  error.textContent = "";
  followSource();
  if (source.value) {
    translate(views);
  } else {
    close();
    results.replaceChildren(introduction(model.example));
  }
}

/**
 * Asks the server and shows its answers. A newer question replaces one that is still unanswered.
 *
 * @param {object[] | null} linked the views from the address; null to begin with the defaults and a new address.
 */
async function translate(linked = null) {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  try {
    const question = readForm();
    const chosen = [question.model, question.compare]
      .filter((number) => number !== NONE)
      .map((number) => models[number - 1]);
    busy(true);
    const { source: text, beam_size, alpha, num_best } = question;
    const answers = await Promise.all(
      chosen.map(({ number }) => ask("translate", { model: number, source: text, beam_size, alpha, num_best }, signal)),
    );
    if (signal.aborted) {
      return;
    }
    if (timer && !linked) {
      writeView();
    }
    views = linked ?? views.map(({ kind, layer, head }) => ({ kind, layer, head }));
    show(question, chosen, answers);
    if (!linked && linkTo(question, views) !== location.search) {
      history.pushState(null, "", linkTo(question, views));
    }
    busy(false);
  } catch (problem) {
    if (!signal.aborted) {
      report(problem);
    }
  }
}

/** Returns the question in the form. Throws PageError if a field is wrong. */
function readForm() {
  const question = { source: source.value.replace(/\s+/g, " ").trim(), model: find("model").value };
  question.compare = find("compare").value;
  if (!question.source) {
    throw new PageError("The sentence is empty. Type a sentence.");
  }
  const length = [...question.source].length;
  if (length > limits.characters) {
    throw new PageError(`The sentence has ${length} characters, but the limit is ${limits.characters}. Shorten it.`);
  }
  for (const [id, name] of Object.entries(SETTINGS)) {
    const field = find(id);
    field.setAttribute("aria-invalid", !isValid(field));
    question[id] = Number(field.value);
    const most = id === "num_best" ? question.beam_size : limits[id];
    if (!isValid(field) || question[id] > most) {
      const kind = field.step === "1" ? "a whole number" : "a number";
      throw new PageError(`${name} must be ${kind} from ${field.min} to ${most}.`);
    }
  }
  return question;
}

function isValid(field) {
  const value = Number(field.value);
  const isWhole = field.step !== "1" || Number.isInteger(value);
  return field.value !== "" && isWhole && value >= Number(field.min) && value <= Number(field.max || limits.beam_size);
}

function show(question, chosen, answers) {
  close();
  asked = question;
  document.title = `${question.source} – t2t-insights`;
  const events = { changed: rememberView, failed: report };
  const texts = answers.map(({ hypotheses }) => hypotheses[0]?.text ?? "");
  sides = chosen.map(
    (model, index) => new Side(model, question.source, answers[index], texts[1 - index], views[index], events),
  );
  results.classList.toggle("two", sides.length > 1);
  results.replaceChildren(...sides.map(({ panel }) => panel));
  sides.forEach((side) => side.start());
  status.textContent = chosen
    .map(({ name }, index) => `${sides.length > 1 ? name : "Translation"}: ${texts[index]}`)
    .join(". ");
}

/** Writes the view to the address, but not each step of a moved slider: browsers allow few changes in a second. */
function rememberView() {
  clearTimeout(timer);
  timer = setTimeout(writeView, 200);
}

function writeView() {
  forgetTimer();
  history.replaceState(null, "", linkTo(asked, views.slice(0, sides.length)));
}

function forgetTimer() {
  clearTimeout(timer);
  timer = null;
}

function close() {
  sides.forEach((side) => side.close());
  sides = [];
}

function busy(isBusy) {
  results.setAttribute("aria-busy", isBusy);
  find("translate").textContent = isBusy ? "Translating …" : "Translate";
  if (isBusy) {
    error.textContent = "";
    status.textContent = "Translating";
  }
}

/** Shows an error in plain words. The results of earlier questions stay. */
function report(problem) {
  busy(false);
  status.textContent = "";
  const earlier = sides.length ? " Below are the results of an earlier sentence." : "";
  if (problem instanceof ServerStopped) {
    const command = `t2t-insights --output_dir=${models[0]?.folder ?? "M"} --port=${location.port || 80}`;
    error.textContent =
      `The server has stopped. Start it again in a terminal with the same command, such as ${command}, ` +
      `and translate again.` +
      earlier;
  } else if (problem instanceof PageError) {
    error.textContent = problem.message + earlier;
  } else {
    error.textContent = `The page has failed: ${problem.message}. Reload it.`;
    throw problem;
  }
}

/** Counts the characters of the sentence, and makes its field as high as its lines. */
function followSource() {
  const length = [...source.value].length;
  find("count").textContent =
    length > 0.8 * limits.characters ? `${length} of at most ${limits.characters} characters` : "Enter translates.";
  find("count").classList.toggle("too-long", length > limits.characters);
  source.style.height = "auto";
  source.style.height = `${source.scrollHeight + 2}px`;
}

function introduction(example) {
  const show = () => {
    source.value = example;
    translate();
  };
  return element(
    "div",
    { class: "introduction" },
    element(
      "p",
      {},
      "Type a sentence. You then see its translation, the other outputs of the beam search, ",
      "every step of the search, and what the model attends to.",
    ),
    example
      ? element("p", {}, "For example: ", element("button", { type: "button", dir: "auto", onclick: show }, example))
      : null,
  );
}

start();
