// server/page/page.js: the page from its start: which model, which way to ask, and the conversation that is open.

import { showTrouble } from "./answer.js";
import { Conversation } from "./conversation.js";
import { Entry } from "./entry.js";
import { Attachments } from "./pictures.js";
import { getJson, Refusal } from "./server.js";
import { setDefaults, settings, settingsToKeep, showSettings, startSettings, takeKept } from "./settings.js";
import { drawShelf, startShelf } from "./shelf.js";
import { LIMITS, readConversation, readSources } from "./store.js";
import { writeAnswer } from "./writing.js";

const $ = (selector) => document.querySelector(selector);
const prompt = $("#prompt"), log = $("#log"), form = $("#ask"), spoken = $("#spoken");
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
let live = null; // keeps the turn that is being written, as far as it has come
let conversation = new Conversation();
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
  if (conversation.turns.size === 0 && remembered()) await openConversation(remembered());
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
  const said = conversation.path().filter((turn) => turn.mode === "chat" && turn.answers[0].text);
  for (const turn of said) {
    messages.push({ role: "user", content: content(turn.question, model.meta.pictures ? turn.pictures : []) });
    messages.push({ role: "assistant", content: turn.answers[0].text });
  }
  return { ...body, messages: [...messages, { role: "user", content: content(text, pictures) }] };
}

// The conversation that is open.

const OPEN = "retro-conversation"; // the tab comes back to it when it is loaded again

function remember(id) {
  try {
    sessionStorage.setItem(OPEN, id);
  } catch {
    // The next load begins another one.
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(OPEN);
  } catch {
    return null;
  }
}

const ways = () => ({ model: model.id, mode: mode(), read: chosen("read"), chosen: settingsToKeep() });

// Keeps a turn as it is now, and says where that cannot be.
async function keepTurn(owner, entry) {
  const words = {
    null: "This browser keeps no conversations: they end when the page is left.",
    full: `This conversation has reached ${LIMITS.bytes / 1e6} MB: what follows is not kept. Begin another one.`,
    failed: "The browser has no room left: this turn is not kept. Delete conversations, or begin another one.",
  };
  const result = await owner.keep(entry.record(), entry.heard, ways()).catch(() => "failed");
  $("#unkept").textContent = words[result] ?? "";
}

function placeEntry(turn) {
  const entry = new Entry(turn, log.children.length + 1, { goOn: ask });
  log.append(entry.element);
  return entry;
}

function showConversation() {
  const { id, sources } = conversation;
  log.replaceChildren();
  for (const turn of conversation.path()) {
    placeEntry(turn).restore(async () => sources.get(turn.id) ?? readSources(id, turn.id));
  }
  const empty = log.children.length === 0;
  $("#welcome").hidden = !empty;
  $("#fresh").hidden = empty;
  $("#unkept").textContent = "";
  if (!empty) showLast(4);
}

// Entries above have estimated heights until they are near the screen, which takes a few frames.
function showLast(frames) {
  log.lastElementChild?.scrollIntoView();
  if (frames > 0) requestAnimationFrame(() => showLast(frames - 1));
}

function beginConversation() {
  running?.abort();
  conversation = new Conversation();
  remember("");
  showConversation();
  drawShelf();
  prompt.focus();
}

async function openConversation(id) {
  const kept = await readConversation(id).catch(() => null);
  if (!kept?.head || !model) return;
  const { model: name, mode: way, read, chosen: values } = kept.head.settings;
  running?.abort();
  takeKept(values);
  if (name !== model.id && models.some((one) => one.id === name)) {
    $("#model").value = name;
    await chooseModel(name);
  }
  if (way === "complete" || model.meta.chat) form.elements.mode.value = way;
  if (props.retrieval) form.elements.read.value = read;
  showMode();
  conversation = new Conversation(kept);
  remember(id);
  showConversation();
}

function askedPlans() {
  const read = chosen("read");
  return read === "both" ? [true, false] : [read === "on"];
}

async function ask(text, pictures = []) {
  if (running || !model || text.trim() === "") return;
  const answers = askedPlans().map((reads) => ({ reads, text: "" }));
  const turn = { parent: conversation.leaf, mode: mode(), model: model.id, question: text, pictures, answers };
  await answerTurn(turn);
}

// Adds a turn to the conversation and has it answered: with documents, without, or both of the same seed.
async function answerTurn(given) {
  const owner = conversation; // another one may have been opened when the answer is there
  const seed = settings().seed === "" ? Math.floor(Math.random() * 1e6) : settings().seed;
  const bodies = given.answers.map(({ reads }) => requestBody(given.question, given.pictures, reads, seed));
  const turn = owner.add(given), entry = placeEntry(turn);
  running = new AbortController();
  live = () => keepTurn(owner, entry);
  remember(owner.id);
  $("#welcome").hidden = true;
  spoken.replaceChildren();
  showRunning(true);
  entry.element.scrollIntoView();
  live();
  const again = () => ask(given.question, given.pictures);
  try {
    await Promise.all(bodies.map(async (body, i) => {
      const refusal = await writeAnswer(entry, i, body, running.signal);
      if (refusal) entry.answers[i].fail(refusal, { ...actions, again });
    }));
  } finally {
    running = live = null;
    showRunning(false);
    $("#fresh").hidden = conversation.turns.size === 0;
    await keepTurn(owner, entry);
  }
}

function showRunning(runs) {
  $("#send").hidden = runs;
  $("#stop").hidden = !runs;
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
$("#fresh").addEventListener("click", beginConversation);
addEventListener("pagehide", () => live?.());
$("#model").addEventListener("change", (event) => start(() => chooseModel(event.target.value)));
for (const radio of form.elements.mode) radio.addEventListener("change", showMode);

startSettings(() => {
  if (model === null) start(listModels);
  prompt.focus();
});
startShelf({
  open: openConversation,
  opened: () => conversation.id,
  forgotten: (id) => id === conversation.id && beginConversation(),
});
start(listModels);
