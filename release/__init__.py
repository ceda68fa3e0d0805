"""Release files: wheels, an sdist and a Debian package, the same bytes in every build.

Read in this order: `archives` (what makes an archive repeatable), `sbom` (what is inside),
`targets` (for which machines), `wheels` (`make wheels`), `deb` (`make deb`). None of this is in the
distribution.
"""
