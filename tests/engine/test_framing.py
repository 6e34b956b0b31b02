"""What an environment may say of its frames, and the scalar functions that skip and stack."""

import pickle

import numpy as np
import pytest
from pictures import COLOURED, HEIGHT, KINDS, WIDTH, define, observe, observe_row

import velocirl
from velocirl import Box, DefinitionError, Discrete, uniform
from velocirl.engine.compiler.caching.fingerprint import fingerprint
from velocirl.engine.drawing import with_draws
from velocirl.engine.fleets.lifecycle import ARRAYS, lifecycle
from velocirl.engine.fleets.loops import advance_loop
from velocirl.engine.fleets.sharing import SharedFrames, shares_frames, words_of
from velocirl.engine.framing import fill, push, repeated_step, whole_frame, with_frames
from velocirl.engine.targets.launching import DividingLauncher, PythonLauncher


def test_the_observation_is_the_stack_and_the_frame_what_was_given():
    for frames in ({}, {"stack": 1}):
        environment = define("Frames-v0", observe_row=observe_row, **frames)
        assert environment.observation is environment.frame
    environment = define("Frames-v0", stack=4, **COLOURED)
    assert environment.frame == Box(0, 255, (HEIGHT, WIDTH, 2), np.uint8)
    assert environment.observation == Box(0, 255, (4, HEIGHT, WIDTH, 2), np.uint8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "Frames-v0: give one of observe=(state, params, observation), which writes all that is seen, and observe"),
        ({"observe": observe, "observe_row": observe_row}, "Frames-v0: give one of observe="),
        ({"observe_row": observe}, "observe_row must take (state, params, y, row), but takes (state, params, frame)"),
        ({"observe_row": observe_row, "shape": (3,)}, "observe_row= writes rows of a picture, a Box of shape (H, W)"),
        ({"observe_row": observe_row, "shape": (2, 2, 2, 2)}, "observe_row= writes rows of a picture"),
        ({"observe": observe, "skip": 0}, "Frames-v0: skip= must be a whole number from 1, got 0"),
        ({"observe": observe, "stack": 2.0}, "Frames-v0: stack= must be a whole number from 1, got 2.0"),
        ({"observe": observe, "stack": True}, "Frames-v0: stack= must be a whole number from 1, got True"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, message):
    with pytest.raises(DefinitionError) as refused:
        define("Frames-v0", **wrong)
    assert message in str(refused.value)


def test_only_arrays_are_stacked():
    plain = velocirl.engine.registry.find("FrozenLake-v1")
    with pytest.raises(DefinitionError, match=r"Numbered-v0: stack=2 stacks arrays.*got Discrete\(3\)"):
        velocirl.Environment(
            "Numbered-v0", state=plain.state, params=plain.params, observation=Discrete(3), action=plain.action,
            reset=plain.reset, step=plain.step, observe=plain.observe, stack=2,
        )  # fmt: skip


def observe_half(state, params, y, row):
    for x in range(WIDTH - (y == 2)):
        row[x] = 7


def observe_beyond(state, params, y, row):
    for x in range(WIDTH):
        row[x] = 9 if y == 3 else 1


def observe_elsewhere(state, params, y, row):
    for x in range(WIDTH + 1):
        row[x] = 9


@pytest.mark.parametrize(
    ("function", "more", "message"),
    [
        (observe_half, {}, "observe_row leaves row[2] of y=2 unwritten or NaN"),
        (observe_beyond, {"high": 8}, "observe_row writes 9 into row[0] of y=3, whose space goes from 0 to 8"),
        (observe_elsewhere, {}, "observe_row fails with IndexError: index 3 is out of bounds"),
    ],
)
@pytest.mark.parametrize("stack", [1, 3])
def test_a_wrong_row_is_told_before_anything_is_compiled(function, more, message, stack):
    plain = define("Plain-v0", observe=observe)
    environment = velocirl.Environment(
        "Frames-v0", state=plain.state, params=plain.params, action=plain.action, reset=plain.reset, step=plain.step,
        observation=Box(0, more.get("high", 255), (HEIGHT, WIDTH), np.uint8), observe_row=function, stack=stack,
    )  # fmt: skip
    with pytest.raises(DefinitionError) as refused:
        velocirl.make_vec(environment, 2)
    assert message in str(refused.value)
    assert "test_framing.py" in str(refused.value)


def test_an_environment_without_frames_runs_its_own_functions():
    plain = define("Plain-v0", observe=observe)
    assert repeated_step(plain) is plain.step
    assert whole_frame(plain) is plain.observe
    assert with_frames(plain, 1, None) is plain
    framed = with_frames(plain, 2, 2)
    keys = {fingerprint(advance_loop(lifecycle(one))) for one in (plain, framed, with_frames(plain, 2, 3))}
    assert len(keys) == 3


