// The live tail of the message list: rows that arrive or change, at most MOST of them, while the box is ticked.
"use strict";
(() => {
  const box = document.getElementById("tail"), shown = document.getElementById("tail-state"), body = document.querySelector("[data-rows] tbody");
  if (!box) return;
  const MOST = 200;
  let highest = Math.max(0, ...[...document.querySelectorAll("[data-rows] tr[data-id]")].map((row) => Number(row.dataset.id)));
  let arrived = 0, close = null;
  const address = (live) => {
    const url = new URL(location.href);
    if (live) url.searchParams.set("live", "1"); else url.searchParams.delete("live");
    history.replaceState(null, "", url);
  };
  const take = (event) => {
    for (const {id, html} of event.rows.reverse()) {
      const old = document.querySelector(`[data-rows] tr[data-id="${id}"]`);
      if (!old && id <= highest) continue;
      if (!body) { location.reload(); return; }
      const holder = document.createElement("template");
      holder.innerHTML = html;
      const row = holder.content.querySelector("tr");
      window.ipfTimes(row);
      if (old) {
        if (old.contains(document.activeElement)) continue; // it has the focus of the reader: the next change shows it
        row.className = old.className;
        old.replaceWith(row);
      } else {
        row.classList.add("arrived");
        body.prepend(row);
        highest = id;
        arrived += 1;
      }
    }
    while (body && body.rows.length > MOST) body.lastElementChild.remove();
    shown.textContent = (event.gap ? shown.dataset.gap + " " : "") + (arrived ? `${window.ipfNumber(arrived)} ${shown.dataset.new}` : shown.dataset.waiting);
  };
  const turn = () => {
    address(box.checked);
    if (close) { close(); close = null; shown.textContent = shown.dataset.paused; }
    if (!box.checked) return;
    shown.textContent = shown.dataset.waiting;
    const query = new URLSearchParams(location.search);
    close = window.ipfLive(`/live/messages?${query}`, "rows", take);
  };
  box.addEventListener("change", turn);
  if (box.checked) turn();
})();
