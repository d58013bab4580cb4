"""Saving, loading, and folders that are not what they should be."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from taskmix.errors import UserError
from taskmix.models.conditional import ConditionalEncoder, condition

IDS = torch.tensor([0, 1, 2, 0, 1])


@pytest.fixture
def folder(make, shaken, tmp_path):
    conditioned = condition(make(), ["glue/a.b", "c"], rank=3, freeze=1)
    shaken(conditioned)
    conditioned.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"parts": ["norm"], "rank": "full"},
        {"alignment": "matrix", "per_head": True, "blocks": 3, "freeze": 1},
        {"layout": "large", "bottleneck_width": 5, "start": 0.02},
    ],
    ids=str,
)
def test_a_round_trip_is_exact(make, batch, shaken, tmp_path, family, options):
    conditioned = condition(make(family), ["a", "b"], **{"rank": 3} | options).eval()
    shaken(conditioned)
    conditioned.add_task("c", "a")
    conditioned.save_pretrained(tmp_path)
    loaded = ConditionalEncoder.from_pretrained(tmp_path)
    assert loaded.tasks == ("a", "b", "c")
    assert loaded.spec == conditioned.spec
    assert not loaded.training
    states = conditioned.state_dict(), loaded.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    frozen = [
        {n for n, p in m.named_parameters() if p.requires_grad} for m in (conditioned, loaded)
    ]
    assert frozen[0] == frozen[1]
    with torch.no_grad():
        outputs = [m(**batch(), task_ids=IDS).last_hidden_state for m in (conditioned, loaded)]
    assert torch.equal(*outputs)


def test_precision_survives(make, tmp_path):
    conditioned = condition(make().to(torch.bfloat16), ["a"], rank=2)
    conditioned.task_embeddings.float()
    conditioned.save_pretrained(tmp_path)
    loaded = ConditionalEncoder.from_pretrained(tmp_path)
    assert {n: p.dtype for n, p in loaded.named_parameters()} == {
        n: p.dtype for n, p in conditioned.named_parameters()
    }


def test_a_folder_holds_json_and_safetensors_only(folder):
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


@pytest.mark.filterwarnings("ignore")
def test_transformers_opens_the_pretrained_part(folder, make, batch):
    plain = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found, expected = (m(**batch()).last_hidden_state for m in (plain, make()))
    assert torch.equal(found, expected)


def test_code_in_the_folder_does_not_run(folder):
    ran = folder / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Evil", "AutoConfig": "evil.EvilConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    assert ConditionalEncoder.from_pretrained(folder).tasks == ("glue/a.b", "c")
    assert not ran.exists()


def test_a_folder_of_version_0_2_0_has_rows_of_standard_deviation_1(folder):
    changed(folder, "conditional.json", lambda about: about["conditional"].pop("embedding_start"))
    assert ConditionalEncoder.from_pretrained(folder).spec.embedding_start == 1.0


def changed(folder, name, change):
    path = folder / name
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))


def break_weights(folder, name, change):
    tensors = load_file(folder / name)
    change(tensors)
    save_file(tensors, folder / name)


BROKEN = {
    "another version": (
        lambda f: changed(f, "conditional.json", lambda about: about.update(format=2)),
        "conditional.json: found format 2, this version of taskmix reads 1",
    ),
    "no description": (
        lambda f: (f / "conditional.json").unlink(),
        "expected a conditioned encoder, found no conditional.json",
    ),
    "a torn description": (
        lambda f: (f / "conditional.json").write_text('{"format": 1, '),
        "conditional.json: expected the description of a conditioned encoder, found",
    ),
    "a description of something else": (
        lambda f: (f / "conditional.json").write_text("[]"),
        "conditional.json: expected the description of a conditioned encoder, found",
    ),
    "tasks that are no names": (
        lambda f: changed(f, "conditional.json", lambda about: about.update(tasks=3)),
        "conditional.json: expected a list of task names and a mapping of options",
    ),
    "an unknown option": (
        lambda f: changed(f, "conditional.json", lambda about: about["conditional"].update(rnak=2)),
        "conditional.json: unknown option 'rnak'; did you mean 'rank'",
    ),
    "an option of another type": (
        lambda f: changed(
            f, "conditional.json", lambda about: about["conditional"].update(per_head="x")
        ),
        "conditional.json: per_head: .*found 'x'",
    ),
    "an unknown part": (
        lambda f: changed(
            f, "conditional.json", lambda about: about["conditional"].update(parts=["nrom"])
        ),
        "conditional.json: parts: unknown part 'nrom'; did you mean 'norm'",
    ),
    "another rank": (
        lambda f: changed(f, "conditional.json", lambda about: about["conditional"].update(rank=4)),
        "conditional.safetensors: expected the weights that conditional.json describes",
    ),
    "one task more": (
        lambda f: changed(f, "conditional.json", lambda about: about["tasks"].append("d")),
        "found 'task_embeddings.rows.z_d' to be missing",
    ),
    "no weights": (
        lambda f: (f / "conditional.safetensors").unlink(),
        "conditional.safetensors: expected the weights of the conditional modules",
    ),
    "torn weights": (
        lambda f: (f / "conditional.safetensors").write_bytes(b"torn"),
        "conditional.safetensors: expected the weights of the conditional modules",
    ),
    "no encoder": (
        lambda f: (f / "model.safetensors").unlink(),
        "expected the whole weights of a bert",
    ),
    "a torn encoder": (
        lambda f: (f / "model.safetensors").write_bytes(b"torn"),
        "expected the whole weights of a bert",
    ),
    "an encoder with a hole": (
        lambda f: break_weights(
            f, "model.safetensors", lambda t: t.pop("embeddings.LayerNorm.weight")
        ),
        "expected the weights of every layer, found none of embeddings.LayerNorm.weight",
    ),
    "another architecture": (
        lambda f: changed(f, "config.json", lambda config: config.update(model_type="gpt2")),
        "expected the weights of every layer, found none of h.0",
    ),
    "no config": (
        lambda f: (f / "config.json").unlink(),
        "found no model in ",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_folder_is_one_sentence(folder, what):
    damage, sentence = BROKEN[what]
    damage(folder)
    with pytest.raises(UserError, match=sentence) as error:
        ConditionalEncoder.from_pretrained(folder)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="expected a conditioned encoder"):
        ConditionalEncoder.from_pretrained(tmp_path / "none")
