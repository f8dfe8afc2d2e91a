"""The programs of docs/toploc.md run."""

import re
from pathlib import Path

import torch

import toploc
from tests.toploc.worlds import computed, states

PAGE = (Path(__file__).parents[2] / "docs" / "toploc.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    toploc.Policy.published().save("smollm2.json")
    check, stream = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    text, other = states(1), states(2)
    held = {"states": computed(text, 1), "own_states": computed(text, 2)}
    exec(check, held)
    assert held["verdict"] and capsys.readouterr().out == ""
    exec(check, held | {"own_states": computed(other, 3)})
    assert "thresholds" in capsys.readouterr().out
    names = [f"text {number}" for number in range(32)]
    rows = torch.stack([computed(states(number, 1), 4)[0] for number in range(32)])
    held = {
        "toploc": toploc,
        "name": names[0],
        "names": names,
        "states": rows,
        "prompt_states": text.bfloat16(),
    }
    exec(stream, held)
    decoded = toploc.build_proofs(rows, 32, 128, skip_prefill=True)
    assert held["proofs"][1:] == decoded, "the row that came with the batch is not counted twice"
    assert held["proofs"][:1] == toploc.build_proofs([text.bfloat16()], 32, 128)
