// The SASS of one kernel on one target: a virtual table, arrows beside it, pressure and stalls along the code above it.

const ROW = 20;
const GUTTER = 84; // pixels for arrows
const LANES = 6;

class SassView {
  /** `select(row)` is told when the user picks a line. */
  constructor(listing, target, { select, spills, compact }) {
    this.listing = listing;
    this.target = target;
    this.lines = target.lines;
    this.onselect = select;
    this.spills = spills;
    this.compact = compact; // beside another one
    this.selected = -1;
    this.showRanges = false;
    this.count = listing.sass.length;
    this.totals = stallTotals(this.lines);
    this.cycles = (this.lines.stalls || []).map((flat) => { let sum = 0; for (let k = 1; k < flat.length; k += 2) sum += flat[k]; return sum; });
    this.most = largest(this.cycles, 1);
    this.hot = this.cycles.map((c, row) => [c, row]).filter(([c]) => c > 0).sort((a, b) => b[0] - a[0]).map(([, row]) => row);
    this.local = new Map(listing.local);
    this.maxLive = largest(listing.live, 1);
    this.consumers = null;
    this.lanes = branchLanes(listing.branches);
    this.registers = 0;
    for (const [born] of listing.changes) for (const n of born) this.registers = Math.max(this.registers, n + 1);
    this.columns = this.makeColumns();
    this.build();
  }

  /** Show or hide which registers are live at each line. */
  toggleRanges() {
    this.showRanges = !this.showRanges;
    const { scrollTop } = this.list.scroller;
    const old = this.element;
    const { selected } = this;
    this.columns = this.makeColumns();
    this.build();
    old.replaceWith(this.element);
    this.selected = selected;
    this.list.draw();
    this.list.scroller.scrollTop = scrollTop;
    this.list.draw();
    this.list.scroller.focus({ preventScroll: true });
  }

  /** Live registers of all rows as bits, 32 bytes a row. */
  liveBits() {
    if (!this.bits) {
      this.bits = new Uint8Array(32 * this.count);
      const now = new Uint8Array(32);
      this.listing.changes.forEach(([born, died], row) => {
        for (const n of died) now[n >> 3] &= ~(1 << (n & 7));
        for (const n of born) now[n >> 3] |= 1 << (n & 7);
        this.bits.set(now, 32 * row);
      });
    }
    return this.bits;
  }

  rangeCell(r) {
    const bits = this.liveBits();
    let held = "";
    for (let n = 0; n < this.registers; n++) if ((bits[32 * r + (n >> 3)] >> (n & 7)) & 1) held += `M${4 * n + 2} 0v${ROW}`;
    const born = this.listing.changes[r][0].map((n) => `M${4 * n + 2} 0v${ROW}`).join("");
    return s("svg", { class: "ranges", width: 4 * this.registers, height: ROW }, s("path", { d: held }), s("path", { class: "born", d: born }));
  }

  makeColumns() {
    const l = this.listing;
    const x = this.lines;
    const has = (list) => list && list.some((v) => v > 0);
    const columns = [
      { id: "pc", label: "Address", width: 68, right: true, cell: (r) => address(r), class: "pc" },
      l.line.some((n) => n > 0) && { id: "line", label: "Line", width: 42, right: true, title: "Source line", cell: (r) => l.line[r] || "", class: "dim" },
      { id: "sass", label: "SASS", width: 0, cell: (r) => this.sassCell(r) },
      x.stalls && { id: "stalls", label: "Stalls", width: this.compact ? 168 : 196, tag: simulated, title: "Share of all warp cycles, by reason", cell: (r) => this.stallCell(r) },
      { id: "executed", label: "Executed", width: 82, right: true, title: "Warps that issue it, whole grid", cell: (r) => (x.executed[r] ? count(x.executed[r]) : ""), class: "num" },
      has(x.threads) && { id: "lanes", label: "Lanes", width: 54, right: true, title: "Mean active lanes", cell: (r) => this.lanesCell(r), class: "num" },
      { id: "live", label: "Live regs", width: 84, title: "General registers held here (as nvdisasm -plr); the compiler allocated " + this.target.code.registers + ". Key r shows which", cell: (r) => this.liveCell(r) },
      this.showRanges && { id: "ranges", label: "R0 …", width: 16 + 4 * this.registers, title: "Which registers are held, R0 leftmost; bright where a value begins", cell: (r) => this.rangeCell(r) },
      has(x.sectors) && { id: "sectors", label: "Sect/req", width: 76, right: true, title: "32-byte sectors a request touches / how many it would touch if its lanes lay side by side", cell: (r) => this.ratioCell(r, x.sectors, x.sectors_ideal) },
      has(x.wavefronts) && { id: "wavefronts", label: "Wavef/req", width: 86, right: true, title: "Passes a shared-memory request takes / how many without bank conflicts", cell: (r) => this.ratioCell(r, x.wavefronts, x.wavefronts_ideal) },
      has(x.wavefronts) && { id: "conflicts", label: "Conflicts", width: 88, right: true, title: "Bank conflicts: wavefronts beyond the ideal, whole grid", cell: (r) => this.conflictCell(r) },
    ].filter(Boolean);
    const lengths = l.sass.map((text) => text.length).sort((a, b) => a - b);
    const usual = lengths[Math.floor(0.98 * (lengths.length - 1))]; // a few may be cut off; the detail shows them whole
    columns.find((c) => c.id === "sass").width = Math.min(this.compact ? 336 : 560, Math.max(330, Math.round(usual * 7.3) + GUTTER + 14));
    return columns;
  }

