"use strict";
// The data, what the reader has chosen, and small helpers. Text enters the page only as
// textContent, so a cell that looks like markup is shown, not run.

const data = JSON.parse(document.getElementById("data").textContent);
// A certified list need not hold the rows of the smallest q-values, by which other levels decide.
data.lines.forEach((line, i) => line.push(data.plain ? data.plain[i] : line[0], data.marking.rows[i]));
const state = { level: data.chosen, whole: false };

const $ = (id) => document.getElementById(id);
const SVG = document.querySelector("svg").namespaceURI;

const whole = (number) => number.toLocaleString("en-US");
const short = (number) => String(Number(number.toPrecision(3)));
const flaggedCount = () => data.counts[state.level];
const isFlagged = (line) => line[state.level === data.chosen ? 0 : 6] <= flaggedCount();
const some = (number, one) => `${whole(number)} ${one}${number === 1 ? "" : "s"}`;

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function shape(tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

function tip(node, text) {
  const box = $("tip");
  node.addEventListener("pointermove", (event) => {
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
    const above = event.clientY - box.offsetHeight - 12;
    box.style.left = `${Math.max(8, left)}px`;
    box.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  });
  node.addEventListener("pointerleave", () => { box.hidden = true; });
}
