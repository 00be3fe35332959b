// Loaded before anything is drawn, so that a page never shows in the wrong colours, or by another clock, first.
(() => {
  try {
    const theme = localStorage.getItem("mainspring-theme");
    if (theme) document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("mainspring-clock") === "local") document.documentElement.dataset.clock = "local";
  } catch { /* a browser that keeps nothing follows the system */ }
})();
