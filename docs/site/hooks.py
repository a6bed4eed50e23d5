"""The hooks of mkdocs for the site (`make docs`): more pages, their links, and a check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pages import C_API, IMAGES, ROOT, c_api, outside_pages, page_text, rewrite_links

# A script, a style sheet, a font or an image of another host: the site is read without a network.
_REMOTE = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'> ]+)"""
    r"""|@import[^;]*?((?:https?:)?//[^"');]+)"""
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and images that are not in docs/."""
    for source, target in outside_pages().items():
        files.append(File.generated(config, target, content=page_text(source)))
    for source, target in IMAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, C_API, content=c_api()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make the links between files of the repository links between pages of the site."""
    return rewrite_links(markdown, page.file.src_uri)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads something from another host."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css"):
            for urls in _REMOTE.findall(path.read_text()):
                raise PluginError(f"{path} loads {''.join(urls)}: the site works without a network")
