"""Campaigns with a small budget; `make campaign` runs them with a large one."""

import expressions
import faults
import programs
import pytest
import schedules
import tiers
from running import Report

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def starts(first, *others):
    """Make a mark for campaigns that begin at these numbers; without --all, at the first one."""
    return pytest.mark.parametrize("start", [first, *tiers.up_to(others, ())])


def check(report, **least):
    assert not report.failures, "\n\n".join("\n".join(pair) for pair in report.failures)
    for name, number in least.items():
        assert report.counts.get(name, 0) >= number, report.counts


@starts(0, 1000)
def test_schedules(start):
    report = schedules.run_campaign(range(start, start + 12), Report("", 0, quiet=True))
    check(report, schedules=12)


@starts(0, 1000)
def test_programs(start):
    numbers = range(start, start + 8)
    report = programs.run_campaign(numbers, Report("", 0, quiet=True), shortens=False)
    check(report, programs=8, steps=100)


@starts(*range(0, 400, 100))
def test_expressions(start):
    """A failure prints the seed of its expressions."""
    seeds = range(start, start + tiers.up_to(30, 3))
    report = expressions.run_campaign(seeds, Report("", 0, quiet=True))
    check(report, expressions=40 * len(seeds), values=20 * len(seeds))


NO_MEMORY = ["fft_dealiased 3/2", "fft_onto_itself", "load_damaged", "tune method"]
NO_MEMORY += ["save compressed", "load compressed"]


@pytest.mark.parametrize("name", [*NO_MEMORY, "halo_plan measure"])
def test_no_memory(name):
    place = faults.Place(name, 2, (0, 1), None)
    report = Report("", 0, quiet=True)
    for fault in faults.faults_of(place):
        if fault[0] == "memory":
            faults.run_fault(place, fault, report)
    check(report, faults=2)


@starts(0, 1000)
def test_faults(start):
    report = faults.run_campaign(range(start, start + 4), Report("", 0, quiet=True), 4)
    check(report, cases=4, faults=10)
