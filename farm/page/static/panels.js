// The panels above the SASS: one function each, from one target's data to an element (or null when there is nothing).

function panel(title, tagged, ...content) {
  return h("article", { class: "card" }, h("h2", null, title, tagged ? [" ", simulated()] : null), content);
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined)
    .map(([name, value, about]) => [h("dt", about ? { title: about } : null, name), h("dd", null, value)]));
}

const BOUND_NAMES = { lsu: "LSU (MIO)", alu: "ALU pipe", fma: "FMA pipe", fma_heavy: "FMA heavy pipe", fp16: "FP16 pipe", fp64: "FP64 pipe",
  xu: "XU pipe", tensor: "Tensor pipe", uniform: "Uniform pipe", issue: "Issue slots", dram: "DRAM", l2: "L2", l1: "L1 fills and stores", cta_launch: "CTA launch", launch: "CTA launch",
  atomics: "Atomics", latency: "Latency", constant: "Constant cache", special: "Special registers", async: "TMA" };

function speedOfLight(t) {
  if (!t.bounds) return null;
  const best = t.tiers[0];
  const rows = Object.entries(t.bounds).map(([name, us]) => [name, us / best.time_us]).sort((a, b) => b[1] - a[1]).filter((row) => row[1] >= 0.001);
  return panel("Speed of Light", true,
    h("div", { class: "bars" }, rows.map(([name, share]) => h("div", { class: "barrow" + (name === best.bound ? " bound" : "") },
      h("span", { class: "name" }, BOUND_NAMES[name] || name, name === best.bound ? h("em", null, "bound") : null),
      h("span", { class: "track" }, h("i", { style: { width: Math.min(100, 100 * share) + "%" } })),
      h("b", null, percent(share, share < 0.0995 ? 1 : 0))))),
    h("p", { class: "fine" }, best.bound === "latency" ? "No resource is busy for half of the time: warps wait for their own results." : "Share of the time that each resource is busy."));
}

function rooflinePanel(t) {
  const r = t.roofline;
  if (!r) return null;
  const levels = [["DRAM", r.dram_bytes, r.dram_bandwidth], ["L2", r.l2_bytes, r.l2_bandwidth]].filter((level) => level[1] > 0);
  const points = [];
  for (const kind of r.kinds) for (const [level, moved] of levels) {
    const x = kind.operations / moved;
    points.push({ x, y: kind.rate, class: level === "DRAM" ? "dram" : "l2", tip: () => [h("b", null, `${kind.kind} over ${level} bytes`),
      `${digits(kind.rate / 1e3, 3)} TFLOP/s of ${digits(kind.roof / 1e3, 3)}`, `${digits(x, 3)} operations a byte (${bytes(moved)})`] });
  }
  const top = Math.max(...r.kinds.map((k) => k.roof));
  const ridge = top / (levels.length ? Math.min(...levels.map((l) => l[2])) : r.dram_bandwidth);
  const xs = [...points.map((p) => p.x), ridge];
  const first = top / Math.max(r.dram_bandwidth, r.l2_bandwidth); // where the steepest slope meets the roof
  const range = [Math.min(Math.min(...xs) / 4, first / 10), Math.max(...xs) * 4]; // room for the slopes and their names
  const low = Math.min(...r.kinds.map((k) => k.rate), top / 100) / 3;
  const svg = scatter({ points, x: { log: true, range, label: "operations a byte", format: (v) => (v >= 1 ? count(v) : String(Number(v.toPrecision(2)))) },
    y: { log: true, range: [low, top * 2], label: "operations / s", format: (v) => short(v * 1e9).replace(/\.0+(?=\D|$)/, ""), left: 54 }, label: "Roofline", height: 240,
    extra: (a) => {
      for (const kind of r.kinds) a.plot.append(s("line", { class: "roof", x1: a.left, x2: a.right, y1: a.y(kind.roof), y2: a.y(kind.roof) }),
        s("text", { class: "rooflabel", x: a.right - 4, y: a.y(kind.roof) - 4, "text-anchor": "end" }, `${kind.kind} ${digits(kind.roof / 1e3, 3)} T/s`));
      for (const [level, bandwidth] of [["DRAM", r.dram_bandwidth], ["L2", r.l2_bandwidth]]) {
        const x1 = Math.max(range[0], low / bandwidth);
        const x2 = Math.min(range[1], top / bandwidth);
        if (x2 <= x1) continue;
        a.plot.append(s("line", { class: "slope " + level.toLowerCase(), x1: a.x(x1), y1: a.y(x1 * bandwidth), x2: a.x(x2), y2: a.y(x2 * bandwidth) }));
        const along = (px) => a.y(x1 * bandwidth) - ((px - a.x(x1)) / (a.x(x2) - a.x(x1))) * (a.y(x1 * bandwidth) - a.y(x2 * bandwidth));
        const start = a.x(x1) + 8;
        const above = level === "L2"; // the steeper one's name stands above it, the other's below
        a.plot.append(s("text", { class: "slopelabel " + level.toLowerCase(), x: above ? start : start + 26, y: above ? along(start + 74) - 5 : along(start + 26) + 14 }, `${level} ${short(bandwidth * 1e9)}B/s`));
      }
    } });
  return panel("Roofline", true, svg,
    h("p", { class: "fine" }, r.kinds.map((k) => `${k.kind}: ${digits(k.rate / 1e3, 3)} TFLOP/s, ${percent(k.rate / k.roof)} of the rate its own instructions can issue at`).join("; ") +
      (r.dram_bytes > 0 ? "." : ". No DRAM traffic: the data stays in L2 between launches.")));
}

