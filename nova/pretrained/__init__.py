"""Models of other libraries, built with `nova.nn` from their files.

`from_pretrained.py` has the table of architectures; `decoder.py` (Llama, Mistral, Qwen), `gpt2.py`,
`bert.py` and `t5.py` are the models; `generation.py` writes tokens. See docs/weights.md.
"""
