// What every page does: times in the reader's zone, the token of scripted requests.
"use strict";
(() => {
  // One way to write a time, 24 hours, which filters take as it is: 2026-11-29 18:15:49.
  window.ipfZone = document.documentElement.dataset.zone === "utc" ? "UTC" : undefined;
  const written = new Intl.DateTimeFormat("sv-SE", {dateStyle: "short", timeStyle: "medium", timeZone: window.ipfZone});
  const clock = new Intl.DateTimeFormat("sv-SE", {timeStyle: "medium", timeZone: window.ipfZone});
  window.ipfTime = (at) => written.format(at) + (window.ipfZone ? " UTC" : "");
  const form = (time, at) => time.dataset.form === "clock" ? clock.format(at) : window.ipfTime(at);
  const show = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.textContent = form(time, at);
    }
  };
  window.ipfTimes = show;
  // A number as the pages have it (html/rendering.py): thin spaces between groups of three digits, one digit of a fraction.
  window.ipfNumber = (value) => {
    const [whole, fraction] = value.toFixed(1).split("."), sign = document.documentElement.lang === "de" ? "," : ".";
    return whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") + (fraction === "0" ? "" : sign + fraction);
  };
  // A live stream: reconnects by itself; a session that has ended leads to the sign-in.  Returns what closes it.
  window.ipfLive = (url, name, take) => {
    const source = new EventSource(url);
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));
    source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) location.reload(); });
    addEventListener("pagehide", () => source.close());
    return () => source.close();
  };
  show(document);
  document.addEventListener("htmx:afterSwap", (event) => show(event.target));
  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf]").content;
  });
  const failed = (event) => { // while the engine does not answer, the page says so above
    document.getElementById("failed").hidden = event.type === "htmx:beforeRequest" || document.body.classList.contains("is-down");
  };
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:beforeRequest"]) document.addEventListener(name, failed);
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("submit", (event) => { // a double click sends a form once
    if (event.target.method === "post") for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
  });
})();
