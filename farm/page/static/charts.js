// Small charts in SVG: axes, scatter plots, step curves.

function ticks(low, high, log, wanted = 5, binary = false) {
  if (log && high / low >= 5) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (let m = 1; m < 10; m++) found.push(m * 10 ** e);
    const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const lead = (v) => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
    for (const leads of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
      const some = inside.filter((v) => leads.includes(lead(v)));
      if (some.length <= wanted + 2 && some.length >= 3) return some;
    }
    const tens = inside.filter((v) => lead(v) === 1);
    const every = Math.ceil(tens.length / (wanted + 1));
    return tens.filter((_, n) => n % every === 0);
  }
  const raw = (high - low) / wanted || 1;
  let step;
  if (binary) step = 2 ** Math.ceil(Math.log2(raw));
  else {
    const power = 10 ** Math.floor(Math.log10(raw));
    step = [1, 2, 5, 10].map((m) => m * power).find((v) => v >= raw);
  }
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return found;
}

function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low);
  const b = f(high) - a || 1;
  const map = (v) => from + ((f(v) - a) / b) * (to - from);
  map.low = low;
  map.high = high;
  return map;
}

function extent(values, log, pad = 0.06) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (!(high >= low)) return log ? [1, 10] : [0, 1];
  if (log) {
    const margin = Math.max((high / low) ** pad, 1.04);
    return [low / margin, high * margin];
  }
  const margin = (high - low || Math.abs(high) || 1) * pad;
  return [Math.max(0, low - margin), high + margin];
}

/** Frame and axes of a plot. `x` and `y`: {range, log, label, format}. Returns {svg, plot, x, y}. */
function frame({ width, height, x, y, label }) {
  const left = y.left || 46;
  const bottom = 36;
  const top = 10;
  const right = 14;
  const sx = scale(...x.range, left, width - right, x.log);
  const sy = scale(...y.range, height - bottom, top, y.log);
  const root = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
  for (const v of ticks(...x.range, x.log, Math.max(3, Math.round(width / 80)), x.binary)) {
    root.append(s("line", { class: "grid", x1: sx(v), x2: sx(v), y1: top, y2: height - bottom }),
      s("text", { class: "tick", x: sx(v), y: height - bottom + 14, "text-anchor": "middle" }, (x.format || short)(v)));
  }
  let previous = Infinity;
  for (const v of ticks(...y.range, y.log, height > 150 ? 5 : 3, y.binary)) {
    if (previous - sy(v) < 12) continue; // a logarithmic scale crowds them at its upper end
    previous = sy(v);
    root.append(s("line", { class: "grid", x1: left, x2: width - right, y1: sy(v), y2: sy(v) }),
      s("text", { class: "tick", x: left - 6, y: sy(v) + 3.5, "text-anchor": "end" }, (y.format || short)(v)));
  }
  root.append(
    s("text", { class: "axis", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, x.label),
    s("text", { class: "axis", transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
  const plot = s("g");
  root.append(plot);
  return { svg: root, plot, x: sx, y: sy, left, right: width - right, top, bottom: height - bottom };
}

/**
 * Points that can be hovered and clicked. points: [{x, y, key, tip, class}]; `extra(frame)` draws below them.
 */
function scatter({ points, x, y, label, extra, pick, width = 440, height = 270 }) {
  const axes = frame({ width, height, label,
    x: { ...x, range: x.range || extent(points.map((p) => p.x), x.log) },
    y: { ...y, range: y.range || extent(points.map((p) => p.y), y.log) } });
  if (extra) extra(axes);
  if (points.length > 1500) axes.svg.classList.add("dense");
  const radius = points.length > 1500 ? 2 : points.length > 200 ? 3 : 4;
  const dots = points.map((p, n) => s("circle", { cx: axes.x(p.x).toFixed(1), cy: axes.y(p.y).toFixed(1), r: p.class ? radius + 1.5 : radius,
    class: "dot " + (p.class || ""), "data-n": n }));
  axes.plot.append(...dots);
  axes.plot.addEventListener("mousemove", (event) => {
    const n = event.target.dataset.n;
    if (n === undefined) hideTip();
    else showTip(event, ...points[n].tip());
  });
  axes.plot.addEventListener("mouseleave", hideTip);
  axes.plot.addEventListener("click", (event) => {
    const n = event.target.dataset.n;
    if (n !== undefined && pick) pick(points[n]);
  });
  return axes.svg;
}

/** A step curve of whole values with a mark where the kernel stands. */
function stepCurve({ points, at, max, title, unit, format = count }) {
  const width = 400;
  const height = 118;
  const axes = frame({ width, height, label: title,
    x: { range: [points[0][0], points[points.length - 1][0]], label: title + ", " + unit, format, binary: format === kib },
    y: { range: [0, max], label: "warps", binary: true } });
  let path = "";
  points.forEach(([px, py], n) => {
    const x = axes.x(px).toFixed(1);
    const y = axes.y(py).toFixed(1);
    path += n ? `H${x}V${y}` : `M${x} ${y}`;
  });
  axes.plot.append(
    s("path", { class: "area", d: path + `V${axes.bottom}H${axes.left}Z` }),
    s("path", { class: "curve", d: path }));
  let here = points[0];
  for (const p of points) if (p[0] <= at) here = p;
  const now = points.find((p) => p[0] >= at) || here;
  axes.plot.append(
    s("line", { class: "mark", x1: axes.x(at), x2: axes.x(at), y1: axes.top, y2: axes.bottom }),
    s("circle", { class: "markdot", cx: axes.x(at), cy: axes.y(now[1]), r: 4.5 }));
  const cursor = s("line", { class: "cursor", y1: axes.top, y2: axes.bottom, visibility: "hidden" });
  axes.plot.append(cursor);
  axes.svg.addEventListener("mousemove", (event) => {
    const box = axes.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    let nearest = points[0];
    for (const p of points) if (Math.abs(axes.x(p[0]) - x) < Math.abs(axes.x(nearest[0]) - x)) nearest = p;
    cursor.setAttribute("x1", axes.x(nearest[0]));
    cursor.setAttribute("x2", axes.x(nearest[0]));
    cursor.setAttribute("visibility", "visible");
    showTip(event, `${format(nearest[0])} ${unit}: ${nearest[1] ? nearest[1] + " warps an SM" : "does not fit"}`);
  });
  axes.svg.addEventListener("mouseleave", () => {
    cursor.setAttribute("visibility", "hidden");
    hideTip();
  });
  return axes.svg;
}
