"""Validation of policy modules on a few rows before training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from velocirl.networks.encoding import Encoding
from velocirl.networks.torch.network import TorchNetwork

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.checks needs torch: pip install "velocirl[torch]"') from error

ROWS = 3
# Relative to the largest number of a column. The same kernels give the same numbers for the same row, except for sums
# in no fixed order. Other kernels, for another number of rows, round differently.
SAME_KERNELS = 1e-5
OTHER_KERNELS = {None: 0.01, torch.float16: 0.05, torch.bfloat16: 0.2}
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def check_module(network: TorchNetwork, name: str) -> None:
    """Raise if a module cannot learn or its rollouts would not be repeatable; the gradient is zero afterwards."""
    with network.standing_still():
        _check(network, name)


def _check(network: TorchNetwork, name: str) -> None:
    _check_parameters(network, name)
    encoding, generator = network.encoding, torch.Generator().manual_seed(0)
    inputs = torch.rand((ROWS, encoding.inputs + network.extra), generator=generator).to(network.device)
    weights = torch.randn((ROWS, network.outputs), generator=generator).to(network.device)
    with _unchanged(network, inputs, name), _advice(encoding, name), network.learning():
        outputs, _ = network.forward(inputs)
    _check_outputs(network, inputs, outputs, name)
    _check_gradients(network, inputs, weights, name)
    _check_rows(network, inputs, outputs, name)
    if network.extra:
        _check_slopes(network, inputs, name)
    if network.state_size:
        _check_sequence(network, inputs, name)


def nondeterministic_operations(network: TorchNetwork) -> list[str]:
    """Return the operations of a forward and a backward pass that torch reports as nondeterministic on this device."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    shape = (2, ROWS) if network.state_size else (ROWS,)
    inputs = torch.full((*shape, network.encoding.inputs + network.extra), 0.5, device=network.device)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            with network.learning():
                if network.state_size:
                    starts = torch.zeros(shape, dtype=torch.bool, device=network.device)
                    outputs = network.unroll(inputs, starts)
                else:
                    outputs, _ = network.forward(inputs)
                network.backward(torch.ones_like(outputs))
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            network.clear()
    named = (_operation(str(warning.message)) for warning in told)
    return list(dict.fromkeys(operation for operation in named if operation))


def _operation(message: str) -> str | None:
    found = re.match(r"(\S+) does not have a deterministic implementation", message)
    if found:
        return found[1]
    return "cuBLAS" if "CUBLAS_WORKSPACE_CONFIG" in message else None


def _check_parameters(network: TorchNetwork, name: str) -> None:
    if not network.num_parameters:
        raise ValueError(f"{name} has no parameters to learn: give it layers, and leave requires_grad on")
    for which, one in network.module.named_parameters():
        if not bool(torch.isfinite(one).all()):
            raise ValueError(f"{name}: parameter {which} has values that are not finite; initialise it again")


@contextmanager
def _advice(encoding: Encoding, name: str) -> Iterator[None]:
    """Add the module's input shapes to any exception it raises."""
    try:
        yield
    except Exception as error:
        shapes = {part.name: (ROWS, *part.shape) for part in encoding.parts}
        seen = f"an observation {shapes['']}" if list(shapes) == [""] else f"a dict of observations {shapes}"
        error.add_note(f"{name} was given {seen}, where {ROWS} is the number of rows, which may be any")
        raise


@contextmanager
def _unchanged(network: TorchNetwork, inputs: Tensor, name: str) -> Iterator[None]:
    """Raise if the forward pass within this context changes a buffer or its own input."""
    before = {which: one.clone() for which, one in network.module.named_buffers()}
    given = inputs.clone()
    yield
    for which, one in network.module.named_buffers():
        if which not in before or not torch.equal(one, before[which]):
            owner, _, buffer = which.rpartition(".")
            kind = type(network.module.get_submodule(owner)).__name__
            raise ValueError(
                f"{name}: a forward pass changes the buffer {buffer} of {owner or name} ({kind}), so that what is"
                " learnt depends on the order of calls: use LayerNorm or GroupNorm in place of batch statistics, or"
                " call eval() on it"
            )
    if not torch.equal(inputs, given):
        raise ValueError(f"{name} changes its observation in place: write x = x / 255, not x /= 255")


