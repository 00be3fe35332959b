// Loaded before anything is drawn, so that a page never shows in the wrong colours first.
(() => {
  try {
    const theme = localStorage.getItem("mainspring-theme");
    if (theme) document.documentElement.dataset.theme = theme;
  } catch { /* a browser that keeps nothing follows the system */ }
})();
