// Asks the server for its models and metrics every two seconds, and shows them. Texts of the server only ever become
// text, never markup.
import { MILLISECONDS, computePercentile, draw, readSeries, write } from "./metrics.js";

const SECONDS_BETWEEN = 2;
const SAMPLES_KEPT = 90;
const SAMPLES_OF_A_FIGURE = 5; // rates and percentiles are of the last so many intervals
const KEY_NAME = "shortlist-key";

const samples = new Map(); // name and version -> what was counted at each time
const byId = (id) => document.getElementById(id);

async function ask(path) {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  return fetch(path, { headers, cache: "no-store" });
}

// One sample for each version: requests, failures, and the buckets of their durations over all endpoints.
function countRequests(text) {
  const counts = new Map();
  for (const { name, labels, value } of readSeries(text)) {
    if (labels.model === undefined) continue;
    const id = JSON.stringify([labels.model, labels.version]);
    if (!counts.has(id)) counts.set(id, { requests: 0, failures: 0, buckets: new Map() });
    const count = counts.get(id);
    if (name === "shortlist_requests_total") {
      count.requests += value;
      if (labels.code !== "200") count.failures += value;
    } else if (name === "shortlist_request_duration_seconds_bucket") {
      const edge = labels.le === "+Inf" ? Infinity : Number(labels.le);
      count.buckets.set(edge, (count.buckets.get(edge) || 0) + value);
    }
  }
  return counts;
}

function remember(counts) {
  const now = performance.now();
  for (const id of samples.keys()) if (!counts.has(id)) samples.delete(id);
  for (const [id, count] of counts) {
    const kept = samples.get(id) || [];
    const before = kept[kept.length - 1];
    if (before && before.requests > count.requests) kept.length = 0; // the server was started again
    kept.push({ ...count, at: now });
    samples.set(id, kept.slice(-SAMPLES_KEPT));
  }
}

function computeRate(from, to) {
  return ((to.requests - from.requests) * MILLISECONDS) / (to.at - from.at);
}

function describeSpan(kept) {
  if (kept.length < 2) return {};
  const to = kept[kept.length - 1];
  const from = kept[Math.max(0, kept.length - 1 - SAMPLES_OF_A_FIGURE)];
  return { rate: computeRate(from, to), p50: computePercentile(from, to, 0.5), p99: computePercentile(from, to, 0.99) };
}

function describePrecision(model) {
  const live = model.served_precision;
  const best = live && live.at && live.at["1"];
  if (!best || !best.trials) return "no row measured yet";
  const { mean, low, high } = best.precision;
  return `${mean.toFixed(4)} (${low.toFixed(4)} to ${high.toFixed(4)}), ${live.rows} rows`;
}

function listFacts(model, kept) {
  const span = describeSpan(kept);
  const latest = kept[kept.length - 1];
  const facts = [
    ["Method", model.method],
    ["Classes", `${write(model.classes, 12)} of ${write(model.dim, 12)} numbers`],
    ["Runs on", [model.device, model.kernels].filter(Boolean).join(", ")],
    ["P@1 at its export", model.quality && model.quality.p_at_1 !== null ? model.quality.p_at_1.toFixed(4) : "exact"],
    ["P@1 of live rows", describePrecision(model)],
    ["Requests", latest ? `${write(latest.requests, 12)}, ${write(latest.failures, 12)} of them failed` : "none yet"],
    ["Requests a second", write(span.rate, 3)],
    ["Milliseconds, p50 and p99", `${write(span.p50, 3)}, ${write(span.p99, 3)}`],
  ];
  const promise = model.settings && model.settings.promise;
  if (promise) facts.splice(3, 0, ["Promise", String(promise)]);
  return facts;
}

function makeCard(model) {
  const card = byId("model").content.cloneNode(true).firstElementChild;
  const kept = samples.get(JSON.stringify([model.name, String(model.version)])) || [];
  const pairs = kept.slice(1).map((to, i) => [kept[i], to]);
  const alarm = model.served_precision && model.served_precision.alarm;
  const state = card.querySelector(".state");
  card.querySelector("h2").textContent = `${model.name}, version ${model.version}`;
  state.textContent = alarm ? "its precision on live rows fell under its promise" : model.reason || model.state;
  state.classList.add(model.state === "ready" && !alarm ? "good" : "bad");
  if (model.state !== "ready") return card;
  for (const [name, value] of listFacts(model, kept)) {
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    card.querySelector("dl").append(term, fact);
  }
  card.querySelector(".charts").append(
    draw("requests a second", pairs.map(([from, to]) => computeRate(from, to)), SAMPLES_KEPT),
    draw("p99, milliseconds", pairs.map(([from, to]) => computePercentile(from, to, 0.99)), SAMPLES_KEPT),
  );
  return card;
}

function showStatus(text, isGood) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text; // so that it is read aloud when it changes alone
  status.className = isGood ? "good" : "bad";
}

async function refresh() {
  const [ready, models, metrics] = await Promise.all([ask("readyz"), ask("v1/models"), ask("metrics")]);
  const refused = [models, metrics].find((response) => response.status === 401 || response.status === 403);
  byId("access").hidden = !refused;
  if (refused) {
    showStatus((await refused.json()).error, false);
    byId("models").replaceChildren();
    return;
  }
  remember(countRequests(await metrics.text()));
  const versions = (await models.json()).models.flatMap((model) => model.versions || [model]);
  byId("models").replaceChildren(...versions.map(makeCard));
  const reason = ready.ok ? "" : (await ready.json()).error || "not ready";
  showStatus(ready.ok ? "ready" : reason, ready.ok);
}

async function keepRefreshing() {
  if (!document.hidden) {
    try {
      await refresh();
    } catch {
      showStatus("the server does not answer; this page goes on asking", false);
    }
  }
  setTimeout(keepRefreshing, SECONDS_BETWEEN * MILLISECONDS);
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, byId("key").value);
  byId("key").value = "";
  refresh().catch(() => {});
});
keepRefreshing();
