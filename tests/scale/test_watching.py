"""Who hangs is found by looks alone: ranks that are played here, look by look, without threads or clocks."""

import math

import pytest

from velocirl.scale.watching import EXCUSED, LIMIT, WAITING, WORKING, Hanging, Watch, limit_from

LOOK, SOON = 5.0, 12  # seconds, and looks within the limit


class Played:
    """Some ranks; what each sends arrives with the next look of the other, unless it is stopped."""

    def __init__(self, size):
        self.watches = [Watch(rank, size, 60.0) for rank in range(size)]
        self.stopped, self.posted = set(), {}
        for watch in self.watches:
            watch.begin()
        self.all(WORKING)

    def all(self, state, **others):
        for watch in self.watches:
            watch.state = others.get(f"rank{watch.rank}", state)

    def looks(self, count, elapsed=LOOK):
        for _ in range(count):
            told = dict(self.posted)
            for watch in self.watches:
                if watch.rank not in self.stopped:
                    heard = [(rank, rows) for rank, rows in told.items() if (rank == 0) != (watch.rank == 0)]
                    watch.look(elapsed, heard)
                    self.posted[watch.rank] = watch.told()

    def found(self):
        return [watch.hanging() for watch in self.watches if watch.rank not in self.stopped]


def test_nobody_hangs_where_all_go_on():
    ranks = Played(3)
    for _ in range(40):
        for watch in ranks.watches:
            watch.meetings += 100
        ranks.looks(1)
    assert ranks.found() == [[], [], []]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_works_while_the_others_wait_knows_that_it_hangs(rank):
    ranks = Played(3)
    ranks.all(WAITING, **{f"rank{rank}": WORKING})
    ranks.looks(SOON - 1)
    assert ranks.found() == [[], [], []]
    ranks.looks(5)
    found = ranks.found()
    assert [one.rank for one in found[rank]] == [rank]
    assert [one.rank for one in found[0]] == [rank]  # who could speak in its place
    assert not any(one.silent for some in found for one in some)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("state", [WORKING, WAITING])
def test_a_rank_that_is_stopped_is_named_by_another(rank, state):
    """By the first one, or where it is the first, by the others; in a sum too."""
    ranks = Played(3)
    ranks.all(WAITING, **{f"rank{rank}": state})
    ranks.looks(2)
    ranks.stopped.add(rank)
    ranks.looks(SOON - 3)
    assert ranks.found() == [[], []]
    ranks.looks(5)
    found = ranks.found()
    assert [(one.rank, one.silent) for one in found[0]] == [(rank, True)]
    assert found[1] == ([] if rank else found[0])


def test_who_is_excused_is_waited_for_and_counts_anew_afterwards():
    ranks = Played(3)
    ranks.all(WAITING, rank0=EXCUSED)
    ranks.looks(200)
    assert ranks.found() == [[], [], []]
    ranks.watches[0].state = WORKING
    ranks.looks(SOON - 1)
    assert ranks.found() == [[], [], []]
    ranks.looks(3)
    assert ranks.found()[0] == [Hanging(0, False, pytest.approx(65.0))]


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_who_is_excused_and_not_heard_of_is_waited_for_twice_as_long(rank, begun):
    """Also where it has said nothing of this training yet."""
    ranks = Played(3)
    ranks.all(WAITING, **{f"rank{rank}": EXCUSED})
    ranks.looks(2 if begun else 0)
    ranks.stopped.add(rank)
    ranks.looks(2 * SOON - 1)
    assert ranks.found() == [[], []]
    ranks.looks(4)
    assert [(one.rank, one.silent) for one in ranks.found()[0]] == [(rank, True)]


def test_where_an_iteration_is_long_others_are_given_as_long_again():
    ranks = Played(2)
    ranks.looks(100)  # 500 s of work, and one of the two is done
    ranks.watches[0].state = WAITING
    ranks.looks(90)
    assert ranks.found() == [[], []]
    ranks.looks(20)
    assert [one.rank for one in ranks.found()[1]] == [1]


def test_where_all_work_nobody_hangs():
    ranks = Played(2)
    ranks.looks(500)
    assert ranks.found() == [[], []]


def test_what_was_said_of_another_training_does_not_count():
    ranks = Played(2)
    ranks.all(WAITING, rank1=WORKING)
    ranks.watches[1].training = 7
    ranks.looks(SOON + 2)
    assert ranks.found()[0] == []


def test_the_limit_can_be_set():
    assert limit_from({}) == LIMIT == 60.0
    assert limit_from({"VELOCIRL_HANG_SECONDS": "2.5"}) == 2.5
    assert limit_from({"VELOCIRL_HANG_SECONDS": "0"}) == math.inf
    for wrong in ("soon", "-1", "nan"):
        with pytest.raises(ValueError, match=f"VELOCIRL_HANG_SECONDS must be seconds, 0 for no limit, got '{wrong}'"):
            limit_from({"VELOCIRL_HANG_SECONDS": wrong})
