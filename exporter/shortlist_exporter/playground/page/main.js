// The page: what its controls ask, and what becomes of the answers. It holds the text and the words, the server nothing,
// so that a server that was started again goes on where the former one was.

import { hideAnswer, showAnswer } from "./answer.js";
import { hideCharts, showCharts } from "./charts.js";
import { readQuestion, readsText, showHeads, showMode, showRows } from "./question.js";
import { Gone, Refused, ask, keepKey } from "./server.js";
import { showWords } from "./words.js";

const WORDS_AT_ONCE = 50;
const LOOK_MILLISECONDS = 2000;
const RETRY_MILLISECONDS = 500;
const TYPING_MILLISECONDS = 200;
const LATE_MILLISECONDS = 1000; // after which the page says that what it shows is not the answer to the question
const byId = (id) => document.getElementById(id);

const state = {
  heads: [],
  words: [], // {id, label, answer, other}: the words chosen after the text, with the answer that each was chosen from
  answer: null, // to the question that the controls make now; null while there is none
  waiting: true, // whether the question is to be asked once the server answers
  wantsKey: false, // whether the question was refused for want of a key
  run: 0, // of generating: each has a number of its own
  generating: false,
  asking: null, // cancels the question that is under way
  vectorRow: 0, // of the vectors to try
};

function findHead() {
  return state.heads[Number(byId("head").value)] || null;
}

// What the head is held against.
function nameOther() {
  return findHead()?.dense || "the dense layer";
}

function showStatus(text, isGood) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text; // read aloud when it changes alone
  status.className = isGood ? "good" : "bad";
}

function showProblem(text) {
  if (byId("problem").textContent !== text) byId("problem").textContent = text;
}

function showAccess() {
  const access = byId("access");
  const hidden = !state.wantsKey;
  if (access.hidden !== hidden) access.hidden = hidden;
}

// Ask what the controls say now. True once it is answered; false where it was not, or another question came between.
async function askNow() {
  state.asking?.abort();
  clearTimeout(typing);
  showLate(false);
  const asking = (state.asking = new AbortController());
  state.answer = null;
  state.waiting = !findHead();
  if (state.waiting) return false;
  late = setTimeout(showLate, LATE_MILLISECONDS, true);
  try {
    const answer = await (await ask("playground/next", readQuestion(findHead(), state.words), asking.signal)).json();
    if (asking !== state.asking) return false;
    Object.assign(state, { answer, wantsKey: false });
    showAccess();
    showProblem("");
    showRows(answer.rows.length);
    showAnswerNow();
    refreshCommands();
    return true;
  } catch (error) {
    if (asking === state.asking) handleFailure(error);
    return false;
  } finally {
    if (asking === state.asking) showLate(false);
  }
}

let late = 0;
function showLate(isLate) {
  clearTimeout(late);
  byId("answer-part").setAttribute("aria-busy", isLate);
}

function handleFailure(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Gone) {
    showStatus(error.message, false);
    state.waiting = true;
    return;
  }
  state.wantsKey = error instanceof Refused && error.wantsKey;
  showAccess();
  showProblem(error.message);
  hideAnswer();
}

function showAnswerNow() {
  const row = Math.min(Number(byId("row").value) || 0, state.answer.rows.length - 1);
  showAnswer(state.answer, row, nameOther(), readsText() ? chooseWord : null);
}

function changeWords(words) {
  state.words = words;
  showWords(byId("text").value, words, goBack);
}

function goBack(place) {
  stopGenerating();
  changeWords(state.words.slice(0, Math.max(place, 0)));
  askNow();
}

function addWord({ id, label }) {
  changeWords([...state.words, { id, label, answer: state.answer, other: nameOther() }]);
}

function chooseWord(candidate) {
  if (!state.answer) return;
  stopGenerating();
  addWord(candidate);
  askNow();
}

function pause(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}

// The answer to the present question, asked for until there is one; null where it was refused, or the run is over.
async function awaitAnswer(run) {
  while (run === state.run && !state.answer) {
    if ((await askNow()) || run !== state.run || !state.waiting) break;
    await pause(RETRY_MILLISECONDS);
  }
  return run === state.run ? state.answer : null;
}

async function generate() {
  const run = (state.run += 1);
  showGenerating(true);
  for (let count = 0; count < WORDS_AT_ONCE; count += 1) {
    const answer = await awaitAnswer(run);
    const best = answer?.rows[0].head.candidates[0];
    if (run !== state.run || !best || answer.ends.includes(best.id)) break;
    addWord(best);
    state.answer = null;
  }
  if (run !== state.run) return;
  stopGenerating();
  if (!state.answer && !byId("problem").textContent) await askNow();
}

