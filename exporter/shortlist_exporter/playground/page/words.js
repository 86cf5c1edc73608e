// The words that follow the text: each knows its candidates, and goes back to before it when pressed.

import { formatShare, makeLabel, nameClass } from "./labels.js";

const SHOWN = 5;
const byId = (id) => document.getElementById(id);

export function showWords(text, words, goBack) {
  byId("story-part").hidden = !words.length;
  byId("prompt").textContent = text;
  const focused = [...byId("words").children].indexOf(document.activeElement);
  byId("words").replaceChildren(...words.map((word, place) => makeWord(word, place, words.length, goBack)));
  hideCandidates();
  if (focused >= 0) (byId("words").children[focused] || byId("words").lastElementChild || byId("text")).focus();
}

function makeWord(word, place, count, goBack) {
  const button = document.createElement("button");
  const text = document.createElement("bdi");
  button.type = "button";
  button.className = word.answer.rows[0].agrees ? "word" : "word differs";
  button.tabIndex = place === count - 1 ? 0 : -1;
  text.textContent = nameClass(word);
  button.append(text);
  button.addEventListener("mouseenter", () => showCandidates(button, word));
  button.addEventListener("focus", () => showCandidates(button, word));
  button.addEventListener("mouseleave", hideCandidates);
  button.addEventListener("blur", hideCandidates);
  button.addEventListener("click", () => goBack(place));
  return button;
}

// One word at a time is reached with Tab, the others from there with the arrow keys.
byId("words").addEventListener("keydown", (event) => {
  const words = [...byId("words").children];
  const place = words.indexOf(document.activeElement);
  const target = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: words.length - 1 }[event.key];
  if (words[target] === undefined) return;
  event.preventDefault();
  for (const word of words) word.tabIndex = -1;
  words[target].tabIndex = 0;
  words[target].focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideCandidates();
});

function showCandidates(button, word) {
  const panel = byId("candidates");
  const { head, dense } = word.answer.rows[0];
  const sides = document.createElement("div");
  sides.className = "sides";
  sides.append(makeList("head", head));
  if (dense) sides.append(makeList("dense", dense));
  panel.replaceChildren(sides);
  panel.hidden = false;
  button.setAttribute("aria-describedby", "candidates");
  placePanel(panel, button.getBoundingClientRect());
}

function makeList(title, side) {
  const part = document.createElement("div");
  const heading = document.createElement("strong");
  const list = document.createElement("ol");
  heading.textContent = title;
  list.append(...side.candidates.slice(0, SHOWN).map(makeItem));
  part.append(heading, list);
  return part;
}

function makeItem(candidate) {
  const item = document.createElement("li");
  const share = document.createElement("span");
  share.textContent = formatShare(candidate.probability) + (candidate.shared ? "" : ", only here");
  item.className = candidate.shared ? "" : "alone";
  item.append(makeLabel(candidate), share);
  return item;
}

function placePanel(panel, place) {
  const gap = 6;
  const left = Math.min(place.left, window.innerWidth - panel.offsetWidth - gap);
  const below = place.bottom + gap;
  const fits = below + panel.offsetHeight < window.innerHeight;
  panel.style.left = `${Math.max(gap, left)}px`;
  panel.style.top = `${fits ? below : Math.max(gap, place.top - panel.offsetHeight - gap)}px`;
}

export function hideCandidates() {
  byId("candidates").hidden = true;
  for (const word of byId("words").children) word.removeAttribute("aria-describedby");
}
