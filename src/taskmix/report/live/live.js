// The live page: a list of runs, and figures of the chosen ones. One request a run and poll.
"use strict";

const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"];
const RUN_COLOURS = ["#648FFF", "#DC267F", "#FFB000", "#785EF0", "#FE6100"]; // no task has them
const DASHES = ["solid", "dash", "dot", "dashdot"];
const BORDERS = ["solid", "dashed", "dotted", "double"];
const PATTERNS = ["", "/", "x", "."];
const POLL = 2000;
const RUNNING = 60; // seconds since the last line of a journal
const broken = new Map(); // by id, why a chosen run has no data
const chosen = new Map(); // by id, the newest data of a run
let listed = [];
let studyOf = new Map(); // by id of a run
const within = (study, id) => (study && id.startsWith(`${study}/`) ? id.slice(study.length + 1) : id);
const titleOf = (study) => (study === "." ? $("folder").textContent : study); // the folder itself may be a study
const loaded = () => [...chosen].filter(([, run]) => run);

const $ = (id) => document.getElementById(id);
// Plotly understands some HTML in texts.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const count = (number) => (number == null ? "?" : number.toLocaleString("en"));
const runsIn = (number) => `${count(number)} run${number === 1 ? "" : "s"}`;
const percent = (value) => (value == null ? "–" : (100 * value).toFixed(1));

const level = (run, value) => (run.measure === "loss" ? (value == null ? "–" : (-value).toFixed(3)) : percent(value));

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

class Refused extends Error {} // by the server, in a sentence

async function ask(path) {
  const answer = await fetch(path);
  if (answer.status === 204) return null;
  const data = await answer.json();
  if (!answer.ok) throw new Refused(data.error);
  return data;
}

function status(run) {
  if (run.error) return run.error;
  if (run.diverged) return "diverged";
  if (run.finished) return "finished";
  const quiet = Date.now() / 1000 - run.modified;
  if (quiet < RUNNING) return "running";
  if (run.total && run.step >= run.total) return "finished"; // by another library, which writes no scores
  const minutes = Math.round(quiet / 60);
  return `quiet for ${minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`}`;
}

const isRunning = (run) => status(run) === "running";
const isFinished = (run) => ["finished", "diverged"].includes(status(run));

function showList() {
  const words = $("search").value.toLowerCase();
  const focused = document.activeElement.dataset?.box;
  const groups = new Map(); // a run without a study is a group of its own
  for (const run of listed.filter((run) => run.id.toLowerCase().includes(words))) {
    const key = run.study ? `study ${run.study}` : `run ${run.id}`;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  const rank = (runs) => -runs.some(isRunning);
  const items = [...groups.values()]
    .sort((one, other) => rank(one) - rank(other))
    .flatMap((runs) => [
      ...(runs[0].study ? [studyItem(runs[0].study, runs)] : []),
      ...runs.sort((one, other) => isRunning(other) - isRunning(one)).map(runItem),
    ]);
  $("runs").replaceChildren(...items);
  if (focused) [...$("runs").querySelectorAll("input")].find((box) => box.dataset.box === focused)?.focus({ preventScroll: true });
}

function item(key, runs, ...parts) {
  const made = element("li");
  const label = element("label");
  const box = element("input");
  box.type = "checkbox";
  box.dataset.box = key;
  box.checked = runs.every((run) => chosen.has(run.id));
  box.indeterminate = !box.checked && runs.some((run) => chosen.has(run.id));
  box.addEventListener("change", () => choose(runs.map((run) => run.id), box.checked));
  label.append(box, ...parts);
  made.append(label);
  return made;
}

function studyItem(study, runs) {
  const done = runs.filter(isFinished).length;
  const detail = done === runs.length ? `${runsIn(done)} · finished` : `${done} of ${runsIn(runs.length)} finished`;
  const made = item(`study ${study}`, runs, element("span", titleOf(study), "name"), element("span"), element("span", detail, "detail"));
  made.className = "study";
  return made;
}

function runItem(run) {
  // A budget of examples or compute has no known number of steps.
  const progress = run.total && run.counts === "steps" ? `${count(run.step)} of ${count(run.total)}` : `step ${count(run.step)}`;
  const detail = run.error ? [run.error] : [run.decider, progress, status(run)];
  const made = item(
    run.id,
    [run],
    element("span", within(run.study, run.id), "name"),
    element("span", run.objective ? level(run, run.value) : percent(run.score), "score"),
    element("span", detail.join(" · "), "detail"),
  );
  if (run.study) made.className = "member";
  if (run.total && !isFinished(run)) {
    const bar = element("progress");
    bar.max = run.total;
    bar.value = run.step;
    made.firstChild.append(bar);
  }
  return made;
}

function choose(ids, on) {
  for (const id of ids) {
    if (on) chosen.set(id, chosen.get(id) ?? null);
    else chosen.delete(id);
    broken.delete(id);
  }
  // The address keeps the choice, for a reload and for a bookmark.
  history.replaceState(null, "", `#${[...chosen.keys()].map(encodeURIComponent).join("&")}`);
  showList();
  layOut();
  if (on) Promise.all(ids.map(pollRun)).catch(showFailure);
}

