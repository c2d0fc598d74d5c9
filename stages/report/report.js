// Sort the table of layers by the column whose title is clicked.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const ascending = head.getAttribute("aria-sort") !== "ascending", column = head.cellIndex;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const sign = ascending ? 1 : -1;
    const compare = head.dataset.kind === "number"
      ? (a, b) => key(a) - key(b)
      : (a, b) => key(a).localeCompare(key(b), "en", {numeric: true});
    // Rows without a value come last in both directions.
    const order = (a, b) => (key(a) === "") - (key(b) === "") || sign * compare(a, b);
    body.append(...[...body.rows].sort(order));
  });
}