  build() {
    this.head = h("div", { class: "vhead", role: "row" }, this.columns.map((c) => h("div", { class: "th" + (c.right ? " right" : "") + (c.id === "sass" ? " sasshead" : ""), role: "columnheader", title: c.title }, c.label, c.tag ? [" ", c.tag()] : null)));
    this.list = new VirtualList({ header: this.head, count: this.count, height: ROW, label: "SASS", build: (r) => this.row(r), drawn: (first, last) => this.drawArrows(first, last) });
    this.list.scroller.classList.add("sass");
    this.list.setColumns(this.columns.map((c) => c.width));
    let left = 0;
    for (const c of this.columns) {
      if (c.id === "sass") break;
      left += c.width;
    }
    this.arrows = s("svg", { class: "arrows", width: GUTTER });
    this.arrows.style.left = left + "px";
    this.list.body.append(this.arrows);
    this.list.scroller.addEventListener("click", (event) => {
      const row = event.target.closest(".vrow");
      if (row) this.pick(Number(row.dataset.row));
    });
    this.list.scroller.addEventListener("mousemove", (event) => this.hover(event));
    this.list.scroller.addEventListener("mouseleave", hideTip);
    this.strip = new CodeStrip(this);
    this.element = h("div", { class: "sassbox" }, this.strip.element, this.list.scroller);
    this.list.scroller.addEventListener("scroll", () => this.strip.moved(), { passive: true });
  }

  hover(event) {
    const cell = event.target.closest(".stallcell");
    const row = cell ? Number(cell.closest(".vrow").dataset.row) : -1;
    if (row >= 0 && this.cycles[row]) showTip(event, h("b", null, `${percent(this.cycles[row] / this.totals.total, 2)} of warp cycles`), stallTip(reasonsOf(this.lines.stalls[row]), this.cycles[row]));
    else hideTip();
  }

  // ---- cells

  row(r) {
    const kind = this.local.get(r);
    return h("div", { class: "vrow" + (r === this.selected ? " selected" : "") + (this.lines.executed[r] ? "" : " idle") + (kind ? " local" : "") + this.related(r), role: "row", "data-row": r,
      "aria-selected": r === this.selected ? "true" : "false" },
      this.columns.map((c) => h("div", { class: "td" + (c.right ? " right" : "") + (c.class ? " " + c.class : "") + (c.id === "stalls" ? " stallcell" : ""), role: "cell" }, c.cell(r))));
  }

  related(r) {
    if (this.selected < 0 || r === this.selected) return "";
    const l = this.listing;
    const lists = [l.deps[this.selected], l.waits[this.selected]];
    for (const flat of lists) for (let k = 0; k < flat.length; k += 2) if (flat[k] === r) return " producer";
    return this.consumersOf(this.selected).some((c) => c.row === r) ? " consumer" : "";
  }

  liveCell(r) {
    const n = this.listing.live[r];
    if (!n) return "";
    const limit = Math.max(this.target.code.registers || 0, this.maxLive);
    return [h("span", { class: "livebar" }, h("i", { class: n >= 0.95 * this.maxLive && this.maxLive > 32 ? "peak" : "", style: { width: (100 * n) / limit + "%" } })), h("span", { class: "num" }, n)];
  }

