/** One box beside the element under the pointer or with the focus. It shows a number that has no room otherwise. */

import { element } from "./dom.js";

const box = element("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
let explained = null;
document.body.append(box);
document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
document.addEventListener("scroll", place, { capture: true, passive: true });

/** Shows `text` beside an element while the pointer is over it or it has the focus. Screen readers read it, too. */
export function explain(node, text) {
  node.setAttribute("aria-label", text);
  for (const event of ["pointerenter", "focus"]) {
    node.addEventListener(event, () => show(node, text));
  }
  for (const event of ["pointerleave", "blur"]) {
    node.addEventListener(event, hide);
  }
}

function show(node, text) {
  explained = node;
  box.textContent = text;
  box.hidden = false;
  place();
}

/** Puts the box above the element, or below it at the top of the window. */
function place() {
  if (!explained?.isConnected) {
    hide();
    return;
  }
  const { left, top, bottom, width } = explained.getBoundingClientRect();
  const centered = left + width / 2 - box.offsetWidth / 2;
  const above = top - box.offsetHeight - 6;
  box.style.left = `${Math.max(8, Math.min(centered, document.documentElement.clientWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${above > 4 ? above : bottom + 6}px`;
}

function hide() {
  explained = null;
  box.hidden = true;
}
