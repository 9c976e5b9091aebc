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

  const config = JSON.parse(document.getElementById("config").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  for (const plot of plots) plot.spec = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
  function fitted(spec, width) { // the title is on the page; the width and the legend follow the page
    const { title, ...found } = structuredClone(spec), fit = spec.usermeta.fit;
    if (!fit.panel) return { ...found, width };
    const columns = Math.max(1, Math.min(fit.columns, Math.floor(width / (fit.panel + 70))));
    for (const panel of found.concat) panel.width = Math.floor(width / columns) - 78;
    return { ...found, columns };
  }
  async function draw(plot) {
    const width = Math.floor(plot.clientWidth);
    if (!width || plot.width === width) return;
    plot.width = width;
    const columns = Math.max(1, Math.floor(width / (46 + 7.2 * plot.spec.usermeta.fit.legend)));
    const look = { ...config, legend: { ...config.legend, columns } };
    if (plot.view) plot.view.finalize();
    plot.view = await vegaEmbed(plot, fitted(plot.spec, width), { config: look, renderer: "svg", actions: false, tooltip: { theme: "custom" } });
  }
  const drawn = () => Promise.all(plots.map(draw));
  let later;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawn, 150); });
  drawn().then(() => { root.dataset.drawn = "yes"; });

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
