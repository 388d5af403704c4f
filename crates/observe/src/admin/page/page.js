// The page: polls /stats once a second while it is looked at, and draws what it finds there.
"use strict";

const rate = (now, then, seconds) => Math.max(0, now - then) / seconds;
const workers = (values) => Object.fromEntries(values.map((value, i) => ["worker " + i, value]));

// How many commands took up to so many seconds, all of them together, from /metrics.
function durations(metrics) {
  const counts = new Map();
  for (const line of metrics.split("\n")) {
    const found = /^dovetail_command_duration_seconds_bucket\{.*le="([^"]+)"\} (\d+)/.exec(line);
    if (!found) { continue; }
    const end = found[1] === "+Inf" ? Infinity : Number(found[1]);
    counts.set(end, (counts.get(end) || 0) + Number(found[2]));
  }
  return [...counts].sort((a, b) => a[0] - b[0]);
}

// Milliseconds within which such shares of the commands since `then` were done; null: there were none.
function quantiles(taken, then, shares) {
  const before = new Map(then);
  const counts = taken.map(([end, count]) => [end, count - (before.get(end) || 0)]);
  const all = counts.length > 0 ? counts[counts.length - 1][1] : 0;
  if (all <= 0) { return null; }
  return Object.fromEntries(Object.entries(shares).map(([name, share]) => {
    const at = counts.findIndex(([, count]) => count >= share * all);
    const [start, below] = at > 0 ? counts[at - 1] : [0, 0];
    const [end, count] = counts[at];
    // Within a bucket as if they were spread evenly; beyond the last border nothing is known.
    const part = count > below ? (share * all - below) / (count - below) : 0;
    return [name, 1000 * (Number.isFinite(end) ? start + (end - start) * part : start)];
  }));
}

