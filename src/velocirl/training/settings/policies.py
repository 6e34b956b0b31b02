"""Translation of Stable-Baselines3's policies and `policy_kwargs` to settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
from gymnasium import spaces

from velocirl.engine.naming import nearest, plain_name
from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.specs import NAMED, THEN
from velocirl.training.settings.images import has_images, networks_of_images

# Known in addition to the settings.
OBSERVATION_SPACE, ACTION_SPACE, POLICY, POLICY_KWARGS = "observation_space", "action_space", "policy", "policy_kwargs"
Known = Mapping[str, Any]  # settings decided so far, and the names above
Settings = Mapping[str, Any]
KINDS = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")
THEIRS = ("stable_baselines3.", "sb3_contrib.")  # modules with known policies
LSTM_SIZE = 256  # as in sb3_contrib
# Torch's optimizers and their arguments, with their names here.
OPTIMISERS = {"Adam": "adam", "AdamW": "adamw", "SGD": "sgd", "RMSprop": "rmsprop", "RMSpropTFLike": "rmsprop"}
ARGUMENTS = {"eps": "epsilon", "weight_decay": "weight_decay", "momentum": "momentum", "alpha": "alpha"}
# Policy arguments, the values that are accepted and change nothing, and the replacement for other values.
FIXED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "ortho_init": ((True,), 'write initialiser="he_uniform" or another one; True is initialiser="orthogonal"'),
    "normalize_images": ((True,), "images of bytes are divided by 255: let the environment give other numbers"),
    "use_sde": ((False,), "state-dependent exploration is not here; noise_correlation= of SAC and TD3 is"),
    "use_expln": ((False,), "state-dependent exploration is not here"),
    "full_std": ((True,), "state-dependent exploration is not here"),
    "squash_output": ((False,), "actions of PPO are clipped to their bounds; SAC and TD3 squash them"),
    "clip_mean": ((2.0,), "state-dependent exploration is not here"),
    "n_critics": ((2,), "there are two critics; ReBRAC and CQL have two as well"),
    "shared_lstm": ((False, True), ""),
    "enable_critic_lstm": ((False, True), ""),
    "lstm_kwargs": ((None, {}), "an LSTM has a size and a number of layers: lstm_hidden_size, n_lstm_layers"),
}


FEATURES = "features "  # prefix of a feature extractor's class name in a configuration
OWN_FEATURES = f"module {FEATURES}"


@dataclass(frozen=True)
class Features:
    """Feature extractor: a class of torch modules, and the arguments that it is called with."""

    kind: type[Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Text that represents it in a configuration."""
        return f"{FEATURES}{self.kind.__qualname__}"


