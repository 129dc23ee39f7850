# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a RoCE NIC. Each is read, compared, written and read back.

setting        the NIC of a rail, a setting and a reading
nics           the NICs of a host: readings, checks, and the steps that set a rail as a whole
port_settings, dcb, rdma_cm, sriov  settings through interfaces that every driver has
mlx5/          what NVIDIA's driver and firmware add; `nics.VENDORS` lists such packages
health         errors of a port, its lost and paused packets, and its module
"""
