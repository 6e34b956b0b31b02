"""Modules that cannot be trained are refused before training, by name and with advice."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from velocirl.networks.declared import Columns
from velocirl.networks.encoding import encoding_for
from velocirl.networks.specs import parse_network
from velocirl.networks.torch.checks import check_module, nondeterministic_operations
from velocirl.networks.torch.modules import build_module
from velocirl.networks.torch.network import TorchNetwork

WIDTHS = (3, 1)  # of a policy and a value
CHOICE = [[Columns(3, 0.01)], [Columns(1)]]
GAUSSIAN = [[Columns(2, 0.01), Columns(2, free=0.0)], [Columns(1)]]
FLAT = encoding_for(Box(-1, 1, (6,)), False)


class Made(nn.Module):
    """A module whose forward is a function of it; the layer gives what a policy should."""

    def __init__(self, function, **parts):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)


def refused(module, message, encoding=FLAT):
    torch.manual_seed(0)
    network = TorchNetwork(module, encoding, WIDTHS)
    with pytest.raises(ValueError, match=message):
        check_module(network, "Mine")
    assert not network.gradient.any()


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize(
    ("spec", "space"),
    [
        ("mlp(8)", Box(-1, 1, (6,))),
        ("cnn(4) mlp(8)", Box(0, 255, (6, 6, 3), np.uint8)),
        ("mlp(16) lstm(8, layers=2)", Discrete(9)),
        ({"camera": "cnn(4, pool=true)", "then": "gru(8)"}, Dict({"camera": Box(0, 1, (4, 4)), "x": Discrete(3)})),
    ],
)
def test_our_own_modules_pass(spec, space, autocast):
    for groups in (CHOICE, GAUSSIAN):
        encoding = encoding_for(space, False)
        module = build_module(
            parse_network(spec), encoding, groups, activation="relu", initialiser="orthogonal",
            generator=np.random.default_rng(0),
        )  # fmt: skip
        widths = tuple(sum(one.size for one in group) for group in groups)
        network = TorchNetwork(module, encoding, widths, autocast=autocast)
        before = network.to_host()
        check_module(network, "ours")
        np.testing.assert_array_equal(network.to_host(), before)
        assert not network.gradient.any()
        assert nondeterministic_operations(network) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda self, x: self.layer(x)[:, :3],
            r"Made must give a tensor \(3, 4\), or a tuple of tensors \(3, 3\), \(3, 1\); got a tensor \(3, 3\)",
        ),
        (lambda self, x: (self.layer(x), x[:, :1]), r"got a tuple of a tensor \(3, 4\), a tensor \(3, 1\)"),
        (lambda self, x: [self.layer(x)], "got a list"),
        (lambda self, x: self.layer(x).detach(), r"the policy .* depends on no parameter.*without detach\(\)"),
        (
            lambda self, x: (self.layer(x)[:, :3], torch.zeros(len(x))),
            r"Mine: the value \(the last column\) depends on no parameter",
        ),
        (
            lambda self, x: (torch.zeros(len(x), 3), self.layer(x)[:, 3]),
            "Mine: the policy .* depends on no parameter",
        ),
        (lambda self, x: self.layer(x) / 0, "outputs that are not finite"),
        (lambda self, x: self.layer(x) + torch.rand(()), "different outputs for the same observation: it draws random"),
        (lambda self, x: self.layer(x - x.mean(0)), "the output of a row depends on the rows beside it"),
        (lambda self, x: self.layer(x) * len(x), "another output for a row alone"),
        (lambda self, x: self.layer(x.mul_(2)), "changes its observation in place"),
        (lambda self, x: self.layer(x).squeeze(), r"must give a tensor \(1, 4\).*got a tensor \(4,\)"),
    ],
)
def test_what_a_module_may_not_do(function, message):
    refused(Made(function), message)


class Critic(nn.Module):
    """Values of actions."""

    def __init__(self, reads):
        super().__init__()
        self.layer, self.reads = nn.Linear(8, 2), reads

    def forward(self, observation, action):
        return self.layer(torch.cat([observation, self.reads(action)], dim=1))


def test_critics_have_to_read_the_action():
    for reads, message in (
        (lambda action: 0 * action, "Mine does not depend on the action: read it, and let gradients through to it"),
        (lambda action: action.detach(), "Mine does not depend on the action"),
        (lambda action: action, None),
    ):
        network = TorchNetwork(Critic(reads), FLAT, (2,), extra=2)
        if message is None:
            check_module(network, "Mine")
        else:
            with pytest.raises(ValueError, match=message):
                check_module(network, "Mine")
        assert not network.gradient.any()


class Averages(nn.Module):
    """A norm of somebody's own, whose statistics every pass changes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, observation):
        outputs = self.layer(observation)
        self.mean.mul_(0.9).add_(0.1 * outputs.detach().mean(0))
        return outputs - self.mean


