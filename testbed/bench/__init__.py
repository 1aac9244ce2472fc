"""What the testbed costs in seconds and memory: `testbed bench`, which writes docs/performance.md.

One module for each section of the page; it declares a `sections.Section`, whose function measures and
returns figures (`figures.Found`). `suite.SECTIONS` lists the sections: to add one, write a module with a
`SECTION` and put it in that list. No part of the tests: figures are this machine's, and nobody is told
that they are too slow.
"""
