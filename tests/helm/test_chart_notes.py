"""NOTES.txt: what an installation says to the person who made it."""

import shutil
from pathlib import Path

import pytest
from support.chart.chart import CASES, CHART, case_file, parsed, template


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """The chart with its notes in a place that `helm template` prints; only `helm install` prints
    them otherwise, and that needs a cluster.
    """
    made = tmp_path / "chart"
    shutil.copytree(CHART, made)
    shutil.copy(made / "templates" / "NOTES.txt", made / "notes.txt")
    (made / "templates" / "notes.yaml").write_text(
        'kind: Notes\ntext: |\n{{ tpl (.Files.Get "notes.txt") . | indent 2 }}\n', encoding="utf-8"
    )
    return made


def notes(chart: Path, case: str) -> str:
    """The notes of an installation with these values."""
    output = template(
        "--values", case_file(case), "--show-only", "templates/notes.yaml", chart=chart
    )
    assert output.code == 0, output.err
    (found,) = parsed(output.out)
    return str(found["text"])


@pytest.mark.parametrize("case", CASES)
def test_they_say_what_it_does_to_a_vm(chart: Path, case: str) -> None:
    """Nobody installs it without being told what the first request does to the VMs."""
    output = notes(chart, case)
    assert "reboots and redeploys that somebody asks for in the portal wait" in output
    assert "24 hours without a request turn it off" in output
    assert "rollout status daemonset/" in output
    assert max(map(len, output.splitlines())) <= 120


@pytest.mark.parametrize(
    ("case", "expected", "not_told"),
    [
        ("minimal", "Nothing is delivered anywhere yet", "emptyDir: what"),
        ("minimal", "port-forward", "only on the address of its node"),
        ("mqtt", "IMDS, DNS, and the ports 8883.", "Nothing is delivered"),
        ("emptydir", "is lost, and the store", "hostPath volumes"),
        ("hostnetwork", "owned by 65532 with mode 0700", "port-forward"),
        ("webhook", "the ports 443, 8443.", "Nothing is delivered"),
        ("kubernetes", "the condition ScheduledEvent", "it will:"),
        ("kubernetes-drain", "it will: taint, cordon, drain.", "Nothing is delivered"),
    ],
)
def test_they_say_what_matters_here(chart: Path, case: str, expected: str, not_told: str) -> None:
    """They speak of what was chosen, and of nothing else."""
    output = notes(chart, case)
    assert expected in output
    assert not_told not in output
