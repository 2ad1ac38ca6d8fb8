// The index: every candidate of the run, with charts above.

const COLUMN = Object.fromEntries(DATA.index ? DATA.index.columns.map((name, n) => [name, n]) : []);
const TIER_ORDER = { cycle: 0, sampled: 1, static: 2 };

class IndexView {
  constructor(state) {
    this.index = DATA.index;
    this.state = state;
    this.family = 0;
    this.target = Math.max(0, this.index.targets.indexOf(state.t));
    this.query = state.q || "";
    this.sort = { id: "time", down: false };
    this.memoryAxis = "registers";
    this.selected = -1;
    const named = this.index.families.findIndex((f) => f.name === state.f);
    if (named >= 0) this.family = named;
    this.element = h("main", { class: "index" });
    this.render();
  }

  get familyData() {
    return this.index.families[this.family];
  }

  cell(row, name, target = this.target) {
    const cells = row[4][target];
    return cells ? cells[COLUMN[name]] : null;
  }

  ok(row, target = this.target) {
    return this.cell(row, "status", target) === "ok";
  }

  render() {
    const f = this.familyData;
    if (!f.targets.includes(this.index.targets[this.target])) this.target = this.index.targets.indexOf(f.targets[0]);
    this.all = this.index.rows.filter((row) => row[0] === this.family);
    this.columns = this.makeColumns();
    this.texts = new Map();
    this.filter = h("input", { class: "filter", type: "search", spellcheck: "false", value: this.query, "aria-label": "Filter candidates",
      placeholder: this.example(),
      oninput: () => this.setQuery(this.filter.value), onkeydown: (e) => this.filterKey(e) });
    this.note = h("span", { class: "note", role: "status" });
    this.head = h("div", { class: "vhead", role: "row" });
    this.list = new VirtualList({ header: this.head, count: 0, height: 26, label: "Candidates", build: (n) => this.row(n) });
    this.list.scroller.addEventListener("keydown", (event) => this.key(event));
    this.list.scroller.classList.add("candidates");
    this.charts = h("section", { class: "cards" });
    clear(this.element,
      h("div", { class: "toolbar" },
        this.familyPicker(),
        tabs(f.targets, this.index.targets[this.target], (t) => this.setTarget(this.index.targets.indexOf(t)), "Target"),
        DATA.complete ? null : h("span", { class: "tag real", title: "The run was still being written, or stopped, when this page was made" }, "unfinished run"),
        h("span", { class: "grow" })),
      this.charts,
      h("div", { class: "toolbar second" }, this.filter, this.note, h("span", { class: "grow" }),
        h("span", { class: "hint" }, "Times are ", simulated(), " unless marked ", measured())),
      this.list.scroller);
    this.apply();
    this.drawCharts();
  }

  example() {
    const parameter = this.familyData.parameters[0];
    return "Filter: " + (parameter ? `${parameter}=${this.all.length ? this.all[0][3][0] : 1}  ` : "") + "regs<=64  bound=lsu  time<100";
  }

  familyPicker() {
    const families = this.index.families;
    if (families.length === 1) return h("span", { class: "family" }, families[0].name);
    return h("label", { class: "family" }, "Family ",
      h("select", { onchange: (e) => { this.family = Number(e.target.value); this.sort = { id: "time", down: false }; this.render(); this.remember(); } },
        families.map((f, n) => h("option", { value: n, selected: n === this.family }, f.name))));
  }

  setTarget(target) {
    this.target = target;
    this.render();
    this.remember();
  }

  setQuery(text) {
    this.query = text;
    this.apply();
    clearTimeout(this.chartTimer); // not at every key
    this.chartTimer = setTimeout(() => { this.drawCharts(); this.remember(); }, 150);
  }

  remember() {
    replaceRoute({ page: "index", f: this.index.families.length > 1 ? this.familyData.name : undefined,
      t: this.index.targets[this.target], q: this.query || undefined });
  }

  // ---- columns

