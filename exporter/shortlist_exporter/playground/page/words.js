// The words that follow the text: each knows its candidates, and goes back to before it when pressed.

import { capitalise, formatShare, makeLabel, nameClass } from "./labels.js";

const SHOWN = 5;
const byId = (id) => document.getElementById(id);
let shownButton = null; // whose candidates are shown

function listButtons() {
  return [...byId("words").querySelectorAll("button")];
}

export function showWords(text, words, goBack) {
  const focused = listButtons().indexOf(document.activeElement);
  const leavesStory = !words.length && byId("story-part").contains(document.activeElement);
  byId("story-part").hidden = !words.length;
  byId("prompt").textContent = text;
  hideCandidates();
  byId("words").replaceChildren(...words.flatMap((word, place) => makeWord(word, place, words.length, goBack)));
  byId("story").scrollTop = byId("story").scrollHeight;
  if (leavesStory) byId("text").focus();
  else if (focused >= 0) (listButtons()[focused] || listButtons().at(-1)).focus();
}

// The button of a word, the space before it where lines may break, and the ends of lines that the word stands for.
function makeWord(word, place, count, goBack) {
  const button = document.createElement("button");
  const text = document.createElement("bdi");
  button.type = "button";
  button.className = word.answer.rows[0].agrees ? "word" : "word differs";
  button.tabIndex = place === count - 1 ? 0 : -1;
  const name = nameClass(word);
  const space = name.startsWith(" ") && name.length > 1 ? " " : "";
  text.textContent = name.slice(space.length);
  button.append(text);
  listenToWord(button, word, () => goBack(place));
  const ends = [...(word.label || "")].filter((character) => character === "\n").slice(0, 2);
  return [space, button, ...ends.map(() => document.createElement("br"))];
}

// A finger cannot point without pressing: its first touch shows the candidates, the next one goes back.
function listenToWord(button, word, goBack) {
  let wasShown = false;
  button.addEventListener("pointerdown", () => (wasShown = shownButton === button));
  button.addEventListener("pointerenter", (event) => event.pointerType !== "touch" && showCandidates(button, word));
  button.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && hideCandidates());
  button.addEventListener("focus", () => showCandidates(button, word));
  button.addEventListener("blur", hideCandidates);
  button.addEventListener("click", (event) => {
    if (event.pointerType !== "touch" || wasShown) goBack();
    else showCandidates(button, word);
  });
}

// One word at a time is reached with Tab, the others from there with the arrow keys.
byId("words").addEventListener("keydown", (event) => {
  const words = listButtons();
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
document.addEventListener("scroll", () => shownButton && placePanel(), { capture: true, passive: true });

function showCandidates(button, word) {
  const panel = byId("candidates");
  const { head, dense } = word.answer.rows[0];
  const sides = document.createElement("div");
  hideCandidates();
  sides.className = "sides";
  sides.append(makeList("The head", head));
  if (dense) sides.append(makeList(capitalise(word.other), dense));
  panel.replaceChildren(sides);
  panel.hidden = false;
  shownButton = button;
  button.setAttribute("aria-describedby", "candidates");
  placePanel();
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
  const isAlone = candidate.place === null;
  share.textContent = formatShare(candidate.probability);
  item.append(makeLabel(candidate), share);
  if (isAlone) {
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = "only here";
    item.className = "alone";
    item.append(tag);
  }
  return item;
}

function placePanel() {
  const panel = byId("candidates");
  const place = shownButton.getBoundingClientRect();
  const gap = 6;
  const left = Math.min(place.left, window.innerWidth - panel.offsetWidth - gap);
  const below = place.bottom + gap;
  const fits = below + panel.offsetHeight < window.innerHeight;
  panel.style.left = `${Math.max(gap, left)}px`;
  panel.style.top = `${fits ? below : Math.max(gap, place.top - panel.offsetHeight - gap)}px`;
}

function hideCandidates() {
  byId("candidates").hidden = true;
  shownButton?.removeAttribute("aria-describedby");
  shownButton = null;
}
