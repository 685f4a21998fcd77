"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 8;
  const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4"];
  const MOST_LINES = 10, SHOWN_AT_FIRST = 8;
  const taskBox = document.getElementById("task");
  const viewBox = document.getElementById("view");
  const tip = document.getElementById("tip");
  const state = { task: "", view: 0, off: new Set() };

  // --- Small helpers -----------------------------------------------------------------------------------------------

  function make(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  function draw(parent, tag, attributes, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
    return found;
  }

  function short(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + "k";
    return String(+value.toPrecision(size >= 1000 ? 4 : 3));
  }

  const style = (view, method) => {
    const index = view.methods.indexOf(method);
    if (index < 0) return { stroke: "var(--muted)" };  // it learned online
    const dash = DASHES[Math.floor(index / COLOURS) % DASHES.length];
    return { stroke: `var(--c${index % COLOURS})`, "stroke-dasharray": dash };
  };

  function swatch(look) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("width", 18);
    svg.setAttribute("height", 10);
    draw(svg, "line", { x1: 0, x2: 18, y1: 5, y2: 5, "stroke-width": 3, ...look });
    return svg;
  }

  // --- The tooltip -------------------------------------------------------------------------------------------------

  function showTip(event, title, rows) {
    tip.replaceChildren(make("b", { textContent: title }));
    for (const [look, name, value] of rows) {
      tip.append(make("div", {}, look ? swatch(look) : "", make("span", { textContent: name }), make("span", { textContent: value })));
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  const hideTip = () => { tip.hidden = true; };
  addEventListener("scroll", hideTip, { passive: true });

  // --- Charts ------------------------------------------------------------------------------------------------------

  function card(host, title, small, wide) {
    const heading = make("h3", { textContent: title + " " });
    if (small) heading.append(make("small", { textContent: small }));
    const plot = make("div", { className: "plot" });
    host.append(make("div", { className: wide ? "card wide" : "card" }, heading, plot));
    return plot;
  }

  function canvas(plot, width, height, label) {
    const svg = draw(plot, "svg", { width, height, role: "img", "aria-label": label });
    svg.addEventListener("pointerleave", hideTip);
    return svg;
  }

  /* lines: {name, look, x, y, low, high, step, dashed}; shared axes, hover shows all values at the nearest x. */
  function lineChart(plot, lines, options) {
    const width = Math.max(260, plot.clientWidth), height = options.height || 220;
    const area = { left: 46, right: width - 10, top: 10, bottom: height - 34 };
    const svg = canvas(plot, width, height, options.label);
    const xs = lines.flatMap((line) => line.x);
    const ys = lines.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]).filter((v) => v !== null);
    for (const rule of options.rules || []) ys.push(rule.value);
    if (!xs.length || !ys.length) {
      draw(svg, "text", { x: 8, y: 24 }, "nothing to show");
      return;
    }
    let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (options.fromZero) [y0, y1] = [Math.min(0, y0), Math.max(0, y1)];
    if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
    if (y0 === y1) [y0, y1] = [y0 - 1, y1 + 1];
    const least = 0.02 * Math.max(Math.abs(y0), Math.abs(y1));  // what is flat looks flat
    if (y1 - y0 < least) [y0, y1] = [(y0 + y1 - least) / 2, (y0 + y1 + least) / 2];
    const pad = options.exact ? 0 : (y1 - y0) * 0.05;
    if (!(options.fromZero && y0 === 0)) y0 -= pad;
    y1 += pad;
    const X = (v) => area.left + ((v - x0) / (x1 - x0)) * (area.right - area.left);
    const Y = (v) => area.bottom - ((v - y0) / (y1 - y0)) * (area.bottom - area.top);

    for (const tick of ticks(y0, y1, 4)) {
      draw(svg, "line", { class: "grid", x1: area.left, x2: area.right, y1: Y(tick), y2: Y(tick) });
      draw(svg, "text", { x: area.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, short(tick));
    }
    for (const tick of ticks(x0, x1, width < 420 ? 4 : 6)) {
      const anchor = X(tick) > area.right - 16 ? "end" : "middle";
      draw(svg, "text", { x: anchor === "end" ? area.right + 4 : X(tick), y: area.bottom + 16, "text-anchor": anchor }, short(tick));
    }
    draw(svg, "line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom });
    draw(svg, "text", { x: area.right, y: height - 4, "text-anchor": "end" }, options.xLabel || "");
    for (const rule of options.rules || []) {
      draw(svg, "line", { class: "axis", "stroke-dasharray": "5 4", x1: area.left, x2: area.right, y1: Y(rule.value), y2: Y(rule.value) });
      draw(svg, "text", { x: area.left + 4, y: Y(rule.value) - 4 }, rule.name);
    }

    const path = (line, values) => {
      let text = "", open = false;
      values.forEach((v, i) => {
        if (v === null) { open = false; return; }
        if (line.step) {
          text += `${open ? "L" : "M"}${X(line.x[i])},${Y(v)}L${X(line.x[i + 1])},${Y(v)}`;
        } else {
          text += `${open ? "L" : "M"}${X(line.x[i])},${Y(v)}`;
        }
        open = true;
      });
      return text;
    };
    for (const line of lines) {
      if (line.low) {
        const back = [...line.x.keys()].reverse().map((i) => `L${X(line.x[i])},${Y(line.low[i])}`).join("");
        draw(svg, "path", { d: path(line, line.high) + back + "Z", fill: line.look.stroke, opacity: 0.13 });
      }
    }
    for (const line of lines) {
      draw(svg, "path", { d: path(line, line.y), fill: "none", "stroke-width": 2, "stroke-linejoin": "round", ...line.look });
      if (line.y.length === 1) draw(svg, "circle", { cx: X(line.x[0]), cy: Y(line.y[0]), r: 3.5, fill: line.look.stroke });
    }

    const grid = [...new Set(xs)].sort((a, b) => a - b);
    const hover = draw(svg, "g", {});
    draw(svg, "rect", { x: area.left, y: 0, width: area.right - area.left, height: area.bottom, fill: "transparent" });
    const move = (event) => {
      const at = x0 + ((event.clientX - svg.getBoundingClientRect().left - area.left) / (area.right - area.left)) * (x1 - x0);
      const nearest = grid.reduce((a, b) => (Math.abs(b - at) < Math.abs(a - at) ? b : a));
      const found = lines.map((line) => {
        if (line.step) {
          const i = line.x.findIndex((left, k) => k + 1 < line.x.length && left <= at && at <= line.x[k + 1]);
          return [line, i, i < 0 ? null : line.y[i]];
        }
        const i = line.x.indexOf(nearest);
        return [line, i, i < 0 ? null : line.y[i]];
      }).filter(([, i, y]) => i >= 0 && y !== null).sort((a, b) => b[2] - a[2]);
      hover.replaceChildren();
      const stepped = lines.some((line) => line.step);
      const x = X(stepped ? Math.min(Math.max(at, x0), x1) : nearest);
      draw(hover, "line", { class: "cross", x1: x, x2: x, y1: area.top, y2: area.bottom });
      if (!stepped) for (const [line, , y] of found) draw(hover, "circle", { cx: x, cy: Y(y), r: 3.5, fill: line.look.stroke });
      const rows = found.map(([line, i, y]) => [line.look, line.name, short(y) + (line.sd ? ` ± ${short(line.sd[i])}` : "")]);
      showTip(event, `${options.xName || options.xLabel} ${short(stepped ? at : nearest)}`, rows);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => hover.replaceChildren());
  }

  /* rows: {name, look, value, low, high}: a dot and its interval on one axis. */
  function dotChart(plot, rows, options) {
    const width = Math.max(260, plot.clientWidth), line = 24;
    const left = Math.min(width * 0.4, 16 + 7.2 * Math.max(...rows.map((r) => r.name.length)));
    const height = rows.length * line + 30;
    const svg = canvas(plot, width, height, options.label);
    const all = rows.flatMap((r) => [r.value, r.low ?? r.value, r.high ?? r.value]);
    let [low, high] = options.range || [Math.min(...all), Math.max(...all)];
    if (!options.range) [low, high] = [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)];
    const right = width - 44;
    const X = (v) => left + ((v - low) / (high - low)) * (right - left);
    for (const tick of ticks(low, high, 4)) {
      draw(svg, "line", { class: "grid", x1: X(tick), x2: X(tick), y1: 4, y2: height - 24 });
      draw(svg, "text", { x: X(tick), y: height - 8, "text-anchor": "middle" }, short(tick));
    }
    if (options.middle !== undefined) draw(svg, "line", { class: "axis", x1: X(options.middle), x2: X(options.middle), y1: 4, y2: height - 24 });
    rows.forEach((row, i) => {
      const y = i * line + 16;
      const group = draw(svg, "g", {});
      draw(group, "rect", { x: 0, y: y - line / 2, width, height: line, fill: "transparent" });
      const label = draw(group, "text", { class: "name", x: left - 8, y: y + 4, "text-anchor": "end" }, row.name);
      if (label.getComputedTextLength() > left - 8) label.setAttribute("textLength", left - 10);
      if (row.low !== null) draw(group, "line", { x1: X(row.low), x2: X(row.high), y1: y, y2: y, "stroke-width": 3, stroke: row.look.stroke, opacity: 0.45 });
      draw(group, "circle", { cx: X(row.value), cy: y, r: 5, fill: row.look.stroke });
      draw(svg, "text", { class: "name", x: width - 2, y: y + 4, "text-anchor": "end" }, row.value.toFixed(options.digits));
      group.addEventListener("pointermove", (event) => {
        const text = (value) => value.toFixed(options.digits);
        const interval = row.low === null ? "one seed" : `${text(row.low)} to ${text(row.high)}`;
        showTip(event, row.name, [[row.look, options.what, text(row.value)], [null, "95 % interval", interval]]);
      });
    });
  }

  /* groups: {name, bars: [{name, look, value, note}]}: bars side by side in each group. */
  function barChart(plot, groups, options) {
    const bar = 9, gap = 16;
    const count = Math.max(...groups.map((g) => g.bars.length));
    const area = { left: 46, top: 10, height: 190 };
    const least = area.left + groups.length * (count * bar + gap) + 10;
    const width = Math.max(plot.clientWidth, least);
    let slot = (width - area.left - 10) / groups.length;
    const longest = 7 * Math.max(...groups.map((g) => g.label.length));
    const turned = slot < longest;
    if (turned) area.left = Math.max(area.left, 0.82 * longest - slot / 2);
    slot = (width - area.left - 10) / groups.length;
    const thick = Math.min(26, (slot - gap) / count);
    const height = area.top + area.height + (turned ? 14 + 0.6 * longest : 30);
    const svg = canvas(plot, width, height, options.label);
    const values = groups.flatMap((g) => g.bars.map((b) => b.value)).filter((v) => v !== null);
    const low = Math.min(0, ...values) * 1.05 || -1, high = Math.max(0, ...values) * 1.05;
    const Y = (v) => area.top + ((high - v) / (high - low)) * area.height;
    for (const tick of ticks(low, high, 5)) {
      draw(svg, "line", { class: "grid", x1: area.left, x2: width - 10, y1: Y(tick), y2: Y(tick) });
      draw(svg, "text", { x: area.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, short(tick));
    }
    groups.forEach((group, i) => {
      const middle = area.left + slot * (i + 0.5);
      const place = turned
        ? { transform: `translate(${middle + 4},${area.top + area.height + 12}) rotate(-35)`, "text-anchor": "end" }
        : { x: middle, y: area.top + area.height + 18, "text-anchor": "middle" };
      draw(svg, "text", place, group.label);
      group.bars.forEach((b, k) => {
        const x = middle + (k - group.bars.length / 2) * thick;
        const shape = b.value === null
          ? draw(svg, "text", { x: x + thick / 2, y: Y(0) + 14, "text-anchor": "middle" }, "×")
          : draw(svg, "rect", { x: x + 0.5, y: Math.min(Y(0), Y(b.value)), width: thick - 1, height: Math.max(1, Math.abs(Y(b.value) - Y(0))), rx: 1.5, fill: b.look.stroke, "fill-opacity": b.look["stroke-dasharray"] ? 0.45 : 1 });
        shape.addEventListener("pointermove", (event) => showTip(event, group.name, [[b.look, b.name, b.value === null ? "none" : short(b.value) + " %"], ...(b.note ? [[null, b.note, ""]] : [])]));
      });
    });
    draw(svg, "line", { class: "axis", x1: area.left, x2: width - 10, y1: Y(0), y2: Y(0) });
  }

  // --- Sections ----------------------------------------------------------------------------------------------------

  const host = (name) => document.querySelector(`[data-charts="${name}"]`);
  const current = () => DATA.views[state.view];
  const shown = (view) => view.methods.filter((method) => !state.off.has(method));

  function picked(view) {
    return DATA.datasets.filter((d) => view.places[d.name] && (!state.task || d.name === state.task));
  }

  function seriesOf(view, dataset) {
    return shown(view)
      .filter((method) => method in view.places[dataset.name])
      .map((method) => ({ method, look: style(view, method), series: DATA.series[view.places[dataset.name][method]] }));
  }

  const evaluated = (view, dataset) => seriesOf(view, dataset).filter(({ series }) => series.x);

  const online = (view, dataset) => Object.entries(view.online[dataset.name] || {})
    .map(([method, place]) => ({ method, look: style(view, method), series: DATA.series[place] }));

  /* An empty section says nothing: it is left out. */
  function begin(name, wanted) {
    const box = host(name);
    box.replaceChildren();
    box.closest("section").hidden = !wanted;
    return box;
  }

  function drawOverall(view) {
    if (!host("overall")) return;
    const box = begin("overall", view.blocks.length);
    const row = (method, [value, low, high]) => ({ name: method, look: style(view, method), value, low, high });
    for (const block of view.blocks) {
      const methods = view.methods.filter((m) => m in block.iqm);
      dotChart(card(box, "Interquartile mean of the scores", block.name), methods.map((m) => row(m, block.iqm[m])),
        { label: `Interquartile means of ${block.name}`, what: "interquartile mean", digits: 1 });
    }
    for (const [suite, duels] of Object.entries(view.better)) {
      const others = view.methods.filter((m) => m in duels);
      if (!others.length) continue;
      const duel = (m) => ({ ...row(m, duels[m].better), name: `${m} (${duels[m].tasks})` });
      dotChart(card(box, `Probability that ${view.first} is better`, `${suite} tasks both have`), others.map(duel),
        { label: "Probabilities of improvement", what: `${view.first} better`, range: [0, 1], middle: 0.5, digits: 2 });
    }
    for (const block of view.blocks) {
      const lines = view.methods.filter((m) => m in block.profiles && !state.off.has(m)).map((m) => {
        const [y, low, high] = block.profiles[m];
        return { name: m, look: style(view, m), x: view.thresholds, y, low, high };
      });
      lineChart(card(box, "Performance profiles", block.name), lines,
        { label: `Performance profiles of ${block.name}`, xLabel: "score", xName: "share of runs above score", fromZero: true, exact: true });
    }
  }

  function drawCurves(view) {
    const datasets = picked(view).filter((dataset) => evaluated(view, dataset).length);
    const box = begin("curves", datasets.length);
    for (const dataset of datasets) {
      const lines = evaluated(view, dataset).map(({ method, look, series: s }) => ({
        name: method, look, x: s.x, y: s.y, sd: s.sd, low: s.y.map((v, i) => v - s.sd[i]), high: s.y.map((v, i) => v + s.sd[i]),
      }));
      const rules = dataset.mean === null ? [] : [{ name: "the log", value: dataset.mean }];
      const clones = new Map(evaluated(view, dataset).filter(({ series: s }) => s.clone !== null).map(({ method, series: s }) => [s.clone, method]));
      for (const [value, method] of clones) rules.push({ name: clones.size > 1 ? `clone of ${method}` : "the clone", value });
      lineChart(card(box, dataset.name, dataset.unit), lines, { label: `Learning curves on ${dataset.name}`, xLabel: "gradient steps", xName: "step", rules });
    }
  }

  function drawStability(view) {
    const box = begin("stability", picked(view).some((dataset) => evaluated(view, dataset).length));
    ["Worst of the episodes of the last evaluation", "Worst of the last ten evaluations"].forEach((title, which) => {
      const groups = picked(view).map((dataset) => ({
        name: dataset.name,
        label: dataset.short,
        bars: [...evaluated(view, dataset), ...online(view, dataset)].map(({ method, look, series }) => {
          const found = series.stability[which];
          return { name: method, look, value: found.percent, note: `${found.counted} of ${found.seeds} seeds` };
        }),
      }));
      const means = state.task ? [] : view.blocks.map((block) => ({
        name: `mean of ${block.name}`,
        label: `mean of ${block.name.split(" ")[0]}`,
        bars: Object.entries(block.stability).filter(([method]) => !state.off.has(method)).map(([method, both]) => (
          { name: method, look: style(view, method), value: both[which], note: "" }
        )),
      }));
      const drawn = [...means, ...groups].filter((group) => group.bars.length);
      if (drawn.length) barChart(card(box, title, "percent difference from the mean", true), drawn, { label: title });
    });
  }

  const isRatio = (name) => /^(ratio|beta|trust)/.test(name);

  function drawLogged(view) {
    const dataset = picked(view).find((d) => seriesOf(view, d).some(({ series }) => series.metrics));
    const box = begin("logged", dataset);
    if (!dataset) return;
    const found = seriesOf(view, dataset).filter(({ series }) => series.metrics);
    const names = [...new Set(found.flatMap(({ series }) => Object.keys(series.metrics.values)))];
    const first = names.filter(isRatio), rest = names.filter((name) => !isRatio(name));
    const chart = (target, name) => {
      const lines = found.filter(({ series }) => name in series.metrics.values).map(({ method, look, series }) => ({
        name: method, look, x: series.metrics.x, y: series.metrics.values[name],
      }));
      lineChart(card(target, name, dataset.name), lines, { label: `${name} on ${dataset.name}`, xLabel: "gradient steps", xName: "step", height: 170 });
    };
    first.forEach((name) => chart(box, name));
    if (!rest.length) return;
    const more = make("div", { className: "cards" });
    const details = make("details", { open: !first.length }, make("summary", { textContent: `${first.length ? "Everything else" : "Everything"} logged on ${dataset.name}` }), more);
    details.style.gridColumn = "1 / -1";
    box.append(details);
    const fill = () => { if (details.open && !more.children.length) rest.forEach((name) => chart(more, name)); };
    details.addEventListener("toggle", fill);
    fill();
  }

  const GREY = { stroke: "var(--muted)", "stroke-dasharray": "4 3" };

  /* Narrow and wide distributions stand in one chart: each is scaled to its own highest bin. */
  function scaled(counts) {
    const highest = Math.max(...counts) || 1;
    return counts.map((count) => count / highest);
  }

  function drawHistograms(view) {
    const drawn = picked(view).filter((d) => d.returns || evaluated(view, d).length);
    const acting = picked(view).find((d) => d.actions);
    const form = { fromZero: true, exact: true };
    const box = begin("histograms", drawn.length || acting);
    for (const dataset of drawn) {
      const lines = evaluated(view, dataset).map(({ method, look, series }) => ({
        name: method, look, x: series.returns.edges, y: scaled(series.returns.counts), step: true,
      }));
      if (dataset.returns) lines.push({ name: "data", look: GREY, x: dataset.returns.edges, y: scaled(dataset.returns.counts), step: true });
      lineChart(card(box, dataset.name, `${dataset.unit}s of episodes`), lines, { label: `Returns on ${dataset.name}`, xLabel: dataset.unit, ...form });
    }
    if (!acting) return;
    acting.actions.data.forEach((counts, i) => {
      const edges = counts.map((_, k) => k).concat(counts.length)
        .map((k) => acting.actions.low[i] + (k / counts.length) * (acting.actions.high[i] - acting.actions.low[i]));
      const lines = seriesOf(view, acting).filter(({ series }) => series.actions).map(({ method, look, series }) => ({
        name: method, look, x: edges, y: scaled(series.actions[i]), step: true,
      }));
      lines.push({ name: "data", look: GREY, x: edges, y: scaled(counts), step: true });
      lineChart(card(box, `Action ${i + 1}`, acting.name), lines, { label: `Action ${i + 1} on ${acting.name}`, xLabel: "action", ...form, height: 170 });
    });
  }

  // --- What is shown -----------------------------------------------------------------------------------------------

  function legend(view) {
    const box = document.getElementById("methods");
    box.replaceChildren(...view.methods.map((method) => {
      const button = make("button", { type: "button" }, swatch(style(view, method)), method);
      button.setAttribute("aria-pressed", String(!state.off.has(method)));
      button.addEventListener("click", () => {
        if (!state.off.delete(method)) state.off.add(method);
        button.setAttribute("aria-pressed", String(!state.off.has(method)));
        redraw();
      });
      return button;
    }));
  }

  function redraw() {
    const view = current();
    hideTip();
    drawOverall(view);
    drawCurves(view);
    drawStability(view);
    drawLogged(view);
    drawHistograms(view);
  }

  function choose() {
    const view = current();
    state.off = new Set(view.methods.length > MOST_LINES ? view.methods.slice(SHOWN_AT_FIRST) : []);
    for (const node of document.querySelectorAll(".view")) {
      if (node.dataset.view === "every") node.open = view.way === "every";
      else node.hidden = Number(node.dataset.view) !== state.view;
    }
    legend(view);
    redraw();
  }

  function filter() {
    for (const node of document.querySelectorAll("[data-task]")) node.hidden = Boolean(state.task) && node.dataset.task !== state.task;
    redraw();
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const numeric = [...body.rows].every((row) => key(row) === "" || Number.isFinite(Number(key(row))));
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          return (down ? -1 : 1) * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  taskBox.addEventListener("change", () => { state.task = taskBox.value; filter(); });
  viewBox.addEventListener("change", () => { state.view = Number(viewBox.value); choose(); });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 120);
  });
  if (DATA.views.length) choose();
})();
