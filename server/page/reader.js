// server/page/reader.js: a document, open at a place: its page as it looks, with the passage framed by its rectangles,
// where the server has the file and draws it; else its text, with the passage marked. Both are foreign: the text reaches
// the page as text alone, the page as a picture.

import { explain, getJson, getPage, Refusal } from "./server.js";
import { LineText } from "./lines.js";

const $ = (selector) => document.querySelector(selector);
const dialog = $("#reader"), told = $("#reader-told"), sheet = $("#reader-sheet"), text = $("#reader-text");
const views = $("#reader-views"), steps = $("#reader-steps"), number = $("#reader-page");

let place = null; // that is open
let opening = 0; // counts what was asked for, so that what a later wish has overtaken is dropped
let page = 1, last = Infinity; // the page that is shown; the last one, once it is known
let shown = ""; // the address of the page's picture

export const fileOf = ({ title, document: path }) => title || path;

function describe({ document: path, title, line, heading }) {
  const parts = [title && title !== path ? path : "", line ? `line ${line}` : "", ...(heading ?? []).slice(-1)];
  return parts.filter(Boolean).join(" · ");
}

const wordsOf = (refusal) => {
  if (!(refusal instanceof Refusal)) throw refusal;
  return refusal.message || explain(refusal).title;
};

// The page as it looks.

function frames() {
  const of = (place.boxes ?? []).filter((box) => box.page === page);
  return of.flatMap(({ page_width: width, page_height: height, rects }) => rects.map(([left, top, right, bottom]) => {
    const frame = document.createElement("span");
    frame.className = "frame";
    Object.assign(frame.style, {
      left: `${(100 * left) / width}%`, top: `${(100 * top) / height}%`,
      width: `${(100 * (right - left)) / width}%`, height: `${(100 * (bottom - top)) / height}%`,
    });
    return frame;
  }));
}

function hangUp(blob) {
  const image = document.createElement("img");
  URL.revokeObjectURL(shown);
  shown = URL.createObjectURL(blob);
  image.src = shown;
  image.alt = `Page ${page} of ${fileOf(place)}`;
  const marks = frames();
  sheet.replaceChildren(image, ...marks);
  image.addEventListener("load", () => (marks[0] ?? image).scrollIntoView({ block: marks[0] ? "center" : "start" }));
}

function showSteps() {
  number.textContent = last < Infinity ? `Page ${page} of ${last}` : `Page ${page}`;
  $("#reader-before").disabled = page <= 1;
  $("#reader-after").disabled = page >= last;
}

// Gives whether the page was drawn.
async function showPage(wanted) {
  const mine = ++opening;
  sheet.setAttribute("aria-busy", "true");
  try {
    const { blob, pages } = await getPage(place.id, wanted);
    if (mine !== opening) return true;
    page = wanted;
    last = pages;
    hangUp(blob);
    showSteps();
    const marked = (place.boxes ?? []).some((box) => box.page === page);
    told.textContent = marked ? "The passage is framed." : "";
  } catch (refusal) {
    if (mine !== opening) return true;
    told.textContent = `The page is not shown: ${wordsOf(refusal)}`;
    return false;
  } finally {
    sheet.removeAttribute("aria-busy");
  }
  return true;
}

// Its text.

async function showText() {
  const mine = ++opening;
  const before = told.textContent;
  text.replaceChildren();
  try {
    const { text: whole } = await getJson(`v1/documents/${encodeURIComponent(place.id)}`);
    if (mine !== opening) return;
    const lines = new LineText(whole, place);
    lines.show(text);
    told.textContent = [before.startsWith("The page is not shown") ? before : "", lines.told].filter(Boolean).join(" ");
  } catch (refusal) {
    if (mine === opening) told.textContent = wordsOf(refusal);
  }
}

function choose(view) {
  const pages = view === "page";
  views.querySelector(`[value=${view}]`).checked = true;
  sheet.hidden = steps.hidden = !pages;
  text.hidden = pages;
}

async function show(view) {
  choose(view);
  if (view === "text") return showText();
  if (await showPage(page)) return undefined;
  choose("text"); // what cannot be drawn can still be read
  return showText();
}

// `given`: id, document (its path), title, and of a passage start, end, text, page, line, heading and boxes, as the API
// has them.
export function openReader(given) {
  const paged = Boolean(given.page) || /\.pdf$/i.test(given.document);
  place = given;
  [page, last] = [given.boxes?.[0]?.page ?? given.page ?? 1, Infinity];
  $("#reader-title").textContent = fileOf(given);
  $("#reader-place").textContent = describe(given);
  told.textContent = "";
  sheet.replaceChildren();
  views.hidden = !paged;
  showSteps();
  if (!dialog.open) dialog.showModal();
  $("#reader-body").focus();
  return show(paged ? "page" : "text");
}

const step = (by) => page + by >= 1 && page + by <= last && showPage(page + by);

$("#reader-before").addEventListener("click", () => step(-1));
$("#reader-after").addEventListener("click", () => step(1));
views.addEventListener("change", ({ target }) => {
  told.textContent = "";
  show(target.value);
});
dialog.addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by || sheet.hidden || event.target.type === "radio") return;
  event.preventDefault();
  step(by);
});
dialog.addEventListener("close", () => {
  opening++;
  URL.revokeObjectURL(shown);
  sheet.replaceChildren();
  text.replaceChildren();
});
