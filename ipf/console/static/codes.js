// A code that the search offers: a click fills the form.
"use strict";
(() => {
  const form = document.getElementById("target");
  if (!form) return;
  document.addEventListener("click", (event) => {
    const chosen = event.target.closest(".offered button");
    if (!chosen) return;
    for (const name of ["system", "code", "display"]) form.elements[name].value = chosen.dataset[name];
    form.elements.code.focus();
  });
  const none = form.elements.none;
  none.addEventListener("change", () => { form.elements.code.required = !none.checked; });
})();
