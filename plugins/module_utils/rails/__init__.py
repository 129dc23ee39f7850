# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a compute node: their addressing, configured for the next boot and verified now.

plan          the desired state of each rail
naming, arp   the interface at a PCI address, and the ARP settings of rails
management    interfaces that the host is reached by, none of which becomes a rail
backends      networkd and NetworkManager
survey        the readings of all rails, claims in the operator's files, differences, checks
converge      the part that `core/engine` settles: write, activate, wait, restore
path          a full packet to each gateway
boot_program  sets at boot what a reboot clears; boot_unit installs it
"""

LOCK = "run/baremetal-mpi-roce/locks/rails.lock"
"""Lock of the module and of the boot program."""

BOOT_UNIT = "baremetal-mpi-roce-rails.service"
"""The unit that sets NICs at boot; units of other layers start after it."""
