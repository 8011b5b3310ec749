// The page's clock: what is asked for when, and what is said when nothing comes back.

import { Lost, Refused, ask, token } from "./api.js";
import { showFailures } from "./failures.js";
import { offerLetters } from "./letters.js";
import { offerLookup } from "./lookup.js";
import { showHour } from "./plot.js";
import { find, timeOfDay } from "./words.js";
import { showWorkers } from "./workers.js";

/** From the end of one round to the next. */
const PAUSE_MS = 2000;
/** The history has a new sample every 5 s. */
const HOUR_MS = 5000;

let lostSince = null;
let hourAsked = -HOUR_MS;
let timer = null;
let running = false;
/** Whether somebody wants a round at once. */
let again = false;
let wrongToken = false;

async function round() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  clearTimeout(timer);
  try {
    const status = await ask("/api/status");
    inContact(status);
    const queues = status.workers.map((worker) => worker.queue);
    showWorkers(status);
    offerLookup(queues);
    offerLetters(queues, status);
    if (performance.now() - hourAsked >= HOUR_MS - PAUSE_MS / 2) {
      hourAsked = performance.now();
      await showHour(queues);
    }
    await showFailures();
  } catch (error) {
    outOfContact(error);
  } finally {
    running = false;
    const pause = again ? 0 : PAUSE_MS;
    again = false;
    if (!document.hidden) timer = setTimeout(round, pause);
  }
}

function inContact(status) {
  lostSince = null;
  document.body.classList.remove("lost", "closed");
  const ill = status.workers.filter((worker) => !worker.well);
  const says = ill.length === 0 ? allWell(status.workers.length) : `Not consuming: ${ill.map((worker) => worker.queue).join(", ")}`;
  contact(ill.length === 0 ? "good" : "bad", says);
  document.title = ill.length === 0 ? "ackonce" : "(!) ackonce";
  find("version").textContent = status.version;
  showToken(status.has_token, status.may_act, "With the token, this tab may replay dead letters.");
}

function allWell(workers) {
  if (workers === 1) return "Consuming";
  return workers === 2 ? "Both workers are consuming" : `All ${workers} workers are consuming`;
}

function outOfContact(error) {
  if (error instanceof Refused) {
    const isTokenWrong = error.status === 401 && token.get() !== null;
    if (isTokenWrong) {
      token.forget();
      wrongToken = true;
      // Perhaps this page may read without one.
      again = true;
      return;
    }
    const isClosed = error.status === 401;
    document.body.classList.toggle("closed", isClosed);
    showToken(isClosed, false, "Without the token this page shows nothing.");
    contact("bad", `The worker does not answer this page: ${error.message}.`);
  } else if (error instanceof Lost) {
    lostSince ??= Date.now();
    contact("bad", `No contact with the worker since ${timeOfDay(lostSince)}. Trying again.`);
  } else {
    contact("bad", `This page has a mistake: ${error.message}`);
    console.error(error);
  }
  document.body.classList.add("lost");
  document.title = "(!) ackonce";
}

/** Says it only when it is news: it is read aloud. */
function contact(kind, says) {
  const place = find("contact");
  place.className = kind;
  if (place.textContent !== says) place.textContent = says;
}

function showToken(isNeeded, isKnown, says) {
  find("token-section").hidden = !isNeeded;
  find("token-form").hidden = isKnown;
  find("token-forget").hidden = !isKnown;
  const refused = wrongToken ? "That token is not right. " : "";
  const text = isKnown ? "This tab has the token: it may replay dead letters." : refused + says;
  if (find("token-says").textContent !== text) find("token-says").textContent = text;
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(find("token").value.trim());
  find("token").value = "";
  wrongToken = false;
  round();
});

find("token-forget").addEventListener("click", () => {
  token.forget();
  round();
});

find("hour-queue").addEventListener("change", () => {
  hourAsked = -HOUR_MS;
  round();
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) round();
});

round();
