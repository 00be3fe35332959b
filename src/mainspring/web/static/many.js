// Selecting, and what is done to many in steps, each of them one request: jobs, dead letters, slots of a schedule.
// Nothing is kept in the server between two steps: whoever closes the page has stopped it.
(() => {
  "use strict";
  const { $, $$, say, showLive } = window.mainspring;
  const many = (number, one) => `${number} ${number === 1 ? one : `${one}s`}`;

  // Selecting.
  const boxes = () => $$("[data-rows] tbody input[type=checkbox][name=ids]");
  const chosen = () => boxes().filter((one) => one.checked).map((one) => one.value);

  function count() {
    const bar = $("#bulk");
    if (!bar) return;
    const number = chosen().length;
    bar.hidden = number === 0;
    say($("#bulk-count"), $("#bulk-all").checked ? "all" : String(number));
    $("#all").checked = number > 0 && number === boxes().length;
    $("#all").indeterminate = number > 0 && number < boxes().length;
    showLive();
  }

  function clear() {
    for (const one of boxes()) one.checked = false;
    $("#bulk-all").checked = false;
    count();
  }

  function wanted() {
    const matching = $("#bulk-all").checked;
    return { matching, which: JSON.parse($("#bulk").dataset.which), ids: chosen(), what: matching ? "all that match" : "what is selected" };
  }

  // In steps.
  async function ask(path, body) {
    const sent = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(`api/v1/${path}`, body ? sent : {});
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error?.message || `status ${answer.status}`);
    return found;
  }

  // First `preview` says how much there is to do, then `change` does it. Both go on until `isOver`, and `tell` how far they are.
  async function inSteps({ title, word, danger = false, preview, change }) {
    const dialog = $("#bulk-run"), go = $("#bulk-go"), stop = $("#bulk-stop"), bar = $("#bulk-bar"), text = $("#bulk-text");
    let over = false, going = false;
    const isOver = () => over;
    async function during(work) {
      over = false;
      going = true;
      bar.hidden = false;
      bar.removeAttribute("value");
      say(stop, "Stop");
      try { return await work(); } catch (error) { say(text, error.message); return null; } finally {
        going = false;
        bar.hidden = true;
        say(stop, "Close");
      }
    }
    say($("#bulk-title"), title);
    say(text, "");
    $("#bulk-problems").replaceChildren();
    go.hidden = true;
    go.classList.toggle("danger", danger);
    go.classList.toggle("primary", !danger);
    stop.onclick = () => { over = true; if (!going) dialog.close(); };
    dialog.oncancel = (event) => { over = true; if (going) event.preventDefault(); };
    dialog.onclose = () => { over = true; if (document.activeElement === document.body) $("#main").focus({ preventScroll: true }); };
    dialog.showModal();
    const seen = await during(() => preview(isOver, (done) => say(text, done)));
    if (!seen) return;
    say(text, seen.says);
    if (!seen.many) return;
    say(go, seen.stopped ? `${word} all that match` : `${word} ${many(seen.many, seen.of)}`);
    go.hidden = false;
    go.focus();
    go.onclick = async () => {
      go.hidden = true;
      stop.focus();
      bar.max = seen.many;
      const how = (done) => { bar.value = done; say(text, seen.stopped ? `${done} so far…` : `${done} of ${seen.many}`); };
      const told = await during(() => change(seen, isOver, how));
      if (told) {
        say(text, told.says);
        $("#bulk-problems").replaceChildren(...(told.problems || []).map((one) => Object.assign(document.createElement("li"), { textContent: one })));
      }
      htmx.trigger(document.body, "changed");
    };
  }

  // Jobs.
  const JOBS = { retry: "Retry", cancel: "Cancel", run_now: "Run now", delete: "Delete" };
  const STEP = { preview: 500, change: 100 };

  async function walk(said, limit, isOver, tell) {
    const sum = { looked: 0, found: 0, changed: 0, refused: 0, problems: [], stopped: false };
    for (let after = null; ;) {
      const found = await ask("jobs/bulk", { ...said, limit, ...(after ? { after } : {}) });
      for (const name of ["looked", "found", "changed", "refused"]) sum[name] += found[name];
      sum.problems = [...sum.problems, ...found.problems].slice(0, 5);
      tell(sum);
      after = found.after;
      if (!after) return sum;
      if (isOver()) return { ...sum, stopped: true };
    }
  }

  function jobs(action) {
    const { matching, which, ids, what } = wanted();
    const said = { action, ...(matching ? { which } : { ids }) };
    inSteps({
      title: `${JOBS[action]} ${what}`,
      word: JOBS[action],
      danger: action === "delete",
      preview: async (isOver, tell) => {
        const seen = await walk({ ...said, dry_run: true }, STEP.preview, isOver, (sum) => tell(`${sum.found} so far…`));
        const number = (matching ? seen.found : ids.length) - seen.refused;
        const left = seen.refused ? `; ${seen.refused} more cannot be changed this way now` : "";
        return { many: number, of: "job", stopped: seen.stopped, says: `${seen.stopped ? "At least " : ""}${many(number, "job")}${left}.` };
      },
      change: async (_, isOver, tell) => {
        const done = await walk(said, STEP.change, isOver, (sum) => tell(sum.changed));
        clear();
        const left = done.refused ? `, ${done.refused} left as they were` : "";
        return { says: `${done.changed} done${left}${done.stopped ? ", then stopped" : ""}.`, problems: done.problems.map((one) => `${one.id}: ${one.problem}`) };
      },
    });
  }

  // Dead letters. Those that match are named first, and then replayed by name: one that fails again comes back as another,
  // and would be replayed without an end.
  const LISTED = 200, CHANGED = 100;
  const LETTERS = { replay: "Replay", discard: "Discard" };

  async function named(which, isOver, tell) {
    const ids = [];
    for (let after = null; ;) {
      const page = await ask(`outboxes/letters?${new URLSearchParams({ ...which, state: "pending", limit: LISTED, ...(after ? { after } : {}) })}`);
      ids.push(...page.letters.map((one) => one.id));
      tell(`${ids.length} so far…`);
      after = page.after;
      if (!after || isOver()) return { ids, stopped: Boolean(after) };
    }
  }

  function letters(action) {
    const { matching, which, ids: selected, what } = wanted();
    inSteps({
      title: `${LETTERS[action]} ${what}`,
      word: LETTERS[action],
      danger: action === "discard",
      preview: async (isOver, tell) => {
        const { ids, stopped } = matching ? await named(which, isOver, tell) : { ids: selected.map(Number), stopped: false };
        const then = { replay: "will be delivered again, the oldest failure first", discard: "will not be delivered" }[action];
        return { ids: ids.reverse(), many: ids.length, of: "letter", says: `${stopped ? "The newest " : ""}${many(ids.length, "letter")} ${then}.` };
      },
      change: async ({ ids }, isOver, tell) => {
        let changed = 0, looked = 0;
        while (looked < ids.length && !isOver()) {
          const some = ids.slice(looked, looked + CHANGED);
          changed += (await ask(`outboxes/${action}`, { ids: some })).changed;
          looked += some.length;
          tell(looked);
        }
        clear();
        return { says: `${changed} done${looked > changed ? `, ${looked - changed} were not pending any more` : ""}${looked < ids.length ? ", then stopped" : ""}.` };
      },
    });
  }

  // Backfilling. A step that made nothing still says where the next one begins.
  async function slots(said, isOver, tell) {
    const sum = { slots: 0, missing: 0, made: 0, stopped: false };
    for (let since = said.since; ;) {
      const found = await ask("schedules/backfill", { ...said, since });
      for (const name of ["slots", "missing", "made"]) sum[name] += found[name];
      tell(sum);
      if (!found.after) return sum;
      if (isOver()) return { ...sum, stopped: true };
      since = found.after;
    }
  }

  function backfill(form) {
    const inUtc = (name) => new Date(`${form.elements[name].value}Z`).toISOString(); // seconds that are zero are not in the value
    const said = { name: form.dataset.backfill, since: inUtc("since"), until: inUtc("until") };
    inSteps({
      title: `Backfill ${said.name}`,
      word: "Make",
      preview: async (isOver, tell) => {
        const seen = await slots({ ...said, dry_run: true }, isOver, (sum) => tell(`${many(sum.slots, "slot")} so far…`));
        const there = seen.slots - seen.missing;
        const says = `${seen.stopped ? "At least " : ""}${many(seen.slots, "slot")}${there ? `; ${there} ${there === 1 ? "has" : "have"} a job already` : ""}.`;
        return { many: seen.missing, of: "job", stopped: seen.stopped, says };
      },
      change: async (_, isOver, tell) => {
        const done = await slots(said, isOver, (sum) => tell(sum.made));
        return { says: `${many(done.made, "job")} made${done.stopped ? ", then stopped" : ""}.` };
      },
    });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.bulk) jobs(button.dataset.bulk);
    else if (button.dataset.letters) letters(button.dataset.letters);
    else if (button.id === "bulk-clear") clear();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form[data-backfill]")) backfill(event.target);
  });
  document.addEventListener("change", ({ target }) => {
    if (target.id === "all") for (const one of boxes()) one.checked = target.checked;
    count();
  });
  document.addEventListener("renewed", count);
  addEventListener("pageshow", count);
  Object.assign(window.mainspring, { count, clear });
})();
