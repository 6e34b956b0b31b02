"""A step of the copies into a memory as scalar functions of one copy, to be mapped over a fleet on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.replay import PLACE
from velocirl.buffers.rollout import GOES_ON, TERMINATED, TRUNCATED
from velocirl.engine.lifecycle import Lifecycle
from velocirl.engine.registers import row
from velocirl.networks.encoding import Encoding
from velocirl.training.collecting import FAULT_IN_OBSERVATION, FAULT_IN_POLICY, FAULT_IN_REWARD, NO_FAULT
from velocirl.training.mapped_collecting import nothing, tell
from velocirl.training.mapped_replaying import EXPLORATION, STEP
from velocirl.training.off_policy import Behaviour


class Scene(NamedTuple):
    """What the copies write in a step, a place for each."""

    rows: Any  # (capacity,) records: the ring, or one group of it
    counts: Any  # (3,) of which PLACE is where the group of this step begins
    inputs: Any  # (copies, inputs) what is seen now
    outputs: Any  # (copies, outputs) what the network made of that
    noise: Any  # (copies, action size) what exploration keeps from step to step
    ends: Any  # (1, steps, copies) the place of a step in the iteration where an episode ended, else -1
    end_returns: Any  # (1, steps, copies) of that episode
    end_lengths: Any  # (1, steps, copies)
    fault: Any  # (copies,) the first number that was not one


class Stepping(NamedTuple):
    """The functions of a step, each for one copy."""

    see: Callable[..., Any]  # (i, copies, scene): before the first step of an iteration
    draw: Callable[..., Any]  # (i, copies, rng, scene): a random action
    act: Callable[..., Any]  # (i, copies, rng, scene, clock): an action of the network
    remember: Callable[..., Any]  # (i, copies, scene, clock): what came of it
    warm_up: Callable[..., Any]  # (i, copies, rng, scene, clock): draw, the environment, remember
    step: Callable[..., Any]  # (i, copies, rng, scene, clock): act, the environment, remember


def stepping(behaviour: Behaviour, encoding: Encoding, life: Lifecycle | None) -> Stepping:
    """Compose a step; `life` is None where the environment steps in Python."""
    draw_action, choose, write = behaviour
    encode, inputs = encoding.encode, encoding.inputs
    step_on, conclude, show = (nothing,) * 3 if life is None else (life.move, life.conclude, life.show)

    def see(i, copies, scene):
        scene.fault[i] = NO_FAULT
        into = row(scene.inputs, i)
        # Nothing is normalised, so that what is remembered stays right: neither centre nor scale is read.
        if encode(row(copies.observation, i), into, into, into) != 0:
            tell(scene, FAULT_IN_OBSERVATION, i, 0)

    def note(i, scene):
        sample, seen = scene.rows[scene.counts[PLACE] + i], row(scene.inputs, i)
        for j in range(inputs):
            sample.observation[j] = seen[j]

    def draw(i, copies, rng, scene):
        note(i, scene)
        sample = scene.rows[scene.counts[PLACE] + i]
        draw_action(row(copies.mask, i), row(rng, i), sample.action)
        write(copies.action, i, sample.action)

    def act(i, copies, rng, scene, clock):
        note(i, scene)
        sample, output = scene.rows[scene.counts[PLACE] + i], scene.outputs[i]
        check = np.float32(0)
        for k in range(len(output)):
            check += output[k] * 0
        if check != 0:
            tell(scene, FAULT_IN_POLICY, i, clock.counts[STEP])
        exploration = clock.numbers[EXPLORATION]
        choose(output, row(copies.mask, i), exploration, row(rng, i), row(scene.noise, i), sample.action)
        write(copies.action, i, sample.action)

    def remember(i, copies, scene, clock):
        sample, into, t = scene.rows[scene.counts[PLACE] + i], row(scene.inputs, i), clock.counts[STEP]
        sample.reward = copies.reward[i]
        if copies.reward[i] * 0 != 0:
            tell(scene, FAULT_IN_REWARD, i, t)
        ended = GOES_ON
        if copies.terminated[i]:
            ended = TERMINATED
        elif copies.truncated[i]:
            ended = TRUNCATED
        sample.ended = ended
        if encode(row(copies.observation, i), into, into, into) != 0:
            tell(scene, FAULT_IN_OBSERVATION, i, t)
        mask = row(copies.mask, i)
        if ended == GOES_ON:
            for j in range(inputs):
                sample.next_observation[j] = into[j]
            for k in range(len(sample.mask)):
                sample.mask[k] = mask[k]
            scene.ends[0, t, i] = -1
        else:
            finish(i, copies, sample, scene, t)

    def finish(i, copies, sample, scene, t):
        """At the end of an episode."""
        into = sample.next_observation
        if encode(row(copies.final_observation, i), into, into, into) != 0:
            tell(scene, FAULT_IN_OBSERVATION, i, t)
        for k in range(len(sample.mask)):
            sample.mask[k] = 0  # what is legal there is not known: by now it is the next episode's
        noise = row(scene.noise, i)
        for k in range(len(noise)):
            noise[k] = 0.0
        scene.ends[0, t, i] = t * scene.ends.shape[2] + i
        scene.end_returns[0, t, i] = copies.episode_return[i]
        scene.end_lengths[0, t, i] = copies.episode_length[i]

    def warm_up(i, copies, rng, scene, clock):
        draw(i, copies, rng, scene)
        step_on(copies, i)
        conclude(copies, i)
        show(copies, i)
        remember(i, copies, scene, clock)

    def step(i, copies, rng, scene, clock):
        act(i, copies, rng, scene, clock)
        step_on(copies, i)
        conclude(copies, i)
        show(copies, i)
        remember(i, copies, scene, clock)

    return Stepping(see, draw, act, remember, warm_up, step)
