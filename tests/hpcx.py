# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A stand-in archive of HPC-X: Debian's Open MPI and UCX in the layout of HPC-X.

Layout and variables follow NVIDIA's manual (docs.nvidia.com/networking/display/hpcx222, "Installing
and Loading HPC-X") and hpccm/building_blocks/hpcx.py of NVIDIA/hpc-container-maker at 64c0ccb. The
directories of Debian's Open MPI are compiled in, so a wrapper sets those of the prefix; HPC-X needs
only OPAL_PREFIX.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.nodes import Nodes

NAME = "hpcx-v2.24.1-gcc-doca_ofed-stand_in-cuda13-x86_64"
PLACE = f"/var/tmp/{NAME}.tgz"
BUILD = r"""
set -eu
cd "$(mktemp -d)"
p=@NAME@ lib=/usr/lib/x86_64-linux-gnu
mkdir -p $p/ompi/bin $p/ompi/lib $p/ompi/libexec $p/ompi/etc $p/ompi/share $p/ucx/bin $p/ucx/lib/ucx
echo "A stand-in of HPC-X with Debian's Open MPI and UCX, for tests only" > $p/VERSION
cp -L /usr/bin/mpirun $p/ompi/libexec/mpirun
cp -L /usr/bin/orted $p/ompi/libexec/orted
cp -L $lib/libmpi.so.40 $lib/libopen-pal.so.40 $lib/libopen-rte.so.40 $p/ompi/lib
cp -rL $lib/openmpi/lib/openmpi3 $p/ompi/lib/openmpi
cp -r /usr/share/openmpi $p/ompi/share/openmpi
echo "# for tests only" > $p/ompi/etc/openmpi-mca-params.conf
for name in mpirun orted; do
  cat > $p/ompi/bin/$name <<WRAPPER
#!/bin/sh
here=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
export OPAL_BINDIR=\$here/bin OPAL_LIBDIR=\$here/lib OPAL_PKGLIBDIR=\$here/lib/openmpi \\
  OPAL_PKGDATADIR=\$here/share/openmpi OPAL_SYSCONFDIR=\$here/etc
unset OPAL_PREFIX PMIX_INSTALL_PREFIX
exec \$here/libexec/$name "\$@"
WRAPPER
  chmod 755 $p/ompi/bin/$name
done
cp -L /usr/bin/ucx_info /usr/bin/ucx_perftest $p/ucx/bin
cp -L $lib/libucp.so.0 $lib/libuct.so.0 $lib/libucs.so.0 $lib/libucm.so.0 $p/ucx/lib
cp -L $lib/ucx/*.so.0 $p/ucx/lib/ucx
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf @PLACE@ $p
rm -rf "$PWD"
"""


def publish(nodes: Nodes, folder: Path) -> str:
    """Build it on a node with Debian's packages, and copy it to every node; return its SHA-256."""
    builder, *others = nodes.group("compute", "launcher")
    nodes.on(builder).check_output(BUILD.replace("@NAME@", NAME).replace("@PLACE@", PLACE))
    ssh, archive = ["ssh", "-F", str(nodes.ssh_config)], folder / "hpcx.tgz"
    with archive.open("wb") as file:
        subprocess.run([*ssh, builder, f"cat {PLACE}"], stdout=file, check=True)
    for other in others:
        with archive.open("rb") as file:
            subprocess.run([*ssh, other, f"cat > {PLACE}"], stdin=file, check=True)
    return hashlib.sha256(archive.read_bytes()).hexdigest()
