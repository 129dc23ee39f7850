# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where on the node everything of the boot unit is kept. Paths are relative to its root."""

from __future__ import annotations

UNIT = "baremetal-mpi-roce-rails.service"

PROGRAM = "usr/local/libexec/baremetal-mpi-roce/rails"
"""What systemd and operators call. One line of it says which version of the library runs."""
LIBRARY = "usr/local/libexec/baremetal-mpi-roce/lib"
"""One directory per version, named by its digest: a version is whole, or it is not used."""
STATE = "etc/baremetal-mpi-roce/rails.json"
"""What is wanted of the rails, as the last run of the role left it."""
RESULT = "run/baremetal-mpi-roce/rails-boot.json"
"""What the last run of the unit found in this boot. Gone with it."""
UNIT_FILE = f"etc/systemd/system/{UNIT}"
ENABLED = f"etc/systemd/system/multi-user.target.wants/{UNIT}"
UDEV_RULE = "etc/udev/rules.d/90-baremetal-mpi-roce-rails.rules"
SYSTEMD = "run/systemd/system"
"""There is one where systemd runs the machine."""
