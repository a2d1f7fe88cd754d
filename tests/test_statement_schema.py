"""What statements write for machines is what their schema says, and every fact has a name that is documented."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from hedgerow import DPBoostClassifier, PrivateBoostingClassifier, Schema
from hedgerow.codec import from_json
from hedgerow.engine.losses import BoostingParams
from hedgerow.runtime.protocol import find, names, services
from hedgerow.statement import ModelDocument, PrivacyStatement, RunDocument, Statement
from policy.who_learns_what import EXAMPLES
from twins.parties import asked

COMMON = {field.name for field in fields(RunDocument)}
PAGE = Path(__file__).parents[1] / "docs/reference/statement.md"
FACTS = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
"""The names of facts that are documented."""


@pytest.mark.parametrize("name", [*names(), *services()])
def test_the_json_of_every_run_fits_its_schema(name):
    """After a round trip as well; what stands beside it are facts with known names."""
    protocol = find(name)
    for example in EXAMPLES[name]:
        request = (
            example.parties,
            "example",
            "classification",
            BoostingParams(),
            256,
            example.options,
            example.parties[0],
        )
        stated = protocol.statement(example.job or asked(protocol, *request), example.meta)
        document = json.loads(json.dumps(stated.to_dict(), allow_nan=False))
        read = from_json(RunDocument, {key: document[key] for key in document if key in COMMON})
        assert read.words == str(stated)
        assert read.guarantee == stated.guarantee
        assert set(document) - COMMON == set(stated.facts) - COMMON
        assert set(stated.facts) <= FACTS


@pytest.mark.parametrize(("kind", "params"), [(DPBoostClassifier, {"max_iter": 2}), (PrivateBoostingClassifier, {})])
def test_the_json_of_a_model_fits_its_schema(kind, params):
    """Field by field, in the order of the schema; facts have known names."""
    rng = np.random.default_rng(0)
    schema = Schema.from_public(bounds={"x0": (0, 1)}, classes=[0, 1])
    stated = kind(schema=schema, **params).fit(rng.uniform(size=(60, 1)), rng.integers(0, 2, 60)).privacy_statement()
    document = json.loads(json.dumps(stated.to_dict(), allow_nan=False))
    assert list(document) == [field.name for field in fields(ModelDocument)]
    read = from_json(ModelDocument, document)
    assert (read.epsilon, read.stages, read.registry) == (stated.epsilon, stated.stages, stated.registry)
    assert set(stated.facts) <= FACTS
    assert isinstance(stated, Statement)


@pytest.mark.parametrize("name", [field.name for field in fields(ModelDocument) if field.default is not None])
def test_a_statement_that_lost_a_field_is_refused(name):
    """A missing reason, event or number is not taken for nothing; what is derived, or came later, may be missing."""
    rng = np.random.default_rng(0)
    schema = Schema.from_public(bounds={"x0": (0, 1)}, classes=[0, 1])
    model = DPBoostClassifier(schema=schema, max_iter=1).fit(rng.uniform(size=(30, 1)), rng.integers(0, 2, 30))
    document = model.privacy_statement().to_dict()
    del document[name]
    if name == "assumed_of_data":
        assert PrivacyStatement.from_dict(document).assumed_of_data == ()
    else:
        with pytest.raises(ValueError, match="statement"):
            PrivacyStatement.from_dict(document)