  lanesCell(r) {
    const executed = this.lines.executed[r];
    if (!executed) return "";
    const lanes = this.lines.threads[r] / executed;
    return lanes > 31.95 ? h("span", { class: "dim" }, "32") : h("span", { class: "warn" }, lanes.toFixed(1));
  }

  stallCell(r) {
    const cycles = this.cycles[r];
    if (!cycles || !this.totals.total) return "";
    const share = cycles / this.totals.total;
    return [h("span", { class: "pct" }, share >= 0.0005 ? (100 * share).toFixed(share < 0.1 ? 2 : 1) + " %" : "·"), stallBar(reasonsOf(this.lines.stalls[r]), this.most, 1)];
  }

  sassCell(r) {
    const text = this.listing.sass[r];
    const [, guard, opcode, rest] = /^(@\S+\s+)?(\S+)(.*)$/.exec(text) || [null, "", text, ""];
    const kind = this.local.get(r);
    return [h("span", { class: "gap" }), h("code", null, guard ? h("span", { class: "guard" }, guard) : null, h("span", { class: "op " + opcodeKind(opcode) }, opcode), rest),
      kind ? h("span", { class: "tag spill", title: this.spills ? "The compiler reports spills: registers it had no room for" : "Local memory: an array or the stack" }, this.spills ? (kind === 1 ? "spill" : "refill") : "local") : null];
  }

  ratioCell(r, values, ideal) {
    const executed = this.lines.executed[r];
    if (!values[r] || !executed) return "";
    const each = values[r] / executed;
    const best = ideal ? ideal[r] / executed : null;
    const worse = best !== null && each > best * 1.01;
    return h("span", { class: worse ? "warn" : "num" }, digits(each, 3).replace(/\.0+$/, ""), best !== null && worse ? h("span", { class: "dim" }, " / " + digits(best, 3).replace(/\.0+$/, "")) : null);
  }

  conflictCell(r) {
    const ideal = this.lines.wavefronts_ideal;
    if (!ideal || !this.lines.wavefronts[r]) return "";
    const extra = this.lines.wavefronts[r] - ideal[r];
    return extra > 0.5 ? h("span", { class: "warn" }, count(Math.round(extra))) : h("span", { class: "dim" }, "0");
  }

  // ---- dependencies

  /** Lines that wait for a result of `row`: [{row, register}] or [{row, scoreboard, result}]. */
  consumersOf(row) {
    if (!this.consumers) {
      this.consumers = Array.from({ length: this.count }, () => []);
      this.listing.deps.forEach((flat, to) => { for (let k = 0; k < flat.length; k += 2) this.consumers[flat[k]].push({ row: to, register: flat[k + 1] }); });
      this.listing.waits.forEach((flat, to) => { for (let k = 0; k < flat.length; k += 2) this.consumers[flat[k]].push({ row: to, scoreboard: flat[k + 1] >> 1, result: (flat[k + 1] & 1) === 1 }); });
    }
    return this.consumers[row];
  }

  producersOf(row) {
    const found = [];
    const { deps, waits } = this.listing;
    for (let k = 0; k < deps[row].length; k += 2) found.push({ row: deps[row][k], register: deps[row][k + 1] });
    for (let k = 0; k < waits[row].length; k += 2) found.push({ row: waits[row][k], scoreboard: waits[row][k + 1] >> 1, result: (waits[row][k + 1] & 1) === 1 });
    return found;
  }

  registerName(number) {
    return this.listing.names[number] || "R" + number;
  }

  // ---- arrows

