// A list of rows: j and k move, Enter opens, / searches; the columns that are ticked.
"use strict";
(() => {
  const present = () => document.querySelector("[data-rows] tr.current");
  const move = (step) => {
    const rows = [...document.querySelectorAll("[data-rows] tbody tr")], old = present();
    if (!rows.length) return;
    if (old) old.classList.remove("current");
    const row = rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(old) + step))];
    row.classList.add("current");
    row.querySelector("a").focus();
    row.scrollIntoView({block: "nearest"});
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter" && present()) location.href = present().dataset.href;
    else if (event.key === "/") document.querySelector(".filters input").focus();
    else return;
    event.preventDefault();
  });
  for (const table of document.querySelectorAll("[data-rows]")) table.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-href]");
    if (row && !event.target.closest("a") && !getSelection().toString()) location.href = row.dataset.href;
  });
  // Times of a filter: shown in the zone of the page, sent with it.  What is no time of a page goes as it was typed.
  for (const input of document.querySelectorAll("input[data-time]")) {
    if (/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(input.value)) input.value = window.ipfTime(new Date(input.value));
    input.form.addEventListener("submit", () => {
      const found = input.value.trim().match(/^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d))?)?$/);
      if (!found) return;
      const [year, month, ...rest] = found.slice(1).map((part) => Number(part ?? 0)), parts = [year, month - 1, ...rest];
      const at = window.ipfZone === "UTC" ? new Date(Date.UTC(...parts)) : new Date(...parts);
      if (!Number.isNaN(at.getTime())) input.value = at.toISOString().replace(".000", "");
    });
  }
  const columns = document.querySelector("input[name=columns]");
  for (const box of document.querySelectorAll("[data-column]")) box.addEventListener("change", () => {
    columns.value = [...document.querySelectorAll("[data-column]:checked")].map((one) => one.dataset.column).join(",");
  });
  const ids = [...document.querySelectorAll("[data-rows] tbody tr")].map((row) => (row.dataset.href || "").match(/^\/messages\/(\d+)$/)).filter(Boolean).map((found) => found[1]);
  if (ids.length) sessionStorage.setItem("ipf-list", JSON.stringify(ids));
})();
