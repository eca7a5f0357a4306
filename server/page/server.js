// server/page/server.js: how the page asks the server: requests, streams of events, and refusals in words that say what
// to do.

import { settings } from "./settings.js";

// status 0: there was no answer, or it broke off.
export class Refusal extends Error {
  constructor(status, error, retryAfter) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.retryAfter = retryAfter;
  }
}

function authorization() {
  const { key } = settings();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function readRefusal(status, text, retryAfter) {
  let error = { message: text.slice(0, 300), code: "" };
  try {
    error = JSON.parse(text).error ?? error;
  } catch {
    // A proxy between here and there answered in its own words.
  }
  return new Refusal(status, error, Number(retryAfter) || 0);
}

const unreachable = () => new Refusal(0, { message: "", code: "unreachable" });

async function call(path, options = {}) {
  const headers = { ...options.headers, ...authorization() };
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (response.ok) return response;
  throw readRefusal(response.status, await response.text(), response.headers.get("Retry-After"));
}

export const getJson = async (path) => (await call(path)).json();
export const getText = async (path) => (await call(path)).text();
export const getBlob = async (path) => (await call(path)).blob();

// A page of a document as a picture, and how many pages there are.
export async function getPage(id, page) {
  const response = await call(`v1/documents/${encodeURIComponent(id)}/pages/${page}`);
  return { blob: await response.blob(), pages: Number(response.headers.get("X-Page-Count")) || Infinity };
}

export const remove = (path) => call(path, { method: "DELETE" });

// Sends a file as a form does. `progress` is called with the share that is sent; fetch() does not tell it.
export const upload = (path, file, progress) => new Promise((resolve, reject) => {
  const request = new XMLHttpRequest(), form = new FormData();
  form.append("file", file);
  request.open("POST", path);
  for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
  request.upload.onprogress = ({ loaded, total }) => progress(total > 0 ? loaded / total : 1);
  request.onerror = () => reject(unreachable());
  request.onload = () => {
    if (request.status < 300) resolve(JSON.parse(request.responseText));
    else reject(readRefusal(request.status, request.responseText, request.getResponseHeader("Retry-After")));
  };
  request.send(form);
});

// The data of each event, parsed, until [DONE].
export async function* streamEvents(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true };
    });
    if (done) throw new Refusal(0, { message: "", code: "broke_off" });
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      if (event === "data: [DONE]") return;
      const data = JSON.parse(event.slice("data: ".length));
      if (data.error) throw new Refusal(500, data.error);
      yield data;
    }
  }
}

// What happened, what to do about it, and which button helps: "again", "key", "settings", "reload" or none.
const BY_CODE = {
  unreachable: ["The server does not answer.", "It may have stopped. Try again when it runs.", "again"],
  broke_off: ["The answer broke off.", "The connection ended before the text did.", "again"],
  context_length_exceeded: ["This is too long for the model.", "Shorten it, or let it write fewer tokens.", "settings"],
  no_collection: ["There are no documents to read.", "Choose “Without”.", ""],
  no_retrieval: ["This model reads no documents.", "Choose “Without”.", ""],
  no_chat_template: ["This model holds no conversations.", "Choose “Complete”.", ""],
  model_not_found: ["This model is no longer served.", "Load the page again to see which are.", "reload"],
  out_of_memory: ["The server has no memory left for this.", "Try again in a moment, or with a shorter text.", "again"],
  device_failed: ["The device that computes has failed.", "Whoever runs the server has to start it again.", ""],
};
const BY_STATUS = {
  400: ["The server refuses this request.", "Its own words, below, say why.", "settings"],
  401: ["The server wants an API key.", "Whoever runs the server hands them out.", "key"],
  403: ["This is not allowed with your key, or from your address.", "Ask whoever runs the server.", "key"],
  408: ["The request took too long to arrive.", "Try again.", "again"],
  413: ["This is too much text for the server.", "Shorten it.", ""],
  429: ["You have asked often enough for now.", "Try again", "again"],
  503: ["The server is busy, or is about to stop.", "Try again", "again"],
};

export function explain(refusal) {
  const known = BY_CODE[refusal.code] ?? BY_STATUS[refusal.status];
  let [title, advice, action] = known ?? ["The server failed at this.", "Try again; its log has the reason.", "again"];
  if (refusal.status === 401 && settings().key) title = "The server does not take this API key.";
  if (advice === "Try again") advice += refusal.retryAfter > 0 ? ` in ${refusal.retryAfter} s.` : " in a moment.";
  return { title, advice, action, said: refusal.message };
}