function occupancyPanel(t) {
  const o = t.occupancy;
  if (!o) return null;
  return panel("Occupancy", false,
    h("p", { class: "lead" }, h("b", null, percent(o.warps / o.max_warps)), ` ${o.warps} of ${o.max_warps} warps an SM in ${o.ctas} CTAs, limited by `, h("b", null, o.limiter.replaceAll("_", " "))),
    h("div", { class: "limits" }, Object.entries(o.limits).map(([name, ctas]) =>
      h("span", { class: name === o.limiter ? "limiting" : "" }, name.replaceAll("_", " "), h("b", null, count(ctas))))),
    h("p", { class: "fine" }, "CTAs an SM that each resource allows. What if:"),
    Object.entries(o.curves).map(([name, curve]) => stepCurve({ points: curve.points, at: curve.at, max: o.max_warps, title: name, unit: curve.unit, format: name === "shared memory" ? kib : count })));
}

/** Sum of stalls of all lines: [reason, warp-cycles] in bar order, their total, and the cycles in which a warp issued. */
function stallTotals(lines) {
  const sums = new Map();
  for (const flat of lines.stalls || []) for (let k = 0; k + 1 < flat.length; k += 2) sums.set(flat[k], (sums.get(flat[k]) || 0) + flat[k + 1]);
  const pairs = STALL_ORDER.filter((reason) => sums.get(reason) > 0).map((reason) => [reason, sums.get(reason)]);
  return { pairs, total: pairs.reduce((a, p) => a + p[1], 0), issued: sums.get(STALLS.findIndex((stall) => stall.name === "selected")) || 0 };
}

function warpStates(t) {
  if (!t.lines?.stalls) return null;
  const { pairs, total, issued } = stallTotals(t.lines);
  if (!total) return null;
  const sorted = [...pairs].sort((a, b) => b[1] - a[1]).filter((p) => p[1] / total >= 0.002);
  const most = sorted[0][1];
  return panel("Warp states", true,
    h("div", { class: "mix" }, stallBar(pairs, total, 1)),
    h("div", { class: "bars" }, sorted.map(([reason, cycles]) => h("div", { class: "barrow", title: STALLS[reason].about },
      h("span", { class: "name" }, h("i", { class: "chip r" + reason }), STALLS[reason].name),
      h("span", { class: "track" }, h("i", { class: "r" + reason, style: { width: (100 * cycles) / most + "%" } })),
      h("b", null, issued ? (cycles / issued).toFixed(cycles / issued >= 10 ? 1 : 2) : percent(cycles / total))))),
    h("p", { class: "fine" }, issued ? `Warp cycles per issued instruction: ${digits(total / issued, 3)} in all; selected is the issue itself.` : "Share of warp cycles."));
}

