// What all pages share: a few words for the other scripts, times that go on counting, colours, copying, dialogs.
// Nothing in any script decides what is allowed: every change is a request that the server checks.
(() => {
  "use strict";
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const kept = {
    get(name) { try { return localStorage.getItem(name); } catch { return null; } },
    set(name, value) { try { localStorage.setItem(name, value); } catch { /* then it holds for this page only */ } },
  };

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // Times. The server's clock counts; ours only says how long ago the page was made.
  const ahead = Date.parse($("meta[name=now]").content) - Date.now();
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

  function whole(seconds, shortly) {
    const rest = Math.max(Math.floor(seconds), 0);
    if (rest < 60) return `${rest} s`;
    const place = UNITS.findIndex(([size]) => rest >= size);
    const [size, unit] = UNITS[place];
    const [smaller, name] = UNITS[place + 1] || [1, "s"];
    const part = Math.floor((rest % size) / smaller);
    return `${Math.floor(rest / size)} ${unit}${part && !shortly ? ` ${part} ${name}` : ""}`;
  }

  function tellTimes() {
    const now = Date.now() + ahead;
    for (const one of $$("time[data-relative]")) {
      const seconds = (now - Date.parse(one.dateTime)) / 1000;
      const ago = seconds < 0 ? `in ${whole(-seconds, true)}` : `${whole(seconds, true)} ago`;
      say(one, Math.abs(seconds) < 1 ? "now" : ago);
    }
    for (const one of $$("time[data-since]")) say(one, whole((now - Date.parse(one.dateTime)) / 1000));
  }

  // Light and dark. Who draws in colours hears of a change by the event `recoloured`.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const recolour = () => document.dispatchEvent(new Event("recoloured"));

  function switchTheme() {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    kept.set("mainspring-theme", document.documentElement.dataset.theme);
    recolour();
  }

  async function copy(button) {
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { // there is none over plain HTTP
      const area = Object.assign(document.createElement("textarea"), { value: button.dataset.copy });
      button.after(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.classList.add("is-done");
    setTimeout(() => button.classList.remove("is-done"), 1500);
  }

  // Asking before something is done that cannot be undone, or that others may wonder about: then for a reason, too.
  document.addEventListener("htmx:confirm", (event) => {
    const form = event.detail.elt, dialog = $("#ask"), reason = $("#ask-reason");
    if (!form.dataset.confirm) return;
    const asks = Boolean($("[name=reason]", form));
    event.preventDefault();
    say($("#ask-text"), form.dataset.confirm);
    say($("#ask-yes"), asks ? $("button", form).textContent : "Yes");
    $("#ask-yes").className = `button ${asks ? "primary" : "danger"}`;
    $("#ask-why").hidden = !asks;
    reason.value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      if (asks) $("[name=reason]", form).value = reason.value;
      event.detail.issueRequest(true);
    }, { once: true });
    dialog.showModal();
    if (asks) reason.focus();
  });

  // Dialogs that ask for what an action needs to be told.
  function open(button) {
    const dialog = document.getElementById(button.dataset.opens);
    const form = $("form", dialog);
    form.reset();
    for (const [name, value] of Object.entries(JSON.parse(button.dataset.fields))) {
      if (form.elements[name]) form.elements[name].value = value;
      for (const place of $$("[data-says]", dialog)) if (place.dataset.says === name) say(place, String(value));
    }
    dialog.showModal();
  }
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && event.detail.elt.matches("form[data-closes]")) event.detail.elt.closest("dialog").close();
  });

  document.addEventListener("click", (event) => { // who clicks twice means it once
    if (event.detail > 1 && event.target.closest("form.act")) event.preventDefault();
  }, true);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy !== undefined) copy(button);
    else if (button.dataset.opens) open(button);
    else if (button.dataset.closes !== undefined) button.closest("dialog").close();
    else if (button.id === "theme") switchTheme();
    else if (button.id === "keys") $("#help").showModal();
  });

  // Searching. What was left empty need not stand in the address; a box that searches has the focus again afterwards.
  const AT = "mainspring-at";
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form.search")) for (const one of $$("input", event.target)) one.disabled = !one.value;
  });
  document.addEventListener("change", ({ target }) => {
    if (!target.matches?.("[data-submits]")) return;
    try { sessionStorage.setItem(AT, target.id); } catch { /* then it is at the top */ }
    target.form.requestSubmit();
  });
  addEventListener("pageshow", () => { for (const one of $$("form.search input")) one.disabled = false; });
  try {
    document.getElementById(sessionStorage.getItem(AT))?.focus();
    sessionStorage.removeItem(AT);
  } catch { /* nothing is kept */ }

  const again = $("[data-again]");
  if (again) setTimeout(() => location.reload(), Number(again.dataset.again) * 1000);
  system.addEventListener("change", recolour);
  setInterval(tellTimes, 1000);
  tellTimes();
  window.mainspring = { $, $$, say, kept, tellTimes, isDark, switchTheme };
})();
