// Keeps the page of a run up to date: its server sends the parts that have changed, as HTML. Only what differs is
// replaced, so that the focus, what is unfolded, and the zoom of the charts stay. A page that nobody sees asks nothing.
"use strict";

const state = document.getElementById("live");
const time = document.getElementById("live-time");
let events = null;

function say(text, moment = "") {
  if (state.textContent !== text) state.textContent = text;
  time.textContent = moment;
}

// Makes the element `old` equal to `made`. The drawing of a chart stays: its script draws from the new data.
function change(old, made) {
  if (old.nodeName !== made.nodeName || old.id !== made.id) return old.replaceWith(made);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return undefined;
  }
  if ("keep" in old.dataset) return undefined;
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes])
    if (!made.hasAttribute(name) && name !== "open") old.removeAttribute(name); // open: the reader has unfolded it
  changeChildren(old, made);
  return undefined;
}

function changeChildren(old, made) {
  const present = [...old.childNodes];
  [...made.childNodes].forEach((child, at) => (at < present.length ? change(present[at], child) : old.append(child)));
  present.slice(made.childNodes.length).forEach((child) => child.remove());
}

function replace(part, html) {
  const place = document.getElementById(part + "-part");
  if (!place) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  changeChildren(place, made.content);
}

function connect() {
  events = new EventSource("/events");
  events.addEventListener("parts", (event) => {
    for (const [part, html] of Object.entries(JSON.parse(event.data))) replace(part, html);
    pageCharts.refresh();
    say("live", ", as of " + new Date().toLocaleTimeString());
  });
  events.addEventListener("ended", () => {
    events.close();
    events = null;
    document.removeEventListener("visibilitychange", onVisibility);
    say("the run has ended");
  });
  events.addEventListener("error", () => {
    say("no answer from elastichost top; this is the last state that it sent");
  });
}

function onVisibility() {
  if (document.hidden && events) {
    events.close();
    events = null;
  } else if (!document.hidden && !events) {
    connect();
  }
}

document.addEventListener("visibilitychange", onVisibility);
connect();
