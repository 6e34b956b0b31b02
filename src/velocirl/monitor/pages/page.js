// Searching and sorting; the page is complete without them.
"use strict";
const find = document.getElementById("find");
if (find) {
  find.closest(".find").hidden = false;
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    for (const block of document.querySelectorAll("[data-find]")) block.hidden = !block.dataset.find.includes(wanted);
  });
}
const FACTORS = { G: 1e9, M: 1e6, k: 1e3, m: 1e-3, "µ": 1e-6, n: 1e-9 };
const figure = (text) => {
  const found = /^(-?[\d,]+(?:\.\d+)?)\s?([GMkmµn]?)(?![A-Z])/.exec(text.trim());
  return found ? parseFloat(found[1].replaceAll(",", "")) * (FACTORS[found[2]] ?? 1) : null;
};
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((heading, column) => {
    if (!heading.textContent) return;
    heading.classList.add("sorts");
    let ascending = false;
    heading.addEventListener("click", () => {
      ascending = !ascending;
      const text = (row) => row.cells[column].textContent;
      const order = (one, other) => {
        const [first, second] = [figure(text(one)), figure(text(other))];
        if (first !== null && second !== null) return first - second;
        if (first !== second) return first === null ? 1 : -1;
        return text(one).localeCompare(text(other));
      };
      const rows = [...table.tBodies[0].rows].sort((one, other) => (ascending ? 1 : -1) * order(one, other));
      table.tBodies[0].append(...rows);
    });
  });
}
