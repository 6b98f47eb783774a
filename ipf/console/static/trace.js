// A trace side by side: a click on a field marks the elements that come from it, a click on an element its fields and rule.
"use strict";
window.ipfTrace = () => {
  const left = document.getElementById("left"), right = document.getElementById("right"), rule = document.getElementById("rule");
  if (!left) return;
  const fields = new Map([...left.querySelectorAll(".field")].map((one) => [one.dataset.place, one]));
  const elements = [...right.querySelectorAll(".element")];
  const clear = () => { for (const one of document.querySelectorAll(".both .marked")) one.classList.remove("marked"); };
  const mark = (ones) => {
    for (const one of ones) one.classList.add("marked");
    if (ones.length) ones[0].scrollIntoView({block: "nearest"});
  };
  left.addEventListener("click", (event) => {
    const field = event.target.closest(".field");
    if (!field) return;
    clear();
    field.classList.add("marked");
    const found = elements.filter((one) => one.dataset.places.split(" ").includes(field.dataset.place));
    mark(found);
    rule.textContent = [...new Set(found.map((one) => one.dataset.rule))].join("; ") || field.title || rule.dataset.empty;
  });
  right.addEventListener("click", (event) => {
    const element = event.target.closest(".element");
    if (!element) return;
    clear();
    element.classList.add("marked");
    mark(element.dataset.places.split(" ").map((place) => fields.get(place)).filter(Boolean));
    rule.textContent = element.dataset.rule || rule.dataset.empty;
  });
};
window.ipfTrace();
