// What failed last, with its text.

import { ask } from "./api.js";
import { lookUp } from "./lookup.js";
import { count, element, find, moment, redraw, table } from "./words.js";

let before = "";

export async function showFailures() {
  const { rows } = await ask("/api/failures");
  // The meaning of a row holds the time, and is not shown here.
  const now = JSON.stringify(rows.map(({ meaning, ...row }) => row));
  if (now === before) return;
  before = now;
  find("failures-says").textContent = rows.length === 0 ? "Nothing has failed that is not done by now." : "";
  // Where there is only one scope, it says nothing.
  const scopes = new Set(rows.map((row) => row.scope)).size > 1;
  const headings = ["when", ...(scopes ? ["scope"] : []), "key", "state", "attempts", "error"];
  const all = rows.map((row) => [
    moment(row.updated_ms),
    ...(scopes ? [row.scope] : []),
    key(row),
    element("span", { class: `badge ${row.state}` }, row.state),
    count(row.attempts),
    element("span", { class: "error" }, row.last_error ?? "–"),
  ]);
  redraw(find("failures"), ...(rows.length > 0 ? [table("Newest failures", headings, all)] : []));
}

function key(row) {
  const name = row.message_id;
  const button = element("button", { type: "button", class: "key", "data-focus": `${row.scope} ${name}`, title: "Look it up" }, name);
  button.addEventListener("click", () => lookUp(name));
  return button;
}
