// What every page does: times in the reader's zone, the token of scripted requests, pages that try again.
"use strict";
(() => {
  const full = new Intl.DateTimeFormat(document.documentElement.lang, {dateStyle: "medium", timeStyle: "medium"});
  const short = new Intl.DateTimeFormat(document.documentElement.lang, {month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit"});
  const year = new Date().getFullYear();
  const form = (time, at) => (time.closest("td") && at.getFullYear() === year ? short : full).format(at); // tables are narrow
  const show = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.textContent = form(time, at);
    }
  };
  window.ipfTimes = show;
  // A live stream: reconnects by itself; a session that has ended leads to the sign-in.  Returns what closes it.
  window.ipfLive = (url, name, take) => {
    const source = new EventSource(url), down = document.getElementById("down");
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));
    source.addEventListener("open", () => { down.hidden = true; });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) location.reload(); else down.hidden = false;
    });
    addEventListener("pagehide", () => source.close());
    return () => source.close();
  };
  show(document);
  document.addEventListener("htmx:afterSwap", (event) => show(event.target));
  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf]").content;
  });
  const failed = (event) => { document.getElementById("failed").hidden = event.type === "htmx:beforeRequest"; };
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:beforeRequest"]) document.addEventListener(name, failed);
  if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 3000);
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("submit", (event) => { // a double click sends a form once
    if (event.target.method === "post") for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
  });
})();
