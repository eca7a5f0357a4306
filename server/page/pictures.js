// server/page/pictures.js: pictures that a question brings, from files, the clipboard or a drop; and those of sources.

import { getBlob } from "./server.js";

const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const $ = (selector) => document.querySelector(selector);
const list = $("#pictures"), told = $("#attached"), button = $("#attach"), chooser = $("#files");

const readUrl = (file) => new Promise((resolve, reject) => {
  const reader = Object.assign(new FileReader(), { onload: () => resolve(reader.result), onerror: reject });
  reader.readAsDataURL(file);
});

// The bytes of a data: address, which the page's policy shows only as a blob.
export function pictureBlob(url) {
  const [head, data] = url.split(",");
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: head.slice("data:".length).split(";")[0] });
}

export function thumbnail({ name, shown }) {
  const image = document.createElement("img");
  image.src = shown;
  image.alt = name;
  return image;
}

// The picture of a source, behind `place`.
export async function showPicture(place, { picture, title, document: name }) {
  const blob = await getBlob(picture.slice(1)).catch(() => null);
  if (!blob || !KINDS.includes(blob.type)) return;
  place.after(thumbnail({ name: `Picture: ${title || name}`, shown: URL.createObjectURL(blob) }));
}

export class Attachments {
  pictures = []; // {name, url}
  allowed = false;

  constructor(field) {
    this.field = field; // that the question is typed into
    button.onclick = () => chooser.click();
    chooser.onchange = () => {
      this.add([...chooser.files]);
      chooser.value = "";
    };
    field.addEventListener("paste", (event) => this.take(event, event.clipboardData));
    document.addEventListener("dragover", (event) => this.allowed && event.preventDefault());
    document.addEventListener("drop", (event) => this.take(event, event.dataTransfer));
  }

  // Whether the model that is asked reads pictures.
  allow(allowed) {
    this.allowed = allowed;
    button.hidden = !allowed;
    if (!allowed) this.give();
  }

  take(event, data) {
    const files = [...(data?.files ?? [])];
    if (!this.allowed || files.length === 0) return;
    event.preventDefault();
    this.add(files);
  }

  async add(files) {
    const words = [];
    for (const file of files) {
      const { name } = file, known = KINDS.includes(file.type);
      if (known) this.append({ name, url: await readUrl(file) }, URL.createObjectURL(file));
      words.push(`${name} is ${known ? "added" : "no PNG, JPEG, WebP or GIF"}.`);
    }
    told.textContent = words.join(" ");
    this.field.focus();
  }

  append(picture, shown) {
    const item = document.createElement("li"), remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", `Remove ${picture.name}`);
    remove.onclick = () => {
      this.pictures.splice(this.pictures.indexOf(picture), 1);
      item.remove();
      list.hidden = this.pictures.length === 0;
      told.textContent = `${picture.name} is removed.`;
      this.field.focus();
    };
    item.append(thumbnail({ name: picture.name, shown }), remove);
    this.pictures.push(picture);
    list.append(item);
    list.hidden = false;
  }

  // They are the question's from here on.
  give() {
    const { pictures } = this;
    this.pictures = [];
    list.replaceChildren();
    list.hidden = true;
    told.textContent = "";
    return pictures;
  }
}
