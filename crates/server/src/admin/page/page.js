// The page: polls /stats once a second and draws the last two minutes.
"use strict";

const POINTS_MAX = 120;
const SVG = "http://www.w3.org/2000/svg";

const whole = (n) => Math.round(n).toLocaleString("en");
const percent = (n) => (n * 100).toFixed(1) + " %";
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return n.toFixed(i ? 1 : 0) + " " + units[i];
};

// Each chart: a title, how its value is written, and its value from two snapshots.
const charts = [
  ["operations a second", whole, (now, then, s) => (now.commands_total - then.commands_total) / s],
  ["hit ratio", percent, (now, then) => {
    const hits = now.hits_total - then.hits_total;
    const all = hits + now.misses_total - then.misses_total;
    return all > 0 ? hits / all : null;
  }],
  ["resident memory", bytes, (now) => now.memory.resident_bytes],
  ["connections", whole, (now) => now.connections.resp + now.connections.memcached],
  ["native sessions", whole, (now) => now.native.sessions + now.native.shm_clients],
  ["native requests a frame", (n) => n.toFixed(1), (now, then) => {
    const frames = now.native.frames_in_total - then.native.frames_in_total;
    return frames > 0 ? (now.native.requests_total - then.native.requests_total) / frames : null;
  }],
].map(([title, write, value]) => {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const name = document.createElement("span");
  const shown = document.createElement("b");
  const svg = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "polyline");
  name.textContent = title;
  svg.setAttribute("viewBox", `0 0 ${POINTS_MAX - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.append(line);
  caption.append(name, shown);
  figure.append(caption, svg);
  document.getElementById("charts").append(figure);
  return { write, value, shown, line, points: [] };
});

function draw(chart, value) {
  if (value === null) { chart.shown.textContent = "-"; return; }
  chart.points.push(value);
  if (chart.points.length > POINTS_MAX) { chart.points.shift(); }
  const top = Math.max(...chart.points) || 1;
  const from = POINTS_MAX - chart.points.length;
  const at = (v, i) => `${from + i},${(98 - 94 * v / top).toFixed(1)}`;
  chart.line.setAttribute("points", chart.points.map(at).join(" "));
  chart.shown.textContent = chart.write(value);
}

function list(now, then, seconds) {
  const before = new Map(then.commands.map((c) => [c.proto + " " + c.cmd, c.calls]));
  const rows = now.commands.sort((a, b) => b.calls - a.calls).map((c) => {
    const row = document.createElement("tr");
    const rate = (c.calls - (before.get(c.proto + " " + c.cmd) || 0)) / seconds;
    const cells = [c.proto, c.cmd, whole(rate), ...[c.calls, c.hits, c.misses, c.errors].map(whole)];
    for (const text of cells) { row.insertCell().textContent = text; }
    return row;
  });
  document.querySelector("#commands tbody").replaceChildren(...rows);
}

let last = null;
async function poll() {
  const about = document.getElementById("about");
  try {
    const now = await (await fetch("stats")).json();
    about.textContent = `${now.version}, ${now.mode}, ${now.threads} worker(s), ` +
      `memory cap ${bytes(now.memory.limit_bytes)}, up ${whole(now.uptime_seconds)} s`;
    const seconds = last ? now.uptime_seconds - last.uptime_seconds : 0;
    if (seconds > 0) {
      for (const chart of charts) { draw(chart, chart.value(now, last, seconds)); }
      list(now, last, seconds);
    }
    last = now;
  } catch {
    about.textContent = "the server does not answer";
    last = null;
  }
  setTimeout(poll, 1000);
}
poll();
