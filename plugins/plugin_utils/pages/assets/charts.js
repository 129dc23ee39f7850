// Draw the charts of the page with the colours of its style; again when the browser changes between
// light and dark. Tooltips are drawn on the canvas, so text of a report is never markup.
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
      visualMap: {textStyle: {color: soft}, inRange: {color: [color("heat0"), color("heat1"), color("heat2")]}},
      tooltip: {renderMode: "richText", backgroundColor: color("card"), borderColor: line, textStyle: {color: ink}},
    };
  }

  function draw() {
    drawn.forEach(chart => chart.dispose());
    drawn = options.map((option, at) => {
      const chart = echarts.init(places[at], theme(), {renderer: "canvas"});

      chart.setOption({animation: false, ...option});
      return chart;
    });
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", () => drawn.forEach(chart => chart.resize()));
})();