def with_features(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the class in `policy_kwargs` replaced by `network=Features(...)`."""
    given = config.get(POLICY_KWARGS)
    if not isinstance(given, Mapping) or given.get("features_extractor_class") is None:
        return dict(config)
    kind, arguments = given["features_extractor_class"], given.get("features_extractor_kwargs") or {}
    own = {name: value for name, value in given.items() if not name.startswith("features_extractor_")}
    network = config.get("network")
    if network is not None and not str(network).startswith(OWN_FEATURES):  # network of a saved agent
        raise ValueError("policy_kwargs: features_extractor_class is the network: leave network out")
    return {**config, POLICY_KWARGS: own, "network": Features(kind, dict(arguments))}


def policy_settings(value: Any, known: Known) -> Settings:
    """Return the network that a policy stands for, given the observation space."""
    name = policy_name(value)
    recurrent = "Lstm" in name
    if known.get("network") is not None:
        return {} if name.startswith("Mlp") else {"network": known["network"]}
    space, arguments = known[OBSERVATION_SPACE], known.get(POLICY_KWARGS) or {}
    widths = _both(arguments["net_arch"])[0] if "net_arch" in arguments else known["hidden"]
    dense = [f"mlp({', '.join(map(str, widths))})"] if widths else []
    if recurrent:
        size, layers = arguments.get("lstm_hidden_size", LSTM_SIZE), arguments.get("n_lstm_layers", 1)
        dense.append(f"lstm({size}{f', layers={layers}' if layers > 1 else ''})")
    images = networks_of_images(space)
    if name.startswith("Cnn"):
        described = images.get("", "nature")
        described = " ".join([described, *dense[len(dense) - recurrent :]])
        return {"network": described, "activation": "relu"}
    if name.startswith("MultiInput") and images:
        return {"network": {**images, **({THEN: " ".join(dense)} if dense else {})}, "activation": "relu"}
    if recurrent:
        return {"network": " ".join(dense)}
    return {"network": None} if images else {}  # native layers, as requested


def policy_name(value: Any) -> str:
    """Return the name of a policy that is given by name or as a class of Stable-Baselines3."""
    if isinstance(value, type):
        kind, module = value.__name__, f"{value.__module__}."
        if not module.startswith(THEIRS):
            raise ValueError(f"{kind} is a policy of your own: give its network as network=, a torch module")
        first = next((one for one in ("MultiInput", "Cnn") if one in kind), "Mlp")
        return f"{first}{'Lstm' * ('Recurrent' in kind)}Policy"
    if value not in KINDS:
        raise ValueError(f"{value!r} is not known; leave it out, and give a network of your own as network=")
    return value


def policy_kwargs_settings(value: Any, known: Known) -> Settings:
    """Translate the arguments of a policy into settings."""
    if not value:
        return {}
    settings: dict[str, Any] = {}
    for name, one in value.items():
        if name in FIXED:
            unasked, instead = FIXED[name]
            if not any(type(one) is type(usual) and one == usual for usual in unasked):
                raise ValueError(f"{name}={one!r}: {instead}")
        elif name in TRANSLATED:
            settings |= TRANSLATED[name](one, value, known)
        else:
            raise ValueError(f"{name!r} is not known{nearest(name, [*TRANSLATED, *FIXED])}")
    return settings


def _net_arch(value: Any, arguments: Settings, known: Known) -> Settings:
    """Translate widths of hidden layers, which may differ between actor and critic."""
    ours, theirs = _both(value)
    if _is_recurrent(known) or (_convolves(known) and arguments.get("features_extractor_kwargs")):
        return {}  # part of the network description
    network = known.get("network")
    own_features = str(network).startswith(OWN_FEATURES)
    if ours != theirs and (_convolves(known) or (own_features and "critic_hidden" not in known)):
        raise ValueError(f"net_arch={value!r}: with these features actor and critic are as wide: give a list")
    if _convolves(known):
        dense = f"mlp({', '.join(map(str, ours))})" if ours else ""
        if isinstance(network, Mapping):
            return {"network": {**{part: one for part, one in network.items() if part != THEN}, THEN: dense}}
        return {"network": f"{NAMED.get(str(network), network)} {dense}".strip()}
    if ours == theirs:
        return {"hidden": ours}
    if "critic_hidden" in known:
        return {"hidden": ours, "critic_hidden": theirs, "shared": False}
    if "critic" not in known:
        raise ValueError(f"net_arch={value!r}: there is one network: give a list")
    if not theirs:
        raise ValueError(f"net_arch={value!r}: critics of no hidden layer differ from the actor: give critic=")
    return {"hidden": ours, "critic": f"mlp({', '.join(map(str, theirs))})"}


def _is_recurrent(known: Known) -> bool:
    return known.get(POLICY) is not None and "Lstm" in policy_name(known[POLICY])


def _convolves(known: Known) -> bool:
    """Return whether the network was described for a policy of images."""
    if known.get(POLICY) is None or str(known.get("network")).startswith("module "):
        return False
    name = policy_name(known[POLICY])
    return name.startswith("Cnn") or (name.startswith("MultiInput") and has_images(known[OBSERVATION_SPACE]))


def _both(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the widths of the actor and of the critic."""
    if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0]  # as in versions before 1.8
    if not isinstance(value, Mapping):
        return _list_of(value), _list_of(value)
    critic = next((name for name in ("vf", "qf") if name in value), "vf")
    if not {"pi", critic} >= value.keys():
        raise ValueError(f"net_arch={value!r}: write dict(pi=[64, 64], vf=[64, 64]), or qf=")
    return _list_of(value.get("pi", ())), _list_of(value.get(critic, ()))


def _list_of(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, int) for one in value):
        raise ValueError(f"net_arch={value!r}: write a list of widths, [64, 64], or dict(pi=[64], vf=[64])")
    return tuple(value)


