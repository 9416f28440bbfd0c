"use strict";
// Draws the figures that stand as JSON in the page, in the colours of the reader's theme; redraws when it changes.
(function () {
  let figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = new WeakMap();
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displayModeBar: false };
  // Okabe and Ito's colours in pairs: the deep one reads on white, its pale kin on black.
  const kin = [["#0072B2", "#56B4E9"], ["#D55E00", "#E69F00"], ["rgba(0,114,178,", "rgba(86,180,233,"],
    ["rgba(213,94,0,", "rgba(230,159,0,"], ["#5E4FA2", "#B3A8E0"], ["rgba(94,79,162,", "rgba(179,168,224,"],
    ["#767676", "#A8A8A8"]];

  function recoloured(value) {
    if (typeof value === "string") {
      for (const [deep, pale] of kin) {
        if (value.startsWith(deep)) return pale + value.slice(deep.length);
        if (value.startsWith(pale)) return deep + value.slice(pale.length);
      }
      return value;
    }
    if (Array.isArray(value)) return value.map(recoloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, recoloured(child)]));
    }
    return value;
  }

  function themed(figure, isDark) {
    const copy = isDark ? recoloured(figure) : JSON.parse(JSON.stringify(figure));
    const ink = isDark ? "#e4e6ea" : "#22262b", faint = isDark ? "#363c45" : "#dfe3e8", paper = isDark ? "#1b1f25" : "#ffffff";
    // What the reader has zoomed into stays so when a chart is drawn anew.
    copy.layout.uirevision = "same";
    copy.layout.font = { family: "system-ui, sans-serif", size: 13, color: ink };
    copy.layout.hoverlabel = Object.assign({}, copy.layout.hoverlabel, { bgcolor: paper, bordercolor: faint, font: { color: ink } });
    for (const name of Object.keys(copy.layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      Object.assign(copy.layout[name], { gridcolor: faint, zerolinecolor: faint, linecolor: faint });
    }
    return copy;
  }

  function draw(isDark) {
    return Promise.all(Array.from(document.querySelectorAll("[data-figure]"), (box) => {
      const figure = themed(figures[Number(box.dataset.figure)], isDark), text = JSON.stringify(figure);
      if (drawn.get(box) === text) return null;
      drawn.set(box, text);
      return Plotly.react(box, figure.data, figure.layout, config);
    })).then(() => { document.documentElement.dataset.charts = isDark ? "dark" : "light"; });
  }

  // For a page that keeps itself up to date: other figures for the boxes that are there now.
  window.drawFigures = (others) => { figures = others; return draw(dark.matches); };

  draw(dark.matches);
  dark.addEventListener("change", (event) => draw(event.matches));
  window.addEventListener("beforeprint", () => draw(false));
  window.addEventListener("afterprint", () => draw(dark.matches));
})();
