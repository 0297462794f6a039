/* Keeps the outbox dashboard fresh while somebody looks at it. Without this file it is a page with a
   refresh link. Nothing is fetched while the page is hidden. */
"use strict";
(() => {
  const start = (panel) => {
    const figures = panel.querySelector("[data-outbox-figures]");
    const stale = panel.querySelector(".outbox-stale");
    const details = panel.closest("details");
    let isBusy = false;

    const isSeen = () => document.visibilityState === "visible" && (!details || details.open);

    // What somebody is about to copy or to press stays where it is.
    const isInUse = () => {
      const selection = document.getSelection();
      return Boolean(selection && !selection.isCollapsed && figures.contains(selection.anchorNode));
    };

    const replace = (html) => {
      const active = document.activeElement;
      const link = active && figures.contains(active) ? active.getAttribute("href") : null;
      const opened = [...figures.querySelectorAll("details")].map((each) => each.open);
      figures.innerHTML = html; // our own server's, with every value escaped
      figures.querySelectorAll("details").forEach((each, index) => {
        if (index in opened) each.open = opened[index];
      });
      if (link !== null) {
        const again = [...figures.querySelectorAll("a")].find((each) => each.getAttribute("href") === link);
        if (again) again.focus({ preventScroll: true });
      }
    };

    const refresh = async () => {
      if (isBusy || !isSeen() || isInUse()) return;
      isBusy = true;
      try {
        const answer = await fetch(panel.dataset.outboxPanel, { credentials: "same-origin", cache: "no-store" });
        // Who is logged out is sent to the login page: that is no panel.
        if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
        replace(await answer.text());
        stale.hidden = true;
      } catch {
        stale.hidden = false;
      } finally {
        isBusy = false;
      }
    };

    setInterval(refresh, Number(panel.dataset.outboxSeconds) * 1000);
    document.addEventListener("visibilitychange", refresh);
    if (details) details.addEventListener("toggle", refresh);
    if ("outboxEmpty" in panel.dataset) refresh();
  };

  const startAll = () => document.querySelectorAll("[data-outbox-panel]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
