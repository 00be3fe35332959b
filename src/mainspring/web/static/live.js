// Live updates. A tick says that something may have changed, and a part of the page is fetched anew. They can be switched
// off, and are held while something is selected or open, so that nothing moves under the hand.
(() => {
  "use strict";
  const { $, $$, say, kept, tellTimes } = window.mainspring;
  let live = kept.get("mainspring-live") !== "off";
  let reached = true;

  function isHeld() {
    return Boolean($("[data-rows] tbody input:checked, dialog[open]")) || String(getSelection()).length > 0;
  }

  // Something was done here, and what became of it is to be seen at once.
  const isAskedFor = (request) => request.triggeringEvent?.type === "changed";
  // A form that is not there any more when it is answered, or agreed to, could neither be sent nor say what became of it.
  const isAsking = (part) => Boolean($("form.htmx-request", part) || $("#ask[open]"));

  function showLive() {
    const button = $("#live");
    if (!button) return;
    const held = live && isHeld();
    button.setAttribute("aria-pressed", String(live));
    button.classList.toggle("is-waiting", live && (held || !reached));
    say($("#live-word"), !live ? "off" : !reached ? "no answer" : held ? "on hold" : "live");
    button.title = live ? "Live updates: on. Press to switch them off." : "Live updates: off. Press to switch them on.";
  }

  function switchLive() {
    live = !live;
    kept.set("mainspring-live", live ? "on" : "off");
    showLive();
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!event.detail.elt.hasAttribute("data-live")) return;
    const asked = isAskedFor(event.detail.requestConfig);
    const ended = $("[data-ended]", event.detail.elt); // it changes no more, unless something is done to it here
    if (!asked && (!live || ended || document.hidden || isHeld() || isAsking(event.detail.elt))) event.preventDefault();
    showLive();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.elt.hasAttribute("data-live")) return;
    reached = event.detail.successful || (event.detail.xhr.status === 404 && Boolean($("#gone")));
    showLive();
  });
  // Ticks. A browser holds few connections to one server, for all of its tabs together: a page that nobody looks at lets go
  // of its own. A stream that ends is begun anew by the browser, which is no error to be told of, unless it gives up.
  function stream(url) {
    const ticks = new EventTarget();
    let source = null;
    function begin() {
      source = new EventSource(url);
      source.onopen = (event) => ticks.onopen?.(event);
      source.onerror = (event) => {
        if (source?.readyState !== EventSource.CLOSED) return;
        document.removeEventListener("visibilitychange", turn);
        ticks.onerror?.(event);
      };
      source.addEventListener("tick", tick);
    }
    const tick = () => ticks.dispatchEvent(new MessageEvent("tick"));
    function turn() {
      if (document.hidden) {
        source?.close();
        source = null;
      } else if (!source) {
        begin();
        tick();
      }
    }
    ticks.close = () => { document.removeEventListener("visibilitychange", turn); source?.close(); };
    Object.defineProperty(ticks, "readyState", { get: () => source?.readyState ?? EventSource.CONNECTING });
    document.addEventListener("visibilitychange", turn);
    if (!document.hidden) begin();
    return ticks;
  }
  if (window.htmx) htmx.createEventSource = stream;
  document.addEventListener("htmx:sseOpen", () => { reached = true; showLive(); });
  document.addEventListener("htmx:sseError", () => { reached = false; showLive(); });
  document.addEventListener("htmx:sendError", () => { reached = false; showLive(); });
  document.addEventListener("htmx:responseError", ({ detail }) => { // what a page is about was deleted meanwhile
    const gone = $("#gone");
    if (gone && detail.xhr.status === 404 && detail.elt.hasAttribute("data-live")) $("#main").replaceChildren(gone.content.cloneNode(true));
  });

  // What a part has is kept when it is replaced: what is open, ticked and scrolled, and where the focus is. What has an id
  // keeps the focus by itself; anything else is known by its row and its words. Is it gone, its row has the focus: never
  // another button, which would do something else.
  const REACHED = "a[href], button, input:not([type=hidden]), summary, [tabindex]";
  const ROW = "tr, li, .card, .head";
  const SCROLLED = ".scroll, .log, pre";
  const named = (row) => (row ? $("[id]", row)?.id : undefined);
  const words = (one) => one.getAttribute("aria-label") || one.textContent.trim();

  function focused(part) {
    const one = document.activeElement;
    if (one === part || !part.contains(one) || one.id) return null;
    return { row: named(one.closest(ROW)), words: words(one), tag: one.tagName };
  }

  function noted(part) {
    return {
      open: new Map($$("details[id]", part).map((one) => [one.id, one.open])),
      ticked: new Set($$("input[name=ids]:checked", part).map((one) => one.value)),
      scrolled: $$(SCROLLED, part).map(({ scrollLeft, scrollTop, clientHeight, scrollHeight }) => ({ scrollLeft, scrollTop, isAtEnd: scrollTop > 0 && scrollTop + clientHeight > scrollHeight - 2 })),
      focus: focused(part),
    };
  }

  function restore(part, { open, ticked, scrolled, focus }) {
    for (const one of $$("details[id]", part)) if (open.has(one.id)) one.open = open.get(one.id);
    for (const one of $$("input[name=ids]", part)) if (ticked.has(one.value)) one.checked = true;
    $$(SCROLLED, part).forEach((one, place) => {
      const was = scrolled[place];
      if (!was) return;
      one.scrollLeft = was.scrollLeft;
      one.scrollTop = was.isAtEnd && one.matches(".log") ? one.scrollHeight : was.scrollTop;
    });
    if (!focus || document.activeElement !== document.body) return;
    const row = focus.row && document.getElementById(focus.row)?.closest(ROW);
    const same = $$(REACHED, row || part).filter((one) => one.tagName === focus.tag && words(one) === focus.words);
    const found = row || same.length === 1 ? same[0] : null;
    (found || (row && $("[data-row]", row)) || $("#main")).focus({ preventScroll: true });
  }

  let before = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr, requestConfig } = event.detail;
    if (xhr.getResponseHeader("HX-Retarget")) { // what was refused is told, too
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
    const isLate = isAsking(target) || (isHeld() && !isAskedFor(requestConfig));
    if (target.hasAttribute("data-live") && isLate) event.detail.shouldSwap = false; // it is renewed thereafter
    before = noted(target);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const { target } = event.detail;
    if (target.hasAttribute("data-live") && before) restore(target, before);
    if (target.id === "stack") target.focus(); // it was asked for, and may be far from its button
    tellTimes();
    document.dispatchEvent(new Event("renewed"));
    showLive();
    for (const toast of $$("#toasts .toast:not([data-seen])")) {
      toast.dataset.seen = "";
      leave(toast, toast.classList.contains("is-refused") ? 9000 : 4500);
    }
  });

  function leave(toast, after) {
    setTimeout(() => (toast.matches(":hover") ? leave(toast, 2000) : toast.remove()), after);
  }

  document.addEventListener("click", (event) => { if (event.target.closest("#live")) switchLive(); });
  document.addEventListener("selectionchange", showLive);
  showLive();
  Object.assign(window.mainspring, { showLive, switchLive });
})();
