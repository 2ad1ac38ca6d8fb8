"use strict";
// Building elements. Text always goes in as text nodes: names from a run are never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "vars") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An HTML element; properties are attributes, `onclick` and the like are listeners. */
function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function clear(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** The largest of a list (of any length: spreading one into Math.max has a limit), at least `least`. */
const largest = (list, least) => list.reduce((a, b) => (b > a ? b : a), least);

// ---- numbers as people read them

function digits(value, n) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const places = Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 12));
}

function time(us) {
  if (us === null || us === undefined) return "–";
  if (us >= 1e6) return digits(us / 1e6, 4) + " s";
  if (us >= 1e4) return digits(us / 1e3, 4) + " ms";
  return digits(us, 4) + " µs";
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? digits(value * 1e3, 3) + " ms" : digits(value, 3) + " s";
}

function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return (Number.isInteger(value) ? value : Math.round(value * 100) / 100).toLocaleString("en-US");
}

function scaled(value, units, base) {
  if (value === null || value === undefined) return "–";
  let k = 0;
  while (Math.abs(value) >= base && k < units.length - 1) {
    value /= base;
    k++;
  }
  return (k ? digits(value, 3) : String(Math.round(value))) + " " + units[k];
}

const bytes = (v) => scaled(v, ["B", "KB", "MB", "GB", "TB"], 1000);
const kib = (v) => scaled(v, ["B", "KiB", "MiB", "GiB"], 1024);
const short = (v) => scaled(v, ["", "K", "M", "G", "T"], 1000).trim();
const percent = (v, n = 0) => (v === null || v === undefined ? "–" : (100 * v).toFixed(n).replace("-", "−") + " %");
const address = (row) => "0x" + (16 * row).toString(16).padStart(4, "0");

// ---- a tooltip of our own: native ones come late and cannot be styled

const tip = h("div", { class: "tip", role: "status", hidden: true });

function showTip(event, ...lines) {
  clear(tip, lines.map((line) => (line instanceof Node ? line : h("div", null, line))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 16 + box.height < innerHeight;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = (below ? event.clientY + 16 : event.clientY - box.height - 10) + "px";
}

function hideTip() {
  tip.hidden = true;
}

/** Marks a number's origin. */
const simulated = () => h("span", { class: "tag sim", title: "simulated, not measured" }, "sim");
const measured = () => h("span", { class: "tag real", title: "measured on the GPU itself" }, "measured");