// One figure for each question; each is drawn only while it is near the screen.
const figures = new Map();
const observer = new IntersectionObserver(
  (entries) =>
    entries.forEach((entry) => {
      entry.target.dataset.near = entry.isIntersecting ? "yes" : "";
      if (entry.isIntersecting) draw(entry.target);
    }),
  { rootMargin: "300px" },
);

function draw(place) {
  if (!place.dataset.near || !window.Plotly) return;
  const { traces, layout } = figures.get(place)();
  const common = {
    margin: { t: 8, r: 8, b: 36, l: 48 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: "#808080" },
    hovermode: "x unified",
    hoverdistance: -1, // the nearest step, however far: evaluations are rare
    legend: { orientation: "h", y: 1, yanchor: "bottom" },
    xaxis: { title: { text: "step" }, gridcolor: "#8883", rangemode: "tozero" },
    yaxis: { gridcolor: "#8883", ...layout.yaxis },
    showlegend: layout.showlegend ?? false,
    uirevision: "kept",
  };
  Plotly.react(place, traces, common, { responsive: true, displaylogo: false, displayModeBar: false });
  place.dataset.drawn = "yes";
}

function figure(caption, make, parent = $("figures")) {
  const box = element("figure");
  const place = element("div", "", "plot");
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", caption);
  box.append(element("figcaption", caption), place);
  parent.append(box);
  figures.set(place, make);
  observer.observe(place);
}

const variant = (k) => Math.floor(k / COLOURS.length) % DASHES.length;
const look = (k) => ({ color: COLOURS[k % COLOURS.length], dash: DASHES[variant(k)] });

function legend(tasks) {
  const names = tasks.map((task, k) => {
    const name = element("span");
    name.setAttribute("role", "listitem");
    const line = element("i");
    line.style.setProperty("--colour", look(k).color);
    line.style.setProperty("--dash", BORDERS[variant(k)]);
    name.append(line, task);
    return name;
  });
  $("legend").replaceChildren(...names);
}

function byTask(run, values, options = {}) {
  return run.tasks.map((task, k) => ({
    x: run.steps, y: values[k], name: plain(task), mode: "lines", connectgaps: true, line: look(k), ...options,
  }));
}

