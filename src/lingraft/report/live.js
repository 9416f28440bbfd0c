"use strict";
// Keeps the page of a running run up to date: asks the server where it stands, and puts what is new in the place of
// what was there. What the reader has done stays: place, open parts, scrolled tables, zoomed charts, keyboard focus.
(function () {
  const EVERY = 2000, WHEN_DONE = 10000;
  const byId = (id) => document.getElementById(id);
  const live = byId("live"), sections = byId("sections");
  const server = live.dataset.server, shown = new Map();
  let version = live.dataset.version, told = "", heard = new Date();

  async function ask(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  // The elements of a kind, each by its name and by which of that name it is, so that it is found again later.
  function named(root, selector, name) {
    const counts = new Map(), found = new Map();
    for (const node of root.querySelectorAll(selector)) {
      const of = name(node), count = counts.get(of) || 0;
      counts.set(of, count + 1);
      found.set(of + " " + count, node);
    }
    return found;
  }

  const chartOf = (node) => { const figure = node.closest("figure"); return figure ? figure.querySelector("[data-figure]").ariaLabel : ""; };
  const boxes = (root) => named(root, "[data-figure]", (box) => box.ariaLabel);
  // A number in a title, as of damaged files, may be another one by now.
  const folds = (root) => named(root, "details", (one) => chartOf(one) + one.firstElementChild.textContent.replace(/\d+/g, ""));
  const areas = (root) => named(root, ".scroll, pre", (one) => one.ariaLabel || one.tagName);
  const stops = (root) => named(root, "a, summary, [tabindex]", (one) => chartOf(one) + one.tagName + (one.ariaLabel || one.textContent.replace(/\d+/g, "")));

  function nameOf(found, node) {
    for (const [name, one] of found) if (one === node) return name;
    return null;
  }

  // Puts a new section in the place of an old one; a chart keeps its box, and with it what was zoomed into.
  function exchange(old, fresh) {
    const open = folds(old), drawn = boxes(old), scrolled = areas(old);
    const places = new Map(Array.from(scrolled, ([name, area]) => [name, [area.scrollLeft, area.scrollTop]]));
    const focus = old.contains(document.activeElement) ? nameOf(stops(old), document.activeElement) : null;
    for (const [name, one] of folds(fresh)) if (open.has(name)) one.open = open.get(name).open;
    for (const [name, box] of boxes(fresh)) {
      const before = drawn.get(name);
      if (!before) continue;
      before.dataset.figure = box.dataset.figure;
      drawn.delete(name);
      box.replaceWith(before);
    }
    for (const box of drawn.values()) Plotly.purge(box);
    old.replaceWith(fresh);
    for (const [name, area] of areas(fresh)) if (places.has(name)) [area.scrollLeft, area.scrollTop] = places.get(name);
    const at = focus && stops(fresh).get(focus);
    if (at) at.focus({ preventScroll: true });
  }

  function parsed(markup) {
    const template = document.createElement("template");
    template.innerHTML = markup;
    return template.content;
  }

  // What stands at the top of the window: a chart, else a section. It is put back where it was.
  function anchor() {
    if (window.scrollY < 10) return () => {};
    let last = null;
    for (const node of sections.querySelectorAll("section, [data-figure]")) {
      if (node.getBoundingClientRect().top <= 80) last = node;
    }
    if (!last) return () => {};
    const top = last.getBoundingClientRect().top, id = last.id;
    return () => {
      const now = last.isConnected ? last : byId(id);
      if (now) window.scrollBy({ top: now.getBoundingClientRect().top - top, behavior: "instant" });
    };
  }

  function fill(id, markup) {
    if (byId(id).innerHTML !== markup) byId(id).replaceChildren(parsed(markup));
  }

  async function renew() {
    const content = await ask("content.json"), back = anchor();
    fill("header", content.header);
    fill("contents", content.contents);
    const parts = Array.from(parsed(content.sections).children), names = new Set(parts.map((part) => part.id));
    let after = null;
    for (const fresh of parts) {
      const old = byId(fresh.id), source = fresh.outerHTML;
      if (!old && after) after.after(fresh); else if (!old) sections.prepend(fresh);
      else if (shown.get(fresh.id) !== source) exchange(old, fresh);
      shown.set(fresh.id, source);
      after = byId(fresh.id);
    }
    for (const section of Array.from(sections.children)) if (!names.has(section.id)) section.remove();
    await window.drawFigures(content.figures);
    back();
    version = content.version;
  }

  function tell(text) {
    if (text !== told) byId("told").textContent = text;
    told = text;
  }

  function show(state) {
    if (state.server !== server) { location.reload(); return; }
    fill("moments", state.moments);
    document.title = state.title;
    tell(state.told);
  }

  async function poll() {
    let wait = EVERY;
    if (!document.hidden) {
      try {
        const state = await ask("state.json");
        show(state);
        heard = new Date();
        // Whoever is marking text is not to lose the mark.
        if (state.version !== version && window.getSelection().isCollapsed) await renew();
        wait = state.ended ? WHEN_DONE : EVERY;
        live.classList.remove("deaf");
      } catch (error) {
        live.classList.add("deaf");
        tell("No answer from lingraft report --live: this page shows what was known at " + heard.toLocaleTimeString() + ".");
      }
    }
    window.setTimeout(poll, wait);
  }

  poll();
})();
