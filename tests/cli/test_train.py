"""`velocirl train`: what is asked for is what is trained, and mistakes are one line."""

import dataclasses
import json
import re
import resource
import subprocess
import tomllib

import numpy as np
import pytest
from same_runs import assert_same as assert_same_runs

from velocirl import A2C, PPO, load
from velocirl.cli.main import main
from velocirl.cli.named.environment_files import choose
from velocirl.cli.parsing import whole_number
from velocirl.cli.settings import descriptions, read_request
from velocirl.cli.train.command import build, plan_of
from velocirl.runs.checkpoints import Checkpoints
from velocirl.runs.config_file import as_toml
from velocirl.runs.directory import list_runs, open_run
from velocirl.runs.metrics import STEP
from velocirl.training.outcome import solved_at

NOT_A_NUMBER = """
from math import inf
from velocirl import Box, Discrete, Environment, float32, record

@record
class State:
    age: float32

def reset(state, params, rng):
    state.age = 0.0

def step(state, params, action, rng):
    state.age += 1.0
    return 1.0 if state.age < 40.0 else (state.age - state.age) / (state.age - state.age), False

def observe(state, params, observation):
    observation[0] = state.age / 100.0

environment = Environment("Faulty-v0", state=State, observation=Box(-inf, inf, (1,)), action=Discrete(2),
                          reset=reset, step=step, observe=observe)
"""


def arrays_of(run):
    return run.checkpoints().latest().state.arrays


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name