def test_skipping_sums_rewards_and_stops_at_the_end():
    rewards = iter([1.0, 0.5, 2.0, 4.0, 8.0])

    def step(state, params, action, rng):
        reward = next(rewards)
        return reward, reward == 4.0

    environment = define("Plain-v0", observe=observe)
    skipping = with_frames(environment, skip=3)
    vars(skipping)["step"] = step
    repeat = repeated_step(skipping)
    assert repeat(None, None, 0, None) == (3.5, False)
    assert repeat(None, None, 0, None) == (4.0, True)
    assert next(rewards) == 8.0


def test_time_limits_count_the_actions_of_the_agent():
    environment = define("Frames-v0", observe=observe, skip=3, max_steps=4)
    fleet = velocirl.make_vec(environment, 1, device="python", params={"length": 100}, seed=0)
    fleet.reset()
    for _ in range(4):
        *_, truncated, infos = fleet.step(np.zeros(1, np.int64))
    assert truncated.tolist() == [True]
    assert infos["final_info"]["episode"]["l"].tolist() == [4]
    assert fleet.copies.final_state["count"].tolist() == [12]


def test_frames_move_by_one_place_and_the_first_fills_all():
    frames = np.arange(24).reshape(4, 2, 3)
    into = np.zeros_like(frames)
    push(frames, into, 18, 6)
    np.testing.assert_array_equal(into[:3], frames[1:])
    np.testing.assert_array_equal(into[3], 0)
    expected = frames[1:].copy()
    push(frames, frames, 18, 6)
    np.testing.assert_array_equal(frames[:3], expected)
    fill(frames, 18, 6)
    np.testing.assert_array_equal(frames, np.broadcast_to(np.arange(18, 24).reshape(2, 3), (4, 2, 3)))


def test_what_was_asked_for_is_found_again_in_another_process():
    for environment in (define("Plain-v0", observe=observe), velocirl.engine.registry.find("CatchPixels-v0")):
        asked = with_draws(with_frames(environment, 2, 4), {})
        again = pickle.loads(pickle.dumps(asked))
        assert (again.id, again.skip, again.stack) == (environment.id, 2, 4)
        assert again.observation == asked.observation
    drawn = with_frames(with_draws(define("Plain-v0", observe=observe), {"tint": uniform(0, 3)}), None, 2)
    again = pickle.loads(pickle.dumps(drawn))
    assert (again.drawn, again.stack, again.plain.stack, again.plain.unframed.stack) == (("tint",), 2, 2, 1)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_that_threads_of_a_gpu_share_is_that_of_one(kind, draws):
    """Here in plain Python, one index after the other."""
    copies = 5
    seen, frames = KINDS[kind]
    environment = define("Frames-v0", **seen, **frames)
    params = {"length": uniform(1, 12), "tint": uniform(0, 99)} if draws else {"length": [1, 2, 5, 9, 20]}
    one, other = (
        velocirl.make_vec(environment, copies, device="python", params=params, seed=3) for _ in range(2)
    )  # fmt: skip
    assert shares_frames(environment)
    shared, chosen = SharedFrames(other.environment, other.copies), np.ones(copies, np.bool_)
    launcher = DividingLauncher(PythonLauncher())
    begin, step, random_step = (
        launcher.launch(works, copies) for works in (shared.begin(chosen), shared.step(), shared.random_step())
    )
    one.reset()
    other.copies.rng[:] = velocirl.engine.random.streams(3, copies)
    begin(0)
    for t in range(20):
        if t == 7:
            chosen[:] = [True, False, False, True, False]
            one.target.begin(chosen)
            begin(0)
        elif t % 2:
            one.target.run_randomly(1)
            random_step(0)
        else:
            one.copies.action[:] = other.copies.action[:] = t % 4 // 2
            one.target.advance()
            step(0)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(other.copies, name), getattr(one.copies, name), err_msg=name)


def test_frames_are_moved_in_the_widest_words():
    assert [words_of(size) for size in (7056, 12, 6, 5)] == [(882, "u8"), (3, "u4"), (3, "u2"), (5, "u1")]


def observe_row_until_step_40(state, params, y, row):
    for x in range(WIDTH):
        row[x if state.count < 40 else 99] = 1


def test_a_wrong_index_in_a_row_is_told_with_its_copy_where_indices_are_tested():
    environment = define("Frames-v0", observe_row=observe_row_until_step_40, stack=2, max_steps=None)
    fleet = velocirl.make_vec(environment, 3, params={"length": 99}, seed=0, check=True)
    fleet.reset()
    for _ in range(39):
        fleet.step(np.zeros(3, np.int64))
    with pytest.raises(DefinitionError, match=r"observe_row fails with IndexError(.|\n)*step 40 of its episode"):
        fleet.step(np.zeros(3, np.int64))
