# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared by all layers on a node.

part       the protocol of a layer's resources: plan, act, verify
engine     the loop that settles parts, and the entry point of a layer's module
checks     the read-back: one check per promise
files      atomic files with a diff; commands: bounded programs; systemd: units; text: lists, counts
processes  running programs and their files; mounts: the kernel's table; locks: one run at a time
reboots    recorded reasons for a reboot
machine    container or machine; secure_boot
resolve    names to addresses; waiting: polling; messages: texts with a code
"""
