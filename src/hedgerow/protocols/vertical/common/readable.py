"""One party's part of a model for other tools: its questions with a condition in SQL each, and the trees it knows.

    feature holder    {"questions": [{"handle": 0, "column": "basket", "below": 17.5, "missing": "left",
                                      "left_if": '"basket" < 17.5 OR "basket" IS NULL'}, ...]}
    label holder      {"trees": [{"output": 0, "nodes": [{"node": 0, "party": "shop", "handle": 0, "left": 1, ...
                                                         {"node": 1, "value": -0.25, ...

A feature holder can so answer all handles of a table in its own database, and the label holder can draw or follow its
trees. Nothing is in it that the party's part has not: at another party's split there is the name of the party and the
handle. Of a model whose leaf values are shared a party gets its own splits and the shapes of trees; its words of the
leaves mean nothing by themselves, and stay in the part. What is written here is for reading; `save` is for loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from hedgerow.engine import model_file
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, Part, written_split

FORMAT = "hedgerow readable part"


def export_part(part: Part, path: str | PathLike[str]) -> None:
    """Write what `readable` says as a JSON file, in one step."""
    model_file.write(readable(part), path)


def readable(part: Part) -> dict[str, Any]:
    """The part as plain lists and numbers; docs/reference/vertical_model.md explains each field."""
    written = part.to_dict()
    about: dict[str, Any] = {"format": FORMAT, "version": 1, "role": part.ROLE}
    about |= {name: written[name] for name in ("party", "label_holder", "protocol", "run_id") if name in written}
    if isinstance(part, LabelHolderPart):
        return about | _trees(part)
    if "splits" in written:
        return about | {"questions": [{"handle": k, **_question(split)} for k, split in enumerate(written["splits"])]}
    trees = [{"nodes": [_partial_node(node) for node in tree["nodes"]]} for tree in written["trees"]]
    for tree in trees:
        _add_children(tree["nodes"])
    return about | {"trees": trees, "target": written["target"]}


def _trees(part: LabelHolderPart) -> dict[str, Any]:
    model = part.ensemble
    owner_of = {
        part.first_column(party) + handle: {"party": party, "handle": handle}
        for party, n_handles in part.handles.items()
        for handle in range(n_handles)
    }
    trees = []
    for t, tree in enumerate(model.trees):
        nodes: list[dict[str, Any]] = []
        for node in range(tree.n_nodes):
            column, cover = int(tree.feature[node]), float(tree.cover[node])
            if column < 0:
                nodes.append({"node": node, "value": float(tree.value[node]), "cover": cover})
                continue
            asked: dict[str, Any]
            if column in owner_of:
                asked = owner_of[column]
            else:
                levels = tree.left_levels[tree.level_set[node]] if tree.level_set[node] >= 0 else tree.left_levels[:0]
                feature, last_bin = model.features[column], int(tree.bin[node])
                asked = _question(written_split(feature, last_bin, bool(tree.missing_left[node]), levels))
            nodes.append({"node": node, **asked, "gain": float(tree.gain[node]), "cover": cover})
            nodes[-1] |= {"left": int(tree.left[node]), "right": int(tree.right[node])}
        trees.append({"output": t % model.n_outputs, "nodes": nodes})
    target = part.target.to_dict() | {"learning_rate": 1.0}  # which is in the leaf values already
    return {"target": target, "handles": dict(part.handles), "trees": trees}


def _partial_node(said: Any) -> dict[str, Any]:
    if said is None:
        return {"leaf": True}
    return {"party": said} if isinstance(said, str) else _question(said)


def _add_children(nodes: list[dict[str, Any]]) -> None:
    inner = [node for node in nodes if "leaf" not in node]
    for number, node in enumerate(nodes):
        node["node"] = number
    for k, node in enumerate(inner):
        node |= {"left": 2 * k + 1, "right": 2 * k + 2}


def _question(split: Mapping[str, Any]) -> dict[str, Any]:
    """A split as parts have it, and the condition under which a row goes left."""
    name = '"' + split["column"].replace('"', '""') + '"'
    missing = "left" if split["missing_left"] else "right"
    told: dict[str, Any] = {"column": split["column"]}
    if "left_levels" in split:
        listed = ", ".join(_literal(level) for level in split["left_levels"])
        told["left_levels"], condition = split["left_levels"], f"{name} IN ({listed})" if listed else "FALSE"
    else:
        told["below"] = split["threshold"]
        below = split["threshold"]
        condition = f"{name} < {below!r}" if below is not None else f"{name} IS NOT NULL"
    if split["missing_left"]:
        condition = f"{condition} OR {name} IS NULL"
    return told | {"missing": missing, "left_if": condition}


def _literal(level: Any) -> str:
    if isinstance(level, str):
        return "'" + level.replace("'", "''") + "'"
    return str(level).upper() if isinstance(level, bool) else repr(level)
