// The message before and after this one in the list that the reader came from; j and k go there.
"use strict";
(() => {
  const ids = JSON.parse(sessionStorage.getItem("ipf-list") || "[]"), bar = document.getElementById("neighbours");
  const here = location.pathname.split("/")[2], at = ids.indexOf(here);
  if (at < 0) return;
  const links = {};
  for (const link of bar.querySelectorAll("a")) {
    const to = ids[at + Number(link.dataset.step)];
    if (to === undefined) { link.remove(); continue; }
    link.href = `/messages/${to}${location.search}`;
    links[link.dataset.step] = link;
  }
  bar.hidden = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const link = {j: links["1"], k: links["-1"]}[event.key];
    if (link) link.click();
  });
})();
