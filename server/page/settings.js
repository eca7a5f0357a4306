// server/page/settings.js: what a person chooses: how to write, the key, light or dark. Everything but light or dark is
// forgotten with the tab.

const form = document.querySelector("#settings form");
const dialog = document.querySelector("#settings");
const themeButton = document.querySelector("#theme");
const CITE =
  "Where numbered passages are given, answer from them, and write the number of each that you use, as in [1]. " +
  "Say so when they do not answer.";
const KEPT = "retro-settings", THEME = "retro-theme";

let chosen = read(sessionStorage, KEPT) ?? {}; // what differs from the defaults
let defaults = {};

function read(storage, name) {
  try {
    return JSON.parse(storage.getItem(name));
  } catch {
    return null; // a browser that keeps nothing, or something that another program left there
  }
}

function keep(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch {
    // It holds until the page is left.
  }
}

export const settings = () => ({ ...defaults, ...chosen });

// What a conversation was asked with; the key is nobody's but the tab's.
export function settingsToKeep() {
  const { key, ...others } = chosen;
  return others;
}

export function takeKept(values) {
  const { key } = chosen;
  chosen = { ...values, ...(key ? { key } : {}) };
  keep(sessionStorage, KEPT, chosen);
}

// The values of a model's requests that say nothing, as GET /props has them.
export function setDefaults(props) {
  const context = props.default_generation_settings.n_ctx;
  const { temperature, top_p } = props.default_generation_settings.params;
  defaults = {
    temperature: Math.min(temperature, 0.8), // text to read is to wander less than the API's values let it
    top_p: Math.min(top_p, 0.9),
    max_tokens: Math.max(1, Math.min(256, Math.floor(context / 4))),
    seed: "",
    k: props.retrieval?.k ?? 1,
    min_similarity: props.retrieval?.min_similarity ?? -1,
    compare: true,
    quotes: props.retrieval?.quotes ?? false,
    system: props.retrieval && props.retrieval.mode !== "attention" ? CITE : "",
    key: "",
  };
  form.elements.max_tokens.max = context;
  form.elements.k.max = props.retrieval?.max_k ?? 1;
  for (const element of form.querySelectorAll(".of-documents")) element.hidden = !props.retrieval;
}

export function showSettings(name) {
  fill();
  dialog.showModal();
  if (name) form.elements[name].focus();
}

function fill() {
  for (const [name, value] of Object.entries(settings())) {
    const field = form.elements[name];
    if (field.type === "checkbox") field.checked = value;
    else field.value = typeof value === "number" ? Number(value.toPrecision(6)) : value;
  }
}

function take(field) {
  const numeric = field.type === "number" && field.value !== "";
  const value = field.type === "checkbox" ? field.checked : numeric ? field.valueAsNumber : field.value;
  if (!field.checkValidity()) return;
  if (value === defaults[field.name]) delete chosen[field.name];
  else chosen[field.name] = value;
  keep(sessionStorage, KEPT, chosen);
}

// Light or dark: what the system says, until the button is pressed.

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (systemIsDark.matches ? "dark" : "light")) === "dark";

function showTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `${themeButton.textContent} colours`);
}

// `changed` is called when the dialog closes.
export function startSettings(changed) {
  showTheme(read(localStorage, THEME));
  systemIsDark.addEventListener("change", () => showTheme());
  themeButton.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    keep(localStorage, THEME, theme);
    showTheme(theme);
  });
  document.querySelector("#open-settings").addEventListener("click", () => showSettings());
  document.querySelector("#defaults").addEventListener("click", () => {
    chosen = chosen.key ? { key: chosen.key } : {};
    keep(sessionStorage, KEPT, chosen);
    fill();
  });
  form.addEventListener("input", (event) => take(event.target));
  dialog.addEventListener("close", changed);
}