  makeColumns() {
    const number = (id, label, width, get, format, more) => ({ id, label, width, get, format, right: true, ...more });
    const text = (id, label, width, get, more) => ({ id, label, width, get, format: (v) => v ?? "–", ...more });
    const of = (name) => (row) => this.cell(row, name);
    const f = this.familyData;
    const several = f.targets.length > 1;
    const best = new Map();
    for (const row of this.all) {
      if (!this.ok(row)) continue;
      const key = row[2] + "|" + this.cell(row, "tier");
      best.set(key, Math.min(best.get(key) ?? Infinity, this.cell(row, "time_us")));
    }
    const columns = [
      number("place", "#", 54, of("place"), (v, row) => (v === null ? "–" : String(v)), { title: "Rank by simulated time, within the tier" + (f.within.length ? " and equal " + f.within.join(", ") : "") }),
      number("variant", "variant", 78, (row) => row[1], String),
    ];
    if (f.within.length) columns.push(text("group", "group", 110, (row) => row[2]));
    f.parameters.forEach((name, n) => columns.push(number("p:" + name, name, Math.min(190, Math.max(56, 30 + 9 * name.length)), (row) => row[3][n], (v) => v ?? "–", { parameter: true, title: name, names: [name.toLowerCase()] })));
    columns.push(number("time", "time", 108, of("time_us"), time, { strong: true, tag: simulated, names: ["us"], title: "Simulated time on " + this.index.targets[this.target] }));
    columns.push(number("vs", "× best", 70, (row) => this.ok(row) ? this.cell(row, "time_us") / best.get(row[2] + "|" + this.cell(row, "tier")) : null, (v) => v === null ? "–" : v.toFixed(2), { names: ["factor"] }));
    if (this.all.some((row) => this.cell(row, "measured_us") !== null)) {
      columns.push(number("measured", "time", 122, of("measured_us"), (v, row) => v === null ? "–" : time(v) + (this.cell(row, "used") ? "" : " ~"), { tag: measured, title: "Measured on the GPU; ~ marks a disturbed measurement" }));
      columns.push(number("error", "error", 70, (row) => this.ok(row) && this.cell(row, "measured_us") ? this.cell(row, "time_us") / this.cell(row, "measured_us") - 1 : null,
        (v) => v === null ? "–" : (v > 0 ? "+" : "") + percent(v, Math.abs(v) < 0.095 ? 1 : 0)));
    }
    if (several) for (const name of f.targets) {
      const other = this.index.targets.indexOf(name);
      if (other === this.target) continue;
      columns.push(number("time@" + name, name, Math.max(100, 56 + 8 * name.length), (row) => this.cell(row, "time_us", other), time, { tag: simulated, title: "Simulated time on " + name }));
      columns.push(number("place@" + name, "#", 46, (row) => this.cell(row, "place", other), (v) => v ?? "–", { title: "Rank on " + name }));
    }
    columns.push(
      text("bound", "bound", 92, of("bound"), { title: "The busiest resource", format: (v, row) => v ?? this.cell(row, "failure") ?? "–" }),
      number("occ", "occupancy", 114, of("occupancy"), (v) => percent(v), { meter: true, names: ["occupancy"] }),
      text("limiter", "limiter", 122, (row) => { const v = this.cell(row, "limiter"); return v && v.replaceAll("_", " "); }),
      number("regs", "regs", 56, of("registers"), (v) => v ?? "–", { names: ["registers"] }),
      number("spills", "spills", 66, of("spill_bytes"), (v) => v ? kib(v) : v === 0 ? "0" : "–", { warn: (v) => v > 0 }),
      number("smem", "shared", 82, of("shared_bytes"), (v) => v === null ? "–" : kib(v), { names: ["shared"] }),
      number("waves", "waves", 64, of("waves"), (v) => digits(v, 3)),
      text("tier", "tier", 74, of("tier")),
      text("confidence", "confidence", 92, of("confidence")),
      number("sim", "sim. time", 84, of("simulation_seconds"), seconds, { title: "Seconds this computer simulated" }),
      text("status", "status", 240, (row) => { const c = row[4][this.target]; return !c ? "not run" : this.ok(row) ? "ok" : `${this.cell(row, "failure")}: ${(this.cell(row, "message") || "").split("\n")[0]}`; }));
    return columns;
  }

  named() {
    const names = new Map();
    for (const column of this.columns) {
      for (const name of [column.id.replace(/^p:/, ""), column.label, ...(column.names || [])]) {
        const key = name.toLowerCase().replaceAll(" ", "_");
        if (!names.has(key)) names.set(key, column.get);
      }
    }
    return names;
  }

  textOf(row) {
    let found = this.texts.get(row);
    if (found === undefined) {
      found = this.columns.map((c) => (c.right && !c.parameter ? "" : c.parameter ? `${c.label}=${c.get(row)}` : c.get(row) ?? "")).join(" ").toLowerCase() + ` #${row[1]} `;
      this.texts.set(row, found);
    }
    return found;
  }

  // ---- filter, sort, rows

