# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a RoCE NIC is set to: one setting at a time is read, compared, written and read again.

`setting` says what a setting is, `engine` brings all of a host about, rail by rail; the other files
are the settings themselves (`qos_settings`, `rdma_settings`, `nic_settings`) and what reads and
writes them (`dcb`, `mlnx_qos`, `ethtool`, `registers`, ...). What a reboot forgets is set again by
`boot_program`, which `boot_unit` installs on the node.
"""

BOOT_UNIT = "baremetal-mpi-roce-rails.service"
"""Other layers start after it."""