// Each chart: how its values are written, and its values from two snapshots, by name; null: none.
const charts = [
  { title: "operations a second", write: brief,
    series: (now, then, s) => ({ all: rate(now.commands_total, then.commands_total, s) }) },
  { title: "hit ratio", write: percent, top: 1, series: (now, then) => {
    const hits = now.hits_total - then.hits_total;
    const all = hits + now.misses_total - then.misses_total;
    return all > 0 ? { hits: hits / all } : null;
  } },
  { title: "latency of all commands in ms: p50, p99, p99.9", write: (ms) => ms.toFixed(2),
    series: (now, then) => now.durations && then.durations
      ? quantiles(now.durations, then.durations, { p50: 0.5, p99: 0.99, "p99.9": 0.999 }) : null },
  { title: "requests later than the SLO", write: percent, series: (now) =>
    now.slo && now.slo.lately ? { late: now.slo.lately.over_ratio } : null },
  { title: "latency, sampled, in ms", write: (ms) => ms.toFixed(2), series: (now) =>
    now.slo && now.slo.lately && now.slo.lately.samples ? { p50: now.slo.lately.latency_ns_p50 / 1e6,
      p99: now.slo.lately.latency_ns_p99 / 1e6, SLO: now.slo.target_ns / 1e6 } : null },
  { title: "threads by layer", write: whole, stacked: true, series: (now) => {
    const threads = now.forwardings && now.forwardings.threads;
    return threads ? { "run to completion": threads.rtc, "cache-resident": threads.cr,
      "memory-resident": threads.mr } : null;
  } },
  { title: "share of time busy, by worker", write: percent, top: 1, series: (now, then, s) => {
    const before = then.workers.busy_ns_total;
    const busy = now.workers.busy_ns_total.map((ns, i) => Math.min(1, rate(ns, before[i] || 0, s * 1e9)));
    return busy.length > 0 ? workers(busy) : null;
  } },
  { title: "requests waiting in queues, by worker", write: brief, series: (now) =>
    now.forwardings && now.forwardings.sent_total > 0 ? workers(now.forwardings.queue_depths) : null },
  { title: "requests sent to another worker, a second", write: brief, series: (now, then, s) =>
    now.forwardings && now.forwardings.sent_total > 0 ? { sent: rate(now.forwardings.sent_total, then.forwardings.sent_total, s) } : null },
  { title: "requests stolen from another worker, a second", write: brief, series: (now, then, s) =>
    now.forwardings && now.forwardings.stolen_total > 0 ? { stolen: rate(now.forwardings.stolen_total, then.forwardings.stolen_total, s) } : null },
  { title: "compaction: open windows, and writes saved a second", write: brief, series: (now, then, s) =>
    now.compaction.windows_total > 0 ? { open: now.compaction.windows_open,
      saved: rate(now.compaction.writes_saved_total, then.compaction.writes_saved_total, s),
      windows: rate(now.compaction.windows_total, then.compaction.windows_total, s) } : null },
  { title: "partitions with outstanding writes", write: brief, series: (now) =>
    now.dcrew ? { occupied: now.dcrew.occupied } : null },
  { title: "pins and conflicts a second", write: brief, series: (now, then, s) =>
    now.dcrew && then.dcrew ? {
      pins: rate(now.dcrew.pins_total, then.dcrew.pins_total, s),
      conflicts: rate(now.dcrew.conflicts_total, then.dcrew.conflicts_total, s) } : null },
  { title: "evicted and expired, a second", write: brief, series: (now, then, s) =>
    now.store.evicted_by_log_total + now.store.evicted_by_index_total + now.store.expired_total > 0 ? {
      "log full": rate(now.store.evicted_by_log_total, then.store.evicted_by_log_total, s),
      "index full": rate(now.store.evicted_by_index_total, then.store.evicted_by_index_total, s),
      expired: rate(now.store.expired_total, then.store.expired_total, s) } : null },
  { title: "memory by use", write: bytes, stacked: true, series: (now) => ({
    log: now.memory.log_used_bytes, index: now.memory.index_used_bytes,
    "client buffers": now.memory.client_buffer_bytes }) },
  { title: "memory: resident, and the cap", write: bytes, series: (now) => ({
    resident: now.memory.resident_bytes, cap: now.memory.limit_bytes }) },
  { title: "connections", write: whole, stacked: true, series: (now) => ({
    resp: now.connections.resp, memcached: now.connections.memcached,
    native: now.native.sessions + now.native.shm_clients }) },
  { title: "native requests in a frame", write: brief, series: (now, then) => {
    const frames = now.native.frames_in_total - then.native.frames_in_total;
    return frames > 0 ? { all: (now.native.requests_total - then.native.requests_total) / frames } : null;
  } },
].map(chartOf);

function list(now, then, seconds) {
  const before = new Map(then.commands.map((c) => [c.proto + " " + c.cmd, c.calls]));
  const rows = now.commands.sort((a, b) => b.calls - a.calls).map((c) => {
    const calls = rate(c.calls, before.get(c.proto + " " + c.cmd) || 0, seconds);
    const cells = [c.proto, c.cmd, whole(calls), ...[c.calls, c.hits, c.misses, c.errors].map(whole)];
    return element("tr", {}, ...cells.map((text) => element("td", {}, text)));
  });
  document.querySelector("#commands tbody").replaceChildren(...rows);
}

function show(id, isShown) {
  document.getElementById(id).toggleAttribute("hidden", !isShown);
}

