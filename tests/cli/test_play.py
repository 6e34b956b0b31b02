"""`velocirl play`: the rules are kept, the table plays as well as it learnt, and a game ends when the person wants."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pytest
from tic_tac_toe_oracle import LINES, code_of, exact, outcome_of_policy

import velocirl
from velocirl.cli.main import main
from velocirl.cli.play.tic_tac_toe import answer

ENDS = {"you win": 1, "a draw": 0, "the table wins": -1}


@pytest.fixture(scope="module")
def agent():
    return velocirl.QLearning("TicTacToe-v1", seed=0).learn(2_000_000)


@pytest.fixture(scope="module")
def table(agent, tmp_path_factory):
    return agent.save(tmp_path_factory.mktemp("board") / "table")


@pytest.fixture
def played(table, capsys, monkeypatch):
    """What is printed when a person says these lines."""

    def played(*lines, options=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        main(["play", str(table), *options])
        return capsys.readouterr().out

    return played


def won(board, mark):
    return any(all(board[cell] == mark for cell in line) for line in LINES)


def results(moves, script, board, turn):
    """How games may end in which the person takes the first free cell of a script, and the table any of these moves."""
    if won(board, 1) or won(board, 2) or 0 not in board:
        return {int(won(board, 2)) - int(won(board, 1))}
    cells = moves(board) if turn == 1 else [next(cell for cell in script if board[cell] == 0)]
    assert all(board[cell] == 0 for cell in cells)
    after = [[*board[:cell], turn, *board[cell + 1 :]] for cell in cells]
    return set().union(*(results(moves, script, each, 3 - turn) for each in after))


def perfect(board):
    """Every move that is as good as the best against somebody who plays at random, or hardly worse."""
    values = perfect_values(code_of(board))
    return np.flatnonzero(values >= values.max() - 0.01)


@cache
def perfect_values(code):
    _, keys, plan = exact()
    return plan.action_values[int(np.flatnonzero(keys == code)[0])]


SCRIPTS = [list(range(9)), list(range(8, -1, -1)), [4, 0, 2, 6, 8, 1, 3, 5, 7], [1, 3, 5, 7, 0, 2, 4, 6, 8]]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: "".join(map(str, script)))
@pytest.mark.parametrize("first", ["me", "table"])
def test_games_end_as_with_perfect_play(agent, played, script, first):
    begin = [0] * 9, 2 if first == "me" else 1
    (result,) = results(lambda board: [answer(agent, np.array(board))], script, *begin)
    assert result in results(perfect, script, *begin)
    # The same through the command: the person says every cell of the script, and is asked again for what is taken.
    text = played(*(cell + 1 for _ in range(9) for cell in script), options=["--first", first])
    assert ENDS[re.findall("|".join(ENDS), text)[0]] == result


def test_perfect_play_wins_against_most_of_these():
    """So that the test above says something; one who begins in the middle can win against some of the best moves."""
    ends = [results(perfect, script, [0] * 9, turn) for script in SCRIPTS for turn in (1, 2)]
    assert ends == [{-1}] * 5 + [{-1, 1}] + [{-1}] * 2


def test_whatever_a_person_does_no_rule_is_broken_and_little_is_lost(agent):
    policy = np.zeros(3**9, np.int64)
    seen, games = set(), 0

    def explore(board, turn):
        nonlocal games
        if won(board, 1) or won(board, 2) or 0 not in board:
            games += 1
            return
        if turn == 2:
            for cell in range(9):
                if board[cell] == 0:
                    explore([*board[:cell], 2, *board[cell + 1 :]], 1)
            return
        if tuple(board) not in seen:
            seen.add(tuple(board))
            cell = answer(agent, np.array(board))
            assert board[cell] == 0
            policy[code_of(board)] = cell
            explore([*board[:cell], 1, *board[cell + 1 :]], 2)

    explore([0] * 9, 1)
    explore([0] * 9, 2)
    assert games > 100
    assert outcome_of_policy(policy)[2] < 0.01  # lost to somebody who plays at random


def test_a_person_is_asked_again_and_games_are_counted(played):
    text = played("maybe", "y", "5", "5", "ten", "10", "", "q")
    assert "'maybe' is neither y nor n" in text
    assert text.count("your move:") == 6
    for wrong in ("'5'", "'ten'", "'10'", "''"):
        assert f"{wrong} is no free cell: choose one of 1, " in text
    assert "no game was finished" in text
    script = [str(cell) for _ in range(9) for cell in range(1, 10)]
    text = played("n", *script, "y", *script)
    assert text.count("do you begin?") >= 2
    tallies = re.findall(r"you have won (\d+), drawn (\d+), lost (\d+)", text)
    assert sum(map(int, tallies[0])) == 1
    assert sum(map(int, tallies[-1])) == len(re.findall("|".join(ENDS), text)) >= 2


def test_the_board_is_shown_with_its_free_cells(played):
    text = played("1", "q", options=["--first", "me"])
    assert " 1 | 2 | 3 \n---+---+---\n 4 | 5 | 6 \n---+---+---\n 7 | 8 | 9 \n" in text
    assert re.search(r" O \| 2 \| 3 ", text)
    (cell,) = re.findall(r"table: (\d)", text)
    assert f" {cell} " not in text.split(f"table: {cell}")[1]


def test_other_tables_are_watched(tmp_path, refused, capsys):
    other = velocirl.QLearning("GridWorld-v0", seed=0).learn(2000).save(tmp_path / "grid")
    main(["play", str(other), "--seed", "3"])
    assert "episode 1: over after" in capsys.readouterr().out
    assert "cannot be 'you'" in refused("play", other, "--first", "you")
    assert "--first is for a table that has learnt TicTacToe-v1" in refused("play", other, "--first", "me")


def test_tic_tac_toe_may_be_watched_too(table, capsys):
    main(["play", str(table), "--watch"])
    said = capsys.readouterr().out
    assert "episode 1: over after" in said
    assert "your move" not in said


def converse(command, table, said, wait_for):
    """Play in a terminal: after each thing that is shown, say the next; gives back all that was shown, and the code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, "play", str(table), "--first", "me"], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env={**os.environ, "TERM": "xterm-256color"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, until = b"", time.monotonic() + 60
    try:
        for text, wanted in zip(said, wait_for, strict=True):
            before = len(shown)
            while wanted not in shown[before:] and time.monotonic() < until:
                shown += os.read(ours, 4096)
            if isinstance(text, bytes):
                os.write(ours, text)
            else:
                time.sleep(
                    0.5
                )  # until it waits: Python hears of what comes after the prompt and before that with the next key
                process.send_signal(text)
        code = process.wait(timeout=30)
        while part := _read(ours):
            shown += part
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return shown.decode(), code


def _read(handle):
    try:
        return os.read(handle, 4096)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.parametrize("ending", [b"q\n", b"\x04", signal.SIGINT], ids=["q", "end-of-file", "interrupt"])
def test_a_game_in_a_terminal_ends_cleanly(table, command, ending):
    shown, code = converse(command, table, [b"5\n", ending], [b"your move: ", b"your move: "])
    assert code == 0, shown
    assert "\x1b[1;31m O " in shown  # the person's mark, in red
    assert "\x1b[1;34m X " in shown
    assert "no game was finished" in shown
    assert "Traceback" not in shown
