// server/page/export.js: a conversation as a file: Markdown to read, JSON with everything. The page makes the download.

import { Conversation } from "./conversation.js";
import { nameQuery } from "./sources.js";
import { readAllSources, readConversation } from "./store.js";

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";
const quoted = (text) => text.trim().split("\n").map((line) => `> ${line}`.trimEnd()).join("\n");

function describeSource(passage, i) {
  const { number, title, document: name, start, end, similarity, text } = passage;
  const facts = name === null ? ["given in the request"] : [name, `bytes ${start}–${end}`];
  if (typeof similarity === "number") facts.push(`similarity ${similarity.toFixed(2)}`);
  return `${number ?? i + 1}. ${title || name || "Passage"} (${facts.join(", ")})\n\n${quoted(text).replace(/^/gm, "   ")}`;
}

// Each passage once, as the page shows them.
function passagesOf({ retrieval }) {
  const keyOf = ({ document: name, start, end, text }) => JSON.stringify(name === null ? text : [name, start, end]);
  const all = retrieval.flatMap(({ neighbors }) => neighbors);
  return [...new Map(all.toReversed().map((one) => [keyOf(one), one])).values()].toReversed();
}

function describeTurn(turn, sources) {
  const chats = turn.mode === "chat", both = turn.answers.length > 1;
  const answers = turn.answers.map(({ reads, text }) => {
    const label = both ? `### ${reads ? "With" : "Without"} documents\n\n` : "";
    return label + (chats ? text : turn.question + text);
  });
  const passages = passagesOf(sources ?? { retrieval: [] }).map(describeSource);
  const sought = (sources?.retrieval ?? []).map(nameQuery).filter((words) => words !== "");
  return [chats ? `## Question\n\n${quoted(turn.question)}` : "## Text", ...answers,
    ...(sought.length + passages.length > 0 ? ["### Sources", ...sought, ...passages] : [])].join("\n\n");
}

async function read(id) {
  const kept = await readConversation(id);
  return { ...kept, sources: await readAllSources(id) };
}

// The branch that was looked at last.
export async function exportMarkdown(id) {
  const kept = await read(id);
  const sources = new Map(kept.sources.map((one) => [one.id, one]));
  const turns = new Conversation(kept).path().map((turn) => describeTurn(turn, sources.get(turn.id)));
  const facts = `${new Date(kept.head.made).toISOString().slice(0, 10)}, ${kept.head.settings.model}`;
  const text = [`# ${kept.head.title}`, facts, ...turns].join("\n\n");
  download(`${fileName(kept.head.title)}.md`, "text/markdown", `${text}\n`);
}

// Every branch, with passages and attention.
export async function exportJson(id) {
  const { head, turns, sources } = await read(id);
  const { title, made, changed, leaf, settings } = head;
  const ofTurn = new Map(sources.map(({ id: turn, retrieval, marks }) => [turn, { retrieval, marks }]));
  const all = turns.sort((a, b) => a.made - b.made).map(({ conversation, bytes, ...turn }) =>
    ({ ...turn, ...ofTurn.get(turn.id) }));
  const value = { title, made, changed, leaf, settings, turns: all };
  download(`${fileName(title)}.json`, "application/json", `${JSON.stringify(value, null, 1)}\n`);
}
