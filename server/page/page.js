// server/page/page.js: the page from its start: which model, which way to ask, and the conversation that is open.

import { showTrouble } from "./answer.js";
import { startClients } from "./clients.js";
import { Conversation } from "./conversation.js";
import { startDocuments } from "./documents.js";
import { Entry } from "./entry.js";
import { Attachments } from "./pictures.js";
import { getJson, Refusal } from "./server.js";
import { setDefaults, settings, settingsToKeep, showSettings, startSettings, takeKept } from "./settings.js";
import { drawShelf, startShelf } from "./shelf.js";
import { LIMITS, readConversation, readSources } from "./store.js";
import { showExamples, WORDS } from "./welcome.js";
import { writeAnswer } from "./writing.js";

const $ = (selector) => document.querySelector(selector);
const prompt = $("#prompt"), log = $("#log"), form = $("#ask"), spoken = $("#spoken");
let models = [], model = null, props = null;
let running = null; // the AbortController of the answers that are being written
let live = null; // keeps the turn that is being written, as far as it has come
let conversation = new Conversation();
const attached = new Attachments(prompt);

const chosen = (name) => form.elements[name].value;
const mode = () => chosen("mode");
const number = (value) => value.toLocaleString("en");

// Models.

// Whether the model has no chat template of its own: it goes on with a question, and its answers are no Markdown.
const isPlain = () => model.meta.chat_template === "plain";

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
  const reads = props.retrieval?.mode === "attention" ? words.attends : words.reads;
  $("#welcome p").textContent = props.retrieval ? reads : words.alone;
  $("#prompt-label").textContent = words.field;
  prompt.placeholder = `${words.field} …`;
  $("#send").textContent = words.button;
  for (const element of document.querySelectorAll(".of-chat")) element.hidden = mode() !== "chat";
  attached.allow(mode() === "chat" && model.meta.pictures);
  $("#welcome ul").replaceChildren();
  if (props.retrieval && model === models[0]) showExamples(mode, ask);
}

async function chooseModel(id) {
  model = models.find((one) => one.id === id);
  props = await getJson(`props?model=${encodeURIComponent(id)}`);
  setDefaults(props);
  $("#modes").hidden = !model.meta.chat;
  $("#reads").hidden = !props.retrieval;
  form.elements.mode.value = model.meta.chat && !isPlain() ? "chat" : "complete";
  form.elements.read.value = props.retrieval?.enabled ? "on" : "off";
  showFacts();
  showMode();
}

async function listModels() {
  models = (await getJson("v1/models")).data.filter(({ meta }) => meta.role === "decoder");
  $("#model").replaceChildren(...models.map(({ id }) => new Option(id, id)));
  $(".model").hidden = models.length === 1;
  await chooseModel(models[0].id);
  $("#open-documents").hidden = !props.retrieval; // the documents are those of the first model
  if (conversation.turns.size === 0 && remembered()) await openConversation(remembered());
}

// Documents came or went: the numbers have changed.
async function countAgain() {
  const found = await getJson("v1/models").catch(() => ({ data: [] }));
  for (const one of models) one.meta = found.data.find(({ id }) => id === one.id)?.meta ?? one.meta;
  showFacts();
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

function requestBody({ mode: way, question, pictures }, reads, seed) {
  const { temperature, top_p, max_tokens, k, min_similarity, compare, quotes, system } = settings();
  const writing = { max_tokens, temperature, top_p, seed };
  const body = { model: model.id, ...writing, stream: true, stream_options: { include_usage: true } };
  const reading = { enabled: true, k, min_similarity, attention: "tokens", support: true, boxes: true, ...(compare ? { compare: "off" } : {}) };
  if (quotes !== props.retrieval?.quotes) reading.quotes = quotes; // what is usual gives way where it cannot be
  if (props.retrieval) body.retrieval = reads ? reading : { enabled: false };
  if (way === "complete") return { ...body, prompt: question };
  const messages = system ? [{ role: "system", content: system }] : [];
  const said = conversation.path().filter((turn) => turn.mode === "chat" && turn.answers[0].text);
  for (const turn of said) {
    messages.push({ role: "user", content: content(turn.question, model.meta.pictures ? turn.pictures : []) });
    messages.push({ role: "assistant", content: turn.answers[0].text });
  }
  return { ...body, messages: [...messages, { role: "user", content: content(question, pictures) }] };
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
  const does = { goOn: ask, again: (question) => askAgain(turn, question), show: showVersion };
  const entry = new Entry(turn, log.children.length + 1, conversation.versions(turn), does);
  log.append(entry.element);
  return entry;
}

// Shows the turns of the path from its `first` on.
function showPath(first) {
  const { id, sources } = conversation;
  for (const element of [...log.children].slice(first)) element.remove();
  return conversation.path().slice(first).map((turn) => {
    const entry = placeEntry(turn);
    entry.restore(async () => sources.get(turn.id) ?? readSources(id, turn.id));
    return entry;
  });
}

// Another version of a turn, and what follows it.
function showVersion(turn, direction) {
  if (running) return;
  conversation.choose(turn).catch(() => {});
  const [entry] = showPath(conversation.path().indexOf(turn));
  spoken.textContent = entry.focusVersions(direction);
}

function showConversation() {
  showPath(0);
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

function plannedAnswers() {
  const read = chosen("read");
  const plans = read === "both" ? [true, false] : [read === "on"];
  return plans.map((reads) => ({ reads, text: "" }));
}

async function ask(text, pictures = []) {
  if (running || !model || text.trim() === "") return;
  const asked = { mode: mode(), plain: isPlain(), model: model.id, question: text, pictures };
  await answerTurn({ parent: conversation.leaf, ...asked, answers: plannedAnswers() });
}

// Writes another version of a turn, of the same question or another, in the way that is chosen now.
async function askAgain({ parent, mode: way, plain, question: same, pictures }, question = same) {
  if (running || !model) return;
  const depth = conversation.path().findIndex((turn) => turn.parent === parent);
  conversation.leaf = parent;
  showPath(depth);
  prompt.focus({ preventScroll: true });
  const asked = { mode: way, plain, model: model.id, question, pictures };
  await answerTurn({ parent, ...asked, answers: plannedAnswers() }, true);
}

// Adds a turn to the conversation and has it answered: with documents, without, or both of the same
// seed. `anew`: not of the one in the settings, which would write the same again.
async function answerTurn(given, anew = false) {
  const owner = conversation; // another one may have been opened when the answer is there
  const seed = anew || settings().seed === "" ? Math.floor(Math.random() * 1e6) : settings().seed;
  const bodies = given.answers.map(({ reads }) => requestBody(given, reads, seed));
  const turn = owner.add(given), entry = placeEntry(turn);
  running = new AbortController();
  live = () => keepTurn(owner, entry);
  remember(owner.id);
  $("#welcome").hidden = true;
  spoken.replaceChildren();
  showRunning(true);
  entry.element.scrollIntoView();
  live();
  const again = () => askAgain(turn);
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
  document.body.classList.toggle("running", runs);
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
  if (event.key === "Escape" && running && !$("dialog[open]")) running.abort();
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
startDocuments({ changed: countAgain });
startClients(() => model?.id ?? "NAME");
startShelf({
  open: openConversation,
  opened: () => conversation.id,
  forgotten: (id) => {
    if (id !== conversation.id) return;
    conversation.deleted = true;
    beginConversation();
  },
});
start(listModels);
