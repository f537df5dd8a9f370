"""The words about what a pod has to do with GPUs: the twins of `rules.placement.gpu_nodes`.

`OBJECT.evidence` is `gpu_evidence`: of the strongest sign a list with `Evidence.pod`,
`Evidence.devices`, and the text `certain` or `perhaps`; an empty list if there is none.
"""

from functools import lru_cache

from rules.in_process.components import image_grants_gpus
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    expression,
    get,
    has,
    is_in,
    let,
    not_,
    string,
    text,
)
from rules.in_process.images import is_agent_of_other_maker, is_platform_image, maker_of_image
from rules.in_process.nodes import PREFERRED_TERMS, has_only_gpu_nodes, selected_labels, tolerates
from rules.in_process.own_programs import runs_own_program, runs_program_of_agent
from rules.in_process.requests import fits
from rules.in_process.statement import shown
from rules.in_process.variables import shown_variable
from rules.in_process.vocabulary import Variable, resolve, variable_name
from rules.placement.gpu_nodes import (
    ACCELERATOR_WORD,
    ASKING_FOR,
    ASKING_FOR_A_PART,
    DRIVER_VARIABLE_PREFIXES,
    DRIVER_VARIABLE_SUFFIX,
    FOR_LABEL,
    GPU_MAKERS,
    GPU_VARIABLE_PREFIXES,
    GPU_WORD,
    OTHER_VARIABLE_PREFIXES,
    PREFERRING_OR_TOLERATING,
    VALUES_HIDING_GPUS,
    WITH_CLAIM,
    WITH_RUNTIME_CLASS,
    WITH_VARIABLE,
    words_about_image,
)
from rules.profile.platforms.cards import CARDS, MAX_NAME_CHARACTERS
from rules.profile.platforms.makers import NVIDIA
from rules.profile.profile import Profile

_NONE: list[str] = []
_CERTAIN, _PERHAPS = "certain", "perhaps"
_MODELS = sorted(card.model.lower() for card in CARDS)


@lru_cache(maxsize=4)  # all policies of an export have the same
def evidence(profile: Profile, *, old: bool) -> tuple[Variable, ...]:
    """Return the variables; those of `vocabulary` come before them."""
    texts = {
        "driverVariable": _visible_variable(DRIVER_VARIABLE_PREFIXES, DRIVER_VARIABLE_SUFFIX),
        "otherVariable": _visible_variable(OTHER_VARIABLE_PREFIXES),
        "hintedKey": _hinted_key(profile),
        "platform": OBJECT.containers.filter(lambda c: is_platform_image(c)),
        "signsOfGpus": _signs_of_gpus(),
        "agentsOfOtherMakers": _agents_of_other_makers(),
        "withSignOfAgent": OBJECT.withMaker.filter(_is_sign_of_agent),
        "signs": choose((OBJECT.isDaemon, _signs_of_agents()), otherwise=OBJECT.signsOfGpus),
        "evidence": choose(
            (OBJECT.requestsGpu, _request_evidence()),
            (OBJECT.nodeLabel != "", _evidence_of_label()),
            otherwise=OBJECT.signs,
        ),
    }
    return tuple(
        Variable(variable_name(name, old=old), resolve(value, old=old))
        for name, value in texts.items()
    )


def _evidence(pod: Value, devices: Value = GPU_WORD, certainty: str = _CERTAIN) -> list[Value]:
    """Return one `Evidence`."""
    return [pod, devices, certainty]


def _word(is_gpu: Value) -> Expression:
    return choose((is_gpu, GPU_WORD), otherwise=ACCELERATOR_WORD)


def _request_evidence() -> Expression:
    first = OBJECT.containers.filter(lambda c: c.first != "")
    has_claims_only = OBJECT.containers.all(
        lambda c: any_of(not_(c.requestsGpu), all_of(c.hasClaims, c.first == ""))
    )

    def requested(c: Expression) -> list[Value]:
        is_gpu = any_of(
            string(c.first).contains("gpu"),
            c.devices.exists(
                lambda d: all_of(d.name == c.first, is_in(d.facts[0].vendor, GPU_MAKERS))
            ),
        )
        return _evidence(text(f"{ASKING_FOR} {shown(c.first)}"), _word(is_gpu))

    return choose(
        (has_claims_only, _evidence(WITH_CLAIM)),
        (first.size() == 0, _evidence(ASKING_FOR_A_PART)),
        otherwise=let(first[0], requested),
    )


def _evidence_of_label() -> list[Value]:
    label = OBJECT.nodeLabel
    return _evidence(text(f"{FOR_LABEL} {shown(label)}"), _device_word(label))


def _signs_of_gpus() -> Expression:
    runtime, hinted = OBJECT.spec.runtimeClassName, OBJECT.hintedKey
    of_platform = words_about_image(shown(OBJECT.platform[0].image), NVIDIA.devices)
    of_runtime = text(f"{WITH_RUNTIME_CLASS} {shown(runtime)}")
    tolerated = text(f"{PREFERRING_OR_TOLERATING} {shown(hinted)}")
    return choose(
        (OBJECT.usesGpuRuntime, _evidence(of_runtime, _device_word(runtime))),
        (OBJECT.withMaker.size() > 0, _evidence_of_image(OBJECT.withMaker[0])),
        (OBJECT.platform.size() > 0, _evidence(text(of_platform))),
        (OBJECT.driverVariable != "", _evidence_of_variable(OBJECT.driverVariable)),
        (hinted != "", _evidence(tolerated, _device_word(hinted), _PERHAPS)),
        (OBJECT.otherVariable != "", _evidence_of_variable(OBJECT.otherVariable, _PERHAPS)),
        otherwise=_NONE,
    )


