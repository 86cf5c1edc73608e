// Asks the server. A failure is either an answer that says why (Refused) or no answer at all (Gone).

const KEY_NAME = "shortlist-key";
const NOT_READY = 503;

export class Refused extends Error {
  constructor(sentence, wantsKey) {
    super(sentence);
    this.wantsKey = wantsKey;
  }
}

export class Gone extends Error {}

export function keepKey(key) {
  sessionStorage.setItem(KEY_NAME, key);
}

export async function ask(path, body, signal) {
  const response = await send(path, body, signal);
  if (response.ok) return response;
  const sentence = await readSentence(response);
  if (response.status === NOT_READY) throw new Gone(sentence);
  throw new Refused(sentence, response.status === 401 || response.status === 403);
}

async function send(path, body, signal) {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers, signal, cache: "no-store" };
  if (body) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Gone("the server does not answer; this page goes on asking");
  }
}

async function readSentence(response) {
  try {
    return (await response.json()).error || response.statusText;
  } catch {
    return `the server answered ${response.status}`;
  }
}
