// Keys, and tips for the pointer and for the focus.
(() => {
  "use strict";
  const { $, $$, say, switchTheme, switchLive, switchClock, onClock, count, clear } = window.mainspring;

  function move(by) {
    const rows = $$("[data-row]").filter((one) => one.checkVisibility());
    const at = rows.indexOf(document.activeElement);
    rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
  }

  const KEYS = {
    "?": () => $("#help").showModal(),
    "/": () => ($("[data-search]") ? $("[data-search]").focus() : location.assign("jobs")),
    j: () => move(1),
    k: () => move(-1),
    l: switchLive,
    t: switchTheme,
    z: switchClock,
    x: () => {
      const box = document.activeElement.closest("tr")?.querySelector("input[name=ids]");
      if (box) { box.checked = !box.checked; count(); }
    },
    b: () => $("#bulk:not([hidden]) button")?.focus(),
    Escape: () => { if ($("#bulk") && !$("#bulk").hidden) clear(); else document.activeElement.blur(); },
  };
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input:not([type=checkbox]), textarea, select");
    if (!$("#keys") || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]") || (typing && event.key !== "Escape")) return;
    if (Date.now() - going < 1200) {
      going = 0;
      const there = $$("nav a[data-key]").find((one) => one.dataset.key === event.key);
      if (there) { event.preventDefault(); there.click(); }
    } else if (event.key === "g") {
      going = Date.now();
    } else if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });

  // In a strip, arrows go from run to run.
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const strip = by && event.target.closest?.("[data-strip]");
    if (!strip) return;
    event.preventDefault();
    const all = $$("[data-tip]", strip);
    all[Math.min(Math.max(all.indexOf(event.target) + by, 0), all.length - 1)].focus();
  });

  // Tips.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;

  function point(at) {
    shown = at;
    tip.hidden = !at;
    if (!at) return;
    say(tip, onClock(at.dataset.tip));
    const place = at.getBoundingClientRect();
    const left = Math.min(Math.max(place.left + place.width / 2 - tip.offsetWidth / 2, 8), document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = place.top - tip.offsetHeight - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : place.bottom + 6}px`;
  }

  for (const name of ["mouseover", "focusin"]) document.addEventListener(name, (event) => point(event.target.closest?.("[data-tip]")));
  document.addEventListener("focusout", () => point(null));
  addEventListener("scroll", () => point(null), true);
  document.addEventListener("renewed", () => { if (shown && !shown.isConnected) point(shown.id ? document.getElementById(shown.id) : null); });
})();
