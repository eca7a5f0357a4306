// server/page/page.js: the page from its start: which model, which way to ask, one entry for each question, and the
// stream of each answer.

import { Answer, showTrouble } from "./answer.js";
import { Attachments, thumbnail } from "./pictures.js";
import { getJson, Refusal, streamEvents } from "./server.js";
import { setDefaults, settings, showSettings, startSettings } from "./settings.js";
import { Sources } from "./sources.js";

const $ = (selector) => document.querySelector(selector);
const prompt = $("#prompt"), log = $("#log"), form = $("#ask"), spoken = $("#spoken");
const entryShape = $("#entry-shape").content.firstElementChild;
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
const WORDS = {
  complete: {
    title: "Begin a sentence.",
    reads: "The model goes on with it, and searches your documents while it writes. " +
      "What it read stands beside its text.",
    alone: "The model goes on with it. No documents are served, so it writes from what it learned.",
    field: "Begin a sentence", button: "Write",
  },
  chat: {
    title: "Ask your documents.",
    reads: "The answer names the passages it uses, and they stand beside it.",
    alone: "No documents are served, so the model answers from what it learned.",
    field: "Ask a question", button: "Send",
  },
};

let models = [], model = null, props = null;
let running = null; // the AbortController of the answers that are being written
let turns = []; // of the chat: {question, pictures, answer}
const attached = new Attachments(prompt);

const chosen = (name) => form.elements[name].value;
const mode = () => chosen("mode");
const number = (value) => value.toLocaleString("en");

// Models.

function parameters(n) {
  return n >= 1e9 ? `${(n / 1e9).toFixed(1)} billion parameters` : `${(n / 1e6).toFixed(1)} million parameters`;
}

function showFacts() {
  const { retro, n_params } = model.meta;
  const sizes = document.createElement("span");
  const facts = models.length === 1 ? [model.id] : [];
  if (props.retrieval) facts.push(`${number(retro.chunks)} passages, generation ${retro.generation}`);
  sizes.className = "more";
  sizes.textContent = ` · ${parameters(n_params)}, ${number(model.max_model_len)} tokens of context`;
  document.title = `${model.id} – retro-server`;
  $("#facts").replaceChildren(facts.join(" · "), sizes);
}

function showMode() {
  const words = WORDS[mode()];
  $("#welcome h2").textContent = words.title;
  $("#welcome p").textContent = props.retrieval ? words.reads : words.alone;
  $("#prompt-label").textContent = words.field;
  prompt.placeholder = `${words.field} …`;
  $("#send").textContent = words.button;
  for (const element of document.querySelectorAll(".of-chat")) element.hidden = mode() !== "chat";
  attached.allow(mode() === "chat" && model.meta.pictures);
  showExamples();
}

// The examples are about the demo's collection; another one is asked whether it knows of such things.
async function showExamples() {
  const list = $("#welcome ul"), asked = mode();
  list.replaceChildren();
  if (!props.retrieval || model !== models[0]) return;
  const query = encodeURIComponent(EXAMPLES[asked][0]);
  const found = await getJson(`v1/retrieval/search?k=1&q=${query}`).catch(() => ({ data: [] }));
  if (!(1 - found.data[0]?.distance >= NEAR) || asked !== mode()) return;
  list.replaceChildren(...EXAMPLES[asked].map((text) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => ask(text));
    item.append(button);
    return item;
  }));
}

async function chooseModel(id) {
  model = models.find((one) => one.id === id);
  props = await getJson(`props?model=${encodeURIComponent(id)}`);
  setDefaults(props);
  turns = [];
  $("#modes").hidden = !model.meta.chat;
  $("#reads").hidden = !props.retrieval;
  form.elements.mode.value = model.meta.chat ? "chat" : "complete";
  form.elements.read.value = props.retrieval?.enabled ? "on" : "off";
  showFacts();
  showMode();
}

async function listModels() {
  models = (await getJson("v1/models")).data.filter(({ meta }) => meta.role === "decoder");
  $("#model").replaceChildren(...models.map(({ id }) => new Option(id, id)));
  $(".model").hidden = models.length === 1;
  await chooseModel(models[0].id);
}

