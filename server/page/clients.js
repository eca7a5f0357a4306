// server/page/clients.js: how other programs reach this server: its addresses, and the configuration of each client, from
// the pages of documentation that the program carries, with this server's address and model in the place of the examples'.

import { copyText } from "./clipboard.js";
import { drawMarkdown } from "./markdown.js";
import { getText } from "./server.js";

const $ = (selector) => document.querySelector(selector);
const dialog = $("#clients"), told = $("#clients-told"), list = $("#clients-list");
const shape = $("#client-shape").content.firstElementChild;

const DOORS = [
  ["OpenAI’s libraries, Codex, open-webui and others", "v1"],
  ["Claude Code and Anthropic’s libraries", "v1/messages"],
  ["Agents that take tools (MCP)", "mcp"],
  ["Programs that speak Ollama", "api"],
];

// Below a proxy the server stands below a path.
const baseOf = () => new URL(".", location.href).href.replace(/\/$/, "");

async function copy(text) {
  await copyText(text);
  told.textContent = "Copied.";
}

function showDoor([who, path]) {
  const row = document.createElement("li"), code = document.createElement("code"), button = document.createElement("button");
  const address = `${baseOf()}/${path}`, name = document.createElement("span");
  name.textContent = who;
  code.textContent = address;
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy the address for ${who}`);
  button.addEventListener("click", () => copy(address));
  row.append(name, code, button);
  return row;
}

// Pages of documentation name an address, a model, and each other.
function fit(text, model) {
  return text.replace(/<!--.*?-->\n*/gs, "").replace(/\[([^\]]+)\]\((?!https?:)[^)]*\)/g, "$1")
    .replaceAll("http://127.0.0.1:8080", baseOf()).replaceAll("http://HOST:8080", baseOf())
    .replace(/\bNAME\b/g, () => model);
}

// The parts below headings of the second level that have something to copy.
function partsOf(text) {
  return text.split(/^## /m).slice(1).filter((part) => part.includes("\n```")).map((part) => {
    const end = part.indexOf("\n");
    return { title: part.slice(0, end), text: part.slice(end + 1) };
  });
}

function showPart({ title, text }, model) {
  const item = shape.cloneNode(true), body = item.querySelector("div");
  item.querySelector("summary").textContent = title;
  drawMarkdown(body, fit(text, model));
  return item;
}

async function show(model) {
  $("#doors").replaceChildren(...DOORS.map(showDoor));
  told.textContent = "";
  dialog.showModal();
  const [agents, mcp] = await Promise.all(["agents.md", "mcp.md"].map((name) => getText(`page/${name}`)));
  const tools = partsOf(mcp).filter(({ title }) => title === "Clients");
  const parts = [...partsOf(agents), ...tools.map((part) => ({ ...part, title: "Documents as tools (MCP)" }))];
  list.replaceChildren(...parts.map((part) => showPart(part, model)));
}

// `model()` names the one that is chosen.
export function startClients(model) {
  $("#open-clients").addEventListener("click", () => show(model()));
  list.addEventListener("copy-code", ({ detail }) => copy(detail));
}
