"""Do the tests find the silent bugs of reinforcement learning? Plants each into a copy of the sources and sees.

    python tools/planted_bugs.py                 all of them, about a quarter of an hour on two cores
    python tools/planted_bugs.py truncation gae  those whose name contains one of these words

First the named tests run on the unchanged copy, where they must pass; then each bug must make one of its tests fail.
Ends with 1 if a bug survives, or if the text that it replaces is no longer in the sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 240  # seconds; a bug that makes a test hang is found too
OUTDATED = ("AttributeError", "ImportError", "NameError")  # what a bug fails with that is written for older sources

BUFFERS, RECORDING = "tests/buffers/test_returns.py", "tests/program/rows/test_recording.py"
PPO, DQN, SAC, QUANTILES, DISCRETE = (
    f"tests/algorithms/test_{name}.py" for name in ("ppo", "dqn", "sac", "qr_dqn", "discrete_sac")
)
LEARNING, PPO_LEARNING = (f"tests/algorithms/test_{name}_learning.py" for name in ("dqn", "ppo"))
AGENT, EVALUATION, CALLBACKS = (f"tests/training/test_{name}.py" for name in ("agent", "evaluation", "callbacks"))
ACTOR = "tests/training/actors/test_actor.py"
ENCODINGS = "tests/contracts/test_encodings.py"
FAULTS, NORMALISING = (f"tests/program/test_{name}.py" for name in ("faults", "normalizing"))
BLOCK, UPDATES, TWINS = (f"tests/backends/cpu/test_{name}.py" for name in ("rollout", "replay", "actor_critic_update"))
ROLLOUT, MINIBATCHES, NETWORKS, PROGRAM, RECURRENT = (
    f"tests/backends/batch/test_{name}.py" for name in ("rollout", "minibatches", "networks", "program", "recurrent")
)
N_STEP, SEGMENTS = "tests/buffers/test_n_step.py", "tests/buffers/test_segments.py"
MEMORY_FILES = "tests/runs/test_memory_files.py"
MEMORY_OF_RANKS = "tests/backends/cpu/test_ranks.py"
CONTRACTS, MEMORIES = "tests/contracts/test_algorithms.py", "tests/contracts/test_memories.py"
FLEET = f"{RECORDING}::test_every_transition_of_a_fleet_in_python"
TEN_UPDATES = f"{BLOCK}::test_ten_updates_by_torch[Counter-v0-changes0]"
RESUME = f"{AGENT}::test_going_on_from_a_file_is_going_on[choices]"


class Bug(NamedTuple):
    """A text of a source file, what to put in its place, and the tests of which one must then fail."""

    name: str
    file: str  # below src/velocirl
    text: str
    bug: str
    tests: tuple[str, ...]


BUGS = (
    Bug(
        "truncation as termination",
        "program/rows/recording.py",
        "        ended = TRUNCATED\n",
        "        ended = TERMINATED\n",
        (FLEET,),
    ),
    Bug(
        "bootstrapping where both flags are set",
        "program/rows/recording.py",
        "    if terminated:\n        ended = TERMINATED\n    elif truncated:\n        ended = TRUNCATED\n",
        "    if truncated:\n        ended = TRUNCATED\n    elif terminated:\n        ended = TERMINATED\n",
        (FLEET,),
    ),
    Bug(
        "bootstrapping from the reset observation",
        "program/rows/recording.py",
        "if encode(sight.final[i], sight.table,",
        "if encode(sight.observation[i], sight.table,",
        (FLEET,),
    ),
    Bug(
        "final value of an earlier rollout",
        "program/rows/recording.py",
        "    for k in range(rollout.finals.shape[2]):\n        rollout.finals[i, t, k] = 0.0\n",
        "",
        (FLEET,),
    ),
    Bug(
        "gae forgets what follows the rollout",
        "buffers/returns.py",
        'target_t = A_t + V_t\n    """\n    following, next_value = np.float32(0), value[len(value) - 1]\n',
        'target_t = A_t + V_t\n    """\n    following, next_value = np.float32(0), np.float32(0)\n',
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "gae flows from one episode into another",
        "buffers/returns.py",
        "            following, next_value = np.float32(0), final_value[t]\n"
        "        delta = reward[t] + settings.gamma * next_value - value[t]\n",
        "            next_value = final_value[t]\n        delta = reward[t] + settings.gamma * next_value - value[t]\n",
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "value target off by one",
        "buffers/returns.py",
        "target[t] = following + value[t]\n",
        "target[t] = following + next_value\n",
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "vtrace without its limit",
        "buffers/returns.py",
        "min(ratio[t], settings.rho_limit) * delta",
        "max(ratio[t], settings.rho_limit) * delta",
        (f"{BUFFERS}::test_vtrace[python]",),
    ),
    Bug(
        "vtrace's ratio counted in the advantage too",
        "buffers/returns.py",
        "advantage[t] = delta + later",
        "advantage[t] = min(ratio[t], settings.rho_limit) * delta + min(ratio[t], settings.c_limit) * later",
        (f"{BUFFERS}::test_vtrace[python]",),
    ),
    Bug(
        "only the last state of a repeated action judged",
        "engine/constraints.py",
        "costs[k] += np.float32((violated >> k) & 1)",
        "costs[k] = np.float32((violated >> k) & 1)",
        ("tests/engine/test_constraints.py::test_each_state_of_a_repeated_action_is_judged",),
    ),
    Bug(
        "vtrace computed once and then left",
        "program/rollout.py",
        '*when(reestimates, phase("estimate", once("order_rows"), once("before_epoch"), once("columns"))),\n',
        "\n",
        (f"{BLOCK}::test_vtrace_follows_the_policy",),
    ),
    Bug(
        "final observations not normalised",
        "program/rows/recording.py",
        "        if encode(sight.final[i], sight.table, sight.centre, sight.inverse_scale, cuts.inputs[place]) != 0:\n"
        "            tell(log, FAULT_IN_OBSERVATION, i, t)\n",
        "        for j in range(cuts.inputs.shape[1]):\n            cuts.inputs[place, j] = sight.final[i][j]\n",
        (f"{RECORDING}::test_normalised_rollouts",),
    ),
    Bug(
        "normaliser changed by acting",
        "training/deep_agent.py",
        "        observations, masks, single = batched(self.source, observation, action_masks)\n",
        "        observations, masks, single = batched(self.source, observation, action_masks)\n"
        "        self.observation_moments.add(observations.sum(0), (observations**2).sum(0), len(observations))\n",
        (f"{NORMALISING}::test_looking_changes_nothing",),
    ),
    Bug(
        "normaliser not saved",
        "training/deep_agent.py",
        '"observation.moments": moments, **self.policy.buffers()}\n',
        '"observation.moments": np.zeros_like(moments), **self.policy.buffers()}\n',
        (f"{NORMALISING}::test_saved_with_the_model",),
    ),
    Bug(
        "scale of rewards across episodes",
        "program/rows/recording.py",
        "rollout.discounted[i] = 0.0 if row.ended != GOES_ON else discounted",
        "rollout.discounted[i] = discounted",
        (f"{RECORDING}::test_discounted_returns_for_the_scale_of_rewards",),
    ),
    Bug(
        "advantages of one sample normalised",
        "algorithms/online/ppo.py",
        "settings.normalise_advantages > 0.0 and means.rows > 1.0",
        "settings.normalise_advantages > 0.0",
        (f"{PPO}::test_a_single_advantage_is_not_normalised",),
    ),
    Bug(
        "advantages normalised by one share",
        "backends/cpu/driver.py",
        "            total += sums.own[share, s]\n",
        "            total += sums.own[0, s]\n",
        (f"{BLOCK}::test_gradient_of_a_minibatch[2-IdentityContinuous-v0]",),
    ),
    Bug(
        "identical policy streams",
        "collect/rollouts.py",
        "[random.streams(one.policy, part.copies, part.first) for one in seeds]",
        "[np.repeat(random.streams(one.policy, 1), part.copies, axis=0) for one in seeds]",
        (f"{RECORDING}::test_no_two_streams_are_alike",),
    ),
    Bug(
        "seeded anew on resume",
        "collect/rollouts.py",
        '        here.store(self.rng, state["policy.rng"])\n',
        "",
        (RESUME,),
    ),
    Bug(
        "episodes repeat on resume",
        "collect/sources.py",
        '        self.host.begin_anew(int(state["policy.rng"][0, 0] >> np.uint64(33)))\n',
        "        pass\n",
        (f"{AGENT}::test_gymnasium_goes_on_with_new_episodes",),
    ),
    Bug(
        "optimiser forgotten on resume",
        "backends/cpu/networks.py",
        'arrays[f"{name}.moments"], arrays[f"{name}.steps"] = self.moments[name], self.steps[name]\n',
        'arrays[f"{name}.moments"] = self.moments[name]\n',
        (RESUME,),
    ),
    Bug(
        "schedule begins anew on resume",
        "training/persistence.py",
        "        goal = None if document.goal is None else Goal(*document.goal)\n",
        "        goal = Goal(document.steps, document.goal[1] - document.steps)\n",
        (RESUME,),
    ),
    Bug(
        "action stored after clipping",
        "program/rows/commands.py",
        "        held = min(max(row.action[k], bounds[LOW, k]), bounds[HIGH, k])\n",
        "        held = min(max(row.action[k], bounds[LOW, k]), bounds[HIGH, k])\n        row.action[k] = held\n",
        (f"{RECORDING}::test_what_is_drawn_is_stored_before_it_is_clipped",),
    ),
    Bug(
        "masks are broadcast",
        "training/actors/acting.py",
        "    if not head.masked or masks.shape != shape:\n",
        "    if not head.masked:\n",
        (f"{ACTOR}::test_other_masks_are_refused",),
    ),
    Bug(
        "masks not stored",
        "program/rows/acting.py",
        "        row.mask[k] = mask[k]\n",
        "        row.mask[k] = 1\n",
        (f"{RECORDING}::test_masks_are_stored_and_kept_to",),
    ),
    Bug(
        "loss scale depends on the number of threads",
        "backends/cpu/driver.py",
        "scale, limit = np.float32(1.0 / weight), ",
        "scale, limit = np.float32(len(gradients) / weight), ",
        (f"{BLOCK}::test_the_gradient_does_not_depend_on_the_number_of_threads",),
    ),
    Bug(
        "loss scale depends on the size of a minibatch",
        "backends/cpu/driver.py",
        "scale, limit = np.float32(1.0 / weight), ",
        "scale, limit = np.float32(1.0 / 32.0), ",
        (f"{BLOCK}::test_gradient_of_a_minibatch[1-Counter-v0]",),
    ),
    Bug(
        "accumulated gradients cleared",
        "backends/cpu/driver.py",
        "    if job.begins != 0:\n",
        "    if job.begins >= 0:\n",
        (f"{BLOCK}::test_accumulated_minibatches_are_one_large_one",),
    ),
    Bug(
        "samples drawn twice",
        "backends/cpu/epochs.py",
        "own.order[own.filled[m]] = place_of(own, copy, t)",
        "own.order[own.filled[m]] = place_of(own, copy, t // 2)",
        (f"{BLOCK}::test_every_sample_is_drawn_once_in_an_epoch[samples-1]",),
    ),
    Bug(
        "last sample of each minibatch dropped",
        "backends/cpu/epochs.py",
        "own.rows[share, 1] = own.own[share] * (m + 1) // minibatches * unit\n",
        "own.rows[share, 1] = own.own[share] * (m + 1) // minibatches * unit - 1\n",
        (TEN_UPDATES,),
    ),
    Bug(
        "minibatches empty in some shares",
        "backends/cpu/epochs.py",
        "    if batch == 0:\n",
        "    if batch < 0:\n",
        (f"{PPO_LEARNING}::test_a_minibatch_of_which_no_share_has_a_sample_is_none",),
    ),
    Bug(
        "threads go on with old parameters",
        "backends/cpu/driver.py",
        "    run_counted(crew, OPTIMISER, trained.pack, pieces, 0, timed)\n",
        "",
        (TEN_UPDATES,),
    ),
    Bug(
        "bias correction off by one",
        "backends/cpu/driver.py",
        "prepare(settings, learning[0].learning_rate, number, factors)",
        "prepare(settings, learning[0].learning_rate, number + 1, factors)",
        (TEN_UPDATES,),
    ),
    Bug(
        "divergence does not stop",
        "backends/cpu/driver.py",
        "one.kind == STOP and told != 0:",
        "one.kind == STOP and told < 0:",
        (f"{BLOCK}::test_divergence_stops_an_update",),
    ),
    Bug(
        "clip on the wrong side",
        "algorithms/online/ppo.py",
        "(advantage > 0.0 and ratio > high) or (advantage < 0.0 and ratio < low)",
        "(advantage > 0.0 and ratio < low) or (advantage < 0.0 and ratio > high)",
        (f"{PPO}::test_clip_by_hand",),
    ),
    Bug(
        "entropy with the wrong sign",
        "algorithms/online/ppo.py",
        "policy_weight, -settings.entropy_coefficient, gradient)",
        "policy_weight, settings.entropy_coefficient, gradient)",
        (f"{PPO}::test_more_entropy_is_better",),
    ),
    Bug(
        "clipped values still learn",
        "algorithms/online/ppo.py",
        "slope = 0.0 if abs(change) > settings.value_clip else held_error",
        "slope = held_error",
        (f"{PPO}::test_gradient_and_metrics[categorical]",),
    ),
    Bug(
        "dual clip of good actions",
        "algorithms/online/ppo.py",
        "settings.dual_clip > 0.0 and advantage < 0.0 and ratio > settings.dual_clip",
        "settings.dual_clip > 0.0 and ratio > settings.dual_clip",
        (f"{PPO}::test_gradient_and_metrics[categorical]",),
    ),
    Bug(
        "nan in a reward not seen",
        "program/rows/recording.py",
        "    if row.reward * 0 != 0:\n        tell(log, FAULT_IN_REWARD, i, t)\n",
        "    if row.reward * 0 == 1:\n        tell(log, FAULT_IN_REWARD, i, t)\n",
        (f"{FAULTS}::test_in_a_reward[python-1-nan]",),
    ),
    Bug(
        "infinity hidden by the normaliser",
        "networks/encoding.py",
        "check += number * 0  # here, since an infinite number would not be seen once it is held within limits\n",
        "check += 0\n",
        (f"{FAULTS}::test_in_an_observation[python-True-inf]",),
    ),
    Bug(
        "offset forgotten where many observations are encoded",
        "networks/encoding.py",
        'found.centre[at], found.scale[at] = field["offset"], field["factor"]',
        'found.scale[at] = field["factor"]',
        (f"{ENCODINGS}::test_remembering_and_prefill[units-python-scaled]",),
    ),
    Bug(
        "observations folded as if the agent that continues read them raw",
        "training/continuing.py",
        "    scale = before.scale.astype(np.float64) / now.scale\n",
        "    scale = before.scale.astype(np.float64)\n",
        (f"{ENCODINGS}::test_continuing[bytes-normalised-raw]",),
    ),
    Bug(
        "constant columns blown up",
        "program/normalizing.py",
        "    return constant * 1.0 + (1.0 - constant) * (variance + EPSILON)\n",
        "    return variance + EPSILON\n",
        (f"{NORMALISING}::test_a_constant_is_only_centred[3.0]",),
    ),
    Bug(
        "recorded transitions never drawn",
        "backends/batch/ring.py",
        'np.where(full, state["memory.greatest"], np.float32(0))',
        "np.zeros(self.capacity, np.float32)",
        ("tests/training/test_prefill.py::test_with_priorities_each_record_of_the_data_can_be_drawn[python]",),
    ),
    Bug(
        "nan in a gradient not seen",
        "backends/cpu/driver.py",
        "    if squares * 0 != 0:\n",
        "    if squares < 0:\n",
        (f"{FAULTS}::test_in_the_gradient",),
    ),
    Bug(
        "checkpoint after an error",
        "training/agent.py",
        "                    listener.fail(self, error)\n",
        "                    listener.finish(self)\n",
        (f"{CALLBACKS}::test_an_error_is_told_and_goes_on_its_way",),
    ),
    Bug(
        "last episodes of an evaluation not played",
        "training/evaluation.py",
        "    wanted[: episodes % envs.num_envs] += 1\n",
        "",
        (f"{EVALUATION}::test_every_copy_plays_the_same_number_of_episodes",),
    ),
    Bug(
        "memory kept beyond the end of an episode",
        "program/rows/recording.py",
        "            rollout.state[i, k] = 0.0\n",
        "            rollout.state[i, k] *= 1.0\n",
        (f"{RECURRENT}::test_the_state_is_zero_after_an_end_and_nowhere_else[lstm]",),
    ),
    Bug(
        "memory cleared one step late when learning",
        "backends/batch/minibatches.py",
        "before = index[i] - extent.agents * extent.copies\n",
        "before = index[i] - 2 * extent.agents * extent.copies\n",
        (f"{MINIBATCHES}::test_every_sample_is_chosen_once_in_an_epoch[6]",),
    ),
    Bug(
        "memory of another copy when learning",
        "backends/batch/minibatches.py",
        "        state[c, k] = start_state[copy, k]\n",
        "        state[c, k] = start_state[c, k]\n",
        (f"{MINIBATCHES}::test_states_are_those_at_the_beginning_of_the_drawn_copies",),
    ),
    Bug(
        "memory of the end when learning",
        "program/rollout.py",
        '*when(recurrent, rows("forget", "t"))',
        '*when(recurrent, rows("forget", "t"), once("keep_start_state"))',
        (f"{RECURRENT}::test_learning_sees_what_the_rollout_saw[lstm]",),
    ),
    Bug(
        "cut episodes valued without their memory",
        "program/rows/recording.py",
        "        cuts.state[place, k] = rollout.state[i, k]\n",
        "        cuts.state[place, k] = 0.0\n",
        (f"{RECURRENT}::test_values_where_an_episode_is_cut_off[lstm]",),
    ),
    Bug(
        "value after the rollout is remembered",
        "backends/batch/collector.py",
        "self._forward(inputs, self.memory, outputs, remember=False)",
        "self._forward(inputs, self.memory, outputs, remember=True)",
        (f"{RECURRENT}::test_values_where_an_episode_is_cut_off[lstm]",),
    ),
    Bug(
        "memory lost on resume",
        "collect/rollouts.py",
        '            here.store(self.memory, state["policy.state"])\n',
        "            here.fill(self.memory, 0.0)\n",
        (f"{RECURRENT}::test_resumed_in_the_middle_of_episodes[lstm]",),
    ),
    Bug(
        "memory carried into the next episode of an evaluation",
        "training/evaluation.py",
        '"episode_start": starts}',
        '"episode_start": starts & False}',
        (f"{EVALUATION}::test_a_state_is_carried_on_to_the_end_of_its_episode",),
    ),
    Bug(
        "advantages normalised over half of a minibatch",
        "backends/batch/update.py",
        "lambda: self.device.sum_rows(added, sums)",
        "lambda: self.device.sum_rows(added[: len(added) // 2], sums)",
        (f"{PROGRAM}::test_the_loss_of_a_minibatch[categorical-True]",),
    ),
    Bug(
        "loss of a batch not divided by its rows",
        "backends/batch/functions.py",
        "    return np.float32(clock.numbers[i // rows, LOSS_SCALE] / rows)\n",
        "    return np.float32(clock.numbers[i // rows, LOSS_SCALE])\n",
        (f"{PROGRAM}::test_the_loss_of_a_minibatch[categorical-False]",),
    ),
    Bug(
        "divergence does not stop a batch",
        "backends/batch/functions.py",
        "            clock.counts[s, STOPPED] = 1\n",
        "            clock.counts[s, STOPPED] = 0\n",
        (f"{PROGRAM}::test_what_is_counted_and_where_an_update_stops",),
    ),
    Bug(
        "accumulated gradients not averaged",
        "backends/batch/networks.py",
        "    share = 1.0 / (max(clock.counts[s, GATHERED], 1) * clock.numbers[s, LOSS_SCALE])\n",
        "    share = 1.0 / clock.numbers[s, LOSS_SCALE]\n",
        (f"{NETWORKS}::test_scaling_of_the_gradient",),
    ),
    Bug(
        "scale of fp16 not undone",
        "backends/batch/networks.py",
        "    share = 1.0 / (max(clock.counts[s, GATHERED], 1) * clock.numbers[s, LOSS_SCALE])\n",
        "    share = 1.0 / max(clock.counts[s, GATHERED], 1)\n",
        (f"{NETWORKS}::test_scaling_of_the_gradient",),
    ),
    Bug(
        "gradients of a batch cleared between minibatches",
        "backends/batch/update.py",
        "network.backward(given, accumulate or again, one.name)",
        "network.backward(given, again, one.name)",
        (f"{ROLLOUT}::test_accumulated_minibatches_are_one_large_one",),
    ),
    Bug(
        "samples of a batch drawn twice",
        "backends/batch/minibatches.py",
        "shuffled(q - s * units, units, keys[s])",
        "shuffled((q - s * units) // 2, units, keys[s])",
        (f"{MINIBATCHES}::test_every_sample_is_chosen_once_in_an_epoch[1]",),
    ),
    Bug(
        "normalizer of observations stands still",
        "learners/rollout.py",
        "            self._take_in(0)\n",
        "",
        (f"{NORMALISING}::test_every_observation_of_training_counts",),
    ),
    Bug(
        "acting with the parameters of before",
        "training/deep_agent.py",
        "            self._actor.stale = True\n        self.steps = steps\n",
        "            self._actor.stale = False\n        self.steps = steps\n",
        (f"{EVALUATION}::test_of_an_agent_as_it_is_now[mlp(16)]",),
    ),
    Bug(
        "truncation as termination in a memory",
        "program/rows/recording.py",
        "        ended = TRUNCATED\n",
        "        ended = TERMINATED\n",
        (f"{LEARNING}::test_what_is_remembered[truncated-none]",),
    ),
    Bug(
        "both flags as truncation in a memory",
        "program/rows/recording.py",
        "    if terminated:\n        ended = TERMINATED\n    elif truncated:\n        ended = TRUNCATED\n",
        "    if truncated:\n        ended = TRUNCATED\n    elif terminated:\n        ended = TERMINATED\n",
        (f"{MEMORIES}::test_an_episode_that_ends_in_its_last_step_is_over[python]",),
    ),
    Bug(
        "reset observation remembered as the next one",
        "program/rows/recording.py",
        "seen = sight.final[i] if ring.rows[place].ended != GOES_ON else sight.observation[i]",
        "seen = sight.observation[i]",
        (f"{LEARNING}::test_what_is_remembered[terminated-none]",),
    ),
    Bug(
        "mask of the next episode remembered",
        "program/rows/recording.py",
        "row.next_mask[k] = sight.final_mask[i, k] if truncated else 0",
        "row.next_mask[k] = ring.mask[i, k]",
        (f"{LEARNING}::test_masks_are_those_of_their_observations",),
    ),
    Bug(
        "n steps across the end of an episode",
        "buffers/n_step.py",
        "        if rows[last].ended != GOES_ON:\n",
        "        if rows[last].ended == TERMINATED:\n",
        (f"{N_STEP}::test_by_definition", f"{N_STEP}::test_by_hand"),
    ),
    Bug(
        "n steps across the seam of the ring",
        "buffers/n_step.py",
        "range(min(n - 1, newer))",
        "range(n - 1)",
        (f"{N_STEP}::test_by_definition",),
    ),
    Bug(
        "n steps of another copy",
        "buffers/n_step.py",
        "following = last + copies if last + copies < capacity else last + copies - capacity",
        "following = last + 1 if last + 1 < capacity else 0",
        (f"{N_STEP}::test_by_definition",),
    ),
    Bug(
        "truncation as termination over n steps",
        "buffers/n_step.py",
        "    if rows[last].ended == TERMINATED:\n",
        "    if rows[last].ended != GOES_ON:\n",
        (f"{N_STEP}::test_by_hand",),
    ),
    Bug(
        "next observation of the first of n steps",
        "backends/cpu/updates.py",
        'Indexed(rows["next_observation"], batch.lasts)',
        'Indexed(rows["next_observation"], batch.places)',
        (f"{MEMORIES}::test_what_follows_n_steps_is_valued_where_they_end[cpu]",),
    ),
    Bug(
        "next observation of the first of n steps of a batch",
        "backends/batch/updates.py",
        'Indexed(ring.rows["next_observation"], drawn.lasts)',
        'Indexed(ring.rows["next_observation"], drawn.places)',
        (f"{MEMORIES}::test_what_follows_n_steps_is_valued_where_they_end[python]",),
    ),
    Bug(
        "groups that do not fit the ring",
        "buffers/making.py",
        "max(config.buffer_size // config.num_envs, 1) * copies",
        "config.buffer_size",
        (f"{MEMORIES}::test_the_memory_has_whole_groups[dqn-cpu]",),
    ),
    Bug(
        "a rank's gradient divided by its own rows",
        "backends/cpu/updates.py",
        "= whole, 1, whole",
        "= batch, 1, batch",
        (f"{MEMORY_OF_RANKS}::test_ranks_with_data_learn_as_one_process_from_the_same_batches[2]",),
    ),
    Bug(
        "weights of priorities by rank alone",
        "backends/cpu/updates.py",
        "(self.ring.compare_priorities(rate) / rate) ** self._beta[0]",
        "1.0",
        (f"{MEMORY_OF_RANKS}::test_priorities_are_weighed_by_how_often_each_record_is_drawn_by_any_rank",),
    ),
    Bug(
        "sums of ranks written over while others read",
        "scale/shared_sums.py",
        "slots[self._pieces % 2,",
        "slots[0,",
        ("tests/scale/test_shared_sums.py::test_no_rank_writes_where_another_still_reads",),
    ),
    Bug(
        "episodes joined on resume",
        "backends/cpu/memory.py",
        "            self.break_off(slice(None))\n",
        "            pass\n",
        (f"{LEARNING}::test_gymnasium",),
    ),
    Bug(
        "target network shares the weights",
        "backends/cpu/networks.py",
        "            self.parameters[target] = task.parameters[source].copy()\n",
        "            self.parameters[target] = task.parameters[source]\n",
        (f"{LEARNING}::test_the_target_network_has_memory_of_its_own_and_follows",),
    ),
    Bug(
        "target critics share the weights",
        "backends/cpu/networks.py",
        "            self.parameters[target] = task.parameters[source].copy()\n",
        "            self.parameters[target] = task.parameters[source]\n",
        (f"{TWINS}::test_updates_are_those_of_torch[sac]",),
    ),
    Bug(
        "target network moves the wrong way",
        "backends/cpu/driver.py",
        "share * online[p] + rest * slow[p]",
        "rest * online[p] + share * slow[p]",
        (f"{LEARNING}::test_a_soft_target_moves_a_part_of_the_way",),
    ),
    Bug(
        "delayed updates off by one",
        "backends/cpu/driver.py",
        "if number % one.period != 0 or",
        "if (number - 1) % one.period != 0 or",
        (f"{TWINS}::test_updates_are_those_of_torch[td3]",),
    ),
    Bug(
        "entropy after the end of an episode",
        "algorithms/online/sac.py",
        "    if row.discount > 0.0:  # what follows a terminal state does not exist: not even an infinite value may"
        " count\n        value = squashed.smaller(target_critics)\n"
        "        target += row.discount * (value - exp(numbers.log_temperature) * row.next_log_probability)\n",
        "    target += row.discount * squashed.smaller(target_critics)\n"
        "    target -= exp(numbers.log_temperature) * row.next_log_probability\n",
        (f"{SAC}::test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end",),
    ),
    Bug(
        "log-probability without the squashing",
        "networks/squashed.py",
        "normal_log_density(noise, held) - log_squash_slope(before)",
        "normal_log_density(noise, held)",
        ("tests/networks/test_squashed.py::test_density_of_a_squashed_number",),
    ),
    Bug(
        "temperature with the wrong sign",
        "algorithms/online/sac.py",
        "return -(means.log_probability + settings.target_entropy)",
        "return means.log_probability + settings.target_entropy",
        (f"{SAC}::test_the_temperature_falls_while_the_entropy_is_above_its_target",),
    ),
    Bug(
        "the bolder critic is believed",
        "networks/squashed.py",
        "values[0] if values[0] < values[1] or",
        "values[0] if values[0] > values[1] or",
        (f"{SAC}::test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end",),
    ),
    Bug(
        "next action by the actor that learns",
        "algorithms/online/td3.py",
        'forward("target_actor", "next_observation")',
        'forward("actor", "next_observation", name="target_actor")',
        ("tests/algorithms/test_td3.py::test_the_next_action_is_that_of_the_target_actor",),
    ),
    Bug(
        "double without the second network",
        "algorithms/online/dqn.py",
        'name="next_values"), each(choose_by_network)',
        'name="next_values"), each(choose_by_target)',
        (f"{UPDATES}::test_ten_updates_against_torch[config1-1]",),
    ),
    Bug(
        "weights of priorities left out of the loss",
        "algorithms/online/dqn.py",
        "slope = row.weight * (",
        "slope = 1.0 * (",
        (f"{DQN}::test_gradient_and_metrics",),
    ),
    Bug(
        "priorities not updated",
        "backends/cpu/replay_units.py",
        "        revise(book, counts, batch.places, batch.errors)\n",
        "",
        (f"{MEMORIES}::test_errors_become_priorities[dqn-cpu]",),
    ),
    Bug(
        "new records with a priority of their own",
        "buffers/prioritised.py",
        "put_range(book.tree, book.starts, first, first + count, book.greatest[0])",
        "put_range(book.tree, book.starts, first, first + count, np.float32(1))",
        (f"{MEMORIES}::test_errors_become_priorities[dqn-cpu]",),
    ),
    Bug(
        "target network forgotten on resume",
        "backends/cpu/networks.py",
        '            if name != task.acting:\n                arrays[f"{name}.parameters"] = parameters\n',
        "            if name != task.acting and name not in task.targets:\n"
        '                arrays[f"{name}.parameters"] = parameters\n',
        (f"{CONTRACTS}::test_going_on_from_a_file_is_going_on[dqn-cpu]",),
    ),
    Bug(
        "quantiles that are all pulled alike",
        "algorithms/online/qr_dqn.py",
        "share = abs((i + 0.5) / count - below) / count",
        "share = 0.5 / count",
        (f"{QUANTILES}::test_low_quantiles_are_pulled_down_more_than_up",),
    ),
    Bug(
        "greedy by the lowest quantile",
        "networks/heads.py",
        "    return total / columns\n",
        "    return values[option * columns] + 0.0 * total\n",
        (f"{QUANTILES}::test_it_acts_by_the_means_of_quantiles",),
    ),
    Bug(
        "expectation over actions without its mean",
        "algorithms/online/discrete_sac.py",
        "log(max(probability, 1e-20)) - value - mean)",
        "log(max(probability, 1e-20)) - value)",
        (f"{DISCRETE}::test_gradient_of_the_actor",),
    ),
    Bug(
        "entropy of choices with the wrong sign",
        "algorithms/online/discrete_sac.py",
        "value = exp(numbers.log_temperature) * entropy",
        "value = -exp(numbers.log_temperature) * entropy",
        (f"{DISCRETE}::test_target_by_hand",),
    ),
    Bug(
        "rows that changed since a checkpoint are taken from it",
        "buffers/segments.py",
        "            segments, sure = segments[:index], 0\n",
        "            sure += 1\n",
        (f"{SEGMENTS}::test_rows_that_were_changed_since_are_written_anew",),
    ),
    Bug(
        "segments of older checkpoints removed",
        "runs/checkpoints.py",
        "(one for some in self._segments.values() for one in some)",
        "self._segments[path]",
        (f"{MEMORY_FILES}::test_every_checkpoint_that_is_kept_comes_back_exactly",),
    ),
    Bug(
        "slope of an activation",
        "networks/activations.py",
        "    return 1.0 - y * y\n",
        "    return 1.0 - y\n",
        ("tests/networks/test_native.py::test_any_number_of_rows[1]",),
    ),
    Bug(
        "compiled products drift from plain ones",
        "engine/compiler/arithmetic/products.py",
        "                done = blocks\n",
        "                done = emit.whole(0)\n",
        ("tests/engine/compiler/arithmetic/test_products.py::test_any_product[compiled]",),
    ),
)


