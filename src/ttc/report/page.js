"use strict";
(() => {
  const root = document.documentElement;
  const keep = (value) => { try { if (value) localStorage.setItem("ttc-theme", value); return localStorage.getItem("ttc-theme"); } catch { return value; } };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = document.getElementById("theme");
  const name = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
  const kept = keep();
  if (kept) root.dataset.theme = kept;
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = keep(dark() ? "light" : "dark"); name(); });
  name();

  for (const head of document.querySelectorAll("table.sortable thead th")) {
    const text = head.textContent;
    const press = document.createElement("button");
    press.type = "button";
    press.textContent = text;
    press.title = "Sort by " + text;
    head.replaceChildren(press);
    press.addEventListener("click", () => sort(head));
  }
  function sort(head) {
    const table = head.closest("table"), body = table.tBodies[0], place = head.cellIndex;
    const up = head.getAttribute("aria-sort") === "descending" || (place === 0 && head.getAttribute("aria-sort") !== "ascending");
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => { const cell = row.cells[place]; return cell.dataset.value === undefined ? cell.textContent : cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value); };
    const order = (a, b) => { const x = value(a), y = value(b); return (typeof x === "string" ? x.localeCompare(y) : x - y) * (up ? 1 : -1); };
    body.append(...[...body.rows].sort(order));
  }

  function show(hashes) {
    for (const old of document.querySelectorAll(".cell.shown")) old.classList.remove("shown");
    for (const hash of hashes) {
      const cell = document.getElementById("cell-" + hash);
      if (!cell) continue;
      for (let up = cell; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
      cell.classList.add("shown");
    }
    const first = document.getElementById("cell-" + hashes[0]);
    if (first) first.scrollIntoView();
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-cells]");
    if (link) { event.preventDefault(); history.pushState(null, "", link.getAttribute("href")); show(link.dataset.cells.split(" ")); }
  });
  const arrive = () => { if (location.hash.startsWith("#cell-")) show([location.hash.slice(6)]); };
  addEventListener("hashchange", arrive);
  arrive();
})();
