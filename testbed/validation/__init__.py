"""The testbed held against what it did not make: `testbed validate`.

One module for each family of measurements; each declares its cases (`cases.Case`), which run scenarios on a
`bench.Bench` and return rows (`rows.Row`). `suite.FAMILIES` lists the families: to add rows, add a case to a
family, or a module with `CASES` to that list.
"""
