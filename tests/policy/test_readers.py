"""Every function that reads a file or opens a port is known here, with the test that damages what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hedgerow"
READING = {
    *("read_text", "read_bytes", "read_bounded", "pread", "ParquetFile", "read_csv", "create_server"),
    *("json.loads", "json.load", "tomllib.loads", "tomllib.load", "np.load", "open"),
    *("sqlite3.connect", "duckdb.connect", "dbapi.connect", "grpc.server"),
}
"""Calls that bring in what somebody else may have written: by their full name, or by its last part."""


def readers_in(tree: ast.AST) -> set[str]:
    """Names of functions that read, and of servers; those of methods alone."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("HTTPServer" in ast.unparse(base) for base in node.bases):
            found.add(node.name)
        if isinstance(node, ast.FunctionDef):
            calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            if any(_reads(call) for call in calls):
                found.add(node.name)
    return found


def _reads(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if last == "open" and name not in ("os.open", "open"):  # of a path: its mode says whether it is for reading
        modes = [each.value for each in call.args[:1] if isinstance(each, ast.Constant)]
        return modes in (["r"], ["rb"], ["r+"], ["r+b"])
    if name == "os.open":
        return "O_RDWR" in ast.unparse(call)
    return name in READING or (last in READING and last not in ("load", "loads", "connect", "server", "open"))


HOME = "tests/hostile/test_files_of_a_home.py::test_damage_is_a_sentence_about_the_file"
SAVED = "tests/hostile/test_damaged_files.py::test_no_damage_raises_anything_but_our_own_errors"
ATTACKED = "tests/hostile/test_node_under_attack.py::test_a_run_is_not_disturbed"
TRAIL = "tests/node/test_audit.py::test_any_file_is_judged"
TORN = "tests/node/test_audit.py::test_anything_that_is_torn_is_put_aside"
PARQUET = "tests/engine/test_streaming.py::test_any_damage_is_an_error_of_ours"
CSV = "tests/node/test_sources.py::test_any_bytes_as_csv_are_read_or_refused"
TOML = "tests/node/test_settings.py::test_any_bytes_are_read_or_refused"
CACHE = "tests/protocols/test_vertical_bucket_rr.py::test_any_damage_is_an_error_of_ours"
TWISTED = "tests/hostile/test_horizontal.py::test_a_twisted_field_ends_in_order"
CHECKPOINT = "tests/runtime/test_checkpoint.py::test_a_file_with_a_right_digest_is_not_believed_either"
REPLAYED = "tests/node/test_replay.py::test_damaged_files_are_told_in_words"
OWN = "no: what this program's own processes tell each other over pipes that nobody else has"
SYSTEM = "no: what the operating system tells"
PROGRAM = "no: the program's own source"
WRITTEN = "no: what this process has just written"

READERS = {
    "cli/audit.py:_certificate": (
        "tests/hostile/test_files_elsewhere.py::test_any_file_given_as_a_certificate_is_one_or_is_named"
    ),
    "cli/job_file.py:_value": SAVED,
    "cli/report.py:_digest": "no: its digest is told, whatever it holds",
    "cli/report.py:_read_attacks": "tests/cli/test_report.py::test_a_damaged_file_of_attacks_is_refused",
    "cli/run.py:running_pid": HOME,
    "compiling.py:source_hash": PROGRAM,
    "compiling.py:state_of": PROGRAM,
    "datasets/adult.py:_read": "no: the table that is shipped with the package",
    "engine/blocks.py:_look_at": PARQUET,
    "engine/blocks.py:_read": PARQUET,
    "engine/rows_ray/cluster.py:_running_here": (
        "tests/engine/test_rows_ray.py::test_a_cluster_that_has_ended_is_not_waited_for"
    ),
    "engine/import_lightgbm.py:_data_frame_levels": (
        "tests/engine/test_import_lightgbm.py::test_any_damage_is_a_model_or_refused"
    ),
    "engine/import_xgboost.py:import_xgboost": (
        "tests/engine/test_import_xgboost.py::test_any_damage_is_a_model_or_refused"
    ),
    "engine/importing.py:load_ensemble": "tests/engine/test_import_xgboost.py::test_files_are_recognised_and_named",
    "engine/model_file.py:read": "tests/engine/test_model_file.py::test_a_mutated_file_loads_or_is_refused",
    "federation/alignment.py:_read_rows": SAVED,
    "federation/finished.py:read_ledgers": SAVED,
    "ledger.py:from_json_lines": HOME,
    "node/audit.py:_last": HOME,
    "node/audit.py:_put_torn_aside": TORN,
    "node/audit.py:_read": TRAIL,
    "node/audit.py:_read_head": HOME,
    "node/audit.py:append": TORN,
    "node/audit_lines.py:read_line": TRAIL,
    "node/bare_sockets.py:look_at_arrivals": "tests/node/test_doctor.py::test_anything_may_arrive_in_place_of_the_peer",
    "node/books.py:whole_lines": "no: earlier books are copied as they are, up to their last whole line",
    "node/costs.py:shipped": PROGRAM,
    "node/databases.py:_from_duckdb": (
        "tests/hostile/test_files_elsewhere.py::test_a_database_file_that_was_changed_is_refused"
    ),
    "node/day_counts.py:_locked": "no: a lock, in which nothing stands",
    "node/documents.py:read": HOME,
    "node/documents.py:read_bounded": HOME,
    "node/estimate.py:__init__": (
        "tests/hostile/test_files_elsewhere.py::test_probes_are_what_they_were_or_measured_again"
    ),
    "node/keys.py:_read_key": HOME,
    "node/keys.py:read_certificate": HOME,
    "node/keys.py:rotate": "no: copies, byte for byte, the key and certificate that _read_key has just read",
    "node/manifest.py:books_of": HOME,
    "node/metrics.py:_Server": "tests/node/test_metrics.py::test_any_bytes_are_a_request_or_refused",
    "node/pairing.py:__init__": "tests/hostile/test_node_under_attack.py::test_pairing_goes_on_meanwhile",
    "node/pairing.py:recv": "tests/node/test_pairing.py::test_any_bytes_are_a_message_or_an_error_of_ours",
    "node/papers.py:_may_follow": HOME,
    "node/papers.py:take": "tests/node/test_papers.py::test_papers_that_were_changed_are_taken_or_refused",
    "node/passing.py:look": HOME,
    "node/passing.py:_read": HOME,
    "node/peaks.py:_children": SYSTEM,
    "node/peaks.py:_name_and_peak": SYSTEM,
    "node/peers.py:trust_store": HOME,
    "node/playing.py:alone": "no: a lock, in which this process writes its number",
    "node/playing.py:attempts": HOME,
    "node/playing.py:read_run": HOME,
    "node/postgresql.py:_answer": "tests/node/test_databases.py::test_a_damaged_answer_is_an_error_or_a_table",
    "node/postgresql.py:_judged": OWN,
    "node/postgresql.py:main": OWN,
    "node/serving_book.py:__init__": HOME,
    "node/serving_book.py:_take_up": HOME,
    "node/serving_http.py:Door": "tests/node/test_serving.py::test_a_hundred_of_each_kind_do_not_disturb_the_service",
    "node/serving_http.py:_document": "tests/node/test_serving.py::test_any_body_gets_an_answer_in_words",
    "node/serving_http.py:token_of": HOME,
    "node/settings.py:lines_of": TOML,
    "node/settings.py:read_toml": TOML,
    "node/sources.py:_header_of": CSV,
    "node/sources.py:_read_csv": CSV,
    "node/sources.py:_read_csv_parts": CSV,
    "node/sources.py:_read_parquet": HOME,
    "node/sources.py:is_streamed": PARQUET,
    "node/sources.py:look_at_file": HOME,
    "node/sources.py:read": CSV,
    "node/sources.py:readinto": CSV,
    "node/timed_http.py:BoundedHTTPServer": (
        "tests/node/test_serving.py::test_a_hundred_of_each_kind_do_not_disturb_the_service"
    ),
    "node/trained.py:find": HOME,
    "node/watching.py:_is_alive": HOME,
    "privacy/budget_file.py:_begun": HOME,
    "privacy/budget_file.py:_event": SAVED,
    "privacy/budget_file.py:_make": WRITTEN,
    "protocols/horizontal/secure_sum/agreement.py:_common_classes": TWISTED,
    "protocols/horizontal/secure_sum/agreement.py:agree": TWISTED,
    "protocols/horizontal/secure_sum/agreement.py:check_agreement": TWISTED,
    "protocols/horizontal/secure_sum/agreement.py:read_list": TWISTED,
    "protocols/horizontal/secure_sum/coordinator.py:_agree": TWISTED,
    "protocols/horizontal/secure_sum/coordinator.py:_params": TWISTED,
    "protocols/horizontal/secure_sum/coordinator.py:_weights": TWISTED,
    "protocols/horizontal/secure_sum/earlier.py:read_earlier": TWISTED,
    "protocols/horizontal/secure_sum/coordinator.py:_coordinate": TWISTED,
    "protocols/horizontal/secure_sum/owner.py:agree": TWISTED,
    "protocols/services/align/roles.py:unpacked": OWN,
    "protocols/vertical/bucket_rr/cache.py:_bucketing": CACHE,
    "protocols/vertical/bucket_rr/cache.py:_read": CACHE,
    "protocols/vertical/bucket_rr/cache.py:_transfer": CACHE,
    "protocols/vertical/bucket_rr/cache.py:find": CACHE,
    "report/of_node.py:_book": HOME,
    "report/of_node.py:_digest": "no: its digest is told, whatever it holds",
    "report/live/door.py:LiveDoor": "tests/report/test_live.py::test_slow_clients_hold_up_nobody",
    "report/live/door.py:_asset": PROGRAM,
    "report/pack/attacked.py:read_tests": (
        "tests/report/test_pack.py::test_any_file_given_as_attacks_is_read_or_refused"
    ),
    "report/pack/subject.py:of_home": HOME,
    "runtime/checkpoint.py:read": CHECKPOINT,
    "runtime/checkpoint.py:unpacked": CHECKPOINT,
    "runtime/forks.py:_ask": OWN,
    "runtime/party_process.py:_read_data": OWN,
    "runtime/party_start.py:next_request": OWN,
    "runtime/party_start.py:wait_for": OWN,
    "runtime/processes.py:_listen": OWN,
    "runtime/resources.py:memory_available": SYSTEM,
    "runtime/saved_files.py:read_object": SAVED,
    "schema.py:load": SAVED,
    "transport/grpc_streams.py:__init__": ATTACKED,
    "transport/memory.py:_core_at_work": SYSTEM,
    "node/bundles.py:_until_the_end": REPLAYED,
    "node/bundles.py:result_bytes": REPLAYED,
    "node/inputs.py:read_rows": HOME,
    "node/papers.py:read_paper": HOME,
    "node/replay.py:_about_repeated": WRITTEN,
    "node/replay.py:_believe_rounds": REPLAYED,
    "transport/transcripts.py:_contents_of": SAVED,
    "node/playing.py:_end": WRITTEN,
}
"""Where something is read -> the test that damages it, or "no: " and why there is none."""


def test_every_reader_is_listed():
    """A new one needs a line above, and a test that damages what it reads."""
    files = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "testing"]
    found = {f"{path.relative_to(SOURCE)}:{name}" for path in files for name in readers_in(ast.parse(path.read_text()))}
    assert found - READERS.keys() == set()
    assert READERS.keys() - found == set()


@pytest.mark.parametrize("named", sorted({each for each in READERS.values() if not each.startswith("no: ")}))
def test_tests_that_are_named_are_there(named):
    """Under the name that stands above, and with hypothesis, many cases or many connections in them."""
    path, _, name = named.partition("::")
    functions = [
        node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)
    ]
    assert name in functions


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(p):\n    return p.read_text()", {"f"}),
        ("def f(p):\n    with p.open('rb') as file:\n        return json.loads(file.read())", {"f"}),
        ("def f(p):\n    return open(p)", {"f"}),
        ("class S(ThreadingHTTPServer):\n    pass", {"S"}),
        ("def f(p):\n    with p.open('wb') as file:\n        file.write(b'')", set()),
        ("def f(node):\n    return node.open('run', [], {})", set()),
    ],
)
def test_readers_are_recognised(code, found):
    """What opens a file to write it, or opens something else, is none."""
    assert readers_in(ast.parse(code)) == found