function memoryChart(t) {
  if (!t.memory || !Object.keys(t.memory).length) return null;
  const m = t.memory;
  const sum = (space, ...what) => (t.traffic || []).filter((row) => row.space === space && (!what.length || what.includes(row.what)));
  const total = (rows, key) => rows.reduce((a, row) => a + row[key], 0);
  const detailed = m.l2_read_bytes !== undefined;
  const width = 460;
  const root = s("svg", { viewBox: `0 0 ${width} 250`, class: "chart memory", role: "img", "aria-label": "Memory traffic" });
  const box = (x, y, w, hgt, name, line, kind) => root.append(s("rect", { class: "box " + kind, x, y, width: w, height: hgt, rx: 5 }),
    s("text", { class: "boxname", x: x + w / 2, y: y + hgt / 2 + (line ? -3 : 4), "text-anchor": "middle" }, name),
    line ? s("text", { class: "boxline", x: x + w / 2, y: y + hgt / 2 + 13, "text-anchor": "middle" }, line) : "");
  /** An arrow with what it carries above and, perhaps, below it. */
  const arrow = (x1, x2, y, value, above, below) => {
    if (!value) return root.append(s("line", { class: "flow none", x1, x2, y1: y, y2: y }));
    const way = Math.sign(x2 - x1);
    const middle = (x1 + x2) / 2;
    root.append(s("line", { class: "flow", x1, x2: x2 - 7 * way, y1: y, y2: y, "stroke-width": Math.min(5, 1 + Math.log10(value + 1) / 3) }),
      s("path", { class: "flowhead", d: `M${x2} ${y}l${-9 * way} -4.5v9z` }),
      s("text", { class: "flowtext", x: middle, y: y - 6, "text-anchor": "middle" }, above),
      below ? s("text", { class: "flowsmall", x: middle, y: y + 13, "text-anchor": "middle" }, below) : "");
  };
  const requests = (rows) => `${short(total(rows, "requests"))} req`;
  box(1, 4, 58, 242, "Kernel", null, "kernel");
  const loads = sum("global", "load", "copy to shared");
  const stores = sum("global", "store");
  const others = [...sum("global", "atomic"), ...sum("local")];
  box(152, 4, 84, 142, "L1/TEX", detailed ? `hit ${percent(m.l1_hit_share)}` : null, "l1");
  arrow(152, 59, 28, total(loads, "bytes"), bytes(total(loads, "bytes")), requests(loads));
  arrow(59, 152, 76, total(stores, "bytes"), bytes(total(stores, "bytes")), requests(stores));
  if (others.length) arrow(59, 152, 122, total(others, "requests"), sum("local").length ? (sum("global", "atomic").length ? "local, atomic" : "local") : "atomic", requests(others));
  const sharedLoads = sum("shared", "load");
  const sharedStores = sum("shared", "store", "atomic");
  box(152, 158, 84, 88, "Shared", `${short(total(sum("shared"), "wavefronts"))} wavefr.`, "shared");
  arrow(152, 59, 182, total(sharedLoads, "requests"), requests(sharedLoads));
  arrow(59, 152, 222, total(sharedStores, "requests"), requests(sharedStores));
  box(306, 4, 62, 242, "L2", detailed ? `hit ${percent(m.l2_hit_share)}` : null, "l2");
  box(426, 4, 33, 242, "", null, "dram");
  root.append(s("text", { class: "boxname", transform: "translate(446.5 125) rotate(-90)", "text-anchor": "middle" }, "Device memory"));
  if (detailed) {
    arrow(306, 236, 48, m.l2_read_bytes, bytes(m.l2_read_bytes));
    arrow(236, 306, 102, m.l2_write_bytes, bytes(m.l2_write_bytes));
    arrow(426, 368, 90, m.dram_read_bytes, bytes(m.dram_read_bytes));
    arrow(368, 426, 160, m.dram_write_bytes, bytes(m.dram_write_bytes));
  } else {
    arrow(306, 236, 74, m.l2_bytes, bytes(m.l2_bytes));
    arrow(426, 368, 125, m.dram_bytes, bytes(m.dram_bytes));
  }
  const us = t.tiers[0].time_us;
  const rate = (moved) => digits(moved / us / 1e3, 3);
  const dram = (m.dram_read_bytes ?? m.dram_bytes ?? 0) + (m.dram_write_bytes ?? 0);
  const l2 = detailed ? `L2 ${rate(m.l2_read_bytes)} GB/s read` + (t.gpu ? ` (at most ${digits(t.gpu.l2_gb_s, 3)})` : "") + `, ${rate(m.l2_write_bytes)} written` : m.l2_bytes ? `L2 ${rate(m.l2_bytes)} GB/s` : "";
  return h("article", { class: "card" }, h("h2", null, "Memory ", simulated()), root,
    h("p", { class: "fine" }, `Whole launch, L2 ${t.tiers[0].l2} at its start. `, l2,
      dram ? `; DRAM ${rate(dram)} GB/s` + (t.gpu ? ` of ${digits(t.gpu.dram_gb_s, 3)}` : "") : "", m.footprint_bytes ? `. Footprint ${bytes(m.footprint_bytes)}` : "", "."));
}

function wavesPicture(w) {
  const shown = Math.min(w.full, 12);
  const cells = [];
  for (let k = 0; k < shown; k++) cells.push(h("i", { class: "full", title: "a whole wave" }));
  if (w.full > shown) cells.push(h("span", null, `… ${count(w.full)}`));
  if (w.tail) cells.push(h("i", { class: "tail", title: `${w.tail} of ${w.slots} slots` }, h("i", { style: { width: (100 * w.tail) / w.slots + "%" } })));
  return h("div", { class: "waves" }, cells);
}

