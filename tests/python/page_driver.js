// Does what a person does, and writes down what the page shows.
const press = (key, target = picture) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const seen = { bars: bars.length, arrows: arrows.length, errors: [] };
window.addEventListener("error", (event) => seen.errors.push(event.message));
const heading = () => details.querySelector("h2").textContent;
const said = (term) =>
  [...details.querySelectorAll("dt")].find((one) => one.textContent.startsWith(term))
    ?.nextElementSibling.textContent ?? "";
seen.narrow = window.matchMedia("(max-width: 720px)").matches;
seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.beside = document.querySelector("aside").getBoundingClientRect().left >=
  picture.getBoundingClientRect().right;
press("ArrowRight");
seen.first = heading();
seen.does = said("does");
press("ArrowRight");
seen.second = heading();
seen.stores = said("stores");
seen.time = said("time");
press("End");
seen.last = heading();
press("Home");
press("ArrowDown");
seen.below = heading();
press("ArrowUp");
seen.above = heading();
press("m");
seen.along = heading();
seen.received = said("receives from rank");
press("b");
seen.back = heading();
seen.lit = picture.querySelectorAll(".near").length;
press("Escape");
seen.after = heading();
seen.dimmed = picture.classList.contains("chosen");
bars[3].dispatchEvent(new PointerEvent("pointerenter"));
seen.hovered = heading();
const before = svg.getBoundingClientRect().width;
press("+");
seen.larger = svg.getBoundingClientRect().width / before;
document.querySelector("#channels input").click();
seen.hidden = picture.querySelectorAll(".arrow.off").length;
press("ArrowRight", tabs[0]);
seen.tab = document.activeElement.id;
seen.dots = document.querySelectorAll("#chunk-picture .dot").length;
select.value = "1";
select.dispatchEvent(new Event("change"));
seen.chunk = document.querySelector("#chunk-picture .title").textContent;
press("ArrowRight", tabs[1]);
seen.cells = document.querySelectorAll("#view-traffic rect.bar").length;
seen.visible = [...document.querySelectorAll(".view")].filter((view) => !view.hidden).length;
document.body.innerHTML = "<pre id=seen></pre>";
document.getElementById("seen").textContent = JSON.stringify(seen);
