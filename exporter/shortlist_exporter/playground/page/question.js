// What the controls say, as a question to the server.

import { parseVectors } from "./vectors.js";

const MAX_K = 100;
const byId = (id) => document.getElementById(id);

export function readsText() {
  return byId("by-text").checked;
}

export function readQuestion({ name, version }, words) {
  const question = {
    model: name,
    version,
    k: Math.min(MAX_K, Math.max(1, Math.trunc(Number(byId("k").value)) || 1)),
    exact: byId("exact").checked,
    allow: splitNames(byId("allow").value),
    ban: splitNames(byId("ban").value),
  };
  if (!readsText()) return { ...question, contexts: parseVectors(byId("vectors").value) };
  return { ...question, text: byId("text").value, words: words.map((word) => word.id) };
}

// Names stand between commas; one in double quotes may hold commas itself.
function splitNames(text) {
  return (text.match(/"[^"]*"|[^,]+/g) || []).map((name) => name.trim()).filter(Boolean);
}

// Which controls go with the head: one that no model goes before is asked about vectors.
export function showMode(head) {
  byId("by-text").disabled = !head?.reads;
  if (head && !head.reads) byId("by-vectors").checked = true;
  byId("text-part").hidden = !readsText();
  byId("vectors-part").hidden = readsText();
  if (head) byId("k").max = Math.min(MAX_K, head.max_k);
}

function describeHead({ name, version, method, classes, reads }) {
  return `${name}, version ${version}: ${method}, ${classes.toLocaleString("en")} classes${reads ? "" : ", vectors alone"}`;
}

// The heads to choose from; the one that was chosen stays so. True where another is chosen now.
export function showHeads(heads) {
  const texts = heads.map(describeHead);
  const shown = [...byId("head").options].map((option) => option.textContent);
  if (JSON.stringify(texts) === JSON.stringify(shown)) return false;
  const before = shown[byId("head").value];
  const first = heads.findIndex((head) => head.reads);
  byId("head").replaceChildren(...texts.map((text, place) => new Option(text, place)));
  byId("head").value = texts.includes(before) ? texts.indexOf(before) : Math.max(first, 0);
  return !texts.includes(before);
}

export function showRows(count) {
  byId("row-part").hidden = count < 2;
  if (byId("row").options.length === count) return;
  byId("row").replaceChildren(...Array.from({ length: count }, (_, i) => new Option(`${i + 1} of ${count}`, i)));
}
