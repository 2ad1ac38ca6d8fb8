// One candidate: a tab for each target, two side by side, panels and SASS.

class CandidateView {
  constructor(candidate, state) {
    this.candidate = candidate;
    this.targets = Object.keys(candidate.targets);
    this.main = candidate.targets[state.t] ? state.t : this.targets[0];
    this.other = candidate.targets[state.with] && state.with !== this.main ? state.with : null;
    this.rows = [rowOf(state.line), rowOf(state.line2)];
    this.active = 0;
    this.element = h("main", { class: "candidate" });
    this.render();
  }

  render() {
    this.panes = [this.main, this.other].filter(Boolean).map((name, n) => new Pane(this, name, n));
    clear(this.element, this.header(), h("div", { class: "panes" + (this.other ? " two" : "") }, this.panes.map((pane) => pane.element)));
    this.panes.forEach((pane, n) => pane.start(this.rows[n]));
  }

  header() {
    const c = this.candidate;
    const back = DATA.index ? "#/" : DATA.up;
    return h("div", { class: "toolbar" },
      back ? h("a", { class: "back", href: back, title: "All candidates (g)" }, "← All") : null,
      h("h1", null, c.family, h("span", { class: "dim" }, ` variant ${c.variant}`)),
      h("div", { class: "params" }, Object.entries(c.parameters).map(([name, value]) => h("span", null, name, h("b", null, value)))),
      h("span", { class: "grow" }),
      tabs(this.targets, this.main, (t) => this.setTarget(t), "Target"),
      this.targets.length > 1 ? h("label", { class: "beside" }, "beside ", h("select", { "aria-label": "Second target", onchange: (e) => this.setOther(e.target.value || null) },
        h("option", { value: "" }, "—"), this.targets.filter((t) => t !== this.main).map((t) => h("option", { value: t, selected: t === this.other }, t)))) : null);
  }

  setTarget(name) {
    if (name === this.main) return;
    const before = this.panes[0];
    const old = this.main;
    this.main = name;
    if (this.other === name) this.other = old;
    this.rows = [matchingRow(this.candidate, old, name, before.view?.selected ?? -1), this.other ? this.rows[1] : -1];
    if (this.other === old) this.rows[1] = before.view?.selected ?? -1;
    this.render();
    this.remember();
  }

  setOther(name) {
    this.other = name;
    this.rows = [this.panes[0].view?.selected ?? -1, -1];
    if (name) this.rows[1] = matchingRow(this.candidate, this.main, name, this.rows[0]);
    this.active = 0;
    this.render();
    this.remember();
  }

  selected(pane, row) {
    this.rows[pane.number] = row;
    this.active = pane.number;
    const twin = this.panes[1 - pane.number];
    if (twin?.view && twin.target.listing === pane.target.listing) {
      twin.view.select(row);
      twin.detail.show(row);
      this.rows[twin.number] = row;
    }
    this.remember();
  }

  remember() {
    const line = (row) => (row >= 0 ? address(row) : undefined);
    replaceRoute({ page: "candidate", family: this.candidate.family, variant: this.candidate.variant, t: this.main, with: this.other || undefined, line: line(this.rows[0]), line2: this.other ? line(this.rows[1]) : undefined });
  }

  globalKey(event) {
    const pane = this.panes[Math.min(this.active, this.panes.length - 1)];
    if (event.key === "[" || event.key === "]") {
      const at = this.targets.indexOf(this.main) + (event.key === "]" ? 1 : this.targets.length - 1);
      this.setTarget(this.targets[at % this.targets.length]);
    } else if (event.key === "s") {
      const others = this.targets.filter((t) => t !== this.main);
      if (!others.length) return false;
      this.setOther(this.other ? null : others[0]);
    } else if (event.key === "Tab" || event.target.closest?.("select, input, textarea")) return false;
    else if (event.key === "c" && pane.view) pane.showSource(!pane.sourceShown);
    else if (event.key === "w" && this.panes.length > 1) this.active = 1 - this.active;
    else if (event.key === "f" && pane.view) pane.focusCode();
    else if (pane.view) {
      if (event.key.startsWith("Arrow") || event.key.startsWith("Page") || event.key === "Home" || event.key === "End") {
        if (!pane.view.list.scroller.contains(event.target)) return false; // the page itself scrolls
      }
      const handled = pane.view.key(event);
      if (handled) pane.bringCode();
      return handled;
    } else return false;
    return true;
  }
}

