# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster of virtual nodes on one machine, for demo and tests.

`inventory` reads nodes from inventory variables, `cabling` plans namespaces, bridges and cables,
and `host_network` applies that plan. `nodes` holds the code shared by `containers` and by machines
(`machines`, `qemu`). `image` builds container images and machine disks, and `switches` writes the
files of simulated switches.
"""
