"use strict";
// What needs a script: the live check of the playground, its links, and copying. Without it, the
// playground has its button, and everything else works as it is.

const form = document.getElementById("playground");
const KEPT = "gpuward playground"; // what sessionStorage calls the text of the playground
const PAUSE = 400; // milliseconds after the last key

function setUpPlayground() {
  const manifest = form.elements.manifest;
  const verdict = document.getElementById("verdict");
  const said = document.getElementById("said");
  let timer = 0;
  let running = null;

  async function check() {
    keepText();
    running?.abort();
    if (manifest.value.trim() === "") {
      verdict.replaceChildren();
      return;
    }
    const own = (running = new AbortController());
    try {
      const answer = await fetch("/playground?part=verdict", {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { Accept: "text/html" },
        signal: own.signal,
      });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = answer.ok ? page.body : page.querySelector(".remark");
      verdict.replaceChildren(...document.importNode(found, true).childNodes);
      setUpCopying(verdict);
      said.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") said.textContent = "The console does not answer.";
    }
  }

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    check();
  });

  // A file that is dropped on the text replaces it.
  manifest.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  manifest.addEventListener("drop", async (event) => {
    const file = event.dataTransfer.files[0];
    if (!file) return;
    event.preventDefault();
    if (file.size > manifest.maxLength) {
      said.textContent = `${file.name} is too large: at most ${manifest.maxLength} characters.`;
      return;
    }
    manifest.value = await file.text();
    check();
  });

  const share = document.getElementById("share");
  share.hidden = false;
  share.addEventListener("click", async () => {
    const chosen = new URLSearchParams(new FormData(form));
    history.replaceState(null, "", `#${chosen}`);
    keepText();
    said.textContent = (await copied(location.href)) ? "Copied." : "The address has it now.";
  });

  function take(chosen) {
    const before = manifest.value;
    for (const [name, value] of chosen) {
      if (name in form.elements) form.elements[name].value = value;
    }
    return manifest.value !== before;
  }

  function readFragment() {
    const chosen = new URLSearchParams(location.hash.slice(1));
    take(chosen);
    if (chosen.has("manifest")) check();
  }

  // The tab keeps the text for a reload, by the address that it was written at. The text stays in
  // the browser.
  const place = () => location.search + location.hash;

  function keepText() {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify([place(), [...new FormData(form)]]));
    } catch {} // the browser keeps nothing, or has no room
  }

  function readKept() {
    try {
      const [where, chosen] = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
      if (where !== place()) return false;
      if (take(chosen)) check();
      return true;
    } catch {
      return false;
    }
  }

  const menu = document.getElementById("examples");
  menu.addEventListener("change", () => menu.requestSubmit());
  menu.addEventListener("submit", () => sessionStorage.removeItem(KEPT));
  form.addEventListener("input", keepText);
  addEventListener("hashchange", readFragment);
  if (!readKept()) readFragment();
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function setUpCopying(within) {
  for (const button of within.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      button.textContent = (await copied(text)) ? "Copied" : "Select it by hand";
    });
  }
}

if (form) setUpPlayground();
setUpCopying(document);

// Live parts: the server says that something has changed, and the parts that differ are replaced.
// What the reader has opened or focused stays so.
function followChanges() {
  const live = document.getElementById("live");
  let version = document.documentElement.dataset.version;
  let isBusy = false;
  const stream = new EventSource("/events");

  stream.onopen = () => (live.textContent = "live");
  stream.onerror = () => (live.textContent = "not connected");
  stream.onmessage = async (event) => {
    if (event.data === version || isBusy || document.hidden) return;
    isBusy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        replaceChanged(page);
        version = page.documentElement.dataset.version;
      } else if (answer.status === 401) {
        stream.close();
        live.textContent = "signed out: load the page again";
      }
    } catch {
      live.textContent = "not connected";
    }
    isBusy = false;
  };
}

function replaceChanged(page) {
  const focused = document.activeElement;
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = page.querySelector(`[data-live="${part.dataset.live}"]`);
    if (next && next.innerHTML !== part.innerHTML) {
      part.replaceChildren(...document.importNode(next, true).childNodes);
    }
  }
  const href = focused?.isConnected === false && focused.getAttribute("href");
  if (href) document.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

if (document.documentElement.dataset.version && document.querySelector("main [data-live]")) {
  followChanges();
}
