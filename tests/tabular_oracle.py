"""Tabular algorithms as a textbook writes them, in plain Python, to be fed what an agent did, round by round.

Within a round all copies choose and value by the table as it is at its beginning; the updates follow one by one, in the
order of the copies.
"""

from dataclasses import dataclass

import numpy as np

from velocirl.engine import random
from velocirl.tabular.loop import Pace


@dataclass
class Step:
    """What one copy did in a round, and what it will do next."""

    copy: int
    state: int
    action: int
    reward: float
    next_state: int  # the last of the episode where one ended
    next_action: int  # that SARSA counts: after a cut the one that would have been taken
    mask: np.ndarray  # of the next state
    terminated: bool
    over: bool
    coin: int


class Watch:
    """Trains an agent round by round and says what it did."""

    def __init__(self, agent, step, rate, gamma):
        agent.prepare()
        self.agent, self.learner = agent, agent.learner
        self.copies, self.current = agent.learner.fleet.copies, agent.learner.current[0]
        self.pace = Pace(1, 1, 0, step, 0.0, rate, 0.0, gamma)
        self.rounds = 0
        self.learner.run(self.pace._replace(rounds=0), 0)  # the first actions

    def round(self, allowed):
        """One round; `allowed` (states, actions) says what is legal where."""
        copies, agent = self.copies, self.agent
        states, actions = copies.observation[:, 0].copy(), copies.action.copy()
        rows, streams = agent.table.arrays.rows.copy().view(np.recarray), self.learner._rng.copy()
        self.learner.run(self.pace, self.rounds)
        self.rounds += 1
        steps = []
        for i in range(len(states)):
            terminated, truncated = bool(copies.terminated[i]), bool(copies.truncated[i])
            over = terminated or truncated
            after = int((copies.final_observation if over else copies.observation)[i, 0])
            next_action = int(copies.action[i])
            if truncated and not terminated:
                # Drawn in the last state from the copy's stream, after the first action of the next episode.
                for _ in range(agent.rule.sets):
                    random.bits(streams[i])
                next_action, _ = agent.exploring.choose(rows, after, allowed[after], streams[i], self.pace.rate)
            steps.append(
                Step(i, int(states[i]), int(actions[i]), float(copies.reward[i]), after, next_action, allowed[after],
                     terminated, over, int(self.current.coin[i]))
            )  # fmt: skip
        return steps


class Reference:
    """An algorithm by its name; values are (sets, states, actions), in double precision."""

    def __init__(self, name, states, actions, *, gamma, step, rate, n_step=1, trace_decay=0.0, accumulating=False):
        self.name, self.gamma, self.step, self.rate, self.n_step = name, gamma, step, rate, n_step
        self.fading, self.accumulating = gamma * trace_decay, accumulating
        self.values = np.zeros((2 if name == "double-q-learning" else 1, states, actions))
        self.pending = {}  # by copy: the steps whose rewards are not all known yet
        self.traces = {}  # by copy: (states, actions)

    def round(self, steps):
        """Learn from what all copies did."""
        aheads = [0.0 if step.terminated else self.ahead(step) for step in steps]
        greedy = [self.values[0, step.next_state, step.next_action] >= self.best(step) for step in steps]
        for step, ahead, goes_on in zip(steps, aheads, greedy, strict=True):
            if self.name == "q-lambda":
                self.trace(step, ahead, goes_on)
            else:
                self.learn(step, ahead)

    def best(self, step):
        return self.values.mean(axis=0)[step.next_state][step.mask].max()

    def ahead(self, step):
        values = self.values[:, step.next_state]
        if self.name in ("q-learning", "q-lambda"):
            return self.best(step)
        if self.name == "sarsa":
            return values[0, step.next_action]
        if self.name == "expected-sarsa":
            return (1 - self.rate) * self.best(step) + self.rate * values[0][step.mask].mean()
        chosen = np.where(step.mask, values[step.coin], -np.inf).argmax()
        return values[1 - step.coin, chosen]

    def learn(self, step, ahead):
        pending = self.pending.setdefault(step.copy, [])
        pending.append(step)
        if step.over:
            target = ahead
            for one in reversed(pending):
                target = one.reward + self.gamma * target
                self.move(one, target, step.coin)
            pending.clear()
        elif len(pending) == self.n_step:
            rewards = sum(self.gamma**k * one.reward for k, one in enumerate(pending))
            self.move(pending.pop(0), rewards + self.gamma**self.n_step * ahead, step.coin)

    def move(self, step, target, coin):
        error = target - self.values[coin, step.state, step.action]
        self.values[coin, step.state, step.action] += self.step * error

    def trace(self, step, ahead, goes_on):
        trace = self.traces.setdefault(step.copy, np.zeros(self.values.shape[1:]))
        error = step.reward + self.gamma * ahead - self.values[0, step.state, step.action]
        trace[step.state, step.action] = trace[step.state, step.action] + 1 if self.accumulating else 1.0
        self.values[0] += self.step * error * trace
        trace *= 0.0 if step.over or not goes_on else self.fading
