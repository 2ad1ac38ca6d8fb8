// Stall reasons in the tables' order. Colours are in the style sheet (.r0 ... .r17): Okabe and Ito's eight, which
// colour-blind people tell apart, for the common reasons, and hatching of a related one for the rare ones.

const STALLS = DATA.stalls; // [{name, about}]

// order within a bar: issue, then memory, then execution, then the rest
const STALL_ORDER = ["selected", "not_selected", "wait", "long_scoreboard", "lg_throttle", "tex_throttle",
  "short_scoreboard", "mio_throttle", "math_pipe_throttle", "dispatch_stall", "barrier", "membar", "branch_resolving",
  "no_instruction", "imc_miss", "drain", "sleeping", "misc"]
  .map((name) => STALLS.findIndex((stall) => stall.name === name)).filter((n) => n >= 0);
const STALL_PLACE = new Map(STALL_ORDER.map((reason, place) => [reason, place]));

/** [reason, cycles] pairs of a flat list, in the order of a bar. */
function reasonsOf(flat) {
  const pairs = [];
  for (let k = 0; k + 1 < flat.length; k += 2) pairs.push([flat[k], flat[k + 1]]);
  return pairs.sort((a, b) => STALL_PLACE.get(a[0]) - STALL_PLACE.get(b[0]));
}

/** A bar of segments `width` (a share of the space) long. */
function stallBar(pairs, total, scale) {
  return h("span", { class: "bar" }, pairs.map(([reason, cycles]) => {
    const share = (100 * cycles) / total * scale;
    return share < 0.15 ? null : h("i", { class: "r" + reason, style: { width: share + "%" } });
  }));
}

function stallTip(pairs, total) {
  return [...pairs].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([reason, cycles]) =>
    h("div", { class: "tiprow" }, h("i", { class: "chip r" + reason }), STALLS[reason].name, h("b", null, percent(cycles / total, 1))));
}

function legend(reasons) {
  return h("div", { class: "legend" }, reasons.map((reason) =>
    h("span", { title: STALLS[reason].about }, h("i", { class: "chip r" + reason }), STALLS[reason].name)));
}
