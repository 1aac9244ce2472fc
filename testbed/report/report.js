// Hover, zoom and sorting for the report's page. Without it the page shows everything but values under the cursor.
// The drawings are the data: a curve's path is steps (`M0 480h3v-12h1`, one unit of x is one bin) and is read back here.
"use strict";
(() => {
  const report = document.getElementById("report");
  const start = Number(report.dataset.start), end = Number(report.dataset.end), bins = Number(report.dataset.bins);
  const perBin = (end - start) / bins;
  const tools = document.querySelector(".tools:not(.chooser)");
  const tool = (name) => tools.querySelector(`[data-tool="${name}"]`);
  const plots = [...report.querySelectorAll(".plot:not([data-own])")];
  const view = { from: 0, to: bins };
  let cursor = null;

  const digits = (value) => {
    if (value === 0) return "0";
    const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
    return String(Number(value.toFixed(Math.min(places, 9))));
  };
  const inUnits = (value, units) => {
    let at = 0;
    while (at < units.length - 1 && Math.abs(Number(digits(value))) >= 1000) { value /= 1000; at += 1; }
    return `${digits(value)} ${units[at]}`;
  };
  const duration = (ns) => inUnits(ns, ["ns", "\u00b5s", "ms", "s"]);
  const bytes = (count) => inUnits(count, ["B", "kB", "MB", "GB", "TB", "PB"]);
  const percent = (fraction) => `${digits(Math.round(fraction * 1000) / 10)} %`;

  // Level of each bin, from the path of a step curve.
  const levels = new WeakMap();
  const stepLevels = (path) => {
    if (!levels.has(path)) {
      const found = [], text = path.getAttribute("d");
      let y = Number(/^M0 (-?\d+)/.exec(text)[1]);
      for (const [, move, amount] of text.split("V")[0].matchAll(/([hv])(-?\d+)/g)) {
        if (move === "v") y += Number(amount);
        else for (let n = Number(amount); n > 0; n -= 1) found.push(y);
      }
      levels.set(path, found);
    }
    return levels.get(path);
  };
  const countsOf = (svg) => {
    if (!levels.has(svg)) {
      levels.set(svg, svg.dataset.counts.split(" ").flatMap((run) => {
        const [value, length] = run.split("*");
        return Array(Number(length || 1)).fill(Number(value));
      }));
    }
    return levels.get(svg);
  };
  const valueAt = (svg, curve, bin) => {
    const height = svg.viewBox.baseVal.height;
    return (height - stepLevels(svg.querySelector(`.${curve}`))[bin]) / height * Number(svg.dataset.top);
  };

  const describe = (link, bin) => {
    const drawing = (kind) => link.querySelector(`svg[data-kind="${kind}"]`);
    const queue = drawing("queue"), use = drawing("utilisation");
    return `${duration(start + (bin + 0.5) * perBin)}: queue max ${bytes(valueAt(queue, "max", bin))}, `
      + `mean ${bytes(valueAt(queue, "mean", bin))}; utilisation ${percent(valueAt(use, "mean", bin))}; `
      + `CE ${countsOf(drawing("ce"))[bin].toLocaleString("en")}; drops ${countsOf(drawing("drops"))[bin].toLocaleString("en")}`
      + (drawing("held") ? `; held ${countsOf(drawing("held"))[bin]} % of the time` : "");
  };
  const showCursor = (bin) => {
    cursor = Math.max(0, Math.min(bins - 1, Math.floor(bin)));
    const inside = cursor + 0.5 >= view.from && cursor + 0.5 <= view.to;
    report.classList.toggle("cursor-on", inside);
    report.style.setProperty("--cursor", `${(cursor + 0.5 - view.from) / (view.to - view.from) * 100}%`);
    tool("cursor").value = cursor;
    const when = duration(start + (cursor + 0.5) * perBin);
    tool("time").textContent = when;
    tool("cursor").setAttribute("aria-valuetext", when);
    for (const readout of report.querySelectorAll("details[open] > [data-readout]")) {
      readout.textContent = describe(readout.parentElement, cursor);
    }
  };

  const ticks = (low, high, most) => {
    const least = (high - low) / (most - 1), power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) * power;
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n += 1) found.push(n * step);
    return found;
  };
  // Labels of a zoomed axis need as many digits as tell neighbours apart.
  const tickText = (ns, step) => {
    const [size, unit] = step >= 1e9 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 1e2 ? [1e3, "\u00b5s"] : [1, "ns"];
    return `${Number((ns / size).toFixed(3))} ${unit}`;
  };
  const drawAxes = () => {
    const low = start + view.from * perBin, high = start + view.to * perBin;
    const wide = plots.length && plots[0].clientWidth ? plots[0].clientWidth : 700;
    const values = ticks(low, high, Math.max(3, Math.min(8, Math.floor(wide / 85))));
    const step = values.length > 1 ? values[1] - values[0] : high - low;
    for (const axis of report.querySelectorAll("[data-times]")) {
      axis.replaceChildren(...values.map((value) => {
        const label = document.createElement("span");
        label.style.left = `${(value - low) / (high - low) * 100}%`;
        label.textContent = tickText(value, step);
        return label;
      }));
    }
  };
  const zoom = (from, to) => {
    const least = Math.min(4, bins);
    const middle = (from + to) / 2, half = Math.max(least, to - from) / 2;
    view.from = Math.max(0, Math.min(bins - 2 * half, middle - half));
    view.to = Math.min(bins, view.from + 2 * half);
    for (const plot of plots) {
      const svg = plot.querySelector("svg");
      svg.setAttribute("viewBox", `${view.from} 0 ${view.to - view.from} ${svg.viewBox.baseVal.height}`);
    }
    tool("from").value = ((start + view.from * perBin) / 1e6).toFixed(3);
    tool("to").value = ((start + view.to * perBin) / 1e6).toFixed(3);
    drawAxes();
    if (cursor !== null) showCursor(cursor);
  };
  const whole = () => zoom(0, bins);

  const binUnder = (plot, event) => {
    const box = plot.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    return view.from + share * (view.to - view.from);
  };
  let dragFrom = null;
  const showSelection = (from, to) => {
    const width = view.to - view.from;
    report.classList.add("selecting");
    report.style.setProperty("--from", `${(Math.min(from, to) - view.from) / width * 100}%`);
    report.style.setProperty("--span", `${Math.abs(to - from) / width * 100}%`);
  };
  const endSelection = () => { dragFrom = null; report.classList.remove("selecting"); };
  for (const plot of plots) {
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      dragFrom = binUnder(plot, event);
      plot.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    plot.addEventListener("pointermove", (event) => {
      const bin = binUnder(plot, event);
      showCursor(bin);
      if (dragFrom !== null) showSelection(dragFrom, bin);
    });
    plot.addEventListener("pointerup", (event) => {
      if (dragFrom === null) return;
      const from = dragFrom, to = binUnder(plot, event);
      endSelection();
      if (Math.abs(to - from) > (view.to - view.from) / 100) zoom(Math.min(from, to), Math.max(from, to));
    });
    plot.addEventListener("pointercancel", endSelection);
    plot.addEventListener("dblclick", whole);
  }

  const typedRange = () => {
    const bin = (name) => (Number(tool(name).value) * 1e6 - start) / perBin;
    if (tool("from").value !== "" && tool("to").value !== "" && bin("to") > bin("from")) zoom(bin("from"), bin("to"));
    else zoom(view.from, view.to);
  };
  const links = [...report.querySelectorAll("details.link")];
  const choose = () => {
    const part = tool("filter").value.trim().toLowerCase(), segment = tool("segment").value;
    for (const link of links) {
      const named = part !== "" && link.dataset.link.toLowerCase().includes(part);
      link.parentElement.hidden = (part !== "" && !named) || (segment !== "" && link.dataset.segment !== segment);
      if (named) { const fold = link.parentElement.closest("details.quiet"); if (fold) fold.open = true; }
    }
    for (const group of report.querySelectorAll(".group")) {
      const shown = [...group.querySelectorAll("details.link")].some((link) => !link.parentElement.hidden);
      group.hidden = (part !== "" || segment !== "") && !shown;
      const fold = group.querySelector("details.quiet");
      if (fold) fold.hidden = ![...fold.querySelectorAll("details.link")].some((link) => !link.parentElement.hidden);
    }
  };
  const openWhere = (wanted) => {
    for (const link of links) if (!link.parentElement.hidden) link.open = wanted(link);
    drawAxes();
  };
  const chooser = document.querySelector(".chooser"), followed = [...document.querySelectorAll(".followed")];
  const choice = chooser && chooser.querySelector('[data-follow="choice"]');
  const followChosen = () => {
    for (const figure of followed) figure.hidden = choice.value === "" ? !("slowest" in figure.dataset) : figure.id !== `transfer-${choice.value}`;
    for (const button of chooser.querySelectorAll("button")) {
      const next = choice.selectedIndex + Number(button.dataset.follow);
      button.disabled = next < 1 || next >= choice.options.length;
    }
  };
  if (chooser) {
    choice.addEventListener("change", followChosen);
    for (const button of chooser.querySelectorAll("button")) {
      button.addEventListener("click", () => { choice.selectedIndex += Number(button.dataset.follow); followChosen(); });
    }
    chooser.hidden = false;
    choice.value = "";
    followChosen();
  }
  const reveal = () => {
    const wanted = /^#transfer-(\d+)$/.exec(location.hash);
    if (wanted && chooser && document.getElementById(`transfer-${wanted[1]}`)) {
      choice.value = wanted[1];
      followChosen();
      document.getElementById(`transfer-${wanted[1]}`).scrollIntoView();
      return;
    }
    const row = location.hash.startsWith("#link-") && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!row) return;
    const fold = row.closest("details.quiet");
    if (fold) fold.open = true;
    row.querySelector("details.link").open = true;
    row.scrollIntoView();
  };
  for (const link of links) link.addEventListener("toggle", () => { if (link.open && cursor !== null) showCursor(cursor); });

  const cdf = report.querySelector("[data-cdf]");
  if (cdf) {
    cdf.addEventListener("pointermove", (event) => {
      const box = cdf.getBoundingClientRect();
      const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
      const svg = cdf.querySelector("svg"), height = svg.viewBox.baseVal.height;
      const done = (curve) => {
        const found = stepLevels(svg.querySelector(`.${curve}`));
        return percent((height - found[Math.floor(share * found.length)]) / height);
      };
      cdf.classList.add("at");
      cdf.style.setProperty("--cursor", `${share * 100}%`);
      report.querySelector("[data-cdf-readout]").textContent =
        `after ${duration(share * Number(cdf.dataset.end))}: ${done("actual")} completed, ideal ${done("ideal")}`;
    });
  }

  const sortBy = (table, column, heading) => {
    const up = heading.getAttribute("aria-sort") === "descending";
    const key = (row) => { const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value); };
    const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, column, heading));
    });
  }

  tool("cursor").addEventListener("input", () => showCursor(Number(tool("cursor").value)));
  tool("from").addEventListener("change", typedRange);
  tool("to").addEventListener("change", typedRange);
  tool("whole").addEventListener("click", whole);
  tool("filter").addEventListener("input", choose);
  tool("segment").addEventListener("change", choose);
  tool("open").addEventListener("click", () => openWhere((link) => "loaded" in link.dataset));
  tool("fold").addEventListener("click", () => openWhere(() => false));
  window.addEventListener("resize", drawAxes);
  window.addEventListener("hashchange", reveal);
  tools.hidden = false;
  whole();
  reveal();
})();
