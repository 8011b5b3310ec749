// Making elements, and saying numbers and times. Text is only ever set as text.

export const find = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is no element becomes text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

/** Puts children in the place of what is there. What had the focus has it again, if it is still there. */
export function redraw(container, ...children) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  container.replaceChildren(...children);
  if (focused === undefined) return;
  const again = [...container.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focused);
  again?.focus({ preventScroll: true });
}

/** A table whose cells know their headings, so that on a phone each row can be read alone. */
export function table(caption, headings, rows) {
  const cell = (content, index) => element("td", { role: "cell", "data-label": headings[index] }, content);
  const row = (cells) => element("tr", { role: "row" }, ...cells.map(cell));
  return element(
    "table",
    { role: "table" },
    element("caption", {}, caption),
    element(
      "thead",
      { role: "rowgroup" },
      element("tr", { role: "row" }, ...headings.map((heading) => element("th", { role: "columnheader", scope: "col" }, heading))),
    ),
    element("tbody", { role: "rowgroup" }, ...rows.map(row)),
  );
}

/** Names and what they stand for; those without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    {},
    ...known.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

const counts = new Intl.NumberFormat("en");
const rates = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export const count = (number) => counts.format(number);
export const rate = (number) => `${rates.format(number)}/s`;

/** With the date if it is not today; the whole time in UTC is its title. */
export function moment(ms) {
  if (ms === null || ms === undefined) return null;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  const today = day.format(date) === day.format(new Date());
  const text = today ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
  return element("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

export const timeOfDay = (ms) => clock.format(new Date(ms));

export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(number) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = number < 1024 ? 0 : Math.min(Math.floor(Math.log2(number) / 10), units.length - 1);
  return `${rates.format(number / 1024 ** power)} ${units[power]}`;
}

/** A choice of queues: hidden where there is no choice. */
export function offer(choice, select, queues, all) {
  const given = all ? ["", ...queues] : queues;
  const old = [...select.options].map((option) => option.value);
  choice.hidden = queues.length < 2;
  if (given.length === old.length && given.every((queue, index) => queue === old[index])) return;
  const chosen = select.value;
  select.replaceChildren(...given.map((queue) => element("option", { value: queue }, queue || "all")));
  if (given.includes(chosen)) select.value = chosen;
}
