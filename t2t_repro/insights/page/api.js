/** Requests to the server. */

/** An error with a message for the person at the page. */
export class PageError extends Error {}

/** The server cannot be reached, or has stopped in the middle of its answer. */
export class ServerStopped extends PageError {}

/**
 * Returns the answer of /api/`name`.
 *
 * @param {string} name "models", "translate" or "attention".
 * @param {Object<string, unknown>} parameters the question.
 * @param {AbortSignal} signal ends the request, whose error then means nothing.
 */
export async function ask(name, parameters = {}, signal = undefined) {
  let response;
  let answer;
  try {
    response = await fetch(`api/${name}?${new URLSearchParams(parameters)}`, { signal });
    answer = await response.json();
  } catch {
    throw new ServerStopped();
  }
  if (!response.ok) {
    throw new PageError(sentence(answer.error.replace("the source", "the sentence"))); // the page's word
  }
  return answer;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
