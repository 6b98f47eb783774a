// An archive is sent as it is: first to be checked, then, on request, to be installed.
"use strict";
(() => {
  const input = document.getElementById("archive"), place = document.getElementById("check");
  if (!input) return;
  const csrf = document.querySelector("meta[name=csrf]").content;
  const send = async (action) => {
    const file = input.files[0];
    if (!file) return;
    place.setAttribute("aria-busy", "true");
    try {
      const reply = await fetch(`/profiles/${action}?file=${encodeURIComponent(file.name)}`, {
        method: "POST", body: file, headers: {"Content-Type": "application/x-gtar", "X-CSRF-Token": csrf, "HX-Request": "true"},
      });
      const text = await reply.text();
      if (!reply.ok) {
        const page = new DOMParser().parseFromString(text, "text/html");
        place.textContent = (page.querySelector("main") || page.body).innerText.trim() || place.dataset.failed;
        return;
      }
      place.innerHTML = text;  // rendered by the console, with everything escaped
      if (place.querySelector("[data-installed]")) location.reload();
      const install = document.getElementById("install");
      if (install) install.addEventListener("click", () => { install.disabled = true; send("install"); });
    } catch { place.textContent = place.dataset.failed; } finally { place.removeAttribute("aria-busy"); }
  };
  input.addEventListener("change", () => send("check"));
})();
