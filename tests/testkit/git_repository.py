"""A Git repository in a folder, and gpuward as a program in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.testkit.paths import ROOT

POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    "    - name: a\n      env: [{name: NVIDIA_VISIBLE_DEVICES, value: %s}]\n"
)
BAD, GOOD = POD % "all", POD % "void"
# A limit is missing, which is what a safe fix adds.
FIXABLE = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: z}\nspec:\n  containers:\n"
    "    - {name: a, image: x, resources: {requests: {nvidia.com/gpu: 1}}}\n"
)
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"))
}


class GitRepository:
    """The repository in `folder`, which is made if it is not there.

    Nothing of the user's own configuration has an effect in it.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
            **_IDENTITY,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
        }
        if not folder.exists():
            folder.mkdir(parents=True)
            self.git("init", "-q", "-b", "main", *options)

    def run(
        self, *command: str, stdin: str = "", folder: str = "."
    ) -> subprocess.CompletedProcess[str]:
        """A command in the repository, or in a folder of it, whether it succeeds or not."""
        return subprocess.run(
            command,
            cwd=self.folder / folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )

    def git(self, *arguments: str) -> str:
        """A git command that must succeed; its output."""
        done = self.run("git", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def gpuward(
        self, *arguments: str, stdin: str = "", folder: str = "."
    ) -> subprocess.CompletedProcess[str]:
        """A gpuward command, whether it succeeds or not."""
        return self.run(
            sys.executable, "-P", "-m", "gpuward", *arguments, stdin=stdin, folder=folder
        )

    def write(self, name: str | bytes, text: str) -> None:
        """Put a file into the work tree."""
        file = Path(os.fsdecode(os.path.join(os.fsencode(self.folder), os.fsencode(name))))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")

    def stage(self, name: str, text: str) -> None:
        """Put a file into the work tree, and stage it."""
        self.write(name, text)
        self.git("add", "--", name)

    def commit(self, name: str, text: str) -> str:
        """Commit a file, without hooks; the commit."""
        self.stage(name, text)
        self.git("commit", "-q", "--no-verify", "-m", name)
        return self.git("rev-parse", "HEAD")
