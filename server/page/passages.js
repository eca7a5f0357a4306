// server/page/passages.js: passages in words: where one stands, how it begins, and those that a search of the texts
// finds.

import { openReader } from "./reader.js";
import { getJson } from "./server.js";

const list = document.querySelector("#passages");
const shape = document.querySelector("#passage-shape").content.firstElementChild;
const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });
const FOUND = 10; // passages that a search shows

// The name of the document stands above where it has no title.
export function namePlace(passage) {
  const { document: path, title, start, end, page, line, heading, similarity } = passage;
  if (path === null) return "given in the request";
  const parts = [`bytes ${start}–${end}`];
  if (page) parts.push(`page ${page}`);
  if (line) parts.push(`line ${line}`);
  if (heading?.length) parts.push(heading.join(" › "));
  if (typeof similarity === "number") parts.push(`similarity ${similarity.toFixed(2)}`);
  const facts = parts.join(" · ");
  return title && title !== path ? `${path}\n${facts}` : facts;
}

// The end of a sentence that began before the passage; 0: it begins with a sentence, or has but one.
export function leadOf(text) {
  if (!/^[\p{Ll}\p{Pe}\p{Pf},;.:!?]/u.test(text)) return 0;
  for (const { segment, index } of segmenter.segment(text)) {
    const end = index + segment.length;
    if (end === text.length) return 0;
    if (segment.trim() !== "") return end;
  }
  return 0;
}

// The rest of a sentence at its beginning is shown when the passage is open.
export function layPassage(element, passage) {
  const text = passage.trim(), lead = leadOf(text);
  const rest = document.createElement("span");
  rest.className = "lead";
  rest.textContent = text.slice(0, lead);
  element.replaceChildren(...(lead > 0 ? [rest] : []), text.slice(lead));
}

function showFound(passage) {
  const item = shape.cloneNode(true), find = (selector) => item.querySelector(selector);
  find(".title").textContent = passage.title || passage.document;
  find(".share").textContent = typeof passage.similarity === "number" ? passage.similarity.toFixed(2) : "";
  find(".place").textContent = namePlace(passage);
  layPassage(find(".passage"), passage.text);
  find("button").addEventListener("click", () => openReader(passage));
  return item;
}

// Shows what the collection has near to the words. Gives what is to be said.
export async function findPassages(words) {
  list.hidden = words === "";
  list.replaceChildren();
  if (words === "") return "";
  const { data } = await getJson(`v1/retrieval/search?k=${FOUND}&boxes=true&q=${encodeURIComponent(words)}`);
  list.replaceChildren(...data.filter(({ picture }) => !picture).map(showFound));
  const n = list.children.length;
  list.hidden = n === 0;
  return n === 0 ? "No passage is near to these words." : `${n} ${n === 1 ? "passage" : "passages"}, nearest first.`;
}
