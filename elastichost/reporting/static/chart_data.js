// What the charts of a page need besides drawing: numbers in words, and the columns of their data.
"use strict";

const chartData = (() => {
  // --- numbers in words ---------------------------------------------------------------------------------------------

  function scaled(value, units, base) {
    let at = 0;
    while (Math.abs(value) >= base - 0.05 && at < units.length - 1) {
      value /= base;
      at += 1;
    }
    return [value, units[at]];
  }

  function moment(seconds) {
    const whole = Math.floor(seconds);
    const two = (number) => String(number).padStart(2, "0");
    if (seconds < 60) {
      const tenths = Math.floor(seconds * 10) / 10;
      return "0:" + (seconds % 1 ? tenths.toFixed(1).padStart(4, "0") : two(whole));
    }
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  }

  function count(value) {
    if (Math.abs(value) < 10000) return String(Number(value.toFixed(Math.abs(value) < 100 ? 2 : 0)));
    const [short, unit] = scaled(value, ["", "k", "M", "G", "T"], 1000);
    return short.toFixed(1) + unit;
  }

  // The value as in the tables of the page.
  function words(value, unit) {
    if (value === null || value === undefined) return "\u2013";
    if (unit === "moment") return moment(value);
    if (unit === "rate") return count(value) + " samples/s";
    if (unit === "percent") return value.toFixed(0) + "%";
    if (unit === "share") return (100 * value).toFixed(1) + "%";
    if (unit === "figure") return value.toFixed(4);
    if (unit !== "bytes") return count(value);
    const [short, name] = scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
    return short.toFixed(name === "B" ? 0 : 1) + " " + name;
  }

  // The value at a tick of an axis: without a unit that the title has, and without ".0".
  function tickWords(value, unit) {
    if (value === null) return "";
    if (unit === "figure") return String(Number(value.toFixed(6)));
    return words(value, unit === "rate" ? "count" : unit).replace(/\.0(?=\D|$)/, "");
  }

  // --- data ---------------------------------------------------------------------------------------------------------

  // The columns of uPlot: all places in ascending order, then the values of each series; undefined: it has none there.
  function columns(chart) {
    const places = new Set([chart.x.least, chart.x.most].filter((x) => x !== null));
    for (const series of chart.series) series.x.forEach((x) => places.add(x));
    for (const one of [...chart.points, ...chart.marks]) places.add(one.x);
    const grid = [...places].sort((one, other) => one - other);
    const rowOf = new Map(grid.map((x, row) => [x, row]));
    const made = [grid];
    let below = new Array(grid.length).fill(0);
    for (const series of chart.series) {
      for (const values of series.kind === "band" ? [series.y, series.low] : [series.y]) {
        const column = new Array(grid.length).fill(undefined);
        series.x.forEach((x, at) => (column[rowOf.get(x)] = values[at]));
        made.push(column);
      }
      if (series.kind !== "stacked") continue;
      const top = made.pop().map((y, row) => (y === undefined ? y : below[row] + (y ?? 0)));
      made.push(top);
      below = top.map((y, row) => y ?? below[row]);
    }
    return made;
  }

  // The row of a series that holds at a place; -1: the series has not begun or is over.
  function rowAt(series, x, reach) {
    const xs = series.x;
    if (!xs.length || x < xs[0] - reach || x > xs.at(-1) + reach) return -1;
    let after = xs.findIndex((one) => one >= x);
    if (after < 0) after = xs.length - 1;
    if (series.kind === "stacked" || series.kind === "step_before" || after === 0) return after;
    if (series.kind === "step") return xs[after] === x ? after : after - 1;
    return x - xs[after - 1] < xs[after] - x ? after - 1 : after;
  }

  return { columns, rowAt, tickWords, words };
})();