/** Row of an address such as 0x120, -1 for none. */
function rowOf(text) {
  const value = /^(0x)?[0-9a-f]+$/i.test(text || "") ? parseInt(text, 16) : NaN;
  return Number.isNaN(value) || value % 16 ? -1 : value / 16;
}

/** The row on another target that belongs to a row: the same one where the code is, else the first of its source line. */
function matchingRow(candidate, from, to, row) {
  const a = candidate.codes[candidate.targets[from].listing];
  const b = candidate.codes[candidate.targets[to].listing];
  if (row < 0 || !a || !b) return -1;
  if (a === b) return row;
  const line = a.line[row];
  return line ? b.line.indexOf(line) : -1;
}

class Pane {
  constructor(owner, name, number) {
    this.owner = owner;
    this.name = name;
    this.number = number;
    this.target = owner.candidate.targets[name];
    this.sourceShown = false;
    const listing = owner.candidate.codes[this.target.listing];
    const code = this.target.code;
    const spills = (code.spill_store_bytes || 0) + (code.spill_load_bytes || 0) > 0;
    if (listing && this.target.lines) {
      this.view = new SassView(listing, this.target, { spills, compact: owner.other !== null, select: (row) => { this.detail.show(row); this.source.reveal(row); owner.selected(this, row); } });
      this.detail = new LineDetail(this.view, owner.candidate, listing);
      this.view.list.scroller.addEventListener("focusin", () => { owner.active = number; });
      this.source = new SourceView(this);
    }
    this.element = h("section", { class: "pane", "aria-label": name }, this.summary(), h("div", null, this.failures()), this.panels(), this.code());
  }

  start(row) {
    if (!this.view) return;
    this.view.list.draw();
    if (row >= 0 && row < this.view.count) {
      this.view.select(row, true);
      this.detail.show(row);
    }
  }

  summary() {
    const t = this.target;
    const best = t.tiers[0];
    if (!best) return h("div", { class: "summary" }, h("div", { class: "figure" }, h("small", null, this.name), h("b", null, "no estimate")));
    const figure = (label, value, note, kind) => h("div", { class: "figure " + (kind || "") }, h("small", null, label), h("b", null, value), note ? h("span", null, note) : null);
    const spills = (t.code.spill_store_bytes || 0) + (t.code.spill_load_bytes || 0);
    const gap = t.measured ? best.time_us / t.measured.us - 1 : null;
    return h("div", { class: "summary" },
      figure([t.gpu?.name || this.name, " ", simulated()], time(best.time_us), t.place && t.place.place ? (t.place.place === 1 ? `fastest of ${t.place.of}` : `#${t.place.place} of ${t.place.of}, ${(best.time_us / t.place.best_us).toFixed(2)}× variant ${t.place.best_variant}`) : null, "big"),
      t.measured ? figure(measured(), time(t.measured.us), `estimate ${gap > 0 ? "+" : ""}${percent(gap, 1)}`, "real") : null,
      figure("bound by", BOUND_NAMES[best.bound] || best.bound, t.bounds?.[best.bound] ? `busy ${percent(t.bounds[best.bound] / best.time_us)}` : null),
      figure("occupancy", percent(best.occupancy), `limit: ${best.limiter.replaceAll("_", " ")}`),
      figure("registers", t.code.registers ?? "–", spills ? h("span", { class: "warn" }, `spills ${spills} B`) : "no spills"),
      figure("waves", digits(best.waves, 3), `${best.ctas_per_sm} CTAs an SM`),
      figure("confidence", best.confidence ?? "–", `${best.tier} tier, ${percent(best.executed_share, best.executed_share < 0.001 ? 2 : best.executed_share < 0.1 ? 1 : 0)} executed`),
      figure("simulated in", seconds(best.simulation_seconds), "of CPU time"));
  }

  failures() {
    const same = new Map();
    for (const f of this.target.failures) {
      const key = JSON.stringify([f.failure, f.message]);
      same.set(key, [...(same.get(key) || []), f.tier]);
    }
    return [...same].map(([key, tiers]) => {
      const [failure, message] = JSON.parse(key);
      return h("div", { class: "failure", role: "alert" }, h("b", null, `${failure} (${tiers.join(", ")} tier${tiers.length > 1 ? "s" : ""})`), h("pre", null, message || ""));
    });
  }

  panels() {
    const t = this.target;
    const cards = [speedOfLight(t), warpStates(t), memoryChart(t), occupancyPanel(t), rooflinePanel(t), launchPanel(t), trustPanel(t, this.owner.candidate)].filter(Boolean);
    return h("section", { class: "panels" }, cards);
  }

