// server/page/store.js: conversations in the browser's database. A turn is a record of its own that only the tab which
// asked it writes, so that two tabs never overwrite each other. What a list or a request needs is apart from what is
// read when a turn is looked at: "turns" have texts, "sources" have passages and marks.

export const LIMITS = { conversations: 200, bytes: 100e6 };

const STORES = ["conversations", "turns", "sources"];
const place = new URL(".", location).pathname; // two servers below one proxy keep their own
const channel = "BroadcastChannel" in window ? new BroadcastChannel(`retro-conversations ${place}`) : null;
let changed = () => {};

// Works where crypto.randomUUID does not: on pages that come over http from another machine.
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function openDatabase() {
  const request = indexedDB.open(`retro-conversations ${place}`, 1);
  request.onupgradeneeded = () => {
    const [heads, ...parts] = STORES;
    request.result.createObjectStore(heads, { keyPath: "id" });
    for (const name of parts) request.result.createObjectStore(name, { keyPath: ["conversation", "id"] });
  };
  return settled(request);
}

// null: this browser keeps nothing.
const opened = (async () => {
  try {
    return await openDatabase();
  } catch {
    return null;
  }
})();
export const isKept = async () => (await opened) !== null;

async function transact(mode, work) {
  const database = await opened;
  if (!database) return null;
  const transaction = database.transaction(STORES, mode);
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  const [, result] = await Promise.all([done, work((name) => transaction.objectStore(name))]);
  if (mode === "readwrite") {
    channel?.postMessage("");
    changed();
  }
  return result;
}

// `listener` is called when conversations have changed, in this tab or another.
export function listenToChanges(listener) {
  changed = listener;
  if (channel) channel.onmessage = listener;
}

const allOf = (id) => IDBKeyRange.bound([id], [id, []]);

function erase(store, id) {
  store("conversations").delete(id);
  store("turns").delete(allOf(id));
  store("sources").delete(allOf(id));
}

// The oldest leave until the others are within the limits. The one that is open stays.
function makeRoom(store, heads, open) {
  const others = heads.filter(({ id }) => id !== open.id).sort((a, b) => a.changed - b.changed);
  let bytes = others.reduce((sum, head) => sum + head.bytes, open.bytes);
  while (others.length > 0 && (others.length + 1 > LIMITS.conversations || bytes > LIMITS.bytes)) {
    const oldest = others.shift();
    bytes -= oldest.bytes;
    erase(store, oldest.id);
  }
}

// Keeps turns of one conversation. `head` has its id, title, leaf and settings; each turn is {turn, sources}. Gives
// "gone" where others have deleted the conversation since it had `head.size` turns, and "full" where it alone reaches
// the limit: neither keeps anything.
export const keepTurns = (head, turns) => transact("readwrite", async (store) => {
  const heads = await settled(store("conversations").getAll());
  const known = heads.find(({ id }) => id === head.id);
  if (!known && head.size > turns.length) return "gone";
  const kept = { made: Date.now(), bytes: 0, size: 0, title: head.title, ...known };
  Object.assign(kept, { id: head.id, leaf: head.leaf, settings: head.settings, changed: Date.now() });
  const records = [];
  for (const { turn, sources } of turns) {
    const key = { conversation: head.id, id: turn.id };
    const before = await settled(store("turns").get([head.id, turn.id]));
    const bytes = JSON.stringify(turn).length + JSON.stringify(sources).length;
    kept.bytes += bytes - (before?.bytes ?? 0);
    kept.size += before ? 0 : 1;
    records.push(["turns", { ...turn, ...key, bytes }], ["sources", { ...sources, ...key }]);
  }
  if (kept.bytes > LIMITS.bytes) return "full";
  for (const [name, record] of records) store(name).put(record);
  store("conversations").put(kept);
  makeRoom(store, heads, kept);
  return "kept";
});

// Newest first.
export const listConversations = () => transact("readonly", async (store) => {
  const heads = await settled(store("conversations").getAll());
  return heads.sort((a, b) => b.changed - a.changed);
});

export const readConversation = (id) => transact("readonly", async (store) => ({
  head: await settled(store("conversations").get(id)),
  turns: await settled(store("turns").getAll(allOf(id))),
}));

export const readSources = (conversation, id) =>
  transact("readonly", (store) => settled(store("sources").get([conversation, id])));

export const readAllSources = (conversation) =>
  transact("readonly", (store) => settled(store("sources").getAll(allOf(conversation))));

// The ids of those that have the words in their title, a question or an answer.
export const searchConversations = (words) => transact("readonly", async (store) => {
  const wanted = words.toLocaleLowerCase();
  const has = (text) => text.toLocaleLowerCase().includes(wanted);
  const heads = await settled(store("conversations").getAll());
  const turns = await settled(store("turns").getAll());
  const found = turns.filter(({ question, answers }) => has(question) || answers.some(({ text }) => has(text)));
  return new Set([...heads.filter(({ title }) => has(title)).map(({ id }) => id),
    ...found.map(({ conversation }) => conversation)]);
});

const change = (id, values) => transact("readwrite", async (store) => {
  const known = await settled(store("conversations").get(id));
  if (known) store("conversations").put({ ...known, ...values });
});
export const renameConversation = (id, title) => change(id, { title });
// Which branch was looked at last.
export const keepLeaf = (id, leaf) => change(id, { leaf });

// Gives a function that puts it back.
export async function deleteConversation(id) {
  const gone = await transact("readwrite", async (store) => {
    const records = await Promise.all([settled(store("conversations").getAll(id)),
      settled(store("turns").getAll(allOf(id))), settled(store("sources").getAll(allOf(id)))]);
    erase(store, id);
    return records;
  });
  return () => transact("readwrite", async (store) => {
    STORES.forEach((name, i) => gone[i].forEach((record) => store(name).put(record)));
  });
}
