// What is known of the selected line, beside the table.

class LineDetail {
  constructor(view, candidate, codeOf) {
    this.view = view;
    this.candidate = candidate;
    this.codeOf = codeOf;
    this.element = h("aside", { class: "detail", "aria-label": "Selected line", "aria-live": "polite" });
    this.show(-1);
  }

  show(row) {
    if (row < 0) return clear(this.element, h("p", { class: "empty" }, "Select a line to see what it waits for, and what waits for it."),
      h("p", { class: "empty" }, "Keys: ", h("kbd", null, "j"), h("kbd", null, "k"), " move, ", h("kbd", null, "n"), h("kbd", null, "p"), " costliest lines, ", h("kbd", null, "?"), " all."), this.hottest());
    const v = this.view;
    const l = v.listing;
    clear(this.element,
      h("h3", null, h("code", null, address(row)), h("span", { class: "grow" }), h("button", { class: "small", type: "button", title: "Copy a link to this line", onclick: (e) => copyLink(e.target) }, "Copy link")),
      h("pre", { class: "sassline" }, l.sass[row]),
      this.stalls(row), this.numbers(row), this.links("Waits for", v.producersOf(row), row), this.links("Awaited by", v.consumersOf(row), row), this.registers(row), this.sourceLines(row));
    return this.element;
  }

  hottest() {
    const v = this.view;
    if (!v.hot.length) return null;
    return [h("h4", null, "Costliest lines ", simulated()), h("ul", { class: "linklist" }, v.hot.slice(0, 12).map((row) => h("li", null, this.link(row), h("b", null, percent(v.cycles[row] / v.totals.total, 1)), this.mainReason(row))))];
  }

  mainReason(row) {
    const pairs = reasonsOf(this.view.lines.stalls[row]).filter((p) => STALLS[p[0]].name !== "selected").sort((a, b) => b[1] - a[1]);
    return pairs.length ? h("small", null, h("i", { class: "chip r" + pairs[0][0] }), STALLS[pairs[0][0]].name) : null;
  }

  link(row, text) {
    const v = this.view;
    return h("button", { class: "link mono", type: "button", title: v.listing.sass[row], onclick: () => { v.select(row, true); v.onselect(row); v.list.scroller.focus({ preventScroll: true }); } }, address(row), " ", h("span", null, text || v.listing.sass[row]));
  }

  stalls(row) {
    const v = this.view;
    if (!v.cycles[row]) return null;
    const pairs = reasonsOf(v.lines.stalls[row]).sort((a, b) => b[1] - a[1]);
    return [h("h4", null, `${percent(v.cycles[row] / v.totals.total, 2)} of warp cycles `, simulated()),
      h("div", { class: "mix" }, stallBar(reasonsOf(v.lines.stalls[row]), v.cycles[row], 1)),
      h("table", { class: "small" }, h("tbody", null, pairs.map(([reason, cycles]) => h("tr", { title: STALLS[reason].about }, h("td", null, h("i", { class: "chip r" + reason }), STALLS[reason].name),
        h("td", { class: "right" }, percent(cycles / v.cycles[row], 1)), h("td", { class: "right dim" }, this.perIssue(row, cycles))))))];
  }

  /** Cycles a warp spends so each time it comes here. */
  perIssue(row, cycles) {
    const issues = (() => { const flat = this.view.lines.stalls[row]; const selected = STALLS.findIndex((x) => x.name === "selected"); for (let k = 0; k < flat.length; k += 2) if (flat[k] === selected) return flat[k + 1]; return 0; })();
    return issues ? digits(cycles / issues, 3) + " cy" : "";
  }