  code() {
    if (!this.view) return h("p", { class: "empty" }, "No SASS is kept for this target.");
    const reasons = this.view.totals.pairs.filter((p) => p[1] / this.view.totals.total >= 0.003).map((p) => p[0]);
    this.area = h("div", { class: "codearea" }, this.view.element, this.detail.element);
    this.toggle = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => this.showSource(!this.sourceShown) }, "Source (c)");
    return h("section", { class: "code" },
      h("div", { class: "codehead" }, h("h2", null, "SASS"), h("span", { class: "dim" }, `${count(this.view.count)} instructions, ${this.target.lines.tier} tier`), this.source.available ? this.toggle : null, h("button", { type: "button", class: "small", onclick: () => this.view.toggleRanges() }, "Registers (r)"), h("span", { class: "grow" }), legend(reasons)),
      this.area);
  }

  showSource(shown) {
    if (!this.source.available) return;
    this.sourceShown = shown;
    this.toggle.setAttribute("aria-pressed", String(shown));
    this.area.classList.toggle("withsource", shown);
    if (shown) {
      this.area.prepend(this.source.element);
      this.source.reveal(this.view.selected);
    } else this.source.element.remove();
    this.view.list.draw();
  }

  /** Scroll the page so that the table can be seen, if most of it cannot. */
  bringCode() {
    const box = this.view.element.getBoundingClientRect();
    if (Math.min(box.bottom, innerHeight) - Math.max(box.top, 0) < Math.min(box.height, innerHeight) * 0.6) this.focusCode();
  }

  focusCode() {
    this.element.querySelector(".code").scrollIntoView({ block: "start" });
    this.view.list.scroller.focus({ preventScroll: true });
  }
}

/** The kernel's source with each line's share of the warp cycles. */
class SourceView {
  constructor(pane) {
    this.pane = pane;
    const { listing, cycles } = pane.view;
    const sums = listing.files.map(() => new Map());
    listing.line.forEach((line, row) => {
      const f = listing.file.length ? listing.file[row] : 0;
      if (!line || f < 0 || !sums[f]) return;
      const entry = sums[f].get(line) || { cycles: 0, rows: [] };
      entry.cycles += cycles[row] || 0;
      entry.rows.push(row);
      sums[f].set(line, entry);
    });
    const sources = pane.owner.candidate.sources;
    this.file = listing.files.findIndex((f, n) => sources[f] && sums[n].size);
    this.available = this.file >= 0;
    if (!this.available) return;
    this.text = sources[listing.files[this.file]];
    this.sums = sums[this.file];
    this.most = largest([...this.sums.values()].map((e) => e.cycles), 1);
    const total = pane.view.totals.total || 1;
    this.list = new VirtualList({ header: h("div", { class: "vhead", role: "row" }, h("div", { class: "th", role: "columnheader", style: { gridColumn: "1 / -1" } }, listing.files[this.file])), count: this.text.length, height: ROW, label: "Source",
      build: (n) => {
        const entry = this.sums.get(n + 1);
        return h("div", { class: "vrow src" + (entry ? " has" : "") + (n + 1 === this.line ? " selected" : ""), role: "row", "data-line": n + 1, title: entry ? `${entry.rows.length} instructions` : null },
          h("div", { class: "td right num", role: "cell" }, n + 1),
          h("div", { class: "td right", role: "cell" }, entry && entry.cycles ? [h("span", { class: "meter heat" }, h("i", { style: { width: (100 * entry.cycles) / this.most + "%" } })), h("span", { class: "metered" }, (100 * entry.cycles / total).toFixed(1) + " %")] : ""),
          h("div", { class: "td", role: "cell" }, h("code", null, this.text[n])));
      } });
    this.list.scroller.classList.add("source");
    this.list.setColumns([46, 112, 20 + 7.3 * Math.min(400, largest(this.text.map((line) => line.length), 20))]);
    this.list.scroller.addEventListener("click", (event) => {
      const line = Number(event.target.closest(".vrow")?.dataset.line);
      const entry = this.sums.get(line);
      if (!entry) return;
      const hottest = entry.rows.reduce((a, b) => (cycles[b] > cycles[a] ? b : a));
      pane.view.select(hottest, true);
      pane.view.onselect(hottest);
    });
    this.element = this.list.scroller;
  }

  reveal(row) {
    if (!this.available || !this.pane.sourceShown) return;
    const line = row >= 0 ? this.pane.view.listing.line[row] : 0;
    const old = this.line;
    this.line = line;
    this.list.draw();
    if (line) this.list.reveal(line - 1, true);
    this.list.refresh([old - 1, line - 1]);
  }
}
