"""What is wrong with an algorithm is said when an agent is made: its name, the stage, the place, and what to write."""

import re

import pytest

from velocirl import DQN, PPO, DefinitionError, float32
from velocirl.networks.declared import Number, TargetNetwork
from velocirl.program.fields import Action
from velocirl.program.stages import backward, column, each, every, follow, forward, mean, once, step, stop, when

READ, BACK, LEARN = forward("values", "observation"), backward("values"), step("values")


def made(base=DQN, env="CartPole-v1", **members):
    """An agent of a variant of an algorithm that nobody else knows."""
    kind = type("Mine", (base,), {"__module__": __name__, **members})
    return kind(env, hidden=(8,))


def refused(what, advice, line=None, **members):
    """The error of a variant, which names the algorithm, says what is wrong, what to write, and where."""
    with pytest.raises(DefinitionError) as error:
        made(**members)
    text, place = str(error.value).split("\n  at ")
    assert text.startswith("Mine: ")
    assert what in text
    assert advice in text
    file, _, number = place.partition(":")
    assert file == __file__
    if line is not None:
        source = line.__code__.co_firstlineno
        assert source <= int(number) <= source + 5


def update(*stages):
    return {"update": stages}


def clear(values, gradient):
    for k in range(len(gradient)):
        gradient[k] = 0.0


def no_gradient(values, row):
    row.error = values[0]


def one_argument_is_unknown(values, rwo, gradient):
    clear(values, gradient)


def head_comes_late(values, head, gradient):
    clear(values, gradient)


def too_wide(head, values, gradient):
    for k in range(head.outputs + 2):
        gradient[k] = 0.0


def too_narrow(values, gradient):
    gradient[0] = 0.0


def writes_nothing(values, gradient):
    pass


def divides(values, gradient):
    clear(values, gradient)
    gradient[0] = 1 / 0


def acts_again(values, row, gradient):
    clear(values, gradient)
    row.action[0] = 1


def acts_once_more(values, row, gradient):
    clear(values, gradient)
    row.action = 1


def changes_the_output(values, gradient):
    clear(values, gradient)
    values[0] = 0.0


def gives_nothing(means):
    pass


def push_target(target_values, gradient):
    for k in range(len(gradient)):
        gradient[k] = 0.0


def test_what_is_right_is_made():
    made()
    made(**update(READ, each(clear), BACK, LEARN))
    made(PPO)


