// server/page/welcome.js: words and examples that stand where nothing has been asked yet.

import { getJson } from "./server.js";

const NEAR = 0.5; // examples are shown where the collection has a passage that is so similar to the first

const EXAMPLES = {
  complete: [
    "open() returns a file descriptor, a small, nonnegative integer that is an index",
    "git commit records changes to the repository. The option --amend",
    "When a process receives a signal for which it has installed no handler, the default action is taken. " +
      "For SIGTERM this is",
  ],
  chat: ["What does open() return?", "What does git commit --amend do?", "What happens on SIGTERM by default?"],
};
export const WORDS = {
  complete: {
    title: "Begin a sentence.",
    reads: "The model goes on with it, and reads what your documents say of it. What it read stands beside its text.",
    attends: "The model goes on with it, and searches your documents while it writes. " +
      "What it read stands beside its text.",
    alone: "The model goes on with it. No documents are served, so it writes from what it learned.",
    field: "Begin a sentence", button: "Write",
  },
  chat: {
    title: "Ask your documents.",
    reads: "The answer names the passages it uses, and they stand beside it.",
    attends: "The model searches your documents while it answers. What it read stands beside its answer.",
    alone: "No documents are served, so the model answers from what it learned.",
    field: "Ask a question", button: "Send",
  },
};

// The examples are about the demo's collection; another one is asked whether it knows of such things. `asks()` gives
// the way to ask that is chosen by the time the answer comes.
export async function showExamples(asks, ask) {
  const list = document.querySelector("#welcome ul"), asked = asks();
  const query = encodeURIComponent(EXAMPLES[asked][0]);
  const found = await getJson(`v1/retrieval/search?k=1&q=${query}`).catch(() => ({ data: [] }));
  if (!(found.data[0]?.similarity >= NEAR) || asked !== asks()) return;
  list.replaceChildren(...EXAMPLES[asked].map((text) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => ask(text));
    item.append(button);
    return item;
  }));
}
