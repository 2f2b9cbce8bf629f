"use strict";
// What the server's pages cannot do by themselves: countdowns that tick, changes without a reload,
// filters while one types, rows by keyboard. It shows what the server drew, and asks nobody else.
(() => {
  const SOON = 1000;
  const SLOW = 30000;
  const WITHOUT_STREAM = 5000;
  const TIMEOUT = 10000;
  const STALE_AFTER = 12000;
  const STREAM_AGAIN = 15000;
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  // The server's clock: it is the one that was compared with Azure's times.
  let offset = Number(root.dataset.now) - Date.now();
  const now = () => Date.now() + offset;

  /* Times. The words are those of the server (formatting.py). */
  const twoDigits = (number) => String(number).padStart(2, "0");
  const timeOf = (date) =>
    [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(":");
  const dayOf = (date) =>
    `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
  const clockParts = (seconds) => [
    Math.floor(seconds / 86400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
    Math.floor(seconds) % 60,
  ];
  function left(ms) {
    const seconds = (ms - now()) / 1000;
    const [d, h, m, s] = clockParts(seconds);
    if (seconds <= 0) return "may start any second";
    if (d) return `${d} d ${twoDigits(h)}:${twoDigits(m)}`;
    return h ? `${h}:${twoDigits(m)}:${twoDigits(s)}` : `${twoDigits(m)}:${twoDigits(s)}`;
  }
  function ago(ms) {
    const seconds = (now() - ms) / 1000;
    const [d, h, m, s] = clockParts(seconds);
    if (seconds < 2) return "just now";
    if (d) return `${d} d ${h} h ago`;
    if (h) return `${h} h ${m} min ago`;
    return m ? `${m} min ago` : `${s} s ago`;
  }
  const TICKS = { left, ago };
  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  const setText = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  let isLocal = false;
  try {
    isLocal = localStorage.getItem("times") === "local";
  } catch {
    /* a browser may forbid it */
  }
  function clock(node) {
    const at = new Date(node.dateTime);
    node.dataset.utc ??= node.textContent;
    const { utc } = node.dataset;
    const today = at.toDateString() === new Date(now()).toDateString();
    const local = today ? timeOf(at) : `${dayOf(at)} ${timeOf(at)}`;
    setText(node, isLocal ? local : utc);
    node.title = isLocal ? utc : `${local} local time`;
  }
  function tick() {
    for (const node of document.querySelectorAll("[data-tick]")) {
      const ms = Date.parse(node.dateTime);
      const isOver = node.dataset.tick === "left" && ms <= now();
      if (isOver && !node.hasAttribute("data-over")) later(0);
      node.toggleAttribute("data-over", isOver);
      setText(node, TICKS[node.dataset.tick](ms));
    }
    for (const node of document.querySelectorAll("progress[data-to]")) {
      const { from, to } = node.dataset;
      node.value = Math.max(0, Math.min(1000, (1000 * (to - now())) / (to - from)));
    }
    contact();
  }
  function tickOnTheSecond() {
    tick();
    setTimeout(tickOnTheSecond, 1000 - (now() % 1000));
  }
  /* Fields for times: the address and the form are UTC, what somebody sees is what they chose. */
  const FIELDS = "input[type=datetime-local]";
  const shownIn = new WeakMap();
  const toLocal = (utc) => {
    const at = new Date(`${utc}Z`);
    return `${dayOf(at)}T${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}`;
  };
  const toUtc = (local) => new Date(local).toISOString().slice(0, 16);
  function field(node) {
    const isChanged = (shownIn.get(node) ?? false) !== isLocal;
    const words = node.closest("label").querySelector("span");
    if (isChanged && node.value) node.value = isLocal ? toLocal(node.value) : toUtc(node.value);
    shownIn.set(node, isLocal);
    setText(words, words.textContent.replace(/\(.*\)/, isLocal ? "(local time)" : "(UTC)"));
  }
  /* Last night, by the reader's own clock: from 20:00 to 08:00, or until now. */
  function night(link) {
    const evening = new Date(now());
    const morning = new Date(now());
    const url = new URL(link.href);
    evening.setHours(20 - 24, 0, 0, 0);
    morning.setHours(8, 0, 0, 0);
    url.searchParams.set("since", evening.toISOString().slice(0, 16));
    if (morning.getTime() <= now())
      url.searchParams.set("until", morning.toISOString().slice(0, 16));
    else url.searchParams.delete("until");
    link.href = url;
    link.title = "20:00 to 08:00, local time";
  }
  function clocks() {
    document.querySelectorAll("time.clock").forEach(clock);
    document.querySelectorAll(FIELDS).forEach(field);
    document.querySelectorAll("a[data-night]").forEach(night);
  }

  /* Contact with the console, and since when there is none. */
  const LOST = "No contact · ";
  const LOGGED_OUT = "Login ended · ";
  const UNAUTHORIZED = 401;
  let heardAt = Date.now();
  let isLive = false;
  let failed = null;
  let failedAt = 0;
  let isLoggedOut = false;
  const plainTitle = (title) => title.replace(LOST, "").replace(LOGGED_OUT, "");
  // A stream that beats does not excuse a page that cannot be drawn: what failed first counts.
  function fail(words) {
    if (!failed) failedAt = Date.now();
    failed = words;
  }
  function contactWord(lost, isFresh, since) {
    if (lost) return isLoggedOut ? "login ended" : "no contact";
    if (isFresh) return "live";
    return failed ? "connecting" : `updated ${ago(since)}`;
  }
  function contactSentence(since) {
    const at = `${new Date(since).toISOString().slice(11, 19)} UTC (${ago(since)})`;
    if (!isLoggedOut) {
      const known = "What is below is what was known then.";
      return `No contact with the console since ${at}: ${failed}. ${known}`;
    }
    return (
      `Your login has ended. What is below was known at ${at};` +
      " once you are logged in again, this page goes on, and what you typed is still here."
    );
  }
  function contact() {
    // The stream beats every 5 seconds: a console that hangs is known by its silence.
    if (isLive && Date.now() - heardAt > STALE_AFTER) {
      fail("it has said nothing for 12 seconds");
      stop();
      setTimeout(listen, STREAM_AGAIN);
      later(0);
    }
    const until = failed ? Math.min(heardAt, failedAt) : heardAt;
    const since = until + offset;
    const lost = failed && (isLoggedOut || Date.now() - until > STALE_AFTER);
    const isFresh = isLive && !failed;
    document.body.classList.toggle("stale", Boolean(lost));
    const heard = isFresh ? "live" : "off";
    $("live").dataset.state = lost ? "lost" : heard;
    setText($("live-word"), contactWord(lost, isFresh, since));
    if ($("stale").hidden !== !lost) $("stale").hidden = !lost;
    const reason = isLoggedOut ? LOGGED_OUT : LOST;
    const title = (lost ? reason : "") + plainTitle(document.title);
    if (document.title !== title) document.title = title;
    if (!lost) return;
    setText($("stale-words"), contactSentence(since));
    $("log-in")?.toggleAttribute("hidden", !isLoggedOut);
  }

  /* Changes: the server draws the page again, and idiomorph brings what differs into this one; rows
     are known by their ids. Focus, scroll, what is unfolded and what somebody types stay. */
  const OURS = {
    title: ["time"],
    "data-utc": ["time"],
    "data-over": ["time"],
    open: ["details"],
    hidden: ["button"],
    value: ["progress", "input", "textarea"],
    checked: ["input"],
    selected: ["option"],
  };
  const isOurs = (name, node) =>
    Boolean(OURS[name]?.includes(node.localName)) && !("held" in node.dataset);
  const isTyped = (field) =>
    field.type !== "hidden" && "defaultValue" in field && field.value !== field.defaultValue;
  const isInUse = (form) =>
    form.contains(document.activeElement) || [...form.elements].some(isTyped);
  const forms = (node) => [
    ...(node.querySelectorAll?.("form") ?? []),
    ...(node.localName === "form" ? [node] : []),
  ];
  const MORPH = {
    // What is in focus keeps what it holds if somebody types in it; a heading or a link changes.
    get ignoreActiveValue() {
      return Boolean(document.activeElement?.matches("input, textarea, select"));
    },
    callbacks: {
      beforeAttributeUpdated: (name, node) => !isOurs(name, node),
      // A form that somebody has begun to fill in stays, also when nothing is left to decide.
      beforeNodeRemoved: (node) =>
        !forms(node).some((form) => {
          const stays = isInUse(form);
          if (stays && "fingerprint" in form.dataset) form.dataset.fingerprint = "";
          return stays;
        }),
      beforeNodeMorphed(old, next) {
        if (old.localName === "time") {
          if (old.dateTime === next.dateTime) return false;
          delete old.dataset.utc;
        }
        return !old.isEqualNode(next);
      },
    },
  };
  const announced = () =>
    [...document.querySelectorAll("[data-announce]")]
      .map((node) => node.textContent.trim())
      .join(". ");
  /* Rows do not move under the pointer: what is new in a list waits until the pointer has left it,
     or until somebody presses the button that counts it. */
  let withheld = null;
  const rowsOf = (list) =>
    new Map([...list.querySelectorAll("[data-row]")].map((row) => [row.id, row]));
  function hold(list, next) {
    const before = rowsOf(list);
    const after = rowsOf(next);
    const fresh = [...after.keys()].filter((id) => !before.has(id)).length;
    const gone = [...before.keys()].filter((id) => !after.has(id)).length;
    if (`${[...before.keys()]}` === `${[...after.keys()]}`) return "";
    const same = document.importNode(list, true);
    for (const [id, row] of rowsOf(same)) {
      if (after.has(id)) row.replaceWith(after.get(id).cloneNode(true));
      else row.classList.add("gone");
    }
    next.replaceChildren(...same.childNodes);
    const noun = list.dataset.hold;
    if (fresh) return `${plural(fresh, `new ${noun}`)}${gone ? `, ${gone} gone` : ""}`;
    return gone ? `${plural(gone, noun)} gone` : "new order";
  }
  function holdUnderPointer(drawn) {
    const list = document.querySelector("[data-hold]:hover");
    const next = list && drawn.getElementById(list.id);
    const words = next ? hold(list, next) : "";
    const button = next && drawn.querySelector(`[data-held="${list.id}"]`);
    if (!words || !button) return null;
    Object.assign(button, { hidden: false, textContent: words });
    return list;
  }
  function release() {
    const { text } = withheld ?? {};
    withheld = null;
    if (text) show(text, true);
  }
  document.addEventListener("mouseover", ({ target }) => {
    if (withheld && !withheld.list.contains(target)) release();
  });
  document.documentElement.addEventListener("mouseleave", release);
  document.addEventListener("click", ({ target }) => {
    if (target.matches("[data-held]")) release();
  });
  function show(text, isWhole) {
    const drawn = new DOMParser().parseFromString(text, "text/html");
    const before = announced();
    if (!drawn.getElementById("main")) throw new Error("it answered with another page");
    const list = isWhole ? null : holdUnderPointer(drawn);
    withheld = list ? { list, text } : null;
    for (const region of document.querySelectorAll("[data-live]"))
      Idiomorph.morph(region, drawn.getElementById(region.id), MORPH);
    document.title = document.querySelector("main[data-live]")
      ? drawn.title
      : plainTitle(document.title);
    // What somebody is about to decide stays what they saw: the form keeps its fingerprint.
    for (const form of document.querySelectorAll("form[data-fingerprint]"))
      form.querySelector("[data-changed]").hidden =
        form.elements.fingerprint.value === form.dataset.fingerprint;
    clocks();
    tick();
    countTicked();
    // Sparingly: only if the answer itself has changed.
    if (announced() !== before) $("announcer").textContent = announced();
  }
  // What is told while the page asks may be newer than the answer: it asks once more.
  let asking = null;
  let timer = null;
  let isOutdated = false;
  function failureWords(isAborted, error) {
    if (isAborted) return failed ?? "no answer within 10 seconds";
    return error instanceof TypeError ? "it cannot be reached" : error.message;
  }
  async function refresh(isWhole = false) {
    clearTimeout(timer);
    isOutdated = false;
    asking?.abort();
    const abort = new AbortController();
    asking = abort;
    const patience = setTimeout(() => abort.abort("timeout"), TIMEOUT);
    try {
      const response = await fetch(location.href, {
        signal: abort.signal,
        cache: "no-store",
        headers: { Accept: "text/html" },
      });
      if (asking === abort) isLoggedOut = response.status === UNAUTHORIZED;
      if (!response.ok && response.status !== 404)
        throw new Error(`it answered with status ${response.status}`);
      const text = await response.text();
      if (asking !== abort) return;
      offset = Number(/data-now="(\d+)"/.exec(text)?.[1] ?? now()) - Date.now();
      show(text, isWhole);
      [heardAt, failed] = [Date.now(), null];
    } catch (error) {
      if (asking !== abort) return;
      fail(failureWords(abort.signal.aborted, error));
    } finally {
      clearTimeout(patience);
      if (asking === abort) {
        asking = null;
        const pause = isLive && !failed ? SLOW : WITHOUT_STREAM;
        later(isOutdated ? SOON : pause);
      }
    }
    contact();
  }
  let dueAt = Infinity;
  function later(wait) {
    const at = Date.now() + wait;
    if (document.hidden) return;
    if (timer && dueAt <= at && dueAt > Date.now()) return;
    clearTimeout(timer);
    dueAt = at;
    timer = setTimeout(() => {
      timer = null;
      dueAt = Infinity;
      refresh();
    }, wait);
  }

  /* The stream says that something changed, and what it is about. */
  let stream = null;
  function listen() {
    if (stream || document.hidden || !window.EventSource) return;
    stream = new EventSource("/api/v1/stream");
    const beat = () => {
      heardAt = Date.now();
    };
    stream.onopen = () => {
      isLive = true;
      beat();
      contact();
      later(0);
    };
    stream.addEventListener("beat", beat);
    stream.onerror = () => {
      isLive = false;
      if (stream?.readyState === EventSource.CLOSED) {
        stop();
        setTimeout(listen, STREAM_AGAIN);
      }
      later(WITHOUT_STREAM);
      contact();
    };
    // A page that was too far behind is told to read everything again.
    stream.addEventListener("reload", () => later(0));
    for (const kind of ["event", "vm", "command", "source"])
      stream.addEventListener(kind, () => {
        beat();
        if (asking) isOutdated = true;
        else later(SOON);
      });
  }
  function stop() {
    stream?.close();
    [stream, isLive] = [null, false];
  }
  document.addEventListener("visibilitychange", () => {
    // Out of sight the page rests; it says how old it is until it has caught up.
    if (document.hidden) {
      stop();
      clearTimeout(timer);
      timer = null;
      dueAt = Infinity;
      contact();
    } else {
      refresh();
      listen();
    }
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => {
    if (event.persisted) {
      refresh();
      listen();
    }
  });
  addEventListener("online", () => later(0));

  const linkOf = (row) => (row?.matches("a") ? row : row?.querySelector("a"));

  /* Filters: the form works by itself; here the address follows what is typed. */
  const filters = $("filters");
  if (filters) {
    document.body.classList.add("live-filters");
    let typing;
    const apply = () => {
      const times = new Set([...filters.querySelectorAll(FIELDS)].map(({ name }) => name));
      const given = [...new FormData(filters)].filter(([, value]) => value);
      const query = new URLSearchParams(
        given.map(([name, value]) => [name, isLocal && times.has(name) ? toUtc(value) : value]),
      );
      history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
      // What is shown is not what was asked for, until the answer is there.
      for (const list of document.querySelectorAll("[data-found]"))
        list.setAttribute("aria-busy", "true");
      return refresh(true);
    };
    // Enter goes on to the first row that was found.
    filters.addEventListener("submit", async (event) => {
      event.preventDefault();
      clearTimeout(typing);
      await apply();
      // Where there was no answer, the rows are still those of another search.
      if (document.querySelector("[data-found][aria-busy]")) return;
      linkOf(
        document.querySelector("[data-found] [data-row]") ?? document.querySelector(".elsewhere"),
      )?.focus();
    });
    filters.addEventListener("change", apply);
    filters.addEventListener("input", ({ target }) => {
      if (target.type !== "search") return;
      clearTimeout(typing);
      typing = setTimeout(apply, 250);
    });
  }

  /* Several events: how many are ticked stands in the button and in the heading. */
  function onwardWords(count, limit) {
    if (count > limit) return `At most ${limit} at once: ${count} are ticked`;
    return count ? `Go on with ${plural(count, "event")}` : "Tick the events to decide";
  }
  function countTicked() {
    const several = $("several");
    const onward = $("onward");
    if (!several || !onward) return;
    const ticks = [...several.querySelectorAll("input.tick")];
    const count = ticks.filter((tick) => tick.checked).length;
    const limit = Number(several.dataset.limit);
    setText(onward, onwardWords(count, limit));
    onward.disabled = !count || count > limit;
    setText($("ticked"), `${count} of ${plural(ticks.length, "event")} ticked`);
    several.querySelector(".ticks").hidden = false;
  }
  document.addEventListener("change", ({ target }) => {
    if (target.matches("input.tick")) countTicked();
  });
  document.addEventListener("click", ({ target }) => {
    const isAll = target.matches("[data-tick-all]");
    if (!isAll && !target.matches("[data-tick-none]")) return;
    for (const tick of document.querySelectorAll("#several input.tick")) tick.checked = isAll;
    countTicked();
  });

  /* A report goes to the clipboard, where the browser has one for this page. */
  for (const button of document.querySelectorAll("[data-copy]"))
    button.hidden = !navigator.clipboard;
  document.addEventListener("click", async ({ target }) => {
    if (!target.matches("[data-copy]")) return;
    try {
      await navigator.clipboard.writeText($(target.dataset.copy).textContent);
      $("announcer").textContent = "Copied";
      setText(target, "Copied");
    } catch {
      setText(target, "Select it below");
    }
  });

  /* A form is sent once the console has answered a question: a press never leads to the browser's
     error page, and what was typed stays. */
  const CHECK = 5000;
  let checked = null;
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const submitter = event.submitter;
    if (form.method !== "post" || form === checked) return;
    event.preventDefault();
    if (form.dataset.sending) return;
    form.dataset.sending = "";
    form.querySelector("[data-unsent]")?.remove();
    const abort = new AbortController();
    const patience = setTimeout(() => abort.abort(), CHECK);
    let why = null;
    try {
      const { ok, status } = await fetch("/api/v1/events?state=open&limit=1", {
        signal: abort.signal,
        cache: "no-store",
      });
      if (!ok)
        why = status === UNAUTHORIZED ? "your login has ended" : "the console does not work now";
    } catch {
      why = abort.signal.aborted ? "the console does not answer" : "the console cannot be reached";
    }
    clearTimeout(patience);
    delete form.dataset.sending;
    if (!why) {
      checked = form;
      form.requestSubmit(submitter);
      checked = null;
      return;
    }
    const next = why.startsWith("your")
      ? "once you are logged in again, in another tab"
      : "once it is back";
    const note = Object.assign(document.createElement("p"), {
      className: "notice",
      role: "alert",
      textContent: `Nothing was sent: ${why}. What you typed stays here; press again ${next}.`,
    });
    note.dataset.unsent = "";
    (form.querySelector(".buttons") ?? form.lastElementChild).before(note);
  });

  /* Keyboard: j and k go through the rows, Enter opens one because its link has the focus. */
  const keys = document.querySelector(".keys");
  if (keys) keys.hidden = false;
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    if (
      (event.ctrlKey || event.metaKey) &&
      event.key === "Enter" &&
      target.matches("form.decide textarea")
    ) {
      event.preventDefault();
      target.form.requestSubmit(target.form.querySelector("button[name=action]"));
      return;
    }
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]")
    )
      return;
    if (event.key === "/") {
      event.preventDefault();
      if (filters) filters.querySelector("[type=search]").focus();
      else location.assign("/fleet#filters");
    }
    if (event.key === "d") {
      event.preventDefault();
      const reason = $("reason") ?? document.querySelector("#onward:enabled");
      const several = document.querySelector("a[href='/decide']");
      const first =
        document.querySelector(".is-due .answer-what a") ?? document.querySelector(".tone-due a");
      const due = first && first !== document.activeElement ? first : several;
      (reason ?? due ?? first)?.focus();
      if (!reason && !due && !first) location.assign("/decide");
    }
    if (event.key === "h") {
      event.preventDefault();
      const periods = document.querySelector("[data-night]");
      if (periods) periods.focus();
      else location.assign("/history#periods");
    }
    if (event.key === "?") keys?.focus();
    if (event.key === "x") {
      const tick = target.closest("[data-row]")?.querySelector("input.tick");
      if (tick) tick.click();
    }
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const last = rows.length - 1;
    const end = step > 0 ? 0 : last;
    const row = rows[at < 0 ? end : Math.max(0, Math.min(last, at + step))];
    const link = linkOf(row);
    link?.focus();
    link?.scrollIntoView({ block: "nearest" });
  });

  /* Local time on demand. */
  const zone = $("zone");
  function showZone() {
    setText(zone, isLocal ? "show UTC" : "show local time");
    clocks();
  }
  zone.hidden = false;
  zone.addEventListener("click", () => {
    isLocal = !isLocal;
    try {
      localStorage.setItem("times", isLocal ? "local" : "utc");
    } catch {
      /* then it lasts for this page */
    }
    showZone();
  });

  // After a form was sent its result has the focus. The browser itself goes to the fragment first.
  const wanted = {
    "#filters": filters?.querySelector("[type=search]"),
    "#decision": $("decision-title"),
    "#periods": document.querySelector("[data-night]"),
  }[location.hash];
  if (wanted) addEventListener("load", () => setTimeout(() => wanted.focus()));

  showZone();
  countTicked();
  tickOnTheSecond();
  listen();
  later(SLOW);
})();
