// Charts: drawn where something has `data-feeds`, and drawn on when that is renewed.
(() => {
  "use strict";
  const { $, $$, isDark, isLocal, clock, zoneOf } = window.mainspring;
  const charts = new Map();
  const then = (at) => new Date(at * 1000);

  function drawAll() {
    for (const feed of $$("[data-feeds]")) draw($(`#${feed.dataset.feeds}`), JSON.parse(feed.dataset.points));
  }

  function draw(place, points) {
    if (!place || !window.uPlot) return;
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const data = [points.at.map((at) => Date.parse(at) / 1000), points.enqueued, points.succeeded, points.failed];
    const theme = isDark() ? "dark" : "light";
    const known = charts.get(place);
    if (known && known.theme === theme) { known.chart.setData(data); return; }
    known?.chart.destroy();
    const line = (label, name, dash, fill) => ({ label, stroke: colour(name), width: 2, dash, fill, points: { show: false } });
    const axis = { stroke: colour("faint"), font: "11.5px system-ui", ticks: { show: false }, gap: 6 };
    const chart = new uPlot({
      width: place.clientWidth, height: place.clientHeight, padding: [10, 20, 0, 0],
      tzDate: (at) => (isLocal() ? then(at) : uPlot.tzDate(then(at), "Etc/UTC")),
      series: [{}, line("enqueued", "calm", [2, 4]), line("succeeded", "good", undefined, `${colour("good")}14`), line("failed", "bad", [7, 4])],
      axes: [
        { ...axis, grid: { show: false }, space: 80, size: 30, values: (_, all) => all.map((at) => clock(then(at))) },
        { ...axis, grid: { stroke: colour("line"), width: 1 }, size: 44, space: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] },
      ],
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.08, 4)] } },
      cursor: { y: false, drag: { setScale: false } },
      hooks: { init: [addTip], setCursor: [moveTip] },
    }, data, place);
    charts.set(place, { chart, theme });
  }

  function addTip(chart) {
    chart.tip = document.createElement("div");
    chart.tip.className = "chart-tip";
    chart.tip.hidden = true;
    chart.over.append(chart.tip);
  }

  function moveTip(chart) {
    const { idx, left } = chart.cursor;
    chart.tip.hidden = idx == null || left < 0;
    if (chart.tip.hidden) return;
    const at = then(chart.data[0][idx]);
    chart.tip.textContent = [`${clock(at)} ${zoneOf(at)}`, ...chart.series.slice(1).map((one, place) => `${one.label} ${chart.data[place + 1][idx]}`)].join("\n");
    chart.tip.style.left = `${left > chart.over.clientWidth / 2 ? left - chart.tip.offsetWidth - 12 : left + 12}px`;
  }

  addEventListener("resize", () => {
    for (const [place, { chart }] of charts) chart.setSize({ width: place.clientWidth, height: place.clientHeight });
  });
  document.addEventListener("renewed", drawAll);
  document.addEventListener("recoloured", drawAll);
  document.addEventListener("reclocked", drawAll);
  drawAll();
})();
