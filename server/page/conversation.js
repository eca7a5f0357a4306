// server/page/conversation.js: the conversation that is open: a tree of turns. Turns of the same parent are versions of
// one question or of its answer; the path to the leaf is what is shown and sent.

import { keepLeaf, keepTurns, newId } from "./store.js";

const LONGEST_TITLE = 80;

function titleOf(question) {
  const line = question.trim().replace(/\s+/g, " ");
  return line.length > LONGEST_TITLE ? `${line.slice(0, LONGEST_TITLE - 1)}…` : line;
}

export class Conversation {
  // `kept` is what readConversation() gives; none: it has not begun.
  constructor(kept = { head: { id: newId(), title: "", leaf: "" }, turns: [] }) {
    this.id = kept.head.id;
    this.title = kept.head.title;
    this.leaf = kept.head.leaf;
    this.deleted = false; // what is still being written of it is not kept
    this.turns = new Map();
    this.below = new Map(); // of each parent its turns, in the order in which they were made
    for (const turn of kept.turns.toSorted((a, b) => a.made - b.made)) this.place(turn);
    this.sources = new Map(); // of turns that this page wrote or has looked at
  }

  place(turn) {
    this.turns.set(turn.id, turn);
    if (!this.below.has(turn.parent)) this.below.set(turn.parent, []);
    this.below.get(turn.parent).push(turn);
  }

  add(turn) {
    const added = { id: newId(), made: Date.now(), ...turn };
    if (this.turns.size === 0) this.title = titleOf(turn.question);
    this.place(added);
    this.leaf = added.id;
    return added;
  }

  // The turns from the first to the leaf.
  path() {
    const found = [];
    for (let turn = this.turns.get(this.leaf); turn; turn = this.turns.get(turn.parent)) found.push(turn);
    return found.reverse();
  }

  children(parent) {
    return this.below.get(parent) ?? [];
  }

  versions(turn) {
    return this.children(turn.parent);
  }

  // Shows a version, and below it what was asked last.
  choose(turn) {
    let last = turn;
    for (let below = [turn]; below.length > 0; below = this.children(last.id)) last = below.at(-1);
    this.leaf = last.id;
    return keepLeaf(this.id, this.leaf);
  }

  // Keeps a turn as it is now. Gives what keepTurns() gives.
  async keep(turn, sources, settings) {
    if (this.deleted) return "kept";
    this.sources.set(turn.id, sources);
    const head = { id: this.id, title: this.title, leaf: this.leaf, settings, size: this.turns.size };
    const record = (one) => ({ turn: one, sources: this.sources.get(one.id) ?? { retrieval: [], marks: [] } });
    const result = await keepTurns(head, [record(turn)]);
    return result === "gone" ? keepTurns(head, [...this.turns.values()].map(record)) : result;
  }
}