  drawArrows(first, last) {
    const top = Math.max(0, first - 2) * ROW;
    const height = (last - first + 4) * ROW;
    this.arrows.setAttribute("height", height);
    this.arrows.style.transform = `translateY(${top}px)`;
    const y = (row) => Math.max(-20, Math.min(height + 20, row * ROW + ROW / 2 - top));
    const parts = [];
    const crosses = (a, b) => Math.max(a, b) >= first && Math.min(a, b) < last;
    this.listing.branches.forEach(([from, to], n) => {
      if (!crosses(from, to)) return;
      const mine = from === this.selected || to === this.selected;
      const x = 34 - 5 * this.lanes[n];
      parts.push(s("path", { class: "branch" + (to <= from ? " back" : "") + (mine ? " mine" : ""), d: `M40 ${y(from) + 3}H${x}V${y(to) - 3}H38` }), head(38, y(to) - 3, "branch" + (mine ? " mine" : "")));
    });
    if (this.selected >= 0) {
      const draw = (from, to, kind, n) => {
        if (from === to || !crosses(from, to)) return;
        const x = 56 - 3.4 * (n % 5);
        parts.push(s("path", { class: "dep " + kind, d: `M76 ${y(from)}H${x}V${y(to)}H74` }), head(76, y(to), kind));
      };
      const seen = new Set();
      const each = (pairs, outgoing) => pairs.forEach((p) => {
        const kind = p.register === undefined ? "scoreboard" : "register";
        const key = kind + p.row;
        if (seen.has(key)) return;
        seen.add(key);
        draw(outgoing ? this.selected : p.row, outgoing ? p.row : this.selected, kind + (outgoing ? " out" : ""), seen.size);
      });
      each(this.producersOf(this.selected), false);
      seen.clear();
      each(this.consumersOf(this.selected), true);
    }
    this.arrows.replaceChildren(...parts);
    this.list.body.append(this.arrows);
  }

  // ---- selection

  pick(row) {
    this.select(row);
    this.onselect(row);
  }

  select(row, center = false) {
    if (row < -1 || row >= this.count) return;
    this.selected = row;
    if (row >= 0) this.list.reveal(row, center);
    this.list.refresh();
    this.list.draw();
    this.strip.moved();
  }

  /** The next (or previous) of the lines that hold the most warp cycles, by cost. */
  nextHot(step) {
    if (!this.hot.length) return;
    const at = this.hot.indexOf(this.selected);
    const n = at < 0 ? (step > 0 ? 0 : this.hot.length - 1) : Math.max(0, Math.min(this.hot.length - 1, at + step));
    this.select(this.hot[n], true);
    this.onselect(this.hot[n]);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.scroller.clientHeight / ROW) - 3);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.key in moves) this.pick(Math.max(0, Math.min(this.count - 1, this.selected + moves[event.key])));
    else if (event.key === "n") this.nextHot(1);
    else if (event.key === "p") this.nextHot(-1);
    else if (event.key === "r") this.toggleRanges();
    else if (event.key === "b" && this.selected >= 0) {
      const branch = this.listing.branches.find(([from]) => from === this.selected);
      if (branch) this.pick(branch[1]);
    } else return false;
    return true;
  }
}

function head(x, y, kind) {
  return s("path", { class: "arrowhead " + kind, d: `M${x} ${y}l-6 -3v6z` });
}

/** A lane for each branch, so that arrows that overlap lie beside each other; short ones inside. */
function branchLanes(branches) {
  const order = branches.map((b, n) => [Math.abs(b[0] - b[1]), n]).sort((a, b) => a[0] - b[0]);
  const lanes = new Array(branches.length).fill(0);
  const taken = [];
  for (const [, n] of order) {
    const low = Math.min(...branches[n]);
    const high = Math.max(...branches[n]);
    let lane = 0;
    while (lane < LANES && taken[lane]?.some(([a, b]) => a <= high && b >= low)) lane++;
    lanes[n] = Math.min(lane, LANES);
    (taken[lane] ||= []).push([low, high]);
  }
  return lanes;
}

const OPCODE_KINDS = [
  [/^(LDG|STG|LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UTMA|CCTL|UBLKCP)\b/, "mem"], [/^(LDS|STS|LDSM|STSM|ATOMS)\b/, "smem"], [/^(LDL|STL)\b/, "lmem"],
  [/^([HIQDB]MMA|[HIQB]GMMA|UTC.*MMA)\b/, "mma"], [/^(BRA|BRX|EXIT|CALL|RET|BSSY|BSYNC|JMP|WARPSYNC|BREAK)\b/, "flow"], [/^(BAR|MEMBAR|DEPBAR|LDGDEPBAR|SYNCS|WARPGROUP|ERRBAR|FENCE)\b/, "sync"],
];

function opcodeKind(opcode) {
  for (const [pattern, kind] of OPCODE_KINDS) if (pattern.test(opcode)) return kind;
  return "";
}
