"""The site: `make docs` builds it without a network, and a warning is an error."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from typer.testing import CliRunner

import taskmix
from taskmix.cli import app as cli

project = "taskmix"
author = "the taskmix authors"
release = version = taskmix.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "examples"]
html_theme = "furo"
html_title = "taskmix"
html_static_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_heading_anchors = 3

default_role = "code"  # docstrings mark code as Markdown does
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 88


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Link a type in a signature to where its class is documented, if it is.

    Signatures name a class by the module that defines it, `taskmix.policies.base.Policy`; the page
    documents it as `taskmix.policies.Policy`. Types of other libraries are plain text, because a
    site that builds without a network knows no addresses of theirs.
    """
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    objects: dict[str, Any] = env.get_domain("py").data["objects"]
    places = [name for name in objects if name.rpartition(".")[2] == target.rpartition(".")[2]]
    if len(places) == 1 and target.startswith("taskmix."):
        entry = objects[places[0]]
        return make_refnode(
            app.builder, node["refdoc"], entry.docname, entry.node_id, content, places[0]
        )
    return content


def unlink_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn links to files of the repository that are not on the site into plain text."""
    folder = (Path(app.srcdir) / page).parent

    def plain(link: re.Match[str]) -> str:
        label, target = link["label"], link["target"].partition("#")[0]
        path = (folder / target).resolve()
        on_site = path.suffix == ".md" and path.parent == Path(app.srcdir)
        return link[0] if on_site or not path.exists() or not target else label

    source[0] = re.sub(r"(?<!!)\[(?P<label>[^]]+)\]\((?P<target>[^)\s]+)\)", plain, source[0])


def escape_bars(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Escape the bars of a size such as |D|, which reStructuredText takes for a substitution."""
    lines[:] = [line if ">>>" in line else line.replace("|", r"\|") for line in lines]


class Commands(SphinxDirective):
    """The help of every command of `taskmix`."""

    def run(self) -> list[nodes.Node]:
        names = [command.name or command.callback.__name__ for command in cli.registered_commands]
        return [self._section(name) for name in names]

    def _section(self, name: str) -> nodes.Node:
        section = nodes.section(ids=[f"taskmix-{name}"])
        section += nodes.title(text=f"taskmix {name}")
        said = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "100"})
        section += nodes.literal_block(text=said.stdout, language="text")
        return section


def setup(app: Sphinx) -> None:
    app.add_directive("commands", Commands)
    for place in ("taskmix.models", "taskmix.models.conditional", "taskmix.search"):
        module = import_module(place)  # whose names are imported when they are first used
        vars(module).update({name: getattr(module, name) for name in module.__all__})
    app.connect("missing-reference", resolve)
    app.connect("source-read", unlink_files)
    app.connect("autodoc-process-docstring", escape_bars)
