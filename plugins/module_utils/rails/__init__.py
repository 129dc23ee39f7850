# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a compute node: plain addressing, written for the next boot and proved now.

`plan` says what is wanted, `state` what the kernel says, `device` which interface a PCI address is;
`netplan`, `networkd` and `networkmanager` write it down for the system's own network service;
`readback` compares, and `converge` puts them in order.
"""