// Of requests where they are counted, and of items that were drawn where they are not.
function sizes(now) {
  const isCounted = Boolean(now.sizes && now.sizes.buckets && now.sizes.buckets.length > 0);
  const found = isCounted ? now.sizes : now.stored_sizes;
  const isShown = Boolean(found && found.buckets && found.buckets.length > 0);
  show("sizes-section", isShown);
  if (!isShown) { return; }
  if (!isCounted) {
    drawSizes(document.getElementById("sizes"), found.buckets, Infinity);
    const drawn = found.buckets.reduce((sum, bucket) => sum + bucket.count, 0);
    document.getElementById("sizes-about").textContent =
      `key plus value, ${whole(drawn)} items sampled at random; logarithmic heights`;
    return;
  }
  const threshold = found.threshold_bytes === null ? Infinity : found.threshold_bytes;
  drawSizes(document.getElementById("sizes"), found.buckets, threshold);
  const border = Number.isFinite(threshold) ? `small items: up to ${bytes(threshold)}` : "all items are small";
  const helped = found.helped_total > 0 ? `; ${found.helped_total} small requests executed by threads for large items` : "";
  document.getElementById("sizes-about").textContent = `${border}; logarithmic heights${helped}`;
}

function hot(now) {
  const found = now.hot_set;
  const keys = found && found.keys ? found.keys.slice(0, 16) : [];
  show("hot-section", keys.length > 0);
  if (keys.length === 0) { return; }
  const most = keys[0].share_ratio || 1;
  const rows = keys.map((key) => {
    const bar = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" });
    bar.append(shape("rect", { width: (100 * key.share_ratio / most).toFixed(1), height: 10, class: "f0" }));
    return element("tr", {}, element("td", {}, key.key === null ? "(not shown)" : key.key), element("td", {}, percent(key.share_ratio)),
      element("td", {}, bar));
  });
  document.querySelector("#hot tbody").replaceChildren(...rows);
  document.getElementById("hot-about").textContent =
    `${whole(found.items || 0)} in the hot set, ${percent(found.share_ratio || 0)} of all accesses`;
}

const SLOTS = 16384;
const roleIn = (shard, name) => shard.primary === name ? "primary"
  : shard.backups.includes(name) ? "backup" : shard.joining === name ? "joining" : "";

// One node's part of all slots. A copy in the making is as wide as what has been copied.
function slots(shards, name, colour) {
  const bar = shape("svg", { viewBox: `0 0 ${SLOTS} 10`, preserveAspectRatio: "none", role: "img",
    "aria-label": `slots of ${name}` });
  for (const shard of shards) {
    const role = roleIn(shard, name);
    if (role === "") { continue; }
    const all = shard.last_slot - shard.first_slot + 1;
    const width = role === "joining" ? all * (shard.progress_ratio || 0) : all;
    bar.append(shape("rect", { x: shard.first_slot, width, height: 10, class: `f${colour} ${role}` }));
  }
  return bar;
}

function move(shard) {
  const what = shard.joining ? `${shard.joining} is given a copy by ${shard.primary}`
    : `${shard.primary} takes over from ${shard.filling_from}`;
  const ratio = shard.progress_ratio;
  const known = ratio === null ? [] : [`, ${percent(ratio)} `, element("progress", { value: ratio })];
  return element("li", {}, `slots ${shard.first_slot} to ${shard.last_slot}: ${what}`, ...known);
}

function member(shards, node, colour) {
  const name = node.admin_port ? element("a", { href: `//${node.host}:${node.admin_port}/` }, node.name) : node.name;
  const lag = node.lag_bytes ? `, ${bytes(node.lag_bytes)} behind` : "";
  const where = node.host === null ? "" : ` ${node.host}${lag}`;
  const own = node.is_own ? { class: "own" } : {};
  return element("tr", own, element("td", {}, name, element("small", {}, where)),
    element("td", {}, slots(shards, node.name, colour % COLOURS)),
    element("td", {}, whole(node.shards.primary)), element("td", {}, whole(node.shards.backup)));
}

function cluster(now) {
  const found = now.cluster;
  show("cluster-section", Boolean(found));
  if (!found) { return; }
  const rows = found.members.map((node, i) => member(found.shards, node, i));
  document.querySelector("#members tbody").replaceChildren(...rows);
  const moves = found.shards.filter((shard) => shard.joining || shard.filling_from);
  document.getElementById("moves").replaceChildren(...moves.map(move));
  const failovers = found.failovers_total > 0 ? `, ${whole(found.failovers_total)} failovers` : "";
  document.getElementById("cluster-about").textContent = found.term === 0 ? `${found.own} has not joined yet`
    : `${found.own}, term ${found.term}, ${found.members.length} nodes, ${found.shards.length} shards` +
      `, ${moves.length === 0 ? "no moves" : `${moves.length} moving`}${failovers}`;
}

