"use strict";
// Everything is text: nothing that came from a client becomes markup.
const SIGNALS = { confidence: "mean confidence", entropy: "mean entropy", disagreement: "disagreement with the source",
  effective_classes: "effective classes" };
const SVG = "http://www.w3.org/2000/svg";
const REFRESH = 3000;
const shown = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 3 });
const find = (id) => document.getElementById(id);

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function plot(points, name) {
  const known = points.filter((point) => Number.isFinite(point[name]));
  if (!known.length) return null;
  const values = known.map((point) => point[name]);
  const low = Math.min(...values), high = Math.max(...values), first = known[0].images;
  const wide = known[known.length - 1].images - first || 1, tall = high - low || 1;
  const place = (point) => `${(100 * (point.images - first)) / wide},${38 - (36 * (point[name] - low)) / tall}`;
  const figure = element("figure"), svg = document.createElementNS(SVG, "svg");
  figure.dataset.signal = name;
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${SIGNALS[name]}, from ${shown(values[0])} to ${shown(values[values.length - 1])}`);
  known.forEach((point, i) => {  // one line per mode, joined at its ends
    if (i && point.mode === known[i - 1].mode) return;
    const end = known.findIndex((other, j) => j > i && other.mode !== point.mode);
    const part = known.slice(Math.max(0, i - 1), end < 0 ? known.length : end);
    const line = document.createElementNS(SVG, "polyline");
    const places = part.map(place);
    if (places.length === 1) {  // a point would be invisible
      const [x, y] = places[0].split(",").map(Number);
      places.push(`${known.length === 1 ? 100 : x + 1},${y}`);
    }
    line.setAttribute("points", places.join(" "));
    line.setAttribute("class", point.mode);
    svg.append(line);
  });
  const caption = element("figcaption");
  caption.append(element("span", SIGNALS[name]), element("span", shown(values[values.length - 1])));
  figure.append(caption, svg);
  return figure;
}

function card(stream) {
  const article = element("article");
  article.dataset.stream = stream.name;
  const age = Math.max(0, Math.round(Date.now() / 1000 - stream.last_used));
  article.append(element("span", stream.mode, `mode ${stream.mode}`), element("h2", stream.name));
  const facts = `${shown(stream.images)} images, ${shown(stream.images - stream.saved_images)} not saved yet, used ${shown(age)} s ago`;
  article.append(element("p", stream.failed_saves ? `${facts}; SAVING FAILED` : facts, "facts"));
  article.append(...Object.keys(SIGNALS).map((name) => plot(stream.history, name)).filter(Boolean));
  const events = element("ul", "", "events");
  events.append(...stream.events.map((event) => element("li", `${event.action} after ${shown(event.images)}: ${event.reason}`)));
  article.append(events);
  return article;
}

function show(status) {
  find("server").textContent = `${status.model} with ${status.method}${status.guard ? ", guarded" : ""}: ` +
    `${shown(status.streams.length)} of ${shown(status.saved_streams)} streams in memory, ${shown(status.images)} images in ` +
    `${shown(status.requests)} requests, up for ${shown(status.uptime)} s, version ${status.version}`;
  find("streams").replaceChildren(...status.streams.map(card));
}

async function refresh() {
  const token = sessionStorage.getItem("token");
  try {
    const response = await fetch("streams", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
    find("login").hidden = response.status !== 401;
    find("rejected").hidden = !(response.status === 401 && token);
    if (response.ok) show(await response.json());
    else find("server").textContent = response.status === 401 ? "the status needs the server's token" : `status ${response.status}`;
  } catch {
    find("server").textContent = "the server does not respond";
  }
  document.documentElement.dataset.drawn = "yes";
}

find("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value);
  find("token").value = "";
  refresh();
});
refresh();
setInterval(refresh, REFRESH);
