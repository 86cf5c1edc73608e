// The page: what its controls ask, and what becomes of the answers. It holds the text and the words, the server nothing,
// so that a server that was started again goes on where the former one was.

import { showAnswer } from "./answer.js";
import { hideCharts, showCharts } from "./charts.js";
import { Gone, Refused, ask, keepKey } from "./server.js";
import { parseVectors } from "./vectors.js";
import { showWords } from "./words.js";

const WORDS_AT_ONCE = 50;
const LOOK_MILLISECONDS = 2000;
const RETRY_MILLISECONDS = 500;
const TYPING_MILLISECONDS = 200;
const byId = (id) => document.getElementById(id);

const state = {
  heads: [],
  words: [], // {id, label, answer}: the words chosen after the text, with the answer that each was chosen from
  answer: null, // to the question that the controls make now; null while there is none
  waiting: true, // whether the question is to be asked once the server answers
  generating: false,
  asking: null, // cancels the question that is under way
  vectorRow: 0, // of the vectors to try
};

function findHead() {
  return state.heads[Number(byId("head").value)] || null;
}

function readsText() {
  return byId("by-text").checked;
}

function splitNames(text) {
  return (text.match(/"[^"]*"|[^,]+/g) || []).map((name) => name.trim()).filter(Boolean);
}

function readQuestion() {
  const { name, version } = findHead();
  const question = {
    model: name,
    version,
    k: Math.min(100, Math.max(1, Math.trunc(Number(byId("k").value)) || 1)),
    exact: byId("exact").checked,
    allow: splitNames(byId("allow").value),
    ban: splitNames(byId("ban").value),
  };
  if (!readsText()) return { ...question, contexts: parseVectors(byId("vectors").value) };
  return { ...question, text: byId("text").value, words: state.words.map((word) => word.id) };
}

function showStatus(text, isGood) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text; // read aloud when it changes alone
  status.className = isGood ? "good" : "bad";
}

function showProblem(text) {
  if (byId("problem").textContent !== text) byId("problem").textContent = text;
}

// Ask what the controls say now. True once it is answered; false where it was refused, or another question came between.
async function askNow() {
  state.asking?.abort();
  const asking = (state.asking = new AbortController());
  state.answer = null;
  state.waiting = true;
  if (!findHead()) return false;
  try {
    const answer = await (await ask("playground/next", readQuestion(), asking.signal)).json();
    Object.assign(state, { answer, waiting: false });
    showProblem("");
    showRows();
    showAnswerNow();
    refreshCommands();
    return true;
  } catch (error) {
    handleFailure(error, asking);
    return false;
  }
}

function handleFailure(error, asking) {
  if (error.name === "AbortError" || asking !== state.asking) return;
  if (error instanceof Gone) {
    showStatus(error.message, false);
    return; // it is asked again once the server answers
  }
  state.waiting = false;
  if (error instanceof Refused && error.wantsKey) byId("access").hidden = false;
  showProblem(error.message);
}

function showAnswerNow() {
  const row = Math.min(Number(byId("row").value) || 0, state.answer.rows.length - 1);
  showAnswer(state.answer, row, findHead()?.dense || "the dense layer", readsText() ? chooseWord : null);
}

function showRows() {
  const count = state.answer.rows.length;
  byId("row-part").hidden = count < 2;
  if (byId("row").options.length === count) return;
  byId("row").replaceChildren(...Array.from({ length: count }, (_, i) => new Option(`${i + 1} of ${count}`, i)));
}

function changeWords(words) {
  state.words = words;
  showWords(byId("text").value, words, (place) => chooseAgain(place));
  byId("back").disabled = byId("clear").disabled = !words.length;
}

function chooseAgain(place) {
  state.generating = false;
  changeWords(state.words.slice(0, place));
  askNow();
}

function addWord(candidate) {
  changeWords([...state.words, { id: candidate.id, label: candidate.label, answer: state.answer }]);
}

function chooseWord(candidate) {
  if (!state.answer) return;
  state.generating = false;
  addWord(candidate);
  askNow();
}

function pause(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}

