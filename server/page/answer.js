// server/page/answer.js: one answer: text as it comes, and, once it is complete, the same text as sentences and tokens
// that know the passages they were written from. A model's words are foreign text: they reach the page as text alone, in
// a chat as Markdown (markdown.js).

import { copyText } from "./clipboard.js";
import { drawMarkdown, Growing } from "./markdown.js";
import { explain } from "./server.js";
import { percent } from "./sources.js";

const shape = document.querySelector("#answer-shape").content.firstElementChild;
const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });
const SUPPORTED = 0.2; // a sentence with less support is marked (docs/api.md#support)
const LEANS = Math.log(10); // a token is underlined where it is ten times less likely without the documents

// Where each character begins in the string, and where the last one ends: the API counts characters.
function characterStarts(text) {
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  return [...starts, at];
}

// The server's sentences, where it has judged them, as parts of the text that leave nothing out.
function judgedSegments(text, judged) {
  return judged.map((one, i) => {
    const index = i === 0 ? 0 : one.start;
    return { segment: text.slice(index, judged[i + 1]?.start ?? text.length), index, judged: one };
  });
}

// A sentence begins with a token: the blank before its first word often belongs to that word's token.
function findSentences(text, tokens, support) {
  const found = [];
  for (const { segment, index, judged } of support.length > 0 ? judgedSegments(text, support) : segmenter.segment(text)) {
    const token = tokens.find(({ start, end }) => start < index && index < end);
    const start = token?.start ?? index;
    if (found.length > 0) found.at(-1).end = start;
    if (segment.trim() !== "" || found.length === 0) found.push({ start, end: text.length, judged });
    else found.at(-1).end = text.length;
  }
  return found;
}

// Of a sentence that was judged. One that read nothing has no support that could be told.
const lacksSupport = ({ judged }) => judged !== undefined && judged.support !== null && judged.support < SUPPORTED;

function describeSupport({ judged }, sources) {
  if (judged === undefined) return "";
  if (judged.support === null) return "Nothing was read for this sentence.";
  if (judged.support < SUPPORTED) return "The sources hardly support this sentence.";
  const passage = sources.findNumbered(judged.chunk, judged.passage);
  const most = passage === undefined ? "" : `, most by source ${sources.passages[passage].number}`;
  const times = judged.support > 0.999 ? "more than 1000" : (1 / (1 - judged.support)).toFixed(1);
  return `The sources make all parts of this sentence ${times} times as likely, or more${most}.`;
}

// Of parts in order that do not overlap, the one that has the place.
function findAt(list, place) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].end <= place) low = middle + 1;
    else high = middle;
  }
  return list[low]?.start <= place ? list[low] : undefined;
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// How many times less likely a token is without the documents, as a logarithm.
const leaning = (token) => (token.without === undefined ? 0 : token.logprob - token.without);
const wordOf = (token) => token.pieces.map((piece) => piece.textContent).join("").trim();

function describeToken(token) {
  if (token.without === undefined) return "";
  const likely = percent(Math.exp(token.logprob)), without = percent(Math.exp(token.without));
  return `“${wordOf(token)}”: ${likely} likely, ${without} without the documents.`;
}

// The weights of several tokens together, as means.
export function meanWeights(tokens) {
  const sums = new Map();
  for (const { weights } of tokens) {
    for (const [passage, weight] of weights) sums.set(passage, (sums.get(passage) ?? 0) + weight / tokens.length);
  }
  return sums;
}

