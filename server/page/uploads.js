// server/page/uploads.js: files that become documents: chosen or dropped, sent one after the other, each with how far it
// is and, where it failed, the server's own words. The server answers at once with a job, which is asked until it ends.

import { getJson, upload } from "./server.js";

const $ = (selector) => document.querySelector(selector);
const list = $("#uploads"), told = $("#documents-told"), chooser = $("#upload-files");

const PAUSE = 400; // milliseconds between two questions about a job

let queue = []; // {file, item}
let sending = false;
let uses = {}; // refused(refusal) gives words; done(): all of them have come to an end

function enqueue(files) {
  if (!sending) list.replaceChildren();
  for (const file of files) {
    const item = document.createElement("li"), bar = document.createElement("progress");
    const name = document.createElement("span"), words = document.createElement("span");
    name.textContent = file.name;
    words.className = "words";
    words.textContent = "waits";
    bar.value = 0;
    bar.setAttribute("aria-label", `How much of ${file.name} is sent`);
    item.append(name, bar, words);
    list.append(item);
    queue.push({ file, item });
  }
  if (!sending && queue.length > 0) sendAll();
}

async function sendAll() {
  let n = 0, failed = 0;
  sending = true;
  while (queue.length > 0) {
    const { file, item } = queue.shift();
    const ok = await send(file, item);
    n += 1;
    failed += ok ? 0 : 1;
  }
  sending = false;
  told.textContent = `${n - failed} of ${n} ${n === 1 ? "file" : "files"} added.`;
  if (failed < n) uses.done();
}

// Gives whether the file, or something of it, is among the documents.
async function send(file, item) {
  const bar = item.querySelector("progress"), words = item.querySelector(".words");
  const show = (share) => {
    bar.value = share;
    words.textContent = share < 1 ? `${Math.floor(100 * share)} % sent` : "is being read";
    if (share === 1) bar.removeAttribute("value");
  };
  told.textContent = `${file.name} is being sent.`;
  let result;
  try {
    const sent = await upload("v1/documents?wait=false", file, show);
    result = describe(await waitForJob(sent, bar, words));
  } catch (refusal) {
    result = { ok: false, words: uses.refused(refusal) };
  }
  bar.remove();
  item.classList.toggle("failed", !result.ok);
  words.textContent = result.words;
  return result.ok;
}

// `job` as it began. Gives it as it ended.
async function waitForJob(job, bar, words) {
  let now = job;
  bar.setAttribute("aria-label", "How much of it is read");
  while (now.status === "waiting" || now.status === "running") {
    const { done, total } = now.files ?? {};
    words.textContent = now.status === "waiting" ? "waits for the server" : "is being read";
    if (total > 1) Object.assign(bar, { value: done / total });
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    now = await getJson(`v1/jobs/${encodeURIComponent(job.id)}`);
  }
  return now;
}

// A file may hold several documents. `error` is a job's that failed as a whole.
function describe({ data = [], skipped = [], error = null }) {
  const wrong = [...(error ? [error.message] : []), ...data.filter(({ error }) => error).map(({ error }) => error.message),
    ...skipped.map(({ file, message }) => `${file}: ${message}`)];
  const effects = data.filter(({ error }) => !error).map(({ effect }) => effect);
  const counts = [...new Set(effects)].map((effect) => {
    const n = effects.filter((one) => one === effect).length;
    return effects.length === 1 ? effect : `${n} ${effect}`;
  });
  return { ok: effects.length > 0, words: [counts.join(", "), ...wrong].filter(Boolean).join("; ") || "holds no text" };
}

// Files may be dropped anywhere on the dialog, and do not become pictures of a question.
export function startUploads(dialog, given) {
  uses = given;
  $("#upload").addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", () => {
    enqueue([...chooser.files]);
    chooser.value = "";
  });
  const holdsFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  const mark = (event, over) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    dialog.classList.toggle("over", over);
  };
  dialog.addEventListener("dragover", (event) => mark(event, true));
  dialog.addEventListener("dragleave", (event) => mark(event, false));
  dialog.addEventListener("drop", (event) => {
    mark(event, false);
    if (!dialog.classList.contains("read-only")) enqueue([...event.dataTransfer.files]);
  });
}
