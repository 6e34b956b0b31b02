"""A curriculum: poles of all lengths, drawn anew for each episode from a range that widens as the agent gets better."""

import velocirl
from velocirl import PPO, evaluate, log_uniform

SHORTEST, LONGEST = 0.1, 3.0  # half lengths; CartPole's own is 0.5
WIDTHS = [1.0, 1.5, 2.5, 4.0, 6.0]  # how far a range reaches from it, as a factor


def lengths(width: float):
    """As often shorter as longer."""
    return log_uniform(max(0.5 / width, SHORTEST), min(0.5 * width, LONGEST))


def widen(agent: PPO):
    """Once the pole stands in this range, take the next one: a callback, which is called after every iteration."""
    standing = agent.metrics["rollout/ep_rew_mean"]
    if standing is not None and standing > 400 and widths:
        width = widths.pop(0)
        agent.set_params(half_length=lengths(width))
        agent.recent.returns.clear()  # those of the easier range
        print(f"{agent.steps:,} steps: poles {width:g} times as long or as short")


if __name__ == "__main__":
    everything = {"half_length": lengths(WIDTHS[-1])}
    plain = PPO("CartPole-v1", seed=0).learn(300_000)

    widths = WIDTHS[1:]
    agent = PPO("CartPole-v1", seed=0, params={"half_length": lengths(WIDTHS[0])})
    agent.learn(300_000, callbacks=widen)

    test = velocirl.make_vec("CartPole-v1", 100, seed=1, params=everything)
    print("learnt with one pole:  ", evaluate(plain, test, episodes=200))
    print("learnt with all of them:", evaluate(agent, test, episodes=200))