def _evidence_of_variable(name: Expression, certainty: str = _CERTAIN) -> list[Value]:
    is_gpu = any_of(*(name.startsWith(prefix) for prefix in GPU_VARIABLE_PREFIXES))
    pod = text(f"{WITH_VARIABLE} {shown_variable(name)}")
    return _evidence(pod, _word(is_gpu), certainty)


def _agents_of_other_makers() -> Expression:
    """Return the names of the containers of a DaemonSet with agents of other makers alone."""
    agents = OBJECT.containers.filter(
        lambda c: all_of(OBJECT.isDaemon, is_agent_of_other_maker(c), runs_own_program(c.raw, ()))
    )
    return agents.map(lambda c: string(c.name))


def _is_sign_of_agent(c: Expression) -> Expression:
    """Return whether the image of the container `c` of an agent, which has a maker, is a sign."""
    is_agent = all_of(is_agent_of_other_maker(c), runs_program_of_agent(c))
    return choose((c.hasCudaImage, image_grants_gpus(c)), otherwise=not_(is_agent))


def _signs_of_agents() -> Expression:
    found = OBJECT.withSignOfAgent
    return choose((found.size() > 0, _evidence_of_image(found[0], _PERHAPS)), otherwise=_NONE)


def _evidence_of_image(container: Expression, certainty: str = _CERTAIN) -> Expression:
    def of_maker(c: Expression, maker: Expression) -> list[Value]:
        pod = text(words_about_image(shown(c.image), string(maker.shown[0])))
        return _evidence(pod, string(maker.shown[1]), certainty)

    return let(container, lambda c: let(maker_of_image(c), lambda maker: of_maker(c, maker)))


def _device_word(name: Expression) -> Expression:
    """`_device_word` of `name`."""
    longest = MAX_NAME_CHARACTERS

    def word(t: Expression) -> Expression:
        has_maker = any_of(*(t.contains(maker) for maker in ("gpu", *GPU_MAKERS)))
        begin = choose((t.size() > longest, t.substring(0, longest)), otherwise=t)
        has_model = expression([begin.findAll("[a-z0-9.]+")]).exists(
            lambda words: all_of(
                not_(is_in("mig", words)), words.exists(lambda w: is_in(w, _MODELS))
            )
        )
        return _word(any_of(has_maker, has_model))

    return let(name, lambda t: t.lowerAscii(), word)


def _visible_variable(prefixes: tuple[str, ...], suffix: str = "") -> Expression:
    """Return the name that `_visible_variable` returns; the last entry of a name decides."""

    def is_sign(e: Expression) -> Expression:
        signs = [e.name.startsWith(prefix) for prefix in prefixes]
        return any_of(*signs, *([e.name.endsWith(suffix)] if suffix else []))

    def names_in(c: Expression) -> Expression:
        env = get(c.raw, "env", [])
        return let(
            env.filter(lambda e: e.name.endsWith(DRIVER_VARIABLE_SUFFIX)),
            lambda lists: _hidden_variables(c, lists),
            lambda hidden: env.filter(
                lambda e: all_of(is_sign(e), not_(is_in(e.name, hidden)))
            ).map(lambda e: string(e.name)),
        )

    return let(
        OBJECT.containers.map(names_in).filter(lambda names: names.size() > 0),
        lambda found: choose((found.size() == 0, ""), otherwise=found[0][0]),
    )


def _hidden_variables(c: Expression, lists: Expression) -> Expression:
    """Return the names of variables that hide GPUs; `lists` are those with lists of devices."""

    def hides(e: Expression) -> Expression:
        is_known = c.variables.exists(lambda v: all_of(v.name == e.name, v.isVisible))
        entries = lists.filter(lambda o: o.name == e.name)
        last = expression([entries]).map(lambda s: s[s.size() - 1])
        return all_of(not_(is_known), last.exists(lambda e: is_in(_value(e), VALUES_HIDING_GPUS)))

    known = c.variables.filter(
        lambda v: all_of(v.isVisible, is_in(v.state, ["hidden", "driver only"]))
    )
    others = lists.filter(hides)
    return known.map(lambda v: string(v.name)) + others.map(lambda e: string(e.name))


def _value(e: Expression) -> Expression:
    """Return the value of the entry `e`; any text, if it is taken from elsewhere."""
    return choose((has(e, "valueFrom"), "x"), otherwise=get(e, "value", ""))


def _hinted_key(profile: Profile) -> Expression:
    preferred = (
        PREFERRED_TERMS.map(lambda t: selected_labels(get(t, "preference.matchExpressions", [])))
        .filter(lambda found: found.size() > 0)
        .map(lambda found: found[0])
    )

    def is_about_gpus(t: Expression) -> Expression:
        is_known = any_of(
            is_in(t.key, POLICY.resources), POLICY.resourcePatterns.exists(lambda p: fits(t.key, p))
        )
        is_of_taint = any_of(*(tolerates(t, taint) for taint in dict.fromkeys(profile.taints)))
        is_meant = any_of(
            has_only_gpu_nodes(t.key), all_of(t.key.contains("gpu"), is_known), is_of_taint
        )
        return all_of(get(t, "key", "") != "", is_meant)

    tolerated = get(OBJECT.spec, "tolerations", []).filter(is_about_gpus)
    return let(
        preferred + tolerated.map(lambda t: t.key),
        lambda found: choose((found.size() > 0, string(found[0])), otherwise=""),
    )
