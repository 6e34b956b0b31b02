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

BUFFERS, LOSS = "tests/buffers/test_returns.py", "tests/algorithms/test_ppo_loss.py"
COLLECTING, UPDATING = "tests/training/test_collecting.py", "tests/training/test_updating.py"
AGENT, FAULTS, NORMALISING = (f"tests/training/test_{name}.py" for name in ("agent", "faults", "normalising"))
ACTOR, EVALUATION, CALLBACKS = (f"tests/training/test_{name}.py" for name in ("actor", "evaluation", "callbacks"))
FLEET = f"{COLLECTING}::test_every_transition_of_a_fleet[7-1]"
MAPPED, MACHINE, RECURRENT = (
    f"tests/training/test_{name}.py" for name in ("mapped_updating", "torch_machine", "torch_recurrent")
)
TEN_UPDATES = f"{UPDATING}::test_ten_updates_by_torch[Counter-v0-changes0]"
DQN, DQN_LOSS, SAC_LOSS = (f"tests/algorithms/test_{name}.py" for name in ("dqn", "dqn_loss", "sac_loss"))
N_STEP, SEGMENTS = "tests/buffers/test_n_step.py", "tests/buffers/test_segments.py"
TWINS, MEMORY_FILES = "tests/training/test_actor_critic_update.py", "tests/runs/test_memory_files.py"
OFF_POLICY = "tests/training/test_torch_off_policy.py"
CONTRACTS, MEMORIES = "tests/contracts/test_algorithms.py", "tests/contracts/test_memories.py"
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
        "training/collecting.py",
        "            ended = TRUNCATED\n",
        "            ended = TERMINATED\n",
        (FLEET,),
    ),
    Bug(
        "bootstrapping where both flags are set",
        "training/collecting.py",
        "        if copies.terminated[i]:\n            ended = TERMINATED\n        elif copies.truncated[i]:\n"
        "            ended = TRUNCATED\n",
        "        if copies.truncated[i]:\n            ended = TRUNCATED\n        elif copies.terminated[i]:\n"
        "            ended = TERMINATED\n",
        (FLEET,),
    ),
    Bug(
        "bootstrapping from the reset observation",
        "training/collecting.py",
        "row(copies.final_observation, journal.waiting[r])",
        "row(copies.observation, journal.waiting[r])",
        (FLEET,),
    ),
    Bug(
        "final value of an earlier rollout",
        "training/collecting.py",
        "        sample.final_value = 0.0\n",
        "",
        (f"{COLLECTING}::test_every_transition_of_a_fleet[7-2]",),
    ),
    Bug(
        "gae forgets what follows the rollout",
        "buffers/returns.py",
        'target_t = A_t + V_t\n    """\n    advantage = 0.0\n    next_value = last_value\n',
        'target_t = A_t + V_t\n    """\n    advantage = 0.0\n    next_value = 0.0\n',
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "gae flows from one episode into another",
        "buffers/returns.py",
        "            advantage = 0.0\n            next_value = sample.final_value\n"
        "        delta = scaled(sample.reward, discount) + discount.gamma * next_value - sample.value\n",
        "            next_value = sample.final_value\n"
        "        delta = scaled(sample.reward, discount) + discount.gamma * next_value - sample.value\n",
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "value target off by one",
        "buffers/returns.py",
        "sample.target = advantage + sample.value\n",
        "sample.target = advantage + next_value\n",
        (f"{BUFFERS}::test_by_hand",),
    ),
    Bug(
        "vtrace without its limit",
        "buffers/returns.py",
        "min(sample.ratio, rho_limit) * delta",
        "max(sample.ratio, rho_limit) * delta",
        (f"{BUFFERS}::test_vtrace[python]",),
    ),
    Bug(
        "vtrace computed once and then left",
        "training/updating.py",
        "            reestimate(plan, work, own, loss_settings, discount)\n            since = lap(",
        "            if own.units[0] == 0 and own.units[1] == 1:\n"
        "                reestimate(plan, work, own, loss_settings, discount)\n            since = lap(",
        (f"{UPDATING}::test_vtrace_follows_the_policy",),
    ),
    Bug(
        "final observations not normalised",
        "training/collecting.py",
        "            check = look(final, eyes, journal.encoded, work.values[r * input_row : r * input_row + inputs])\n",
        "            check = np.float32(0)\n            for j in range(inputs):\n"
        "                work.values[r * input_row + j] = final[j]\n",
        (f"{COLLECTING}::test_normalised_rollouts",),
    ),
    Bug(
        "normaliser changed by acting",
        "training/deep_agent.py",
        "        observations, masks, single = self.batched(observation, action_masks)\n",
        "        observations, masks, single = self.batched(observation, action_masks)\n"
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
        "training/collecting.py",
        "            discounted = 0.0\n",
        "",
        (f"{COLLECTING}::test_discounted_returns_for_the_scale_of_rewards",),
    ),
    Bug(
        "advantages of one sample normalised",
        "training/updating.py",
        "if schedule.normalise and batch > 1:",
        "if schedule.normalise:",
        (f"{UPDATING}::test_a_minibatch_of_one_sample[1]",),
    ),
    Bug(
        "advantages normalised within a thread",
        "training/updating.py",
        "mean = total_of(common, threads, ADVANTAGE) / batch\n",
        "mean = common.partial[thread, ADVANTAGE] / (stop - first)\n",
        (f"{UPDATING}::test_gradient_of_a_minibatch[2-IdentityContinuous-v0]",),
    ),
    Bug(
        "identical policy streams",
        "training/collectors.py",
        "        self._rng = random.streams(seed, fleet.num_envs)\n",
        "        self._rng = np.repeat(random.streams(seed, 1), fleet.num_envs, axis=0)\n",
        (f"{COLLECTING}::test_no_two_streams_are_alike",),
    ),
    Bug(
        "seeded anew on resume",
        "training/collectors.py",
        '    rng[:] = state["policy.rng"]\n',
        "",
        (RESUME,),
    ),
    Bug(
        "episodes repeat on resume",
        "training/collectors.py",
        "        self._begun, self._seed = False, int(self._rng[0, 0] >> np.uint64(33))\n",
        "        self._begun = False\n",
        (f"{AGENT}::test_gymnasium_goes_on_with_new_episodes",),
    ),
    Bug(
        "optimiser forgotten on resume",
        "training/on_policy.py",
        '        self.optimiser_steps = int(state["learner.steps"])\n',
        "",
        (RESUME,),
    ),
    Bug(
        "schedule begins anew on resume",
        "training/agent.py",
        '            agent.goal = None if document["goal"] is None else Goal(*map(int, document["goal"]))\n',
        '            agent.goal = Goal(agent.steps, int(document["goal"][1]) - agent.steps)\n',
        (RESUME,),
    ),
    Bug(
        "action stored after clipping",
        "training/collecting.py",
        "        write(copies.action, i, sample.action)\n",
        "        write(copies.action, i, sample.action)\n"
        "        sample.action[0] = min(max(sample.action[0], np.float32(-1)), np.float32(1))\n",
        (f"{COLLECTING}::test_what_is_drawn_is_stored_before_it_is_clipped",),
    ),
    Bug(
        "masks are broadcast",
        "training/acting.py",
        "if not self._head.masked or masks.shape != self.mask.shape:",
        "if not self._head.masked:",
        (f"{ACTOR}::test_other_masks_are_refused",),
    ),
    Bug(
        "masks not stored",
        "training/collecting.py",
        "                sample.mask[k] = mask[k]\n",
        "                sample.mask[k] = 1\n",
        (f"{COLLECTING}::test_masks_are_stored_and_kept_to",),
    ),
    Bug(
        "loss scale depends on the number of threads",
        "training/updating.py",
        "scale = np.float32(1.0 / weight)",
        "scale = np.float32(threads / weight)",
        (f"{UPDATING}::test_the_gradient_does_not_depend_on_the_number_of_threads",),
    ),
    Bug(
        "loss scale depends on the size of a minibatch",
        "training/updating.py",
        "scale = np.float32(1.0 / weight)",
        "scale = np.float32(1.0 / 32.0)",
        (f"{UPDATING}::test_gradient_of_a_minibatch[1-Counter-v0]",),
    ),
    Bug(
        "accumulated gradients cleared",
        "training/updating.py",
        "                if gathered == 0:\n                    clear(plan, work)\n",
        "                clear(plan, work)\n",
        (f"{UPDATING}::test_accumulated_minibatches_are_one_large_one",),
    ),
    Bug(
        "samples drawn twice",
        "training/updating.py",
        "own.order[place] = own.units[u] * unit + t\n",
        "own.order[place] = own.units[u // 2] * unit + t\n",
        (f"{UPDATING}::test_every_sample_is_drawn_once_in_an_epoch[samples-1]",),
    ),
    Bug(
        "last sample of each minibatch dropped",
        "training/updating.py",
        "                stop = len(own.units) * (m + 1) // minibatches * unit\n",
        "                stop = len(own.units) * (m + 1) // minibatches * unit - 1\n",
        (TEN_UPDATES,),
    ),
    Bug(
        "minibatches empty on some threads",
        "training/updating.py",
        "                if batch == 0:",
        "                if batch < 0:",
        (f"{UPDATING}::test_a_minibatch_of_one_sample[2]",),
    ),
    Bug(
        "threads go on with old parameters",
        "training/updating.py",
        "                since = lap(counters, WAITING, since, timed)\n"
        "                pack(plan, common.parameters, work)\n",
        "                since = lap(counters, WAITING, since, timed)\n",
        (TEN_UPDATES,),
    ),
    Bug(
        "bias correction off by one",
        "training/updating.py",
        "prepare(common.settings, schedule.learning_rate, step, own.factors)",
        "prepare(common.settings, schedule.learning_rate, step + 1, own.factors)",
        (TEN_UPDATES,),
    ),
    Bug(
        "divergence does not stop",
        "training/updating.py",
        "divergent > 1.5 * schedule.target_kl",
        "divergent < -1.0",
        (f"{UPDATING}::test_divergence_stops_an_update",),
    ),
    Bug(
        "clip on the wrong side",
        "algorithms/online/ppo_loss.py",
        "(advantage > 0.0 and ratio > high) or (advantage < 0.0 and ratio < low)",
        "(advantage > 0.0 and ratio < low) or (advantage < 0.0 and ratio > high)",
        (f"{LOSS}::test_clip_by_hand",),
    ),
    Bug(
        "entropy with the wrong sign",
        "algorithms/online/ppo_loss.py",
        "policy_weight, -settings.entropy_coefficient, gradient)",
        "policy_weight, settings.entropy_coefficient, gradient)",
        (f"{LOSS}::test_more_entropy_is_better",),
    ),
    Bug(
        "clipped values still learn",
        "algorithms/online/ppo_loss.py",
        "slope = 0.0 if abs(change) > settings.value_clip else held_error",
        "slope = held_error",
        (f"{LOSS}::test_gradient_and_metrics[categorical-python]",),
    ),
    Bug(
        "dual clip of good actions",
        "algorithms/online/ppo_loss.py",
        "settings.dual_clip > 0.0 and advantage < 0.0 and ratio > settings.dual_clip",
        "settings.dual_clip > 0.0 and ratio > settings.dual_clip",
        (f"{LOSS}::test_gradient_and_metrics[categorical-python]",),
    ),
    Bug(
        "nan in a reward not seen",
        "training/collecting.py",
        "            if sample.reward * 0 != 0:\n",
        "            if sample.reward * 0 == 1:\n",
        (f"{FAULTS}::test_in_a_reward[1-nan]",),
    ),
    Bug(
        "infinity hidden by the normaliser",
        "networks/encoding.py",
        "            check += number * 0  # here, since",
        "            check += 0  # here, since",
        (f"{FAULTS}::test_in_an_observation[True-inf]",),
    ),
    Bug(
        "nan in a gradient not seen",
        "training/updating.py",
        "if squared_norm * 0.0 != 0.0:",
        "if squared_norm < 0.0:",
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
        "short episodes count more in an evaluation",
        "training/evaluation.py",
        "np.flatnonzero(ended & (wanted > 0))",
        "np.flatnonzero(ended)",
        (f"{EVALUATION}::test_every_copy_plays_the_same_number_of_episodes",),
    ),
    Bug(
        "memory kept beyond the end of an episode",
        "training/mapped_collecting.py",
        "                    state[k] = 0.0\n",
        "                    state[k] *= 1.0\n",
        (f"{RECURRENT}::test_the_state_is_zero_after_an_end_and_nowhere_else[gru]",),
    ),
    Bug(
        "memory cleared one step late when learning",
        "training/mapped_updating.py",
        "1.0 if t > 0 and batch.samples[t - 1, i].ended != GOES_ON else 0.0",
        "1.0 if t > 1 and batch.samples[t - 2, i].ended != GOES_ON else 0.0",
        (f"{MAPPED}::test_every_sample_is_gathered_once_in_an_epoch",),
    ),
    Bug(
        "memory of another copy when learning",
        "training/mapped_updating.py",
        "        state[c, k] = start_state[i, k]\n",
        "        state[c, k] = start_state[c, k]\n",
        (f"{MAPPED}::test_states_are_those_at_the_beginning_of_the_drawn_copies",),
    ),
    Bug(
        "memory of the end when learning",
        "training/torch_collectors.py",
        '        records.start_state.copy_(tensors["state"])\n        for t in range(self.horizon):\n'
        '            self._forward("inputs", "state", "outputs", remember=True)\n'
        "            self._step(np.int64(t), np.float32(gamma))\n",
        "        for t in range(self.horizon):\n"
        '            self._forward("inputs", "state", "outputs", remember=True)\n'
        "            self._step(np.int64(t), np.float32(gamma))\n"
        '        records.start_state.copy_(tensors["state"])\n',
        (f"{RECURRENT}::test_learning_sees_what_the_rollout_saw[gru]",),
    ),
    Bug(
        "cut episodes valued by the next one",
        "training/mapped_collecting.py",
        "look(row(copies.final_observation, i), eyes, encoded",
        "look(row(copies.observation, i), eyes, encoded",
        (f"{MACHINE}::test_the_first_rollout_is_that_of_the_native_learner[short pole]",),
    ),
    Bug(
        "cut episodes valued without their memory",
        "training/mapped_collecting.py",
        "                kept[k] = state[k]\n",
        "                kept[k] = 0.0\n",
        (f"{RECURRENT}::test_values_where_an_episode_is_cut_off[lstm]",),
    ),
    Bug(
        "value after the rollout is remembered",
        "training/torch_collectors.py",
        '        self._forward("inputs", "state", "outputs", remember=False)\n',
        '        self._forward("inputs", "state", "outputs", remember=True)\n',
        (f"{RECURRENT}::test_values_where_an_episode_is_cut_off[gru]",),
    ),
    Bug(
        "value after the rollout is remembered on the host",
        "training/torch_collectors.py",
        '        self._forward(tensors["inputs"], tensors["state"], tensors["outputs"], remember=False)\n',
        '        self._forward(tensors["inputs"], tensors["state"], tensors["outputs"], remember=True)\n',
        (f"{RECURRENT}::test_values_where_an_episode_is_cut_off[gymnasium]",),
    ),
    Bug(
        "memory lost on resume",
        "training/torch_collectors.py",
        '        tensors["state"].copy_(torch.from_numpy(state["policy.state"]))\n',
        '        tensors["state"].zero_()\n',
        (f"{RECURRENT}::test_resumed_in_the_middle_of_episodes[gru]",),
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
        "training/torch_learner.py",
        '            advantages = tensors["advantages"].view(count, -1)\n',
        '            advantages = tensors["advantages"].view(count, -1)[:, : shape.rows // 2]\n',
        (f"{MACHINE}::test_iterations_are_those_of_the_native_learner[max_grad_norm]",),
    ),
    Bug(
        "loss of a torch network not divided by its rows",
        "training/mapped_updating.py",
        "        share = np.float32(batch.numbers[s, LOSS_SCALE] / shape.rows)\n",
        "        share = np.float32(batch.numbers[s, LOSS_SCALE])\n",
        (f"{MAPPED}::test_the_loss_of_a_minibatch",),
    ),
    Bug(
        "divergence does not stop a torch network",
        "training/mapped_updating.py",
        "batch.sums[s, divergence] / shape.rows > 1.5 * limits.target_kl",
        "batch.sums[s, divergence] / shape.rows < -1.0",
        (f"{MAPPED}::test_tally",),
    ),
    Bug(
        "accumulated gradients not averaged",
        "training/mapped_updating.py",
        "        share = 1.0 / (max(batch.counts[s, GATHERED], 1) * batch.numbers[s, LOSS_SCALE])\n",
        "        share = 1.0 / batch.numbers[s, LOSS_SCALE]\n",
        (f"{MAPPED}::test_scaling_of_the_gradient",),
    ),
    Bug(
        "scale of fp16 not undone",
        "training/mapped_updating.py",
        "        share = 1.0 / (max(batch.counts[s, GATHERED], 1) * batch.numbers[s, LOSS_SCALE])\n",
        "        share = 1.0 / max(batch.counts[s, GATHERED], 1)\n",
        (f"{MAPPED}::test_scaling_of_the_gradient",),
    ),
    Bug(
        "gradients of a torch network cleared between minibatches",
        "training/torch_learner.py",
        "        self._add_gradient(accumulate=True)\n",
        "        self._add_gradient(accumulate=False)\n",
        (f"{MACHINE}::test_accumulated_minibatches_are_one_large_one",),
    ),
    Bug(
        "samples of a torch network drawn twice",
        "training/mapped_updating.py",
        "        batch.order[s, u] = shuffled(u, shape.units, row(keys, s))\n",
        "        batch.order[s, u] = shuffled(u // 2, shape.units, row(keys, s))\n",
        (f"{MAPPED}::test_every_sample_is_gathered_once_in_an_epoch",),
    ),
    Bug(
        "eyes of a torch network stand still",
        "training/torch_machine.py",
        "            self._take_in()\n",
        "",
        (f"{MACHINE}::test_iterations_are_those_of_the_native_learner[normalise_observations normalise_rewards]",),
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
        "training/off_policy.py",
        "(TRUNCATED if over else GOES_ON)",
        "(TERMINATED if over else GOES_ON)",
        (f"{DQN}::test_what_is_remembered[truncated-none]",),
    ),
    Bug(
        "both flags as truncation in a memory",
        "training/off_policy.py",
        "TERMINATED if copies.terminated[i] else (TRUNCATED if over else GOES_ON)",
        "TRUNCATED if copies.truncated[i] else (TERMINATED if over else GOES_ON)",
        (f"{MEMORIES}::test_an_episode_that_ends_in_its_last_step_is_over",),
    ),
    Bug(
        "reset observation remembered as the next one",
        "training/off_policy.py",
        "row(copies.final_observation, i) if over else row(copies.observation, i)",
        "row(copies.observation, i)",
        (f"{DQN}::test_what_is_remembered[terminated-none]",),
    ),
    Bug(
        "mask of the next episode remembered",
        "training/off_policy.py",
        "sample.mask[k] = 0 if over else mask[k]",
        "sample.mask[k] = mask[k]",
        (f"{DQN}::test_masks_are_those_of_the_next_observation",),
    ),
    Bug(
        "reset observation remembered on a device",
        "training/mapped_stepping.py",
        "if encode(row(copies.final_observation, i), into, into, into) != 0:",
        "if encode(row(copies.observation, i), into, into, into) != 0:",
        (f"{OFF_POLICY}::test_what_is_remembered_is_what_the_native_learner_remembers[Counter-v0]",),
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
        "last = last + copies if last + copies < capacity else last + copies - capacity",
        "last = last + 1 if last + 1 < capacity else 0",
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
        "training/value_updating.py",
        "following = memory.rows[batch.lasts[start + r]].next_observation",
        "following = memory.rows[batch.places[start + r]].next_observation",
        (f"{MEMORIES}::test_what_follows_n_steps_is_valued_where_they_end",),
    ),
    Bug(
        "groups that do not fit the ring",
        "training/off_policy_machine.py",
        "max(config.buffer_size // config.num_envs, 1) * config.num_envs",
        "config.buffer_size",
        (f"{MEMORIES}::test_the_memory_has_whole_groups[dqn]",),
    ),
    Bug(
        "episodes joined on resume",
        "training/off_policy_steps.py",
        "        cut_off(memory.rows, memory.counts, memory.copies)\n",
        "",
        (f"{DQN}::test_gymnasium",),
    ),
    Bug(
        "target network shares the weights",
        "training/value_updating.py",
        "        self.frozen = parameters.copy()\n",
        "        self.frozen = parameters\n",
        (f"{DQN}::test_the_target_network_has_memory_of_its_own_and_follows",),
    ),
    Bug(
        "frozen critics share the weights",
        "training/actor_critic_updater.py",
        "critic_parameters.copy(), parameters.copy()",
        "critic_parameters, parameters.copy()",
        (f"{TWINS}::test_updates_are_those_of_torch[sac]",),
    ),
    Bug(
        "target network moves the wrong way",
        "training/descending.py",
        "tau * online[p] + rest * slow[p]",
        "rest * online[p] + tau * slow[p]",
        (f"{DQN}::test_a_soft_target_moves_a_part_of_the_way",),
    ),
    Bug(
        "delayed updates off by one",
        "training/actor_critic_updating.py",
        "if number % pace.actor_every == 0 and",
        "if (number - 1) % pace.actor_every == 0 and",
        (f"{TWINS}::test_updates_are_those_of_torch[td3]",),
    ),
    Bug(
        "entropy after the end of an episode",
        "algorithms/online/sac_loss.py",
        "        if discount > 0.0:\n"
        "            return reward + discount * (least(values) - temperature * log_probability)\n"
        "        return reward\n",
        "        return reward + discount * least(values) - temperature * log_probability\n",
        (f"{SAC_LOSS}::test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end",),
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
        "algorithms/online/sac_loss.py",
        "return -(log_probability + settings.target_entropy)",
        "return log_probability + settings.target_entropy",
        (f"{SAC_LOSS}::test_the_temperature_falls_while_the_entropy_is_above_its_target",),
    ),
    Bug(
        "the bolder critic is believed",
        "training/twin_critics.py",
        "values[0] if values[0] < values[1] or",
        "values[0] if values[0] > values[1] or",
        (f"{SAC_LOSS}::test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end",),
    ),
    Bug(
        "next action by the actor that learns",
        "algorithms/online/td3_loss.py",
        "        frozen_actor=True,\n",
        "        frozen_actor=False,\n",
        (f"{TWINS}::test_updates_are_those_of_torch[td3]",),
    ),
    Bug(
        "double without the second network",
        "algorithms/online/dqn_loss.py",
        "best(output if double else frozen, mask)",
        "best(frozen, mask)",
        (f"{DQN_LOSS}::test_target",),
    ),
    Bug(
        "weights of priorities left out of the loss",
        "algorithms/online/dqn_loss.py",
        "descend(chosen, weight * slope, gradient)",
        "descend(chosen, slope, gradient)",
        (f"{DQN_LOSS}::test_gradient_and_metrics",),
    ),
    Bug(
        "priorities not updated",
        "training/off_policy_steps.py",
        "                revise(memory.book, memory.counts, batch.places, batch.errors)\n",
        "",
        (f"{MEMORIES}::test_errors_become_priorities[dqn]",),
    ),
    Bug(
        "new records with a priority of their own",
        "buffers/prioritised.py",
        "put_range(book.tree, book.starts, first, first + count, book.greatest[0])",
        "put_range(book.tree, book.starts, first, first + count, np.float32(1))",
        (f"{MEMORIES}::test_errors_become_priorities[dqn]",),
    ),
    Bug(
        "target network forgotten on resume",
        "training/value_updating.py",
        '        return {"learner.moments": self.trained.moments, "learner.frozen": self.frozen}\n',
        '        return {"learner.moments": self.trained.moments}\n',
        (f"{CONTRACTS}::test_going_on_from_a_file_is_going_on[dqn]",),
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
        "engine/products.py",
        "                done = blocks\n",
        "                done = emit.whole(0)\n",
        ("tests/engine/test_products.py::test_any_product[compiled]",),
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
