import subprocess
import sys
import time

import psutil
import pytest
from neighbours import BUSY, busy_neighbours

from velocirl.bench.machine.company import WINDOW, Company, CompanyByRound


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_our_own_work_and_that_of_our_children_is_not_company():
    """Whatever else runs here: all of us together cannot have used more than the machine has."""
    company, began, worked = Company(), time.perf_counter(), time.process_time()
    spin(0.5)
    subprocess.run([sys.executable, "-c", BUSY.format(seconds=0.5)], check=True)
    with subprocess.Popen([sys.executable, "-c", BUSY.format(seconds=30)]) as child:
        spin(0.5)
        cores, elapsed = company.cores(), time.perf_counter() - began
        last = sum(psutil.Process(child.pid).cpu_times()[:2])
        child.kill()
    ours = (time.process_time() - worked + last) / elapsed
    assert ours > 0.05
    assert 0.0 <= cores <= psutil.cpu_count() - ours + 0.1


def test_what_others_do_is_company():
    """A program that is no child of ours: its parent has ended."""
    with busy_neighbours() as (other,):
        company, before = Company(), other.cpu_times().user
        time.sleep(1.0)
        cores, worked = company.cores(), other.cpu_times().user - before
    assert worked > 0.0
    assert cores >= 0.8 * worked - 0.05


def test_the_company_of_each_round():
    """Of a neighbour that starts between two rounds; whatever else runs here, it is more then."""
    company, worked = CompanyByRound(), []
    company.mark()
    for _ in range(2):
        time.sleep(WINDOW)
        company.mark()
    with busy_neighbours() as (other,):
        for _ in range(2):
            before = other.cpu_times().user
            time.sleep(WINDOW)
            company.mark()
            worked.append((other.cpu_times().user - before) / WINDOW)
    cores = company.cores()
    assert len(cores) == 4
    assert min(cores[2:]) >= 0.8 * min(worked) - 0.1
    assert max(cores) <= psutil.cpu_count() + 0.2


def test_short_rounds_have_the_company_of_their_window():
    """Ten rounds of a tenth of a second, one core busy from the sixth on; a window has five of them, or seven."""
    company = CompanyByRound()
    company.marks = [(0.1 * number, max(0.0, 0.1 * (number - 5))) for number in range(11)]
    found = company.cores()
    assert found[0] == found[1] == 0.0
    assert found[-1] == pytest.approx(1.0)
    assert list(found) == sorted(found)
    assert 0.3 < found[4] < found[5] < 0.7
    assert CompanyByRound().cores() == ()
