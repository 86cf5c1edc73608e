// Context vectors from text that people paste: JSON, a list of JSON a line, or a line of numbers each.

const MAX_VECTORS = 20;
const BETWEEN = /[\s,;[\]]+/;

export function parseVectors(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const rows = text.trim().startsWith("[") ? parseJson(text, lines) : lines.map(parseLine);
  if (!rows.length) throw new Error("there is no vector: paste one, or take one that the head was not fitted on");
  if (rows.length > MAX_VECTORS) throw new Error(`there are ${rows.length} vectors: give ${MAX_VECTORS} at most`);
  return rows;
}

function parseJson(text, lines) {
  const value = readJson(text) ?? readJson(`[${lines.join(",")}]`);
  if (!value) throw new Error("the vectors are no JSON: give [[...], ...], or a line of numbers each");
  const rows = Array.isArray(value[0]) ? value : [value];
  if (!rows.every((row) => Array.isArray(row) && row.every(Number.isFinite)))
    throw new Error("the vectors have to be lists of numbers");
  return rows;
}

// A value, or null where the text is none.
function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function parseLine(line, place) {
  const words = line.split(BETWEEN).filter(Boolean);
  const wrong = words.find((word) => !Number.isFinite(Number(word)));
  if (wrong !== undefined) throw new Error(`line ${place + 1} has '${wrong.slice(0, 20)}', which is no number`);
  return words.map(Number);
}
