"""The record: a directory of raw facts, and the only thing that connects the live half and the offline half.

`layout` names the files, `writer` fills them while the lab runs, `reader` opens them afterwards. This package
imports none of them by itself: `layout` and `writer` are loaded inside the lab, where numpy must not be.
"""
