// The slider and the theme; then the first drawing.

function update() {
  const said = data.words[state.level], slider = $("level");
  for (const part of ["count", "headline", "meaning", "bound", "moved"]) $(part).textContent = said[part];
  const every = flaggedCount() === data.rows && data.rows > 1;
  document.querySelector(".result").className = `result${every ? " all" : flaggedCount() ? "" : " none"}`;
  $("shown").textContent = data.labels[state.level];
  $("flagged").textContent = `${some(flaggedCount(), "row")} flagged`;
  $("reset").hidden = state.level === data.chosen;
  slider.setAttribute("aria-valuetext", `${data.labels[state.level]}, ${some(flaggedCount(), "row")} flagged`);
  slider.style.setProperty("--fill", `${(100 * state.level) / Math.max(1, data.levels.length - 1)}%`);
  drawCharts();
  drawTable();
}

function moveTo(level) {
  state.level = level;
  $("level").value = level;
  update();
}

const darkAtFirst = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (darkAtFirst.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { $("theme").textContent = isDark() ? "Light" : "Dark"; };

$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
darkAtFirst.addEventListener("change", nameTheme);
$("level").addEventListener("input", () => moveTo(Number($("level").value)));
$("reset").addEventListener("click", () => { moveTo(data.chosen); $("level").focus(); });
$("zoom").addEventListener("click", () => {
  state.whole = !state.whole;
  $("zoom").setAttribute("aria-pressed", String(state.whole));
  drawSorted();
});
new ResizeObserver(() => drawCharts()).observe($("histogram"));

// A number of false alarms is one level.
document.querySelector(".control").hidden = data.levels.length === 1;
nameTheme();
startTable();
moveTo(data.chosen);