def _activation(value: Any, arguments: Settings, known: Known) -> Settings:
    name = plain_name(getattr(value, "__name__", str(value)), ACTIVATIONS)
    if name not in ACTIVATIONS:
        raise ValueError(f"activation_fn={value!r} is not known{nearest(name, ACTIVATIONS)}; give a module as network=")
    if _convolves(known) and name != "relu":
        if not arguments.get("net_arch"):
            return {}  # in SB3 it concerns layers after the convolutions: there are none
        raise ValueError(f"activation_fn={name} is that of convolutions here, too, which are relu there: leave it out")
    return {"activation": name}


def _log_std_init(value: Any, _: Settings, known: Known) -> Settings:
    """Translate the log standard deviation to units of half the range of actions."""
    if "log_deviation" not in known:
        raise ValueError("log_std_init is for PPO and A2C: SAC learns deviations, and TD3 has noise=")
    space = known.get(ACTION_SPACE)
    if not isinstance(space, spaces.Box):
        return {"log_deviation": value}
    half = np.where(space.bounded_below & space.bounded_above, (space.high.astype(float) - space.low) / 2, 1.0)
    if np.ptp(half) > 1e-6 * half.max():
        raise ValueError(
            f"log_std_init={value!r}: ranges of actions differ: give log_deviation=, in units of half of them"
        )
    return {"log_deviation": float(value) - log(float(half.max()))}


def _optimizer(_: Any, arguments: Settings, known: Known) -> Settings:  # noqa: ARG001
    kind = getattr(arguments.get("optimizer_class"), "__name__", "Adam")
    if kind not in OPTIMISERS:
        raise ValueError(
            f"optimizer_class={kind} is not here: give optimiser=, one of {', '.join(sorted(set(OPTIMISERS.values())))}"
        )
    given = dict(arguments.get("optimizer_kwargs") or {})
    if "betas" in given:
        given["beta1"], given["beta2"] = given.pop("betas")
    if "optimizer_kwargs" in arguments and "SGD" not in kind:
        given.setdefault("eps", 1e-8)  # torch's default
    own = {ARGUMENTS.get(name, name): value for name, value in given.items()}
    text = ", ".join(f"{name}={value}" for name, value in own.items())
    return {"optimiser": f"{OPTIMISERS[kind]}({text})" if text else OPTIMISERS[kind]}


def _features_kwargs(value: Any, arguments: Settings, known: Known) -> Settings:
    """Translate the size of the features of a convolutional network."""
    network = known.get("network")
    if not value:
        return {}
    if not isinstance(network, str) or network not in NAMED or value.keys() != {"features_dim"}:
        raise ValueError(
            "features_extractor_kwargs is for a features_extractor_class of your own: give that, or"
            ' network="cnn(32x8s4, 64x4s2) mlp(256)"'
        )
    stages, _, _ = NAMED[network].rpartition(" ")
    widths = value["features_dim"], *_list_of(arguments.get("net_arch", ()))
    return {"network": f"{stages} mlp({', '.join(map(str, widths))})"}


def _share_features(value: Any, _: Settings, known: Known) -> Settings:
    shared = "horizon" in known  # as in SB3: shared in PPO and A2C, separate in actor-critic algorithms
    if value is not shared:
        why = "actor and critic share it" if shared else "actor and critics have their own"
        raise ValueError(f"share_features_extractor={value!r}: {why}; give a torch module as network=")
    return {}


def _lstm(_: Any, __: Settings, known: Known) -> Settings:
    if not _is_recurrent(known):
        raise ValueError('it is for "MlpLstmPolicy" and the like: give that, or network="mlp(64) lstm(128)"')
    return {}


TRANSLATED: Mapping[str, Callable[[Any, Settings, Known], Settings]] = {
    "net_arch": _net_arch,
    "activation_fn": _activation,
    "log_std_init": _log_std_init,
    "optimizer_class": _optimizer,
    "optimizer_kwargs": _optimizer,
    "features_extractor_kwargs": _features_kwargs,
    "features_extractor_class": lambda *_: {},  # handled before, see `with_features`; None is the default
    "share_features_extractor": _share_features,
    "lstm_hidden_size": _lstm,
    "n_lstm_layers": _lstm,
}
