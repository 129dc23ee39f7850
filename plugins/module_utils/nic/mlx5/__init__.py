# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's NICs: what the driver mlx5_core and the firmware of a ConnectX or BlueField add.

vendor       the entry point, which `nics.VENDORS` lists
congestion   ECN, DCQCN and the forced traffic class
port         cable length and the register ROCE_ACCL
firmware     parameters of mlxconfig; fabric_mode compares those that are never set
"""
