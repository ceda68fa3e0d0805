"""What is handed out: wheels, an sdist, a Debian package; each the same to the bit each time.

Read in this order: `archives` (what makes an archive repeatable), `sbom` (what is inside),
`targets` (for which machines), `wheels` (`make wheels`), `deb` (`make deb`). Nothing of this is in
the distribution.
"""
