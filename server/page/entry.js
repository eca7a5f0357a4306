// server/page/entry.js: a turn as it stands in the log: the question, its answers, and the sources beside them.

import { Answer } from "./answer.js";
import { pictureBlob, thumbnail } from "./pictures.js";
import { Sources } from "./sources.js";

const shape = document.querySelector("#entry-shape").content.firstElementChild;

// What was kept of sources is read, and Markdown is drawn, when its entry comes near to the screen.
const nearing = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) if (isIntersecting) waiting.get(target)?.();
}, { rootMargin: "600px" });
const waiting = new WeakMap();

export class Entry {
  heard = { retrieval: [], marks: [] }; // what the server sent besides texts, to be kept

  // `number` counts the texts of a conversation. `versions` are the turns that may stand in its place. `does` has
  // goOn(text), again(question) and show(turn, direction).
  constructor(turn, number, versions, does) {
    const { mode, plain, question, pictures, answers } = turn;
    const chats = mode === "chat", both = answers.length > 1;
    this.turn = turn;
    this.element = shape.cloneNode(true);
    const heading = this.find(".question");
    heading.textContent = chats ? question : `Text ${number}`; // an unseen heading of a text
    heading.classList.toggle("unseen", !chats);
    this.find(".seen").append(...pictures.map(showKept));
    this.find(".seen").hidden = pictures.length === 0;
    this.find(".answers").classList.toggle("two", both);
    this.element.classList.toggle("alone", !answers[0].reads);
    this.answers = answers.map(({ reads }) => {
      const label = both ? (reads ? "With your documents" : "Without") : "";
      return new Answer(label, chats ? "" : question, chats ? null : does.goOn, chats && !plain);
    });
    this.find(".answers").append(...this.answers.map(({ element }) => element));
    this.sources = new Sources(this.find("aside"), (passage) => this.answers[0].lightTokens(passage));
    this.offerVersions(versions, does.show);
    this.offerEdit(does.again);
    this.find(".again").addEventListener("click", () => does.again());
  }

  offerVersions(versions, show) {
    const at = versions.indexOf(this.turn);
    this.find(".versions").hidden = versions.length === 1;
    this.find(".versions span").textContent = `${at + 1} of ${versions.length}`;
    for (const [name, to] of [["earlier", versions[at - 1]], ["later", versions[at + 1]]]) {
      const button = this.find(`.${name}`);
      button.disabled = !to;
      button.addEventListener("click", () => show(to, name));
    }
  }

  // After a step to an earlier or a later one. Gives the words to say.
  focusVersions(direction) {
    const button = this.find(`.${direction}`);
    (button.disabled ? this.find(".versions button:enabled") : button).focus();
    return `Version ${this.find(".versions span").textContent}`;
  }

  offerEdit(again) {
    const form = this.find(".editing"), field = form.querySelector("textarea");
    const show = (shown) => {
      form.hidden = !shown;
      this.find(".question").classList.toggle("unseen", shown || this.turn.mode !== "chat");
      if (shown) field.focus();
      else this.find(".edit").focus();
    };
    this.find(".edit").addEventListener("click", () => {
      field.value = this.turn.question;
      show(true);
    });
    form.querySelector(".cancel").addEventListener("click", () => show(false));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() !== "") again(field.value);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show(false);
      if (event.key !== "Enter" || event.target !== field || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  addSources(retrieval) {
    this.heard.retrieval.push(...retrieval);
    this.sources.add(retrieval);
  }

  // Shows the texts that were kept. `read()` gives the rest when it is needed.
  restore(read) {
    this.turn.answers.forEach((kept, i) => this.answers[i].restore(kept));
    waiting.set(this.element, async () => {
      nearing.unobserve(this.element);
      waiting.delete(this.element);
      for (const answer of this.answers) answer.settle();
      const kept = await read();
      if (!kept) return;
      if (kept.retrieval.length > 0) this.addSources(kept.retrieval);
      this.heard = kept;
      kept.marks.forEach((marks, i) => this.answers[i].mark(marks, this.sources));
    });
    nearing.observe(this.element);
  }

  // Takes the answers as they are now into the turn.
  record() {
    this.answers.forEach(({ text, thoughts, measured, finish }, i) => {
      Object.assign(this.turn.answers[i], { text, thoughts, measured, finish });
    });
    return this.turn;
  }
}

function showKept({ name, url }) {
  return thumbnail({ name, shown: URL.createObjectURL(pictureBlob(url)) });
}
