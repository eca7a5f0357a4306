// server/page/documents.js: the documents of the collection: listed, searched by name, deleted. What the server does not
// allow is not offered any more once it has said so. Names are foreign text.

import { showFolders } from "./folders.js";
import { findPassages } from "./passages.js";
import { openReader } from "./reader.js";
import { explain, getJson, Refusal, remove } from "./server.js";
import { startUploads } from "./uploads.js";

const $ = (selector) => document.querySelector(selector);
const dialog = $("#documents"), list = $("#documents-list"), search = $("#documents-search");
const told = $("#documents-told"), count = $("#documents-count"), more = $("#documents-more");
const shape = $("#document-shape").content.firstElementChild;
const PAGE = 100; // documents shown at once
const WALK = 1000; // documents that a search asks for at once, as many as the API gives

let walking = 0; // counts walks, so that one that a later one has overtaken stops
let last = null; // the id that the list has come to; null: it is at its beginning
let uses = {}; // changed(): documents came or went

export function tellRefusal(refusal) {
  if (!(refusal instanceof Refusal)) throw refusal;
  if (refusal.code === "documents_not_allowed") forbid(refusal.message);
  const { title, said } = explain(refusal);
  return said || title;
}

// The server shows its documents, or does not, and lets them be changed, or does not.
function forbid(words) {
  dialog.classList.add("read-only");
  told.textContent = words;
}

async function page(limit) {
  const after = last === null ? "" : `&after=${encodeURIComponent(last)}`;
  return getJson(`v1/documents?limit=${limit}${after}`);
}

// Shows some more of those that fit. The API searches by how a path begins; names are searched for here.
async function walk() {
  const mine = ++walking, words = search.value.trim().toLocaleLowerCase();
  const fits = ({ path, title }) => `${path}\n${title}`.toLocaleLowerCase().includes(words);
  list.setAttribute("aria-busy", "true");
  more.hidden = true;
  try {
    for (let wanted = PAGE, going = true; going && wanted > 0;) {
      const found = await page(words ? WALK : PAGE);
      if (mine !== walking) return;
      const fitting = found.data.filter(fits);
      list.append(...fitting.map(showDocument));
      wanted -= fitting.length;
      last = found.data.at(-1)?.id ?? last;
      going = found.has_more;
      more.hidden = !going;
      describe(found, words);
    }
  } catch (refusal) {
    count.textContent = tellRefusal(refusal);
  }
  list.removeAttribute("aria-busy");
}

const counted = (n, name) => `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;

function describe({ documents, chunks }, words) {
  const all = `${counted(documents, "document")}, ${counted(chunks, "passage")}.`;
  const shown = `${list.children.length.toLocaleString("en")} ${more.hidden ? "" : "so far "}with these words.`;
  count.textContent = words ? `${all} ${shown}` : all;
}

function begin() {
  last = null;
  list.replaceChildren();
  return walk();
}

function showDocument({ id, path, title, chunks, bytes }) {
  const item = shape.cloneNode(true), find = (selector) => item.querySelector(selector);
  const name = title || path;
  find(".title").textContent = name;
  find(".title").addEventListener("click", () => openReader({ id, document: path, title }));
  find(".place").textContent = [name === path ? "" : path, counted(chunks, "passage"), counted(bytes, "byte")]
    .filter(Boolean).join(" · ");
  const ask = (asked) => {
    find(".sure").hidden = !asked;
    find(".delete").hidden = asked;
    find(asked ? ".yes" : ".delete").focus();
  };
  find(".delete").setAttribute("aria-label", `Delete ${name}`);
  find(".delete").addEventListener("click", () => ask(true));
  find(".no").addEventListener("click", () => ask(false));
  find(".yes").addEventListener("click", () => removeDocument(item, id, name, () => ask(false)));
  find(".sure").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // the dialog stays
    ask(false);
  });
  return item;
}

// `keep()` takes the question back.
async function removeDocument(item, id, name, keep) {
  try {
    await remove(`v1/documents/${encodeURIComponent(id)}`);
  } catch (refusal) {
    keep();
    told.textContent = `${name}: ${tellRefusal(refusal)}`;
    if (dialog.classList.contains("read-only")) search.focus();
    return;
  }
  (item.nextElementSibling ?? item.previousElementSibling)?.querySelector(".delete").focus();
  item.remove();
  if (list.children.length === 0) search.focus();
  told.textContent = `${name} is deleted.`;
  uses.changed();
}

export function startDocuments(given) {
  uses = given;
  $("#open-documents").addEventListener("click", () => {
    told.textContent = "";
    dialog.classList.remove("read-only"); // another key may allow more
    dialog.showModal();
    begin();
    showFolders();
  });
  search.addEventListener("input", begin);
  $("#documents-find").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      told.textContent = await findPassages(search.value.trim());
    } catch (refusal) {
      told.textContent = tellRefusal(refusal);
    }
  });
  more.addEventListener("click", walk);
  startUploads(dialog, {
    refused: tellRefusal,
    done: () => {
      begin();
      uses.changed();
    },
  });
}
