// Asking the worker. Whatever goes wrong is an error with one sentence.

const KEPT = "ackonce-token";
const LIMIT_MS = 20_000;

/** The worker answered, and said no. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Nothing came back. */
export class Lost extends Error {}

/** Kept as long as this tab is. */
export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

export async function ask(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value);
  const search = new URLSearchParams(given).toString();
  return send(search ? `${path}?${search}` : path, {});
}

export async function act(path, order) {
  return send(path, { method: "POST", body: JSON.stringify(order), headers: { "Content-Type": "application/json" } });
}

async function send(url, options) {
  const headers = { ...options.headers };
  const kept = token.get();
  if (kept) headers.Authorization = `Bearer ${kept}`;
  let answer, text;
  try {
    answer = await fetch(url, {
      ...options,
      headers,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(LIMIT_MS),
    });
    text = await answer.text();
  } catch {
    throw new Lost("no contact with the worker");
  }
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Refused(answer.status, text.trim() || `the worker answered with status ${answer.status}`);
  }
  if (!answer.ok) throw new Refused(answer.status, json.error ?? `the worker answered with status ${answer.status}`);
  return json;
}