export class Answer {
  // `goOn(text)` writes on from the whole text; null where that cannot be. `isRich`: the text is Markdown.
  constructor(label, before, goOn, isRich) {
    this.element = shape.cloneNode(true);
    this.written = this.find(".written");
    this.isRich = isRich;
    this.written.classList.toggle("rich", this.isRich);
    this.growing = null; // draws Markdown while it comes
    this.frame = 0; // in which it is drawn next
    this.runs = []; // {node, start, end}: text nodes with their places in the text
    this.find(".label").textContent = label;
    this.find(".before").textContent = before;
    this.before = before;
    this.goOn = goOn;
    this.text = "";
    this.thoughts = "";
    this.measured = ""; // in words
    this.finish = ""; // the API's finish_reason, or "stopped"
    this.tokens = [];
    this.sentences = [];
    this.citations = [];
    this.sources = null; // those that stand beside it
    this.find(".copy").addEventListener("click", () => this.copy(this.before + this.text));
    this.written.addEventListener("copy-code", ({ detail }) => this.copy(detail));
    this.find(".go-on").addEventListener("click", () => this.goOn(this.before + this.text));
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  begin() {
    this.element.classList.add("busy");
    this.find(".text").setAttribute("aria-busy", "true");
    this.written.append(document.createTextNode(""));
    if (this.isRich) this.growing = new Growing(this.written);
  }

  append(text) {
    this.text += text;
    if (!this.isRich) {
      this.written.firstChild.appendData(text);
      return;
    }
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.growing?.draw(this.text);
    });
  }

  // The whole text is there.
  settle() {
    if (!this.isRich) {
      this.runs = this.text === "" ? [] : [{ node: this.written.firstChild, start: 0, end: this.text.length }];
      return;
    }
    if (this.growing === null) return;
    this.growing = null;
    this.runs = drawMarkdown(this.written, this.text);
  }

  think(text) {
    const thoughts = this.find(".thoughts");
    this.thoughts += text;
    thoughts.hidden = false;
    thoughts.querySelector("p").append(text);
  }

  end(measured, finish) {
    this.settle();
    this.close(measured, finish);
  }

  close(measured, finish) {
    this.measured = measured;
    this.finish = finish;
    this.element.classList.remove("busy");
    this.find(".text").removeAttribute("aria-busy");
    this.find(".measured").textContent = measured;
    this.find(".actions").hidden = this.text === "";
    this.find(".go-on").hidden = !this.goOn || finish === "stop";
  }

  // Shows what was kept; Markdown as it was written, until settle() is called.
  restore({ text, thoughts, measured, finish }) {
    this.begin();
    this.text = text;
    this.written.textContent = text;
    if (thoughts) this.think(thoughts);
    if (!this.isRich) this.settle();
    this.close(measured || (text ? "" : "no answer came"), finish);
  }

  async copy(text) {
    await copyText(text);
    this.find(".reading").textContent = "Copied.";
  }

  fail(refusal, actions) {
    showTrouble(this.find(".trouble"), refusal, actions);
  }

  // `marks` has what the last events brought: attention, compare, support and citations, each where the server sent it.
  mark(marks, sources) {
    this.sources = sources;
    const starts = characterStarts(this.text);
    const place = (one) => ({ start: starts[one.answer_start], end: starts[one.answer_end] });
    this.citations = (marks.citations ?? []).map((one) => ({ ...place(one), cited: one }));
    this.tokens = this.readTokens(marks, place);
    const support = (marks.support ?? []).map((one) => ({ ...place(one), ...one }));
    if (this.tokens.length + this.citations.length + support.length === 0) return;
    this.sentences = findSentences(this.text, this.tokens, support);
    this.settle();
    this.lay();
    for (const one of this.sentences.filter(lacksSupport)) this.markUnsupported(one.elements.at(-1));
    this.attends = marks.attention !== undefined;
    if (this.attends) sources.setShares(meanWeights(this.tokens));
    if (this.tokens.length > 0) this.listen();
  }

  readTokens(marks, place) {
    const tokens = new Map();
    const at = (one) => {
      const { start, end } = place(one);
      if (!(start < end)) return null; // no text of its own: a stop, a part of a character
      if (!tokens.has(start)) tokens.set(start, { start, end, weights: new Map() });
      return tokens.get(start);
    };
    for (const entry of marks.attention ?? []) {
      const passages = this.sources.chunks.get(entry.chunk) ?? [];
      for (const one of entry.tokens) {
        const token = at(one);
        one.shares.forEach((share, i) => {
          token?.weights.set(passages[i], (token.weights.get(passages[i]) ?? 0) + share);
        });
      }
    }
    for (const one of marks.compare?.tokens ?? []) {
      const token = at(one);
      if (token) Object.assign(token, { logprob: one.logprob, without: one.logprob_without });
    }
    return [...tokens.values()].sort((a, b) => a.start - b.start);
  }

  // Puts the text in pieces that no border of a sentence, a token or a citation crosses.
  lay() {
    const all = [...this.sentences, ...this.tokens, ...this.citations];
    const cuts = [...new Set(all.flatMap(({ start, end }) => [start, end]))].sort((a, b) => a - b);
    let first = 0; // of the cuts, the first behind the beginning of the run
    for (const run of this.runs) {
      while (first < cuts.length && cuts[first] <= run.start) first++;
      let behind = first;
      while (behind < cuts.length && cuts[behind] < run.end) behind++;
      this.layRun(run, [run.start, ...cuts.slice(first, behind), run.end]);
    }
    this.sentences = this.sentences.filter(({ elements }) => elements);
  }

  layRun(run, cuts) {
    const laid = document.createDocumentFragment(), text = run.node.data;
    for (let i = 0; i + 1 < cuts.length; i++) {
      const [start, end] = [cuts[i], cuts[i + 1]];
      const sentence = findAt(this.sentences, start), citation = findAt(this.citations, start);
      const piece = text.slice(start - run.start, end - run.start);
      if (sentence) this.layPiece(piece, findAt(this.tokens, start), this.holder(laid, sentence, citation));
      else laid.append(piece);
    }
    run.node.replaceWith(laid);
  }

  // A sentence, and a citation in it, has an element in each run that it goes over.
  holder(laid, sentence, citation) {
    if (laid.lastChild?.sentence !== sentence) {
      const made = element("span", "sentence");
      made.sentence = sentence;
      (sentence.elements ??= []).push(made);
      laid.append(made);
    }
    const own = laid.lastChild;
    if (!citation) return own;
    if (own.lastChild?.citation !== citation) {
      const made = citation.cited.quote === undefined ? this.makeCite(citation) : this.makeQuote(citation);
      made.citation = citation;
      own.append(made);
    }
    return own.lastChild;
  }

  makeCite({ cited }) {
    const button = element("button", "cite");
    button.type = "button";
    button.setAttribute("aria-label", `Source ${cited.number}`);
    button.addEventListener("click", () => this.sources.show(cited));
    return button;
  }

  // A quote is a link to its place in the passage.
  makeQuote({ cited }) {
    const link = element("a", "quoted");
    link.href = "#sources";
    link.title = `Quoted from ${this.sources.nameQuote(cited)}`;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      this.sources.showQuote(cited);
    });
    return link;
  }

  layPiece(text, token, holder) {
    if (!token) {
      holder.append(text);
      return;
    }
    const piece = element("span", "token");
    const leans = leaning(token);
    const word = text.trimStart();
    piece.append(text.slice(0, text.length - word.length), leans < LEANS ? word : this.underline(word, leans));
    (token.pieces ??= []).push(piece);
    holder.append(piece);
  }

  // A sign behind the sentence, which is no part of its text, with words for those who do not see it.
  markUnsupported(sentence) {
    const sign = element("span", "unsupported");
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", "Hardly supported by the sources");
    sentence.append(sign);
    this.find(".unsupported-legend").hidden = false;
  }

  underline(word, leans) {
    const underlined = element("span", "leans", word);
    underlined.style.setProperty("--l", Math.min(leans / (3 * LEANS), 1).toFixed(2));
    this.find(".legend").hidden = false;
    return underlined;
  }

  // Pointing at a sentence, or moving among them by arrow keys, lights up its passages.

  listen() {
    this.element.classList.add("has-marks");
    const sentenceOf = (target) => target.closest?.(".sentence")?.sentence;
    const tokenOf = (target) => this.tokens.find((one) => one.pieces?.includes(target.closest?.(".token")));
    for (const one of this.sentences) one.elements[0].tabIndex = one === this.sentences[0] ? 0 : -1;
    this.written.addEventListener("pointerover", ({ target }) => this.read(sentenceOf(target), tokenOf(target)));
    this.written.addEventListener("pointerleave", () => this.read(null));
    this.written.addEventListener("focusin", (event) => this.read(sentenceOf(event.target)));
    this.written.addEventListener("focusout", () => this.read(null));
    this.written.addEventListener("keydown", (event) => this.move(event, sentenceOf(event.target)));
  }

  move(event, from) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const to = this.sentences[this.sentences.indexOf(from) + (steps[event.key] ?? 0)]?.elements[0];
    if (!(event.key in steps) || !from || !to) return;
    event.preventDefault();
    from.elements[0].tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  // `sentence` null: nothing is pointed at.
  read(sentence, token) {
    for (const one of this.sentences) for (const part of one.elements) part.classList.toggle("on", one === sentence);
    const inside = (one) => sentence && one.start >= sentence.start && one.start < sentence.end;
    const weights = meanWeights(this.tokens.filter(inside));
    this.sources.light(weights);
    const detail = token ? describeToken(token) : this.describeLeaning(inside);
    const words = sentence ? [this.describeReading(weights), describeSupport(sentence, this.sources), detail] : [];
    this.find(".reading").textContent = words.filter((part) => part !== "").join(" ");
  }

  describeReading(weights) {
    if (!this.attends) return "";
    const read = [...weights].filter(([, weight]) => weight >= 0.005).sort((a, b) => b[1] - a[1]);
    const name = ([passage, weight]) => `${this.sources.passages[passage].number} (${percent(weight)})`;
    const words = `Attention of this sentence: source ${read.map(name).join(", ")}.`;
    return read.length > 0 ? words : "This sentence read no source.";
  }

  // What is underlined, for those who do not see it.
  describeLeaning(inside) {
    const words = this.tokens.filter((one) => inside(one) && leaning(one) >= LEANS).map(wordOf);
    return words.length > 0 ? `Much less likely without the documents: ${words.join(" ")}.` : "";
  }

  // A passage is pointed at: lights up the tokens by what each took of it. null: none is.
  lightTokens(passage) {
    const most = Math.max(...this.tokens.map(({ weights }) => weights.get(passage) ?? 0), 0);
    for (const { weights, pieces = [] } of this.tokens) {
      const weight = most > 0 ? (weights.get(passage) ?? 0) / most : 0;
      for (const piece of pieces) piece.style.setProperty("--w", weight.toFixed(3));
    }
  }
}

// `actions` has a function for each name that explain() may give.
export function showTrouble(box, refusal, actions) {
  const { title, advice, action, said } = explain(refusal);
  const names = { again: "Try again", key: "Enter a key", settings: "Open the settings", reload: "Load again" };
  const button = box.querySelector("button");
  box.querySelector("p").textContent = `${title} ${advice}`;
  box.querySelector(".said").textContent = said;
  button.hidden = !actions[action];
  button.textContent = names[action] ?? "";
  button.onclick = actions[action];
  box.hidden = false;
}
