# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the layers of one node have in common: the node as they see it, plans, and settling them.

`part.py` is what a subject of a layer looks like; `settle.py` plans all of them, writes, and reads
everything back; `systemd.py` is the little of systemd that they ask and tell; `system.py` knows the
distribution and its package manager; `secure_boot.py` knows whether modules of DKMS would load.
"""