def test_batch_statistics_that_would_be_taken_while_acting_are_refused_by_name():
    refused(Averages(), r"Mine: a forward pass changes the buffer mean of Mine \(Averages\).*use LayerNorm")
    refused(
        nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 4)),
        "the output of a row depends on the rows beside it",
    )
    for module in (nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), nn.Sequential(nn.Linear(6, 4))):
        for mode in (module.train(), module.eval()):
            check_module(TorchNetwork(mode, FLAT, WIDTHS), "Mine")


def test_dropouts_are_refused_by_name():
    refused(
        nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.1), nn.Linear(50, 4)),
        "different outputs for the same observation: 1 is a dropout.* remove it",
    )


def test_hidden_state_is_refused():
    def forward(self, x):
        self.hidden = self.hidden + x.detach().sum()
        return self.layer(x + self.hidden)

    refused(Made(forward, hidden=torch.zeros(())), "keeps something from call to call.*state_size")


def test_parameters_that_are_not_finite_are_refused_by_name():
    module = nn.Linear(6, 4)
    with torch.no_grad():
        module.bias[2] = torch.inf
    refused(module, "parameter bias has values that are not finite")


def test_a_module_without_parameters_is_refused():
    refused(nn.Linear(6, 4).requires_grad_(False), "has no parameters to learn")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda self, x, state: self.layer(x),
            r"Made has a state_size, so its forward must give a tuple \(outputs, next_state\)",
        ),
        (
            lambda self, x, state: (self.layer(x), state[:, :1]),
            r"the shape \(rows, state_size\) = \(3, 6\), got \(3, 1\)",
        ),
    ],
)
def test_recurrent_modules(function, message):
    refused(Made(function, state_size=6), message)


def test_an_unroll_that_differs_from_single_steps_is_refused():
    class Forgetful(nn.Module):
        state_size = 6

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, observation, state):
            return self.layer(observation + state), observation + state

        def unroll(self, observation, starts, state):
            return self.layer(observation.cumsum(0) + state)  # nothing begins anew

    refused(Forgetful(), "unroll differs from forward at step 1")


def test_errors_of_the_module_say_what_it_was_given():
    network = TorchNetwork(nn.Linear(7, 4), FLAT, WIDTHS)
    with pytest.raises(RuntimeError) as caught:
        check_module(network, "Mine")
    assert any("Mine was given an observation (3, 6)" in note for note in caught.value.__notes__)


def test_operations_in_no_fixed_order_are_named():
    def forward(self, x):
        return self.layer(x.put(torch.tensor([0]), torch.ones(1)))

    network = TorchNetwork(Made(forward), FLAT, WIDTHS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none escapes
        for setting in ((False, False), (True, True), (True, False)):
            torch.use_deterministic_algorithms(setting[0], warn_only=setting[1])
            try:
                assert nondeterministic_operations(network) == ["put_"]
                enabled = torch.are_deterministic_algorithms_enabled()
                assert (enabled, torch.is_deterministic_algorithms_warn_only_enabled()) == setting
            finally:
                torch.use_deterministic_algorithms(False)
    assert not network.gradient.any()
