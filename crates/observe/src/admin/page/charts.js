// Charts: lines and stacked areas over the last two minutes, bars by size. No library.
"use strict";

const POINTS_MAX = 120;
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;

const whole = (n) => Math.round(n).toLocaleString("en");
const brief = (n) => {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (n >= size) { return (n / size).toFixed(n >= 100 * size ? 0 : 1) + " " + unit; }
  }
  return n >= 10 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
};
const percent = (n) => (n * 100).toFixed(1) + " %";
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return n.toFixed(i && n < 100 ? 1 : 0) + " " + units[i];
};

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) { made.setAttribute(key, value); }
  made.append(...children);
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) { made.setAttribute(key, value); }
  return made;
}

// A chart of some series over time. `stacked` lays them on each other, as parts of a whole.
function chartOf({ title, write, series, stacked, top }) {
  const shown = element("b", {});
  const svg = shape("svg", { viewBox: `0 0 ${POINTS_MAX - 1} 100`, preserveAspectRatio: "none" });
  const legend = element("div", { class: "legend" });
  const most = element("span", {}, "");
  const scale = element("div", { class: "scale" }, element("span", {}, "2 min ago"), most,
    element("span", {}, "now"));
  const caption = element("figcaption", {}, element("span", {}, title), shown);
  const figure = element("figure", { hidden: "" }, caption, svg, scale, legend);
  document.getElementById("charts").append(figure);
  return { write, series, stacked, top, shown, svg, legend, most, figure, names: "", points: [] };
}

// One more moment: a value for each name, or null if there is nothing to tell.
function addPoint(chart, values) {
  if (values === null) { chart.shown.textContent = "–"; return; }
  chart.figure.removeAttribute("hidden");
  chart.points.push(values);
  if (chart.points.length > POINTS_MAX) { chart.points.shift(); }
  const names = Object.keys(values);
  if (names.join() !== chart.names) {
    chart.names = names.join();
    const keys = names.map((name, i) =>
      element("span", {}, element("i", { class: "f" + (i % COLOURS) }), name));
    chart.legend.replaceChildren(...(names.length > 1 ? keys : []));
  }
  drawChart(chart, names);
}

function drawChart(chart, names) {
  const totals = chart.points.map((point) => {
    const all = names.map((name) => point[name] || 0);
    return chart.stacked ? all.reduce((sum, n) => sum + n, 0) : Math.max(...all);
  });
  const top = chart.top || Math.max(...totals) || 1;
  const from = POINTS_MAX - chart.points.length;
  const y = (n) => (98 - 94 * n / top).toFixed(1);
  const shapes = [shape("line", { x1: 0, x2: POINTS_MAX - 1, y1: 98, y2: 98, class: "rule" })];
  const below = chart.points.map(() => 0);
  names.forEach((name, i) => {
    const values = chart.points.map((point) => point[name] || 0);
    if (!chart.stacked) {
      const line = values.map((n, at) => `${from + at},${y(n)}`).join(" ");
      shapes.push(shape("polyline", { points: line, class: "s" + (i % COLOURS) }));
      return;
    }
    const lower = below.map((n, at) => `${from + at},${y(n)}`).reverse();
    values.forEach((n, at) => { below[at] += n; });
    const upper = below.map((n, at) => `${from + at},${y(n)}`);
    const points = upper.concat(lower).join(" ");
    shapes.push(shape("polygon", { points, class: "f" + (i % COLOURS) }));
  });
  chart.svg.replaceChildren(...shapes);
  chart.most.textContent = "top " + chart.write(top);
  const last = chart.points[chart.points.length - 1];
  const parts = names.map((name) => chart.write(last[name] || 0));
  const isSum = chart.stacked || names.length === 1;
  chart.shown.textContent = isSum ? chart.write(totals[totals.length - 1]) : parts.slice(0, 4).join(" / ");
}

// Neighbours put together, so that there are at most `max` on each side of the border.
function fold(buckets, threshold, max) {
  const together = Math.ceil(buckets.length / max);
  const folded = [];
  let held = 0;
  for (const { size_max_bytes, count } of buckets) {
    const last = folded[folded.length - 1];
    const isOther = !last || (last.size_max_bytes <= threshold) !== (size_max_bytes <= threshold);
    if (isOther || held === together) {
      folded.push({ size_max_bytes, count });
      held = 1;
    } else {
      last.size_max_bytes = size_max_bytes;
      last.count += count;
      held += 1;
    }
  }
  return folded;
}

// Bars of counts by size, the border between small and large on them.
function drawSizes(svg, counted, threshold) {
  const width = Math.max(320, svg.clientWidth || 640), height = 160, floor = height - 22;
  const buckets = fold(counted, threshold, Math.floor(width / 8));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const step = width / buckets.length;
  const most = Math.max(...buckets.map((bucket) => bucket.count)) || 1;
  // Large requests are few: the height is the logarithm of the count.
  const tall = (n) => n > 0 ? Math.max(2, (floor - 8) * Math.log1p(n) / Math.log1p(most)) : 0;
  const shapes = buckets.map((bucket, i) => shape("rect", {
    x: (i * step + 0.5).toFixed(1), width: Math.max(1, step - 1).toFixed(1),
    y: (floor - tall(bucket.count)).toFixed(1), height: tall(bucket.count).toFixed(1),
    class: bucket.size_max_bytes > threshold ? "large" : "bar",
  }));
  const every = Math.ceil(buckets.length / Math.floor(width / 80));
  buckets.forEach((bucket, i) => {
    if (i % every !== 0 || i * step > width - 70) { return; }
    const label = shape("text", { x: (i * step).toFixed(1), y: height - 6 });
    label.textContent = "≤ " + bytes(bucket.size_max_bytes);
    shapes.push(label);
  });
  const border = buckets.findIndex((bucket) => bucket.size_max_bytes > threshold);
  if (border > 0) {
    const x = (border * step).toFixed(1);
    shapes.push(shape("line", { x1: x, x2: x, y1: 0, y2: floor, class: "threshold" }));
  }
  svg.replaceChildren(...shapes);
}
