# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster of virtual nodes on one machine, for demo and tests.

`inventory` has the nodes of the inventory, `cabling` plans namespaces, bridges and cables from it,
and `host_network` makes them. `nodes` has what `containers` and machines (`machines`,
`qemu`) share, `image` builds what they start from, and `switches` makes containers switches.
"""
