# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster of virtual nodes on one machine, for demo and tests.

`inventory` reads what the inventory says; `cabling` plans namespaces, bridges and veths from it;
`convergence` compares that with what is there; `host_network` makes it so through iproute2, with
`journal` remembering what was made. `containers` plans and runs the nodes, `image` builds what they
boot from, and `requirements` says what a machine lacks for all this.
"""
