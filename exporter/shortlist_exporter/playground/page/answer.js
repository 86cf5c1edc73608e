// The next words by the head and by what it is held against, side by side.

import { write } from "../../overview/metrics.js";
import { capitalise, formatShare, makeLabel, nameClass } from "./labels.js";

const byId = (id) => document.getElementById(id);

export function showAnswer(answer, row, otherName, choose) {
  const { head, dense } = answer.rows[row];
  const sides = [makeSide("The head", head, answer.times.head, answer.classes, choose)];
  if (dense) sides.push(makeSide(capitalise(otherName), dense, answer.times.dense, answer.classes, choose));
  keepFocus(byId("sides"), () => byId("sides").replaceChildren(...sides));
  byId("tiles").replaceChildren(...listTiles(answer, answer.rows[row], otherName).map(makeTile));
  byId("summary").textContent = summarise(answer.rows[row], otherName);
  byId("sides-hint").hidden = !choose;
}

// Where no answer goes with what the controls say, the former one is not shown either.
export function hideAnswer() {
  for (const id of ["sides", "tiles", "summary"]) byId(id).replaceChildren();
  byId("sides-hint").hidden = true;
}

// The button with the focus is replaced by the one in the same place, so that a keyboard can go on from there.
function keepFocus(part, change) {
  const place = [...part.querySelectorAll("button")].indexOf(document.activeElement);
  change();
  if (place >= 0) (part.querySelectorAll("button")[place] || part.querySelector("button"))?.focus();
}

function summarise({ head, dense, agrees }, otherName) {
  const [best] = head.candidates;
  if (!best) return "No class is left to answer with.";
  const other = !dense ? "" : agrees ? `; ${otherName} says the same` : `; ${otherName} says ${quote(dense.candidates[0])}`;
  return `Best: ${quote(best)}, ${formatShare(best.probability)}${other}.`;
}

function quote(candidate) {
  return candidate ? `“${nameClass(candidate).trim() || " "}”` : "nothing";
}

// What strikes first: whether both agree, how much sooner the head is done, and how little it looked at.
function listTiles({ times, classes }, { head, dense, agrees }, otherName) {
  const tiles = [];
  if (dense) {
    const both = head.candidates.filter((candidate) => candidate.place !== null).length;
    const lists = `${both} of ${head.candidates.length} words are in both lists`;
    tiles.push([agrees ? "same best" : "another best", lists, agrees ? "good" : "bad"]);
    const pair = `${write(times.head, 3)} μs instead of ${write(times.dense, 3)} μs`;
    tiles.push([`${write(times.dense / times.head, 2)} times`, `as fast as ${otherName}: ${pair}`]);
  }
  tiles.push([write(head.scored, 12), `of ${write(classes, 12)} classes scored${describeRisk(head.risk)}`]);
  return tiles;
}

function describeRisk(risk) {
  if (risk === null) return "";
  return risk ? `; risk ${formatShare(risk)} that the best is missed` : "; no risk that the best is missed";
}

function makeTile([value, name, className]) {
  const tile = document.createElement("div");
  const term = document.createElement("dt");
  const figure = document.createElement("dd");
  term.textContent = name;
  figure.textContent = value;
  if (className) figure.className = className;
  tile.append(term, figure);
  return tile;
}

function makeSide(title, side, microseconds, classes, choose) {
  const part = document.createElement("div");
  const table = document.createElement("table");
  const heading = document.createElement("strong");
  const facts = document.createElement("span");
  heading.textContent = title;
  facts.textContent = `${write(microseconds, 3)} μs, ${write(side.scored, 12)} of ${write(classes, 12)} scored`;
  table.createCaption().append(heading, facts);
  const names = table.createTHead().insertRow();
  names.append(...["#", "word", "probability"].map(makeHeading));
  const body = table.createTBody();
  side.candidates.forEach((candidate, place) => fillRow(body.insertRow(), candidate, place + 1, choose));
  part.append(table);
  return part;
}

function makeHeading(name) {
  const heading = document.createElement("th");
  heading.scope = "col";
  heading.textContent = name;
  return heading;
}

function fillRow(row, candidate, place, choose) {
  const cell = document.createElement("div");
  row.insertCell().textContent = place;
  row.insertCell().append(cell);
  row.insertCell().append(makeBar(candidate.probability));
  cell.className = "choice";
  cell.append(makeChoice(candidate, choose));
  if (candidate.place === null) row.className = "alone";
  if (candidate.place !== place) cell.append(makeTag(candidate.place));
}

// In another place on the other side, or not there.
function makeTag(place) {
  const tag = document.createElement("span");
  tag.className = "tag";
  tag.textContent = place === null ? "only here" : `#${place}`;
  if (place === null) return tag;
  const more = document.createElement("span");
  more.className = "unseen";
  more.textContent = " on the other side";
  tag.title = `place ${place} on the other side`;
  tag.append(more);
  return tag;
}

function makeChoice(candidate, choose) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(makeLabel(candidate));
  button.title = `class ${candidate.id}`;
  button.disabled = !choose;
  if (choose) button.addEventListener("click", () => choose(candidate));
  return button;
}

function makeBar(probability) {
  const bar = document.createElement("span");
  const fill = document.createElement("i");
  const text = document.createElement("span");
  bar.className = "bar";
  fill.style.width = `${100 * (probability || 0)}%`;
  text.textContent = formatShare(probability);
  bar.append(fill, text);
  return bar;
}
