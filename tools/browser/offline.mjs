// Keeps the files of this page, so that it works without a network.

const VERSION = "{{version}}";
const FILES = {{files}};

addEventListener("install", (event) => {
  // The browser's own cache may still have a file of an older version.
  const fresh = FILES.map((file) => new Request(file, { cache: "reload" }));
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(fresh)));
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
