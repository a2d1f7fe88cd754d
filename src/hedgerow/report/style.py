"""How pages look: one style sheet, light and dark, for screens from 390 pixels on and for paper.

Every rule begins with `&`, which stands for the element that holds a page or a part of it: so a report that is shown in
a notebook does not change how the notebook looks. Colours have a contrast of 4.5 or more as text, and of 3 or more as
lines; what a colour says is always said in words too.
"""

from __future__ import annotations

ROOT = "hedgerow-report"
"""The class of the element around everything."""

_LIGHT = """
--paper: #ffffff; --card: #f6f8f6; --ink: #1b211d; --quiet: #4f5a53; --line: #cfd8d2; --strong: #17603a;
--warn-paper: #fdecea; --warn: #8f1d14; --c-clear: #b3261e; --c-noise: #9a5300; --c-result: #0b5cad;
--c-covered: #17703f; --c-public: #66706a; --bar: #2f7d55; --bar-2: #b4651a;
"""
_DARK = """
--paper: #121714; --card: #1a211d; --ink: #e9eeea; --quiet: #aab6ae; --line: #3a463f; --strong: #86d9ab;
--warn-paper: #3b1613; --warn: #ffb4aa; --c-clear: #ff8f84; --c-noise: #f0b266; --c-result: #84bdff;
--c-covered: #74cf9b; --c-public: #9aa69f; --bar: #5bb686; --bar-2: #e0a15e;
"""

