"""The loader of policies: any bytes are a policy that works, or problems with their places."""

from __future__ import annotations

import re

from policies.effective import effective_policy, effective_rules
from policies.loading import (
    PolicyDocument,
    PolicyError,
    load_policy_document,
)
from rules.engine.fixing import fix
from rules.profile.context import Context
from tests.fuzzing.mutation import mutate_yaml
from tests.testkit.cases import TODAY
from webhook.admission.decider import Decider

mutate = mutate_yaml
_NAME = "policy.yaml"
_PLACE_PATTERN = re.compile(r"policy\.yaml:(\d+):(\d+): .")
_WHOLE_FILE_PATTERN = re.compile(r"policy\.yaml: (the file is empty|not UTF-8|UTF-16|a policy may)")
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team-a"},
    "spec": {
        "hostPID": True,
        "containers": [
            {
                "name": "a",
                "image": "nvidia/cuda:12",
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                "resources": {"requests": {"nvidia.com/gpu": 1}},
            }
        ],
    },
}


def check(data: bytes) -> None:
    """Load `data` as a policy, and use it."""
    try:
        document = PolicyDocument.parse(data, _NAME)
        loaded = load_policy_document(document)
    except PolicyError as error:
        _check_problems(str(error), data)
        return
    result = fix(_POD, loaded.policy.rule_set(), Context(TODAY, "team-a", "alice", "CREATE"))
    assert not result.remaining.failures, result.remaining.failures
    Decider(loaded.policy)
    rules = list(effective_rules(loaded.policy, loaded.settings, str))
    assert effective_policy(loaded.policy, loaded.settings, rules)


def _check_problems(message: str, data: bytes) -> None:
    """Every problem has a line, and the line is in the text."""
    lines = message.split("\n")
    if _WHOLE_FILE_PATTERN.match(lines[0]):
        return
    text = data.decode().split("\n")
    for line in lines:
        if line == "and more":
            continue
        place = _PLACE_PATTERN.match(line)
        assert place, f"no place: {line!r}"
        number, column = map(int, place.groups())
        assert 1 <= number <= len(text)
        assert 1 <= column <= len(text[number - 1]) + 1
