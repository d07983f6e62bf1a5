// Replaces the parts of the page that have changed. What a reader has unfolded stays unfolded.
"use strict";

const said = document.getElementById("live");
const events = new EventSource("/events");

function replace(part, html) {
  const place = document.getElementById(part + "-part");
  if (!place) return;
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
  const focused = place.contains(document.activeElement) ? document.activeElement.textContent : null;
  const made = document.createElement("template");
  made.innerHTML = html;
  for (const one of made.content.querySelectorAll("details"))
    one.open = open.has(one.querySelector("summary").textContent);
  place.replaceChildren(made.content);
  if (focused !== null)
    [...place.querySelectorAll("summary")].find((one) => one.textContent === focused)?.focus();
}

events.addEventListener("parts", (event) => {
  for (const [part, html] of Object.entries(JSON.parse(event.data))) replace(part, html);
  said.textContent = "live, as of " + new Date().toLocaleTimeString();
});
events.addEventListener("ended", () => {
  events.close();
  said.textContent = "the run has ended";
});
events.addEventListener("error", () => {
  said.textContent = "no answer from elastichost top; this is the last state that it sent";
});
