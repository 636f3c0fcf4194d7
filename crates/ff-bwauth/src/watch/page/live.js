"use strict";
// Renews the parts of the page that change: elements with data-part. Without it the page is loaded again.
const parts = new Map();
for (const element of document.querySelectorAll("[data-part]")) {
  parts.set(element.dataset.part, element);
}
const news = new EventSource("/events?parts=" + [...parts.keys()].join(","));
for (const [name, element] of parts) {
  news.addEventListener(name, (event) => {
    // Whoever reads with the keyboard stays on the link that they are on.
    const at = element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    element.innerHTML = event.data;
    if (at !== null) {
      element.querySelector(`a[href="${CSS.escape(at)}"]`)?.focus({ preventScroll: true });
    }
  });
}
news.addEventListener("open", () => document.body.classList.remove("cut-off"));
news.addEventListener("error", () => document.body.classList.add("cut-off"));
