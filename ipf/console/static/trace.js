// A trace side by side: a click on a field marks the elements that come from it, a click on an element its fields and rule.
// The address names what is chosen (#PID-5, #0/name[0].family).  Arrow keys go up, down, and to the other side.
"use strict";
(() => {
  const begin = () => {
    const left = document.getElementById("left"), right = document.getElementById("right"), rule = document.getElementById("rule");
    if (!left || left.dataset.begun) return;
    left.dataset.begun = "yes";
    const fields = new Map([...left.querySelectorAll(".field")].map((one) => [one.dataset.place, one]));
    const elements = new Map([...right.querySelectorAll(".element")].map((one) => [one.dataset.place, one]));
    const of_field = (field) => [...elements.values()].filter((one) => one.dataset.places.split(" ").includes(field.dataset.place));
    const of_element = (element) => element.dataset.places.split(" ").map((place) => fields.get(place)).filter(Boolean);
    const choose = (one) => {
      const is_field = fields.get(one.dataset.place) === one, others = is_field ? of_field(one) : of_element(one);
      for (const before of document.querySelectorAll(".both .marked")) before.classList.remove("marked");
      for (const marked of [one, ...others]) marked.classList.add("marked");
      if (others.length) others[0].scrollIntoView({block: "nearest"});
      const said = is_field ? [...new Set(others.map((other) => other.dataset.rule))].join("; ") || one.title : one.dataset.rule;
      rule.textContent = said || rule.dataset.empty;
      history.replaceState(null, "", `#${encodeURIComponent(one.dataset.place)}`);
    };
    for (const [side, all] of [[left, [...fields.values()]], [right, [...elements.values()]]]) {
      const reach = (one) => { for (const other of all) other.tabIndex = other === one ? 0 : -1; }; // one stop a side for Tab
      const go = (one) => { if (one) { reach(one); one.focus(); choose(one); } };
      reach(all[0]);
      side.addEventListener("click", (event) => {
        const one = event.target.closest("button");
        if (one) { reach(one); choose(one); }
      });
      side.addEventListener("keydown", (event) => {
        const at = all.indexOf(event.target), other = side === left ? right : left;
        const to = {ArrowDown: all[at + 1], ArrowUp: all[at - 1], Home: all[0], End: all.at(-1)}[event.key];
        const across = event.key === (side === left ? "ArrowRight" : "ArrowLeft") && other.querySelector(".marked");
        if (!to && !across) return;
        event.preventDefault();
        if (across) across.focus(); else go(to);
      });
    }
    const place = decodeURIComponent(location.hash.slice(1)), named = fields.get(place) || elements.get(place);
    if (named) { choose(named); named.scrollIntoView({block: "center"}); named.focus({preventScroll: true}); }
  };
  document.addEventListener("htmx:afterSwap", begin);
  begin();
})();