  apply() {
    const { test, problems } = parseQuery(this.query, this.named(), (row) => this.textOf(row));
    const selected = this.shown?.[this.selected];
    this.shown = this.all.filter(test);
    const column = this.columns.find((c) => c.id === this.sort.id) || this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    const keyed = this.shown.map((row) => [column.get(row), TIER_ORDER[this.cell(row, "tier")] ?? 3, row]);
    const byTime = column.id === "time" || column.id === "place" || column.id === "vs";
    keyed.sort((a, b) => {
      if (byTime && a[1] !== b[1] && a[0] !== null && b[0] !== null) return a[1] - b[1]; // tiers' times do not mix
      const [x, y] = [a[0], b[0]];
      if (x === null || x === undefined) return y === null || y === undefined ? a[2][1] - b[2][1] : 1;
      if (y === null || y === undefined) return -1;
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return sign * order || a[2][1] - b[2][1];
    });
    this.shown = keyed.map((entry) => entry[2]);
    this.selected = selected ? this.shown.indexOf(selected) : -1;
    clear(this.note, problems.length ? h("span", { class: "bad" }, `no column ${problems.join(", ")}`) :
      `${count(this.shown.length)} of ${count(this.all.length)} candidates`);
    this.filter.classList.toggle("wrong", problems.length > 0);
    this.drawHead();
    this.list.scroller.style.height = `min(max(320px, 100vh - 210px), ${this.shown.length * 26 + 50}px)`;
    this.list.reset(this.shown.length);
  }

  drawHead() {
    this.list.setColumns(this.columns.map((c) => c.width));
    clear(this.head, this.columns.map((column) => {
      const sorted = this.sort.id === column.id;
      return h("div", { class: "th" + (column.right ? " right" : "") + (sorted ? " sorted" : ""), role: "columnheader",
        "aria-sort": sorted ? (this.sort.down ? "descending" : "ascending") : "none" },
        h("button", { type: "button", title: column.title || "Sort by " + column.label, "data-column": column.id, onclick: () => this.sortBy(column.id) },
          column.label, column.tag ? [" ", column.tag()] : null, sorted ? h("span", { class: "arrow", "aria-hidden": "true" }, this.sort.down ? "▼" : "▲") : null));
    }));
  }

  sortBy(id) {
    this.sort = { id, down: this.sort.id === id ? !this.sort.down : false };
    this.apply();
  }

  row(n) {
    const row = this.shown[n];
    const link = candidateLink(this.familyData.name, row[1], { t: this.index.targets[this.target] });
    return h("div", { class: "vrow" + (this.ok(row) ? "" : " failed") + (n === this.selected ? " selected" : "") + (link ? " open" : ""), role: "row", "data-variant": row[1],
      onclick: (event) => this.clicked(event, n) },
      this.columns.map((column) => {
        const value = column.get(row);
        const shown = column.format(value, row);
        const content = column.id === "variant" && link ? h("a", { href: link, tabindex: "-1" }, shown) : shown;
        return h("div", { class: "td" + (column.right ? " right" : "") + (column.strong ? " strong" : "") + (column.parameter ? " parameter" : "") + (column.warn && column.warn(value) ? " warn" : ""),
          role: "cell", title: column.id === "status" ? this.cell(row, "message") : null },
          column.meter && value !== null ? [h("span", { class: "meter" }, h("i", { style: { width: 100 * value + "%" } })), h("span", { class: "metered" }, content)] : content);
      }));
  }

  clicked(event, n) {
    if (event.target.closest("a")) return;
    this.select(n);
  }

  select(n) {
    if (!this.shown.length) return;
    const old = this.selected;
    this.selected = Math.max(0, Math.min(this.shown.length - 1, n));
    this.list.reveal(this.selected);
    this.list.refresh([old, this.selected]);
    this.markDots();
  }

