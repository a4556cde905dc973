"""The example package does what its own tests say, and its figure stands in a report."""

from plugins.installed import ROOT, environment, run

EXAMPLE = ROOT / "examples" / "novel"


def test_the_example_passes_its_tests(tmp_path):
    env = environment(EXAMPLE, tmp_path / "site")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), env=env, cwd=tmp_path)


def test_its_files_have_no_problems_and_its_figure_is_found(tmp_path):
    env = environment(EXAMPLE, tmp_path / "site")
    program = (
        "from perfmodel.specs.check import check_files; from perfmodel.studies.figures import registry; "
        "checked, problems = check_files([]); assert not problems, problems; "
        "print('novel-batching' in registry(), registry('novel-batching')['novel-batching'](most=4).answer)"
    )
    assert run("-c", program, env=env, cwd=tmp_path).startswith("False 4 requests together")
