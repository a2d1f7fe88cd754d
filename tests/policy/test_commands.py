"""Every command and every example in the documentation is run by a test, and the test is known here.

Commands of ours (`hedgerow ...`) are typed; Python blocks are executed. Other programs are only looked at: what `make`
makes and which scripts there are. Their targets are the checks themselves, and benchmarks and experiments of hours.
"""

from __future__ import annotations

import ast
import re
import shlex

import pytest
import typer

from twins.documented import BLOCK, ROOT, commands_in, options_of

_DOCS, _TUTORIAL = "tests/cli/test_docs.py::test_the_examples_run", "tests/node/test_tutorial.py"
_REPLAY = "tests/node/test_replay.py::test_the_commands_of_the_pages"
_OPERATIONS = "tests/node/test_operations.py"
_REPORT = "tests/cli/test_report.py::test_the_commands_of_the_page"
TYPED = {
    "README.md": (
        f"{_TUTORIAL}::test_the_readme_works_as_printed",
        "tests/cli/test_docs.py::test_the_command_line_of_the_readme",
        "tests/cli/test_command.py::test_the_demo_reads_well",
    ),
    "deploy/README.md": ("tests/deploy/test_readme.py::test_a_party_that_is_set_up_by_hand_and_one_in_a_pod",),
    "docs/operations.md": (
        f"{_OPERATIONS}::test_its_commands_work_in_their_order",
        f"{_OPERATIONS}::test_what_needs_a_partner_works_as_well",
        _REPLAY,
    ),
    "docs/packs.md": ("tests/report/test_pack.py::test_commands_of_the_page_work",),
    "docs/reference/audit.md": (_REPLAY,),
    "docs/reference/report.md": (_REPORT,),
    "docs/reference/serving.md": ("tests/node/test_serving.py::test_the_commands_of_the_page",),
    "docs/scale.md": (_DOCS,),
    "docs/tutorials/first_model.md": (_DOCS,),
    "docs/tutorials/private_model.md": (_DOCS,),
    "docs/tutorials/two_organisations.md": (f"{_TUTORIAL}::test_the_tutorial_works_as_printed",),
    "docs/watching.md": ("tests/report/test_live.py::test_commands_of_the_page_work",),
}
"""Page -> the tests that type its commands, all of them: each compares what it typed with what the page shows."""

SYNOPSES = "docs/reference/cli.md"
"""The page that shows how commands are made up, with words in capitals for what is to be put in."""

VERBS = {
    "inspect": "tests/twins/offices.py::agree",  # as test_story.py::test_from_nothing_to_a_model does
    "manifest": "tests/node/test_manifest.py::test_before_and_after_a_run",
    "protocols": "tests/cli/test_docs.py::test_protocols_and_their_options_are_listed",
    "refuse": "tests/node/test_story.py::test_a_refusal_reaches_the_proposer_as_a_code",
    "rehearse": "tests/node/test_rehearse.py::test_by_processes_with_attacks",
    "schema": "tests/cli/test_simulate.py::test_a_schema_is_made_to_be_filled_in",
    "simulate": "tests/cli/test_simulate.py::test_a_job_runs_with_the_tables_of_all_parties",
    "warmup": "tests/cli/test_warmup.py::test_named_kernels_are_compiled",
}
"""Verbs that only the page of synopses shows -> the test that types them."""

EXECUTED = {
    "README.md": "tests/test_readme.py::printed",
    "docs/reference/elsewhere.md": "tests/test_mlflow.py::test_the_examples_of_the_page_run",
    "docs/reference/audit.md": "tests/node/test_audit.py::test_the_checker_of_the_documentation_needs_no_hedgerow",
    "docs/reference/report.md": _REPORT,
    "docs/tutorials/two_organisations.md": f"{_TUTORIAL}::test_the_tutorial_works_as_printed",
    **dict.fromkeys(
        (
            *(f"docs/tutorials/{name}.md" for name in ("first_model", "private_model", "shared_customers")),
            *("docs/tutorials/three_owners.md", "docs/attacks.md", "docs/scale.md"),
            "docs/protocols/horizontal_secure_sum.md",
            *(f"docs/protocols/vertical_{name}.md" for name in ("aligning", "mp_fedxgb", "private_histograms")),
            *(f"docs/reference/{name}.md" for name in ("estimators", "federation", "plot", "private_estimators")),
            "docs/reference/vertical_explanations.md",
        ),
        _DOCS,
    ),
}
"""Page -> the test that executes its Python blocks."""


@pytest.fixture(scope="module")
def pages(texts) -> dict[str, str]:
    """All pages by their paths; what changed once may have other names now."""
    return {path: text for path, text in texts.items() if path.endswith(".md") and path != "CHANGELOG.md"}


