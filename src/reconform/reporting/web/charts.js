// Charts in SVG, drawn anew for every level; a few hundred shapes at most.

const MARGIN = { top: 10, right: 10, bottom: 38, left: 46 };

/** A chart's drawing area: scales, grid, axes and labels, on an emptied <svg>. */
function frame(id, xDomain, yDomain, { xFormat = short, yFormat = short, xTicks = ticks, ends = ["", ""] } = {}) {
  const svg = $(id);
  svg.replaceChildren();
  const width = svg.clientWidth, height = svg.clientHeight;
  const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
  const scale = ([from, to], low, high) => (value) => low + ((value - from) / (to - from)) * (high - low);
  const x = scale(xDomain, MARGIN.left, right), y = scale(yDomain, bottom, MARGIN.top);
  const put = (tag, attributes, text) => svg.appendChild(shape(tag, attributes, text));
  for (const tick of ticks(yDomain, 4)) {
    put("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) });
    put("text", { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, yFormat(tick));
  }
  put("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom });
  for (const tick of xTicks(xDomain, width < 420 ? 4 : 6)) {
    put("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, xFormat(tick));
  }
  put("text", { x: MARGIN.left, y: bottom + 34 }, ends[0]);
  put("text", { x: right, y: bottom + 34, "text-anchor": "end" }, ends[1]);
  return { put, x, y, top: MARGIN.top, bottom, left: MARGIN.left, right };
}

function ticks([from, to], about) {
  const raw = (to - from) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.99);
  const found = [];
  for (let tick = Math.ceil(from / step); tick * step <= to * (1 + 1e-9); tick++) found.push(tick * step);
  return found;
}

function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((factor) => factor * power).find((size) => size >= value);
}

/** Bars from `low` upwards: flagged rows at the foot, the others on top of them. */
function bars(chart, edges, counts, flagged, height, describe) {
  const { put, x, y, bottom, top } = chart;
  counts.forEach((count, b) => {
    const left = x(edges[b]) + 0.75, width = Math.max(0.5, x(edges[b + 1]) - x(edges[b]) - 1.5);
    const foot = y(height(flagged[b], b)), peak = y(height(count, b));
    put("rect", { class: "new", x: left, width, y: peak, height: Math.max(0, foot - peak), rx: 1 });
    put("rect", { class: "flag", x: left, width, y: foot, height: Math.max(0, bottom - foot), rx: 1 });
  });
  counts.forEach((count, b) => {
    const cover = { class: "hit", x: x(edges[b]), width: x(edges[b + 1]) - x(edges[b]), y: top, height: bottom - top };
    tip(put("rect", cover), describe(b));
  });
}

function drawHistogram() {
  const { edges, counts, flagged } = data.pValues;
  const now = flagged[state.level];
  const expected = (b) => data.rows * (edges[b + 1] - edges[b]);
  const height = (count, b) => count / expected(b);
  const most = Math.max(1.6, ...counts.map(height));
  const chart = frame("histogram", [0, 1], [0, most * 1.04], { yFormat: (v) => `${short(v)}×`, ends: ["← unusual", "ordinary →"] });
  bars(chart, edges, counts, now, height, (b) =>
    `p in (${short(edges[b])}, ${short(edges[b + 1])}]\n${some(counts[b], "row")}, ${whole(now[b])} flagged\n` +
    `${short(expected(b))} expected if all were normal`);
  chart.put("line", { class: "even", x1: chart.left, x2: chart.right, y1: chart.y(1), y2: chart.y(1) });
  const first = some(counts[0], "row");
  $("histogram").setAttribute("aria-label", `Histogram of p-values: ${first} in the leftmost bin, ${short(expected(0))} expected.`);
}

function drawSorted() {
  const level = data.levels[state.level], count = flaggedCount();
  const slope = data.line === null ? null : level / data.line;
  // Far enough to see the list end, or where the line meets the smallest p-value if there is none.
  const shortest = slope ? data.curve.p[0] / slope : 0;
  const reach = state.whole ? data.rows : Math.min(data.rows, niceCeiling(Math.max(20, count ? 1.7 * count : 1.3 * shortest)));
  const highest = state.whole ? 1 : Math.min(1, Math.max(2.2 * (slope ?? 0) * reach, data.curve.p[0] * 3));
  const chart = frame("sorted", [0, reach], [0, highest], { xFormat: whole, ends: ["", "rows, the most unusual first"] });
  const { put, x, y, bottom, top } = chart;
  const inside = data.curve.k.map((k, i) => [k, data.curve.p[i]]).filter(([k, p]) => k <= reach && p <= highest);
  if (count > 0) {
    const edge = x(Math.min(count, reach));
    put("line", { class: "drop", x1: edge, x2: edge, y1: bottom, y2: top + 14 });
    const end = edge > chart.right - 60;
    put("text", { class: "strong", x: edge + (end ? -6 : 6), y: top + 16, "text-anchor": end ? "end" : "start" }, whole(count));
  }
  if (inside.length <= 160) {
    for (const [k, p] of inside) put("circle", { class: k <= count ? "flag" : "new", cx: x(k), cy: y(p), r: 3 });
  } else {
    for (const [name, part] of [["new-line", inside.filter(([k]) => k >= count)], ["flag-line", inside.filter(([k]) => k <= count)]]) {
      put("polyline", { class: name, points: part.map(([k, p]) => `${x(k)},${y(p)}`).join(" ") });
    }
  }
  if (slope !== null) {
    const end = Math.min(reach, highest / slope);
    put("line", { class: "even", x1: x(0), y1: y(0), x2: x(end), y2: y(slope * end) });
  }
  $("sorted").setAttribute("aria-label", `Sorted p-values and the line of the procedure; they part after ${some(count, "row")}.`);
}

/** Ticks on the stretched scale: evenly spread, at scores that are round for their surroundings. */
function scoreTicks([from, to], about) {
  const { centre, spread } = data.scores, step = (to - from) / about, found = [];
  const score = (u) => centre + spread * Math.sinh(u);
  for (let u = from + step / 2; u < to; u += step) {
    const unit = 10 ** Math.floor(Math.log10((score(u + step / 2) - score(u - step / 2)) / 2));
    found.push(Math.asinh((Math.round(score(u) / unit) * unit - centre) / spread));
  }
  return found;
}

function drawScores() {
  const { edges, counts, flagged, reference, centre, spread } = data.scores;
  const now = flagged[state.level];
  const total = reference ? reference.reduce((sum, c) => sum + c, 0) : 0;
  const share = (count) => count / data.rows;
  const known = reference ? reference.map((count) => count / total) : [];
  const most = Math.max(...counts.map(share), ...known);
  const score = (u) => short(centre + spread * Math.sinh(u));
  const chart = frame("scores", [edges[0], edges[edges.length - 1]], [0, most * 1.06], {
    xFormat: score, xTicks: scoreTicks, yFormat: (v) => `${short(100 * v)}%`, ends: ["← unusual", "ordinary →"],
  });
  bars(chart, edges, counts, now, share, (b) =>
    `score ${score(edges[b])} to ${score(edges[b + 1])}\n${some(counts[b], "new row")}, ${whole(now[b])} flagged` +
    (reference ? `\n${whole(reference[b])} of ${whole(total)} in the reference` : ""));
  if (reference) {
    const { x, y, put, bottom } = chart;
    const steps = known.map((value, b) => `H${x(edges[b])}V${y(value)}H${x(edges[b + 1])}`).join("");
    put("path", { class: "known", d: `M${x(edges[0])},${bottom}${steps}V${bottom}`, "pointer-events": "none" });
  }
  $("scores").setAttribute("aria-label", "Histogram of the scores of new rows" + (reference ? " and of the reference." : "."));
}

/** How many rows each level flags, above the slider and aligned with its thumb. */
function drawSteps() {
  const svg = $("steps"), half = 10, width = svg.clientWidth - 2 * half, height = svg.clientHeight - 2;
  const last = data.levels.length - 1, most = Math.max(1, ...data.counts);
  const x = (i) => half + (width * i) / last, y = (count) => 1 + height - (0.92 * height * count) / most;
  const area = (from, to) => {
    let path = `M${x(from)},${height + 1}`;
    for (let i = from; i <= to; i++) path += `L${x(i)},${y(data.counts[i])}`;
    return `${path}L${x(to)},${height + 1}Z`;
  };
  svg.replaceChildren(
    shape("path", { class: "rest", d: area(state.level, last) }),
    shape("path", { class: "wash", d: area(0, state.level) }),
  );
}

/** Labels below the slider, as many as there is room for. */
function drawEnds() {
  const marks = ["10%", "50%", "1%", "20%", "30%", "5%", "40%", "0.1%"].filter((mark) => data.labels.includes(mark));
  const width = $("ends").clientWidth - 20, last = data.levels.length - 1, taken = [];
  for (const mark of marks) {
    const at = 10 + (width * data.labels.indexOf(mark)) / last;
    if (taken.every((other) => Math.abs(other.at - at) > 30)) taken.push({ at, mark });
  }
  $("ends").replaceChildren(...taken.map(({ at, mark }) => {
    const span = element("span", {}, mark);
    span.style.left = `${at}px`;
    return span;
  }));
}

function drawCharts() {
  if (data.levels.length > 1) {
    drawSteps();
    drawEnds();
  }
  drawHistogram();
  drawSorted();
  drawScores();
}
