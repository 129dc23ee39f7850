# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keeps what Python compiles of Ansible's modules, so that all nodes can share one machine.

A module travels as a zip archive of sources, which Python compiles in every run: half of what it
costs. A server has processors of its own for that; virtual nodes share a few, or emulate them. So
the same source under the same name is compiled once on each node, for root alone.
"""

import _imp
import marshal
import os
import sys
import zipimport

KEPT = "/var/cache/virtual-node/compiled"
plain = getattr(zipimport, "_compile_source", None)


def compile_source(path, source):
    """What zipimport takes for itself, from the file that has it since an earlier run."""
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
        pass  # a full disk, or a read-only one: a later run may keep it
    return code


if plain is not None and os.geteuid() == 0:
    zipimport._compile_source = compile_source