// `load` asks the server for what the page cannot do without.
async function start(load) {
  $("#welcome .trouble").hidden = true;
  try {
    await load();
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    model = null;
    $("#welcome").hidden = false;
    showTrouble($("#welcome .trouble"), refusal, { ...actions, again: () => start(load) });
  }
  $("#send").disabled = model === null;
}

const actions = {
  key: () => showSettings("key"),
  settings: () => showSettings(),
  reload: () => location.reload(),
};

// Asking.

function content(text, pictures) {
  if (pictures.length === 0) return text;
  return [...pictures.map(({ url }) => ({ type: "image_url", image_url: { url } })), { type: "text", text }];
}

function requestBody(text, pictures, reads, seed) {
  const { temperature, top_p, max_tokens, k, min_similarity, compare, system } = settings();
  const writing = { max_tokens, temperature, top_p, seed };
  const body = { model: model.id, ...writing, stream: true, stream_options: { include_usage: true } };
  const reading = { enabled: true, k, min_similarity, attention: "tokens", ...(compare ? { compare: "off" } : {}) };
  if (props.retrieval) body.retrieval = reads ? reading : { enabled: false };
  if (mode() === "complete") return { ...body, prompt: text };
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const turn of turns) {
    messages.push({ role: "user", content: content(turn.question, turn.pictures) });
    messages.push({ role: "assistant", content: turn.answer });
  }
  return { ...body, messages: [...messages, { role: "user", content: content(text, pictures) }] };
}

// The answers of one question: with documents, without, or both of the same seed.
function openEntry(text, pictures) {
  const entry = entryShape.cloneNode(true);
  const both = chosen("read") === "both", chats = mode() === "chat";
  const plans = both ? [true, false] : [chosen("read") === "on"];
  const question = entry.querySelector(".question");
  question.textContent = chats ? text : `Text ${log.children.length + 1}`; // an unseen heading of a text
  question.classList.toggle("unseen", !chats);
  entry.querySelector(".seen").append(...pictures.map(thumbnail));
  entry.querySelector(".seen").hidden = pictures.length === 0;
  entry.querySelector(".answers").classList.toggle("two", both);
  entry.classList.toggle("alone", !plans[0] && !both);
  const answers = plans.map((reads) => {
    const label = both ? (reads ? "With your documents" : "Without") : "";
    return { reads, answer: new Answer(label, chats ? "" : text) };
  });
  entry.querySelector(".answers").append(...answers.map(({ answer }) => answer.element));
  const sources = new Sources(entry.querySelector("aside"), (passage) => answers[0].answer.lightTokens(passage));
  log.append(entry);
  return { entry, answers, sources };
}

async function ask(text, pictures = []) {
  if (running || !model || text.trim() === "") return;
  const seed = settings().seed === "" ? Math.floor(Math.random() * 1e6) : settings().seed;
  const { entry, answers, sources } = openEntry(text, pictures);
  const chats = mode() === "chat", conversation = turns; // another one may have begun when the answer is there
  running = new AbortController();
  $("#welcome").hidden = true;
  spoken.replaceChildren();
  showRunning(true);
  entry.scrollIntoView();
  try {
    await Promise.all(answers.map(({ reads, answer }, i) =>
      write(answer, requestBody(text, pictures, reads, seed),
        { sources, speaks: i === 0, again: () => ask(text, pictures) })));
  } finally {
    running = null;
    showRunning(false);
  }
  if (chats && answers[0].answer.text) conversation.push({ question: text, pictures, answer: answers[0].answer.text });
  $("#fresh").hidden = turns.length === 0;
}

function showRunning(runs) {
  $("#send").hidden = runs;
  $("#stop").hidden = !runs;
}

