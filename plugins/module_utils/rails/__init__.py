# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a compute node: plain addressing, written for the next boot and proved now.

plan         what is wanted of each rail
state        what the kernel has, and which interface a PCI address is
management   by which interfaces the host is reached: none of them becomes a rail
backends     networkd and NetworkManager
survey       everything that was read, claims of the operator's files, what differs, the checks
converge     one run: write, activate, wait, roll back
"""

LOCK = "run/baremetal-mpi-roce/locks/rails.lock"
"""Held by the module and by the boot program, each while it runs."""

BOOT_UNIT = "baremetal-mpi-roce-rails.service"
"""Other layers start after it."""