// A control that goes out of use gives the focus to the one that takes its place.
function showGenerating(generating) {
  const focused = document.activeElement;
  state.generating = generating;
  byId("stop").disabled = !generating;
  byId("generate").disabled = generating || !readsText();
  if (generating && focused === byId("generate")) byId("stop").focus();
  if (!generating && focused === byId("stop")) byId("generate").focus();
  byId("summary").setAttribute("aria-live", generating ? "off" : "polite"); // not fifty words aloud
}

function stopGenerating() {
  if (!state.generating) return;
  state.run += 1;
  showGenerating(false);
}

async function refreshCommands() {
  if (!byId("commands").open || !state.answer || state.generating) return;
  try {
    const commands = await (await ask("playground/snippets", readQuestion(findHead(), state.words))).json();
    for (const name of ["curl", "python"]) byId(name).textContent = commands[name];
    byId("copy-note").textContent = "";
  } catch {
    // the question itself says what is wrong
  }
}

async function copy(name) {
  try {
    await navigator.clipboard.writeText(byId(name).textContent);
    byId("copy-note").textContent = "copied";
  } catch {
    byId("copy-note").textContent = "the browser does not let this page copy: select the text and copy it";
  }
}

function showControls() {
  showMode(findHead());
  byId("generate").disabled = state.generating || !readsText();
}

async function lookAtServer() {
  const overview = await (await ask("playground/heads")).json();
  const changed = showHeads(overview.heads);
  state.heads = overview.heads;
  state.waiting ||= changed;
  showControls();
  if (findHead() && !readsText()) stopGenerating(); // of another head's vectors no words come
  showAccess();
  const reader = overview.body ? `; texts are read by ${overview.body}` : "; no model reads texts here: paste vectors";
  showStatus(overview.waits || `ready${reader}`, !overview.waits);
  if (state.waiting && findHead() && !state.generating) await start();
  if (findHead()) await lookAtMetrics();
}

async function start() {
  if (!readsText() && !byId("vectors").value.trim()) await takeVector();
  else await askNow();
}

async function lookAtMetrics() {
  try {
    showCharts(await (await ask("metrics")).text(), findHead());
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    hideCharts(error.message);
  }
}

async function lookAgain() {
  try {
    await lookAtServer();
  } catch (error) {
    showStatus(error.message, false);
    if (!(error instanceof Refused && error.wantsKey)) return;
    state.wantsKey = true;
    showAccess();
  }
}

async function keepLooking() {
  if (!document.hidden) await lookAgain();
  setTimeout(keepLooking, LOOK_MILLISECONDS);
}

async function takeVector() {
  const { name, version } = findHead();
  const query = new URLSearchParams({ model: name, version, row: state.vectorRow });
  try {
    byId("vectors").value = (await (await ask(`playground/vectors?${query}`)).json()).text;
    state.vectorRow += 1;
  } catch (error) {
    handleFailure(error);
    return;
  }
  await askNow();
}

function listen(id, event, act) {
  byId(id).addEventListener(event, act);
}

let typing = 0;
function askSoon() {
  stopGenerating();
  clearTimeout(typing);
  typing = setTimeout(askNow, TYPING_MILLISECONDS);
}

listen("question", "submit", (event) => {
  event.preventDefault();
  stopGenerating();
  askNow();
});
listen("text", "input", () => {
  changeWords([]); // they followed another text
  askSoon();
});
for (const id of ["vectors", "allow", "ban", "k"]) listen(id, "input", askSoon);
for (const id of ["exact", "by-text", "by-vectors", "head"])
  listen(id, "change", () => {
    stopGenerating();
    showControls();
    start();
  });
listen("row", "change", () => state.answer && showAnswerNow());
listen("sample", "click", takeVector);
listen("generate", "click", generate);
listen("stop", "click", () => {
  stopGenerating();
  if (!state.answer) askNow();
});
listen("back", "click", () => goBack(state.words.length - 1));
listen("clear", "click", () => goBack(0));
listen("commands", "toggle", refreshCommands);
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
listen("access", "submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value);
  byId("key").value = "";
  Object.assign(state, { waiting: true, wantsKey: false });
  showProblem("");
  lookAgain();
});
keepLooking();
