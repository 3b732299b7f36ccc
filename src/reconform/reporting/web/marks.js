// What a person says of rows: kept by the browser, counted, and saved as a small file.

const SAID = [["real", "real", "r"], ["false", "false alarm", "f"], ["unsure", "unsure", "u"]];
const KEPT = `reconform marks ${data.marking.batch || data.marking.digest}`;
// By the number of the row in its file: { mark, comment }.
const marks = new Map(recall());
const rowOf = (line) => line[7];
const sampled = new Set(data.marking.sample);
const wasFlagged = (line) => line[0] <= data.counts[data.chosen];

function recall() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(KEPT)) ?? {}).map(([row, said]) => [Number(row), said]);
  } catch {
    return [];
  }
}

function keep(row, change) {
  const said = { mark: "", comment: "", ...marks.get(row), ...change };
  if (said.mark || said.comment) marks.set(row, said);
  else marks.delete(row);
  try {
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(marks)));
  } catch {
    $("kept").textContent = "This browser keeps nothing: save before you close the page.";
  }
  drawProgress();
}

function drawProgress() {
  const done = (lines) => lines.filter((line) => marks.get(rowOf(line))?.mark).length;
  const flagged = data.lines.filter(wasFlagged), drawn = data.lines.filter((line) => sampled.has(rowOf(line)));
  const counted = [`${whole(done(flagged))} of ${some(flagged.length, "flagged row")} marked`];
  if (drawn.length) counted.push(`${whole(done(drawn))} of ${whole(drawn.length)} of the random sample`);
  $("progress").textContent = counted.join(", ");
  $("save").disabled = !marks.size;
}

/** The cell of a row in which it is marked. */
function markCell(line) {
  const row = rowOf(line), said = marks.get(row) ?? {};
  const buttons = SAID.map(([mark, label, key]) => {
    const pressed = String(said.mark === mark);
    const button = element("button", { type: "button", class: mark, "aria-pressed": pressed, "aria-label": `${label}: ${line[1]}`, "aria-keyshortcuts": key }, label);
    button.addEventListener("click", () => sayOf(button.closest("tr"), mark));
    return button;
  });
  const comment = element("input", { type: "text", maxlength: 500, placeholder: "comment", autocomplete: "off", "aria-label": `Comment on ${line[1]}` });
  comment.value = said.comment ?? "";
  comment.addEventListener("input", () => keep(row, { comment: comment.value }));
  return element("td", { role: "cell", class: "text marks" }, ...buttons, comment);
}

/** Mark a row; the same mark again takes it back. */
function sayOf(tableRow, mark) {
  const row = Number(tableRow.dataset.row), now = marks.get(row)?.mark === mark ? "" : mark;
  keep(row, { mark: now });
  tableRow.querySelectorAll(".marks button").forEach((button) => button.setAttribute("aria-pressed", String(button.className === now)));
}

function step(by) {
  const rows = [...document.querySelectorAll("#body tr[data-row]")];
  const at = rows.indexOf(document.activeElement.closest("tr[data-row]"));
  const next = at < 0 ? 0 : at + by;
  const turn = by > 0 ? $("next") : $("back");
  if (rows[next]) rows[next].querySelector(".marks button").focus();
  else if (at >= 0 && !turn.disabled) {
    turnPage(by);
    const fresh = document.querySelectorAll("#body tr[data-row] .marks button:first-child");
    fresh[by > 0 ? 0 : fresh.length - 1].focus();
  }
}

function pressed(event) {
  const here = document.activeElement, row = here.closest("tr[data-row]");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (here.matches("input[type=text], input[type=search], select")) {
    if (row && ["Escape", "Enter"].includes(event.key)) row.querySelector(".marks button").focus();
    return;
  }
  const mark = SAID.find(([, , key]) => key === event.key);
  if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "s" && marks.size) saveMarks();
  else if (row && mark) {
    sayOf(row, mark[0]);
    step(1);
  } else if (row && event.key === "c") row.querySelector(".marks input").focus();
  else return;
  event.preventDefault();
}

/** One line for every flagged row, every row of the sample, and every other row that was marked. */
function markLines() {
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const told = data.lines.filter((line) => wasFlagged(line) || sampled.has(rowOf(line)) || marks.has(rowOf(line)));
  const yes = (so) => (so ? "yes" : "");
  const lines = told.map((line) => {
    const row = rowOf(line), { mark = "", comment = "" } = marks.get(row) ?? {};
    return [data.marking.batch, data.marking.file, row, line[1], yes(wasFlagged(line)), yes(sampled.has(row)), mark, comment];
  });
  return [data.marking.columns, ...lines].map((cells) => cells.map((text) => cell(String(text))).join(",")).join("\n") + "\n";
}

function saveMarks() {
  const link = element("a", { download: "marks.csv", href: URL.createObjectURL(new Blob([markLines()], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

$("save").addEventListener("click", saveMarks);
document.addEventListener("keydown", pressed);
drawProgress();