_RULES = """
& { %LIGHT% color-scheme: light dark; color: var(--ink); background: var(--paper); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; font-size: 16px;
  overflow-wrap: break-word; }
& *, & *::before, & *::after { box-sizing: border-box; }
& .wide { max-width: 1120px; margin: 0 auto; padding: 0 20px; }
& a { color: var(--strong); }
& a:focus-visible, & summary:focus-visible, & [tabindex]:focus-visible { outline: 3px solid var(--c-result);
  outline-offset: 2px; border-radius: 3px; }
& .skip { position: absolute; left: -9999px; }
& .skip:focus { left: 12px; top: 12px; background: var(--paper); padding: 8px 12px; z-index: 2; }
& header { border-bottom: 1px solid var(--line); padding: 18px 0 12px; }
& h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
& h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 10px; }
& h3 { font-size: 1rem; margin: 18px 0 6px; }
& p { margin: 0 0 10px; }
& ul { margin: 0 0 10px; padding-left: 1.2em; }
& li { margin: 0 0 4px; }
& .quiet { color: var(--quiet); }
& .small { font-size: 0.875rem; }
& nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; margin: 12px 0 0;
  font-size: 0.875rem; scrollbar-width: thin; }
& main > section { padding: 20px 0 16px; border-bottom: 1px solid var(--line); }
& main > section:last-child { border-bottom: 0; }
& footer { padding: 18px 0 40px; color: var(--quiet); font-size: 0.875rem; }
& .stamp { background: var(--warn-paper); color: var(--warn); border: 2px solid var(--warn); border-radius: 8px;
  padding: 12px 16px; font-weight: 700; margin: 0 0 18px; }
& .first { display: grid; grid-template-columns: repeat(12, 1fr); gap: 14px; }
& .for-whom { margin: 14px 0 0; font-size: 0.9rem; }
& .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px 10px;
  grid-column: span 3; min-width: 0; }
& .card.half { grid-column: span 6; }
& .card.guarantee { border-left: 6px solid var(--strong); }
& .card h2 { font-size: 1.0625rem; color: var(--strong); margin-bottom: 8px; }
& .figures { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 10px 28px; align-items: start; }
& .ways { grid-template-columns: minmax(0, 5fr) minmax(0, 7fr); }
& .narrow { max-width: 560px; margin-bottom: 18px; }
& figure { margin: 0 0 14px; min-width: 0; }
& figcaption { font-size: 0.875rem; color: var(--quiet); margin-top: 4px; }
& svg { display: block; width: 100%; height: auto; max-width: 560px; }
& svg text { fill: var(--ink); font-size: 14.5px; font-family: inherit; }
& svg text.small { font-size: 12.5px; }
& svg .box { fill: var(--card); stroke: var(--ink); stroke-width: 1.2; }
& svg .own { stroke: var(--strong); stroke-width: 3; }
& svg .axis { stroke: var(--quiet); stroke-width: 1; fill: none; }
& svg .grid { stroke: var(--line); stroke-width: 1; fill: none; }
& svg .line-1 { stroke: var(--bar); stroke-width: 2.4; fill: none; }
& svg .line-2 { stroke: var(--bar-2); stroke-width: 2.4; fill: none; stroke-dasharray: 7 4; }
& svg .line-3 { stroke: var(--c-result); stroke-width: 2.4; fill: none; stroke-dasharray: 2 3; }
& svg .dot { fill: var(--bar); }
& svg .even { stroke: var(--quiet); stroke-width: 1.2; stroke-dasharray: 3 4; fill: none; }
& svg .arrow { fill: none; stroke-width: 2.6; }
& svg a:focus-visible .arrow, & svg a:hover .arrow { stroke-width: 4.6; }
& svg .badge { fill: var(--paper); stroke-width: 1.6; }
& svg .clear { stroke: var(--c-clear); } & svg .noise { stroke: var(--c-noise); stroke-dasharray: 8 4; }
& svg .result { stroke: var(--c-result); stroke-dasharray: 12 3; }
& svg .covered { stroke: var(--c-covered); stroke-dasharray: 3 3; }
& svg .public { stroke: var(--c-public); stroke-width: 1.4; }
& svg .badge.noise, & svg .badge.result, & svg .badge.covered { stroke-dasharray: none; }
& svg .head { stroke: none; } & svg .head.clear { fill: var(--c-clear); } & svg .head.noise { fill: var(--c-noise); }
& svg .head.result { fill: var(--c-result); } & svg .head.covered { fill: var(--c-covered); }
& svg .head.public { fill: var(--c-public); }
& svg .fill { fill: var(--bar); } & svg .empty { fill: var(--line); }
& .legend { list-style: none; padding: 0; margin-top: 8px; display: flex; flex-wrap: wrap; gap: 2px 18px;
  font-size: 0.8125rem; }
& .legend .sample { display: inline-block; width: 40px; margin-right: 6px; vertical-align: middle; }
& .mark { display: inline-block; border: 2px solid; border-radius: 999px; padding: 0 8px; font-size: 0.8125rem;
  font-weight: 600; white-space: nowrap; }
& .mark.clear, & .verdict.bad { color: var(--c-clear); } & .mark.noise { color: var(--c-noise); }
& .mark.result { color: var(--c-result); } & .mark.covered { color: var(--c-covered); }
& .mark.public { color: var(--c-public); }
& .verdict { font-weight: 700; }
& .scroll { overflow-x: auto; margin: 0 0 12px; }
& table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
& caption { text-align: left; font-size: 0.875rem; color: var(--quiet); padding: 0 0 4px; }
& th, & td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line);
  font-weight: 400; }
& thead th { color: var(--quiet); font-size: 0.8125rem; } & thead th.number { white-space: normal; }
& tbody th { font-weight: 600; overflow-wrap: anywhere; min-width: 7.5em; }
& .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
& td.sentences { min-width: 15em; }
& td.bar { width: 34%; vertical-align: middle; }
& svg.share { max-width: none; min-width: 56px; height: 12px; margin-top: 5px; } & td.bar svg.share { margin-top: 0; }
& figure details { border: 0; padding: 0; font-size: 0.875rem; }
& figure summary { padding: 4px 0; color: var(--strong); }
& details { border: 1px solid var(--line); border-radius: 8px; padding: 0 14px; margin: 0 0 8px; }
& details[open] { padding-bottom: 8px; }
& .card details { border: 0; padding: 0; margin: 0; }
& summary { cursor: pointer; padding: 8px 0; font-weight: 600; }
& .card summary { padding: 2px 0 6px; color: var(--strong); font-size: 0.9rem; }
& pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.8125rem; line-height: 1.45; margin: 0 0 12px; }
& code, & pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
& dl.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 18px; margin: 0 0 12px; }
& dl.facts dt { color: var(--quiet); } & dl.facts dd { margin: 0; overflow-wrap: anywhere; }
& .ask { border: 2px dashed var(--c-noise); border-radius: 8px; padding: 8px 12px; margin: 0 0 10px; }
@media screen and (max-width: 860px) {
  & .first, & .figures { grid-template-columns: minmax(0, 1fr); }
  & .card, & .card.half { grid-column: auto; }
  & .wide { padding: 0 14px; }
  & h1 { font-size: 1.35rem; } & header { padding: 14px 0 10px; } & main > section { padding: 16px 0 12px; }
  & .card { padding: 12px 14px 6px; } & .card p { margin-bottom: 7px; } & .first { gap: 10px; }
  & nav ul { flex-wrap: nowrap; overflow-x: auto; white-space: nowrap; padding: 4px 4px 8px; margin: 4px 0 0; }
  & dl.facts { grid-template-columns: minmax(0, 1fr); gap: 0; } & dl.facts dd { margin-bottom: 6px; }
}
@media (prefers-color-scheme: dark) { & { %DARK% } }
@media print {
  & { %LIGHT% color-scheme: light; font-size: 10.5pt; }
  & nav, & .skip { display: none; }
  & .wide { max-width: none; padding: 0; }
  & .card, & figure, & tr, & .stamp { break-inside: avoid; } & section > .quiet { break-after: avoid; }
  & h2, & h3, & summary, & caption, & thead { break-after: avoid; }
  & figure details { display: none; } & .ways { display: block; } & .ways svg { max-width: 420px; }
  & .card { padding: 10px 12px 4px; } & .first, & .figures { gap: 8px 14px; }
  & pre { font-size: 7.5pt; } & pre.settings { columns: 2; }
  & table { font-size: 9pt; } & th, & td { padding: 3px 8px 3px 0; }
  & details::details-content { content-visibility: visible; height: auto; display: block; }
  & .card details::details-content { display: none; } & .card summary::after { content: ", further down"; }
  & summary { list-style: none; }
  & details, & details[open] { border: 0; padding: 0; }
  & .scroll { overflow: visible; }
  & main > section { padding: 14px 0 4px; }
}
@media (prefers-reduced-motion: no-preference) { & svg .arrow { transition: stroke-width 0.12s; } }
"""

PAGE = "@page { margin: 16mm; } html { background: #ffffff; } body { margin: 0; }\n"
"""For a page of its own, beside `sheet()`."""
PAGE += "@media (prefers-color-scheme: dark) { @media screen { html { background: #121714; } } }\n"


def sheet(more: str = "") -> str:
    """The rules, and some more that begin with `&`, for all that is inside the class `ROOT`."""
    rules = _RULES.replace("%LIGHT%", " ".join(_LIGHT.split())).replace("%DARK%", " ".join(_DARK.split()))
    return (rules + more).replace("&", f".{ROOT}").strip() + "\n"
