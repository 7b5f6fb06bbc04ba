/* What pages add where JavaScript runs: times of the visitor's zone, copying, files, charts. All
   pages work without it. No code is made from text. */
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const language = root.lang;
  const moment = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
  const ago = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const clock = new Intl.DateTimeFormat(language, { timeStyle: "medium" });
  const STEPS = [["day", 86400], ["hour", 3600], ["minute", 60]];

  function relative(seconds) {
    const found = STEPS.find(([, size]) => Math.abs(seconds) >= size);
    return found ? ago.format(Math.round(seconds / found[1]), found[0]) : ago.format(Math.round(seconds), "second");
  }

  function times(inside) {
    for (const time of inside.querySelectorAll("time[datetime]")) {
      const date = new Date(time.dateTime);
      if (Number.isNaN(date.valueOf())) continue;
      time.title = `${time.dateTime} (UTC)`;
      const seconds = (date - Date.now()) / 1000;
      time.textContent = "relative" in time.dataset && Math.abs(seconds) < 604800 ? relative(seconds) : moment.format(date);
    }
  }

  function ready(inside) {
    times(inside);
    for (const one of inside.querySelectorAll("[data-chart]")) chart(one);
  }

  // Screen readers do not announce an alert that the page came with.
  const mistake = document.querySelector("main [aria-invalid='true']") ?? document.querySelector("main form [role='alert']")
    ?? document.querySelector("main [role='alert'] ~ form")?.parentElement.querySelector("[role='alert']");
  if (mistake) {
    if (mistake.tabIndex < 0) mistake.tabIndex = -1;
    mistake.focus();
  }

  // By scrollIntoView the first Tab would go on from there, past the link that skips the menu.
  for (const place of document.querySelectorAll("nav [aria-current='page']")) {
    const menu = place.closest(".side");
    if (menu) menu.scrollTop = Math.max(0, place.offsetTop + place.offsetHeight - menu.clientHeight);
  }

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      const text = document.getElementById(copy.dataset.copy).textContent;
      await navigator.clipboard.writeText(text);
      const label = copy.textContent;
      copy.textContent = copy.dataset.done;
      setTimeout(() => { copy.textContent = label; }, 1500);
    }
    if (event.target.closest("[data-help]")) document.getElementById("help").showModal();
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });

  /* The last line of a list that is filled gets an empty one behind it. */
  document.addEventListener("input", (event) => {
    const input = event.target;
    const list = input.closest(".picks");
    if (!list || !input.value || input !== [...list.querySelectorAll("input")].at(-1)) return;
    const another = input.cloneNode();
    another.removeAttribute("id");
    another.value = "";
    another.setAttribute("aria-label", `${list.querySelector("span").textContent.trim()} ${list.querySelectorAll("input").length + 1}`);
    input.after(another);
    htmx.process(another);
  });

  document.addEventListener("change", async (event) => {
    const input = event.target;
    if (input.matches("[data-file-into]") && input.files.length) {
      const area = document.getElementById(input.dataset.fileInto);
      area.value = await input.files[0].text();
      area.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (input.matches("[data-submit]")) input.form.requestSubmit(input.form.querySelector("[data-refresh]"));
  });

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (event.target.method !== "post" || !button) return;
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
    button.setAttribute("aria-busy", "true");
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const find = document.getElementById("find");
      if (find) { event.preventDefault(); find.focus(); }
    }
    if (event.key === "?" && !typing) document.getElementById("help")?.showModal();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("[data-enter]")) event.target.form.requestSubmit();
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) {
        if (menu.contains(document.activeElement)) menu.querySelector("summary").focus(); // else it is lost
        menu.open = false;
      }
    }
  });

  /* Charts: one request for all of them, repeated; a table beside each says the same. */
  const charts = new Map();
  const SERIES = {
    calls: [["calls_s", "--accent"], ["errors_s", "--bad"]],
    latency: [["p50_ms", "--accent"], ["p95_ms", "--info"], ["p99_ms", "--warn"]],
    sessions: [["sessions", "--accent"], ["streams", "--info"]],
  };

  function colour(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function chart(place) {
    if (!window.uPlot || charts.has(place)) return;
    const kind = place.dataset.chart;
    const labels = place.dataset.labels.split("|");
    const muted = colour("--muted"), line = colour("--line");
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
    const unit = place.dataset.unit;
    const options = {
      width: place.clientWidth, height: place.clientHeight - 32,
      scales: { y: { range: (_self, _low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 88, values: (_self, ticks) => ticks.map((one) => clock.format(one * 1000)) }, { ...axis, size: 76, values: (_self, ticks) => ticks.map((one) => `${one} ${unit}`) }],
      series: [{ label: place.dataset.time, value: (_self, at) => at == null ? "–" : clock.format(at * 1000) }, ...SERIES[kind].map(([, name], at) => ({
        label: labels[at], stroke: colour(name), width: 2, spanGaps: true,
        value: (_self, value) => value == null ? "–" : `${value.toFixed(2)} ${unit}`,
      }))],
    };
    charts.set(place, [kind, new uPlot(options, [[], ...SERIES[kind].map(() => [])], place)]);
  }

  async function draw() {
    const source = document.querySelector("[data-points]");
    if (!source || !charts.size || document.hidden) return;
    const answer = await fetch(source.dataset.points, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const points = await answer.json();
    for (const [, [kind, plot]] of charts) {
      plot.setData([points.map((one) => one.at), ...SERIES[kind].map(([name]) => points.map((one) => one[name]))]);
    }
  }

  /* A run of the agent: words as they come, and the messages anew when something else happens. */
  const WATCHED = 200; // rows of the live view
  const RESTARTS = new Set(["IterationComplete", "Waiting"]);
  let following = null, said = "";
  function follow() {
    const live = document.querySelector("[data-run]");
    if (!live) { following?.close(); following = null; return; }
    if (following?.url.endsWith(live.dataset.run)) return;
    following?.close();
    const source = following = new EventSource(live.dataset.run);
    let soon = 0;
    const anew = () => {
      clearTimeout(soon);
      soon = setTimeout(() => htmx.ajax("GET", live.dataset.page, { target: "#messages", swap: "innerHTML" }), 100);
    };
    source.addEventListener("words", (event) => { said += JSON.parse(event.data).text; saying(); });
    source.addEventListener("change", (event) => {
      if (RESTARTS.has(JSON.parse(event.data).type)) said = "";
      anew();
    });
    source.addEventListener("end", () => { source.close(); said = ""; anew(); });
  }

  function saying() {
    const text = document.querySelector("[data-run] .text");
    if (text) text.textContent = said;
  }

  /* The live view: rows as they come, until it ends by itself, is stopped or refused. */
  function watch(place) {
    const rows = place.querySelector("tbody"), button = place.querySelector("[data-stop]");
    const stream = new EventSource(place.dataset.live);
    const stop = (text) => {
      stream.close();
      clearTimeout(ending);
      place.querySelector("[data-state]").textContent = text;
      button.remove();
    };
    const over = () => stop(place.dataset.over);
    const ending = setTimeout(over, Number(place.dataset.seconds) * 1000);
    stream.addEventListener("open", () => rows.replaceChildren());
    stream.addEventListener("calls", (event) => {
      rows.insertAdjacentHTML("afterbegin", JSON.parse(event.data).html);
      while (rows.children.length > WATCHED) rows.lastElementChild.remove();
      times(rows);
    });
    stream.addEventListener("end", over);
    stream.addEventListener("error", () => { if (stream.readyState === EventSource.CLOSED) stop(place.dataset.refused); });
    button.addEventListener("click", over);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    const places = [...charts.keys()];
    for (const [, plot] of charts.values()) plot.destroy();
    charts.clear();
    places.forEach(chart);
    draw();
  });
  window.addEventListener("resize", () => {
    for (const [place, [, plot]] of charts) plot.setSize({ width: place.clientWidth, height: place.clientHeight - 32 });
  });

  document.addEventListener("htmx:after:swap", () => { times(document); follow(); saying(); });
  ready(document);
  follow();
  const live = document.querySelector("[data-live]");
  if (live) watch(live);
  const source = document.querySelector("[data-points]");
  if (source) { draw(); setInterval(draw, Number(source.dataset.every) * 1000); }
})();
