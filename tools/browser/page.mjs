// The page: gives the text to the worker, and shows what it answers.

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: jupyter
      image: registry.example.com/jupyter:4
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: "0"
      resources:
        limits:
          nvidia.com/gpu: 1
`;
const MAX_CHARACTERS = 1_000_000;
const QUIET_MILLISECONDS = 300;

const manifest = document.getElementById("manifest");
const state = document.getElementById("state");
const findings = document.getElementById("findings");
const fixes = document.getElementById("fixes");
const diff = document.getElementById("diff");
const worker = new Worker("worker.mjs", { type: "module" });
let timer = 0;
let latest = 0;

function ask() {
  latest += 1;
  if (manifest.value.length > MAX_CHARACTERS) {
    show({ error: `More than ${MAX_CHARACTERS} characters: use the command gpuward lint.` });
    return;
  }
  worker.postMessage({ number: latest, text: manifest.value });
}

function show({ error, report, changes }) {
  findings.replaceChildren(...(report ? entries(report) : []));
  fixes.hidden = !changes;
  diff.textContent = changes ?? "";
  state.textContent = error ?? summary(report);
}

function summary({ summary: { errors, warnings }, not_evaluated: failed }) {
  const unread = failed.length ? ` ${failed.length} not evaluated.` : "";
  return `${count(errors, "error")}, ${count(warnings, "warning")}.${unread}`;
}

function count(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function entries(report) {
  const shown = report.findings.filter((one) => one.level !== "note");
  const unread = report.not_evaluated.map((one) => ({ ...one, level: "not evaluated", help: "" }));
  return [...shown, ...unread].map(entry);
}

// Texts of manifests are shown as texts: nothing here reads them as HTML.
function entry({ level, line, rule, message, help }) {
  const item = document.createElement("li");
  const word = document.createElement("span");
  word.className = "level";
  word.textContent = `${level}, line ${line}: `;
  item.append(word, message);
  if (rule) {
    const link = document.createElement("a");
    link.href = `../rules/${encodeURIComponent(rule)}/`;
    link.textContent = rule;
    item.append(" [", link, "]");
  }
  if (help) {
    const advice = document.createElement("span");
    advice.className = "help";
    advice.textContent = help;
    item.append(advice);
  }
  return item;
}

worker.onmessage = ({ data }) => {
  if (data.number === latest) show(data);
};
worker.onerror = () => show({ error: "The linter could not be loaded." });
manifest.value = EXAMPLE;
manifest.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(ask, QUIET_MILLISECONDS);
});
ask();
navigator.serviceWorker?.register("offline.mjs", { type: "module" }).catch(() => {});
