// Live updates: asks for a small document every few seconds and puts its words into the cells that
// wear their names. Without JavaScript the pages are as they were when they were opened.
"use strict";

const EVERY_MS = 4000;
const LATE_MS = 60000;

function ago(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 90) return seconds + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h ago";
  return Math.round(seconds / 86400) + " days ago";
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time[data-ms]")) {
    const words = ago(Number(time.dataset.ms));
    if (time.textContent !== words) time.textContent = words;
    if (!time.title) time.title = new Date(Number(time.dataset.ms)).toLocaleString();
  }
}

function put(cells) {
  for (const cell of document.querySelectorAll("[data-cell]")) {
    const said = cells[cell.dataset.cell];
    if (said === undefined) continue;
    const time = cell.querySelector("time[data-ms]");
    if (typeof said === "number" && time) time.dataset.ms = String(said);
    else if (typeof said === "string" && cell.textContent !== said) cell.textContent = said;
  }
}

function tell(sentence) {
  const line = document.getElementById("connection");
  line.textContent = sentence;
  line.hidden = !sentence;
}

let heard = Date.now();

async function look() {
  const url = document.body.dataset.live;
  if (!document.hidden) {
    try {
      const answer = await fetch(url, { headers: { accept: "application/json" } });
      if (answer.status === 401) { location.assign("/login"); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const said = await answer.json();
      put(said.cells || {});
      document.dispatchEvent(new CustomEvent("live", { detail: said }));
      heard = Date.now();
      tell("");
    } catch (error) {
      if (Date.now() - heard > 2 * EVERY_MS) {
        tell("The server does not answer. What you see is from " + ago(heard) + ".");
      }
    }
  } else if (Date.now() - heard > LATE_MS) {
    heard = Date.now();  // nobody looks: that is no trouble
  }
  showTimes(document);
  setTimeout(look, EVERY_MS);
}

showTimes(document);
if (document.body.dataset.live) setTimeout(look, 300);

const join = document.getElementById("join");
if (join && location.hash.length > 1) {
  document.getElementById("code").value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);  // the code stays in no history
}

// A part of a page that is fetched again as a whole and put in its place, unless somebody is busy
// with it. Where the node has changed its mind, the buttons rest for a moment: a finger that was on
// its way meant what stood there before.
const REST_MS = 600;

function isBusy(place) {
  return place.querySelector("input:checked") || place.contains(document.activeElement);
}

async function again() {
  const place = document.getElementById("again");
  if (!document.hidden && !isBusy(place)) {
    try {
      const answer = await fetch(document.body.dataset.again);
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("again");
        const news = fresh.dataset.guess !== place.dataset.guess;
        if (!isBusy(place)) place.replaceWith(fresh);
        if (news) rest(fresh);
        showTimes(document);
      }
    } catch (error) { /* the next time, perhaps */ }
  }
  setTimeout(again, EVERY_MS);
}

function rest(place) {
  const buttons = place.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  setTimeout(() => { for (const button of buttons) button.disabled = false; }, REST_MS);
}
if (document.body.dataset.again) setTimeout(again, EVERY_MS);