def _check_outputs(network: TorchNetwork, inputs: Tensor, outputs: Tensor, name: str) -> None:
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(f"{name} gives outputs that are not finite for observations between 0 and 1")
    for learns in (False, True):
        again = _forward(network, inputs, learns)
        if _differ(outputs, again, SAME_KERNELS):
            dropouts = [which for which, one in network.module.named_modules() if isinstance(one, _DROPOUTS)]
            cause = (
                f"{', '.join(dropouts)} is a dropout, and a policy must give the same probabilities when it learns as"
                " when it acted: remove it"
                if dropouts
                else "it draws random numbers or keeps something from call to call: remove that, or give the module a"
                " state_size and take the state as an argument"
            )
            raise ValueError(f"{name} gives different outputs for the same observation: {cause}")


def _check_gradients(network: TorchNetwork, inputs: Tensor, weights: Tensor, name: str) -> None:
    columns = {"output": slice(None)}
    if len(network.columns) > 1:
        columns = {"policy (all columns but the last)": slice(0, -1), "value (the last column)": slice(-1, None)}
    for what, which in columns.items():
        output_gradient = torch.zeros_like(weights)
        output_gradient[:, which] = weights[:, which]
        with network.learning():
            network.forward(inputs)
            dependent = network.depends_on_parameters
            if dependent:
                network.backward(output_gradient)
        reached = dependent and bool(network.gradient.any())
        finite = bool(torch.isfinite(network.gradient).all())
        network.clear()
        if not reached:
            raise ValueError(
                f"{name}: the {what} depends on no parameter, so that it cannot learn: let gradients through, without"
                " detach(), no_grad(), argmax or NumPy on the way"
            )
        if not finite:
            raise ValueError(f"{name}: the gradient of the {what} is not finite")


def _check_slopes(network: TorchNetwork, inputs: Tensor, name: str) -> None:
    """Raise if the output does not depend on the extra inputs, such as a critic's action."""
    with network.reading_back():
        outputs, _ = network.forward(inputs)
        slopes = network.input_gradient(torch.ones_like(outputs))[:, network.encoding.inputs :]
    if not bool(slopes.any()):
        raise ValueError(f"{name} does not depend on the action: read it, and let gradients through to it")


def _check_rows(network: TorchNetwork, inputs: Tensor, outputs: Tensor, name: str) -> None:
    others = inputs.clone()
    others[1:] = 1.0 - others[1:]
    beside_others = _forward(network, others, learns=False)
    if _differ(outputs, torch.cat([beside_others[:1], outputs[1:]]), SAME_KERNELS):
        raise ValueError(
            f"{name}: the output of a row depends on the rows beside it, which are other episodes: take no statistics"
            " over the first dimension"
        )
    alone = _forward(network, inputs[:1], learns=False)
    if _differ(outputs, torch.cat([alone, outputs[1:]]), OTHER_KERNELS[network.autocast]):
        raise ValueError(f"{name} gives another output for a row alone than for the same row among {ROWS}")


def _check_sequence(network: TorchNetwork, inputs: Tensor, name: str) -> None:
    """Raise if an unrolled sequence, with an episode start inside, differs from single steps."""
    steps = torch.stack([inputs, inputs.flip(0), inputs])
    starts = torch.zeros(steps.shape[:2], dtype=torch.bool, device=network.device)
    starts[1, 0] = True
    unrolled = network.unroll(steps, starts)
    state: Any = torch.zeros((ROWS, network.state_size), device=network.device)
    for step, seen in enumerate(steps):
        outputs, state = network.forward(seen, state * (1.0 - starts[step].float()).unsqueeze(-1))
        if _differ(outputs, unrolled[step], OTHER_KERNELS[network.autocast]):
            raise ValueError(
                f"{name}: unroll differs from forward at step {step}: where `starts` is true the state must be zero"
                " before that step"
            )


def _forward(network: TorchNetwork, inputs: Tensor, learns: bool) -> Tensor:
    if not learns:
        return network.forward(inputs)[0]
    with network.learning():
        return network.forward(inputs)[0]


def _differ(some: Tensor, others: Tensor, tolerance: float) -> bool:
    scale = some.abs().amax(0)
    scale = scale.clamp_min(1e-30 + 0.01 * float(scale.max()))
    return not bool(((some - others).abs() <= tolerance * scale).all())
