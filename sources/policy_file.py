"""Find the policies of a run: for each file the nearest one, as docs/policy.md says."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from policies import POLICY_FILE
from policies.loading import (
    MAX_POLICY_BYTES,
    PolicyError,
    is_of_another_program,
    load_policy_file,
    read_policy_file,
    refuse_large_content,
)
from policies.policy import Policy
from rules.engine.rule_set import RuleSet
from sources.containment import is_inside, relative_path_inside
from sources.paths import is_excluded
from sources.sources import DISK, FileTree
from terminal import reason_of


class FilePolicy(NamedTuple):
    """The policy for a file, the rules of it that run, and the name of its own file.

    The name is empty for the default policy. `namespace`, if not None, is where the policy puts
    objects that name none. Equal policies of a run have the same `equality_key`. `cluster` are the
    settings per path that have profiles of their own. Files with equal settings are of one cluster.
    Files without such settings may be of any cluster.
    """

    policy: Policy
    rules: RuleSet
    file: str
    namespace: str | None = None
    equality_key: object = None
    cluster: tuple[tuple[str, int], ...] = ()


class PolicyLayer(NamedTuple):
    """A policy around a file, and the numbers of its settings per path that are for the file."""

    file: str
    policy: Policy
    applied_settings: tuple[int, ...]


class PolicyChoice(NamedTuple):
    """The options about the policy.

    `file`, if not None, is always read from disk. Otherwise the nearest file in `tree` counts,
    unless the run is `isolated`. `profiles`, if not empty, replace those of the policy.
    """

    file: str | None
    profiles: Sequence[str]
    tree: FileTree = DISK
    isolated: bool = False

    def load(self) -> FilePolicy:
        """Return the policy for the working folder. Raises PolicyError."""
        return Policies(self).find("", "")


class OnePolicy:
    """One policy for every file, with all its rules unless `rules` are given.

    `file` is the name of its own file.
    """

    def __init__(self, policy: Policy, file: str = "", rules: RuleSet | None = None) -> None:
        self._found = FilePolicy(policy, rules or policy.rule_set(), file)

    def find(self, _folder: str, _name: str) -> FilePolicy:
        """Return the policy."""
        return self._found


class Policies:
    """The policies of the files of a run, each found and read once.

    `choose_rules` returns the rules of a policy that run. Relative paths are from the folder that
    was the working folder when this object was made.
    """

    def __init__(
        self, choice: PolicyChoice, choose_rules: Callable[[Policy], RuleSet] = Policy.rule_set
    ) -> None:
        self._choice = choice
        self._choose_rules = choose_rules
        self._here = os.getcwd()
        self._files: dict[str, list[str]] = {}
        self._are_policies: dict[str, bool] = {}
        self._loaded: dict[str, Policy] = {}
        self._found: dict[object, FilePolicy] = {}

    def find(self, folder: str, name: str) -> FilePolicy:
        """The policy for what is called `name`, which is in `folder` or that folder itself.

        Raises PolicyError.
        """
        chain = self.policies_around(folder, name)
        key = tuple((one.file, one.applied_settings) for one in chain)
        if key not in self._found:
            policy = combined_policy(chain, self._choose_rules)
            self._found[key] = policy._replace(equality_key=key, cluster=_cluster(chain))
        return self._found[key]

    @property
    def replaced(self) -> list[str]:
        """The policies whose profiles for some of the files found the options have replaced."""
        files = {file for found in self._found.values() for file, _ in found.cluster}
        return sorted(files) if self._choice.profiles else []

    def lint_options(self, path: str) -> tuple[Mapping[str, Any], str]:
        """The key `lint` of the outermost policy around `path`, and what its paths begin with.

        That is the folder of the policy, or the working folder if the user has named the policy.
        Raises PolicyError.
        """
        folder = path if os.path.isdir(path or ".") else os.path.dirname(path)
        outermost = self.policies_around(folder, path)[-1]
        place = "" if self._choice.file else os.path.dirname(outermost.file)
        return outermost.policy.lint, os.path.normpath(os.path.join(self._here, place))

    def policies_around(self, folder: str, name: str) -> list[PolicyLayer]:
        """The policies around it, the nearest first. Raises PolicyError."""
        files = self._files.get(folder)
        if files is None:
            files = self._files[folder] = self._policy_files(folder)
        policies = [self._load(file) for file in files]
        path = ""
        if any(policy.per_path for policy in policies):
            path = os.path.normpath(os.path.join(self._here, name))
        return [
            PolicyLayer(file, policy, applying_settings(policy, self._here, path))
            for file, policy in zip(files, policies, strict=True)
        ]

    def _policy_files(self, folder: str) -> list[str]:
        choice = self._choice
        if choice.file is not None or choice.isolated:
            return [choice.file or ""]
        place = os.path.normpath(os.path.join(self._here, folder))
        files = policy_files(place, self._here, self._is_policy)
        return [os.path.relpath(file, self._here) for file in files] or [""]

    def _is_policy(self, file: str) -> bool:
        """`is_policy_file`, reading each file once: it is around all folders below its own."""
        known = self._are_policies
        if file not in known:
            known[file] = is_policy_file(file, self._choice.tree)
        return known[file]

    def _load(self, file: str) -> Policy:
        if file not in self._loaded:
            read = read_policy_file if self._choice.file else self._read
            policy = load_policy_file(file or None, self._choice.profiles, read)
            self._loaded[file] = policy
        return self._loaded[file]

    def _read(self, path: str) -> bytes:
        tree, place = self._choice.tree, os.path.join(self._here, path)
        if tree is DISK:
            return read_policy_file(place, path)
        try:
            return refuse_large_content(path, tree.read(place, MAX_POLICY_BYTES + 1))
        except OSError as error:
            raise PolicyError(f"{path}: {reason_of(error)}") from error


def _cluster(chain: list[PolicyLayer]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (one.file, index)
        for one in chain
        for index in one.applied_settings
        if one.policy.per_path[index].has_profiles
    )


def applying_settings(policy: Policy, here: str, path: str) -> tuple[int, ...]:
    """Return the indexes of the settings per path of `policy` that are for the file at `path`.

    The path is absolute.
    """
    found = []
    for index, settings in enumerate(policy.per_path):
        inside = relative_path_inside(path, os.path.normpath(os.path.join(here, settings.folder)))
        if inside is not None and any(is_excluded(inside, one) for one in settings.path_patterns):
            found.append(index)
    return tuple(found)


def combined_policy(
    chain: list[PolicyLayer], choose_rules: Callable[[Policy], RuleSet] = Policy.rule_set
) -> FilePolicy:
    """Return the first policy of `chain`, whose others are around it, with the chosen rules.

    None of these is loosened where it lets no user suppress a rule. Raises PolicyError.
    """
    *inner, outermost = chain
    for one in inner:
        if one.policy.lint:
            why = "lint: what is about a whole run belongs in the outermost policy"
            raise PolicyError(f"{one.file}: {why}, {outermost.file}")
    policy, outer = _with_applied_settings(outermost), outermost.file
    if inner:
        from policies.policy import LayerError, keep_protected  # noqa: PLC0415  # few repositories have several
    for one in reversed(inner):
        try:
            policy = keep_protected(_with_applied_settings(one), policy, outer)
        except LayerError as error:
            raise PolicyError(f"{one.file}: {error}") from error
        outer = one.file
    nearest = chain[0]
    chosen = (nearest.policy.per_path[index] for index in nearest.applied_settings)
    namespaces = [settings.namespace for settings in chosen if settings.namespace]
    return FilePolicy(
        policy=policy,
        rules=choose_rules(policy),
        file=nearest.file,
        namespace=namespaces[-1] if namespaces else None,
    )


def _with_applied_settings(one: PolicyLayer) -> Policy:
    policy = one.policy
    for index in one.applied_settings:
        policy = policy.with_path_settings(one.policy.per_path[index])
    return policy


def is_policy_file(file: str, tree: FileTree = DISK) -> bool:
    """Return whether `tree` has a policy at `file`, or what cannot be read and may be one."""
    if not tree.exists(file):
        return False
    try:
        return not is_of_another_program(tree.read(file, MAX_POLICY_BYTES + 1))
    except OSError:
        return True


def policy_files(
    folder: str, here: str, is_policy: Callable[[str], bool] = is_policy_file
) -> list[str]:
    """The policy files for `folder`, the nearest first, up to the repository's root.

    Without a repository, a file further up is not for this folder: then they end with the working
    folder `here` if that is around `folder`, else with `folder` itself. All paths are absolute.

    `is_policy` returns whether there is a policy at a path: files of other programs with its name
    are none. Raises PolicyError for a policy with another ending.
    """
    found = []
    for place in _folders_up_to_repository(folder, here):
        file = os.path.join(place, POLICY_FILE)
        if is_policy(file):
            found.append(file)
        elif is_policy(other := file.removesuffix(".yaml") + ".yml"):
            name = os.path.relpath(other, here)
            raise PolicyError(f"{name}: a policy is looked for as {POLICY_FILE}; rename the file")
    return found


def _folders_up_to_repository(folder: str, here: str) -> list[str]:
    folders = [folder]
    while not os.path.exists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1]:
            if not is_inside(folder, here):
                return [folder]
            return folders[: folders.index(here) + 1] if here in folders else [folder]
        folders.append(above)
    return folders


def nearest_policy(folder: str, tree: FileTree = DISK) -> str | None:
    """The policy file of `tree` nearest to `folder`, relative to it; None if there is none."""
    files = policy_files(folder, folder, partial(is_policy_file, tree=tree))
    return os.path.relpath(files[0], folder) if files else None
