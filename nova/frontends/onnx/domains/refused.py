"""Ops that Nova refuses, with the reason that its message and the docs give."""

from __future__ import annotations

from nova.frontends.onnx.table import ML, refuse

_STRINGS = "the host computes strings in the graph of the model, not in bodies and functions"

refuse(_STRINGS, "StringConcat", "StringNormalizer", "StringSplit")
refuse(_STRINGS, "CategoryMapper", domain=ML)
refuse("the host makes maps in the graph of the model, not in a file", "ZipMap", domain=ML)
refuse("it matches patterns of RE2, which Nova does not have", "RegexFullMatch")
refuse("it decodes compressed images; decode them before the program", "ImageDecoder")
refuse("it takes maps", "CastMap", "DictVectorizer", domain=ML)
