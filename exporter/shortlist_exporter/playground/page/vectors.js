// Context vectors from text that people paste: JSON, or a line of numbers each.

const BETWEEN = /[\s,;[\]]+/;

export function parseVectors(text) {
  const lines = text.trim().startsWith("[") ? parseJson(text) : text.split("\n").filter((line) => line.trim()).map(parseLine);
  if (!lines.length) throw new Error("there is no vector: paste one, or take one that the head was not fitted on");
  return lines;
}

function parseJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("the vectors are no JSON: give [[...], ...], or a line of numbers each");
  }
  const rows = Array.isArray(value[0]) ? value : [value];
  if (!rows.every((row) => Array.isArray(row) && row.every(Number.isFinite)))
    throw new Error("the vectors have to be lists of numbers");
  return rows;
}

function parseLine(line, place) {
  const words = line.split(BETWEEN).filter(Boolean);
  const wrong = words.find((word) => !Number.isFinite(Number(word)));
  if (wrong !== undefined) throw new Error(`line ${place + 1} has '${wrong.slice(0, 20)}', which is no number`);
  return words.map(Number);
}
