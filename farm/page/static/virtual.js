// A list of many rows of one height of which only those in view exist.

class VirtualList {
  /**
   * `build(row)` gives the element of a row; `drawn(first, last)`, if any, is called after each change of what is shown.
   * `scroller` gets: header (sticky), then a spacer as high as all rows.
   */
  constructor({ header, count, height, build, drawn, label }) {
    this.count = count;
    this.height = height;
    this.build = build;
    this.drawn = drawn;
    this.header = header;
    this.rows = new Map();
    this.body = h("div", { class: "vbody", role: "rowgroup" });
    this.scroller = h("div", { class: "vlist", tabindex: "0", role: "table", "aria-label": label }, header, this.body);
    this.scroller.setAttribute("aria-rowcount", String(count + 1));
    this.frame = 0;
    this.scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.schedule()).observe(this.scroller);
  }

  /** Widths of the columns in pixels. */
  setColumns(widths) {
    this.scroller.style.setProperty("--columns", widths.map((w) => w + "px").join(" "));
    this.scroller.style.setProperty("--width", widths.reduce((sum, w) => sum + w, 0) + "px");
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Show other contents: forgets all rows. */
  reset(count) {
    this.count = count;
    this.scroller.setAttribute("aria-rowcount", String(count + 1));
    for (const element of this.rows.values()) element.remove();
    this.rows.clear();
    this.draw();
  }

  /** Build rows again that are shown (their contents changed). */
  refresh(rows) {
    for (const row of rows ?? [...this.rows.keys()]) {
      const old = this.rows.get(row);
      if (old) {
        const fresh = this.place(row);
        old.replaceWith(fresh);
        this.rows.set(row, fresh);
      }
    }
  }

  place(row) {
    const element = this.build(row);
    element.style.transform = `translateY(${row * this.height}px)`;
    element.setAttribute("aria-rowindex", String(row + 2));
    return element;
  }

  get top() {
    return this.header ? this.header.offsetHeight : 0;
  }

  visible() {
    const first = Math.floor(this.scroller.scrollTop / this.height);
    const last = Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight - this.top) / this.height);
    return [Math.max(0, first), Math.min(this.count, last)];
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.body.style.height = this.count * this.height + "px";
    const margin = 8;
    const [seenFirst, seenLast] = this.visible();
    const first = Math.max(0, seenFirst - margin);
    const last = Math.min(this.count, seenLast + margin);
    for (const [row, element] of this.rows) {
      if (row < first || row >= last) {
        element.remove();
        this.rows.delete(row);
      }
    }
    const fresh = document.createDocumentFragment();
    for (let row = first; row < last; row++) {
      if (!this.rows.has(row)) {
        const element = this.place(row);
        this.rows.set(row, element);
        fresh.append(element);
      }
    }
    this.body.append(fresh);
    if (this.drawn) this.drawn(first, last);
  }

  /** Scroll so that a row can be seen; `center` puts it in the middle unless it can be seen already. */
  reveal(row, center = false) {
    const [first, last] = this.visible();
    if (row >= first + 1 && row < last - 1) return;
    const space = this.scroller.clientHeight - this.top;
    let y = this.scroller.scrollTop;
    if (center) y = row * this.height - space / 2;
    else if (row < first + 1) y = (row - 1) * this.height;
    else y = (row + 2) * this.height - space;
    this.scroller.scrollTop = Math.max(0, y);
    this.draw();
  }
}
