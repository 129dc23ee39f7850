// Draw the charts of the page with the colours of its style; again when the browser changes between
// light and dark, and light for a printer. Tooltips are drawn on the canvas, so text of a report is never markup.
(() => {
  "use strict";
  const options = JSON.parse(document.getElementById("charts").textContent);
  const places = options.map((_, at) => document.getElementById("chart" + at));
  const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  let drawn = [];

  function theme() {
    const ink = color("ink"), soft = color("soft"), line = color("line");
    const axis = {
      axisLine: {lineStyle: {color: soft}}, axisTick: {lineStyle: {color: soft}},
      axisLabel: {color: soft}, nameTextStyle: {color: soft},
      splitLine: {lineStyle: {color: line}}, splitArea: {show: false},
    };
    return {
      color: [color("accent"), color("warn"), color("ok"), color("bad"), soft, ink],
      backgroundColor: "transparent", textStyle: {color: ink, fontFamily: getComputedStyle(document.body).fontFamily},
      categoryAxis: axis, valueAxis: axis, logAxis: axis,
      legend: {textStyle: {color: ink}, pageTextStyle: {color: soft}},
      visualMap: {textStyle: {color: soft}},
      tooltip: {renderMode: "richText", backgroundColor: color("card"), borderColor: line, textStyle: {color: ink}},
    };
  }

  // The low end of rates and the high end of latencies has the warning colour; thresholds, too.
  function colored(option) {
    for (const mark of option.series.flatMap(series => series.markLine ? series.markLine.data : [])) {
      mark.lineStyle = {type: mark.bad ? "dotted" : "dashed", color: color(mark.bad ? "bad" : "soft"), width: 2};
      mark.label.color = mark.lineStyle.color;
    }
    if (!option.heat) {
      const valueFormatter = value => value === undefined || value === null ? "-" : value + " " + option.unit;
      return {...option, tooltip: {...option.tooltip, valueFormatter}};
    }
    const ramp = ["heat0", "heat1", "heat2"].map(color);
    const [map, lost] = option.series, names = option.xAxis.data;
    const name = ({value: [x, y, v]}) => `${names[y]} to ${names[x]}: ${v === undefined ? "no figure" : v + " " + option.unit}`;
    return {
      ...option, tooltip: {formatter: name},
      visualMap: {...option.visualMap, inRange: {color: option.heat === "late" ? ramp.reverse() : ramp}},
      series: [map, {...lost, itemStyle: {color: color("bad")}}],
    };
  }

  function make(at) {
    const chart = echarts.init(places[at], theme(), {renderer: "canvas"});
    chart.setOption({animation: false, ...colored(options[at])});
    drawn.push(chart);
    return chart;
  }

  // One chart after another, so that a page of many is soon shown; all at once for a printer.
  function draw(atOnce) {
    drawn.forEach(chart => chart.dispose());
    const own = drawn = [];
    while (atOnce && own.length < options.length) make(own.length).getZr().flush();
    (function next() {
      if (drawn !== own || own.length === options.length) return;
      make(own.length);
      requestAnimationFrame(() => setTimeout(next));
    })();
  }

  draw(false);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(false));
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, () => {
    document.documentElement.classList.toggle("print", event === "beforeprint");
    draw(event === "beforeprint");
  });
  addEventListener("resize", () => drawn.forEach(chart => chart.resize()));
})();
