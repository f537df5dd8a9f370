"""A user who has nothing of gpuward: a home, an empty folder, and the ordinary programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.testkit.release.servers import PackageIndex

REPOSITORY = "https://github.com/gpuward/gpuward"
_PROGRAMS = ("uv", "uvx", "pipx", "pre-commit", "prek")


class NewUser:
    """Runs commands in `folder`, which is empty at first.

    Python packages come from `index`, and the repository on GitHub is the one below `git_server`.
    No setting of the machine has an effect.
    """

    def __init__(self, home: Path, index: PackageIndex, git_server: str) -> None:
        self.folder = home / "work"
        self.bin = home / "bin"
        for folder in (self.folder, self.bin):
            folder.mkdir(parents=True)
        for name in _PROGRAMS:
            (self.bin / name).symlink_to(Path(sys.executable).with_name(name))
        for name in ("python", "python3"):
            (self.bin / name).symlink_to(sys.executable)
        (home / ".gitconfig").write_text(
            f'[url "{git_server}gpuward"]\n\tinsteadOf = {REPOSITORY}\n'
            "[user]\n\tname = a\n\temail = a@example.com\n"
        )
        self.environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": f"{self.bin}:{home / '.local' / 'bin'}:/usr/bin:/bin",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_INDEX_URL": index.url,
            "PIPX_DEFAULT_PYTHON": sys.executable,
            "UV_DEFAULT_INDEX": index.url,
            "UV_NO_CONFIG": "1",
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def run(self, command: str, *, folder: str = ".") -> subprocess.CompletedProcess[str]:
        """A command line of bash, whether it succeeds or not."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", command],
            cwd=self.folder / folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def succeeds(self, command: str) -> str:
        """A command line that must succeed; its output."""
        done = self.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
