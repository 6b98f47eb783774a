// The overview: the chart out of its table, and the figures that are live.
"use strict";
(() => {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const rows = [...document.querySelectorAll("#buckets tbody tr")];
  const names = [...document.querySelectorAll("#buckets thead th")].map((one) => one.textContent);
  const colours = ["--info", "--info", "--warn", "--bad", "--good"];
  const data = [rows.map((row) => Date.parse(row.dataset.at) / 1000)];
  for (let column = 1; column < names.length; column++) data.push(rows.map((row) => Number(row.cells[column].textContent)));
  const box = document.getElementById("chart");
  const soft = () => colour("--soft"), line = () => colour("--line"); // functions: the colours of day and night
  const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {stroke: line}};
  const options = {
    width: box.clientWidth - 24, height: 220, axes: [axis, {...axis, size: 60}], scales: {y: {range: (_, low, high) => [0, Math.max(1, high * 1.1)]}},
    series: [{}, ...names.slice(1).map((label, number) => ({label, stroke: () => colour(colours[number]), width: 2, points: {show: rows.length < 3}}))],
  };
  const chart = new uPlot(options, data, box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  new ResizeObserver(() => chart.setSize({width: box.clientWidth - 24, height: 220})).observe(box);

  const parts = document.getElementById("parts");
  const put = (figure, text) => {
    if (figure.textContent === text) return;
    figure.textContent = text;
    figure.classList.remove("changed");
    void figure.offsetWidth;
    figure.classList.add("changed");
  };
  const oldest = document.querySelector("[data-oldest]"), tile = document.querySelector("[data-oldest-tile]");
  const age = () => {
    const at = Date.parse(oldest.dataset.oldest), seconds = Math.max(0, (Date.now() - at) / 1000);
    const [size, unit] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
    oldest.textContent = Number.isNaN(at) ? "\u2013" : `${Math.floor(seconds / size)} ${unit}`;
    tile.classList.toggle("state-failed", seconds > 60);
  };
  age();
  setInterval(age, 1000);
  let before = null, fine = null;
  document.addEventListener("ipf:pulse", (event) => { // the headline turns, and comes back with what it said
    const {up, text} = event.detail, verdict = document.getElementById("verdict");
    if (!up) {
      fine ??= {html: verdict.innerHTML, name: verdict.className};
      verdict.className = "verdict bad";
      if (verdict.textContent !== text) verdict.textContent = text;
    } else if (fine !== null) {
      verdict.className = fine.name;
      verdict.innerHTML = fine.html;
      fine = null;
      htmx.trigger(parts, "changed");
    }
  });
  window.ipfLive("/live/state", "state", (state) => {
    if (!state.up) return; // pulse.js says so, on every page
    for (const figure of document.querySelectorAll("[data-queue]")) {
      const count = state.queue[figure.dataset.queue];
      put(figure, count === null ? "\u2013" : window.ipfNumber(count));
    }
    put(document.querySelector("[data-rate]"), window.ipfNumber(state.per_minute));
    oldest.dataset.oldest = state.oldest_waiting_at || "";
    age();
    const now = JSON.stringify([state.queue.dead_letter, state.queue.failed, state.components, state.silent]);
    if (before !== null && before !== now) htmx.trigger(parts, "changed");
    before = now;
  });
})();
