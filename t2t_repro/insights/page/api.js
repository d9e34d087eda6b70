/** Requests to the server. */

/** An error with a message for the person at the page. */
export class PageError extends Error {}

/** The server has stopped or cannot be reached. */
export class ServerStopped extends PageError {}

/**
 * Returns the answer of /api/`name`.
 *
 * @param {string} name "models", "translate" or "attention".
 * @param {Object<string, unknown>} parameters the question.
 * @param {AbortSignal} signal ends the request, whose error then means nothing.
 */
export async function ask(name, parameters = {}, signal = undefined) {
  const response = await reach(`api/${name}?${new URLSearchParams(parameters)}`, signal);
  const answer = await content(response);
  if (!response.ok) {
    const message = answer.error?.replace("the source", "the sentence"); // the page's word
    throw new PageError(sentence(message ?? `The server answered with status ${response.status}`));
  }
  return answer;
}

async function reach(address, signal) {
  try {
    return await fetch(address, { signal });
  } catch {
    throw new ServerStopped();
  }
}

/** Returns the JSON of a response. A server that stops in the middle of its answer counts as stopped. */
async function content(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error instanceof SyntaxError && !response.ok) {
      return {};
    }
    throw new ServerStopped();
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
