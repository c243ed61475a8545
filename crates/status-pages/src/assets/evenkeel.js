// The status pages: exchanges the live parts of a page for those of the same page a moment later,
// shows the values under the pointer, and knows a few keys. Everything else is the server's.
"use strict";
(() => {
  const body = document.body;
  const pulse = document.getElementById("pulse");
  const refreshMs = Number(body.dataset.refresh);
  let paused = false, failures = 0, generation = 0;

  // --- Theme: the system's, or the reader's choice.
  const store = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not kept */ } } };
  const applyTheme = (theme) => { if (theme) document.documentElement.dataset.theme = theme; };
  applyTheme(store.get());
  const switchTheme = () => {
    const root = document.documentElement;
    const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    store.set(next);
    applyTheme(next);
  };

  // --- Live parts.
  const tell = (state, text) => { pulse.className = "pulse " + state; pulse.textContent = text; };
  const exchange = (fresh, selector) => {
    for (const part of document.querySelectorAll(selector)) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === part.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const focusId = focused && (focused.id || focused.closest("figure")?.id);
      part.replaceChildren(...document.adoptNode(next).childNodes);
      if (focusId) {
        const again = document.getElementById(focusId);
        (again?.matches("figure") ? again.querySelector("[tabindex]") : again)?.focus({ preventScroll: true });
      }
    }
    refreshTip();
  };
  const get = async (address) => {
    const mine = ++generation;
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), 10000);
    try {
      const answer = await fetch(address, { cache: "no-store", signal: controller.signal });
      if (!answer.ok) throw new Error("status " + answer.status);
      const text = await answer.text();
      return mine === generation ? new DOMParser().parseFromString(text, "text/html") : null;
    } finally { clearTimeout(timer); }
  };
  const isSelecting = () => { const s = getSelection(); return s && !s.isCollapsed && s.toString().length > 0; };
  const round = async () => {
    if (!paused && !document.hidden && !isSelecting()) {
      try {
        const fresh = await get(location.href);
        if (fresh) exchange(fresh, "[data-live]");
        failures = 0;
        tell("live", "live");
      } catch (error) {
        failures += 1;
        tell("stale", "no answer");
      }
    }
    setTimeout(round, Math.min(refreshMs * 2 ** Math.min(failures, 5), 30000));
  };
  if (refreshMs > 0) { tell("live", "live"); setTimeout(round, refreshMs); }
  const pauseButton = document.querySelector("[data-pause]");
  const togglePause = () => {
    if (!pauseButton) return;
    paused = !paused;
    pauseButton.textContent = paused ? "Resume" : "Pause";
    tell(paused ? "" : "live", paused ? "paused" : "live");
  };

  // --- Order, search and pages of tables: the address changes, the page stays.
  const goTo = async (address) => {
    history.replaceState(null, "", address);
    try {
      const fresh = await get(address);
      if (fresh) exchange(fresh, "[data-live], [data-part]");
    } catch { location.href = address; }
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); goTo(link.href); return; }
    if (event.target.closest("[data-theme-switch]")) switchTheme();
    if (event.target.closest("[data-pause]")) togglePause();
    const menuButton = event.target.closest("[data-menu]");
    if (menuButton) {
      const open = document.getElementById("menu").classList.toggle("open");
      menuButton.setAttribute("aria-expanded", String(open));
    }
  });
  const searchAddress = (form) => form.getAttribute("action") + "?" + new URLSearchParams(new FormData(form));
  let typing;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-search]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => goTo(searchAddress(form)), 200);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-search]");
    if (form) { event.preventDefault(); goTo(searchAddress(form)); }
  });

  // --- The value under the pointer, or under the arrow keys.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  body.append(tip);
  let pointer = null;
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
  };
  const say = (text, x, y) => { tip.textContent = text; tip.hidden = !text; if (text) place(x, y); };
  const hideTip = () => { tip.hidden = true; document.querySelectorAll(".crosshair").forEach((line) => line.remove()); };
  const pointsOf = (plot) => {
    const [names, ...lines] = plot.dataset.plot.split("\n");
    return { names: names.split("|"), lines: lines.map((line) => line.split("|")) };
  };
  const showPoint = (plot, part, x, y) => {
    const { names, lines } = pointsOf(plot);
    if (!lines.length) return hideTip();
    const at = part * 1000;
    let best = lines[0];
    for (const line of lines) if (Math.abs(line[0] - at) < Math.abs(best[0] - at)) best = line;
    document.querySelectorAll(".crosshair").forEach((line) => line.remove());
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("class", "crosshair");
    for (const [name, value] of [["x1", best[0]], ["x2", best[0]], ["y1", 0], ["y2", 100]]) line.setAttribute(name, value);
    plot.querySelector("svg").append(line);
    const values = names.map((name, i) => i > 1 && best[i] ? name + ": " + best[i] : "").filter(Boolean);
    say([best[1] + " UTC", ...values].join("\n"), x, y);
  };
  const tipAt = (x, y) => {
    const under = document.elementFromPoint(x, y);
    const plot = under?.closest("[data-plot]");
    if (plot) {
      const box = plot.getBoundingClientRect();
      return showPoint(plot, (x - box.left) / box.width, x, y);
    }
    const marked = under?.closest("[data-tip]");
    if (marked) return say(marked.dataset.tip, x, y);
    hideTip();
  };
  const refreshTip = () => { if (pointer && !tip.hidden) tipAt(pointer.x, pointer.y); };
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    pointer = { x: event.clientX, y: event.clientY };
    tipAt(pointer.x, pointer.y);
  });
  document.addEventListener("pointerup", (event) => {
    // A finger has no pointer to rest: a tap shows what a title would.
    if (event.pointerType !== "touch") return;
    const titled = event.target.closest("[title]");
    if (event.target.closest("[data-plot], [data-tip]")) { pointer = { x: event.clientX, y: event.clientY }; tipAt(pointer.x, pointer.y); }
    else if (titled && !event.target.closest("a, button")) say(titled.title, event.clientX, event.clientY);
    else hideTip();
  });
  document.addEventListener("scroll", hideTip, { passive: true });
  let cursor = 1;
  const moveCursor = (plot, by) => {
    cursor = Math.max(0, Math.min(1, cursor + by));
    const box = plot.getBoundingClientRect();
    showPoint(plot, cursor, box.left + cursor * box.width, box.top + box.height / 2);
  };

  // --- Keys.
  let afterG = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "Escape") { hideTip(); if (isTyping) event.target.blur(); return; }
    if (isTyping) return;
    const plot = event.target.closest("[data-plot]");
    if (plot && event.key === "ArrowLeft") { event.preventDefault(); return moveCursor(plot, -0.01); }
    if (plot && event.key === "ArrowRight") { event.preventDefault(); return moveCursor(plot, 0.01); }
    if (afterG) {
      afterG = false;
      const link = document.querySelector(`#menu a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; }
      return;
    }
    if (event.key === "g") { afterG = true; setTimeout(() => { afterG = false; }, 1500); }
    else if (event.key === "/") { const field = document.querySelector("input[type=search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
    else if (event.key === "d") switchTheme();
    else if (event.key === " " && !event.target.closest("a, button, summary")) { if (pauseButton) { event.preventDefault(); togglePause(); } }
  });
})();
