"""Ops that Nova refuses, with the reason that its message and the docs give."""

from __future__ import annotations

from nova.frontends.onnx.table import ML, refuse

refuse("strings", "StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")
refuse("it decodes compressed images; decode them before the program", "ImageDecoder")
refuse("it makes maps; export the model without it (zipmap=False in skl2onnx)", "ZipMap", domain=ML)
refuse("it takes maps", "CastMap", "DictVectorizer", domain=ML)
refuse("strings", "CategoryMapper", domain=ML)
