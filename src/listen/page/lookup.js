// What happened to a message: its row in the ledger, and what that means.

import { ask } from "./api.js";
import { count, duration, element, facts, find, moment, offer } from "./words.js";

export const offerLookup = (queues) => offer(find("lookup-choice"), find("lookup-queue"), queues, true);

/** Looks a key up as if it had been typed. */
export function lookUp(key) {
  find("lookup-key").value = key;
  find("lookup-queue").value = "";
  find("lookup").requestSubmit();
  find("lookup-key").focus();
}

find("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [key, queue] = [find("lookup-key").value, find("lookup-queue").value];
  const story = find("story");
  story.replaceChildren(element("p", { class: "quiet" }, "Asking the ledger…"));
  try {
    const found = await ask("/api/message", { key, queue });
    const none = `The ledger has no row for the key “${key}”: it was not seen here, or was pruned. Keys are compared byte by byte.`;
    story.replaceChildren(...(found.rows.length > 0 ? found.rows.map(told) : [element("p", {}, none)]));
  } catch (error) {
    story.replaceChildren(element("p", { class: "bad" }, `Not looked up: ${error.message}.`));
  }
});

function told(row) {
  const owner = row.owner && row.state === "processing" ? `${row.owner} (${row.owner_alive ? "alive" : "dead"})` : row.owner;
  return element(
    "article",
    { "data-key": row.message_id },
    element("h3", {}, row.message_id, element("span", { class: `badge ${row.state}` }, row.state)),
    element("p", { class: "meaning" }, row.meaning, "."),
    facts([
      ["scope", row.scope],
      ["attempts", count(row.attempts)],
      ["duplicates", count(row.duplicates)],
      ["first seen", moment(row.first_seen_ms)],
      ["last change", moment(row.updated_ms)],
      ["last duplicate", moment(row.last_duplicate_ms)],
      ["next attempt", moment(row.next_attempt_ms)],
      ["owner", owner],
    ]),
    row.failures.length > 0 ? element("ol", { class: "attempts" }, ...row.failures.map(attempt)) : null,
  );
}

function attempt(failure) {
  const ran = failure.ran_ms === null ? "did not run" : `ran ${duration(failure.ran_ms)}`;
  return element(
    "li",
    {},
    element("p", {}, `Attempt ${failure.attempt} failed at `, moment(failure.ended_ms), `, ${ran}:`),
    element("pre", {}, failure.error),
  );
}
