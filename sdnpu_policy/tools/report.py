"""report.html: one page that stands alone, with the figures as tables and the pictures inside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fff; --soft: #f1f4f8; --rule: #d5dce4; --good: #1b7f5c;
        --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #12171d; --soft: #1c242d; --rule: #35414d;
        --good: #57c99a; --bad: #ff8a80; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--rule); vertical-align: top }
th[scope=row] { font-weight: 500; width: 40% } thead th { background: var(--soft) }
figure { margin: 0 0 1rem } img { max-width: 100%; height: auto; border-radius: 4px }
figcaption { font-size: .9rem; opacity: .85 }
.good { color: var(--good) } .bad { color: var(--bad) } .wide { overflow-x: auto }
@media print { body { max-width: none; padding: 0 } figure, tr { break-inside: avoid } }
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with what it shows in words, for those who can't see it."""

    title: str
    png: bytes
    caption: str
    alternative: str


def write_report(
    path: Path,
    *,
    title: str,
    verdict: str,
    good: bool,
    figures: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]] = (),
    rows_title: str = "",
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the page.

    Args:
        verdict: one sentence at the top; ``good`` colours it.
        figures: name to value, as one table; nested mappings are shown as NAME.KEY.
        rows: a second table, all with the same keys.
    """
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='{'good' if good else 'bad'}'><strong>{html.escape(verdict)}</strong></p>",
        *(f"<p>{html.escape(note)}</p>" for note in notes),
        "<h2>Figures</h2><div class='wide'><table><tbody>",
        *(f"<tr><th scope='row'>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in _flat(figures)),
        "</tbody></table></div>",
    ]
    for picture in pictures:
        data = base64.b64encode(picture.png).decode("ascii")
        parts.append(
            f"<h2>{html.escape(picture.title)}</h2><figure><img alt='{html.escape(picture.alternative, quote=True)}' "
            f"src='data:image/png;base64,{data}'><figcaption>{html.escape(picture.caption)}</figcaption></figure>"
        )
    if rows:
        parts.append(f"<h2>{html.escape(rows_title)}</h2><div class='wide'><table><thead><tr>")
        parts += [f"<th scope='col'>{html.escape(str(name))}</th>" for name in rows[0]]
        parts.append("</tr></thead><tbody>")
        for row in rows:
            cells = "".join(f"<td>{html.escape(_text(value))}</td>" for value in row.values())
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</tbody></table></div>")
    parts.append("</main></body></html>\n")
    path.write_text("".join(parts), encoding="utf-8")


def _flat(figures: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in figures.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            lines += _flat(value, f"{label}.")
        elif not isinstance(value, list):
            lines.append((label, _text(value)))
    return lines


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"
    return str(value)
