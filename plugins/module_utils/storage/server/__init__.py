# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host of the cluster that serves file systems by NFS.

clients       who may have them: hosts and their addresses
parts         from what is served to the parts, in their order
blank         whether a block device has nothing at all on it
device        the device below a served directory: found, made where it is blank, mounted
directory     the served directory: its owner, group and mode
exports_file  the format of /etc/exports, and of what exportfs tells
exports       our file of exports, what is in force, and who else has access
nfs_conf      threads, ports and versions of the kernel's server
services      the kernel's server: enabled, running, listening
"""
