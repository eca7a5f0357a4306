// server/page/lines.js: a part of a long text around a passage, line by line, with the passage marked.

const AROUND = 20000; // bytes that are shown before and behind, and more of at a time
const NEWLINE = 10;

const decoder = new TextDecoder();

export class LineText {
  // `place` has start and end, in bytes, the passage's text, and the number of the line it begins in; none of them: the
  // text is shown from its beginning. `told`: what is to be said.
  constructor(whole, { start = 0, end = 0, text = "", quote = text, line = null }) {
    this.bytes = new TextEncoder().encode(whole);
    [this.start, this.end, this.told] = [start, Math.min(end, this.bytes.length), ""];
    if (quote.trim() !== "") this.find(whole, quote.trim());
    this.numbered = line !== null;
    this.first = this.lineBegin(Math.max(0, this.start - AROUND));
    this.last = this.lineEnd(Math.min(this.bytes.length, this.end + AROUND));
    this.before = line === null ? 1 : line - this.count(this.first, this.start); // the number of the first line
  }

  // A document may have changed since the passage was read.
  find(whole, passage) {
    if (decoder.decode(this.bytes.subarray(this.start, this.end)).includes(passage)) return;
    const at = whole.indexOf(passage);
    const encoder = new TextEncoder();
    if (at >= 0) {
      this.start = encoder.encode(whole.slice(0, at)).length;
      this.end = this.start + encoder.encode(passage).length;
      this.told = "The document has changed since; the passage stands elsewhere now.";
    } else {
      [this.start, this.end] = [Math.min(this.start, this.bytes.length), 0];
      this.end = this.start;
      this.told = "The document has changed since, and has this passage no more.";
    }
  }

  lineBegin(at) {
    return at <= 0 ? 0 : this.bytes.lastIndexOf(NEWLINE, at - 1) + 1;
  }

  lineEnd(at) {
    const found = this.bytes.indexOf(NEWLINE, at);
    return found < 0 ? this.bytes.length : found;
  }

  count(from, to) {
    let n = 0;
    for (let at = this.bytes.indexOf(NEWLINE, from); at >= 0 && at < to; at = this.bytes.indexOf(NEWLINE, at + 1)) n++;
    return n;
  }

  // The line from byte `from` to `to`, with what of the passage is in it.
  makeLine(from, to) {
    const item = document.createElement("li");
    const cut = (at) => Math.min(Math.max(at, from), to);
    const piece = (a, b) => decoder.decode(this.bytes.subarray(a, b));
    const [a, b] = [cut(this.start), cut(this.end)];
    item.append(piece(from, a));
    if (a < b) {
      const mark = document.createElement("mark");
      mark.textContent = piece(a, b);
      item.append(mark);
    }
    item.append(piece(b, to));
    return item;
  }

  makeLines(from, to) {
    const made = [];
    for (let at = from; at <= to && at < this.bytes.length;) {
      const end = this.lineEnd(at);
      made.push(this.makeLine(at, end));
      at = end + 1;
    }
    return made;
  }

  // Shows it in `element`, with buttons for what stands before and behind.
  show(element) {
    const list = document.createElement("ol");
    list.className = this.numbered ? "numbered" : "";
    list.start = this.before;
    list.append(...this.makeLines(this.first, this.last));
    const earlier = this.button("Earlier", () => this.showEarlier(list));
    const later = this.button("Later", () => this.showLater(list));
    element.replaceChildren(earlier, list, later);
    this.offer(element);
    list.querySelector("mark")?.scrollIntoView({ block: "center" });
  }

  button(name, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = name;
    made.addEventListener("click", () => {
      press();
      this.offer(made.parentElement);
    });
    return made;
  }

  offer(element) {
    element.firstElementChild.hidden = this.first === 0;
    element.lastElementChild.hidden = this.last >= this.bytes.length - 1;
  }

  showEarlier(list) {
    const from = this.lineBegin(Math.max(0, this.first - AROUND));
    const lines = this.makeLines(from, this.first - 1);
    this.first = from;
    list.start -= lines.length;
    list.prepend(...lines);
  }

  showLater(list) {
    const to = this.lineEnd(Math.min(this.bytes.length, this.last + AROUND));
    list.append(...this.makeLines(this.last + 1, to));
    this.last = to;
  }
}
