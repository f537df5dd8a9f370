// Keeps the files of this page, so that it works without a network.

const VERSION = "{{version}}";
const FILES = {{files}};

addEventListener("install", (event) => {
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(FILES)));
});
addEventListener("activate", (event) => {
  const old = (names) => names.filter((name) => name.startsWith("gpuward-") && name !== VERSION);
  event.waitUntil(
    caches.keys().then((names) => Promise.all(old(names).map((name) => caches.delete(name)))),
  );
});
addEventListener("fetch", (event) => {
  event.respondWith(
    caches.open(VERSION).then(async (cache) => (await cache.match(event.request)) ?? fetch(event.request)),
  );
});