def inline(text: str) -> list[str]:
    """What stands between single backticks, outside blocks."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", BLOCK.sub("", text))


def unknown(words: list[str]) -> list[str]:
    """What a command has that there is not: its verb, or options of it."""
    options = {word.partition("=")[0] for word in re.findall(r"--[\w-]+", " ".join(words))}
    for verb in re.split(r"\|", words[1]) if len(words) > 1 and not words[1].startswith("-") else ():
        group = verb in ("audit", "keys") and len(words) > 2
        inner = words[2].split("|") if group else [None]
        for each in inner:
            known = options_of(*filter(None, (verb, each)))
            if not known:
                return [" ".join(filter(None, (verb, each)))]
            if options - known:
                return sorted(options - known)
    return []


def body(named: str, texts: dict[str, str]) -> str:
    """The module of a test, if the test is in there."""
    path, _, name = named.partition("::")
    functions = [node.name for node in ast.walk(ast.parse(texts[path])) if isinstance(node, ast.FunctionDef)]
    assert name in functions, named
    return texts[path]


def test_pages_with_commands_are_typed(pages):
    """A new page with a command needs a line above, and a test that types it."""
    assert {page for page, text in pages.items() if commands_in(text)} == {*TYPED, SYNOPSES}


def test_pages_with_examples_are_executed(pages):
    """The same for Python."""
    found = {page for page, text in pages.items() if any(language == "python" for language, _ in BLOCK.findall(text))}
    assert found == EXECUTED.keys()


@pytest.mark.parametrize("page", sorted({*TYPED, *EXECUTED}))
def test_tests_that_are_named_read_the_page(page, texts):
    """They are there, and their modules speak of the page."""
    named = [*TYPED.get(page, ()), *([EXECUTED[page]] if page in EXECUTED else [])]
    modules = [body(each, texts) for each in named]
    assert any(page.rpartition("/")[2] in module for module in modules)


def test_every_verb_is_typed(pages, texts):
    """On a page that shows commands as they are, or in the test that stands above; and no verb is shown nowhere."""
    from hedgerow.cli import app

    command = typer.main.get_command(app)
    found = {words[1] for page in TYPED for words in commands_in(pages[page]) if not words[1].startswith("-")}
    assert found | VERBS.keys() == set(command.commands)
    assert not found & VERBS.keys()
    for verb, named in VERBS.items():
        assert f'"{verb}"' in body(named, texts)


def test_verbs_and_options_are_there(pages):
    """In blocks, in synopses, and in the middle of a sentence; texts that signatures begin with have a version."""
    wrong = {}
    for page, text in pages.items():
        said = [each.split() for each in inline(text) if each.startswith("hedgerow ") and ", version " not in each]
        shown = [*commands_in(text), *said]
        wrong |= {f"{page}: {' '.join(words)}": found for words in shown if (found := unknown(words))}
    assert wrong == {}


def test_what_make_and_python_are_told_is_there(pages, texts):
    """Targets of the Makefile, scripts, modules, and the tests that are named as arguments."""
    targets = set(re.findall(r"^([a-z][\w-]*):", texts["Makefile"], flags=re.MULTILINE))
    wrong, seen = [], 0
    for page, text in pages.items():
        lines = [
            line.strip()
            for language, block in BLOCK.findall(text)
            if language != "python"
            for line in block.splitlines()
        ]
        for each in (*inline(text), *lines):
            words = shlex.split(re.sub(r"^(?:\w+=\S+ )*", "", each), comments=True) if is_other(each) else []
            seen += bool(words)
            wrong += [f"{page}: {each}" for _ in words[:1] if not is_known(words, targets)]
    assert wrong == []
    assert seen > 40


def is_other(text: str) -> bool:
    """Whether this is a command for make or Python, which says what to do."""
    return re.match(r"(?:\w+=\S+ )*(?:make [a-z]|python (?:\w+/|-m \w+\.))", text) is not None


def is_known(words: list[str], targets: set[str]) -> bool:
    """Whether its target, script or module is there, and the tests that it is to run."""
    if words[0] == "make":
        arguments = [word for each in words[2:] for word in each.removeprefix("ARGS=").split()]
        return words[1] in targets and all((ROOT / word).exists() for word in arguments if word.startswith("tests/"))
    if words[1] == "-m":
        place = ROOT / words[2].replace(".", "/")
        return place.is_dir() or place.with_suffix(".py").is_file()
    return (ROOT / words[1]).is_file()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```\nhedgerow run   what it does\n```\n", [["hedgerow", "run"]]),
        ("```console\n$ hedgerow run # now\n```\n", [["hedgerow", "run"]]),
        ("  ```text\n  bank$ hedgerow run\n  ```\n", [["hedgerow", "run"]]),
        ("```\nkubectl exec -it bank-0 -- hedgerow run --json\n```\n", [["hedgerow", "run", "--json"]]),
        ("```python\nhedgerow run\n```\n", []),
        ("hedgerow run", []),
    ],
)
def test_commands_are_recognised(text, shown):
    """In blocks that are not of another language, with a prompt or without."""
    assert commands_in(text) == shown


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hedgerow submit", ["submit"]),
        ("hedgerow run --fast", ["--fast"]),
        ("hedgerow keys show|lose", ["keys lose"]),
        ("hedgerow inspect|accept [PROPOSAL] [--wait SECONDS]", []),
        ("hedgerow --version [--json]", []),
    ],
)
def test_what_is_not_there_is_found(line, found):
    """Verbs and options of nobody."""
    assert unknown(line.split()) == found


def test_a_target_that_is_gone_is_found():
    """And a script, a module, a folder of tests."""
    assert is_known(["make", "test", "ARGS=tests/policy"], {"test"})
    assert not is_known(["make", "best"], {"test"})
    assert not is_known(["make", "test", "ARGS=tests/nothing"], {"test"})
    assert not is_known(["python", "benchmarks/nothing.py"], set())
    assert not is_known(["python", "-m", "experiments.nothing"], set())
