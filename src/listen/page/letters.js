// Dead letters: looked at when asked for, and sent back one by one.

import { act, ask } from "./api.js";
import { count, element, find, moment, offer, table } from "./words.js";

let mayAct = false;

export function offerLetters(queues, status) {
  offer(find("letters-choice"), find("letters-queue"), queues, false);
  mayAct = status.may_act;
  const why = find("letters-why");
  why.hidden = mayAct;
  const text = status.why_not ? `Replaying is off: ${status.why_not}.` : "";
  if (why.textContent !== text) why.textContent = text;
  for (const button of find("letters").querySelectorAll("button")) button.disabled = !mayAct || button.dataset.busy === "yes";
}

find("letters-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = find("letters-look");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  say("Looking…");
  find("letters").replaceChildren();
  try {
    const found = await ask("/api/dead", { queue: find("letters-queue").value });
    show(found);
  } catch (error) {
    say(`Not looked at: ${error.message}.`);
  } finally {
    button.removeAttribute("aria-disabled");
  }
});

function show({ queue, total, letters, warnings }) {
  const says =
    total === 0 ? `${queue}.dead is empty.`
    : letters.length < total ? `The first ${count(letters.length)} of ${count(total)} letters of ${queue}.dead.`
    : total === 1 ? `One letter in ${queue}.dead.`
    : `${count(total)} letters in ${queue}.dead.`;
  const risks = total > 0 ? warnings : [];
  say([says, ...risks.map((warning) => `Warning: ${warning}.`)].join(" "));
  if (letters.length === 0) return;
  const headings = ["key", "reason", "attempts", "died", "bytes", "error", "replay"];
  const rows = letters.map((letter) => [
    element("span", { class: "key" }, letter.key ?? letter.message_id ?? "(no key)"),
    letter.reason ?? "–",
    letter.attempts === null ? "–" : count(letter.attempts),
    moment(letter.dead_ms) ?? "–",
    count(letter.bytes),
    element("span", { class: "error" }, letter.error ?? "–"),
    replayButton(queue, letter),
  ]);
  find("letters").replaceChildren(table("Dead letters, the oldest first", headings, rows));
}

function replayButton(queue, letter) {
  const name = letter.key ?? letter.message_id ?? "the letter without a key";
  const button = element("button", { type: "button", "aria-label": `Replay ${name}`, "aria-describedby": "letters-why", disabled: !mayAct }, "Replay");
  button.addEventListener("click", () => replay(button, queue, letter, name));
  return button;
}

async function replay(button, queue, letter, name) {
  button.dataset.busy = "yes";
  const next = nextTo(button);
  button.disabled = true;
  next.focus();
  say(`Sending ${name} back…`);
  try {
    const { key, message_id, dead_ms } = letter;
    const { said, warnings } = await act("/api/dead/replay", { queue, key, message_id, dead_ms });
    button.replaceWith(element("span", { class: "good" }, "sent back"));
    say([`${name}: ${said}.`, ...warnings.map((warning) => `Warning: ${warning}.`)].join(" "));
  } catch (error) {
    delete button.dataset.busy;
    button.disabled = !mayAct;
    say(`${name} was not sent back: ${error.message}.`);
  }
}

/** Where the focus goes from a button that is going away. */
function nextTo(button) {
  const buttons = [...find("letters").querySelectorAll("button")];
  const free = (other) => other !== button && !other.disabled;
  return buttons.slice(buttons.indexOf(button)).find(free) ?? find("letters-look");
}

function say(text) {
  find("letters-says").textContent = text;
}
