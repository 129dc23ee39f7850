# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What all layers share on a node.

part       what a subject of a layer looks like: it plans, and verifies
engine     plans all parts of a layer, writes, reads everything back and returns the result
checks     the read-back: one check per promise
files      atomic files with a diff; commands: bounded programs; systemd: units; text: lists, counts
processes  running programs, the files they hold; mounts: what is mounted; locks: one run at a time
reboots    recorded reasons to reboot
machine    container or machine; secure_boot
resolve    names to addresses
"""
