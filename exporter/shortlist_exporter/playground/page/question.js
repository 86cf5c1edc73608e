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

let leftText = false; // whether texts were asked about until a head came that reads none

// Which controls go with the head: one that no model goes before is asked about vectors, and the next about texts again.
export function showMode(head) {
  byId("by-text").disabled = !head?.reads;
  if (head && !head.reads && readsText()) {
    leftText = true;
    byId("by-vectors").checked = true;
  } else if (head?.reads && leftText) {
    leftText = false;
    byId("by-text").checked = true;
  }
  byId("text-part").hidden = !readsText();
  byId("vectors-part").hidden = readsText();
  if (head) byId("k").max = Math.min(MAX_K, head.max_k);
}

function describeHead({ name, version, method, classes, reads }) {
  return `${name}, version ${version}: ${method}, ${classes.toLocaleString("en")} classes${reads ? "" : ", vectors alone"}`;
}

let left = ""; // the head that was chosen until it went: chosen again when it comes back, if none was meanwhile
byId("head").addEventListener("change", () => (left = ""));

function findPlace(heads, texts, before) {
  const again = texts.indexOf(texts.includes(left) ? left : before);
  const other = heads.findIndex((head) => before?.startsWith(`${head.name}, version `)); // of the same name
  return [again, other, heads.findIndex((head) => head.reads), 0].find((place) => place >= 0);
}

// The heads to choose from; the one that was chosen stays so. True where another is chosen now.
export function showHeads(heads) {
  const texts = heads.map(describeHead);
  const shown = [...byId("head").options].map((option) => option.textContent);
  if (JSON.stringify(texts) === JSON.stringify(shown)) return false;
  const before = shown[byId("head").value];
  const place = findPlace(heads, texts, before);
  if (texts.includes(left)) left = "";
  else if (!texts.includes(before)) left ||= before || "";
  byId("head").replaceChildren(...texts.map((text, number) => new Option(text, number)));
  byId("head").value = place;
  return texts[place] !== before;
}

export function showRows(count) {
  byId("row-part").hidden = count < 2;
  if (byId("row").options.length === count) return;
  byId("row").replaceChildren(...Array.from({ length: count }, (_, i) => new Option(`${i + 1} of ${count}`, i)));
}
