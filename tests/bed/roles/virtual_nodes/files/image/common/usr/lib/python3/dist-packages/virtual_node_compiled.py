# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Caches the bytecode of Ansible's modules, so that all nodes can share one machine.

Ansible sends a module as a zip archive of sources, which Python compiles in every run: half of its
processor time. Servers have enough processors for that; virtual nodes share a few, or emulate them.
So the same source under the same name is compiled once per node, for root only.
"""

import _imp
import marshal
import os
import sys
import zipimport

KEPT = "/var/cache/virtual-node/compiled"
plain = getattr(zipimport, "_compile_source", None)


def compile_source(path, source):
    """Return the bytecode for zipimport, from the cache of an earlier run if there is one."""
    name = path.partition(".zip/")[2].encode()
    digest = _imp.source_hash(sys.hexversion, name + b"\0" + source).hex()
    kept = os.path.join(KEPT, digest)
    try:
        with open(kept, "rb") as stream:
            code = marshal.loads(stream.read())
        _imp._fix_co_filename(code, path)
        return code
    except (OSError, ValueError, EOFError, TypeError):
        code = plain(path, source)
    own = f"{kept}.{os.getpid()}"
    try:
        os.makedirs(KEPT, exist_ok=True)
        with open(own, "wb") as stream:
            stream.write(marshal.dumps(code))
        os.replace(own, kept)
    except OSError:
        pass  # the disk is full or read-only: a later run may store it
    return code


if plain is not None and os.geteuid() == 0:
    zipimport._compile_source = compile_source
