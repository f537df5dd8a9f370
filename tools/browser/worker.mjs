// Runs gpuward: Python as WebAssembly, and the linter's own packages.

import { loadPyodide } from "./pyodide.mjs";

const PROGRAM = `
import io, sys
from contextlib import redirect_stderr, redirect_stdout

sys.path.insert(0, "/engine")
from lint.cli import fix, main

def run(command, arguments, text):
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode(errors="surrogatepass")))
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        command([*arguments, "--isolated", "-"])
    return output.getvalue()

def lint(text):
    return run(main, ["--output", "json"], text)

def changes(text):
    return run(fix, ["--diff"], text)
`;

async function load() {
  const archive = fetch("engine.zip").then((response) => response.arrayBuffer());
  const python = await loadPyodide({ indexURL: "./" });
  python.unpackArchive(await archive, "zip", { extractDir: "/engine" });
  python.runPython(PROGRAM);
  return { lint: python.globals.get("lint"), changes: python.globals.get("changes") };
}

const loaded = load();

onmessage = async ({ data: { number, text } }) => {
  try {
    const { lint, changes } = await loaded;
    const report = JSON.parse(lint(text));
    postMessage({ number, report }); // before the fixes, which take longer
    if (report.summary.fixable) postMessage({ number, report, changes: changes(text) });
  } catch (error) {
    postMessage({ number, error: `The linter has failed: ${error.message ?? error}` });
  }
};
