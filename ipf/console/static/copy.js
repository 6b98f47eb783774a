// Copies to the clipboard: the path of a field that was clicked, or the text of an element.
"use strict";
document.addEventListener("click", async (event) => {
  const one = event.target.closest("[data-copy], [data-copy-from]");
  if (!one || String(window.getSelection())) return;
  const from = one.dataset.copyFrom && document.getElementById(one.dataset.copyFrom);
  try {
    await navigator.clipboard.writeText(from ? from.textContent : one.dataset.copy);
  } catch { return; }  // no clipboard without TLS, except on loopback
  one.classList.add("copied");
  setTimeout(() => one.classList.remove("copied"), 1200);
});
