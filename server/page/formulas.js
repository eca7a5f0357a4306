// server/page/formulas.js: formulas in a model's Markdown: $…$ and \(…\) in a line, $$…$$ and \[…\] apart. The library
// KaTeX makes MathML of them, which browsers show by themselves and read out; it is loaded with the first one. What it
// does not understand is shown as it was written.

const LONGEST = 2000; // characters of a formula
const MARKS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];

const OPTIONS = { output: "mathml", throwOnError: true, strict: "ignore", trust: false, maxExpand: 200, maxSize: 50 };

let katex = null; // a promise of the library

function load() {
  katex ??= import("./katex.js").then(() => globalThis.katex).catch(() => null);
  return katex;
}

// An amount of money is no formula: what is between single signs begins and ends with no blank, and no digit follows.
function isFormula(text, open, after) {
  if (text.trim() === "" || text.includes("\n\n")) return false;
  return open !== "$" || (!/^\s|\s$/.test(text) && !/^\d/.test(after));
}

// The formula that the source begins with.
function findFormula(source) {
  for (const [open, close, display] of MARKS) {
    if (!source.startsWith(open)) continue;
    const end = source.slice(0, LONGEST).indexOf(close, open.length);
    const text = source.slice(open.length, end);
    if (end < 0 || !isFormula(text, open, source.slice(end + close.length))) continue;
    return { type: "formula", raw: source.slice(0, end + close.length), text, display };
  }
  return undefined;
}

// The library looks for the next place within so many characters, so that a long text is not searched again and again.
function nextPlace(source) {
  const at = source.slice(0, LONGEST).search(/\$|\\[[(]/);
  return at < 0 && source.length > LONGEST ? LONGEST : at;
}

// A block of its own is a formula and nothing else on its lines.
function findBlock(source) {
  const found = findFormula(source);
  const line = found?.display ? /^[ \t]*(?:\n|$)/.exec(source.slice(found.raw.length)) : null;
  return line ? { ...found, raw: found.raw + line[0] } : undefined;
}

function nextBlock(source) {
  const at = source.slice(0, LONGEST).search(/\n(?:\$\$|\\\[)/);
  return at < 0 ? at : at + 1;
}

export const formulaRules = [
  { name: "formula", level: "block", start: nextBlock, tokenizer: findBlock },
  { name: "formula", level: "inline", start: nextPlace, tokenizer: findFormula },
];

export function showFormula({ raw, text, display }) {
  const element = document.createElement("span");
  element.className = display ? "formula apart" : "formula";
  element.textContent = raw.trim();
  if (display) Object.assign(element, { tabIndex: 0, role: "group", ariaLabel: "Formula" }); // may be wider than the page
  load().then((library) => {
    const drawn = document.createElement("span");
    try {
      library.render(text, drawn, { ...OPTIONS, displayMode: display });
      element.replaceChildren(...drawn.childNodes);
    } catch {
      element.classList.add("unknown");
    }
  });
  return element;
}