// A value holds for the steps since the one before it, the first one from the start on.
const areas = (run, values, x) => ({
  traces: byTask(run, values, { stackgroup: "one" }).map((trace, k) => ({
    ...trace, x: [0, ...x], y: [trace.y[0], ...trace.y], line: { width: 0, color: look(k).color, shape: "vh" }, fillcolor: look(k).color, fillpattern: { shape: PATTERNS[variant(k)], fillmode: "replace", fgcolor: "white", bgcolor: look(k).color, solidity: 0.2 },
  })),
  layout: { yaxis: { tickformat: ".0%", range: [0, 1] } },
});
const shares = (run) => areas(run, run.drawn, run.share_steps);
// The draws of a few hundred steps are noisy; the probabilities that they came from are not.
const isAsked = (run) => run.asked.some((values) => values.some((value) => value != null));
const mixture = (run) => (isAsked(run) ? areas(run, run.asked, run.steps) : shares(run));
const asked = (run) => areas(run, run.asked, run.steps);
const losses = (run) => ({ traces: byTask(run, run.losses), layout: { yaxis: { title: { text: "loss" } } } });
const POINTS = { title: { text: "dev score, of 100" }, hoverformat: ".1f" };
const points = (value) => (value == null ? null : 100 * value);
const scores = (run) => ({
  traces: run.tasks.map((task, k) => ({
    x: run.evaluations.map((evaluation) => evaluation.step),
    y: run.evaluations.map((evaluation) => points(evaluation.scores[task])),
    name: plain(task), mode: "lines+markers", line: look(k),
  })),
  layout: { yaxis: POINTS },
});
const outcome = ({ objective, score }) => objective ?? score;
// The study that all chosen runs belong to, if there is one.
function commonStudy() {
  const studies = new Set([...chosen.keys()].map((id) => studyOf.get(id) ?? ""));
  return studies.size === 1 ? [...studies][0] : "";
}
const shortName = (id) => within(commonStudy(), id);
// Runs of one study are compared by contestant, whose folder has one for each seed; others by their folders.
function contestants(runs) {
  const groups = new Map();
  for (const [id, run] of runs) {
    const folder = commonStudy() ? shortName(id).replace(/\/seed-\d+$/, "") : id;
    groups.set(folder, [...(groups.get(folder) ?? []), [id, run]]);
  }
  const named = new Map([...groups].map(([folder, members]) => [members[0][1].decider || folder, members]));
  return commonStudy() && named.size === groups.size ? [...named] : [...groups];
}
// In a study, single-task trainings are no match for runs of all its tasks.
function comparable(runs) {
  const most = Math.max(...runs.map(([, run]) => run.tasks.length));
  return commonStudy() ? runs.filter(([, run]) => run.tasks.length === most) : runs;
}
const means = () => ({
  traces: contestants(comparable(loaded())).flatMap(([, runs], k) =>
    runs.map(([id, run]) => ({
      x: run.evaluations.map((evaluation) => evaluation.step),
      y: run.evaluations.map((evaluation) => (run.measure === "loss" ? -outcome(evaluation) : points(outcome(evaluation)))),
      name: plain(shortName(id)), mode: "lines+markers", line: { color: RUN_COLOURS[k % RUN_COLOURS.length], dash: DASHES[Math.floor(k / RUN_COLOURS.length) % DASHES.length] },
    })),
  ),
  layout: { showlegend: true, yaxis: [...chosen.values()].some((run) => run?.measure === "loss") ? { title: { text: "loss" } } : POINTS },
});

function layOut() {
  for (const place of figures.keys()) observer.unobserve(place);
  figures.clear();
  $("figures").replaceChildren();
  $("hint").hidden = chosen.size > 0;
  const ids = [...chosen.keys()];
  if (ids.length === 1) {
    const run = () => chosen.get(ids[0]);
    if (!run()) return refresh();
    figure("Dev score of each task", () => scores(run()));
    figure("Share of each task in the draws", () => shares(run()));
    figure("Probability of each task, as the policy asked for it", () => asked(run()));
    figure("Training loss of each task", () => losses(run()));
  } else if (ids.length > 1) {
    const aimed = [...chosen.values()].some((run) => run?.objective);
    figure(aimed ? "Objective" : "Mean dev score", means);
    const panels = element("div", "", "panels");
    $("figures").append(panels);
    for (const id of ids) {
      if (chosen.get(id))
        figure(`${shortName(id)}: shares`, () => mixture(chosen.get(id)), panels);
    }
  }
  refresh();
}

// What a reader wants to know first. It describes the runs; the report of a study has the test.
function summary(runs) {
  const scored = comparable(runs).filter(([, run]) => run.evaluations.length);
  if (!scored.length) return runs.length ? "There is no evaluation yet." : "";
  if (scored.length === 1) return progressOf(scored[0][1]);
  const measures = new Set(scored.map(([, run]) => `${run.measure} ${run.objective}`));
  return measures.size > 1 ? "" : ranking(scored);
}

function ranking(scored) {
  const run = scored[0][1]; // all have the same measure
  const ranked = contestants(scored)
    .map(([name, members]) => ({ name, runs: members.length, mean: meanOutcome(members) }))
    .sort((one, other) => other.mean - one.mean);
  const [best, ...others] = ranked.map(({ name, mean, runs }) => ({ name, value: `${level(run, mean)}${runs > 1 ? ` (${runs} runs)` : ""}` }));
  if (!others.length) return `${best.name} has a ${measured(run)} of ${best.value}.`;
  const shown = others.slice(0, 4).map(({ name, value }) => `${name} ${value}`).join(", ");
  const more = others.length > 4 ? ` and ${others.length - 4} more` : "";
  const so = scored.every(([, one]) => one.finished) ? " at the end" : " so far"; // a report has the model that was kept
  const first = `${best.name} has the best ${measured(run)}${so}: ${best.value}; ${shown}${more}.`;
  const study = commonStudy();
  return study ? `${first} The report of ${titleOf(study)} (taskmix report) tests whether that is more than noise.` : first;
}

const meanOutcome = (runs) => runs.reduce((sum, [, run]) => sum + outcome(run.evaluations.at(-1)), 0) / runs.length;
const measured = (run) => (run.objective ? (run.measure === "loss" ? "objective, a loss," : "objective") : "mean dev score");

