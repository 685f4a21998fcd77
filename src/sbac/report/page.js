"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const tip = document.getElementById("tip");
  const off = new Set();

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const numeric = [...body.rows].every((row) => key(row) === "" || Number.isFinite(Number(key(row))));
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          return (down ? -1 : 1) * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  /* Shows what belongs to the chosen task and the methods that are on. */
  function filter() {
    const task = document.getElementById("task").value;
    for (const node of all("[data-task]")) node.hidden = Boolean(task) && node.dataset.task !== task;
    for (const node of all("[data-method]")) node.style.display = off.has(node.dataset.method) ? "none" : "";
  }

  function showTip(event) {
    const series = event.target.closest?.(".series");
    tip.hidden = !series;
    if (!series) return;
    tip.textContent = series.dataset.tip;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  }

  all("table.sortable").forEach(sortable);
  for (const box of all("nav select")) box.addEventListener("change", filter);
  for (const button of all("#methods button")) {
    button.addEventListener("click", () => {
      const name = button.dataset.name;
      if (!off.delete(name)) off.add(name);
      button.setAttribute("aria-pressed", String(!off.has(name)));
      filter();
    });
  }
  for (const name of ["pointermove", "pointerdown"]) addEventListener(name, showTip);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  filter();
})();
