"""Reports: one self-contained HTML file that anyone can open, print and read without a network.

>>> from labeldp.report import Section, Table, page
>>> table = Table(caption="Accuracy", columns=("setting", "%"), rows=(("plain", "79.0"),), numeric=(1,))
>>> "<caption" in page("A report", sections=[Section(title="Result", blocks=(table,))])
True
"""

from labeldp.report._page import page, plot_table, write_page
from labeldp.report._svg import standalone as plot_file
from labeldp.report._values import Bars, Block, Facts, Lines, Plot, Section, Series, Table

__all__ = [
    "Bars",
    "Block",
    "Facts",
    "Lines",
    "Plot",
    "Section",
    "Series",
    "Table",
    "page",
    "plot_file",
    "plot_table",
    "write_page",
]
