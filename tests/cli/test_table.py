"""`velocirl table`: the picture is the policy, the numbers are the table's, and what cannot be shown is said."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from tic_tac_toe_oracle import code_of, exact

import velocirl
from velocirl import Discrete, Environment, MultiDiscrete, int32, record
from velocirl.cli.main import main
from velocirl.cli.table import picture as table_picture
from velocirl.cli.table.board import read_board
from velocirl.cli.table.grid import find_grid
from velocirl.cli.table.picture import make_picture, show_picture
from velocirl.training.source import Source

WAYS = {"↑": (-1, 0), "→": (0, 1), "↓": (1, 0), "←": (0, -1)}


@pytest.fixture(scope="module")
def cliff(tmp_path_factory):
    """A table that has learnt CliffWalking, in a file."""
    agent = velocirl.QLearning("CliffWalking-v1", seed=0).learn(100_000)
    return agent.save(tmp_path_factory.mktemp("cliff") / "table")


@pytest.fixture(scope="module")
def tic_tac_toe(tmp_path_factory):
    agent = velocirl.QLearning("TicTacToe-v1", seed=0).learn(2_000_000)
    return agent.save(tmp_path_factory.mktemp("board") / "table")


def shown(capsys, *arguments):
    capsys.readouterr()
    main(["table", *map(str, arguments)])
    return capsys.readouterr().out


def as_json(capsys, *arguments):
    return json.loads(shown(capsys, *arguments, "--json"))


def drawn(picture, *, encoding="utf-8", width=120, **options):
    """What a console of this kind gets to see."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_picture(Console(file=file, width=width, legacy_windows=False, **options), picture)
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def test_the_arrows_of_a_map_lead_to_the_goal_by_the_shortest_way(cliff, capsys):
    _, *lines, legend = shown(capsys, cliff).splitlines()
    arrows = [line.split() for line in lines[::2]]
    assert [len(row) for row in arrows] == [12] * 4
    assert arrows[3][1:] == ["C"] * 10 + ["G"]
    values = [line.split() for line in lines[1::2]]
    for row in range(3):
        for column in range(12):
            place, steps = (row, column), 0
            while place != (3, 11):
                assert place[0] < 3, "into the cliff"
                place = tuple(np.add(place, WAYS[arrows[place[0]][place[1]]]))
                steps += 1
            assert steps == (3 - row) + (11 - column)
            # Each step costs 1, discounted by 0.99.
            assert float(values[row][column]) == pytest.approx(-(1 - 0.99**steps) / 0.01, abs=0.15)
    assert arrows[3][0] == "↑"
    assert float(values[3][0]) == pytest.approx(-(1 - 0.99**13) / 0.01, abs=0.15)
    assert legend.startswith("values from -13.1")
    assert legend.endswith("to -1.000")


def test_json_has_the_numbers_of_the_table(cliff, capsys):
    found = as_json(capsys, cliff)
    assert found["map"] == ["............"] * 3 + ["SCCCCCCCCCCG"]
    agent = velocirl.QLearning.load(cliff)
    assert (found["environment"], found["algorithm"], found["steps"]) == ("CliffWalking-v1", "q-learning", agent.steps)
    assert [one["state"] for one in found["states"]] == list(range(48))
    values = agent.q_values(np.arange(48))
    assert np.array_equal(np.array([one["values"] for one in found["states"]], np.float32), values)
    never = {*range(37, 48)}  # the cliff, from which one is set back, and the goal, at which all is over
    assert {one["state"] for one in found["states"] if one["best"] is None} == never
    learnt = [one for one in found["states"] if one["state"] not in never]
    assert [one["best"] for one in learnt] == [values[one["state"]].argmax() for one in learnt]


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("GridWorld-v0", [".....", ".##..", ".#...", "...#.", ".#.#G"]),
        ("FrozenLake-v1", ["SFFF", "FHFH", "FFFH", "HFFG"]),
        ("gym:FrozenLake-v1", ["SFFF", "FHFH", "FFFH", "HFFG"]),
        ("CliffWalking-v1", ["............"] * 3 + ["SCCCCCCCCCCG"]),
        ("gym:CliffWalking-v1", ["............"] * 3 + [".CCCCCCCCCCG"]),
    ],
)
def test_a_map_is_found(name, tiles):
    grid = find_grid(Source(name))
    assert ["".join(line) for line in grid.tiles] == tiles
    assert np.array_equal(grid.states.ravel(), np.arange(grid.states.size))
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # up, right, down, left
    if "Frozen" in name:
        moves = [moves[k] for k in (3, 2, 1, 0)]
    for found, move in zip(grid.moves, moves, strict=True):
        assert np.dot(found, move) > 0.1
        assert abs(np.dot(found, move[::-1])) < np.dot(found, move) / 2


