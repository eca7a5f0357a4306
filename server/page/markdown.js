// server/page/markdown.js: a model's Markdown as elements. The library marked cuts the text into tokens; the elements are
// made here, from names that stand here, so that no markup of a model becomes markup of the page: HTML is shown as it was
// written, a picture as its words, and a link leads to the web or to a mail alone. Each text node knows its place in the
// source, for the marks of an answer.

import "./marked.js"; // gives globalThis.marked
import { formulaRules, showFormula } from "./formulas.js";

const LONGEST = 200000; // characters; longer texts are shown as they are
const NEAR = 1000; // characters that marks of Markdown take at most between two pieces of text

const { Lexer, use } = globalThis.marked;
// A definition of a link, as [1]: words, would vanish from the text.
use({ extensions: formulaRules, tokenizer: { def: () => undefined } });

const ESCAPED = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };
const unescape = (text) => text.replace(/&(?:amp|lt|gt|quot|#39);/g, (name) => ESCAPED[name]);

function safeLink(href) {
  try {
    const { protocol, href: whole } = new URL(href);
    return ["http:", "https:", "mailto:"].includes(protocol) ? whole : null;
  } catch {
    return null;
  }
}

function make(name, className = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  return made;
}

// What is wider than the page is moved by its own bar, also by keys.
function makeWide(name) {
  const made = make("div", "wide");
  Object.assign(made, { tabIndex: 0, role: "group", ariaLabel: name });
  return made;
}

class Drawing {
  constructor(source) {
    this.source = source;
    this.cursor = 0; // what stands before it is drawn
    this.runs = []; // {node, start, end}: text nodes and their places
    this.level = 2; // of the heading above
  }

  find(text) {
    const near = this.source.slice(this.cursor, this.cursor + text.length + NEAR);
    const at = near.indexOf(text);
    return at < 0 ? -1 : this.cursor + at;
  }

  // Draws what is within a token; its end is known where the library left its source as it is.
  within(token, draw) {
    const at = this.find(token.raw);
    if (at >= 0) this.cursor = at;
    draw();
    if (at >= 0) this.cursor = at + token.raw.length;
  }

  // A text whose lines lost the marks or the tabs before them has its place line by line; a text that is not found has
  // none.
  say(parent, text) {
    if (text === "") return;
    const at = this.find(text), blanks = /^\s*/.exec(text)[0].length;
    const line = blanks > 0 ? blanks : text.indexOf("\n");
    if (at < 0 && line > 0 && line < text.length) {
      this.say(parent, text.slice(0, line));
      this.say(parent, text.slice(line));
      return;
    }
    const node = document.createTextNode(text);
    parent.append(node);
    if (at < 0) return;
    this.cursor = at + text.length;
    this.runs.push({ node, start: at, end: this.cursor });
  }

  // Tokens within a line.

  all(parent, tokens) {
    for (const token of tokens ?? []) this.within(token, () => this.one(parent, token));
  }

  wrap(parent, name, tokens) {
    const made = make(name);
    parent.append(made);
    this.all(made, tokens);
  }

  one(parent, token) {
    switch (token.type) {
      case "strong": case "em": case "del": return this.wrap(parent, token.type, token.tokens);
      case "br": return parent.append(make("br"));
      case "codespan": return this.code(parent, unescape(token.text));
      case "escape": return this.say(parent, token.raw.slice(1));
      case "link": return this.link(parent, token);
      case "formula": return parent.append(showFormula(token));
      default: return this.say(parent, token.raw);
    }
  }

  code(parent, text) {
    const made = make("code");
    parent.append(made);
    this.say(made, text);
  }

  link(parent, token) {
    const href = safeLink(unescape(token.href));
    if (href === null) return this.say(parent, token.raw);
    const made = make("a");
    Object.assign(made, { href, target: "_blank", rel: "noopener noreferrer nofollow" });
    parent.append(made);
    return this.all(made, token.tokens);
  }

  // Blocks.

  blocks(parent, tokens) {
    for (const token of tokens) this.within(token, () => this.block(parent, token));
  }

  block(parent, token) {
    switch (token.type) {
      case "space": return undefined;
      case "heading": return this.heading(parent, token);
      case "code": return this.listing(parent, token);
      case "hr": return parent.append(make("hr"));
      case "blockquote": return this.nested(parent, "blockquote", token.tokens);
      case "list": return this.list(parent, token);
      case "table": return this.table(parent, token);
      case "paragraph": return this.wrap(parent, "p", token.tokens);
      case "text": return token.tokens ? this.all(parent, token.tokens) : this.say(parent, token.raw);
      case "formula": return parent.append(showFormula(token));
      default: return this.literally(parent, token.raw);
    }
  }

  literally(parent, text) {
    const made = make("p", "literal");
    parent.append(made);
    this.say(made, text);
  }

  nested(parent, name, tokens) {
    const made = make(name);
    parent.append(made);
    this.blocks(made, tokens);
    return made;
  }

  // Below the question, and without a step that is left out.
  heading(parent, { depth, tokens }) {
    this.level = Math.min(this.level + 1, 2 + depth, 6);
    this.wrap(parent, `h${this.level}`, tokens);
  }

  listing(parent, { text, lang }) {
    const box = make("div", "listing"), name = make("span"), copy = make("button"), wide = makeWide("Code");
    const pre = make("pre");
    name.textContent = (lang ?? "").split(/\s/)[0];
    copy.type = "button";
    copy.textContent = "Copy code";
    copy.addEventListener("click", () => box.dispatchEvent(new CustomEvent("copy-code", { bubbles: true, detail: text })));
    wide.append(pre);
    box.append(name, copy, wide);
    parent.append(box);
    this.code(pre, text);
  }

  list(parent, { ordered, start, items }) {
    const made = make(ordered ? "ol" : "ul");
    if (ordered && start !== 1) made.start = start;
    parent.append(made);
    for (const item of items) {
      this.within(item, () => {
        const element = make("li");
        if (item.task) element.append(item.checked ? "☑ " : "☐ ");
        made.append(element);
        this.blocks(element, item.tokens);
      });
    }
  }

  table(parent, { header, rows, align }) {
    const wide = makeWide("Table"), table = make("table"), head = make("thead"), body = make("tbody");
    wide.append(table);
    table.append(head, body);
    parent.append(wide);
    head.append(this.row(header, align, "th"));
    body.append(...rows.map((row) => this.row(row, align, "td")));
  }

  row(cells, align, name) {
    const row = make("tr");
    cells.forEach((cell, i) => {
      const element = make(cell.text.trim() === "" ? "td" : name, align[i] ? `to-${align[i]}` : "");
      if (element.localName === "th") element.scope = "col";
      row.append(element);
      this.all(element, cell.tokens);
    });
    return row;
  }
}

function cut(source) {
  if (source.length > LONGEST) return null;
  try {
    return Lexer.lex(source);
  } catch {
    return null; // nested too deeply
  }
}

// Draws the source into the element. Gives its text nodes with their places, in order.
export function drawMarkdown(element, source) {
  const drawing = new Drawing(source), tokens = cut(source);
  element.replaceChildren();
  if (tokens) drawing.blocks(element, tokens);
  else drawing.literally(element, source);
  return drawing.runs;
}

// A text that grows: blocks that are complete are drawn once, the one at the end each time.
export class Growing {
  constructor(element) {
    this.element = element;
    this.settled = 0; // characters of complete blocks
    this.end = make("div");
    element.replaceChildren(this.end);
  }

  draw(source) {
    const rest = source.slice(this.settled), tokens = cut(rest);
    const complete = tokens ? tokens.slice(0, -1).map(({ raw }) => raw).join("") : "";
    if (complete.trim() !== "" && rest.startsWith(complete)) {
      const block = make("div");
      drawMarkdown(block, complete);
      this.end.before(...block.childNodes);
      this.settled += complete.length;
    }
    drawMarkdown(this.end, source.slice(this.settled));
  }
}

