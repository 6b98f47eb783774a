// A list of rows: j and k move, Enter opens, / searches; the columns that are ticked.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("[data-rows] tbody tr")];
  let current = -1;
  const move = (step) => {
    if (!rows.length) return;
    if (current >= 0) rows[current].classList.remove("current");
    current = Math.min(rows.length - 1, Math.max(0, current + step));
    rows[current].classList.add("current");
    rows[current].querySelector("a").focus();
    rows[current].scrollIntoView({block: "nearest"});
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter" && current >= 0) location.href = rows[current].dataset.href;
    else if (event.key === "/") document.querySelector(".filters input").focus();
    else return;
    event.preventDefault();
  });
  for (const row of rows) row.addEventListener("click", (event) => {
    if (!event.target.closest("a") && !getSelection().toString()) location.href = row.dataset.href;
  });
  const columns = document.querySelector("input[name=columns]");
  for (const box of document.querySelectorAll("[data-column]")) box.addEventListener("change", () => {
    columns.value = [...document.querySelectorAll("[data-column]:checked")].map((one) => one.dataset.column).join(",");
  });
})();
