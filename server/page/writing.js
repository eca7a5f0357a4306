// server/page/writing.js: one answer from its request to its last event: text, sources and marks as they come, and how
// long it took.

import { Refusal, streamEvents } from "./server.js";

const spoken = document.querySelector("#spoken");
const number = (value) => value.toLocaleString("en");
const secondsOf = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;

// Writes into the `i`-th answer of an entry. Gives the refusal where there was one.
export async function writeAnswer(entry, i, body, signal) {
  const path = body.messages ? "v1/chat/completions" : "v1/completions";
  const watch = { start: performance.now(), first: 0, last: 0, usage: null, finish: "", seed: body.seed };
  const answer = entry.answers[i], speaks = i === 0;
  const marks = (entry.heard.marks[i] = {});
  let refusal = null;
  answer.begin();
  try {
    for await (const event of streamEvents(path, body, signal)) {
      take(event, entry, answer, watch, marks);
      if (speaks) speak(answer.text, false);
    }
    answer.mark(marks, entry.sources);
  } catch (problem) {
    if (problem.name === "AbortError") watch.finish = "stopped";
    else if (problem instanceof Refusal) refusal = problem;
    else throw problem;
  } finally {
    answer.end(describeWatch(watch), watch.finish);
    if (speaks) speak(answer.text, true);
  }
  return refusal;
}

function take(event, entry, answer, watch, marks) {
  const choice = event.choices[0];
  const text = choice?.text ?? choice?.delta?.content ?? "";
  if (text || choice?.delta?.reasoning_content) {
    watch.first ||= performance.now();
    watch.last = performance.now();
  }
  if (event.retrieval) entry.addSources(event.retrieval);
  if (choice?.delta?.reasoning_content) answer.think(choice.delta.reasoning_content);
  if (text) answer.append(text);
  if (choice?.finish_reason) watch.finish = choice.finish_reason;
  if (event.usage) watch.usage = event.usage;
  watch.generation ??= event.system_fingerprint?.match(/_g(\d+)$/)?.[1];
  if (event.attention) marks.attention = event.attention;
  if (event.compare) marks.compare = event.compare[0];
  if (event.support) marks.support = event.support;
  if (event.citations) marks.citations = event.citations;
}

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
