// Shows the point under the pointer and the command that repeats it. A click copies that command. All else of the page works without this.
"use strict";
const tip = document.getElementById("tip");
const reach = 14;
let shown = null;

function nearest(svg, x, y) {
  let best = null, least = reach;
  for (const point of svg.querySelectorAll("[data-tip]")) {
    const box = point.getBoundingClientRect();
    const away = Math.hypot(box.x + box.width / 2 - x, box.y + box.height / 2 - y);
    if (away < least) [best, least] = [point, away];
  }
  return best;
}

function show(point, x, y) {
  if (shown) shown.classList.remove("near");
  shown = point;
  tip.hidden = !point;
  if (!point) return;
  point.classList.add("near");
  tip.textContent = point.dataset.tip;
  const room = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - room.width - 8))}px`;
  tip.style.top = `${y + 18 + room.height > innerHeight ? y - room.height - 10 : y + 18}px`;
}

for (const svg of document.querySelectorAll("figure svg")) {
  svg.addEventListener("pointermove", (event) => show(nearest(svg, event.clientX, event.clientY), event.clientX, event.clientY));
  svg.addEventListener("pointerleave", () => show(null));
  svg.addEventListener("click", () => {
    if (shown && navigator.clipboard) navigator.clipboard.writeText(shown.dataset.tip.split("\n").pop()).catch(() => {});
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
document.documentElement.dataset.points = document.querySelectorAll("figure [data-tip]").length;