const figure = (name, n) => name.endsWith("_ratio") ? `${name} ${n.toFixed(3)}` : `${name} ${brief(n)}`;

let lastEntry = "";
function decisionLog(now) {
  const entries = now.manager ? now.manager.decision_log : [];
  const about = document.getElementById("decisions-about");
  const tuner = now.tuner;
  about.textContent = tuner ? `tuner ${tuner.state}, ${tuner.policies}, ` +
    `${whole(tuner.searches_total)} searches, ${whole(tuner.adopted_total)} adopted` : "the tuner is off";
  show("decisions-empty", entries.length === 0);
  const latest = entries[entries.length - 1];
  const newest = latest ? `${latest.id} ${latest.count}` : "";
  if (newest === lastEntry) { return; }
  lastEntry = newest;
  const items = entries.slice(-50).reverse().map((entry) => {
    const at = new Date(entry.at_ms);
    const often = entry.count > 1
      ? ` (${whole(entry.count)} times since ${new Date(entry.first_at_ms).toTimeString().slice(0, 8)})` : "";
    const inputs = Object.entries(entry.inputs).map(([name, n]) => figure(name, n)).join(", ");
    return element("li", {}, element("time", { title: at.toISOString() }, at.toTimeString().slice(0, 8)),
      element("span", { class: "who" }, entry.controller),
      element("div", { class: "what" }, element("div", {}, `${entry.change}: ${entry.reason}${often}`),
        element("div", { class: "inputs" }, inputs)));
  });
  document.getElementById("decisions").replaceChildren(...items);
}

function about(now) {
  const workload = now.workload ? `, workload ${now.workload.region.replace("_", " ")}` : "";
  const ways = now.llc_ways ? `, ${now.llc_ways.mr} of ${now.llc_ways.cr} cache ways memory-resident` : "";
  return `${now.version}, ${now.mode}, ${now.threads} worker${now.threads === 1 ? "" : "s"}, ` +
    `memory cap ${bytes(now.memory.limit_bytes)}, up ${whole(now.uptime_seconds)} s${workload}${ways}`;
}

let last = null;
function draw(now) {
  document.getElementById("about").textContent = about(now);
  const seconds = last ? now.uptime_seconds - last.uptime_seconds : 0;
  if (seconds > 0) {
    for (const chart of charts) { addPoint(chart, chart.series(now, last, seconds)); }
    list(now, last, seconds);
  }
  cluster(now);
  sizes(now);
  hot(now);
  decisionLog(now);
  last = now;
}

// Since when nothing was heard: null while the server answers.
let lostAt = null;
function lost() {
  lostAt = lostAt || new Date();
  const about = document.getElementById("about");
  about.textContent = `no answer from the server since ${lostAt.toTimeString().slice(0, 8)}; ` +
    "the values below are its last ones";
  about.classList.add("lost");
  last = null;
}

async function poll() {
  // A page in the background asks for nothing.
  if (!document.hidden) {
    try {
      const asked = ["stats", "metrics"].map((path) => fetch(path, { signal: AbortSignal.timeout(5000) }));
      const [stats, metrics] = await Promise.all(asked);
      if (!stats.ok || !metrics.ok) { throw new Error(`status ${stats.status}, ${metrics.status}`); }
      const now = await stats.json();
      now.durations = durations(await metrics.text());
      lostAt = null;
      document.getElementById("about").classList.remove("lost");
      draw(now);
    } catch {
      lost();
    }
  } else {
    last = null;
  }
  setTimeout(poll, 1000);
}
poll();