  numbers(row) {
    const v = this.view;
    const x = v.lines;
    const executed = x.executed[row];
    const c = v.listing.control ? controlOf(v.listing.control[row]) : null;
    const each = (list) => (list && executed ? list[row] / executed : null);
    const withIdeal = (actual, ideal) => actual ? digits(actual, 3) + (ideal !== null && actual > ideal * 1.01 ? ` (${digits(ideal, 3)} at best)` : "") : null;
    return facts([
      ["executed", count(executed), "Warps that issue it, whole grid"], ["active lanes", executed && x.threads[row] ? digits(x.threads[row] / executed, 3) + " of 32" : null],
      ["sectors a request", withIdeal(each(x.sectors), each(x.sectors_ideal))], ["wavefronts a request", withIdeal(each(x.wavefronts), each(x.wavefronts_ideal))],
      ["live registers", String(v.listing.live[row]) + (v.listing.uniform[row] ? ` + ${v.listing.uniform[row]} uniform` : "")],
      c ? ["stall count", `${c.stall}${c.yields ? ", yields" : ""}`, "Cycles before the warp may issue its next instruction"] : null,
      c && c.write !== null ? ["sets", `SB${c.write} until its result is there`] : null, c && c.read !== null ? ["holds", `SB${c.read} until its sources are read`] : null,
      c && c.waits.length ? ["waits on", c.waits.map((n) => "SB" + n).join(", ")] : null]);
  }

  links(title, pairs, from) {
    if (!pairs.length) return null;
    const rows = new Map();
    for (const p of pairs) {
      if (!rows.has(p.row)) rows.set(p.row, { registers: [], boards: [] });
      const entry = rows.get(p.row);
      if (p.register !== undefined) entry.registers.push(p.register);
      else entry.boards.push("SB" + p.scoreboard + (p.result ? "" : " (sources)"));
    }
    const sorted = [...rows].sort((a, b) => Math.abs(a[0] - from) - Math.abs(b[0] - from));
    return [h("h4", null, title, h("small", null, ` ${rows.size} line${rows.size > 1 ? "s" : ""}`)), h("ul", { class: "linklist" }, sorted.slice(0, 16).map(([row, entry]) =>
      h("li", null, this.link(row), entry.registers.length ? h("span", { class: "via register" }, registerRuns(entry.registers, (n) => this.view.registerName(n))) : null,
        entry.boards.length ? h("span", { class: "via scoreboard" }, [...new Set(entry.boards)].join(" ")) : null)), sorted.length > 16 ? h("li", { class: "dim" }, `and ${sorted.length - 16} more`) : null)];
  }

  registers(row) {
    const live = liveAt(this.view.listing, row);
    if (!live.length) return null;
    return [h("h4", null, "Registers held"), h("p", { class: "mono small" }, registerRuns(live, (n) => "R" + n))];
  }

  sourceLines(row) {
    const l = this.view.listing;
    const line = l.line[row];
    const file = l.files[l.file.length ? l.file[row] : 0];
    if (!line || !file) return h("p", { class: "fine" }, "No source lines: compile with flags: [-lineinfo] in the sweep.");
    const text = this.candidate.sources[file];
    const first = Math.max(1, line - 3);
    return [h("h4", null, `${file}:${line}`), text ? h("div", { class: "snippet" }, text.slice(first - 1, line + 3).map((t, k) => h("div", { class: first + k === line ? "here" : "" }, h("span", null, first + k), h("code", null, t)))) :
      h("p", { class: "fine" }, "The source has changed since, or is not at hand.")];
  }
}

/** Control fields from bits 125:105 of an instruction. */
function controlOf(word) {
  const write = (word >> 5) & 7;
  const read = (word >> 8) & 7;
  return { stall: word & 15, yields: !((word >> 4) & 1), write: write === 7 ? null : write, read: read === 7 ? null : read, waits: [0, 1, 2, 3, 4, 5].filter((n) => (word >> (11 + n)) & 1) };
}

/** "R4-R7 R12" */
function registerRuns(numbers, name) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const runs = [];
  for (const n of sorted) {
    const run = runs[runs.length - 1];
    if (run && run[1] === n - 1) run[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? name(a) : `${name(a)}–${name(b)}`)).join(" ");
}

/** General registers live at a row, from the changes between rows. */
function liveAt(listing, row) {
  const live = new Set();
  for (let r = 0; r <= row; r++) {
    for (const n of listing.changes[r][1]) live.delete(n);
    for (const n of listing.changes[r][0]) live.add(n);
  }
  return [...live];
}

async function copyLink(button) {
  const text = location.href;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { style: { position: "fixed", opacity: "0" } });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy link"; }, 1200);
}