STAGES = {
    "forward of a network": (
        (forward("vales", "observation"), each(clear), BACK, LEARN),
        "forward('vales', 'observation'): there is no network 'vales'",
        "declare it in networks: did you mean 'values'?",
    ),
    "forward of a field": (
        (forward("values", "observaton"), each(clear), BACK, LEARN),
        "forward('values', 'observaton'): reads 'observaton'",
        "a row has no such field: did you mean 'observation'?",
    ),
    "forward of too many fields": (
        (forward("values", "observation", "action"), each(clear), BACK, LEARN),
        "forward('values', 'observation', 'action'): gives values 2 fields",
        "it reads 1",
    ),
    "forward of several rows": (
        (forward("values", "observation", rows="samples"), each(clear), BACK, LEARN),
        "there is no setting 'samples'",
        "add it to the Config",
    ),
    "backward of nothing": (
        (READ, each(clear), backward("vales"), LEARN),
        "backward('vales'): has no forward pass before it",
        "write forward('vales', ...) first",
    ),
    "backward into a field": (
        (READ, each(clear), backward("values", into="action"), LEARN),
        "backward('values', into='action'): goes into 'action'",
        "values read observation",
    ),
    "backward of a gradient that nobody writes": (
        (READ, each(no_gradient), BACK, LEARN),
        "backward('values'): no function writes the gradient of 'values'",
        "of a function with an argument values_gradient",
    ),
    "backward of a gradient that was used": (
        (READ, each(clear), BACK, READ, BACK, LEARN),
        "backward('values'): no function writes the gradient of 'values'",
        "write each(function) before it",
    ),
    "backward of a target network": (
        (forward("target_values", "observation"), each(push_target), backward("target_values"), LEARN),
        "'target_values' is a target network, which only follows",
        "write into=",
    ),
    "step of a network": (
        (READ, each(clear), BACK, step("vales")),
        "step('vales'): is of no network that learns",
        "did you mean 'values'?",
    ),
    "step of a target network": (
        (READ, each(clear), BACK, step("target_values")),
        "step('target_values'): is of no network that learns",
        "name one of networks",
    ),
    "step without a gradient": (
        (READ, LEARN),
        "step('values'): has no gradient to follow",
        "write backward('values') before it",
    ),
    "step after a slope only": (
        (READ, each(clear), backward("values", into="observation"), LEARN),
        "step('values'): has no gradient to follow",
        "write backward('values') before it",
    ),
    "no step": (
        (READ, each(clear), BACK),
        "update: nothing is learnt",
        "write step(network)",
    ),
    "follow the other way round": (
        (READ, each(clear), BACK, LEARN, follow("values", "target_values", "tau")),
        "'values' is no target network of 'target_values'",
        "declare it as TargetNetwork('target_values')",
    ),
    "follow by a setting": (
        (READ, each(clear), BACK, LEARN, follow("target_values", "values", "tow")),
        "follow('target_values', 'values', 'tow'): there is no setting 'tow'",
        "add it to the Config",
    ),
    "every": (
        (READ, each(clear), BACK, LEARN, every("target_evry", follow("target_values", "values", "tau"))),
        "every('target_evry', ...): there is no setting 'target_evry'",
        "add it to the Config",
    ),
    "when": (
        (READ, when("dubble", each(clear)), BACK, LEARN),
        "when('dubble', ...): there is no setting 'dubble'",
        "or as a property of it",
    ),
    "once of a number": (
        (READ, each(clear), BACK, LEARN, once(gives_nothing, steps="temperature")),
        "once(gives_nothing): steps 'temperature'",
        "there is no such number",
    ),
    "no stage": (
        (READ, clear, BACK, LEARN),
        "clear: is not a stage",
        "write forward(...), each(...), backward(...), step(...)",
    ),
    "no function": (
        (READ, each(3), BACK, LEARN),
        "each(3): is of no function",
        "write one with def",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAGES)
def test_stages(name):
    stages, what, advice = STAGES[name]
    refused(what, advice, **update(*stages))


FUNCTIONS = {
    "an argument": (one_argument_is_unknown, "its argument 'rwo' is not known here", "did you mean 'row'?"),
    "the place of head": (head_comes_late, "its argument 'head' comes first", "an argument says by its name"),
    "a gradient that is too wide": (too_wide, "IndexError: index 3 is out of bounds", "values has 3 columns"),
    "a gradient that is too narrow": (
        too_narrow, "it leaves gradient[1] of 'values' unwritten, which has 3 columns", "write all of them, 0.0 where"),
    "a gradient that is not written": (writes_nothing, "it leaves gradient[0] of 'values' unwritten", "write all of"),
    "an action that is written": (acts_again, "it writes to what it can only read", "declare a field for it in"),
    "an action that is set": (acts_once_more, "it writes to what it can only read", "declare a field for it"),
    "an output that is written": (changes_the_output, "it writes to what it can only read", "declare a field for it"),
    "an error of its own": (divides, "ZeroDivisionError: division by zero", "it is called for one sample"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, what, advice = FUNCTIONS[name]
    refused(f"each({function.__name__}): {what}", advice, function, **update(READ, each(function), BACK, LEARN))


def test_a_gradient_without_a_backward_pass():
    what = "each(clear): its argument 'gradient' is not known here"
    refused(what, "an argument says by its name", clear, **update(READ, each(no_gradient), each(clear), LEARN))


def reads_of(record, field):
    """A function that reads a field of what it is called with."""
    space = {}
    exec(f"def reads({record}, values, gradient):\n    clear(values, gradient)\n    gradient[0] = {record}.{field}\n",
         {"clear": clear}, space)  # fmt: skip
    return space["reads"]


FIELDS = {
    ("row", "rewad"): ("row has no 'rewad': did you mean 'reward'?", "declare it in Scratch, as in `log_probability:"),
    ("settings", "hubert"): ("settings has no 'hubert': did you mean 'huber'?", "add it to the Config, as a number"),
    ("settings", "optimiser"): ("settings has no 'optimiser'; there are num_envs", "add it to the Config, as a number"),
    ("numbers", "temperature"): ("numbers has no 'temperature'; it has none", "declare it in networks, as Number(...)"),
    ("metrics", "losss"): (
        "metrics has no 'losss': did you mean 'loss'?",
        "add it to `reports`, with the name",
    ),
    ("means", "action_vale"): ("means has no 'action_vale': did you mean 'action_value'?", "add it to `reports`"),
}


@pytest.mark.parametrize("record", FIELDS, ids=".".join)
def test_fields_that_nobody_declared(record):
    what, advice = FIELDS[record]
    with pytest.raises(DefinitionError, match=f"{re.escape(f'Mine: each(reads): {what}')}.*; {re.escape(advice)}"):
        made(**update(READ, each(reads_of(*record)), BACK, LEARN))


def adds_loss(values, metrics):
    metrics.loss += values[0]


def derives_what_nobody_declared(means):
    means.half = 0.5 * means.loss


class AsManyAsNothing:
    error: float32
    candidates: Action["sample"]  # noqa: F821 - the name of a setting


class Words:
    error: "str"


@pytest.mark.parametrize(
    ("scratch", "advice"), [(AsManyAsNothing, "no setting 'sample'"), (Words, "write float32, int32")]
)
def test_fields_that_cannot_be(scratch, advice):
    with pytest.raises(DefinitionError, match=f"field .* of {scratch.__name__} .*{advice}"):
        made(Scratch=scratch)


def test_means_that_nobody_declared():
    stages = READ, mean(adds_loss, then=derives_what_nobody_declared), each(clear), BACK, LEARN
    refused("mean: means has no 'half'", "add it to `reports`", derives_what_nobody_declared, **update(*stages))


def test_what_gives_nothing():
    networks = {**DQN.networks, "temperature": Number("tau")}
    stages = READ, each(clear), BACK, LEARN
    number = {"networks": networks, "update": (*stages, once(gives_nothing, steps="temperature"))}
    refused("once(gives_nothing): it gives None", "return a gradient", gives_nothing, **number)
    stopping = update(*stages[:-1], stop(gives_nothing), LEARN)
    refused("stop(gives_nothing): it gives None", "return whether to stop", gives_nothing, **stopping)


def test_networks():
    networks = {**DQN.networks, "target_values": TargetNetwork("vales")}
    refused("networks['target_values']: there is no network 'vales'", "did you mean 'values'?", networks=networks)
    networks = {**DQN.networks, "temperature": Number("tow")}
    refused("temperature: there is no setting 'tow'", "add it to the Config", networks=networks)


def act_of_something_else(values, position):
    pass


def act_of_another_field(values, row):
    row.actoin[0] = 0


def test_acting():
    what = "act_of_something_else, which acts: its argument 'position' is not known here"
    refused(what, "an argument says by its name", act_of_something_else, act=act_of_something_else)
    what = "act: row has no 'actoin': did you mean 'action'?"
    refused(what, "declare it in Scratch", act_of_another_field, act=act_of_another_field)


def of_another_field(reward, valve, settings):
    pass


def beyond_the_end(reward, advantage):
    advantage[len(reward)] = 0.0


def of_another_setting(reward, settings):
    reward[0] = settings.gama


def test_columns():
    def estimate(stage):
        return {"base": PPO, "estimate": (stage,)}

    refused(
        "column(of_another_field): has no field 'valve'", "did you mean 'value'?", **estimate(column(of_another_field))
    )
    refused("each(clear): is not a column", "write column(function)", **estimate(each(clear)))
    what = "column(beyond_the_end): IndexError"
    refused(what, "over the steps of a rollout", beyond_the_end, **estimate(column(beyond_the_end)))
    what = "column(of_another_setting): settings has no 'gama': did you mean 'gamma'?"
    refused(what, "add it to the Config", of_another_setting, **estimate(column(of_another_setting)))


def of_episodes(episodes):
    return episodes.count


def of_other_episodes(episodes):
    return episodes.length


def test_decisions():
    def decide(*stages):
        return {"decide": stages}

    refused("each(clear): is not decided by episodes", "write once(function)", **decide(each(clear)))
    what, several = "decide: has several periods", (every("train_every", once(of_episodes)), once(of_episodes))
    refused(what, 'write one every("setting", ...) around all of it', **decide(*several))
    what = "once(of_other_episodes): episodes has no 'length'"
    refused(what, "it has count and costs", of_other_episodes, **decide(once(of_other_episodes)))


def test_what_was_typed_in_is_refused_too():
    """A class of an interactive session has no file."""
    with pytest.raises(DefinitionError, match=r"there is no network 'vales'.*\n  at typed_in"):
        made(__module__="typed_in", **update(forward("vales", "observation"), each(clear), BACK, LEARN))
