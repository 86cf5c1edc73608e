// The next words by the head and by what it is held against, side by side.

import { write } from "../../overview/metrics.js";
import { formatShare, makeLabel, nameClass } from "./labels.js";

const byId = (id) => document.getElementById(id);

export function showAnswer(answer, row, otherName, choose) {
  const { head, dense } = answer.rows[row];
  const sides = [makeSide("The head", head, answer.times.head, answer.classes, choose)];
  if (dense) sides.push(makeSide(capitalise(otherName), dense, answer.times.dense, answer.classes, choose));
  keepFocus(byId("sides"), () => byId("sides").replaceChildren(...sides));
  byId("summary").textContent = summarise(answer, answer.rows[row], otherName);
  byId("answer-part").hidden = false;
}

// The button with the focus is replaced by the one in the same place, so that a keyboard can go on from there.
function keepFocus(part, change) {
  const place = [...part.querySelectorAll("button")].indexOf(document.activeElement);
  change();
  if (place >= 0) (part.querySelectorAll("button")[place] || part.querySelector("button"))?.focus();
}

function capitalise(name) {
  return name[0].toUpperCase() + name.slice(1);
}

function summarise(answer, { head, dense, agrees }, otherName) {
  const [best] = head.candidates;
  if (!best) return "no class is left to answer with";
  const verdict = !dense ? "" : agrees ? `; ${otherName} has the same best` : `; ${otherName} has another best: ${nameClass(dense.candidates[0])}`;
  return `best: ${nameClass(best).trim()}, ${formatShare(best.probability)}${verdict}`;
}

function makeSide(title, side, microseconds, classes, choose) {
  const part = document.createElement("div");
  part.append(makeTable(title, side, choose), makeFacts(side, microseconds, classes));
  return part;
}

function makeTable(title, side, choose) {
  const table = document.createElement("table");
  table.createCaption().textContent = title;
  const names = table.createTHead().insertRow();
  for (const name of ["", "word", "probability", "elsewhere"]) names.append(makeHeading(name));
  names.firstElementChild.textContent = "#";
  const body = table.createTBody();
  side.candidates.forEach((candidate, place) => fillRow(body.insertRow(), candidate, place, choose));
  return table;
}

function makeHeading(name) {
  const heading = document.createElement("th");
  heading.scope = "col";
  heading.textContent = name;
  return heading;
}

function fillRow(row, candidate, place, choose) {
  row.insertCell().textContent = place + 1;
  row.insertCell().append(makeChoice(candidate, choose));
  row.insertCell().append(makeBar(candidate.probability));
  row.insertCell().textContent = candidate.shared ? "" : "not there";
  if (!candidate.shared) row.className = "alone";
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

function makeFacts(side, microseconds, classes) {
  const list = document.createElement("dl");
  const facts = [
    ["Microseconds", write(microseconds, 3)],
    ["Classes scored", `${write(side.scored, 12)} of ${write(classes, 12)}`],
  ];
  if (side.risk !== null) facts.push(["Risk of a miss", side.risk ? formatShare(side.risk) : "none"]);
  for (const [name, value] of facts) {
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    list.append(term, fact);
  }
  return list;
}
