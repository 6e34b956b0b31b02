"""TicTacToe, Catch (as numbers and pixels) and Squared: their rules, what a perfect player earns, and how they look."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import velocirl
from velocirl.engine.canvas import BLUE, GREEN, ORANGE, PAPER, RED
from velocirl.environments import squared, tic_tac_toe

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def make(name, **options) -> Any:
    """An environment in plain Python, whose state a test can set."""
    return velocirl.make(name, device="python", **options)


def marked(board, mark):
    """The cells of a board such as "XX. O.. ..O" that carry a mark, as the environment holds them."""
    return sum(1 << cell for cell, found in enumerate(board.replace(" ", "")) if found == mark)


def play(board, action):
    """One move of X and its answer: (board, reward, terminated)."""
    env = make("TicTacToe-v1")
    env.reset(seed=0)
    env.copies.state["mine"], env.copies.state["theirs"] = marked(board, "X"), marked(board, "O")
    observation, reward, terminated, _, _ = env.step(action)
    return "".join(".XO"[mark] for mark in observation), reward, terminated


def test_tic_tac_toe_knows_the_lines_in_every_set_of_cells():
    for cells in range(512):
        expected = any(all(cells >> cell & 1 for cell in line) for line in LINES)
        assert tic_tac_toe.has_line(cells) == expected, bin(cells)


@pytest.mark.parametrize("line", LINES)
def test_tic_tac_toe_each_line_wins_at_once(line):
    others = [cell for cell in range(9) if cell not in line]
    board = "".join("X" if cell in line[:2] else "O" if cell in others[:2] else "." for cell in range(9))
    after, reward, terminated = play(board, line[2])
    assert (reward, terminated) == (1.0, True)
    assert after == board[: line[2]] + "X" + board[line[2] + 1 :]  # the opponent does not answer


def test_tic_tac_toe_loss_draw_and_going_on():
    assert play("OO. XXO XO.", 8) == ("OOOXXOXOX", -1.0, True)
    assert play("XOX XOO OX.", 8) == ("XOXXOOOXX", 0.0, True)  # X takes the last cell
    assert play("OXO OXX .O.", 6) == ("OXOOXXXOO", 0.0, True)  # O takes the last cell
    after, reward, terminated = play("... ... ...", 4)
    assert (after.count("O"), after[4], reward, terminated) == (1, "X", 0.0, False)


@pytest.mark.parametrize("action", [0, 1])
def test_tic_tac_toe_illegal_move_loses(action):
    assert play("XO. ... ...", action) == ("XO.......", -1.0, True)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), choices=st.lists(st.integers(0, 8), min_size=5, max_size=5))
def test_tic_tac_toe_any_legal_game_keeps_the_rules(seed, choices):
    env = make("TicTacToe-v1")
    observation, infos = env.reset(seed=seed)
    assert sorted(observation)[:8] == [0] * 8  # at most the opponent's first mark
    terminated, reward = False, 0.0
    for choice in choices:
        assert env.copies.state["mine"] & env.copies.state["theirs"] == 0
        assert list(infos["action_mask"]) == [int(mark == 0) for mark in observation]
        legal = np.flatnonzero(infos["action_mask"])
        before, action = observation, legal[choice % len(legal)]
        observation, reward, terminated, _, infos = env.step(action)
        assert (observation[before > 0] == before[before > 0]).all()  # no mark moves
        assert observation[action] == 1
        assert (observation == 2).sum() - (before == 2).sum() <= 1
        if terminated:
            break
    assert terminated
    won = [any(all(observation[cell] == mark for cell in line) for line in LINES) for mark in (1, 2)]
    assert won == [reward == 1.0, reward == -1.0]
    assert reward != 0.0 or (observation > 0).all()


def test_tic_tac_toe_opponent_begins_half_of_the_games_anywhere():
    env = make("TicTacToe-v1")
    env.reset(seed=4)
    first = np.array([env.reset()[0] for _ in range(3600)]) == 2
    assert first.sum() == pytest.approx(1800, abs=120)  # four standard deviations
    assert first.sum(axis=0) == pytest.approx(200, abs=55)


def test_tic_tac_toe_opponent_answers_evenly():
    answers = [play_answer(seed) for seed in range(1600)]
    assert np.bincount(answers, minlength=9)[[0, 1, 2, 3, 5, 6, 7, 8]] == pytest.approx(200, abs=55)


def play_answer(seed):
    """The cell in which the opponent answers an X in the middle."""
    state = tic_tac_toe.State.rows(1).view(np.recarray)[0]
    rng = velocirl.random.streams(seed, 1)[0]
    tic_tac_toe.step(state, None, 4, rng)
    return int(state.theirs).bit_length() - 1


@cache
def value(board, player):
    """The expected reward of perfect play by player 1 against a random player 2, and the best move."""
    results = []
    for cell in (cell for cell in range(9) if board[cell] == 0):
        after = (*board[:cell], player, *board[cell + 1 :])
        if any(all(after[other] == player for other in line) for line in LINES):
            results.append((1.0 if player == 1 else -1.0, cell))
        else:
            results.append((value(after, 3 - player)[0] if 0 in after else 0.0, cell))
    return max(results) if player == 1 else (sum(result for result, _ in results) / len(results), None)


def test_tic_tac_toe_perfect_player_earns_what_the_docstring_says():
    empty = (0,) * 9
    begins, follows = value(empty, 1)[0], value(empty, 2)[0]
    claim = f"{(begins + follows) / 2:.3f} on average ({begins:.3f} when it begins, {follows:.3f} when"
    assert claim in (tic_tac_toe.__doc__ or "")

    env = make("TicTacToe-v1")
    env.reset(seed=5)
    rewards = []
    for _ in range(500):
        (observation, _), terminated, reward = env.reset(), False, 0.0
        while not terminated:
            observation, reward, terminated, _, _ = env.step(value(tuple(map(int, observation)), 1)[1])
        rewards.append(reward)
    assert np.mean(rewards) == pytest.approx(0.960, abs=0.04)


def catch(seed, policy):
    """Play one episode of Catch: (boards seen, rewards)."""
    env = make("Catch-v0")
    observation, _ = env.reset(seed=seed)
    boards, rewards, terminated = [observation.reshape(10, 5)], [], False
    while not terminated:
        observation, reward, terminated, _, _ = env.step(policy(boards[-1]))
        boards.append(observation.reshape(10, 5))
        rewards.append(reward)
    return boards, rewards


def follow(board):
    """Move the paddle, in the last row, under the ball, in one of the rows above."""
    return 1 + int(np.sign(board[:9].sum(axis=0).argmax() - board[9].argmax()))


@pytest.mark.parametrize("seed", range(8))
def test_catch_paddle_under_the_ball_earns_1(seed):
    boards, rewards = catch(seed, follow)
    assert rewards == [0.0] * 8 + [1.0]
    assert boards[0][9, 2] == 1
    assert [board[:9].sum(axis=1).argmax() for board in boards[:-1]] == list(range(9))  # one row in each step
    column = boards[0][0].argmax()
    assert boards[-1].sum() == 1  # ball and paddle in one cell
    assert boards[-1][9, column] == 1


def test_catch_miss_costs_1_and_the_paddle_stays_on_the_board():
    columns = set()
    for seed in range(20):
        boards, rewards = catch(seed, lambda board: 0)
        column = boards[0][0].argmax()
        columns.add(int(column))
        assert [board[9].argmax() for board in boards[:4]] == [2, 1, 0, 0]
        assert rewards == [0.0] * 8 + [1.0 if column == 0 else -1.0]
    assert columns == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_catch_pixels_is_catch_drawn_with_2x2_pixels_for_each_cell(device):
    copies = 40
    seen, drawn = (velocirl.make_vec(name, copies, seed=3, device=device) for name in ("Catch-v0", "CatchPixels-v0"))
    generator = np.random.default_rng(0)
    (boards, _), (pictures, _) = seen.reset(), drawn.reset()
    overlaps = 0
    for _ in range(30):
        assert pictures.dtype == np.uint8
        assert pictures.shape == (copies, 1, 20, 10)
        cells = pictures.reshape(copies, 10, 2, 5, 2)
        assert (cells == cells[:, :, :1, :, :1]).all()  # the four pixels of a cell are alike
        cells = cells[:, :, 0, :, 0]
        np.testing.assert_array_equal(cells > 0, boards.reshape(copies, 10, 5) == 1)
        assert ((cells == 255).sum(axis=(1, 2)) == 1).all()  # one ball
        assert ((cells == 128).sum(axis=(1, 2)) == 1).all()  # one paddle
        actions = generator.integers(0, 3, copies)
        boards, rewards, ends, *_ = seen.step(actions)
        pictures, others, other_ends, *_, other_infos = drawn.step(actions)
        np.testing.assert_array_equal(rewards, others)
        np.testing.assert_array_equal(ends, other_ends)
        if ends.any():
            last = other_infos["final_obs"][ends].reshape(-1, 10, 2, 5, 2)[:, 9, 0, :, 0]
            caught = rewards[ends] == 1.0
            np.testing.assert_array_equal((last == 255).sum(axis=1), 1)
            np.testing.assert_array_equal((last == 128).sum(axis=1), ~caught)  # a caught ball hides the paddle
            overlaps += caught.sum()
    assert overlaps > 0


def test_catch_pixels_looks_like_catch_to_people():
    fields = {"ball_row": 3, "ball_column": 1, "paddle": 4}
    assert show("CatchPixels-v0", "ansi", **fields) == show("Catch-v0", "ansi", **fields)
    picture = show("CatchPixels-v0", "rgb_array", **fields)
    np.testing.assert_array_equal(picture, show("Catch-v0", "rgb_array", **fields))
    assert tuple(picture[40 * 3 + 16, 40 * 1 + 20]) == ORANGE


@pytest.mark.parametrize("count", [0, 1, 4, 24])
def test_squared_draws_as_many_targets_as_asked_on_the_border(count):
    env = make("Squared-v0", num_targets=count)
    for seed in range(10):
        board = env.reset(seed=seed)[0].reshape(7, 7)
        assert board[3, 3] == -1
        assert (board == 1).sum() == count
        assert (board[1:6, 1:6] == 1).sum() == 0


def test_squared_targets_fall_evenly_on_the_border():
    env = make("Squared-v0")
    env.reset(seed=6)
    counts = np.sum([env.reset()[0].reshape(7, 7) == 1 for _ in range(1200)], axis=0)
    border = np.ones((7, 7), bool)
    border[1:6, 1:6] = False
    assert counts[border] == pytest.approx(200, abs=55)  # four standard deviations


def test_squared_moves_to_each_of_the_eight_neighbours():
    env = make("Squared-v0")
    reached = []
    for action in range(8):
        env.reset(seed=0)
        observation, reward, terminated, _, _ = env.step(action)
        assert (reward, terminated) == (0.0, False)
        reached.append(divmod(int(observation.argmin()), 7))
    assert reached == [(2, 2), (2, 3), (2, 4), (3, 2), (3, 4), (4, 2), (4, 3), (4, 4)]


def test_squared_border_pays_1_on_a_target_and_costs_1_elsewhere():
    env = make("Squared-v0", num_targets=12)
    rewards = []
    for seed in range(20):
        board = env.reset(seed=seed)[0].reshape(7, 7)
        steps = [env.step(1) for _ in range(3)]  # straight up
        assert [terminated for _, _, terminated, _, _ in steps] == [False, False, True]
        assert [reward for _, reward, *_ in steps] == [0.0, 0.0, 1.0 if board[0, 3] == 1 else -1.0]
        rewards.append(steps[-1][1])
    assert set(rewards) == {1.0, -1.0}


def test_squared_reading_the_map_earns_1():
    env = make("Squared-v0", num_targets=1)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        target = np.array(divmod(int(observation.argmax()), 7))
        steps = []
        while not (steps and steps[-1][2]):
            vertical, horizontal = np.sign(target - divmod(int(observation.argmin()), 7))
            neighbour = 3 * (vertical + 1) + horizontal + 1
            steps.append(env.step(neighbour - (neighbour > 4)))
            observation = steps[-1][0]
        assert [reward for _, reward, *_ in steps] == [0.0, 0.0, 1.0]


def show(name, mode, **fields):
    env = make(name, render_mode=mode)
    env.reset(seed=0)
    for field, number in fields.items():
        env.copies.state[field] = number
    return env.render()


def test_text_shows_the_board():
    board = "XO. .X. ..O"
    assert show("TicTacToe-v1", "ansi", mine=marked(board, "X"), theirs=marked(board, "O")) == board.replace(" ", "\n")
    lines = show("Catch-v0", "ansi", ball_row=3, ball_column=1, paddle=4).split("\n")
    assert lines == ["....."] * 3 + [".o..."] + ["....."] * 5 + ["....="]
    lines = show("Squared-v0", "ansi", row=4, column=2, targets=0b1000001).split("\n")
    assert lines == ["x.....x", *["......."] * 3, "..@....", *["......."] * 2]


def test_picture_shows_the_board():
    picture = show("TicTacToe-v1", "rgb_array", mine=0b1, theirs=0b10)
    assert tuple(picture[50, 50]) == BLUE  # the middle of X
    assert tuple(picture[50, 150]) == PAPER  # the middle of O
    assert tuple(picture[50, 175]) == RED
    assert (picture[210:290, 10:90] == PAPER).all()  # an empty cell

    picture = show("Catch-v0", "rgb_array", ball_row=3, ball_column=1, paddle=4)
    assert tuple(picture[40 * 3 + 16, 40 * 1 + 20]) == ORANGE
    assert tuple(picture[40 * 10 - 8, 40 * 4 + 20]) == BLUE

    picture = show("Squared-v0", "rgb_array", row=4, column=2, targets=0b1)
    size = picture.shape[0] // squared.SIDE
    assert tuple(picture[size // 2, size // 2]) == GREEN
    assert tuple(picture[size * 4 + size // 2, size * 2 + size // 2]) == RED
