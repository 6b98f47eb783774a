// What every page does: times in the reader's zone, the token of scripted requests.
"use strict";
(() => {
  const full = new Intl.DateTimeFormat(document.documentElement.lang, {dateStyle: "medium", timeStyle: "medium"});
  const short = new Intl.DateTimeFormat(document.documentElement.lang, {month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit"});
  const year = new Date().getFullYear();
  const clock = new Intl.DateTimeFormat(document.documentElement.lang, {timeStyle: "medium"});
  const form = (time, at) => { // tables are narrow
    const kind = time.dataset.form === "clock" ? clock : time.closest("td") && at.getFullYear() === year ? short : full;
    return kind.format(at);
  };
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
