// server/page/folders.js: the folders that the documents were read from: whether they are followed, when they were read
// last, and what of them was skipped, with the reason and what helps. Paths and reasons are foreign text.

import { getJson, Refusal } from "./server.js";

const list = document.querySelector("#folders");
const shape = document.querySelector("#folder-shape").content.firstElementChild;
const skippedShape = document.querySelector("#skipped-shape").content.firstElementChild;

const counted = (n, name) => `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;
const when = (seconds) => new Date(1000 * seconds).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });

function showSkipped({ path, reason, remedy }) {
  const item = skippedShape.cloneNode(true);
  item.querySelector(".title").textContent = path;
  item.querySelector(".reason").textContent = reason;
  item.querySelector(".remedy").textContent = remedy ? `What helps: ${remedy}.` : "";
  item.querySelector(".remedy").hidden = !remedy;
  return item;
}

function describe({ followed, time, files, not_read: others, n_skipped: n }) {
  const parts = [followed ? "watched" : "not watched", `last read ${when(time)}`, counted(files, "file")];
  if (n > 0) parts.push(`${n.toLocaleString("en")} skipped`);
  if (others > 0) parts.push(`${others.toLocaleString("en")} of other kinds or hidden`);
  return parts.join(" · ");
}

// The server leaves paths out for those who may not change documents.
function showFolder(scan) {
  const item = shape.cloneNode(true), { paths = [], skipped = [], n_skipped: n } = scan;
  const details = item.querySelector("details");
  item.querySelector(".title").textContent = paths.join(", ") || "A folder of the server";
  item.querySelector(".place").textContent = describe(scan);
  details.hidden = skipped.length === 0;
  item.querySelector("summary").textContent =
    skipped.length < n ? `What was skipped: the first ${skipped.length}` : "What was skipped";
  details.querySelector("ul").append(...skipped.map(showSkipped));
  return item;
}

// What is refused here is refused of the documents as well, which tells why.
export async function showFolders() {
  let scans = [];
  try {
    scans = (await getJson("v1/scans")).data;
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
  }
  list.replaceChildren(...scans.map(showFolder));
  list.hidden = scans.length === 0;
}
