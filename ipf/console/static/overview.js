// The overview: the chart out of its table, and the figures that are live.
"use strict";
(() => {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const rows = [...document.querySelectorAll("#buckets tbody tr")];
  const names = [...document.querySelectorAll("#buckets thead th")].map((one) => one.textContent);
  const colours = [colour("--info"), colour("--info"), colour("--warn"), colour("--bad"), colour("--good")];
  const data = [rows.map((row) => Date.parse(row.dataset.at) / 1000)];
  for (let column = 1; column < names.length; column++) data.push(rows.map((row) => Number(row.cells[column].textContent)));
  const box = document.getElementById("chart");
  const axis = {stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}};
  const options = {
    width: box.clientWidth - 24, height: 220, axes: [axis, {...axis, size: 60}], scales: {y: {range: (_, low, high) => [0, Math.max(1, high * 1.1)]}},
    series: [{}, ...names.slice(1).map((label, number) => ({label, stroke: colours[number], width: 2, points: {show: rows.length < 3}}))],
  };
  const chart = new uPlot(options, data, box);
  new ResizeObserver(() => chart.setSize({width: box.clientWidth - 24, height: 220})).observe(box);

  const down = document.getElementById("down");
  const number = new Intl.NumberFormat(document.documentElement.lang);
  const source = new EventSource("/live");
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    down.hidden = state.up;
    if (!state.up) return;
    for (const figure of document.querySelectorAll("[data-queue]")) {
      const text = number.format(state.queue[figure.dataset.queue]);
      if (figure.textContent !== text) { figure.textContent = text; figure.classList.remove("changed"); void figure.offsetWidth; figure.classList.add("changed"); }
    }
    const uptime = document.querySelector("[data-uptime]");
    if (uptime) uptime.textContent = number.format(state.uptime_seconds);
  });
  source.addEventListener("error", () => { down.hidden = false; });
  source.addEventListener("open", () => { down.hidden = true; });
})();