  open(n) {
    const row = this.shown[n];
    const link = row && candidateLink(this.familyData.name, row[1], { t: this.index.targets[this.target] });
    if (link) location.assign(link);
    else if (row) clear(this.note, `no page for variant ${row[1]} here: ${DATA.command} ${row[1]}`);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.scroller.clientHeight / this.list.height) - 2);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.select((this.selected < 0 && moves[event.key] === 1 ? -1 : this.selected) + moves[event.key]);
    else if (event.key === "Enter") this.open(Math.max(0, this.selected));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  filterKey(event) {
    if (event.key === "Escape") {
      this.filter.value = "";
      this.setQuery("");
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      this.list.scroller.focus({ preventScroll: true });
      this.select(0);
      event.preventDefault();
    }
  }

  /** Keys that work anywhere on the page; true when handled. */
  globalKey(event) {
    if (event.key === "/") this.filter.focus();
    else if (event.key === "[" || event.key === "]") {
      const targets = this.familyData.targets;
      const at = targets.indexOf(this.index.targets[this.target]) + (event.key === "]" ? 1 : targets.length - 1);
      this.setTarget(this.index.targets.indexOf(targets[at % targets.length]));
    } else if (event.target === document.body) {
      this.list.scroller.focus({ preventScroll: true });
      this.key(event);
      return event.defaultPrevented;
    } else return false;
    return true;
  }

  // ---- charts

  drawCharts() {
    clear(this.charts, this.agreementCard(), this.paretoCard(), this.funnelCard());
    this.markDots();
  }

  pick(row) {
    const n = this.shown.indexOf(row);
    if (n < 0) return;
    this.list.scroller.focus({ preventScroll: true });
    this.select(n);
  }

  tipOf(row) {
    const f = this.familyData;
    return [h("b", null, `variant ${row[1]}`), f.parameters.map((name, n) => `${name}=${row[3][n]}`).join(" "),
      `simulated ${time(this.cell(row, "time_us"))}` + (this.cell(row, "measured_us") ? `, measured ${time(this.cell(row, "measured_us"))}` : ""),
      `${this.cell(row, "registers")} registers, ${percent(this.cell(row, "occupancy"))} occupancy, bound by ${this.cell(row, "bound")}`];
  }

  points(rows, x, y, mark) {
    return rows.map((row) => ({ row, x: x(row), y: y(row), tip: () => this.tipOf(row), class: mark ? mark(row) : "" }));
  }

  markDots() {
    const row = this.shown[this.selected];
    for (const dot of this.charts.querySelectorAll(".dot.here")) dot.classList.remove("here");
    if (!row) return;
    for (const list of [this.agreementRows, this.paretoRows]) {
      const n = list ? list.rows.indexOf(row) : -1;
      if (n >= 0) list.svg()?.querySelector(`[data-n="${n}"]`)?.classList.add("here");
    }
  }

  /** Rows shown of the tier that goes furthest, so that tiers' times are not mixed. */
  plotted() {
    const good = this.shown.filter((row) => this.ok(row));
    const counts = {};
    for (const row of good) counts[this.cell(row, "tier")] = (counts[this.cell(row, "tier")] || 0) + 1;
    const tier = (counts.cycle ?? 0) > 1 && counts.cycle >= (counts.sampled ?? 0) ? "cycle" : counts.sampled ? "sampled" : counts.cycle ? "cycle" : "static";
    return [good.filter((row) => this.cell(row, "tier") === tier), tier];
  }

  agreementCard() {
    const [good, tier] = this.plotted();
    const both = good.filter((row) => this.cell(row, "measured_us") !== null);
    const card = h("article", { class: "card agreement" }, h("h2", null, "Simulated against measured"));
    if (!both.length) {
      this.agreementRows = null;
      const any = this.all.some((row) => this.cell(row, "measured_us") !== null);
      card.append(h("p", { class: "empty" }, any ? "None of those shown was measured." : [`No measured times on ${this.index.targets[this.target]}. `,
        "With some, this shows how far to trust the order: farm submit --measured FILE."]));
      return card;
    }
    const range = extent(both.flatMap((row) => [this.cell(row, "time_us"), this.cell(row, "measured_us")]), true);
    const svg = scatter({
      points: this.points(both, (row) => this.cell(row, "measured_us"), (row) => this.cell(row, "time_us"), (row) => this.cell(row, "used") ? "" : "unused"),
      x: { log: true, label: "measured, µs", range, format: count }, y: { log: true, label: "simulated, µs", range, format: count },
      label: "Simulated against measured times", pick: (p) => this.pick(p.row),
      extra: (a) => a.plot.append(s("line", { class: "ideal", x1: a.x(range[0]), y1: a.y(range[0]), x2: a.x(range[1]), y2: a.y(range[1]) })) });
    this.agreementRows = { rows: both, svg: () => svg };
    const own = this.correlation().find((row) => row.model === tier);
    card.append(svg, h("p", { class: "fine" }, own && own.spearman !== null ? ["Spearman ", h("b", null, own.spearman.toFixed(3)), `, Kendall τ-b ${own.kendall === null ? "–" : own.kendall.toFixed(3)}, over ${own.n} measured times`,
      own.groups > 1 ? `, mean of ${own.groups} groups. ` : ". "] : null, `${count(both.length)} of the ${tier} tier pass the filter.`));
    return card;
  }

  correlation() {
    return this.index.correlation.filter((c) => c.family === this.familyData.name && c.target === this.index.targets[this.target]);
  }

  agreementTable() {
    const rows = this.correlation();
    if (!rows.length) return null;
    return [h("h2", { class: "next" }, "How far to trust the order"), h("table", { class: "small agreementtable" },
      h("thead", null, h("tr", null, ["order by", "Spearman", "Kendall", "top-1 loss", "error"].map((t, n) => h("th", { class: n ? "right" : "" }, t)))),
      h("tbody", null, rows.map((row) => {
        const estimate = ["sampled", "static", "cycle"].includes(row.model);
        return h("tr", { class: estimate ? "" : "dim", title: estimate ? "" : "A null model: it knows nothing of time. An estimate that does not beat it is worth nothing." },
          h("td", null, estimate ? row.model + " estimate" : row.model + " (null)"),
          [row.spearman, row.kendall].map((v) => h("td", { class: "right" }, v === null ? "–" : v.toFixed(3))),
          [row.top1_loss, row.median_error].map((v) => h("td", { class: "right" }, percent(v, 1))));
      })))];
  }

  paretoCard() {
    const [good, tier] = this.plotted();
    const choices = [["registers", "registers", "registers a thread"], ["shared_bytes", "shared memory", "shared memory a CTA, bytes"]];
    const chosen = choices.find((c) => c[0] === this.memoryAxis);
    const rows = good.filter((row) => this.cell(row, chosen[0]) !== null);
    const x = (row) => this.cell(row, chosen[0]);
    const y = (row) => this.cell(row, "time_us");
    const sorted = [...rows].sort((a, b) => x(a) - x(b) || y(a) - y(b));
    const front = [];
    for (const row of sorted) if (!front.length || y(row) < y(front[front.length - 1])) front.push(row);
    const members = new Set(front);
    const card = h("article", { class: "card pareto" }, h("h2", null, "Pareto: time against ",
      h("select", { "aria-label": "Resource", onchange: (e) => { this.memoryAxis = e.target.value; this.drawCharts(); } },
        choices.map((c) => h("option", { value: c[0], selected: c === chosen }, c[1])))));
    if (!rows.length) return card.append(h("p", { class: "empty" }, "Nothing to show.")), card;
    const svg = scatter({ points: this.points(rows, x, y, (row) => (members.has(row) ? "front" : "")),
      x: { label: chosen[2], format: chosen[0] === "registers" ? count : kib, binary: chosen[0] !== "registers" }, y: { log: true, label: "simulated, µs", format: count }, label: "Time against " + chosen[1], pick: (p) => this.pick(p.row),
      extra: (a) => {
        let path = "";
        front.forEach((row, n) => { path += n ? `H${a.x(x(row)).toFixed(1)}V${a.y(y(row)).toFixed(1)}` : `M${a.x(x(row)).toFixed(1)} ${a.y(y(row)).toFixed(1)}`; });
        a.plot.append(s("path", { class: "frontline", d: path }));
      } });
    this.paretoRows = { rows, svg: () => svg };
    card.append(svg, h("p", { class: "fine" }, `${front.length} of ${rows.length} (${tier} tier) ${front.length === 1 ? "is" : "are"} on the front: nothing faster needs less.`));
    return card;
  }

  funnelCard() {
    const row = this.index.funnel.find((r) => r.family === this.familyData.name && r.target === this.index.targets[this.target]);
    const card = h("article", { class: "card funnel" }, h("h2", null, "Funnel"));
    if (!row) return card;
    const failed = Object.values(row.failed).reduce((a, b) => a + b, 0);
    const stages = [["in the sweep", row.sweep], ["asked for", row.planned], ["static tier", row.static], ["sampled tier", row.sampled], ["cycle tier", row.cycle]]
      .filter(([name, n]) => n > 0 || !name.startsWith("cycle"));
    const most = Math.max(1, ...stages.map((stage) => stage[1]));
    card.append(h("div", { class: "stages" }, stages.map(([name, n]) =>
      h("div", { class: "stage" }, h("span", { class: "name" }, name),
        h("span", { class: "track" }, h("i", { style: { width: (100 * n) / most + "%" } })), h("b", null, count(n))))));
    if (failed) card.append(h("p", { class: "fine" }, `${count(failed)} failed: ` + Object.entries(row.failed).map(([why, n]) => `${count(n)} ${why}`).join(", "),
      ". ", h("button", { class: "link", type: "button", onclick: () => { this.filter.value = "status!=ok"; this.setQuery("status!=ok"); } }, "show them")));
    card.append(...(this.agreementTable() || []));
    return card;
  }
}
