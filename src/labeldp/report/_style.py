"""The look of a page: one style sheet for light, dark, print and a screen of 360 pixels.

>>> min(contrast(colour, LIGHT["ground"]) for colour in SERIES_LIGHT) > 4.5
True

Design notes. Text has a contrast of at least 7 to its ground, lines of plots at least 4.5 (WCAG 2.2 asks for 4.5 and 3);
`contrast` computes it and a test holds it. Tables and drawings scroll inside their own box, never the page.
"""

from __future__ import annotations

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#4a525c",
    "rule": "#d5dae0",
    "panel": "#f4f6f8",
    "link": "#0a4b94",
}
DARK = {
    "ground": "#14181d",
    "ink": "#e9edf1",
    "soft": "#b4bdc7",
    "rule": "#3a424c",
    "panel": "#1d232a",
    "link": "#8cc4ff",
}
SERIES_LIGHT = ("#0b5cad", "#a8430a", "#146c43", "#7b2a94", "#55606c", "#9b1550", "#6b5a00", "#00696e")
SERIES_DARK = ("#6db3f2", "#f0a060", "#5fd39a", "#d79be8", "#b4bdc7", "#f58ab0", "#d8c34a", "#5ccfd4")
#: Ground and ink of the banner of a seeded report.
BANNER = ("#a3101a", "#ffffff")


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2): from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance: the sRGB transfer curve undone, then the weights of the three primaries."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _variables(palette: dict[str, str], series: tuple[str, ...]) -> str:
    pairs = [*palette.items(), *((f"series-{i}", colour) for i, colour in enumerate(series))]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)


def style_sheet() -> str:
    """Return the whole style sheet."""
    light, dark = _variables(LIGHT, SERIES_LIGHT), _variables(DARK, SERIES_DARK)
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{color-scheme:light;{light}}}}}"
        f".banner{{background:{BANNER[0]};color:{BANNER[1]}}}" + _RULES
    )


_RULES = """
*{box-sizing:border-box}
html{font:17px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink)}
header,main,footer{max-width:52rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.8rem;line-height:1.2;margin:2rem 0 .5rem}
h2{font-size:1.3rem;line-height:1.3;margin:2.5rem 0 .5rem}
p,dl{max-width:44rem}
p,dd,dt,h1,h2,td,th,figcaption{overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-100rem}
.skip:focus{left:1rem;top:1rem;background:var(--ground);padding:.5rem 1rem;z-index:9}
.lead{font-size:1.1rem;color:var(--soft)}
.banner{padding:.8rem 1rem;font-weight:600}
.banner p{max-width:50rem;margin:0 auto}
nav ul{padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.88rem;margin:.3rem 0}
caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--rule)}
td,th{overflow-wrap:normal}
.number+:not(.number){padding-left:.9rem}
thead th{border-bottom:2px solid var(--soft)}
.number{text-align:right;font-variant-numeric:tabular-nums}
tbody th{font-weight:500}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.3rem 1rem;font-size:.92rem}
dt{color:var(--soft)}
dd{margin:0}
figure{margin:1.5rem 0;padding:0}
figcaption{font-weight:600}
svg.static{width:100%;min-width:30rem;height:auto;display:block}
.live{width:100%}
.live,.drawn svg.static{display:none}
.drawn .live{display:block}
details{font-size:.9rem}
summary{cursor:pointer;padding:.3rem 0;color:var(--soft)}
footer{margin-top:3rem;padding-bottom:2rem;color:var(--soft);font-size:.85rem;border-top:1px solid var(--rule)}
@media (max-width:30rem){
 h1{font-size:1.45rem}
 dl{grid-template-columns:1fr}
 dd{margin:0 0 .5rem}
}
@media print{
 nav,.skip,details:not([open]),.drawn .live{display:none}
 .drawn svg.static{display:block}
 svg.static{min-width:0}
 .scroll{overflow:visible}
 .banner{print-color-adjust:exact;-webkit-print-color-adjust:exact;border:2px solid}
 figure,table,section>h2{break-inside:avoid}
 h2{break-after:avoid}
}
"""
