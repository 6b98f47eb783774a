// The attempts of a subscription by time, out of the table beside the chart: delivered and failed as steps.
"use strict";
(() => {
  const box = document.getElementById("chart"), rows = [...document.querySelectorAll("#buckets tbody tr")];
  if (!box || !rows.length) return;
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const names = [...document.querySelectorAll("#buckets thead th")].map((one) => one.textContent);
  const column = (number) => rows.map((row) => Number(row.cells[number].textContent));
  const step = rows.length > 1 ? rows[1].dataset.at - rows[0].dataset.at : 60;
  const times = rows.map((row) => Number(row.dataset.at)), ends = (values) => [...values, values[values.length - 1]];
  const soft = () => colour("--soft"), line = () => colour("--line"); // functions: the colours of day and night
  const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {stroke: line}};
  const stepped = uPlot.paths.stepped({align: 1});
  const series = (label, name) => ({label, stroke: () => colour(name), fill: () => `${colour(name)}33`, width: 2, paths: stepped, points: {show: false}});
  const size = () => ({width: box.clientWidth - 24, height: 200});
  const chart = new uPlot({...size(), legend: {live: false}, axes: [axis, {...axis, size: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]}],
    scales: {y: {range: (_, low, high) => [0, Math.max(1, high * 1.1)]}},
    series: [{}, series(names[1], "--good"), series(names[2], "--bad")]},
  [[...times, times[times.length - 1] + Number(step)], ends(column(1)), ends(column(2))], box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  new ResizeObserver(() => chart.setSize(size())).observe(box);
})();
