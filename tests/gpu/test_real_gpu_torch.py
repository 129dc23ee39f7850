# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples/train_torch.py on a real GPU, one process; if PyTorch is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch for this Python")

from tests.jobs import END  # noqa: E402
from tests.unit.test_example_train_torch import AFTER_12_STEPS, one_process  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]


@pytest.mark.parametrize("backend", ["mpi4py", "nccl"])
def test_weights_are_those_of_a_cpu(
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exact sums do not depend on the processor."""
    words = ["--steps=12", "--every=5", "--deterministic", f"--backend={backend}"]
    used = torch.cuda.max_memory_allocated()
    assert one_process(monkeypatch, *words, f"--checkpoints={tmp_path}") == 0
    assert END.findall(capsys.readouterr().out) == [("12", "1", AFTER_12_STEPS)]
    assert torch.cuda.max_memory_allocated() > used


def test_without_exact_sums_it_learns_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--steps=200", "--backend=nccl", f"--checkpoints={tmp_path}"]
    assert one_process(monkeypatch, *words) == 0
