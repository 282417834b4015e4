"""What a run's log looks like."""

from __future__ import annotations

import re

import pytest
from imgtrain_ranks import Trainer
from safetensors.torch import load_file

COLUMNS = ["Step", "Epoch", "Speed", "Loss", "FinLoss", "LR"]
LINE = re.compile(r" +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.e-]+)")


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_progress_is_a_table_with_one_line_in_so_many_steps(kind: str, trainer: Trainer) -> None:
    run = trainer.run(train__log_every_steps=2, train__max_steps=5, optimizer__kind=kind,
                      optimizer__lr=0.01, optimizer__weight_decay=0.01)  # fmt: skip
    lines = run.output[0][0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.split() == COLUMNS)
    rows = [match.groups() for line in lines[head + 1 :] if (match := LINE.fullmatch(line))]
    assert [int(row[0]) for row in rows] == [2, 4, 5]
    reported = {e.step: e for e in run.events("step")}
    for step, epoch, speed, loss, final, rate in rows:
        event = reported[int(step)]
        assert float(epoch) == pytest.approx(event.epoch, abs=0.006)
        assert float(speed) == pytest.approx(event.images_per_second, abs=0.06)
        assert float(loss) == pytest.approx(event.loss, abs=1e-4)
        assert float(final) == pytest.approx(event.loss + event.penalty, abs=1e-4)
        assert float(rate) == pytest.approx(event.learning_rate, rel=1e-5)
    weights = load_file(trainer.checkpoints / "g0" / "step5" / "model.safetensors")
    # Norm layers and biases, which are vectors, don't decay; nor do running statistics.
    squares = sum(float(w.double().square().sum()) for name, w in weights.items() if w.dim() > 1)
    expected = 0.01 / 2 * squares if kind == "sgd" else 0
    assert reported[5].penalty == pytest.approx(expected, rel=1e-4)
