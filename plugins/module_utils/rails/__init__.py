# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a compute node: planned (plan, naming, arp, management), compared (survey), set up
(converge, through backends), tried (path), and set again at boot (boot_unit, boot_program)."""

LOCK = "run/baremetal-mpi-roce/locks/rails.lock"
"""Lock of the module and of the boot program."""

BOOT_UNIT = "baremetal-mpi-roce-rails.service"
"""The unit that sets NICs at boot; units of other layers start after it."""
