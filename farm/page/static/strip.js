// The whole kernel at a glance, left to right: live registers as an area, stalls as bars, the part in view framed.

class CodeStrip {
  constructor(view) {
    this.view = view;
    this.canvas = h("canvas", { class: "strip", role: "img", "aria-label": "Live registers and stalls along the code" });
    this.window = h("div", { class: "stripwindow" });
    this.mark = h("div", { class: "stripmark", hidden: true });
    this.canvasBox = h("div", { class: "stripbox" }, this.canvas, this.window, this.mark);
    const live = largest(view.listing.live, 0);
    const at = view.listing.live.indexOf(live);
    this.element = h("div", { class: "striprow" },
      h("div", { class: "striplegend" }, h("span", null, h("i", { class: "key live" }), "live registers, at most ", h("button", { class: "link", type: "button", title: "Go to the line", onclick: () => view.pick(at) }, String(live)), ` of ${view.target.code.registers ?? "?"}`),
        view.lines.stalls ? h("span", null, h("i", { class: "key stall" }), "stalls") : null,
        view.local.size ? h("span", null, h("i", { class: "key local" }), view.spills ? "spills" : "local memory") : null),
      this.canvasBox);
    this.canvasBox.addEventListener("pointerdown", (event) => { this.canvasBox.setPointerCapture(event.pointerId); this.go(event); });
    this.canvasBox.addEventListener("pointermove", (event) => {
      if (event.buttons) this.go(event);
      const r = this.rowAt(event);
      showTip(event, h("b", null, `${address(r)}  ${view.listing.sass[r]}`), `${view.listing.live[r]} live registers`,
        view.totals.total ? `${percent(view.cycles[r] / view.totals.total, 2)} of warp cycles` : "");
    });
    this.canvasBox.addEventListener("pointerleave", hideTip);
    new ResizeObserver(() => this.draw()).observe(this.canvasBox);
  }

  rowAt(event) {
    const box = this.canvasBox.getBoundingClientRect();
    return Math.max(0, Math.min(this.view.count - 1, Math.floor(((event.clientX - box.left) / box.width) * this.view.count)));
  }

  go(event) {
    const { scroller } = this.view.list;
    scroller.scrollTop = this.rowAt(event) * ROW - scroller.clientHeight / 2;
  }

  draw() {
    const width = this.canvasBox.clientWidth;
    const height = this.canvasBox.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const g = this.canvas.getContext("2d");
    g.scale(ratio, ratio);
    const style = getComputedStyle(this.element);
    const color = (name) => style.getPropertyValue(name).trim();
    const { count: rows, listing, cycles, most, local } = this.view;
    const limit = Math.max(this.view.target.code.registers || 0, this.view.maxLive);
    g.fillStyle = color("--live-soft");
    g.strokeStyle = color("--live");
    g.beginPath();
    g.moveTo(0, height);
    for (let x = 0; x < width; x++) {
      const from = Math.floor((x / width) * rows);
      const to = Math.max(from + 1, Math.floor(((x + 1) / width) * rows));
      let peak = 0;
      for (let r = from; r < to && r < rows; r++) peak = Math.max(peak, listing.live[r]);
      g.lineTo(x, height - (peak / limit) * (height - 4));
    }
    g.lineTo(width, height);
    g.closePath();
    g.fill();
    g.stroke();
    g.fillStyle = color("--stall");
    const bar = Math.max(1, width / rows);
    for (let r = 0; r < rows; r++) {
      if (!cycles[r]) continue;
      const high = Math.sqrt(cycles[r] / most) * (height - 6); // square root: small ones can be seen too
      if (high >= 1) g.fillRect((r / rows) * width, height - high, bar, high);
    }
    g.fillStyle = color("--warn");
    for (const r of local.keys()) g.fillRect((r / rows) * width, 0, Math.max(2, bar), 4);
    this.moved();
  }

  moved() {
    const { list, count: rows, selected } = this.view;
    const [first, last] = list.visible();
    this.window.style.left = (100 * first) / rows + "%";
    this.window.style.width = Math.max(0.4, (100 * (last - first)) / rows) + "%";
    this.mark.hidden = selected < 0;
    this.mark.style.left = (100 * (selected + 0.5)) / rows + "%";
  }
}
