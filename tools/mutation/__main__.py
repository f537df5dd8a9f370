"""Put a sample of faults into a copy of the code; list those that no test notices.

`python -m tools.mutation [--sample N] [--seed S] [PACKAGE…]`; docs/testing.md has the score.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from glob import glob
from pathlib import Path

from tools.mutation.faults import Fault, faults

ROOT = Path(__file__).parents[2]
COMMAND_LINE = ("tests/release/test_command_line.py", "tests/release/test_command_page.py")
PACKAGES = {
    "kubeyaml": ["tests/kubeyaml"],
    "certs": ["tests/certs"],
    "cluster/controllers": [
        "tests/certs",
        "tests/gpu_exceptions",
        "tests/cluster_commands",
        *COMMAND_LINE,
    ],
    "rules/engine": [
        "tests/rules",
        "tests/policies",
        "tests/webhook/test_heavy_objects.py",
    ],
    "rules/relevance": ["tests/rules", "tests/policies"],
    "webhook": ["tests/webhook", "tests/registration", *COMMAND_LINE],
}
"""Each package, and all the tests that concern it."""
# Of the packages above, folders whose faults a few tests notice most often. They run first.
FIRST = {
    "rules/engine": ["rules/test_engine", "rules/test_bounds", "webhook/test_heavy_objects"],
    "webhook/admission": ["webhook/test_review", "webhook/test_server", "webhook/test_decider"],
    "webhook/replica_cache": ["webhook/test_replica_cache"],
    "webhook/evaluator": ["webhook/test_evaluator", "webhook/test_heavy_objects"],
    "webhook/reload": [
        "webhook/test_certificate_log",
        "webhook/test_policy_reload",
        "webhook/test_gpu*",
    ],
    "webhook/server": ["webhook/test_server*", "webhook/test_evaluator"],
    "webhook/telemetry": ["webhook/test_log*", "webhook/test_server", "webhook/test_background*"],
    "webhook": ["webhook/test_serve*", "webhook/test_server"],
}
_MATCH_CONDITIONS = ("tests/cluster/test_match_conditions.py", "tests/cluster/test_in_process.py")
# Of what these write, an API server decides what it means. Tests that need one run last.
ON_API_SERVER = {
    "webhook/in_process/": [
        "tests/cluster/test_in_process.py",
        "tests/cluster/test_in_process_fixes.py",
        "tests/cluster_commands/test_doctor_in_process.py",
        "tests/chart/test_in_process.py",
    ],
    "webhook/match_conditions.py": [*_MATCH_CONDITIONS],
    "rules/relevance/": [*_MATCH_CONDITIONS],
}
_SECONDS = 600  # for tests that otherwise take less than two minutes
_SECONDS_ON_API_SERVER = 1800  # for tests that otherwise take less than ten
_MEMORY = 8 << 20  # KiB
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-m")


def tests_on_api_server(fault: Fault) -> list[str]:
    """The tests on an API server that concern `fault`."""
    places = [place for place in ON_API_SERVER if fault.file.startswith(place)]
    return [test for place in places for test in ON_API_SERVER[place]]


class Copy:
    """A copy of the checkout, in which faults are put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["git", "ls-files", "-zco", "--exclude-standard"]
        listed = subprocess.check_output(command, cwd=ROOT, text=True)
        for name in listed.split("\0")[:-1]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def faults(self, package: str) -> list[Fault]:
        """Every fault that can be put into a package."""
        files = sorted((self.folder / package).rglob("*.py"))
        named = [(str(file.relative_to(self.folder)), file.read_bytes()) for file in files]
        return [fault for name, text in named for fault in faults(name, text)]

    def is_noticed(self, fault: Fault, package: str) -> bool:
        """Return whether a test fails, or does not end, with the fault."""
        file = self.folder / fault.file
        text = file.read_bytes()
        file.write_bytes(text[: fault.start] + fault.new.encode() + text[fault.end :])
        folder = next(
            (name for name in FIRST if fault.file.startswith((f"{name}/", f"{name}.py"))), None
        )
        patterns = [f"{self.folder}/tests/{name}.py" for name in FIRST.get(folder or "", [])]
        first = [found for pattern in patterns for found in sorted(glob(pattern))]
        on_server = tests_on_api_server(fault)
        try:
            if not all(self.passes(tests) for tests in (first, PACKAGES[package]) if tests):
                return True
            return bool(on_server) and not self.passes(on_server, on_api_server=True)
        finally:
            file.write_bytes(text)

    def passes(self, tests: list[str], *, on_api_server: bool = False) -> bool:
        """Return whether these tests pass in time.

        Those that need an API server run only with `on_api_server`.
        """
        # Go programs reserve more memory than they use.
        limit = ["/bin/sh", "-c", f'ulimit -v {_MEMORY}; exec "$@"', "sh"]
        limited = [] if on_api_server else limit
        no_build = {} if on_api_server else {"GPUWARD_NO_BUILD": "1"}
        marked = "not slow" if on_api_server else "not control_plane and not slow"
        process = subprocess.Popen(
            [*limited, sys.executable, "-B", "-m", "pytest", *_OPTIONS, marked, *tests],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), **no_build},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(_SECONDS_ON_API_SERVER if on_api_server else _SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):  # processes that the tests have left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> None:
    """Print every fault that no test notices, and how many there are."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--sample", type=int, default=60, help="the faults in each package")
    parser.add_argument("--seed", type=int, default=24, help="another one makes another sample")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for package in arguments.packages:
            if not copy.passes(PACKAGES[package]):
                sys.exit(f"{package}: without any fault, tests fail or take more than {_SECONDS} s")
            found = copy.faults(package)
            chance = random.Random(arguments.seed)  # noqa: S311  # the same sample each time
            sample = sorted(chance.sample(found, min(arguments.sample, len(found))))
            on_server = sorted({test for fault in sample for test in tests_on_api_server(fault)})
            if on_server and not copy.passes(on_server, on_api_server=True):
                sys.exit(f"{package}: without any fault, tests on an API server fail")
            noticed = 0
            for number, fault in enumerate(sample, 1):
                is_noticed = copy.is_noticed(fault, package)
                noticed += is_noticed
                print(f"{number} {'noticed' if is_noticed else 'NOT NOTICED'}: {fault}", flush=True)
            print(f"{package}: {noticed} of {len(sample)} faults noticed, of {len(found)} possible")


if __name__ == "__main__":
    main()