def source(bug: Bug, root: Path = ROOT) -> Path:
    """The file into which a bug is planted."""
    return root / "src" / "velocirl" / bug.file


def run_tests(tests: list[str], copy: Path, patience: float) -> tuple[int | None, str]:
    """Pytest's exit status, None where it took too long, and what it says of the first failure."""
    own = {"PYTHONPATH": str(copy / "src"), "VELOCIRL_HOME": str(copy / "home"), "COLUMNS": "250"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=no", *tests]
    options = {"cwd": copy, "env": {**os.environ, **own}, "capture_output": True, "text": True, "timeout": patience}
    try:
        finished = subprocess.run(command, check=False, **options)  # noqa: S603 - our own tests
    except subprocess.TimeoutExpired:
        return None, "it hangs"
    failures = [line for line in finished.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    reason = failures[0].partition(" - ")[2] if failures else finished.stdout.strip()[-200:] + finished.stderr[-200:]
    return finished.returncode, reason


def plant(bug: Bug, copy: Path) -> str:
    """Run a bug's tests with the bug in place; returns what came of it, beginning with "caught" if all is well."""
    path = source(bug, copy)
    original = path.read_text()
    if original.count(bug.text) != 1:
        return f"NOT PLANTED: its text occurs {original.count(bug.text)} times in {bug.file}"
    path.write_text(original.replace(bug.text, bug.bug))
    try:
        status, reason = run_tests(list(bug.tests), copy, PATIENCE)
    finally:
        path.write_text(original)
    if status == 0:
        return f"SURVIVED {' '.join(bug.tests)}"
    if status not in (1, None) or reason.startswith(OUTDATED):
        return f"NOT RUN: {reason}"
    return f"caught   {reason}"


def main(words: list[str]) -> int:
    """Plant all bugs, or those that the words name, and print a table."""
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    if not bugs:
        print(f"no bug is called {' or '.join(words)}; there are {', '.join(bug.name for bug in BUGS)}")
        return 1
    with tempfile.TemporaryDirectory(prefix="planted-bugs-") as directory:
        copy = Path(directory)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        print(f"the tests of {len(bugs)} bugs on the sources as they are ...", flush=True)
        status, reason = run_tests(sorted({test for bug in bugs for test in bug.tests}), copy, 10 * PATIENCE)
        if status != 0:
            print(f"they do not pass: {reason}")
            return 1
        survivors = 0
        for bug in bugs:
            start = time.monotonic()
            outcome = plant(bug, copy)
            survivors += not outcome.startswith("caught")
            print(f"{bug.name:46s} {time.monotonic() - start:4.0f} s  {outcome[:120]}", flush=True)
        print(f"{len(bugs) - survivors} of {len(bugs)} bugs were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