// The answer to the present question, asked for until there is one; null where it was refused, or nobody waits.
async function awaitAnswer() {
  while (state.generating && !state.answer) {
    if ((await askNow()) || !state.waiting) break;
    await pause(RETRY_MILLISECONDS); // the server is gone, or another question came between
  }
  return state.generating ? state.answer : null;
}

async function generate() {
  setGenerating(true);
  for (let count = 0; count < WORDS_AT_ONCE; count += 1) {
    const answer = await awaitAnswer();
    const best = answer?.rows[0].head.candidates[0];
    if (!best || answer.ends.includes(best.id)) break;
    addWord(best);
    state.answer = null;
  }
  setGenerating(false);
  if (!state.answer) await askNow();
}

function setGenerating(generating) {
  state.generating = generating;
  byId("stop").disabled = !generating;
  byId("generate").disabled = generating || !readsText();
}

async function refreshCommands() {
  if (!byId("commands").open || !state.answer || state.generating) return;
  try {
    const commands = await (await ask("playground/snippets", readQuestion())).json();
    for (const name of ["curl", "python"]) byId(name).textContent = commands[name];
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

function showMode() {
  const head = findHead();
  byId("by-text").disabled = !head?.reads;
  if (head && !head.reads) byId("by-vectors").checked = true;
  byId("text-part").hidden = !readsText();
  byId("vectors-part").hidden = readsText();
  byId("generate").disabled = state.generating || !readsText();
  if (head) byId("k").max = Math.min(100, head.max_k);
}

function describeHead({ name, version, method, classes, reads }) {
  return `${name}, version ${version}: ${method}, ${classes.toLocaleString("en")} classes${reads ? "" : ", vectors alone"}`;
}

function showHeads(heads) {
  const texts = heads.map(describeHead);
  const shown = [...byId("head").options].map((option) => option.textContent);
  if (JSON.stringify(texts) !== JSON.stringify(shown)) {
    const before = shown[byId("head").value];
    byId("head").replaceChildren(...texts.map((text, place) => new Option(text, place)));
    const first = heads.findIndex((head) => head.reads);
    byId("head").value = texts.includes(before) ? texts.indexOf(before) : Math.max(first, 0);
  }
  state.heads = heads;
  showMode();
}

async function lookAtServer() {
  const overview = await (await ask("playground/heads")).json();
  byId("access").hidden = true;
  showHeads(overview.heads);
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

async function keepLooking() {
  if (!document.hidden) {
    try {
      await lookAtServer();
    } catch (error) {
      showStatus(error.message, false);
      if (error instanceof Refused && error.wantsKey) byId("access").hidden = false;
    }
  }
  setTimeout(keepLooking, LOOK_MILLISECONDS);
}

async function takeVector() {
  const { name, version } = findHead();
  const query = new URLSearchParams({ model: name, version, row: state.vectorRow });
  try {
    byId("vectors").value = (await (await ask(`playground/vectors?${query}`)).json()).text;
    state.vectorRow += 1;
    await askNow();
  } catch (error) {
    handleFailure(error, state.asking);
  }
}

function listen(id, event, act) {
  byId(id).addEventListener(event, act);
}

let typing = 0;
function askSoon() {
  clearTimeout(typing);
  typing = setTimeout(askNow, TYPING_MILLISECONDS);
}

function stopGenerating() {
  setGenerating(false);
}

listen("question", "submit", (event) => {
  event.preventDefault();
  stopGenerating();
  askNow();
});
listen("text", "input", () => {
  stopGenerating();
  changeWords([]); // they followed another text
  askSoon();
});
for (const id of ["vectors", "allow", "ban", "k"]) listen(id, "input", askSoon);
for (const id of ["exact", "by-text", "by-vectors", "head"])
  listen(id, "change", () => {
    stopGenerating();
    showMode();
    start();
  });
listen("row", "change", () => state.answer && showAnswerNow());
listen("sample", "click", takeVector);
listen("generate", "click", generate);
listen("stop", "click", stopGenerating);
listen("back", "click", () => chooseAgain(state.words.length - 1));
listen("clear", "click", () => chooseAgain(0));
listen("commands", "toggle", refreshCommands);
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
listen("access", "submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value);
  byId("key").value = "";
  lookAtServer().catch((error) => showStatus(error.message, false));
});
keepLooking();
