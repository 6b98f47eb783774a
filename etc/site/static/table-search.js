// Hides the rows of a table that lack one of the words typed into the field above it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const field of document.querySelectorAll("input.table-search")) {
    const rows = [...document.getElementById(field.getAttribute("aria-controls")).tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const count = field.closest("p").querySelector("output");
    const search = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, number) => {
        row.hidden = !words.every((word) => texts[number].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = `${shown} of ${rows.length} rows`;
    };
    field.addEventListener("input", search);
    search();
  }
});
