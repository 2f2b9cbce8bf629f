"""Makes what users install: wheel, sdist, programs with their own Python, packages, chart, SBOM.

`make dist` calls `python -m release`. The same inputs give the same bytes: times come from
SOURCE_DATE_EPOCH, orders are sorted, owners are root. Nothing here is part of the product.
"""
