// Each worker's state in words, and what it has done.

import { bytes, count, element, facts, find, redraw } from "./words.js";

let before = "";

export function showWorkers(status) {
  const now = JSON.stringify([status.workers, status.ledger]);
  if (now === before) return;
  before = now;
  redraw(find("workers"), ...status.workers.map(card));
  const ledger = status.ledger;
  find("ledger").textContent = ledger
    ? `Rows in the ledger: ${count(ledger.rows.done)} done, ${count(ledger.rows.failed)} failed, ` +
      `${count(ledger.rows.dead)} dead, ${count(ledger.rows.processing)} processing; ${bytes(ledger.bytes)}.`
    : "The ledger could not be read yet.";
}

function card(worker) {
  const state = element("ul", { class: worker.well ? "state good" : "state bad" });
  state.append(...worker.said.map((said) => element("li", {}, said)));
  return element(
    "article",
    { "data-queue": worker.queue },
    element("h3", {}, worker.queue),
    state,
    facts([
      ["in flight", count(worker.in_flight)],
      ["wait for a retry here", worker.held > 0 ? count(worker.held) : null],
      ["handled", count(worker.counts.handled)],
      ["duplicates", count(worker.counts.duplicates)],
      ["retried", count(worker.counts.retried)],
      ["dead-lettered", count(worker.counts.dead_lettered)],
    ]),
  );
}