// One answer from its request to its last event.
async function write(answer, body, { sources, speaks, again }) {
  const path = body.messages ? "v1/chat/completions" : "v1/completions";
  const watch = { start: performance.now(), first: 0, last: 0, usage: null, finish: "", seed: body.seed };
  const marks = {};
  answer.begin();
  answer.find(".copy").addEventListener("click", () => copy(answer));
  answer.find(".copy").hidden = !navigator.clipboard;
  answer.find(".go-on").addEventListener("click", () => ask(answer.before + answer.text));
  try {
    for await (const event of streamEvents(path, body, running.signal)) {
      take(event, answer, sources, watch, marks);
      if (speaks) speak(answer.text, false);
    }
    answer.mark(marks, sources);
  } catch (problem) {
    if (problem.name === "AbortError") watch.finish = "stopped";
    else if (problem instanceof Refusal) answer.fail(problem, { ...actions, again });
    else throw problem;
  } finally {
    answer.end();
    answer.find(".go-on").hidden = body.messages !== undefined || watch.finish === "stop";
    answer.measured(describeWatch(watch));
    if (speaks) speak(answer.text, true);
  }
}

async function copy(answer) {
  await navigator.clipboard.writeText(answer.before + answer.text);
  answer.find(".reading").textContent = "Copied.";
}

function take(event, answer, sources, watch, marks) {
  const choice = event.choices[0];
  const text = choice?.text ?? choice?.delta?.content ?? "";
  if (text || choice?.delta?.reasoning_content) {
    watch.first ||= performance.now();
    watch.last = performance.now();
  }
  if (event.retrieval) sources.add(event.retrieval);
  if (choice?.delta?.reasoning_content) answer.think(choice.delta.reasoning_content);
  if (text) answer.append(text);
  if (choice?.finish_reason) watch.finish = choice.finish_reason;
  if (event.usage) watch.usage = event.usage;
  watch.generation ??= event.system_fingerprint?.match(/_g(\d+)$/)?.[1];
  if (event.attention) marks.attention = event.attention;
  if (event.compare) marks.compare = event.compare[0];
  if (event.citations) marks.citations = event.citations;
}

const secondsOf = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;

// A fast stream comes in lumps, so that the time between two tokens says nothing: the speed is that of the whole.
function describeWatch(watch) {
  const whole = watch.last - watch.start;
  const facts = [];
  const tokens = watch.usage?.completion_tokens ?? 0;
  if (watch.finish === "stopped") facts.push("stopped");
  if (!watch.first && watch.finish === "stop") facts.push("the model ends the text here");
  if (watch.first) facts.push(`first token after ${secondsOf(watch.first - watch.start)}`);
  if (watch.first && tokens) {
    facts.push(`${number(tokens)} tokens${watch.finish === "length" ? " (the limit)" : ""} in ${secondsOf(whole)}`);
    facts.push(`${number(Math.round((1000 * tokens) / whole))} tokens/s`);
  }
  if (watch.first) facts.push(`seed ${watch.seed}`);
  if (watch.generation) facts.push(`generation ${watch.generation}`);
  return facts.join(" · ");
}

// Whole sentences are read out, each once; the text itself changes too often for that.
let heard = 0;
function speak(text, complete) {
  if (text.length === 0 || text.length < heard) heard = 0;
  const rest = text.slice(heard);
  const end = complete ? rest.length : Math.max(rest.lastIndexOf(". "), rest.lastIndexOf("\n"), -1) + 1;
  if (end === 0) return;
  spoken.append(rest.slice(0, end));
  heard = complete ? 0 : heard + end;
}

// Starting.

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running || !model) return;
  const text = prompt.value;
  if (text.trim() === "") return;
  prompt.value = "";
  ask(text, attached.give());
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
// The field grows with its text by itself where the browser knows how.
if (!CSS.supports("field-sizing", "content")) {
  prompt.addEventListener("input", () => (prompt.rows = Math.min(prompt.value.split("\n").length, 8)));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("#settings").open) running.abort();
});
$("#stop").addEventListener("click", () => {
  running?.abort();
  prompt.focus();
});
$("#fresh").addEventListener("click", () => {
  running?.abort();
  turns = [];
  log.replaceChildren();
  $("#welcome").hidden = false;
  $("#fresh").hidden = true;
  prompt.focus();
});
$("#model").addEventListener("change", (event) => start(() => chooseModel(event.target.value)));
for (const radio of form.elements.mode) radio.addEventListener("change", showMode);

startSettings(() => {
  if (model === null) start(listModels);
  prompt.focus();
});
start(listModels);