function progressOf(run) {
  const last = run.evaluations.at(-1);
  const best = run.evaluations.reduce((one, other) => (outcome(other) > outcome(one) ? other : one));
  const total = run.total ? ` of ${count(run.total)}` : "";
  const first = `${run.decider} reached a ${measured(run)} of ${level(run, outcome(last))} at step ${count(last.step)}${total}.`;
  return best.step === last.step ? first : `${first} Its best was ${level(run, outcome(best))} at step ${count(best.step)}.`;
}

function refresh() {
  const runs = loaded();
  $("summary").textContent = summary(runs);
  $("summary").hidden = !$("summary").textContent;
  const tasks = [...new Set(runs.flatMap(([, run]) => run.tasks))];
  legend(tasks);
  const table = element("table");
  const head = element("tr");
  const aimed = runs.some(([, run]) => run.objective);
  head.append(...["run", "decider", "step", ...(aimed ? ["objective"] : []), "mean"].map((name) => element("th", name)));
  head.append(...tasks.map((name) => element("th", name, name.length > 16 ? "long" : "")));
  table.append(head);
  for (const [id, run] of runs) {
    const last = run.evaluations.at(-1);
    const row = element("tr");
    const cells = [shortName(id), run.decider, `${count(run.step)}${run.finished ? "" : " …"}`];
    if (aimed) cells.push(run.objective ? level(run, last?.objective) : "–");
    cells.push(percent(last?.score), ...tasks.map((task) => percent(last?.scores[task])));
    row.append(...cells.map((text) => element("td", text)));
    table.append(row);
  }
  const wide = element("div", "", "wide");
  wide.tabIndex = 0;
  if (runs.length) wide.append(table);
  $("lines").replaceChildren(...[...broken].map(([id, why]) => element("p", `${id}: ${why}`, "broken")), wide);
  const events = runs.length === 1 ? runs[0][1].events : [];
  $("events").replaceChildren(...(events.length ? [element("h2", "Why the shares changed")] : []), ...events.map((text) => element("p", text)));
  for (const place of figures.keys()) draw(place);
}

async function pollRun(id) {
  const have = chosen.get(id)?.version ?? "";
  const address = `api/run/${id.split("/").map(encodeURIComponent).join("/")}?have=${have}`;
  const news = await ask(address).catch((error) => {
    if (!(error instanceof Refused)) throw error;
    broken.set(id, error.message); // the others go on
    refresh();
  });
  if (!news || !chosen.has(id)) return;
  broken.delete(id);
  const first = chosen.get(id) === null;
  chosen.set(id, news);
  if (first) layOut();
  else refresh();
  if (!news.complete) await pollRun(id);
}

function showFailure(error) {
  $("state").textContent = `no answer from the server: ${error.message}`;
}

async function pollList() {
  const news = await ask("api/runs");
  listed = news.runs;
  const isKnown = studyOf.size > 0;
  studyOf = new Map(listed.map((run) => [run.id, run.study]));
  if (!isKnown && chosen.size) layOut(); // names of runs are shorter within their study
  $("folder").textContent = news.folder;
  $("hint").textContent = listed.length ? "Choose a run, or several to compare them." : "There are no runs in this folder yet. They appear here when they start.";
  $("state").textContent = `${runsIn(listed.length)}, ${listed.filter(isRunning).length} running`;
  const first = !$("runs").hasChildNodes();
  const running = listed.filter((run) => status(run) === "running");
  const obvious = listed.length === 1 ? listed : running;
  if (first && !chosen.size && obvious.length === 1) choose([obvious[0].id], true);
  showList();
  if (first) $("runs").querySelector(":checked")?.scrollIntoView({ block: "nearest" });
}

let polling = false;
async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  try {
    await Promise.all([pollList(), ...[...chosen.keys()].map(pollRun)]);
  } catch (error) {
    showFailure(error);
  } finally {
    polling = false;
  }
}

function chooseFromAddress() {
  const ids = location.hash.slice(1).split("&").filter(Boolean);
  try {
    for (const id of ids) chosen.set(decodeURIComponent(id), null);
  } catch {
    chosen.clear(); // no address of ours
  }
  layOut();
}

addEventListener("hashchange", () => {
  chosen.clear();
  chooseFromAddress();
  showList();
  poll();
});
$("search").addEventListener("input", showList);
document.addEventListener("visibilitychange", poll);
$("plotly").addEventListener("load", refresh); // the list does not wait for it
setInterval(poll, POLL);
chooseFromAddress();
poll();
