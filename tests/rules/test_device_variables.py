"""What rules about containers know of variables holds for keys of ConfigMaps and Secrets too."""

import pytest

from policies.loading import load_policy
from rules.base.text_matching import matches_any
from rules.catalog.bypass import gated_device_env, imex_channels, mig_admin_env
from rules.catalog.sharing import reserved_gpushare_keys, share_limit_override
from rules.workloads.object_kinds import granting_variables

VARIABLES = (
    *gated_device_env.DEVICES_AND_PREFIXES,
    imex_channels.CHANNELS,
    *mig_admin_env.POWER_VERBS,
    *reserved_gpushare_keys.RESERVED_VARIABLES,
    share_limit_override.DISABLING_VARIABLE,
    share_limit_override.POLICY_VARIABLE,
    *(f"{name}_0" for name in share_limit_override.LIMIT_VARIABLES),
    *share_limit_override.EFFECT_BY_VARIABLE,
    *share_limit_override.ASCEND_LIMIT_VARIABLES,
)


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_a_variable_that_gives_more_counts_as_a_key(variable: str) -> None:
    profile = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default").profile
    assert matches_any(granting_variables(profile), variable)
