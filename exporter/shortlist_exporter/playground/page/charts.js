// Live latency and served precision of the chosen head, from the server's metrics.

import { MILLISECONDS, computePercentile, draw, readSeries, write } from "../../overview/metrics.js";

const SAMPLES_KEPT = 90;
const COMPUTE = "shortlist_phase_duration_seconds_bucket";
const byId = (id) => document.getElementById(id);
const NOTHING = { buckets: new Map() };
let samples = [];
let shownHead = "";

function readSample(text, { name, version }) {
  const sample = { buckets: new Map(), precision: {}, rows: 0 };
  for (const { name: series, labels, value } of readSeries(text)) {
    if (labels.model !== name || labels.version !== String(version)) continue;
    if (series === COMPUTE && labels.phase === "compute")
      sample.buckets.set(labels.le === "+Inf" ? Infinity : Number(labels.le), value);
    else if (series === "shortlist_precision" && labels.k === "1") sample.precision[labels.bound] = value;
    else if (series === "shortlist_precision_trials_total" && labels.k === "1") sample.rows = value;
  }
  return sample;
}

function countCalls(sample) {
  return sample.buckets.get(Infinity) || 0;
}

export function showCharts(text, head) {
  const id = JSON.stringify([head.name, head.version]);
  const sample = readSample(text, head);
  const last = samples[samples.length - 1];
  if (id !== shownHead || (last && countCalls(last) > countCalls(sample))) samples = []; // another head, or started again
  shownHead = id;
  samples = [...samples, sample].slice(-SAMPLES_KEPT);
  byId("charts").replaceChildren(drawLatency(), drawPrecision(sample));
}

// Only of the times in which something was computed: a point for each; the first is of all that was before.
function drawLatency() {
  const times = samples.map((to, i) => computePercentile(samples[i - 1] || NOTHING, to, 0.5) * MILLISECONDS);
  return drawLine("microseconds of a request's computation, median", times.filter(Number.isFinite));
}

// Over the whole width, however few the values; one alone is a level line.
function drawLine(title, values) {
  const points = values.length === 1 ? [...values, ...values] : values;
  return draw(title, points, Math.max(1, points.length - 1));
}

function drawPrecision(sample) {
  const figure = drawLine("served precision, P@1", samples.map(({ precision }) => precision.mean ?? NaN).filter(Number.isFinite));
  const { mean, low, high } = sample.precision;
  const text = Number.isFinite(mean)
    ? `served precision, P@1: ${mean.toFixed(4)} (${low.toFixed(4)} to ${high.toFixed(4)}) of ${write(sample.rows, 12)} words asked again`
    : "served precision, P@1: no word asked again yet";
  figure.querySelector("figcaption").textContent = text;
  figure.querySelector("svg").setAttribute("aria-label", text);
  return figure;
}

export function hideCharts(sentence) {
  byId("charts").textContent = sentence;
}
