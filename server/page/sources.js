// server/page/sources.js: the passages that an answer was written from: each once, in the order in which they were
// read. Documents are foreign text: they reach the page as text alone, and pictures as pictures.

import { layPassage, namePlace } from "./passages.js";
import { showPicture } from "./pictures.js";
import { openReader } from "./reader.js";

const shape = document.querySelector("#source-shape").content.firstElementChild;

export function percent(share) {
  if (share > 0 && share < 0.0005) return "below 0.1 %";
  return `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
}

// What a request brought itself has no place, but its text.
const keyOf = (one) => JSON.stringify(one.document === null ? one.text : [one.document, one.start, one.end]);

// What was sought by, where the model was to rewrite the question; empty: the question itself.
export function nameQuery({ query, query_problem: problem }) {
  if (query !== undefined) return `Sought by: ${query}`;
  return problem === undefined ? "" : `The question was not rewritten: ${problem}`;
}

export class Sources {
  // `pointed(passage)` is called when one is pointed at or focused, with null when none is any more.
  constructor(element, pointed) {
    this.element = element;
    this.list = element.querySelector("ol");
    this.passages = []; // {key, number, item}
    this.chunks = new Map(); // of each chunk the passages that it read, as indices
    this.shares = new Map(); // of each passage in the whole answer, by index
    this.pointed = pointed;
    this.from = null; // what was followed last
    this.element.addEventListener("pointerleave", () => this.point(null));
    this.element.addEventListener("focusout", () => this.point(null));
    this.element.addEventListener("keydown", (event) => this.goBack(event));
  }

  // Back to the citation or quote that led here.
  goBack({ key }) {
    if (key === "Escape" && this.from?.isConnected) this.from.focus();
  }

  point(passage) {
    this.pointed(passage);
  }

  // Entries of "retrieval".
  add(entries) {
    for (const entry of entries) {
      this.chunks.set(entry.chunk, entry.neighbors.map((neighbor) => this.place(neighbor)));
      for (const earlier of entry.earlier ?? []) this.place(earlier);
      if (nameQuery(entry) !== "") this.tellQuery(nameQuery(entry));
    }
    const n = this.passages.length;
    this.element.hidden = false;
    this.element.querySelector("h3 span").textContent = n === 0 ? "none was near enough" : "";
  }

  tellQuery(words) {
    const element = this.element.querySelector(".sought");
    element.textContent = words;
    element.hidden = false;
  }

  place(neighbor) {
    const key = keyOf(neighbor);
    const known = this.find(neighbor);
    if (known >= 0) return known;
    const item = shape.cloneNode(true);
    const number = neighbor.number ?? this.passages.length + 1;
    item.querySelector(".number").textContent = number;
    item.querySelector(".title").textContent = neighbor.title || neighbor.document || "Passage";
    item.querySelector(".place").textContent = namePlace(neighbor);
    layPassage(item.querySelector(".passage"), neighbor.text);
    if (neighbor.picture) showPicture(item.querySelector(".place"), neighbor);
    const index = this.passages.length;
    item.addEventListener("pointerenter", () => this.point(index));
    item.addEventListener("focusin", () => this.point(index));
    item.querySelector(".unfold").addEventListener("click", () => this.open(index));
    this.passages.push({ key, number, item, neighbor, followed: neighbor });
    this.offerOpen(index);
    this.list.append(item);
    return index;
  }

  // The document, at what was followed last: the passage, or a quote of it. What a request brought has none.
  offerOpen(index) {
    const { item, number, neighbor } = this.passages[index], button = item.querySelector(".open-source");
    button.hidden = !neighbor.id || Boolean(neighbor.picture);
    button.setAttribute("aria-label", `Open the document of source ${number}`);
    button.addEventListener("click", () => openReader({ ...neighbor, ...this.passages[index].followed }));
  }

  open(index, open = !this.passages[index].item.classList.contains("open")) {
    const { item } = this.passages[index];
    item.classList.toggle("open", open);
    item.querySelector(".unfold").setAttribute("aria-expanded", open);
  }

  // The place of a passage, or of a citation of one, in the list; -1: it is not there.
  find(one) {
    const key = keyOf(one);
    return this.passages.findIndex((passage) => passage.key === key);
  }

  // Passage `number` of a chunk: by the number that the prompt gave it, which goes on over a conversation, or by its
  // place among neighbours, which have none. Undefined: it is not there.
  findNumbered(chunk, number) {
    const read = this.chunks.get(chunk) ?? [];
    return read.find((index) => this.passages[index].neighbor.number === number) ?? read[number - 1];
  }

  // A citation was followed.
  show(citation) {
    const index = this.find(citation);
    if (index >= 0) this.showPassage(index);
  }

  // From here the document is a press of Enter away.
  showPassage(index, followed = this.passages[index].neighbor) {
    const { item } = this.passages[index], opener = item.querySelector(".open-source");
    this.passages[index].followed = followed;
    this.from = document.activeElement;
    this.open(index, true);
    item.scrollIntoView({ block: "nearest" });
    (opener.hidden ? item.querySelector(".unfold") : opener).focus({ preventScroll: true });
    item.classList.add("flash");
    const ends = item.getAnimations().map((animation) => animation.finished); // none where motion is not wanted
    Promise.allSettled(ends).then(() => item.classList.remove("flash"));
  }

  // The passage that a quote was taken from, in the list; -1: it is not there.
  findQuoted(quote) {
    const { chunk, number, document, start, end } = quote;
    if (document === null) return this.chunks.get(chunk)?.[number - 1] ?? -1;
    const of = this.passages.map(({ neighbor }) => neighbor.document === document && neighbor.start <= start);
    const whole = this.passages.findIndex(({ neighbor }, i) => of[i] && end <= neighbor.end);
    return whole >= 0 ? whole : of.lastIndexOf(true); // what follows a chunk is read beside it
  }

  nameQuote(quote) {
    const index = this.findQuoted(quote);
    const parts = [index < 0 ? (quote.document ?? "a source") : `source ${this.passages[index].number}`];
    if (quote.page) parts.push(`page ${quote.page}`);
    if (quote.line) parts.push(`line ${quote.line}`);
    return parts.join(", ");
  }

  // A quote was followed: its words are marked in the passage, where that shows them.
  showQuote(quote) {
    const index = this.findQuoted(quote);
    if (index < 0) return;
    const { item, neighbor } = this.passages[index];
    const passage = item.querySelector(".passage"), text = neighbor.text.trim();
    const at = text.indexOf(quote.quote.trim());
    const mark = document.createElement("mark");
    mark.textContent = quote.quote.trim();
    if (at >= 0) passage.replaceChildren(text.slice(0, at), mark, text.slice(at + mark.textContent.length));
    this.showPassage(index, quote);
    if (at >= 0) mark.scrollIntoView({ block: "nearest" });
  }

  // The share of each passage in the whole answer, as a Map by index.
  setShares(shares) {
    this.shares = shares;
    if (this.passages.length === 0) return;
    this.element.querySelector("h3 span").textContent = "and their share of the attention";
    this.light(new Map());
  }

  // Lights passages up by the shares of a part of the answer; none when there are none, which shows those of the whole.
  light(part) {
    const most = Math.max(...part.values(), 0);
    this.list.classList.toggle("lit", most > 0);
    this.passages.forEach(({ item }, i) => {
      const weight = most > 0 ? (part.get(i) ?? 0) / most : 0;
      item.querySelector(".share").textContent = percent((most > 0 ? part : this.shares).get(i) ?? 0);
      item.style.setProperty("--w", weight.toFixed(3));
      item.classList.toggle("on", weight > 0);
    });
  }
}
