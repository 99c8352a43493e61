// Theme and drawer of the dashboard: what must work at once, and also while the service is away.
"use strict";
const KEY = "penstock-theme";
const root = document.documentElement;

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // Storage may be forbidden; then the theme is that of the system.
  }
}

function apply(theme) {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  else delete root.dataset.theme;
}

function setMenu(isOpen) {
  root.dataset.menu = isOpen ? "open" : "shut";
  document.getElementById("menu")?.setAttribute("aria-expanded", String(isOpen));
}

apply(stored());

document.addEventListener("change", (event) => {
  if (event.target.id !== "theme") return;
  apply(event.target.value);
  try {
    localStorage.setItem(KEY, event.target.value);
  } catch {
    // Then it holds for this page alone.
  }
});

document.addEventListener("click", (event) => {
  if (event.target.closest?.("#menu")) {
    setMenu(root.dataset.menu !== "open");
    if (root.dataset.menu === "open") document.querySelector("#navigation a")?.focus();
  } else if (!event.target.closest?.("#navigation")) {
    setMenu(false);
  }
  const skip = event.target.closest?.("a.skip");
  if (skip) {
    event.preventDefault();
    document.getElementById("main")?.focus();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && root.dataset.menu === "open") {
    setMenu(false);
    document.getElementById("menu")?.focus();
  }
});

// The page is drawn a moment later; then the choice shows what is true.
new MutationObserver((_, observer) => {
  const choice = document.getElementById("theme");
  if (!choice) return;
  choice.value = stored() ?? "system";
  observer.disconnect();
}).observe(root, { childList: true, subtree: true });
