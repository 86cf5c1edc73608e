// Prometheus' text, figures of its histograms, and small charts: what the pages of a server share.

export const MILLISECONDS = 1000;
const SERIES = /^(shortlist_[a-z0-9_]+)(?:\{(.*)\})? ([^ ]+)$/;
const LABEL = /([a-z0-9_]+)="((?:[^"\\]|\\.)*)"/g;

export function* readSeries(text) {
  for (const line of text.split("\n")) {
    const match = SERIES.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] || "").matchAll(LABEL))
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    yield { name: match[1], labels, value: Number(match[3]) };
  }
}

// The duration in milliseconds that a share of the requests between two samples stayed under; NaN without requests.
export function computePercentile(from, to, share) {
  const edges = [...to.buckets.keys()].sort((a, b) => a - b);
  const counts = edges.map((edge) => to.buckets.get(edge) - (from.buckets.get(edge) || 0));
  const total = counts[counts.length - 1];
  const wanted = share * total;
  const place = counts.findIndex((count) => count >= wanted);
  if (!(total > 0) || place < 0) return NaN;
  const low = place ? edges[place - 1] : 0;
  const below = place ? counts[place - 1] : 0;
  if (edges[place] === Infinity) return low * MILLISECONDS;
  return (low + ((edges[place] - low) * (wanted - below)) / (counts[place] - below)) * MILLISECONDS;
}

export function write(value, digits) {
  return Number.isFinite(value) ? value.toLocaleString("en", { maximumSignificantDigits: digits }) : "none yet";
}

export function draw(title, values, points) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const finite = values.filter(Number.isFinite);
  const largest = Math.max(...finite, 0);
  const text = finite.length ? `${title}: ${write(finite[finite.length - 1], 3)}, at most ${write(largest, 3)}` : `${title}: none yet`;
  picture.setAttribute("viewBox", `0 0 ${points} 10`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", text);
  const offset = points + 1 - values.length; // the last one is at the right edge
  const places = values.map((value, i) => [offset + i, 9.5 - (9 * value) / (largest || 1)]);
  line.setAttribute("points", places.filter(([, y]) => Number.isFinite(y)).map((point) => point.join()).join(" "));
  caption.textContent = text;
  picture.append(line);
  figure.append(picture, caption);
  return figure;
}
