"""How Sphinx builds these pages: ``python -m sphinx -W --keep-going -n -b html docs docs/build``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import perfmodel

project = "perfmodel"
version = release = perfmodel.__version__
copyright = "the perfmodel authors, Apache-2.0"
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "mathml",
    "commands",
    "equation_book",
    "gallery",
    "twins",
]
root_doc = "index"
exclude_patterns = ["build", "_ext", "generated/extra"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = {"GL08", "PR02"}

html_theme = "furo"
html_title = f"perfmodel {version}"
html_static_path = ["_static"]
html_extra_path = ["generated/extra"]
html_css_files = ["perfmodel.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
smartquotes = False
