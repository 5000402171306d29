"""Reports: one self-contained HTML file that anyone can open, print and read without a network.

>>> from labeldp.report import Section, Table, page
>>> table = Table(caption="Accuracy", columns=("setting", "%"), rows=(("plain", "79.0"),), numeric=(1,))
>>> "<caption" in page("A report", sections=[Section(title="Result", blocks=(table,))])
True
"""

from labeldp.plots import Bars, Lines, Plot, Series, plot_file
from labeldp.report.page import Block, Facts, Section, Table, page, plot_table, write_page

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
