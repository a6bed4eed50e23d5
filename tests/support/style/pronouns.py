"""Names that say how a thing relates to the reader, and not what it is.

`found`, `given`, `place` or `kind` fit any value of any function, so that a reader learns nothing
from them and grep finds everything. A name of this list alone is pronoun-like; as a part of a
longer name (`dtype_kind`, `found_cycle`) it says more, and is not counted. `ones` is not in the
list because numpy and torch have a function of that name.
"""

from __future__ import annotations

_LIST = """
found place places kind kinds own given made wanted what which whole other rest thing things way
ways there here such same taken kept held got seen done left asked known told said put come gone
meant mine theirs ours whose some whatever wherever one former latter had being been these
those that it its whom who shown stands lies goes comes gives takes holds belongs about around
behind beside apart along among
"""
PRONOUNS = frozenset(_LIST.split())


def is_pronoun(name: str) -> bool:
    """Whether a name is one of the list, in any case, with or without underscores around it."""
    return name.strip("_").lower() in PRONOUNS
