// Draws the charts of a page with uPlot. Each <figure class="chart"> has the data of its chart as JSON (the structs of
// elastichost/reporting/render/chart.py) and a place for the drawing. Colours are CSS variables of the page.
"use strict";

const pageCharts = (() => {
  const { columns, rowAt, tickWords, words } = chartData;
  const NEAR_PX = 7; // a mark or a point that is this near to the cursor tells its tip
  const FEW = 12; // a line with at most this many points shows them
  const TRIANGLE = [[0, -1.6], [1.3, 0.7], [-1.3, 0.7]];
  const BYTES = Array.from({ length: 51 }, (_, power) => 2 ** power);
  const SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200]
    .concat([1, 2, 5, 10, 20, 50, 100].map((days) => days * 86400));
  const drawn = new Map(); // figure -> its drawing

  // --- one chart ----------------------------------------------------------------------------------------------------

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function element(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  class Drawing {
    constructor(figure) {
      this.figure = figure;
      this.place = figure.querySelector(".drawing");
      this.legend = element("ul", "legend");
      this.reset = element("button", "reset", "Reset zoom");
      this.reset.type = "button";
      this.reset.hidden = true;
      this.reset.addEventListener("click", () => this.showAll());
      this.holder = element("div", "plot");
      this.holder.tabIndex = 0;
      this.holder.setAttribute("role", "application");
      this.holder.setAttribute("aria-roledescription", "chart");
      this.holder.setAttribute("aria-describedby", "chart-help");
      this.holder.addEventListener("keydown", (event) => this.onKey(event));
      this.holder.addEventListener("blur", () => this.leave());
      this.tip = element("div", "tip");
      this.tip.hidden = true;
      this.cursorAt = null; // the place that the keyboard has reached
      this.said = element("p", "unseen");
      this.said.setAttribute("aria-live", "polite");
      this.place.replaceChildren(this.legend, this.reset, this.holder, this.said);
      this.read();
      new ResizeObserver(() => this.fit()).observe(this.place);
    }

    read() {
      this.json = this.figure.querySelector("script").textContent;
      this.chart = JSON.parse(this.json);
      this.holder.setAttribute("aria-label", this.chart.title + ", chart");
      this.fillLegend();
    }

    // Reads the data again if they have changed. Zoom and cursor stay.
    update() {
      if (this.figure.querySelector("script").textContent === this.json) return;
      const lines = (chart) => chart.series.map(({ name, kind, colour }) => [name, kind, colour]);
      const shape = (chart) => JSON.stringify([chart.x.unit, lines(chart)]);
      const before = shape(this.chart);
      this.read();
      if (!this.plot) return;
      if (shape(this.chart) !== before) return this.rebuild();
      const { min, max } = this.plot.scales.x;
      if (this.isZoomed) {
        this.plot.setData(columns(this.chart), false);
        this.plot.setScale("x", { min, max });
      } else {
        this.plot.setData(columns(this.chart));
      }
      this.showValues();
    }

    // Draws anew: after a change of colours or of the series.
    rebuild() {
      const zoom = this.plot && this.isZoomed ? { min: this.plot.scales.x.min, max: this.plot.scales.x.max } : null;
      if (this.plot) this.plot.destroy();
      this.plot = null;
      this.fit();
      if (zoom && this.plot) this.plot.setScale("x", zoom);
    }

    // Gives the drawing the size of its place. A chart in folded text has none yet, and is made when it is unfolded.
    fit() {
      const width = Math.floor(this.place.clientWidth);
      if (!width) return;
      const height = this.figure.classList.contains("tall") ? Math.min(width, 380) : width < 480 ? 200 : 250;
      if (!this.plot) {
        this.plot = new uPlot(this.options(width, height), columns(this.chart), this.holder);
        this.plot.over.append(this.tip);
      } else if (this.plot.width !== width) {
        this.plot.setSize({ width, height });
      }
    }

    options(width, height) {
      const { chart } = this;
      const bands = [];
      const series = [{}];
      let stackedBefore = 0;
      for (const one of chart.series) {
        series.push(this.seriesOptions(one));
        const at = series.length - 1;
        if (one.kind === "band") {
          series.push({ scale: "y", paths: uPlot.paths.linear(), points: { show: false }, width: 0 });
          bands.push({ series: [at, at + 1], fill: () => colour(one.colour) + "33" });
        }
        if (one.kind === "stacked") {
          if (stackedBefore) bands.push({ series: [at, stackedBefore], fill: () => colour(one.colour) + "bb" });
          stackedBefore = at;
        }
      }
      return {
        width,
        height,
        series,
        bands,
        legend: { show: false },
        padding: [14, 14, 0, 0],
        scales: {
          x: { time: false, distr: chart.x.scale === "log" ? 3 : 1, range: (_, min, max) => this.xRange(min, max) },
          y: { range: (_, min, max) => this.yRange(min, max) },
        },
        axes: [this.axis(chart.x, true), this.axis(chart.y, false)],
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 4 } },
        hooks: {
          drawClear: [() => this.clipped(() => this.drawSpans())],
          draw: [() => this.clipped(() => this.drawMarks()), () => this.drawLabels(), () => this.drawPoints()],
          setCursor: [() => this.showValues()],
          setScale: [(_, key) => key === "x" && (this.reset.hidden = !this.isZoomed)],
        },
      };
    }

    seriesOptions(one) {
      const few = one.x.length <= FEW && one.kind === "line" && !one.is_dashed && !one.is_faint;
      return {
        label: one.name,
        scale: "y",
        stroke: () => colour(one.colour) + (one.is_faint ? "70" : ""),
        fill: one.kind === "stacked" ? () => colour(one.colour) + "bb" : undefined,
        width: { stacked: 1, band: 0, points: 0 }[one.kind] ?? one.width,
        dash: one.is_dashed ? [6, 5] : undefined,
        paths: this.paths(one.kind),
        points: { show: one.kind === "points" || few, size: 6, fill: () => colour(one.colour) },
      };
    }

    paths(kind) {
      if (kind === "points") return () => null;
      const align = { step: 1, step_before: -1, stacked: -1 }[kind];
      return align ? uPlot.paths.stepped({ align }) : uPlot.paths.linear();
    }

    axis(one, isX) {
      const font = "12px " + getComputedStyle(this.place).fontFamily;
      return {
        stroke: () => colour("muted"),
        font,
        labelFont: font,
        label: isX ? one.label : undefined,
        labelSize: 18,
        labelGap: 0,
        size: isX ? 30 : 62,
        space: isX ? 64 : 34,
        gap: 6,
        incrs: { bytes: BYTES, moment: SECONDS }[one.unit],
        values: (_, ticks) => ticks.map((tick) => tickWords(tick, one.unit)),
        grid: { show: !isX, stroke: () => colour("rule"), width: 1 },
        ticks: { show: isX, stroke: () => colour("muted"), width: 1, size: 4 },
      };
    }

    xRange(min, max) {
      if (min === null) return [0, 1];
      if (min !== max) return [min, max];
      return this.chart.x.scale === "log" ? [min / 2, max * 2] : [min - 1, max + 1];
    }

    yRange(min, max) {
      const { least, most } = this.chart.y;
      for (const { y } of this.chart.points) {
        if (y !== null) [min, max] = [Math.min(min ?? y, y), Math.max(max ?? y, y)];
      }
      if (min === null) return [least ?? 0, most ?? 1];
      const room = 0.06 * (max - min || Math.abs(max) || 1);
      return [least ?? min - room, Math.min(max + room, most ?? Infinity)];
    }

    // --- zoom and cursor ---

    get extent() {
      const grid = this.plot.data[0];
      return this.xRange(grid[0] ?? null, grid.at(-1) ?? null);
    }

    get isZoomed() {
      const [least, most] = this.extent;
      const { min, max } = this.plot.scales.x;
      return min > least || max < most;
    }

    showAll() {
      const [min, max] = this.extent;
      this.plot.setScale("x", { min, max });
      if (document.activeElement === this.reset || document.activeElement === document.body) this.holder.focus();
    }

    // Zooms by a factor about the cursor, else about the middle; in pixels, so that it suits a logarithmic axis too.
    zoom(factor) {
      const width = this.plot.bbox.width / devicePixelRatio;
      const centre = this.plot.cursor.left >= 0 ? this.plot.cursor.left : width / 2;
      const [least, most] = this.extent;
      const min = Math.max(least, this.plot.posToVal(centre - centre * factor, "x"));
      const max = Math.min(most, this.plot.posToVal(centre + (width - centre) * factor, "x"));
      if (min < max) this.plot.setScale("x", { min, max });
    }

    onKey(event) {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.plot) return;
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      if (event.key in steps) this.move(steps[event.key] * (event.shiftKey ? 10 : 1));
      else if (event.key === "+" || event.key === "=") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0") this.showAll();
      else if (event.key === "Escape") this.leave();
      else return;
      event.preventDefault();
      queueMicrotask(() => { // after uPlot has taken over the new scale
        if (this.cursorAt !== null) this.showCursor(this.cursorAt);
        this.say();
      });
    }

    showCursor(x) {
      this.plot.setCursor({ left: this.plot.valToPos(x, "x"), top: 10 });
    }

    move(steps) {
      const grid = this.plot.data[0];
      const { min, max } = this.plot.scales.x;
      const first = grid.findIndex((x) => x >= min);
      const last = grid.findLastIndex((x) => x <= max);
      const present = this.plot.cursor.left >= 0 ? this.plot.cursor.idx : steps > 0 ? first - 1 : last + 1;
      this.cursorAt = grid[Math.max(first, Math.min(last, present + steps))];
      this.showCursor(this.cursorAt);
    }

    leave() {
      this.cursorAt = null;
      if (this.plot) this.plot.setCursor({ left: -10, top: -10 });
    }

    say() {
      const x = this.cursorX();
      this.said.textContent = x === null ? "all of the chart" : [
        words(x, this.chart.x.unit),
        ...this.entries.filter((one) => one.value).map((one) => `${one.name} ${one.value.textContent}`),
        ...this.tipsAt(x, false),
      ].join(", ");
    }

    // The place under the cursor; null: it is not on the chart. A place that the keyboard has reached is exact.
    cursorX() {
      const { left } = this.plot.cursor;
      if (left === undefined || left < 0) return null;
      const x = this.plot.posToVal(left, "x");
      const isExact = this.cursorAt !== null && Math.abs(this.plot.valToPos(this.cursorAt, "x") - left) < 1;
      return isExact ? this.cursorAt : x;
    }

    // --- legend and tips ---

    fillLegend() {
      const { chart } = this;
      this.entries = [];
      const swatchOf = (one) => (one.is_dashed ? "dashed" : one.kind) + (one.is_faint ? " faint" : "");
      const add = (name, of, kind, members = []) => {
        const found = this.entries.find((one) => one.name === name);
        if (found) return found.members.push(...members);
        const item = element("li", "");
        const swatch = element("span", "swatch " + kind);
        swatch.style.color = `var(--${of})`;
        const value = members.length ? element("span", "value") : null;
        item.append(swatch, name, ...(value ? [value] : []));
        this.entries.push({ name, item, value, members });
      };
      for (const one of chart.series)
        add(one.group || one.name, one.colour, swatchOf(one), [one]);
      for (const one of chart.spans) add(one.name, one.colour, "span");
      for (const one of chart.marks) if (one.name) add(one.name, "muted", one.is_solid ? "solid-mark" : "mark");
      for (const one of chart.points) add(one.name, one.colour, one.shape);
      this.placeItem = element("li", "at");
      this.legend.replaceChildren(...this.entries.map((one) => one.item), this.placeItem);
      this.showEntries(null);
    }

    showValues() {
      if (!this.plot) return;
      const x = this.cursorX();
      this.showEntries(x);
      const tips = x === null ? [] : this.tipsAt(x, x !== this.cursorAt);
      this.tip.hidden = !tips.length;
      if (!tips.length) return;
      this.tip.textContent = tips.join("\n");
      const room = this.plot.over.clientWidth;
      const { left } = this.plot.cursor;
      this.tip.style.left = Math.max(0, Math.min(left + 12, room - this.tip.offsetWidth)) + "px";
    }

    // The values at a place in the legend; null: the last ones, so that the legend keeps its size.
    showEntries(x) {
      this.placeItem.textContent = x === null ? "last values" : "at " + words(x, this.chart.x.unit);
      for (const { value, members } of this.entries.filter((one) => one.value))
        value.textContent = x === null ? this.lastValue(members) : this.valueAt(members, x);
    }

    lastValue(members) {
      const last = members.map((series) => series.y.findLast((y) => y !== null) ?? null).filter((y) => y !== null);
      return this.range(last);
    }

    valueAt(members, x) {
      const reach = (this.plot.scales.x.max - this.plot.scales.x.min) / 100;
      const rows = members.map((series) => [series, rowAt(series, x, reach)]).filter(([, row]) => row >= 0);
      const all = rows.flatMap(([series, row]) => [series.y[row], series.low[row]]);
      const values = all.filter((y) => y !== null && y !== undefined);
      return this.range(values);
    }

    range(values) {
      const { unit } = this.chart.y;
      if (!values.length) return "\u2013";
      if (values.length === 1) return words(values[0], unit);
      return `${words(Math.min(...values), unit)} to ${words(Math.max(...values), unit)}`;
    }

    // The tips near a place; of a place that the keyboard has reached: those at it. byMouse: the height of the cursor
    // decides too, since points may lie above one another.
    tipsAt(x, byMouse) {
      const { marks, points, spans } = this.chart;
      const px = (value) => this.plot.valToPos(value, "x");
      const isNear = (value) => Math.abs(px(value) - px(x)) <= (byMouse ? NEAR_PX : 0.5);
      const height = (y) => Math.abs(this.plot.valToPos(y, "y") - this.plot.cursor.top);
      const isHigh = (y) => !byMouse || y === null || height(y) <= 2 * NEAR_PX;
      return [
        ...spans.filter((one) => px(x) >= px(one.begin) - 1 && px(x) <= px(one.end) + 1),
        ...marks.filter((one) => isNear(one.x)),
        ...points.filter((one) => isNear(one.x) && isHigh(one.y)),
      ].map((one) => (one.label ? one.label + ": " : "") + one.tip).slice(0, 6);
    }

    // --- drawing on the canvas ---

    clipped(draw) {
      const { ctx, bbox } = this.plot ?? {};
      if (!ctx) return;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
      ctx.clip();
      draw();
      ctx.restore();
    }

    drawSpans() {
      const { ctx, bbox } = this.plot;
      for (const one of this.chart.spans) {
        const [begin, end] = [one.begin, one.end].map((x) => this.plot.valToPos(x, "x", true));
        ctx.fillStyle = colour(one.colour) + "40";
        ctx.fillRect(begin, bbox.top, Math.max(end - begin, 1.5 * devicePixelRatio), bbox.height);
      }
    }

    drawMarks() {
      const { ctx, bbox } = this.plot;
      ctx.lineWidth = devicePixelRatio;
      for (const one of this.chart.marks) {
        const at = Math.round(this.plot.valToPos(one.x, "x", true)) + 0.5;
        ctx.strokeStyle = colour("muted");
        ctx.setLineDash(one.is_solid ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bbox.top + bbox.height);
        ctx.stroke();
      }
    }

    // The numbers of marks, in circles above the chart. A number that would cover another is left out.
    drawLabels() {
      if (!this.plot) return;
      const { ctx } = this.plot;
      const { min, max } = this.plot.scales.x;
      const size = 8 * devicePixelRatio;
      let free = -Infinity;
      ctx.save();
      ctx.lineWidth = devicePixelRatio;
      for (const one of this.chart.marks.filter(({ x, label }) => label && x >= min && x <= max)) {
        const at = this.plot.valToPos(one.x, "x", true);
        if (at < free) continue;
        free = at + 2.4 * size;
        ctx.fillStyle = colour("paper");
        ctx.strokeStyle = colour("muted");
        ctx.beginPath();
        ctx.arc(at, size + 1, size, 0, 2 * Math.PI);
        ctx.fill();
        ctx.stroke();
        ctx.fillStyle = colour("ink");
        ctx.font = `${10 * devicePixelRatio}px sans-serif`;
        [ctx.textAlign, ctx.textBaseline] = ["center", "middle"];
        ctx.fillText(one.label, at, size + 1.5);
      }
      ctx.restore();
    }

    drawPoints() {
      if (!this.plot) return;
      const { ctx, bbox } = this.plot;
      const size = 4 * devicePixelRatio;
      const { min, max } = this.plot.scales.x;
      ctx.save();
      ctx.lineWidth = devicePixelRatio;
      for (const one of this.chart.points.filter(({ x }) => x >= min && x <= max)) {
        const x = this.plot.valToPos(one.x, "x", true);
        const y = one.y === null ? bbox.top + bbox.height : this.plot.valToPos(one.y, "y", true);
        ctx.fillStyle = colour(one.colour);
        ctx.strokeStyle = colour("paper");
        ctx.beginPath();
        if (one.shape === "circle") ctx.arc(x, y, size, 0, 2 * Math.PI);
        else TRIANGLE.forEach(([right, down]) => ctx.lineTo(x + right * size, y + down * size));
        ctx.closePath();
        ctx.fill();
        ctx.stroke();
      }
      ctx.restore();
    }
  }

  // Draws charts that are new, brings the others up to date, and forgets those that are gone.
  function refresh() {
    for (const figure of drawn.keys()) if (!figure.isConnected) drawn.delete(figure);
    for (const figure of document.querySelectorAll("figure.chart")) {
      if (drawn.has(figure)) drawn.get(figure).update();
      else drawn.set(figure, new Drawing(figure));
    }
  }

  for (const one of document.querySelectorAll(".scripted")) one.hidden = false;
  refresh();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((one) => one.rebuild()));
  return { refresh };
})();
