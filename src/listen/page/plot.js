// The last hour: a plot, its legend, and the same numbers as a table.

import { ask } from "./api.js";
import { count, element, find, offer, rate, table, timeOfDay } from "./words.js";

const HOUR_S = 3600;
/** After a start the plot is no narrower than this. */
const SPAN_MIN_S = 300;
/** Between two labelled times. */
const STEPS_S = [1, 5, 10, 30, 60, 120, 300, 600, 900, 1800];
const ROW_MS = 5 * 60 * 1000;
const SERIES = [
  { name: "handled", label: "handled", dash: [] },
  { name: "duplicates", label: "duplicates", dash: [8, 4] },
  { name: "retried", label: "retried", dash: [3, 3] },
  { name: "dead_lettered", label: "dead-lettered", dash: [10, 3, 2, 3] },
];

let plot = null;
let data = null;
let hour = null;

export async function showHour(queues) {
  const select = find("hour-queue");
  offer(find("hour-choice"), select, queues, true);
  hour = await ask("/api/history", { queue: select.value });
  data = [hour.at_ms.map((ms) => ms / 1000), ...SERIES.map((series) => hour.per_second[series.name])];
  if (plot) {
    plot.batch(() => {
      plot.setData(data, false);
      plot.setScale("x", span());
    });
  } else {
    draw();
  }
  showLegend(null);
  showTable();
  find("hour-says").textContent = hour.at_ms.length === 0 ? "The first point comes a few seconds after the start." : "";
}

/** From the first sample, once there are some minutes of them. */
function span() {
  const max = hour.now_ms / 1000;
  const first = (hour.at_ms[0] ?? hour.now_ms) / 1000;
  return { min: Math.max(Math.min(first, max - SPAN_MIN_S), max - HOUR_S), max };
}

function draw() {
  plot?.destroy();
  const place = find("plot");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour("quiet"),
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1, size: 5 },
    font: "12px system-ui, sans-serif",
  };
  // With the seconds only where the steps are less than a minute.
  const clock = (_, seconds, _axis, _space, step) =>
    seconds.map((at) => (step < 60 ? timeOfDay(at * 1000) : timeOfDay(at * 1000).slice(0, 5)));
  plot = new uPlot(
    {
      width: place.clientWidth,
      height: place.clientHeight,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: true, auto: false, ...span() },
        y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] },
      },
      axes: [
        { ...axis, size: 30, values: clock, space: 66, incrs: STEPS_S },
        { ...axis, size: 52, values: (_, rates) => rates.map((value) => rate(value).replace("/s", "")) },
      ],
      series: [
        {},
        ...SERIES.map(({ name, label, dash }, index) => ({
          label,
          dash,
          stroke: colour(name),
          fill: index === 0 ? colour("handled-fill") : undefined,
          width: 1.75,
          // A line takes two points.
          points: { show: (drawn) => drawn.data[0].length === 1, size: 6 },
        })),
      ],
      hooks: { setCursor: [(drawn) => showLegend(drawn.cursor.idx)] },
    },
    data,
    place,
  );
}

/** What is under the cursor, or the newest numbers and the hour's totals. */
function showLegend(index) {
  if (!hour) return;
  const last = hour.at_ms.length - 1;
  const at = index === null || index === undefined ? last : index;
  const when = index === null || index === undefined ? "now" : `at ${timeOfDay(hour.at_ms[at])}`;
  find("legend").replaceChildren(
    ...SERIES.map(({ name, label }) =>
      element(
        "li",
        { class: name },
        element("span", { class: "swatch", "aria-hidden": "true" }),
        element("strong", {}, label),
        ` ${rate(at < 0 ? 0 : hour.per_second[name][at])} ${when}, `,
        element("span", { "data-total": name }, count(hour.total[name])),
        " in all",
      ),
    ),
  );
}

function showTable() {
  if (!find("hour-details").open) return;
  const rows = new Map();
  hour.at_ms.forEach((ms, index) => {
    const from = Math.floor(ms / ROW_MS) * ROW_MS;
    const row = rows.get(from) ?? SERIES.map(() => 0);
    const seconds = (index > 0 ? ms - hour.at_ms[index - 1] : hour.step_ms) / 1000;
    SERIES.forEach(({ name }, series) => {
      row[series] += hour.per_second[name][index] * seconds;
    });
    rows.set(from, row);
  });
  const lines = [...rows].reverse().map(([from, sums]) => [
    timeOfDay(from).slice(0, 5),
    ...sums.map((sum) => count(Math.round(sum))),
  ]);
  const headings = ["five minutes from", ...SERIES.map((series) => series.label)];
  find("hour-table").replaceChildren(table("Messages in the last hour", headings, lines));
}

find("hour-details").addEventListener("toggle", () => hour && showTable());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot && draw());
new ResizeObserver(([entry]) => {
  plot?.setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
}).observe(find("plot"));
