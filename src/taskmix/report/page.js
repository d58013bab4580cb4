// Draws the figures of a report. They and plotly's script are gzipped, which makes a page of 5 MB one of 2 MB.
"use strict";

const BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]; // none of them sends data away

// With this hint Chromium compiles all of plotly's script on another thread. Without it, it parses the script once on
// that thread and twice on the page's own, which answers nothing for most of a second.
const EAGER = "//# allFunctionsCalledOnLoad\n";

function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k++) bytes[k] = packed.charCodeAt(k);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

async function run(source) {
  const script = document.createElement("script");
  script.src = URL.createObjectURL(new Blob([EAGER, source], { type: "text/javascript" }));
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error("plotly's script was not loaded"));
    document.head.append(script);
  });
  URL.revokeObjectURL(script.src);
}

function shortened(name) {
  return name.length > 12 && !/[<&]/.test(name) ? `${name.slice(0, 5)}…${name.slice(-6)}` : name;
}

function draw(element, figures) {
  const { data, layout } = figures[Number(element.dataset.figure)];
  const narrow = element.clientWidth < 600;
  if (narrow) {
    layout.hovermode = "closest"; // a box with all values would cover the figure
    // The names of the bars stand upright there, below the last step of the axis beside them.
    if (layout.xaxis2 && data.some((trace) => trace.type === "bar")) layout.xaxis2.ticklabelstandoff = 14;
    for (const axis of Object.values(layout)) if (axis?.ticktext) axis.ticktext = axis.ticktext.map(shortened);
  }
  const bar = narrow ? false : "hover";
  const config = { responsive: true, displaylogo: false, modeBarButtons: BUTTONS, displayModeBar: bar };
  return Plotly.newPlot(element, data, layout, config).then(() => (element.dataset.drawn = "yes"));
}

function filter(elements) {
  const hidden = new Set();
  const apply = (element) => {
    const places = element.data.map((trace, k) => k).filter((k) => element.data[k].legendgroup);
    const visible = places.map((k) => !hidden.has(element.data[k].legendgroup));
    if (places.length) Plotly.restyle(element, { visible }, places);
  };
  for (const button of document.querySelectorAll(".legend button"))
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", shown);
      hidden[shown ? "delete" : "add"](button.dataset.group);
      elements.filter((element) => element.dataset.drawn).forEach(apply);
    });
  return (element) => hidden.size && apply(element);
}

async function start() {
  for (const wide of document.querySelectorAll(".wide"))
    if (wide.scrollWidth > wide.clientWidth) wide.classList.add("scrolls");
  const elements = [...document.querySelectorAll("[data-figure]")];
  if (!elements.length) return;
  const plotly = unpacked("plotly").blob().then(run);
  const [figures] = await Promise.all([unpacked("figures").json(), plotly]);
  // A figure is drawn when it comes near the screen, so that a long page opens at once.
  const waiting = new Set(elements);
  const apply = filter(elements);
  const show = (element) => waiting.delete(element) && draw(element, figures).then(() => apply(element));
  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target)),
    { rootMargin: "400px" },
  );
  elements.forEach((element) => observer.observe(element));
  addEventListener("beforeprint", () => [...waiting].forEach(show));
}

start().catch((error) => {
  for (const element of document.querySelectorAll("[data-figure]"))
    element.textContent = `This figure needs a browser of 2023 or later (${error.message}).`;
});
