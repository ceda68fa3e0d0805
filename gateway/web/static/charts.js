// The two charts of a node, drawn by uPlot from what app.js fetches; they have their height before
// the first point, so nothing moves when it comes.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const MARGIN_S = 120;
let marks = [];
let span = [Date.now() / 1000 - 3600, Date.now() / 1000];

// What was asked for, or from a little before there was anything until now: one point alone would
// otherwise be stretched over years.
function spanOf(detail) {
  const first = Math.min(...detail.times.slice(0, 1), ...detail.changes.map((c) => c.at_ms / 1000));
  const now = Date.now() / 1000;
  return [Math.max(detail.since, Math.min(first, now) - MARGIN_S), now];
}

function drawMarks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--accent");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const mark of marks) {
    const x = plot.valToPos(mark.at_ms / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

// Hours of a day, or days: a clock of 24 hours, and the month by its name, whatever the browser's habit.
const HOUR = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const DAY = { day: "numeric", month: "short" };
const STEPS_S = [60, 300, 900, 1800, 3600, 10800, 21600, 86400, 604800, 2592000, 7776000];
const timeAxis = () => ({ ...axis(), incrs: STEPS_S, space: 60,
  values: (_plot, splits, _axis, _space, step) => splits.map((s) => new Date(s * 1000))
    .map((at) => (step < 86400 ? at.toLocaleTimeString([], HOUR) : at.toLocaleDateString([], DAY))) });

const axis = () => ({ stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
  ticks: { stroke: colour("--line") } });

function chart(place, height, series, y) {
  const options = {
    width: place.clientWidth, height, cursor: { drag: { x: false, y: false } },
    legend: { live: false }, scales: { x: { range: () => span }, y },
    axes: [timeAxis(), { ...axis(), size: 48 }], hooks: { draw: [drawMarks] },
    series: [{}, ...series],
  };
  const plot = new uPlot(options, [[], ...series.map(() => [])], place);
  addEventListener("resize", () => plot.setSize({ width: place.clientWidth, height }));
  return plot;
}

const accuracyPlace = document.getElementById("accuracy");
const readingsPlace = document.getElementById("readings");
const accuracyChart = chart(accuracyPlace, 200,
  [{ label: "accuracy, %", stroke: colour("--accent"), width: 2, spanGaps: false }],
  { range: [0, 100] });
const readingsChart = chart(readingsPlace, 120, [
  { label: "readings", stroke: colour("--good"), width: 2 },
  { label: "refused", stroke: colour("--bad"), width: 2 },
], { range: (_, low, high) => [0, Math.max(1, high * 1.1)] });

document.addEventListener("live", ({ detail }) => {
  if (!detail.times) return;
  marks = detail.changes;
  span = spanOf(detail);
  accuracyChart.setData([detail.times, detail.accuracy.map((a) => (a === null ? null : 100 * a))]);
  readingsChart.setData([detail.times, detail.readings, detail.refused]);
  accuracyPlace.dataset.points = String(detail.times.length);
  accuracyPlace.dataset.seconds = String(Math.round(span[1] - span[0]));
  accuracyPlace.dataset.changes = String(marks.length);
  const last = [...detail.accuracy].reverse().find((a) => a !== null);
  const words = last === undefined ? "no label yet" : (100 * last).toFixed(1) + " % at last";
  accuracyPlace.setAttribute("aria-label",
    "Accuracy over time: " + words + ", " + marks.length + " changes");
});

const lanes = document.getElementById("lanes");
async function refreshLanes() {
  if (!document.hidden) {
    try {
      const answer = await fetch(lanes.dataset.part);
      if (answer.ok) {
        const text = await answer.text();
        if (text !== lanes.dataset.was) { lanes.innerHTML = text; lanes.dataset.was = text; }
      }
    } catch (error) { /* app.js says that there is no answer */ }
  }
  setTimeout(refreshLanes, 10000);
}
setTimeout(refreshLanes, 10000);