def test_the_command_line_stands_above_the_file_and_the_file_above_the_preset(my_pole, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("gae_lambda = 0.7\nhorizon = 8\ntotal_steps = 320\ncheckpoint_every = 100")
    request = read_request(
        [str(my_pole), "--config", str(file), "--horizon", "16", "--no-shared", "--hidden", "8", "4"]
    )
    chosen = choose(request.environment)
    agent = build(request.algorithm, chosen, request.values)
    config = agent.config
    assert config.num_envs == 2  # the preset's
    assert config.gamma == 0.9
    assert config.gae_lambda == 0.7  # the file's
    assert config.horizon == 16  # the command line's
    assert config.hidden == (8, 4)
    assert config.shared is False
    assert config.epochs == PPO.Config().epochs  # nobody's
    plan = plan_of(request, agent, chosen)
    assert (plan.total_steps, plan.checkpoint_every, plan.environment_file) == (320, 100, str(my_pole))
    request = read_request([str(my_pole)])
    assert request.values == {}
    assert plan_of(request, agent, chosen).total_steps == 640  # the preset's
    request = read_request([str(my_pole), "--total-steps", "2k"])
    assert plan_of(request, agent, chosen).total_steps == 2000
    request = read_request(["CartPole-v1", "--algorithm", "A2C"])
    assert request.algorithm is A2C
    agent = build(A2C, choose("CartPole-v1"), {})
    if "a2c" not in agent.source.native.presets:
        assert plan_of(request, agent, choose("CartPole-v1")).total_steps == 1_000_000


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_help_lists_every_setting_with_its_default_and_what_it_is(algorithm, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as ended:
        main(["train", "--algorithm", algorithm.name, "--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    texts = descriptions(algorithm.Config)
    assert texts["num_envs"] == "Number of environment copies stepped together."
    for field in dataclasses.fields(algorithm.Config):
        option = f"--{field.name.replace('_', '-')}"
        (place,) = [i for i, line in enumerate(lines) if re.match(rf"  {option}[ ,]", line)]
        text = re.sub(r"\s+", " ", " ".join(lines[place : place + 2]))
        default = {"True": "on", "False": "off", "(64, 64)": "64 64"}.get(str(field.default), field.default)
        what = texts[field.name] if texts[field.name].endswith("...") else texts[field.name].removesuffix(".")
        assert f" {what}{'' if default is None else f' (default: {default})'}" in text
        assert default is not None or "(default:" not in lines[place]


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("1_000_000", 10**6), ("1e6", 10**6), ("200k", 200_000), ("1.5M", 1_500_000), ("-3", -3), ("2B", 2e9)],
)
def test_whole_numbers_as_people_write_them(text, value):
    assert whole_number(text) == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPole-v1", "--num-env", "8"], "there is no option --num-env: did you mean --num-envs?"),
        (["--num-env", "8", "CartPole-v1"], "there is no option --num-env: did you mean --num-envs?"),
        (["CartPole-v1", "--frobnicate"], "there is no option --frobnicate: velocirl train --help"),
        (["CartPole-v1", "--n-steps", "8"], "there is no option --n-steps: here there is --horizon (velocirl"),
        (["CartPole-v1", "--total-timesteps=8"], "there is no option --total-timesteps: here there is --total-steps"),
        (["CartPole-v1", "--algorithm", "td3", "--policy-delay", "2"],
         "there is no option --policy-delay: here there is --actor-every and --target-every"),
        (["CartPole-v1", "Acrobot-v1"], "'Acrobot-v1' is one word too many"),
        (["CartPol-v1"], "there is no environment 'CartPol-v1': did you mean 'CartPole-v1'?"),
        (["LunarLander-v3"], "there is no environment 'LunarLander-v3': Gymnasium's is 'gym:LunarLander-v3'"),
        (["gym:CartPol-v1"], "Gymnasium has no environment 'CartPol-v1': did you mean 'gym:CartPole-v1'?"),
        (["gym:no_such_module:Thing-v0"], "gym:no_such_module:Thing-v0: Python finds no module 'no_such_module'"),
        (["nowhere.py"], "there is no file "),
        (["CartPole-v1", "--algorithm", "pppo"], "there is no algorithm 'pppo': did you mean 'ppo'?"),
        (["CartPole-v1", "--num-envs", "many"], "--num-envs: must be a whole number, got 'many'"),
        (["CartPole-v1", "--num-envs", "0.5"], "--num-envs: must be a whole number, got '0.5'"),
        (["CartPole-v1", "--num-envs"], "--num-envs: expected one argument"),
        (["CartPole-v1", "--num-envs", "0"], "num_envs must be at least 1, got 0"),
        (["CartPole-v1", "--gamma", "high"], "--gamma: must be a number, got 'high'"),
        (["CartPole-v1", "--gamma", "1.5"], "gamma must be from 0 to 1, got 1.5"),
        (["CartPole-v1", "--estimator", "gea"], "--estimator: cannot be 'gea': did you mean 'gae'?"),
        (["CartPole-v1", "--total-steps", "0"], "total_steps must be at least 1, got 0"),
        (["CartPole-v1", "--hidden", "64", "wide"], "--hidden: must be a whole number, got 'wide'"),
        (["--config", "nowhere.toml"], "[Errno 2] No such file"),
        ([], "say which environment is to be learnt"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(arguments, message, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused("train", *arguments).startswith(f"error: {message}")
    assert list_runs() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gama = 0.9", "there is no setting 'gama': did you mean 'gamma'?"),
        ("total_stepps = 9", "there is no setting 'total_stepps': did you mean 'total_steps'?"),
        ("[ppo]\ngamma = 0.9", "there is no setting 'ppo'"),
        ("n_epochs = 3", "there is no setting 'n_epochs': here there is epochs"),
        ("total_steps = 'many'", "total_steps must be of type int, got 'many'"),
        ("total_steps = true", "total_steps must be of type int, got True"),
        ("algorithm = 3", "there is no algorithm 3"),
        ("gamma =", "is not TOML"),
    ],
)
def test_mistakes_in_a_file_are_one_line(text, message, refused, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(text)
    assert message in refused("train", "CartPole-v1", "--config", file)
    file.write_text("gamma = 'high'")
    assert "gamma: there is no schedule 'high'" in refused("train", "CartPole-v1", "--config", file)


def test_the_config_of_a_run_repeats_it(train, tmp_path):
    run = train("--gamma", "0.97", "--learning-rate-schedule", "cosine(end=0.1)", "--checkpoint-every", "500")
    file = run.path / "config.toml"
    values = tomllib.loads(file.read_text())
    expected = {
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "total_steps": 1280,
        "checkpoint_every": 500,
        "seed": 3,
    }
    expected |= {"gamma": 0.97, "learning_rate_schedule": "cosine(end=0.1)", "hidden": [64]}
    assert {name: values[name] for name in expected} == expected
    main(["train", "--config", str(file), "--run-dir", str(tmp_path / "again"), "--quiet"])
    again = open_run(tmp_path / "again")
    assert (again.path / "config.toml").read_text() == file.read_text()
    assert_same(arrays_of(again), arrays_of(run))
    other = train("--gamma", "0.97", "--seed", "4", name="other")
    assert arrays_of(other)["network.parameters"].tobytes() != arrays_of(run)["network.parameters"].tobytes()


@pytest.mark.parametrize(
    "value", ['a "quoted" \\ word\n', 1e-05, 1e300, -0.25, True, False, 7, (64, 64), (), ["x", "y"]]
)
def test_values_survive_toml(value):
    found = tomllib.loads(as_toml({"nothing": None, "value": value}))
    assert found == {"value": list(value) if isinstance(value, tuple) else value}


def test_a_run_is_recorded_and_its_rows_are_whole(train):
    run = train("--checkpoint-every", "300", "--evaluate-every", "512")
    rows = run.rows()
    assert [row[STEP] for row in rows] == list(range(128, 1281, 128))
    assert [row["time/iterations"] for row in rows] == list(range(1, 11))
    assert [row[STEP] for row in rows if "eval/mean_reward" in row] == [512, 1024, 1280]
    assert list(run.checkpoints().steps()) == [640, 1024, 1280]  # the last three, where 600, 900 and 1200 are passed
    description = run.description
    assert (description.environment, description.algorithm, description.seed) == ("CartPole-v1", "ppo", 3)
    assert (description.status, description.plan.total_steps, description.config["num_envs"]) == ("finished", 1280, 8)
    best = run.checkpoints().best().document["best"]
    assert best == {"metric": "eval/mean_reward", "score": max(row.get("eval/mean_reward", -1.0) for row in rows)}


def test_json_is_a_start_rows_and_an_end_and_nothing_else(tmp_path, small, capsys):
    main(["train", "CartPole-v1", *small, "--total-steps", "640", "--run-dir", str(tmp_path / "run"), "--json"])
    captured = capsys.readouterr()
    start, *rows, end = map(json.loads, captured.out.splitlines())
    run = open_run(tmp_path / "run")
    assert (start["event"], start["path"], start["total_steps"], start["config"]) == (
        "start", str(run.path), 640, run.description.config,
    )  # fmt: skip
    assert [row.pop("event") for row in rows] == ["metrics"] * 5
    assert rows == run.rows()
    assert (end["event"], end["status"], end["path"], end["steps"]) == ("end", "finished", str(run.path), 640)
    assert end["return"] == rows[-1]["rollout/ep_rew_mean"]
    assert 0 < end["seconds"] < 60
    assert captured.err == ""


def test_json_says_why_it_failed(tmp_path, small, capsys):
    # So large a step throws the parameters out of all bounds, and the next rollout meets the consequences.
    arguments = [
        *small,
        "--learning-rate",
        "1e38",
        "--max-grad-norm",
        "0",
        "--run-dir",
        str(tmp_path / "run"),
        "--json",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["train", "CartPole-v1", *arguments])
    captured = capsys.readouterr()
    end = json.loads(captured.out.splitlines()[-1])
    assert (ended.value.code, end["event"], end["status"]) == (1, "end", "failed")
    assert "not finite" in end["error"]
    assert captured.err.startswith(f"error: {end['error']}")


def test_whoever_reads_may_go_away(command, small, tmp_path):
    words = [
        *command,
        "train",
        "CartPole-v1",
        *small,
        "--total-steps",
        "65536",
        "--run-dir",
        str(tmp_path / "run"),
        "--json",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["event"] == "start"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 141
    assert open_run(tmp_path / "run").description.status == "failed"


def test_in_a_pipe_there_are_plain_lines_and_what_to_do_next(small, capsys, data_home):
    main(["train", "CartPole-v1", *small, "--total-steps", "640"])
    lines = capsys.readouterr().out.splitlines()
    (run,) = list_runs()
    assert run.path.parent == data_home / "runs"
    assert "\x1b" not in "".join(lines)
    assert lines[-4].split()[:3] == ["640", "steps", "100%"]
    assert lines[-3].startswith("finished after 640 steps, ")
    assert lines[-2:] == [f"run   {run.path}", f"next  velocirl evaluate {run.name}"]


def test_a_target_ends_training_and_counts_as_solved(tmp_path, small, capsys):
    main(
        [
            "train",
            "CartPole-v1",
            *small,
            "--total-steps",
            "1M",
            "--target-return",
            "5",
            "--run-dir",
            str(tmp_path / "run"),
        ]
    )
    assert "solved after" in capsys.readouterr().out
    run = open_run(tmp_path / "run")
    assert run.description.status == "finished"
    assert run.rows()[-1][STEP] < 10_000
    assert run.rows()[-1]["rollout/ep_rew_mean"] >= 5


def test_what_counts_as_solved():
    assert (solved_at("CartPole-v1"), solved_at("gym:CartPole-v1"), solved_at("MyPole-v0")) == (475.0, 475.0, None)


def test_quiet_is_quiet(train, capsys):
    train()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_file_is_an_environment(train, my_pole, refused):
    run = train(environment=f"{my_pole}:MyPole-v0", steps=256)
    assert (run.description.environment, run.description.plan.environment_file) == ("MyPole-v0", str(my_pole))
    assert "my_pole.py defines no 'MyPol-v0': did you mean 'MyPole-v0'?" in refused("train", f"{my_pole}:MyPol-v0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no environment"),
        ("import not_there", "mine.py:1: ModuleNotFoundError: No module named 'not_there'"),
        ("x = (\n", "mine.py:1: SyntaxError"),
        ("\nx = 1 / 0", "mine.py:2: ZeroDivisionError: division by zero"),
        ("import velocirl\nvelocirl.Environment('bad', state=1)", "Environment"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(text, message, tmp_path, refused):
    (tmp_path / "mine.py").write_text(text)
    assert message in refused("train", tmp_path / "mine.py")


OWN_GYMNASIUM = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("FromModule-v0", entry_point=CartPoleEnv, max_episode_steps=20)
"""


def test_a_module_that_registers_an_environment_is_imported(train, tmp_path, monkeypatch, refused):
    (tmp_path / "my_gymnasium.py").write_text(OWN_GYMNASIUM)
    monkeypatch.syspath_prepend(tmp_path)
    run = train(environment="gym:my_gymnasium:FromModule-v0", steps=256)
    assert run.description.environment == "gym:my_gymnasium:FromModule-v0"
    main(["evaluate", str(run.path), "--episodes", "2", "--json"])
    main(["resume", str(run.path), "--total-steps", "512", "--quiet"])
    assert run.checkpoints().latest().step == 512
    with pytest.raises(ValueError, match="making that would import a module; if you trust it, give env="):
        load(run.path)
    assert load(run.path, env="gym:my_gymnasium:FromModule-v0", best=False).steps == 512


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_what_gymnasium_cannot_make_is_one_line(refused):
    assert "gym:Ant-v3 cannot be made: " in refused("train", "gym:Ant-v3").splitlines()[-1]


def test_a_configuration_imports_no_code_that_was_not_named_before(my_pole, tmp_path, refused):
    marker = tmp_path / "imported"
    my_pole.write_text(f"open({str(marker)!r}, 'w').close()\n{my_pole.read_text()}")
    file = tmp_path / "run.toml"
    file.write_text(as_toml({"environment": str(my_pole)}))
    assert f"{file} wants {my_pole} imported, which is code" in refused("train", "--config", file)
    assert not marker.exists()
    file.write_text(as_toml({"environment": "gym:this_module:Env-v0"}))
    assert f"{file} wants gym:this_module:Env-v0 imported" in refused("train", "--config", file)
    choose(str(my_pole))
    assert marker.exists()
    request = read_request(["--config", str(file)])
    assert choose(str(my_pole), named_by=request.named_by).id == "MyPole-v0"


def test_a_second_run_of_a_command_takes_the_next_free_name(train, tmp_path, small, refused, capsys):
    run = train(steps=128)
    before = (run.path / "run.json").read_bytes()
    words = ["train", "CartPole-v1", *map(str, small), "--total-steps", "128", "--run-dir", str(run.path)]
    assert "is a run already: go on with it by `velocirl resume" in refused(*words, "--exist", "error")
    capsys.readouterr()
    main([*words, "--json"])
    said = capsys.readouterr()
    assert said.err == (
        f"{run.path} is a run already: this one is {run.path}-2"
        f" (--exist resume continues {run.name}, --exist overwrite replaces it)\n"
    )
    again = open_run(json.loads(said.out.splitlines()[0])["path"])
    assert again.path == run.path.with_name(f"{run.name}-2")
    assert_same(arrays_of(again), arrays_of(run))
    assert (run.path / "run.json").read_bytes() == before
    main([*words, "--seed", "5", "--exist", "overwrite", "--quiet"])
    assert open_run(run.path).description.seed == 5
    assert capsys.readouterr().err == ""
    assert "--exist overwrite says what to do where there is a run already: add --run-dir" in refused(
        "train", "CartPole-v1", "--exist", "overwrite"
    )


def test_a_number_that_is_none_ends_the_run_and_leaves_its_checkpoints(tmp_path, small, refused):
    (tmp_path / "faulty.py").write_text(NOT_A_NUMBER)
    where = tmp_path / "run"
    often = ("--total-steps", 1280, "--checkpoint-every", 128)
    message = refused("train", tmp_path / "faulty.py", *small, *often, "--run-dir", where, "--quiet", code=1)
    assert "a reward of the environment is not finite: copy 0, step 312 of the run" in message
    run = open_run(where)
    assert run.description.status == "failed"
    assert list(run.checkpoints().steps()) == [128, 256]
    assert [row[STEP] for row in run.rows()] == [128, 256]
    for array in arrays_of(run).values():
        assert (
            all(np.isfinite(array[name]).all() for name in array.dtype.names)
            if array.dtype.names
            else np.isfinite(array).all()
        )


def test_a_full_disk_ends_the_run_with_what_to_do_and_leaves_the_last_checkpoint(tmp_path, small, refused, monkeypatch):
    where = tmp_path / "run"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    save = Checkpoints.save

    def save_then_fill(self, *given):
        if self.steps():  # the disk is full from the second checkpoint on
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limit[1]))
        return save(self, *given)

    monkeypatch.setattr(Checkpoints, "save", save_then_fill)
    often = ("--total-steps", 1280, "--checkpoint-every", 256)
    try:
        message = refused("train", "CartPole-v1", *small, *often, "--run-dir", where, "--quiet", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "the run cannot be saved at step 512: " in message
    assert "File too large" in message
    assert "the checkpoint of step 256 is whole: make room, then go on with `velocirl resume run`" in message
    run = open_run(where)
    assert run.description.status == "failed"
    assert run.checkpoints().latest().step == 256
    assert [path.name for path in (where / "checkpoints").iterdir() if "unfinished" in path.name] == []


def test_neither_pictures_nor_torch_are_imported_to_train(run_script, tmp_path, small):
    script = tmp_path / "script.py"
    arguments = ["train", "CartPole-v1", *small, "--total-steps", "256", "--run-dir", str(tmp_path / "run"), "--quiet"]
    script.write_text(
        "import sys\n"
        "from velocirl.runs import recording\n"
        "recording.draw_curve, recording.available = (lambda *_: False), (lambda: False)\n"
        "from velocirl.cli.main import main\n"
        f"main({arguments!r})\n"
        "print(sorted({'matplotlib', 'tensorboard', 'torch', 'rich'} & set(sys.modules)))\n"
    )
    assert run_script(script) == "[]\n"


def test_physics_is_drawn_written_down_and_taken_from_a_file(train, refused, tmp_path):
    run = train("--params", "gravity=uniform(5,15)", name="drawn")
    assert 'params = {gravity = "uniform(5, 15)"}\n' in (run.path / "config.toml").read_text()
    again = train("--config", str(run.path / "config.toml"), name="again")
    assert_same_runs(run, again)
    wrong = "train", "CartPole-v1", "--run-dir", tmp_path / "none", "--params"
    assert "uniform(15, 5) is upside down: write uniform(5, 15)" in refused(*wrong, "gravity=uniform(15,5)")
    assert "has no field 'gravty': did you mean 'gravity'?" in refused(*wrong, "gravty=uniform(5,15)")
    assert not (tmp_path / "none").exists()
