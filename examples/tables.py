"""Tables: learn a lake by Q-learning, and see how far from the best that exists the table is."""

import velocirl

# Where the model is known, value iteration is exact; learners are measured against it.
model = velocirl.TabularModel.from_gymnasium("FrozenLake-v1")
plan = velocirl.value_iteration(model, gamma=0.99)
print(f"the best policy is worth {model.start_value(plan.values):.3f} from the start")

for algorithm in (velocirl.QLearning, velocirl.SARSA, velocirl.DoubleQLearning):
    agent = algorithm("FrozenLake-v1", seed=0, gamma=0.99).learn(2_000_000)
    learnt = agent.q_values(0)
    print(f"{agent.label:16} starts with {learnt.max():.3f},", velocirl.evaluate(agent, episodes=1000, seed=1))

# The same table by threads, one argument apart; "processes", "mpi" and "cuda" are others.
agent = velocirl.QLearning("TicTacToe-v1", runtime="threads", workers=2, seed=0).learn(2_000_000)
print("tic-tac-toe:    ", velocirl.evaluate(agent, episodes=1000, seed=1))