function launchPanel(t) {
  const c = t.code;
  const w = t.occupancy?.waves;
  const block = (c.block_dim || "").replace(/x1(x1)?$/, "").replaceAll("x", " × ");
  const grid = (c.grid_dim || "").replace(/x1(x1)?$/, "").replaceAll("x", " × ");
  const compiled = c.registers !== null; // of what did not, nothing is known
  const spills = (c.spill_store_bytes || 0) + (c.spill_load_bytes || 0);
  return panel("Launch", false,
    facts([
      ["grid", `${grid}  (${count(t.launch?.ctas)} CTAs)`], ["block", `${block} threads`], ["registers", c.registers === null ? null : `${c.registers} a thread`],
      ["spills", !compiled ? null : spills ? h("b", { class: "warn" }, `${c.spill_store_bytes} B stored, ${c.spill_load_bytes} B loaded a thread`) : "none"],
      ["shared memory", !compiled ? null : `${kib(c.static_shared_bytes || 0)} static + ${kib(c.dynamic_shared_bytes || 0)} dynamic`],
      ["L1 / shared split", t.occupancy ? `${kib(t.occupancy.l1_bytes)} / ${kib(t.occupancy.carveout_bytes)}` : null],
      ["stack", !compiled ? null : c.stack_bytes ? `${c.stack_bytes} B` : "none"], ["code", c.code_bytes ? kib(c.code_bytes) : null]]),
    w ? [h("h3", null, "Waves"), h("p", { class: "lead" }, h("b", null, digits(w.waves, 3)), ` waves of ${count(w.slots)} CTAs on ${w.sms} SMs`), wavesPicture(w),
      h("p", { class: "fine" }, w.tail ? `${w.full ? `${count(w.full)} whole, then ` : ""}${count(w.tail)} CTAs on ${count(w.slots)} slots. ` : "No tail. ",
        `The busiest SM runs ${count(w.busiest)} CTAs, the mean SM ${percent(w.efficiency)} of that.`)] : null);
}

function trustPanel(t, candidate) {
  const best = t.tiers[0];
  const c = t.code;
  const cover = t.coverage || {};
  const words = { high: "most decisive numbers were measured on this GPU", medium: "some numbers are quoted or derived", low: "a third or more are guesses, or nothing was executed" };
  return panel("How this was made", false,
    best ? [facts([
      ["tier", best.tier], ["executed", `${percent(best.executed_share, best.executed_share < 0.1 ? 2 : 0)} of the CTAs`, "The rest is extrapolated"],
      ["confidence", h("span", null, h("b", null, best.confidence), words[best.confidence] ? ": " + words[best.confidence] : "")],
      ["uncertainty", best.expected_error === null || best.expected_error === undefined ? null : `± ${percent(best.expected_error, 1)} from extrapolating`],
      ["clock", `${count(best.clock_mhz)} MHz SM, taken as fixed` + (t.gpu && Math.abs(t.gpu.clock_mhz - best.clock_mhz) > 1 ? ` (lowered from ${count(t.gpu.clock_mhz)} under tensor load)` : "")],
      ["L2 at launch", best.l2], ["GPU time", h("span", null, time(best.time_us), " ", simulated())], ["simulated in", `${seconds(best.simulation_seconds)} of CPU time`],
      ["other tiers", t.tiers.length > 1 ? t.tiers.slice(1).map((e) => `${e.tier} ${time(e.time_us)}`).join(", ") : null]]),
      h("div", { class: "coverage", title: "Where the timing of the issued instructions comes from" }, ["measured", "quoted", "guessed"].map((k) => cover[k] ? h("i", { class: k, style: { width: 100 * cover[k] + "%" } }) : null)),
      h("p", { class: "fine" }, "Timing of issued instructions: " + ["measured", "quoted", "guessed"].map((k) => `${percent(cover[k] || 0)} ${k}`).join(", ") + ".")] : null,
    t.measured ? [h("h3", null, "Measurement ", measured()), facts([["median", time(t.measured.us ?? t.measured.measured_us)], ["spread", t.measured.spread === null ? null : percent(t.measured.spread, 1) + (t.measured.used ? "" : ", too much: not used for correlation")],
      ["clock", t.measured.clock_mhz ? `${count(t.measured.clock_mhz)} MHz` : null], ["L2", t.measured.l2], ["source", t.measured.source]])] : null,
    h("h3", null, "Code"), facts([["kernel", c.kernel], ["architecture", c.arch], ["cubin", c.cubin_sha ? h("code", { title: c.cubin_sha }, c.cubin_sha.slice(0, 16)) : null],
      ["compiler", c.compiler], ["compiled in", c.compile_seconds ? seconds(c.compile_seconds) : null], ["GPU model", t.gpu ? `${t.gpu.name}: ${t.gpu.sms} SMs` : null], ["simulator", DATA.version], ["model", DATA.model ? h("code", null, DATA.model[candidate.family] || "–") : null]]),
    c.command ? h("pre", { class: "command" }, c.command) : null);
}
