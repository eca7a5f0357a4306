// server/page/shelf.js: the list of conversations at the side: search, rename, delete, export. Titles are text.

import { exportJson, exportMarkdown } from "./export.js";
import { deleteConversation, isKept, LIMITS, listConversations, listenToChanges, renameConversation,
  searchConversations } from "./store.js";

const $ = (selector) => document.querySelector(selector);
const shelf = $("#shelf"), list = $("#shelf ol"), told = $("#shelf-told"), search = $("#shelf-search");
const button = $("#open-shelf"), undo = $("#undo");
const shape = $("#kept-shape").content.firstElementChild;
const narrow = matchMedia("(max-width: 62rem)"), wide = matchMedia("(min-width: 90rem)");
const SHELF = "retro-shelf";

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
const when = (time) => new Date(time).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });

let uses = {}; // open(id), opened(): the id that is open, forgotten(id)
let drawing = 0; // counts drawings, so that one that a later one has overtaken is dropped

// The list.

async function draw() {
  const mine = ++drawing, words = search.value.trim();
  const heads = (await listConversations()) ?? [];
  const found = words === "" ? null : await searchConversations(words);
  if (mine !== drawing || list.querySelector("input")) return; // a name that is being typed stays
  const shown = heads.filter(({ id }) => !found || found.has(id));
  const held = list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.id : null;
  list.replaceChildren(...shown.map(showHead));
  itemOf(held)?.querySelector(".more").focus();
  $("#shelf-none").hidden = shown.length > 0;
  $("#shelf-none").textContent = words === "" ? "None yet." : "None has these words.";
  if (!(await isKept())) return;
  const bytes = heads.reduce((sum, head) => sum + head.bytes, 0);
  $("#shelf-note").textContent = `${heads.length} of ${LIMITS.conversations}, ${megabytes(bytes)} of ` +
    `${megabytes(LIMITS.bytes)} MB, in this browser alone. The oldest leave when there are more.`;
}

const itemOf = (id) => [...list.children].find((item) => item.dataset.id === id);

function showHead(head) {
  const item = shape.cloneNode(true), { id, title } = head;
  const find = (selector) => item.querySelector(selector);
  item.dataset.id = id;
  find(".name").textContent = title;
  find(".name").setAttribute("aria-current", id === uses.opened());
  find(".name").addEventListener("click", () => choose(id));
  find(".when").textContent = `${when(head.changed)} · ${head.size} ${head.size === 1 ? "turn" : "turns"}`;
  find(".more").setAttribute("aria-label", `More for ${title}`);
  find(".more").addEventListener("click", () => {
    find(".deeds").hidden = !find(".deeds").hidden;
    find(".more").setAttribute("aria-expanded", !find(".deeds").hidden);
  });
  find(".rename").addEventListener("click", () => rename(item, head));
  find(".markdown").addEventListener("click", () => exportMarkdown(id));
  find(".json").addEventListener("click", () => exportJson(id));
  find(".delete").addEventListener("click", () => remove(head));
  return item;
}

async function choose(id) {
  await uses.open(id);
  if (narrow.matches) show(false);
  draw();
}

// Enter and leaving the field keep the name; Escape does not.
function rename(item, { id, title }) {
  const field = document.createElement("input");
  field.value = title;
  field.maxLength = 200;
  field.setAttribute("aria-label", `Name of ${title}`);
  item.querySelector(".name").replaceWith(field);
  field.select();
  const finish = async (name) => {
    if (!field.isConnected) return;
    item.querySelector(".more").focus();
    field.remove();
    if (name !== "" && name !== title) await renameConversation(id, name);
    draw();
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") finish(field.value.trim());
    if (event.key === "Escape") finish("");
    if (event.key === "Escape") event.stopPropagation();
  });
  field.addEventListener("blur", () => finish(field.value.trim()));
}

async function remove({ id, title }) {
  const putBack = await deleteConversation(id);
  uses.forgotten(id);
  tell(`“${title}” is deleted.`);
  undo.hidden = false;
  undo.onclick = async () => {
    undo.hidden = true;
    await putBack();
    tell(`“${title}” is back.`);
    search.focus();
  };
  undo.focus();
}

function tell(words) {
  told.textContent = words;
}

// Showing and hiding it: beside the log where there is room, before it where there is not.

function show(shown) {
  shelf.hidden = !shown;
  button.setAttribute("aria-expanded", shown);
  document.body.classList.toggle("shelved", shown);
  cover();
  if (shown) draw();
}

function cover() {
  const covered = !shelf.hidden && narrow.matches;
  for (const element of document.querySelectorAll("header, main, #ask")) element.inert = covered;
}

function toggle() {
  show(shelf.hidden);
  try {
    localStorage.setItem(SHELF, shelf.hidden ? "closed" : "open");
  } catch {
    // It holds until the page is left.
  }
  if (!shelf.hidden) search.focus();
  else button.focus();
}

function wasOpen() {
  try {
    return localStorage.getItem(SHELF) ?? (wide.matches ? "open" : "closed");
  } catch {
    return "closed";
  }
}

export async function startShelf(given) {
  uses = given;
  button.addEventListener("click", toggle);
  $("#close-shelf").addEventListener("click", toggle);
  shelf.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    toggle();
  });
  search.addEventListener("input", draw);
  narrow.addEventListener("change", cover);
  listenToChanges(() => shelf.hidden || draw());
  show(wasOpen() === "open" && !narrow.matches);
  if (await isKept()) return;
  $("#shelf-note").textContent = "This browser keeps no conversations: they end when the page is left.";
}

export const drawShelf = () => shelf.hidden || draw();
