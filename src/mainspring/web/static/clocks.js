// Exact times: in UTC, as the server writes them, or as the clocks of this machine show them. Which of the two is kept by
// the browser; theme.js says it before anything is drawn. Whoever writes a time of their own hears of a change by the event
// `reclocked`.
(() => {
  "use strict";
  const { $, $$, say, kept } = window.mainspring;
  const root = document.documentElement;
  const isLocal = () => root.dataset.clock === "local";
  const IN_UTC = /(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d(?:\.\d+)?)?) UTC/g;
  const two = (number) => String(number).padStart(2, "0");
  const zone = (then) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(then).find((one) => one.type === "timeZoneName").value;

  // Times in a text, to the same digit.
  function local(text) {
    return text.replace(IN_UTC, (said, day, time) => {
      const then = new Date(`${day}T${time}Z`);
      if (Number.isNaN(then.getTime())) return said; // an error may say anything
      const date = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
      return `${date} ${two(then.getHours())}:${two(then.getMinutes())}${time.slice(5)} ${zone(then)}`;
    });
  }

  const onClock = (text) => (isLocal() ? local(text) : text);
  const clock = (then) => (isLocal() ? `${two(then.getHours())}:${two(then.getMinutes())}` : then.toISOString().slice(11, 16));
  const zoneOf = (then) => (isLocal() ? zone(then) : "UTC");

  function tellClocks() {
    for (const one of $$("time[title]")) {
      one.dataset.utc ??= one.title;
      one.title = onClock(one.dataset.utc);
      if (one.dataset.daytime !== undefined) say(one, one.title.slice(11, 23));
    }
    for (const one of $$("[data-exact]")) {
      one.dataset.utc ??= one.textContent;
      say(one, onClock(one.dataset.utc));
    }
  }

  function show() {
    const button = $("#clock");
    if (button) button.title = isLocal() ? "Exact times are local. Press for UTC." : "Exact times are in UTC. Press for local time.";
  }

  function switchClock() {
    if (isLocal()) delete root.dataset.clock;
    else root.dataset.clock = "local";
    kept.set("mainspring-clock", isLocal() ? "local" : "utc");
    show();
    tellClocks();
    document.dispatchEvent(new Event("reclocked"));
  }

  document.addEventListener("click", (event) => { if (event.target.closest("#clock")) switchClock(); });
  document.addEventListener("renewed", () => { if (isLocal()) tellClocks(); });
  show();
  if (isLocal()) tellClocks();
  Object.assign(window.mainspring, { isLocal, onClock, clock, zoneOf, switchClock });
})();
