# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems as nodes mount, serve and prove them.

units, mounts                    mounts of a host, and what stands in their way
device, exports, service         what a host serves by NFS
lustre, lnet, lustre_health      the client of Lustre; its packages: lustre_packages
proof, probe, bounded            each host writes, another reads

The list of parts is in options; what the controller compiled is read by file_system.
"""
