// Light or dark: as the system says, unless chosen here.

let onTheme = () => {}; // for what is drawn, not styled

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem("farm-theme", theme);
  } catch { /* a file without storage */ }
  onTheme();
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

document.getElementById("theme").addEventListener("click", toggleTheme);
try {
  const kept = localStorage.getItem("farm-theme");
  if (kept === "dark" || kept === "light") setTheme(kept);
} catch { /* a file without storage */ }
