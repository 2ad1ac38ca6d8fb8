// The overview of a store: how the best times and the agreement with measurements went from run to run, and failures.

/** Points joined in order of the runs. points: [{n, y, tip}]; `runs` is how many there are. */
function trendChart({ points, runs, label, y, log }) {
  const axes = frame({ width: 400, height: 170, label,
    x: { range: [0.5, Math.max(runs, 1) + 0.5], label: "run, the latest last", format: (v) => (Number.isInteger(v) ? String(v) : "") },
    y: { range: y || extent(points.map((p) => p.y), log, 0.12), log, label, format: (v) => (log ? count(v) : digits(v, 3)), left: 54 } });
  axes.plot.append(s("path", { class: "trend", d: points.map((p, k) => `${k ? "L" : "M"}${axes.x(p.n).toFixed(1)} ${axes.y(p.y).toFixed(1)}`).join("") }));
  points.forEach((p, k) => {
    const dot = s("circle", { class: "dot", cx: axes.x(p.n), cy: axes.y(p.y), r: k === points.length - 1 ? 5 : 3.5 });
    dot.addEventListener("mousemove", (event) => showTip(event, ...p.tip()));
    dot.addEventListener("mouseleave", hideTip);
    axes.plot.append(dot);
  });
  return axes.svg;
}

function change(points) {
  if (points.length < 2) return h("span", { class: "dim" }, "in one run so far");
  const [before, now] = points.slice(-2);
  const ratio = now.y / before.y;
  // more candidates find a better best: that says nothing of the kernel
  if (now.of !== before.of) return h("span", { class: "dim" }, `of ${count(now.of)} candidates; ${time(before.y)} of ${count(before.of)} before`);
  if (Math.abs(ratio - 1) < 0.0005) return h("span", { class: "change dim" }, "same as before");
  return h("span", { class: "change " + (ratio < 1 ? "faster" : "slower") }, `${ratio < 1 ? "−" : "+"}${Math.abs(100 * (ratio - 1)).toFixed(1)} % against the run before`);
}

function overview() {
  const { runs, best, agreement } = DATA;
  const number = new Map(runs.map((run, n) => [run.run, n + 1]));
  const group = (rows) => {
    const found = new Map();
    for (const row of rows) {
      const key = JSON.stringify([row.family, row.target, row.group ?? ""]);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return [...found].sort((a, b) => (a[0] < b[0] ? -1 : 1)).map((entry) => entry[1]);
  };
  const title = (row) => [row.family, h("span", { class: "dim" }, ` on ${row.target}${row.group ? ", " + row.group : ""}`)];
  const times = group(best).map((rows) => {
    const points = rows.map((row) => ({ n: number.get(row.run), y: row.time_us, of: row.candidates, tip: () => [h("b", null, `${number.get(row.run)}: ${row.run}`), `best ${time(row.time_us)} simulated, variant ${row.variant}`, `of ${count(row.candidates)} (${row.tier} tier)`, row.parameters] }));
    const last = rows[rows.length - 1];
    return h("article", { class: "card best" }, h("h2", null, title(last), h("span", { class: "grow" }), simulated()),
      h("p", { class: "lead" }, h("b", null, time(last.time_us)), ` variant ${last.variant} `, change(points)),
      points.length > 1 ? trendChart({ points, runs: runs.length, label: "best, µs", log: true }) : null);
  });
  const trust = group(agreement).map((rows) => {
    const points = rows.filter((row) => row.spearman !== null).map((row) => ({ n: number.get(row.run), y: row.spearman, tip: () => [h("b", null, `${number.get(row.run)}: ${row.run}`), `Spearman ${row.spearman.toFixed(3)}, Kendall τ-b ${row.kendall === null ? "–" : row.kendall.toFixed(3)}`, `top-1 loss ${percent(row.top1_loss, 1)}, median error ${percent(row.median_error, 1)}`, `${row.n} measured times, ${row.model} tier`] }));
    if (!points.length) return null;
    const last = rows[rows.length - 1];
    return h("article", { class: "card agreement" }, h("h2", null, title(last)),
      h("p", { class: "lead" }, h("b", null, points[points.length - 1].y.toFixed(3)), ` Spearman over ${last.n} measured times; top-1 loss ${percent(last.top1_loss, 1)}, median error ${percent(last.median_error, 1)}`),
      points.length < 2 ? null : trendChart({ points, runs: runs.length, label: "Spearman", y: [Math.min(0, ...points.map((p) => p.y)), 1.02] }));
  }).filter(Boolean);
  const head = (names) => h("thead", null, h("tr", null, names.map(([name, right]) => h("th", { class: right ? "right" : "" }, name))));
  const table = h("div", { class: "runs" }, h("table", null,
    head([["#", 1], ["run"], ["finished"], ["families"], ["targets"], ["candidates", 1], ["estimated", 1], ["failed", 1], ["simulated in", 1], ["state"]]),
    h("tbody", null, runs.map((run, n) => ({ run, n })).reverse().map(({ run, n }) => h("tr", null, h("td", { class: "right" }, n + 1), h("td", null, run.page ? h("a", { href: run.page }, run.run) : run.run), h("td", null, run.written || "–"),
      run.problem ? h("td", { colspan: 7, class: "wrap warn" }, run.problem) : [h("td", null, run.families.join(", ")), h("td", null, run.targets.join(", ")), h("td", { class: "right" }, count(run.candidates)), h("td", { class: "right" }, count(run.estimated)),
        h("td", { class: "right" + (run.failed ? " warn" : "") }, count(run.failed)), h("td", { class: "right" }, seconds(run.simulation_seconds)), h("td", null, run.complete ? "complete" : "unfinished")])))));
  const failures = runs.flatMap((run, n) => (run.failures || []).map((failure) => ({ n: n + 1, run: run.run, ...failure }))).reverse();
  const section = (name, note, content) => [h("h2", { class: "section" }, name, note ? h("small", null, note) : null), content];
  const root = h("main", { class: "overview" },
    section("Best times", "of each kernel and target, run by run", times.length ? h("div", { class: "trends" }, times) : h("p", { class: "runs empty" }, "No estimate yet.")),
    section("Agreement with measurements", "rank correlation of simulated with measured times", trust.length ? h("div", { class: "trends" }, trust) : h("p", { class: "runs empty" }, "No run has measured times (farm submit --measured FILE).")),
    section("Runs", `${runs.length} in this store`, table),
    failures.length ? section("Failures", "by class, with the commonest message", h("div", { class: "runs" }, h("table", null, head([["#", 1], ["run"], ["family"], ["target"], ["class"], ["variants", 1], ["message"]]),
      h("tbody", null, failures.map((f) => h("tr", null, h("td", { class: "right" }, f.n), h("td", null, f.run), h("td", null, f.family), h("td", null, f.target), h("td", { class: "warn" }, f.failure), h("td", { class: "right" }, count(f.variants)), h("td", { class: "wrap" }, f.message))))))) : null);
  document.getElementById("app").append(root);
  document.body.append(tip);
}

overview();
