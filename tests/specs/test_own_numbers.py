"""A user's own efficiencies and powers are read first, say where they come from, and are checked."""

import pytest

from perfmodel.errors import UserError
from perfmodel.evidence import calibrate
from perfmodel.prediction import run
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog
from perfmodel.specs.check import check_files

OWN = """\
extends: dgx-h100
name: mine
efficiency:
  layer_time: {value: 20 us, source: nvidia-h100-datasheet, kind: measured}
"""
LAYER = "{value: 20 us, source: nvidia-h100-datasheet, kind: measured}"
CALIBRATION = f"extends: h100-vllm\nlayer_time: {LAYER}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hardware_specs" / "calibration").mkdir(parents=True)
    (tmp_path / "hardware_specs" / "power").mkdir()
    return tmp_path / "hardware_specs"


def tpot(on):
    return run(resolve("llama-3.1-8b", f"{on}:tp=1", Options())).tpot_s


def test_efficiencies_of_a_system_stand_before_those_of_its_chip(folder):
    (folder / "mine.yaml").write_text(OWN)
    theirs, mine = (catalog.load_system(name)[0] for name in ("dgx-h100", "mine"))
    assert mine.efficiency.layer_time == pytest.approx(20e-6)
    assert mine.efficiency.step_time == theirs.efficiency.step_time
    assert mine.provenance["efficiency.layer_time"].file == "mine.yaml"
    assert mine.provenance["efficiency.step_time"].file == "h100-vllm.yaml"
    layers = 32 * (theirs.efficiency.layer_time - 20e-6)
    assert tpot("dgx-h100") - tpot("mine") == pytest.approx(layers, rel=1e-6)
    assert check_files([str(folder / "mine.yaml")]) == (1, [])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("layer_time", "layer_tme", "mine.yaml:4: efficiency.layer_tme: unknown field: did you mean layer_time?"),
        ("20 us", "20 GB", "mine.yaml:4: efficiency.layer_time"),
        (", kind: measured", "", "mine.yaml:4: efficiency.layer_time: a number needs a kind"),
        ("nvidia-h100-datasheet", "nowhere", "mine.yaml:4: efficiency.layer_time: source 'nowhere' is not in"),
        (f"\n  layer_time: {LAYER}", " 3", "mine.yaml:3: efficiency: expected a mapping of fields"),
    ],
)
def test_a_wrong_one_is_said_in_one_line(folder, old, new, said):
    (folder / "mine.yaml").write_text(OWN.replace(old, new))
    _, problems = check_files([str(folder / "mine.yaml")])
    assert len(problems) == 1
    assert said in problems[0]
    with pytest.raises(UserError, match=r"mine\.yaml"):
        catalog.load_system("mine")


def test_a_calibration_of_the_users_folder_is_read_first_and_said(folder):
    bundled = tpot("dgx-h100")
    own = folder / "calibration" / "h100-vllm.yaml"
    own.write_text(CALIBRATION)
    scenario = resolve("llama-3.1-8b", "dgx-h100:tp=1", Options())
    assert scenario.system.provenance["efficiency.layer_time"].file == str(own)
    said = "calibration h100-vllm: hardware_specs/calibration/h100-vllm.yaml, in place of the bundled one"
    assert said in scenario.assumed
    assert tpot("dgx-h100") < bundled
    assert check_files([str(own)]) == (1, [])
    own.write_text(CALIBRATION.replace("20 us", "20 GB"))
    with pytest.raises(UserError, match=r"h100-vllm\.yaml:2: layer_time"):
        catalog.load_system("dgx-h100")


def test_a_power_of_the_users_folder_is_read_first(folder):
    bundled = run(resolve("llama-3.1-8b", "sn40l-16", Options())).power_w
    own = folder / "power" / "dataflow.yaml"
    own.write_text("mean: {value: 0.5, source: nvidia-h100-datasheet, kind: measured}\n")
    scenario = resolve("llama-3.1-8b", "sn40l-16", Options())
    assert scenario.system.provenance["power_shape.mean"].file == str(own)
    assert "power dataflow: hardware_specs/power/dataflow.yaml, in place of the bundled one" in scenario.assumed
    assert run(scenario).power_w == pytest.approx(0.5 * bundled)
    assert check_files([str(own)]) == (1, [])


def test_an_installed_package_is_never_written_to(folder, monkeypatch):
    inside = catalog.Path(catalog.__file__).resolve().parent.parent / "bundled"
    monkeypatch.setattr(catalog, "bundled", lambda: inside)
    assert catalog.own_folder() == folder.parent


def test_fits_are_written_where_they_are_read_first(folder, monkeypatch):
    monkeypatch.setattr(calibrate, "calibrations", lambda: iter([("h100-vllm", {"layer_time": "1 us"})]))
    monkeypatch.setattr(calibrate, "left_out_scores", list)
    monkeypatch.setattr(catalog, "own_folder", lambda: folder.parent)
    written = calibrate.calibrate()
    assert {path.parent for path in written} == {folder / "calibration", folder / "power"}
