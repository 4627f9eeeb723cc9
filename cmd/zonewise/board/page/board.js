"use strict";
(() => {
  const $ = (id) => document.getElementById(id);

  // morph makes an element like another one with as few changes as can be, so that the focus, the place in a scrolled table
  // and what a screen reader is about to read all stay.
  function morph(from, to) {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
      from.replaceWith(document.importNode(to, true));
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.nodeValue !== to.nodeValue) {
        from.nodeValue = to.nodeValue;
        fresh(from.parentElement);
      }
      return;
    }
    for (const { name } of Array.from(from.attributes)) {
      if (!to.hasAttribute(name) && !(name === "tabindex" && from.matches(".c"))) from.removeAttribute(name);
    }
    for (const { name, value } of Array.from(to.attributes)) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    if (from.matches(".inspect")) return;
    const known = new Map();
    for (const child of from.children) {
      if (child.dataset.key !== undefined) known.set(child.dataset.key, child);
    }
    let at = from.firstChild;
    for (const wanted of Array.from(to.childNodes)) {
      const key = wanted.dataset && wanted.dataset.key;
      let child = at;
      if (key !== undefined) {
        child = known.get(key);
        known.delete(key);
      } else if (at && at.dataset && at.dataset.key !== undefined) {
        child = null;
      }
      if (!child) {
        const added = document.importNode(wanted, true);
        from.insertBefore(added, at);
        if (key !== undefined) fresh(added);
        continue;
      }
      if (child !== at) from.insertBefore(child, at);
      at = child.nextSibling;
      morph(child, wanted);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function fresh(element) {
    const whole = element && element.closest(".node, .tile, tr, .c");
    if (!whole || !document.body.dataset.settled) return;
    whole.classList.remove("fresh");
    void whole.offsetWidth; // starts the animation anew
    whole.classList.add("fresh");
  }

  function show(id, html) {
    const box = $("s-" + id);
    if (!box) return;
    const to = document.createElement("div");
    for (const { name, value } of Array.from(box.attributes)) to.setAttribute(name, value);
    const parsed = new DOMParser().parseFromString(html, "text/html");
    to.append(...Array.from(parsed.body.childNodes));
    morph(box, to);
    rove();
  }

  // One cell of each grid is in the order of the Tab key, the arrow keys move between cells.
  function rove() {
    for (const grid of document.querySelectorAll(".grid")) {
      const cells = Array.from(grid.children);
      const current = cells.find((c) => c.tabIndex === 0 && c.hasAttribute("tabindex")) || cells[0];
      for (const c of cells) c.tabIndex = c === current ? 0 : -1;
    }
  }
  function inspect(cell) {
    const words = cell.closest(".zone").querySelector(".inspect");
    words.textContent = cell.getAttribute("aria-label");
    words.classList.add("on");
  }
  document.addEventListener("keydown", (e) => {
    const cell = e.target.closest && e.target.closest(".grid .c");
    if (!cell || e.ctrlKey || e.altKey || e.metaKey) return;
    const cells = Array.from(cell.parentElement.children);
    const i = cells.indexOf(cell);
    const row = Math.max(1, cells.findIndex((c) => c.offsetTop !== cells[0].offsetTop));
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, ArrowDown: i + row, ArrowUp: i - row, Home: 0, End: cells.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = cells[to];
    if (!next) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  for (const type of ["focusin", "pointerover", "click"]) {
    document.addEventListener(type, (e) => {
      const cell = e.target.closest && e.target.closest(".grid .c");
      if (cell) inspect(cell);
    });
  }
  rove();

  const address = document.body.dataset.events;
  if (!address) return;

  // What a screen reader is told: the summary, when it is another one, and not more often than it can be listened to.
  const tellEvery = 5000;
  let told = $("sentence").textContent;
  let tellTimer = 0;
  function tell() {
    if (tellTimer) return;
    tellTimer = setTimeout(() => {
      tellTimer = 0;
      const now = $("sentence").textContent;
      if (now === told) return;
      told = now;
      $("live").textContent = now;
    }, tellEvery);
  }

  const state = $("state");
  const pause = $("pause");
  let paused = false;
  let waiting = {};
  let title = document.title;
  function set(text, tone) {
    if (state.textContent !== text) state.textContent = text;
    state.className = "pill " + tone;
  }
  function apply() {
    for (const id of Object.keys(waiting)) show(id, waiting[id]);
    waiting = {};
    if (document.title !== title) document.title = title;
    document.body.dataset.settled = "yes";
    tell();
  }
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) {
      set("Paused", "rest");
    } else {
      apply();
      set(source.readyState === EventSource.OPEN ? "Live" : "Connecting", source.readyState === EventSource.OPEN ? "on" : "rest");
    }
  });

  const source = new EventSource(address);
  source.addEventListener("open", () => { if (!paused) set("Live", "on"); });
  source.addEventListener("error", () => set("Not connected: what you see is old", "off"));
  source.addEventListener("end", () => {
    source.close();
    set("Ended: what you see is old", "off");
  });
  source.addEventListener("board", (e) => {
    const update = JSON.parse(e.data);
    Object.assign(waiting, update.sections);
    title = update.title;
    if (paused) return;
    set("Live", "on");
    apply();
  });
})();
