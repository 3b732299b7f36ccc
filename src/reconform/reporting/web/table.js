// The rows on the page: filtered, sorted, a page at a time.

const PAGE = 10;
const COLUMNS = [
  { key: "place", label: "#", value: (line) => line[0] },
  { key: "id", label: "Row", value: (line) => line[1], text: true },
  { key: "score", label: "Score", value: (line) => number(line[2]) },
  { key: "p", label: "p-value", value: (line) => number(line[3]) },
  { key: "q", label: data.evidence, value: (line) => number(line[4]) },
  { key: "features", label: "features", more: "Most unusual ", value: strength, text: true, wide: true },
];
const view = { column: COLUMNS[0], descending: false, page: 0, open: new Set() };
const collator = new Intl.Collator("en", { numeric: true });

function number(value) {
  return typeof value === "number" ? value : Number(value.replace("inf", "Infinity"));
}

/** How far out the most unusual feature is. */
function strength(line) {
  return line[5].length ? Math.abs(number(line[5][0][2])) : 0;
}

function visibleLines() {
  const wanted = $("find").value.trim().toLowerCase();
  const scope = $("scope").value, flagged = scope === "flagged", drawn = scope === "sample";
  const matches = (line) => !wanted || line[1].toLowerCase().includes(wanted) ||
    line[5].some(([name]) => data.names[name].toLowerCase().includes(wanted));
  const lines = data.lines.filter((line) => (!flagged || isFlagged(line)) && (!drawn || sampled.has(rowOf(line))) && matches(line));
  const { value, text, wide } = view.column, sign = view.descending ? -1 : 1;
  const compare = text && !wide ? collator.compare : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  // Sorting is stable and the lines come most unusual first, so ties stay in that order.
  return lines.sort((a, b) => sign * compare(value(a), value(b)));
}

function featureChips(features) {
  if (!features.length) return [element("span", { class: "none" }, "none stands out")];
  return features.map(([name, value, z, note]) => {
    const far = note || `${number(z) < 0 ? "−" : "+"}${short(Math.abs(number(z)))}`;
    return element("span", { class: "chip" }, element("b", {}, data.names[name]), ` ${value} `, element("i", {}, far));
  });
}

// The name of a row that is explained is a button that opens the explanation below it.
function opener(place, id) {
  const open = view.open.has(place);
  const button = element("button", { type: "button", class: "opens", "aria-expanded": String(open), "data-place": place }, id);
  button.addEventListener("click", () => {
    if (!view.open.delete(place)) view.open.add(place);
    drawTable();
    document.querySelector(`.opens[data-place="${place}"]`).focus();
  });
  return button;
}

function smallTable(heads, lines, shares) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const rows = lines.map((cells, i) => {
    const row = element("tr", {}, ...cells.map((text, j) => element("td", { "data-head": heads[j] }, text)));
    if (shares && shares[i] >= 0.005) {
      const bar = shape("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true", class: "bar" });
      bar.append(shape("rect", { width: 100, height: 6, class: "rest" }), shape("rect", { width: 100 * shares[i], height: 6, class: "flag" }));
      row.lastChild.append(bar);
    }
    return row;
  });
  return element("table", { class: "small-table" }, element("thead", {}, head), element("tbody", {}, ...rows));
}

function explanation(place) {
  const told = data.told[place], width = data.names.length ? 7 : 6;
  const box = element("td", { colspan: width, class: "text" }, element("p", { class: "told-title" }, told.title));
  box.append(smallTable(data.heads.features, told.features, told.shares));
  if (told.nearest.length) box.append(element("p", { class: "told-title" }, "Nearest normal rows"), smallTable(data.heads.nearest, told.nearest));
  told.notes.forEach((note) => box.append(element("p", { class: "small" }, note)));
  return element("tr", { class: "told" }, box);
}

// The roles are those that the elements have anyway; a phone's layout would take them away.
function tableRow(line, marked) {
  const [place, id, score, p, q, features] = line, flagged = isFlagged(line);
  const row = element("tr", { role: "row", class: flagged ? "" : "plain", "data-row": rowOf(line) });
  const name = element("td", { role: "cell", class: "text id" });
  if (marked && flagged) name.append(element("span", { class: "dot", role: "img", "aria-label": "flagged: " }));
  name.append(data.told[place] ? opener(place, id) : id);
  row.append(element("td", { role: "cell", class: "place" }, whole(place)), name);
  [["score", score], ["p", p], ["q", q]].forEach(([label, value]) => row.append(element("td", { role: "cell", "data-label": label }, String(value).replace(/^-/, "−"))));
  if (data.names.length) row.append(element("td", { role: "cell", class: "text features" }, ...featureChips(features)));
  row.append(markCell(line));
  return row;
}

function drawTable() {
  const lines = visibleLines(), pages = Math.max(1, Math.ceil(lines.length / PAGE));
  view.page = Math.min(view.page, pages - 1);
  const start = view.page * PAGE, shown = lines.slice(start, start + PAGE);
  const marked = $("scope").value !== "flagged";
  const drawn = shown.map((line) => view.open.has(line[0]) ? [tableRow(line, marked), explanation(line[0])] : [tableRow(line, marked)]);
  $("body").replaceChildren(...drawn.flat());
  const missing = marked ? 0 : flaggedCount() - Math.min(flaggedCount(), data.leading);
  const beyond = missing && data.lines.length < data.rows ? ` The other ${whole(missing)} flagged rows are not on this page.` : "";
  $("place").textContent = (shown.length ? `${whole(start + 1)}–${whole(start + shown.length)} of ${some(lines.length, "row")}.` : "No rows.") + beyond;
  $("back").disabled = view.page === 0;
  $("next").disabled = view.page >= pages - 1;
  for (const head of $("columns").querySelectorAll("[data-key]")) {
    const sorted = head.dataset.key === view.column.key;
    head.setAttribute("aria-sort", sorted ? (view.descending ? "descending" : "ascending") : "none");
  }
}

function sortBy(column) {
  // A second press turns the order round; unusual features start with the largest.
  view.descending = view.column === column ? !view.descending : Boolean(column.wide);
  view.column = column;
  view.page = 0;
  drawTable();
}

function turnPage(by) {
  view.page += by;
  drawTable();
}

function startTable() {
  $("table").classList.toggle("wide", data.names.length > 0);
  // With nothing flagged, or less than was asked for, the rows that come first are worth a look.
  if (flaggedCount() < data.top) $("scope").value = "all";
  for (const column of COLUMNS) {
    if (column.wide && !data.names.length) continue;
    const button = element("button", { type: "button" }, ...(column.more ? [element("span", { class: "more" }, column.more)] : []), column.label);
    button.addEventListener("click", () => sortBy(column));
    $("columns").append(element("th", { scope: "col", role: "columnheader", class: column.text ? "text" : "", "data-key": column.key }, button));
  }
  $("columns").append(element("th", { scope: "col", role: "columnheader", class: "text marks" }, "Mark"));
  const restart = () => { view.page = 0; drawTable(); };
  $("scope").addEventListener("change", restart);
  $("find").addEventListener("input", restart);
  $("back").addEventListener("click", () => turnPage(-1));
  $("next").addEventListener("click", () => turnPage(1));
}