@pytest.mark.parametrize("name", ["TicTacToe-v1", "Bandit-v0", "gym:Blackjack-v1", "CartPole-v1"])
def test_what_has_no_map_has_none(name):
    assert find_grid(Source(name)) is None


@record
class Place:
    row: int32
    column: int32


def start(state, params, rng):
    state.row = state.column = 1


def walk(state, params, action, rng):
    """The nine actions lead to the eight neighbours, row by row, and nowhere."""
    state.row = min(max(state.row + action // 3 - 1, 0), 2)
    state.column = min(max(state.column + action % 3 - 1, 0), 2)
    return -1.0, False


def see(state, params, observation):
    observation[0] = 3 * state.row + state.column


def sketch(state, params):
    cells = [["~", "."] * 2 for _ in range(3)]
    for line in cells:
        line.pop()
    cells[state.row][state.column] = "@"
    return "\n".join("".join(line) for line in cells)


def walkers():
    return Environment(
        "Walkers-v0", state=Place, observation=Discrete(9), action=Discrete(9), reset=start, step=walk, observe=see,
        text=sketch,
    )  # fmt: skip


def walkers_picture(left_out=(), power=1):
    """Cell k's best action is action k, worth k to some power."""
    values = np.diag(np.arange(9.0) ** power + 1.0) - 1.0
    values[list(left_out)] = 0.0
    return make_picture(find_grid(Source(walkers())), values, 0.0)


def test_a_map_of_ones_own_is_drawn_with_all_its_ways():
    lines = drawn(walkers_picture()).splitlines()
    assert [line.split() for line in lines[:6:2]] == [["↖", "↑", "↗"], ["←", "•", "→"], ["↙", "↓", "↘"]]
    assert [float(word) for line in lines[1:6:2] for word in line.split()] == list(range(9))
    lines = drawn(walkers_picture(left_out=[0, 7]), encoding="ascii").splitlines()
    assert [line.split() for line in lines[:6:2]] == [["~", "^", "/"], ["<", "o", ">"], ["/", ".", "\\"]]
    narrow = drawn(walkers_picture(), width=20).splitlines()
    assert narrow[:3] == [" ↖  ↑  ↗ ", " ←  •  → ", " ↙  ↓  ↘ "]


def test_a_map_has_colours_where_there_are_any(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    picture = walkers_picture(left_out=[4])
    full = drawn(picture, force_terminal=True, color_system="truecolor")
    assert full.count("48;2;68;1;84m") == full.count("48;2;253;231;37m") == 3  # two lines of a cell, and the legend
    # Rich remembers how it wrote a colour, so that these have to be other ones.
    fewer = drawn(walkers_picture(power=2), force_terminal=True, color_system="256")
    assert "48;5;" in fewer
    plain = drawn(picture, force_terminal=True, color_system="truecolor", no_color=True)
    assert "48;" not in plain
    assert "values from 0.000 to 8.000" in plain
    assert "\x1b" not in drawn(picture)


def test_a_map_as_a_picture(cliff, tmp_path, capsys, monkeypatch, refused):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "map.png"
    shown(capsys, cliff, "--png", path)
    pixels = np.round(image.imread(path)[:, :, :3] * 255).astype(int)
    shares = {color: (pixels == color).all(axis=-1).mean() for color in (*table_picture.TILES.values(), (253, 231, 37))}
    assert shares[table_picture.TILES["C"]] == pytest.approx(10 * shares[table_picture.TILES["G"]], rel=0.1)
    assert shares[table_picture.TILES["G"]] > 0.01
    assert shares[253, 231, 37] > 0.01  # the best cell
    assert shares[table_picture.TILES["#"]] == 0.0
    monkeypatch.setattr(table_picture.importlib.util, "find_spec", lambda _: None)
    assert 'pip install "velocirl[plots]"' in refused("table", cliff, "--png", tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_moves_of_a_position_are_those_of_perfect_play(tic_tac_toe, capsys):
    _, keys, plan = exact()
    place = {int(code): number for number, code in enumerate(keys)}
    boards = ["X..|.O.|O..", "O........", "XO./XO./...", "x o x o . . . . o"]
    for text in boards:
        (found,) = as_json(capsys, tic_tac_toe, "--state", text)["boards"]
        board = read_board(text)
        perfect = plan.action_values[place[code_of(board)]]
        assert [value is None for value in found["values"]] == (board != 0).tolist()
        assert perfect[found["best"]] >= perfect.max() - 0.01
        assert found["values"][found["best"]] == pytest.approx(perfect.max(), abs=0.05)
        lines = shown(capsys, tic_tac_toe, "--state", text).splitlines()
        row, column = divmod(found["best"], 3)
        assert lines[1 + row].split()[column] == f"[{found['values'][found['best']]:+.3f}]"
        assert f"best: cell {found['best'] + 1} of 9 (row {row + 1}, column {column + 1})" in lines[4]


def test_openings_are_shown_unless_a_position_is_named(tic_tac_toe, capsys):
    boards = as_json(capsys, tic_tac_toe)["boards"]
    assert [one["board"] for one in boards] == ["." * 9] + ["." * k + "O" + "." * (8 - k) for k in range(9)]
    text = shown(capsys, tic_tac_toe)
    for one in boards:
        assert f"[{one['values'][one['best']]:+.3f}]" in text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("XZ.......", "'Z' is no mark"),
        ("X.......", "that is 8 cells"),
        ("X........", "with 1 X and 0 O it is not the table's turn"),
        ("OO.......", "with 0 X and 2 O it is not the table's turn"),
        ("XXXOO....", "this game is over"),
        ("XOXXOOOXO", "this game is over"),
    ],
)
def test_a_position_that_is_none_is_refused(tic_tac_toe, refused, text, problem):
    assert problem in refused("table", tic_tac_toe, "--state", text)


@pytest.fixture(params=["dense", "sparse"])
def digits(request, tmp_path):
    """A table of an environment that is nothing to look at, with values that are known."""

    def show(state, params, observation):
        observation[0], observation[1] = state.row, state.column

    environment = Environment(
        "Digits-v0", state=Place, observation=MultiDiscrete([3, 40]), action=Discrete(2), reset=start, step=walk,
        observe=show,
    )  # fmt: skip
    agent = velocirl.QLearning(environment, seed=0, storage=request.param, exploration="ucb")
    table = agent.table.state()
    met = np.array([41, 7, 119, 80])
    if request.param == "sparse":
        table = {"state": met, "values": np.zeros((4, 2), np.float32), "visits": np.zeros((4, 2), np.int32)}
    rows = slice(None) if request.param == "sparse" else met
    table["values"][rows] = [[1, 2], [4, 3], [-5, -6], [0, 7]]
    table["visits"][rows] = [[5, 5], [1, 1], [30, 0], [0, 20]]
    agent.table.load_state(table)
    return agent.save(tmp_path / "table")


def test_states_of_any_table_are_listed_by_their_visits(digits, capsys):
    assert as_json(capsys, digits, "--top", 3)["states"] == [
        {"state": 119, "observation": [2, 39], "values": [-5.0, -6.0], "best": 0, "visits": [30, 0]},
        {"state": 80, "observation": [2, 0], "values": [0.0, 7.0], "best": 1, "visits": [0, 20]},
        {"state": 41, "observation": [1, 1], "values": [1.0, 2.0], "best": 1, "visits": [5, 5]},
    ]
    _, heading, *lines = shown(capsys, digits).splitlines()
    assert heading.split() == ["state", "observation", "best", "action", "0", "action", "1", "visits"]
    assert [line.split() for line in lines][-1] == ["7", "0", "7", "0", "4", "3", "2"]
    assert len(lines) == 4


def test_one_state_is_named_by_number_or_digits(digits, capsys, refused):
    for text in ("80", "2,0", "(2, 0)"):
        (found,) = as_json(capsys, digits, "--state", text)["states"]
        assert (found["state"], found["values"]) == (80, [0.0, 7.0])
    (unknown,) = as_json(capsys, digits, "--state", "3")["states"]
    assert unknown == {"state": 3, "observation": [0, 3], "values": [0.0, 0.0], "best": None, "visits": [0, 0]}
    assert "never met" in shown(capsys, digits, "--state", 3)
    assert "numbered from 0 to 119" in refused("table", digits, "--state", "120")
    assert "go from 0,0 to 2,39" in refused("table", digits, "--state", "3,0")
    assert "2 whole numbers with commas between them" in refused("table", digits, "--state", "1,2,3")
    assert "2 whole numbers with commas between them" in refused("table", digits, "--state", "somewhere")


def test_what_cannot_be_shown_is_said(cliff, digits, tmp_path, refused):
    network = velocirl.PPO("CartPole-v1", seed=0).save(tmp_path / "network")
    assert "has no table: what ppo learns is a network" in refused("table", network)
    assert "choose --state or --top" in refused("table", cliff, "--state", 3, "--top", 3)
    assert "--top must be at least 1" in refused("table", cliff, "--top", 0)
    assert "--png draws maps of grid worlds" in refused("table", digits, "--png", tmp_path / "map.png")
    assert "--png draws maps without --state" in refused("table", cliff, "--top", 3, "--png", tmp_path / "map.png")
    damaged = tmp_path / "damaged.safetensors"
    content = bytearray(cliff.read_bytes())
    content[-9] ^= 1
    damaged.write_bytes(content)
    assert "damaged" in refused("table", damaged)
    nothing = velocirl.QLearning("Bandit-v0", seed=0).save(tmp_path / "nothing")
    assert "nothing was learnt yet" in refused("table", nothing)
