// Every page of a signed-in person: whether the engine answers.  Values of before are grey until it does again.
"use strict";
(() => {
  const EVERY = 1500, LONGEST = 3000; // with the limits of serving/pulse.py a page turns within five seconds
  const down = document.getElementById("down"), time = down.querySelector("time");
  const again = document.querySelector("[data-again]");
  let answered = new Date().toISOString(), timer = null;
  const show = (up, since) => {
    document.body.classList.toggle("is-down", !up);
    if (!up && time.dateTime !== since) {
      time.dateTime = since;
      window.ipfTimes(down);
    }
    if (up && !down.hidden) document.getElementById("failed").hidden = true;
    down.hidden = up;
    document.dispatchEvent(new CustomEvent("ipf:pulse", {detail: {up, text: down.dataset.text + " " + time.textContent}}));
    if (up && again) location.reload();
  };
  const ask = async () => {
    clearTimeout(timer);
    let state = {up: false, since: answered}; // the console does not answer either
    try {
      const response = await fetch("/live/pulse", {cache: "no-store", signal: AbortSignal.timeout(LONGEST)});
      if (response.status === 401) return; // the session has ended: the next click leads to the sign-in
      if (response.ok) state = await response.json();
    } catch { /* as above */ }
    if (state.up) answered = state.since;
    show(state.up, state.since);
    timer = setTimeout(ask, EVERY);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  document.body.classList.toggle("is-down", !down.hidden);
  timer = setTimeout(ask, again ? 3000 : EVERY);
})();
