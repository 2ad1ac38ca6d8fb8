// Routes, theme, keys that work everywhere. The address after # says what is shown, so that every view has a link:
//   #/?t=h200&q=regs<64               all candidates
//   #/FAMILY/VARIANT?t=h200&with=rtx4090&line=0x120

function parseRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  const state = Object.fromEntries(new URLSearchParams(query || ""));
  return { family: parts[0], variant: parts[1], ...state };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function routeOf(state) {
  const { page, family, variant, ...rest } = state;
  const query = new URLSearchParams(Object.entries(rest).filter(([, v]) => v !== undefined)).toString();
  const path = page === "candidate" ? `${encodeURIComponent(family)}/${variant}` : "";
  return "#/" + path + (query ? "?" + query : "");
}

/** Note what is shown in the address without a new entry in the history. */
function replaceRoute(state) {
  try {
    history.replaceState(null, "", routeOf(state));
  } catch { /* too often, or not allowed here: the page works without */ }
}

/** Address of a candidate's page, or null when it has none here. */
function candidateLink(family, variant, state) {
  const key = `${family}:${variant}`;
  const route = routeOf({ page: "candidate", family, variant, ...state });
  if (DATA.candidates[key]) return route;
  const file = DATA.files[key];
  return file ? file + route : null;
}

function tabs(names, chosen, choose, label) {
  return h("div", { class: "tabs", role: "tablist", "aria-label": label }, names.map((name) =>
    h("button", { type: "button", role: "tab", "aria-selected": name === chosen ? "true" : "false", "data-target": name, onclick: () => choose(name) }, name)));
}

const HELP = [
  ["Everywhere", [["?", "this list"], ["g", "all candidates"], ["[  ]", "previous, next target"], ["d", "light or dark"]]],
  ["Candidates", [["/", "filter"], ["j  k  ↓  ↑", "next, previous"], ["Enter", "open"], ["Esc", "clear the filter"]]],
  ["One candidate", [["j  k  ↓  ↑", "next, previous line"], ["n  p", "costliest lines, in order"], ["b", "follow the branch"], ["r", "which registers are live"], ["c", "source beside SASS"], ["s", "second target beside"], ["w", "other half"], ["f", "go to the SASS"], ["Home  End", "first, last line"]]],
];

const help = h("dialog", { class: "help", onclick: (e) => { if (e.target === help) help.close(); } },
  h("h2", null, "Keys"), HELP.map(([title, keys]) => h("section", null, h("h3", null, title), h("dl", null, keys.map(([key, what]) => [h("dt", null, key.split(/\s\s+/).map((k) => h("kbd", null, k))), h("dd", null, what)])))),
  h("form", { method: "dialog" }, h("button", { class: "small" }, "Close")));

let view = null;
const root = document.getElementById("app");

function show() {
  hideTip();
  const state = parseRoute();
  const only = Object.values(DATA.candidates);
  let candidate = DATA.candidates[`${state.family}:${state.variant}`];
  if (!candidate && !DATA.index) candidate = only[0];
  view = candidate ? new CandidateView(candidate, state) : new IndexView(state);
  document.title = candidate ? `${candidate.family} variant ${candidate.variant} · ${DATA.run}` : `${DATA.run} · farm`;
  clear(root, view.element);
  if (!candidate) view.list.draw();
  else view.panes.forEach((pane, n) => pane.start(view.rows[n]));
  window.scrollTo(0, 0);
  if (candidate && state.line && view.panes[0].view) view.panes[0].focusCode();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest?.("input, textarea")) return;
  if (event.target.closest?.("select") && event.key !== "Escape") return;
  let handled = true;
  if (event.key === "?") help.showModal();
  else if (event.key === "d") toggleTheme();
  else if (event.key === "g" && (DATA.index ? view instanceof CandidateView : DATA.up)) location.assign(DATA.index ? "#/" : DATA.up);
  else handled = view.globalKey(event);
  if (handled) event.preventDefault();
});

document.getElementById("keys").addEventListener("click", () => help.showModal());
window.addEventListener("hashchange", show);
document.body.append(tip, help);
onTheme = () => view?.panes?.forEach((pane) => pane.view?.strip.draw());
show();
