// Labels are anybody's text: they become text nodes in an isolated direction, never markup, with signs for what would
// not be seen or would move other text.

const MAX_CHARACTERS = 60;
const SIGNS = { "\n": "⏎", "\r": "⏎", "\t": "⇥" };
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function printLabel(label) {
  const cut = [...label].length > MAX_CHARACTERS ? `${[...label].slice(0, MAX_CHARACTERS).join("")}…` : label;
  return cut.replace(UNSEEN, (c) => SIGNS[c] || `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function nameClass({ id, label }) {
  return label ? printLabel(label) : `class ${id}`;
}

// A <bdi> of the label, its leading space marked by a sign that is not read aloud.
export function makeLabel(candidate) {
  const element = document.createElement("bdi");
  const name = nameClass(candidate);
  if (name.startsWith(" ")) {
    const sign = document.createElement("span");
    sign.className = "space";
    sign.setAttribute("aria-hidden", "true");
    sign.textContent = "␣";
    element.append(sign, name.slice(1) || " ");
  } else {
    element.textContent = name;
  }
  return element;
}

export function capitalise(name) {
  return name[0].toUpperCase() + name.slice(1);
}

export function formatShare(probability) {
  if (probability === null) return "none";
  const percent = 100 * probability;
  return percent >= 0.01 ? `${percent.toFixed(percent < 10 ? 2 : 1)}%` : "<0.01%";
}
